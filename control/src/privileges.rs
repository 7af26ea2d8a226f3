//! Which capabilities the process has.

use std::fs;

use crate::failure::Failure;

/// What AF_XDP and loading an XDP program need, with their numbers in capability sets
/// (`linux/capability.h`). Whoever has CAP_SYS_ADMIN needs no CAP_BPF.
const NEEDED: [(&str, u64); 3] =
    [("CAP_NET_ADMIN", 1 << 12), ("CAP_NET_RAW", 1 << 13), ("CAP_BPF", 1 << 39)];

/// The bit of CAP_SYS_ADMIN.
const SYS_ADMIN: u64 = 1 << 21;

/// The failure to say that `what` was not permitted, with the capabilities that are missing.
pub(crate) fn missing(what: &str) -> Failure {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let missing = effective(&status).map(missing_of).unwrap_or_default();
    Failure::runtime(if missing.is_empty() {
        // A security module, a user namespace or a limit of the container's says no.
        format!(
            "{what}: not permitted, although no capability is missing; is this a container? See \
             its seccomp profile and its limit on locked memory"
        )
    } else {
        format!(
            "{what}: not permitted, {} missing; run it as root, or give it these capabilities",
            match missing.as_slice() {
                [one] => format!("{one} is"),
                several => format!("{} are", several.join(", ")),
            }
        )
    })
}

/// The effective set in the text of `/proc/PID/status`.
fn effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// The names of what the set lacks.
fn missing_of(set: u64) -> Vec<&'static str> {
    NEEDED
        .into_iter()
        .filter(|&(name, bit)| set & bit == 0 && !(name == "CAP_BPF" && set & SYS_ADMIN != 0))
        .map(|(name, _)| name)
        .collect()
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
        assert_eq!(missing_of(0), ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF"]);
        assert_eq!(missing_of(1 << 12 | 1 << 39), ["CAP_NET_RAW"]);
        assert_eq!(missing_of(1 << 12 | 1 << 13 | SYS_ADMIN), [""; 0]);
        assert_eq!(missing_of(u64::MAX), [""; 0]);
    }
}
