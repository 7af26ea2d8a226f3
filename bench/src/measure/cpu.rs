//! What the receiving side costs in CPU time.
//!
//! Packets that arrive over veth are processed in softirq context, on whatever CPU it happens to
//! be, and a kernel that counts by clock ticks books that to the process it interrupts: on the
//! sender's CPU, to the sender. So the receiver's own process time would leave out most of the cost
//! of a receiver in the kernel. What is counted instead is everything that all CPUs did, from
//! `/proc/stat`, less what the sender did for itself: the columns `user`, `nice` and `system` of
//! the CPU that the sender alone is pinned to, in which softirqs are not. Threads of the receiving
//! side that were pinned to that CPU too are counted again.
//!
//! The sender's handling of acknowledgements is in softirq context as well and cannot be told apart;
//! it is in the figure of every receiver alike. So is whatever else the machine does meanwhile: on a
//! machine that is otherwise idle, the figure is right.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use super::tasks::Tasks;
use crate::document::{CpuSeconds, OneCpu};
use crate::error::{Context, Error, Result};
use crate::sys;

/// The busy time of one CPU so far, in clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Busy {
    /// `user` and `nice`.
    user: u64,
    system: u64,
    softirq: u64,
    irq: u64,
}

/// Where the clocks of the CPUs and of the receiving side's threads stood.
#[derive(Clone, Debug)]
pub struct Snapshot {
    taken: Instant,
    cpus: BTreeMap<usize, Busy>,
    /// Threads of the receiving side that are pinned to the sender's CPU.
    beside_sender: Tasks,
    sender_cpu: Option<usize>,
}

/// What happened between two snapshots.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cost {
    /// Seconds between them.
    pub wall: f64,
    /// CPU seconds of the receiving side, softirqs included.
    pub seconds: CpuSeconds,
    /// The same by CPU, without those that did nothing.
    pub cpus: Vec<OneCpu>,
}

/// Whether the time between two snapshots is that of some seconds that were measured: a tenth of them
/// off at most, and 10 ms, which is a tick of the clock that the kernel books CPU time by. The snapshots
/// are taken when a message has come, which on a machine that has too much to do may be far too late;
/// the figures are of another time then.
#[must_use]
pub fn covers(span: f64, seconds: f64) -> bool {
    (span - seconds).abs() <= 0.1 * seconds + 0.01
}

impl Cost {
    /// How many CPUs the receiving side kept busy.
    #[must_use]
    pub fn cores(&self) -> f64 {
        if self.wall > 0.0 { self.seconds.total() / self.wall } else { 0.0 }
    }
}

impl Snapshot {
    /// Reads the clocks. `sender_cpu` is the CPU that the sender is pinned to, if it is on this
    /// machine; `beside_sender` are the threads of the receiving side that may run on no CPU but that.
    ///
    /// # Errors
    ///
    /// If `/proc/stat` cannot be read.
    pub fn take(sender_cpu: Option<usize>, beside_sender: Tasks) -> Result<Self> {
        let text = fs::read_to_string("/proc/stat").context(|| "cannot read /proc/stat")?;
        let cpus = parse(&text);
        if let Some(cpu) = sender_cpu.filter(|cpu| !cpus.contains_key(cpu)) {
            return Err(Error::Failed(format!("/proc/stat has no CPU {cpu}")));
        }
        Ok(Self { taken: Instant::now(), cpus, beside_sender, sender_cpu })
    }

    /// What the receiving side cost from this snapshot to a later one.
    #[must_use]
    pub fn cost_until(&self, later: &Self) -> Cost {
        let wall = later.taken.duration_since(self.taken).as_secs_f64();
        let mut cpus: Vec<OneCpu> = later
            .cpus
            .iter()
            .map(|(&cpu, &after)| {
                let before = self.cpus.get(&cpu).copied().unwrap_or(after);
                OneCpu { cpu, seconds: self.between(cpu, before, after, later) }
            })
            .collect();
        cpus.retain(|one| one.seconds.total() > 0.0);
        let sum = |kind: fn(&CpuSeconds) -> f64| cpus.iter().map(|one| kind(&one.seconds)).sum();
        let seconds = CpuSeconds {
            user: sum(|cpu| cpu.user),
            system: sum(|cpu| cpu.system),
            softirq: sum(|cpu| cpu.softirq),
            irq: sum(|cpu| cpu.irq),
        };
        Cost { wall, seconds, cpus }
    }

    /// What one CPU did for the receiving side.
    fn between(&self, cpu: usize, before: Busy, after: Busy, later: &Self) -> CpuSeconds {
        let seconds = |of: fn(Busy) -> u64| {
            of(after).saturating_sub(of(before)) as f64 / sys::ticks_per_second()
        };
        let (mut user, mut system) = (seconds(|busy| busy.user), seconds(|busy| busy.system));
        if self.sender_cpu == Some(cpu) {
            (user, system) = self.beside_sender.seconds_until(&later.beside_sender);
        }
        CpuSeconds {
            user,
            system,
            softirq: seconds(|busy| busy.softirq),
            irq: seconds(|busy| busy.irq),
        }
    }
}

/// The lines of the single CPUs in /proc/stat.
fn parse(text: &str) -> BTreeMap<usize, Busy> {
    let line = |line: &str| {
        let (number, columns) = line.strip_prefix("cpu")?.split_once(' ')?;
        let mut columns = columns.split_ascii_whitespace().map_while(|text| text.parse().ok());
        let mut next = || columns.next().unwrap_or(0);
        let (user, nice, system): (u64, u64, u64) = (next(), next(), next());
        let (_idle, _iowait) = (next(), next());
        let (irq, softirq) = (next(), next());
        Some((number.parse().ok()?, Busy { user: user + nice, system, softirq, irq }))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "cpu  30 3 50 900 7 3 9 0 0 0\n\
        cpu0 10 1 20 400 5 1 4 0 0 0\n\
        cpu1 20 2 30 500 2 2 5 0 0 0\n\
        intr 12345 0 0\n";
    const AFTER: &str = "cpu  30 3 50 900 7 3 9 0 0 0\n\
        cpu0 110 1 40 401 5 2 24 0 0 0\n\
        cpu1 21 2 90 540 2 2 8 0 0 0\n";

    fn snapshot(text: &str, sender_cpu: Option<usize>) -> Snapshot {
        let beside_sender = Tasks::default();
        Snapshot { taken: Instant::now(), cpus: parse(text), beside_sender, sender_cpu }
    }

    fn ticks(seconds: CpuSeconds) -> [f64; 4] {
        let CpuSeconds { user, system, softirq, irq } =
            seconds.map(|kind| (kind * sys::ticks_per_second()).round());
        [user, system, softirq, irq]
    }

    #[test]
    fn columns_are_read_by_cpu() {
        let cpus = parse(BEFORE);
        assert_eq!(cpus.len(), 2);
        assert_eq!(cpus[&0], Busy { user: 11, system: 20, softirq: 4, irq: 1 });
        assert_eq!(cpus[&1], Busy { user: 22, system: 30, softirq: 5, irq: 2 });
    }

    #[test]
    fn what_the_sender_did_for_itself_is_left_out() {
        let cost = snapshot(BEFORE, Some(0)).cost_until(&snapshot(AFTER, Some(0)));
        let [zero, one] = cost.cpus[..] else { panic!("two CPUs: {cost:?}") };
        assert_eq!((zero.cpu, ticks(zero.seconds)), (0, [0.0, 0.0, 20.0, 1.0]));
        assert_eq!((one.cpu, ticks(one.seconds)), (1, [1.0, 60.0, 3.0, 0.0]));
        assert_eq!(ticks(cost.seconds), [1.0, 60.0, 23.0, 1.0]);
    }

    #[test]
    fn without_a_sender_on_this_machine_all_is_counted() {
        let cost = snapshot(BEFORE, None).cost_until(&snapshot(AFTER, None));
        assert_eq!(ticks(cost.seconds), [101.0, 80.0, 23.0, 1.0]);
    }

    #[test]
    fn snapshots_of_another_time_are_told() {
        for (span, seconds) in [(2.0, 2.0), (2.2, 2.0), (1.8, 2.0), (0.119, 0.1)] {
            assert!(covers(span, seconds), "{span} of {seconds}");
        }
        for (span, seconds) in [(0.0, 0.1), (0.13, 0.1), (2.3, 2.0), (1.7, 2.0), (0.0, 2.0)] {
            assert!(!covers(span, seconds), "{span} of {seconds}");
        }
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_an_error() {
        assert!(Snapshot::take(Some(100_000), Tasks::default()).is_err());
        assert!(Snapshot::take(Some(0), Tasks::default()).is_ok());
    }
}
