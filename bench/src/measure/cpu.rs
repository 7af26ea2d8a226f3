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

use crate::error::{Context, Error, Result};
use crate::sys;

/// The busy time of one CPU so far, in clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Busy {
    /// In processes: `user`, `nice` and `system`.
    processes: u64,
    /// In interrupts: `irq` and `softirq`.
    interrupts: u64,
}

/// Where the clocks of the CPUs and of the receiving side's threads stood.
#[derive(Clone, Debug)]
pub struct Snapshot {
    taken: Instant,
    cpus: BTreeMap<usize, Busy>,
    /// Seconds that threads of the receiving side, pinned to the sender's CPU, have run.
    beside_sender: f64,
    sender_cpu: usize,
}

/// What happened between two snapshots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// CPU seconds of the receiving side, softirqs included.
    pub seconds: f64,
    /// The same for a second of wall time: how many CPUs it kept busy.
    pub cores: f64,
}

impl Snapshot {
    /// Reads the clocks. `beside_sender` are the threads of the receiving side that may run on no
    /// CPU but the sender's.
    ///
    /// # Errors
    ///
    /// If `/proc/stat` cannot be read.
    pub fn take(sender_cpu: usize, beside_sender: &[u32]) -> Result<Self> {
        let text = fs::read_to_string("/proc/stat").context(|| "cannot read /proc/stat")?;
        let cpus = parse(&text);
        if !cpus.contains_key(&sender_cpu) {
            return Err(Error::Failed(format!("/proc/stat has no CPU {sender_cpu}")));
        }
        let beside_sender = beside_sender.iter().map(|&tid| thread_seconds(tid, tid)).sum();
        Ok(Self { taken: Instant::now(), cpus, beside_sender, sender_cpu })
    }

    /// What the receiving side cost from this snapshot to a later one.
    #[must_use]
    pub fn cost_until(&self, later: &Self) -> Cost {
        let wall = later.taken.duration_since(self.taken).as_secs_f64();
        let ticks = self.ticks_until(later) as f64 / sys::ticks_per_second();
        let beside = (later.beside_sender - self.beside_sender).max(0.0);
        let seconds = ticks + beside;
        Cost { seconds, cores: if wall > 0.0 { seconds / wall } else { 0.0 } }
    }

    /// Ticks of all CPUs, without those of processes on the sender's.
    fn ticks_until(&self, later: &Self) -> u64 {
        let of = |(cpu, after): (&usize, &Busy)| {
            let before = self.cpus.get(cpu).copied().unwrap_or(*after);
            let processes = after.processes.saturating_sub(before.processes);
            let interrupts = after.interrupts.saturating_sub(before.interrupts);
            if *cpu == self.sender_cpu { interrupts } else { processes + interrupts }
        };
        later.cpus.iter().map(of).sum()
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
        let busy = Busy { processes: user + nice + system, interrupts: irq + softirq };
        Some((number.parse().ok()?, busy))
    };
    text.lines().filter_map(line).collect()
}

/// The seconds that a process's threads have run, from the scheduler's own clock; those that ended
/// are not in it.
#[must_use]
pub fn process_seconds(pid: u32) -> f64 {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0.0 };
    let tids = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok());
    tids.map(|tid| thread_seconds(pid, tid)).sum()
}

/// The seconds that a thread has run.
fn thread_seconds(pid: u32, tid: u32) -> f64 {
    let run = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok();
    let nanoseconds = run.and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    nanoseconds.unwrap_or(0) as f64 / 1e9
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

    fn snapshot(text: &str, beside_sender: f64) -> Snapshot {
        Snapshot { taken: Instant::now(), cpus: parse(text), beside_sender, sender_cpu: 0 }
    }

    #[test]
    fn columns_are_read_by_cpu() {
        let cpus = parse(BEFORE);
        assert_eq!(cpus.len(), 2);
        assert_eq!(cpus[&0], Busy { processes: 31, interrupts: 5 });
        assert_eq!(cpus[&1], Busy { processes: 52, interrupts: 7 });
    }

    #[test]
    fn what_the_sender_did_for_itself_is_left_out() {
        let (before, after) = (snapshot(BEFORE, 1.0), snapshot(AFTER, 1.5));
        // On the sender's CPU 21 in interrupts; on the other one 61 in processes and 3.
        assert_eq!(before.ticks_until(&after), 21 + 61 + 3);
        let expected = 85.0 / sys::ticks_per_second() + 0.5;
        assert!((before.cost_until(&after).seconds - expected).abs() < 1e-9);
    }

    #[test]
    fn a_busy_process_is_seen_to_run() {
        let before = process_seconds(std::process::id());
        let start = Instant::now();
        let mut x = 0_u64;
        while start.elapsed().as_millis() < 50 {
            x = std::hint::black_box(x.wrapping_add(1));
        }
        assert!(process_seconds(std::process::id()) > before);
        assert_eq!(process_seconds(u32::MAX), 0.0);
    }
}
