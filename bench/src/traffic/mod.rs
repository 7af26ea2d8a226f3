//! The Linux kernel's own MPTCP and TCP: a sender and the receivers that mpxdp is compared with.
//!
//! Both are subcommands of `mpxdp-bench`, so that they run as processes of their own in a lab's
//! namespaces, and write one JSON document to standard output when they end.

pub mod pattern;
pub mod receiver;
pub mod sender;
pub mod socket;

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// CPU time of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuTime {
    /// Seconds in user space.
    pub user_seconds: f64,
    /// Seconds in the kernel on behalf of the process. Where the kernel counts by clock ticks, this
    /// includes network processing that ran in the process's context.
    pub system_seconds: f64,
}

impl CpuTime {
    /// What this process used so far.
    #[must_use]
    pub fn of_this_process() -> Self {
        let seconds =
            |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        getrusage(UsageWho::RUSAGE_SELF).map_or_else(
            |_| Self::default(),
            |usage| Self {
                user_seconds: seconds(usage.user_time()),
                system_seconds: seconds(usage.system_time()),
            },
        )
    }
}

/// Bits a second, 0 for no time at all.
#[must_use]
pub fn bits_per_second(bytes: u64, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 }
}

/// SHA-256 of a stream, in the form that `sha256sum` prints.
#[derive(Clone, Debug, Default)]
pub struct Hash(Sha256);

impl Hash {
    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest in hexadecimal.
    #[must_use]
    pub fn finish(self) -> String {
        use std::fmt::Write;
        self.0.finalize().iter().fold(String::new(), |mut text, byte| {
            // Writing to a String does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_is_sha_256() {
        let mut hash = Hash::default();
        hash.update(b"ab");
        hash.update(b"c");
        assert_eq!(
            hash.finish(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn rate_of_no_time_is_no_rate() {
        assert_eq!(bits_per_second(10, Duration::ZERO), 0.0);
        assert_eq!(bits_per_second(125_000_000, Duration::from_secs(1)), 1e9);
    }
}
