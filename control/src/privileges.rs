//! Which capabilities the process has.

use std::fs;

use crate::failure::Failure;

/// What AF_XDP and loading our XDP program need, with their bits in capability sets
/// (`linux/capability.h`). The verifier lets only holders of CAP_PERFMON compute with addresses of
/// a packet as freely as the program does.
const NEEDED: [(&str, u64); 4] = [
    ("CAP_NET_ADMIN", 1 << 12),
    ("CAP_NET_RAW", 1 << 13),
    ("CAP_BPF", 1 << 39),
    ("CAP_PERFMON", 1 << 38),
];

/// The bit of CAP_SYS_ADMIN, which stands for CAP_BPF and CAP_PERFMON.
const SYS_ADMIN: u64 = 1 << 21;

/// Checks that the process may do `what` with AF_XDP.
///
/// # Errors
///
/// A [`Failure`] that names the capabilities that are missing.
pub(crate) fn check(what: &str) -> Result<(), Failure> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    // If the kernel does not say, then it will say later what it does not permit.
    match effective(&status).map(missing_of).unwrap_or_default().as_slice() {
        [] => Ok(()),
        missing => Err(Failure::runtime(format!(
            "{what}: not permitted, without {}; run it as root, or give it the capabilities that \
             are missing",
            missing.join(", ")
        ))),
    }
}

/// What to say if the kernel does not permit `what` although [`check`] found nothing missing: a
/// security module, a user namespace or a container's profile says no.
pub(crate) fn refused(what: &str) -> Failure {
    Failure::runtime(format!(
        "{what}: not permitted, although no capability is missing; run it outside of the \
         container or user namespace, or allow bpf and AF_XDP sockets in its profile"
    ))
}

/// The effective set in the text of `/proc/PID/status`.
fn effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// The names of what the set lacks.
fn missing_of(set: u64) -> Vec<&'static str> {
    let implied = |name| set & SYS_ADMIN != 0 && matches!(name, "CAP_BPF" | "CAP_PERFMON");
    let lacks = |&(name, bit): &(&'static str, u64)| set & bit == 0 && !implied(name);
    NEEDED.into_iter().filter(lacks).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_set_is_found_in_the_status() {
        let status =
            "Name:\tcat\nCapPrm:\t0000000000000001\nCapEff:\t000001ffffffffff\nCapBnd:\t0\n";
        assert_eq!(effective(status), Some(0x1ff_ffff_ffff));
        assert_eq!(effective("Name:\tcat\n"), None);
    }

    #[test]
    fn what_is_missing_is_named_and_nothing_else() {
        assert_eq!(missing_of(0), ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF", "CAP_PERFMON"]);
        assert_eq!(missing_of(1 << 12 | 1 << 38 | 1 << 39), ["CAP_NET_RAW"]);
        assert_eq!(missing_of(SYS_ADMIN), ["CAP_NET_ADMIN", "CAP_NET_RAW"]);
        assert_eq!(missing_of(1 << 12 | 1 << 13 | 1 << 39), ["CAP_PERFMON"]);
        assert_eq!(missing_of(u64::MAX), [""; 0]);
    }
}
