//! The clock that both ends read.
//!
//! A one-way time is the difference of two readings, so both must be of one clock. `CLOCK_MONOTONIC`
//! is one clock for everything that runs on one kernel in one time namespace, whatever the network
//! namespaces. Between two machines it is not, and the offset cannot be told from the latency; so
//! the reader compares [`Identity`]s before it measures.

use std::fs;
use std::os::unix::fs::MetadataExt;

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

use crate::error::{Context, Error, Result};

/// A reading of the clock, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u64);

impl Moment {
    /// Nanoseconds since an earlier moment; 0 if that was later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// So many nanoseconds later.
    #[must_use]
    pub const fn after(self, nanoseconds: u64) -> Self {
        Self(self.0.saturating_add(nanoseconds))
    }
}

/// What a sender paces itself by.
pub trait Clock {
    /// What it shows.
    fn now(&self) -> Moment;

    /// Waits for a moment, if that is still to come. Returns what the clock shows then.
    fn wait_until(&self, moment: Moment) -> Moment;
}

/// How a sender waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// By looking at the clock all the time: nothing but the moment itself decides when it goes on.
    /// It needs a CPU.
    Spinning,
    /// By sleeping: how late the kernel wakes it is in what is measured.
    Sleeping,
}

/// `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug)]
pub struct Monotonic {
    waiting: Waiting,
}

impl Monotonic {
    /// With a way to wait.
    #[must_use]
    pub const fn new(waiting: Waiting) -> Self {
        Self { waiting }
    }

    /// What the clock shows.
    #[must_use]
    pub fn read() -> Moment {
        let time = clock_gettime(ClockId::CLOCK_MONOTONIC);
        // It exists on every Linux, and the pointer is nix's own.
        let time = time.expect("CLOCK_MONOTONIC can be read");
        let (seconds, nanoseconds) = (time.tv_sec() as u64, time.tv_nsec() as u64);
        Moment(seconds * 1_000_000_000 + nanoseconds)
    }
}

impl Clock for Monotonic {
    fn now(&self) -> Moment {
        Self::read()
    }

    fn wait_until(&self, moment: Moment) -> Moment {
        loop {
            let now = Self::read();
            if now >= moment {
                return now;
            }
            match self.waiting {
                Waiting::Spinning => std::hint::spin_loop(),
                Waiting::Sleeping => {
                    let Moment(at) = moment;
                    let (seconds, rest) = (at / 1_000_000_000, at % 1_000_000_000);
                    let at = TimeSpec::new(seconds.cast_signed(), rest.cast_signed());
                    let flags = ClockNanosleepFlags::TIMER_ABSTIME;
                    // A signal ends it early; the loop looks at the clock again.
                    let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, flags, &at);
                }
            }
        }
    }
}

/// Which clock it is that a process reads as `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The running kernel's boot: `/proc/sys/kernel/random/boot_id`.
    pub boot: u128,
    /// The time namespace, by its inode; 0 for a kernel without such.
    pub namespace: u64,
}

impl Identity {
    /// Of this process's clock.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell which boot this is.
    pub fn of_this_process() -> Result<Self> {
        let path = "/proc/sys/kernel/random/boot_id";
        let text = fs::read_to_string(path).context(|| format!("cannot read {path}"))?;
        let digits: String = text.trim().chars().filter(|c| *c != '-').collect();
        let boot = u128::from_str_radix(&digits, 16)
            .map_err(|error| Error::failed(format!("{path} holds no UUID"), error))?;
        let namespace = fs::metadata("/proc/self/ns/time").map_or(0, |file| file.ino());
        Ok(Self { boot, namespace })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_waiting_end_at_the_moment_and_not_before() {
        for waiting in [Waiting::Spinning, Waiting::Sleeping] {
            let clock = Monotonic::new(waiting);
            let moment = clock.now().after(3_000_000);
            let reached = clock.wait_until(moment);
            assert!(reached >= moment, "{waiting:?}");
            assert!(clock.wait_until(moment) >= reached, "the past is not waited for");
        }
    }

    #[test]
    fn a_process_has_one_clock() {
        let identity = Identity::of_this_process().expect("/proc");
        assert_eq!(identity, Identity::of_this_process().expect("/proc"));
        assert_ne!(identity.boot, 0);
    }
}
