//! What threads have used and how often they were switched, as `/proc` tells.

use std::collections::BTreeMap;
use std::fs;

use crate::document::ContextSwitches;
use crate::sys;

/// Some threads, by number, as they stood at a moment. Threads that end before a later moment are
/// lost to the difference, those that start between count from their start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tasks(BTreeMap<u32, Task>);

/// One thread.
#[derive(Clone, Debug, Default, PartialEq)]
struct Task {
    name: String,
    /// Seconds that the scheduler ran it, by its own clock.
    ran: f64,
    /// Of these in user space and in the kernel, in clock ticks.
    user: u64,
    system: u64,
    switches: ContextSwitches,
}

impl Tasks {
    /// All threads of a process; none if it is gone.
    #[must_use]
    pub fn of_process(pid: u32) -> Self {
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Self::default() };
        let tids = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok());
        Self(tids.filter_map(|tid| Some((tid, Task::read(pid, tid)?))).collect())
    }

    /// Single threads, such as those of the kernel, which are processes by themselves.
    #[must_use]
    pub fn of_threads(pids: &[u32]) -> Self {
        Self(pids.iter().filter_map(|&pid| Some((pid, Task::read(pid, pid)?))).collect())
    }

    /// These and others.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Those whose name passes.
    #[must_use]
    pub fn named(&self, mut is: impl FnMut(&str) -> bool) -> Self {
        Self(self.0.iter().filter(|(_, t)| is(&t.name)).map(|(i, t)| (*i, t.clone())).collect())
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The seconds for which the scheduler ran them until a later moment.
    #[must_use]
    pub fn ran_until(&self, later: &Self) -> f64 {
        self.pairs(later).map(|(before, after)| (after.ran - before.ran).max(0.0)).sum()
    }

    /// The seconds in user space and in the kernel until a later moment, by clock ticks.
    #[must_use]
    pub fn seconds_until(&self, later: &Self) -> (f64, f64) {
        let sum = |of: fn(&Task) -> u64| {
            let ticks: u64 = self.pairs(later).map(|(a, b)| of(b).saturating_sub(of(&a))).sum();
            ticks as f64 / sys::ticks_per_second()
        };
        (sum(|task| task.user), sum(|task| task.system))
    }

    /// Context switches until a later moment.
    #[must_use]
    pub fn switches_until(&self, later: &Self) -> ContextSwitches {
        let sum = |of: fn(&ContextSwitches) -> u64| {
            let of = |task: &Task| of(&task.switches);
            self.pairs(later).map(|(a, b)| of(b).saturating_sub(of(&a))).sum()
        };
        ContextSwitches {
            voluntary: sum(|switches| switches.voluntary),
            involuntary: sum(|switches| switches.involuntary),
        }
    }

    fn pairs<'a>(&'a self, later: &'a Self) -> impl Iterator<Item = (Task, &'a Task)> {
        later.0.iter().map(|(tid, after)| (self.0.get(tid).cloned().unwrap_or_default(), after))
    }
}

impl Task {
    fn read(pid: u32, tid: u32) -> Option<Self> {
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/task/{tid}/{file}")).ok();
        let (name, user, system) = parse_stat(&read("stat")?)?;
        let ran = read("schedstat").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        Some(Self {
            name,
            ran: ran.unwrap_or(0) as f64 / 1e9,
            user,
            system,
            switches: parse_switches(&read("status")?),
        })
    }
}

/// A thread's name and its `utime` and `stime`: the second, 14th and 15th field of its `stat`. The
/// name is in parentheses and may hold some itself.
fn parse_stat(stat: &str) -> Option<(String, u64, u64)> {
    let (before, fields) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    Some((name.to_owned(), fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

fn parse_switches(status: &str) -> ContextSwitches {
    let field = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name))?;
        value.trim().parse().ok()
    };
    ContextSwitches {
        voluntary: field("voluntary_ctxt_switches:").unwrap_or(0),
        involuntary: field("nonvoluntary_ctxt_switches:").unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        for name in ["x", "a b", "x) R 1 (y"] {
            let stat = format!("7 ({name}) R 1 2 3 4 5 6 7 8 9 10 31 12 13 14");
            assert_eq!(parse_stat(&stat), Some((name.to_owned(), 31, 12)));
        }
        assert_eq!(parse_stat("7 (x) R 1"), None);
    }

    #[test]
    fn switches_are_read_from_a_status() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t11\nnonvoluntary_ctxt_switches:\t3\n";
        let expected = ContextSwitches { voluntary: 11, involuntary: 3 };
        assert_eq!(parse_switches(status), expected);
        assert_eq!(parse_switches(""), ContextSwitches::default());
    }

    #[test]
    fn a_busy_thread_is_seen_to_run_and_a_sleeping_one_to_give_way() {
        let before = Tasks::of_process(std::process::id());
        let start = Instant::now();
        let mut x = 0_u64;
        while start.elapsed() < Duration::from_millis(50) {
            x = std::hint::black_box(x.wrapping_add(1));
        }
        std::thread::sleep(Duration::from_millis(1));
        let after = Tasks::of_process(std::process::id());
        assert!(before.ran_until(&after) > 0.0);
        assert!(before.switches_until(&after).voluntary > 0);
    }

    #[test]
    fn threads_that_are_gone_are_none() {
        assert!(Tasks::of_process(u32::MAX).is_empty());
        assert!(Tasks::of_threads(&[u32::MAX]).is_empty());
    }

    #[test]
    fn threads_that_start_later_count_from_their_start() {
        let task = |ran| Task { name: "reader-1".into(), ran, ..Task::default() };
        let before = Tasks([(1, task(5.0))].into());
        let after = Tasks([(1, task(6.0)), (2, task(0.5))].into());
        assert_eq!(before.ran_until(&after), 1.5);
        assert!(after.named(|name| name.starts_with("mpxdp-")).is_empty());
        assert_eq!(after.named(|name| name.starts_with("reader")), after);
    }
}
