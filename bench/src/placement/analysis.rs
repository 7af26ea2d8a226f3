//! From the figures of a measurement to the stages' loads.

use super::bottleneck::{Bottleneck, Load, Stage};
use crate::document::Round;
use crate::measure::Spread;
use crate::trial::Place;

/// What limited a placement over all its rounds, by the median load of each stage; none without
/// rounds whose CPU figures are valid. `sender_here`: whether the sender is on this machine.
#[must_use]
pub fn bottleneck(rounds: &[Round], place: &Place, sender_here: bool) -> Option<Bottleneck> {
    let rounds: Vec<&Round> = rounds.iter().filter(|round| !round.cpu_invalid).collect();
    let each: Vec<Vec<Load>> =
        rounds.iter().map(|&round| loads(round, place, sender_here)).collect();
    let stages = [Stage::Sender, Stage::NicProcessing, Stage::Worker, Stage::Reader];
    let median = |stage| {
        let all = || each.iter().flatten().filter(move |load: &&Load| load.stage == stage);
        let busy = Spread::of(all().map(|load| load.busy))?.median;
        Some(Load { busy, ..all().next()?.clone() })
    };
    let loads: Vec<Load> = stages.into_iter().filter_map(median).collect();
    // Of the sender's CPU only what was done for the receiver is known.
    let cpus = loads
        .iter()
        .flat_map(|load| &load.cpus)
        .filter(|&&cpu| !sender_here || cpu != place.sender);
    let totals: Vec<(usize, f64)> = cpus
        .filter_map(|&cpu| {
            let of = rounds.iter().map(|round| total(round, cpu));
            Some((cpu, Spread::of(of)?.median))
        })
        .collect();
    Bottleneck::find(&loads, &totals)
}

/// How busy a CPU was with anything.
fn total(round: &Round, cpu: usize) -> f64 {
    let seconds = round.cpus.iter().find(|one| one.cpu == cpu).map(|one| one.seconds.total());
    if round.seconds > 0.0 { seconds.unwrap_or(0.0) / round.seconds } else { 0.0 }
}

/// How busy each stage was in a round, and where it ran.
fn loads(round: &Round, place: &Place, sender_here: bool) -> Vec<Load> {
    let busy = &round.busy;
    let mut loads = Vec::new();
    let mut add = |stage, cpus: &[usize], busy: f64| {
        loads.push(Load { stage, cpus: cpus.to_vec(), busy });
    };
    let on_sender = place.napi.is_none();
    let softirqs = softirq(round, &[place.sender]);
    if let Some(sender) = busy.sender {
        // The scheduler books softirqs to the thread that they interrupt.
        let own = if on_sender { sender - softirqs } else { sender };
        let cpus = if sender_here { &[place.sender][..] } else { &[] };
        add(Stage::Sender, cpus, own.max(0.0));
    }
    match (&place.napi, busy.nic_processing) {
        (None, _) => add(Stage::NicProcessing, &[place.sender], softirqs),
        (Some(cpus), Some(threads)) => add(Stage::NicProcessing, cpus.as_slice(), threads),
        // Interrupts on these CPUs, as a real NIC has it.
        (Some(cpus), None) => {
            add(Stage::NicProcessing, cpus.as_slice(), softirq(round, cpus.as_slice()));
        }
    }
    // The worker's own clock does not count its spinning, but does count what takes its CPU away while
    // it works; the scheduler's is the other way around.
    let worker = match (busy.worker, busy.worker_at_work) {
        (Some(ran), Some(at_work)) => Some(ran.min(at_work)),
        (ran, at_work) => ran.or(at_work),
    };
    if let Some(worker) = worker.filter(|_| !place.workers.is_empty()) {
        add(Stage::Worker, place.workers.as_slice(), worker);
    }
    if let Some(reader) = busy.reader {
        add(Stage::Reader, &[place.reader], reader);
    }
    loads
}

/// CPUs kept busy by softirqs on some CPUs.
fn softirq(round: &Round, cpus: &[usize]) -> f64 {
    let of = round.cpus.iter().filter(|one| cpus.contains(&one.cpu));
    let seconds: f64 = of.map(|one| one.seconds.softirq + one.seconds.irq).sum();
    if round.seconds > 0.0 { seconds / round.seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::super::bottleneck::Limit;
    use super::*;
    use crate::document::{Busy, CpuSeconds, OneCpu};

    fn place(text: &str) -> Place {
        Place::parse(text, &[0, 1, 2, 3]).expect("a placement")
    }

    fn round(busy: Busy, softirq: &[(usize, f64)]) -> Round {
        let one = |&(cpu, softirq): &(usize, f64)| OneCpu {
            cpu,
            seconds: CpuSeconds { softirq, ..CpuSeconds::default() },
        };
        Round { seconds: 2.0, busy, cpus: softirq.iter().map(one).collect(), ..Round::default() }
    }

    fn busy_of(round: &Round, place: &Place, stage: Stage) -> f64 {
        let loads = loads(round, place, true);
        loads.into_iter().find(|load| load.stage == stage).map_or(f64::NAN, |load| load.busy)
    }

    #[test]
    fn processing_in_the_senders_context_is_taken_from_the_sender() {
        let busy = Busy { sender: Some(0.98), reader: Some(0.5), ..Busy::default() };
        let round = round(busy, &[(0, 0.8), (1, 0.2)]);
        let place = place("sender=0 napi=sender worker=1 reader=1");
        assert!((busy_of(&round, &place, Stage::NicProcessing) - 0.4).abs() < 1e-9);
        assert!((busy_of(&round, &place, Stage::Sender) - 0.58).abs() < 1e-9);
        let found = bottleneck(&[round], &place, true).expect("a round");
        assert_eq!(found.limit, Limit::SharedCpu(0));
    }

    #[test]
    fn processing_by_interrupts_is_the_softirq_time_of_their_cpus() {
        let round = round(Busy { reader: Some(0.5), ..Busy::default() }, &[(2, 1.0), (3, 0.5)]);
        let place = place("napi=2,3 worker=1 reader=1");
        assert!((busy_of(&round, &place, Stage::NicProcessing) - 0.75).abs() < 1e-9);
    }

    #[test]
    fn processing_by_threads_is_what_they_ran() {
        let busy = Busy { nic_processing: Some(0.97), ..Busy::default() };
        let round = round(busy, &[(1, 1.0)]);
        let place = place("napi=1 worker=2 reader=3");
        let found = bottleneck(&[round], &place, true).expect("a round");
        assert_eq!(found.limit, Limit::Stage(Stage::NicProcessing));
    }

    #[test]
    fn a_spinning_worker_is_idle_and_a_preempted_one_does_not_run() {
        let worker = |ran, at_work| {
            let busy = Busy { worker: ran, worker_at_work: at_work, ..Busy::default() };
            busy_of(&round(busy, &[]), &place("worker=1 reader=2"), Stage::Worker)
        };
        assert_eq!(worker(Some(1.0), Some(0.3)), 0.3);
        assert_eq!(worker(Some(0.4), Some(0.8)), 0.4);
        assert_eq!(worker(Some(0.4), None), 0.4);
        assert!(worker(None, None).is_nan());
    }

    #[test]
    fn rounds_are_judged_by_their_median() {
        let one = |reader| round(Busy { reader: Some(reader), ..Busy::default() }, &[]);
        let place = place("napi=2 worker=1 reader=3");
        let found = bottleneck(&[one(0.95), one(0.2), one(0.97)], &place, true).expect("rounds");
        assert_eq!(found.limit, Limit::Stage(Stage::Reader));
        assert_eq!(found.cpus[0].busy, 0.95);
        assert_eq!(bottleneck(&[], &place, true), None);
    }

    #[test]
    fn a_sender_on_another_host_has_none_of_our_cpus() {
        let busy = Busy { sender: Some(0.99), reader: Some(0.5), ..Busy::default() };
        let round = round(busy, &[(0, 1.0)]);
        let place = place("sender=0 napi=0 worker=1 reader=1");
        let found = bottleneck(&[round], &place, false).expect("a round");
        assert_eq!(found.limit, Limit::Stage(Stage::Sender));
        let cpus: Vec<usize> = found.cpus.iter().map(|load| load.cpu).collect();
        assert_eq!(cpus, [0, 1]);
        assert_eq!(found.cpus[0].total, Some(0.5));
    }
}
