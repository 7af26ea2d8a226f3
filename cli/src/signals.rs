//! Signals that ask a command to stop.

use std::fs;

/// Those to stop for, in order: of a key, of a service manager, and, unless whoever started this process
/// had it ignored (`nohup`), of a terminal that closes. Left alone, the last one would end the process
/// with nothing cleaned up.
#[must_use]
pub fn to_stop_for() -> Vec<i32> {
    let mut signals = vec![libc::SIGINT, libc::SIGTERM];
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !is_ignored(&status, libc::SIGHUP) {
        signals.push(libc::SIGHUP);
    }
    signals
}

/// Whether a process ignores a signal, by the text of its `/proc/PID/status`.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_found_in_the_status() {
        let status = "Name:\tx\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(status, libc::SIGHUP) && is_ignored(status, libc::SIGPIPE));
        assert!(!is_ignored(status, libc::SIGINT) && !is_ignored("", libc::SIGHUP));
    }
}
