//! The measurements, in turns.

use std::time::Duration;

use mpxdp::Placement;

use super::Options;
use super::analysis;
use super::host::numa_node;
use super::nic::{Hold, Roots};
use super::plan::{Item, Plan, SenderAt, Wishes, relations};
use super::recommend::{Candidate, choose, robust};
use crate::document::{Document, NotRun, Placed, Recommendation, Round, Row};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::lab::Lab;
use crate::measure::Spread;
use crate::progress::Progress;
use crate::topology::Topology;
use crate::trial::{Bench, Outcome, Programs, Receiver, Trial, order};

/// How much of a connection's beginning is left out, as a part of the measured time. The windows have
/// opened by then.
const WARMUP: u32 = 4;

/// What starting and ending the processes of a measurement takes, for the time that is left.
const OVERHEAD: Duration = Duration::from_millis(400);

/// How long a measurement takes.
fn expected(options: &Options) -> Duration {
    options.time + options.time / WARMUP + OVERHEAD
}

/// What is to be measured, for each MTU.
pub(super) fn plans(options: &Options, topology: &Topology) -> Result<Vec<(u32, Plan)>> {
    let sender = options.hosts.as_ref().map_or(SenderAt::Here, |hosts| {
        let roots = Roots::default();
        let nic_node = hosts.nics.iter().find_map(|nic| numa_node(&roots, nic));
        SenderAt::Elsewhere { nic_node }
    });
    let wishes = Wishes {
        sender,
        receivers: &options.receivers,
        subflows: &options.subflows,
        links: options.links(),
        limit: options.limit,
        only: &options.placements,
    };
    let plan = |&mtu| Ok((mtu, Plan::new(&wishes, mtu, topology)?));
    match &options.hosts {
        Some(hosts) => [hosts.mtu()].iter().map(plan).collect(),
        None => options.mtus.iter().map(plan).collect(),
    }
}

/// Measures all of it and fills the document. True if nothing failed. An interrupt ends it early, with
/// what was measured by then.
pub(super) fn run(
    options: &Options,
    plans: &[(u32, Plan)],
    programs: &Programs,
    interrupt: &Interrupt,
    document: &mut Document,
) -> Result<bool> {
    let progress = Progress::new(Duration::ZERO);
    for (_, plan) in plans {
        let trials = u32::try_from(plan.items.len() * options.rounds).unwrap_or(u32::MAX);
        progress.more(expected(options).saturating_mul(trials));
    }
    let mut complete = true;
    let mut ended = Ok(());
    for (mtu, plan) in plans {
        document.not_run.extend(plan.not_run.iter().cloned());
        let mut seats: Vec<Seat<'_>> = plan.items.iter().map(Seat::new).collect();
        let result = one_mtu(options, *mtu, &mut seats, programs, interrupt, &progress, document);
        document.interrupted |= matches!(result, Err(Error::Interrupted));
        complete &= seats.iter().all(|seat| seat.failure.is_none());
        for seat in seats {
            seat.finish(options, *mtu, document);
        }
        match result {
            Ok(()) | Err(Error::Interrupted) => {}
            Err(error) => {
                ended = Err(error);
                break;
            }
        }
    }
    // Of what was measured, whatever came then.
    mark_best(&mut document.results);
    ended?;
    if document.results.is_empty() && !document.interrupted {
        let why = document.not_run.last().map_or("nothing was asked for", |not| &not.reason);
        return Err(Error::Failed(format!("nothing could be measured: {why}")));
    }
    Ok(complete)
}

/// One item with what was measured of it.
struct Seat<'a> {
    item: &'a Item,
    outcomes: Vec<Outcome>,
    failure: Option<String>,
}

impl<'a> Seat<'a> {
    const fn new(item: &'a Item) -> Self {
        Self { item, outcomes: Vec::new(), failure: None }
    }

    fn trial(&self, options: &Options) -> Trial {
        Trial {
            receiver: self.item.receiver,
            place: self.item.place.clone(),
            subflows: self.item.subflows,
            warmup: options.time / WARMUP,
            time: options.time,
        }
    }

    /// Becomes a row, if there is anything to put in one, and a reason if something is missing.
    fn finish(self, options: &Options, mtu: u32, document: &mut Document) {
        if self.outcomes.len() < options.rounds {
            let measured = self.outcomes.len();
            let reason = self.failure.clone().unwrap_or_else(|| "interrupted".into());
            let rounds =
                if measured > 0 { format!(", after {measured} rounds") } else { String::new() };
            let what = format!("{}{rounds}", self.item.describe(mtu));
            document.not_run.push(NotRun { what, reason });
        }
        if !self.outcomes.is_empty() {
            document.results.push(self.row(options, mtu));
        }
    }

    fn row(self, options: &Options, mtu: u32) -> Row {
        let trial = self.trial(options);
        let Self { item, outcomes, .. } = self;
        let Item { receiver, subflows, place, class } = item;
        let (nic_reader, nic_worker, worker_reader) = relations(class);
        let row = Row {
            benchmark: "placement".into(),
            receiver: receiver.name().into(),
            mtu,
            subflows: *subflows,
            links: options.links(),
            placement: place.to_string(),
            mode: outcomes.first().map(|outcome| outcome.mode.clone()).unwrap_or_default(),
            zero_copy: outcomes.first().and_then(|outcome| outcome.zero_copy),
            mptcp: outcomes.iter().all(|outcome| outcome.mptcp),
            seconds: trial.time.as_secs_f64(),
            warmup_seconds: trial.warmup.as_secs_f64(),
            ..Row::default()
        };
        let rounds: Vec<Round> = outcomes.into_iter().map(|outcome| outcome.round).collect();
        let placed = Placed {
            class: class.to_string(),
            scenario: item.scenario(),
            nic_reader,
            nic_worker,
            worker_reader,
            sender_cpu: options.hosts.is_none().then_some(place.sender),
            bottleneck: analysis::bottleneck(&rounds, place, options.hosts.is_none()),
        };
        Row { placed: Some(placed), ..row.with_rounds(rounds) }
    }
}

/// All rounds at one MTU: between the hosts, or in a lab of its own, which goes with the last.
fn one_mtu(
    options: &Options,
    mtu: u32,
    seats: &mut [Seat<'_>],
    programs: &Programs,
    interrupt: &Interrupt,
    progress: &Progress,
    document: &mut Document,
) -> Result<()> {
    interrupt.check()?;
    if let Some(hosts) = &options.hosts {
        let mut bench = Bench::between_hosts(hosts, programs, interrupt);
        bench.describe(&mut document.environment);
        let mut held = Hold::new(Roots::default())?;
        let result = rounds(options, seats, interrupt, progress, |trial| {
            if let Some(cpus) = &trial.place.napi {
                hosts.nics.iter().try_for_each(|nic| held.place(nic, cpus))?;
            }
            bench.measure(trial)
        });
        held.restore()?;
        return result;
    }
    let lab = Lab::builder()
        .name(&options.name)
        .links(options.links())
        .mtu(mtu)
        .interrupt(interrupt)
        .up()?;
    let mut bench = Bench::new(&lab, programs, interrupt);
    bench.describe(&mut document.environment);
    let result = rounds(options, seats, interrupt, progress, |trial| bench.measure(trial));
    lab.remove()?;
    result
}

/// Measures all that have not failed, in turns.
fn rounds(
    options: &Options,
    seats: &mut [Seat<'_>],
    interrupt: &Interrupt,
    progress: &Progress,
    mut measure: impl FnMut(&Trial) -> Result<Outcome>,
) -> Result<()> {
    let indices: Vec<usize> = (0..seats.len()).collect();
    for round in 0..options.rounds {
        for index in order(&indices, round) {
            let seat = &mut seats[index];
            if seat.failure.is_some() {
                progress.did(expected(options));
                continue;
            }
            let Item { receiver, subflows, place, .. } = seat.item;
            let what = format!("{}, subflows {subflows}, {place}", receiver.name());
            progress.says(format!("round {}: {what}", round + 1));
            match measure(&seat.trial(options)) {
                Ok(outcome) => seat.outcomes.push(outcome),
                // It says something about that placement only: a starved thread, for instance.
                Err(Error::Failed(why)) if !interrupt.is_set() => seat.failure = Some(why),
                Err(_) if interrupt.is_set() => return Err(Error::Interrupted),
                Err(error) => return Err(error),
            }
            progress.did(expected(options));
        }
    }
    Ok(())
}

/// Whether two rows are measurements of the same receiver under the same conditions.
fn same_conditions(one: &Row, other: &Row) -> bool {
    let of = |row: &Row| (row.receiver.clone(), row.mtu, row.subflows);
    of(one) == of(other)
}

/// The rows of each receiver under each set of conditions, in their order.
fn groups(rows: &[Row]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (n, row) in rows.iter().enumerate() {
        match groups.iter_mut().find(|group| same_conditions(&rows[group[0]], row)) {
            Some(group) => group.push(n),
            None => groups.push(vec![n]),
        }
    }
    groups
}

/// Marks the placement with the highest median of each receiver under each set of conditions.
fn mark_best(rows: &mut [Row]) {
    let rate = |row: &Row| row.bits_per_second.map_or(0.0, |spread| spread.median);
    for group in groups(rows) {
        let best = group.into_iter().max_by(|&a, &b| rate(&rows[a]).total_cmp(&rate(&rows[b])));
        if let Some(best) = best {
            rows[best].best = true;
        }
    }
}

/// What to take, for each receiver under each set of conditions.
pub(super) fn recommendations(rows: &[Row]) -> Vec<Recommendation> {
    let recommend = |group: Vec<usize>| {
        let rows: Vec<(&Row, Candidate)> =
            group.iter().filter_map(|&n| Some((&rows[n], candidate(&rows[n])?))).collect();
        let candidates: Vec<Candidate> = rows.iter().map(|(_, candidate)| *candidate).collect();
        let rounds = rows.iter().map(|(row, _)| row.rounds).min()?;
        let (n, why) = choose(&candidates, rounds)?;
        let (row, Candidate { rate, cost }) = rows[n];
        Some(Recommendation {
            receiver: row.receiver.clone(),
            mtu: row.mtu,
            subflows: row.subflows,
            placement: row.placement.clone(),
            bits_per_second: rate,
            cpu_seconds_per_gigabyte: cost.median,
            why,
            reason: why.to_string(),
        })
    };
    groups(rows).into_iter().filter_map(recommend).collect()
}

fn candidate(row: &Row) -> Option<Candidate> {
    let costs = row.measurements.iter().filter_map(Round::cpu_per_gigabyte);
    let cost = Spread::of(costs.map(|cost| cost.total()))?;
    Some(Candidate { rate: row.bits_per_second?, cost })
}

/// The placement of mpxdp for a configuration: under one set of conditions the recommended one, under
/// several the one that loses least where it loses most. What the engine has no part in, a NIC's
/// processing in the sender's context, is left out.
pub(super) fn for_config(rows: &[Row]) -> Option<Placement> {
    let name = Receiver::Mpxdp.name();
    let rows: Vec<Row> = rows.iter().filter(|row| row.receiver == name).cloned().collect();
    let groups = groups(&rows);
    let text = if groups.len() == 1 {
        recommendations(&rows).into_iter().next()?.placement
    } else {
        let mut placements: Vec<&str> = Vec::new();
        for row in &rows {
            if !placements.contains(&row.placement.as_str()) {
                placements.push(&row.placement);
            }
        }
        let rate = |group: &[usize], placement: &str| {
            let row = group.iter().map(|&n| &rows[n]).find(|row| row.placement == placement)?;
            Some(row.bits_per_second?.median)
        };
        let rates: Vec<Vec<Option<f64>>> = groups
            .iter()
            .map(|group| placements.iter().map(|placement| rate(group, placement)).collect())
            .collect();
        placements[robust(&rates)?].to_owned()
    };
    let parts: Vec<&str> = text.split(' ').filter(|part| *part != "napi=sender").collect();
    parts.join(" ").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::CpuSeconds;

    /// A row with rounds of these rates in Gb/s, each at one core.
    fn row(receiver: Receiver, subflows: u32, placement: &str, rates: &[f64]) -> Row {
        let round = |rate: &f64| Round {
            seconds: 1.0,
            bytes: (rate / 8.0 * 1e9) as u64,
            bits_per_second: rate * 1e9,
            receiving_cores: 1.0,
            cpu_seconds: CpuSeconds { user: 1.0, ..CpuSeconds::default() },
            ..Round::default()
        };
        Row {
            receiver: receiver.name().into(),
            mtu: 1500,
            subflows,
            placement: placement.into(),
            ..Row::default()
        }
        .with_rounds(rates.iter().map(round).collect())
    }

    const A: &str = "napi=1 worker=1 reader=1";
    const B: &str = "napi=sender worker=1 reader=1";

    #[test]
    fn each_receiver_has_a_recommendation_under_each_set_of_conditions() {
        let rows = [
            row(Receiver::Mpxdp, 1, A, &[5.0, 5.1, 5.2]),
            row(Receiver::Mpxdp, 1, B, &[8.0, 8.1, 8.2]),
            row(Receiver::Mpxdp, 2, A, &[9.0, 9.1, 9.2]),
            row(Receiver::KernelTcp, 1, "napi=1 reader=1", &[4.0, 4.1, 4.2]),
            row(Receiver::Mpxdp, 2, B, &[7.0, 7.1, 7.2]),
        ];
        let placements: Vec<(String, u32, String)> = recommendations(&rows)
            .into_iter()
            .map(|r| (r.receiver, r.subflows, r.placement))
            .collect();
        let expected = [("mpxdp", 1, B), ("mpxdp", 2, A), ("kernel-tcp", 1, "napi=1 reader=1")]
            .map(|(receiver, subflows, place)| (receiver.to_owned(), subflows, place.to_owned()));
        assert_eq!(placements, expected);
        let mut rows = rows;
        mark_best(&mut rows);
        assert_eq!(rows.map(|row| row.best), [false, true, true, true, false]);
    }

    #[test]
    fn the_configuration_gets_what_the_engine_understands() {
        let one = [row(Receiver::Mpxdp, 1, B, &[8.0, 8.1, 8.2])];
        assert_eq!(for_config(&one).map(|p| p.to_string()).as_deref(), Some("worker=1 reader=1"));
        // Better once and much worse once.
        let several = [
            row(Receiver::Mpxdp, 1, A, &[9.0]),
            row(Receiver::Mpxdp, 1, B, &[8.5]),
            row(Receiver::Mpxdp, 2, A, &[4.0]),
            row(Receiver::Mpxdp, 2, B, &[8.0]),
            row(Receiver::KernelTcp, 1, "napi=1 reader=0", &[40.0]),
        ];
        let placement = for_config(&several).map(|p| p.to_string());
        assert_eq!(placement.as_deref(), Some("worker=1 reader=1"));
        assert_eq!(for_config(&several[4..]), None);
    }
}
