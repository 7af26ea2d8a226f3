//! The committed BPF objects, and bringing them into the kernel.

use std::error::Error;
use std::fs;
use std::io;

use aya::EbpfLoader;
use aya::maps::MapError;
use aya::programs::{ProgramError, Xdp};
use aya::{Ebpf, EbpfError};

/// The object with the program [`crate::Steering`] attaches; aligned as an ELF file must be.
pub static STEER_OBJECT: &[u8] = aya::include_bytes_aligned!("../prebuilt/steer.bpf.o");

/// The object with the program [`crate::Front`] attaches; aligned as an ELF file must be.
pub static FRONT_OBJECT: &[u8] = aya::include_bytes_aligned!("../prebuilt/front.bpf.o");

/// Why the kernel did not take a program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The process lacks a capability.
    #[error(
        "BPF program {program}: not permitted; run as root, or with CAP_BPF, CAP_PERFMON, \
         CAP_NET_ADMIN and CAP_NET_RAW"
    )]
    NotPermitted {
        /// The program's name.
        program: &'static str,
    },
    /// The kernel refused the object, its maps or its program.
    #[error(
        "BPF program {program}: the kernel refused it: {reason}; Linux 6.1 or later with BPF is \
         needed"
    )]
    Refused {
        /// The program's name.
        program: &'static str,
        /// The kernel's words, with the end of the verifier's log if there is one.
        reason: String,
    },
}

impl LoadError {
    fn new(program: &'static str, error: &(dyn Error + 'static)) -> Self {
        match os_error(error) {
            Some(libc::EPERM) => Self::NotPermitted { program },
            Some(libc::EACCES) if !may_compute_addresses() => Self::NotPermitted { program },
            _ => Self::Refused { program, reason: describe(error) },
        }
    }

    pub(crate) fn map(program: &'static str, error: &MapError) -> Self {
        Self::new(program, error)
    }

    pub(crate) fn missing(program: &'static str, what: &str) -> Self {
        Self::Refused { program, reason: format!("the object holds no {what}") }
    }
}

/// An object in the kernel, its one XDP program verified and attached nowhere.
pub(crate) fn load(object: &[u8], program: &'static str) -> Result<Ebpf, LoadError> {
    let mut ebpf = EbpfLoader::new()
        .load(object)
        .map_err(|error: EbpfError| LoadError::new(program, &error))?;
    xdp(&mut ebpf, program)?.load().map_err(|error| LoadError::new(program, &error))?;
    Ok(ebpf)
}

/// The XDP program of a loaded object.
pub(crate) fn xdp<'a>(ebpf: &'a mut Ebpf, program: &'static str) -> Result<&'a mut Xdp, LoadError> {
    ebpf.program_mut(program)
        .ok_or_else(|| LoadError::missing(program, "such program"))?
        .try_into()
        .map_err(|error: ProgramError| LoadError::new(program, &error))
}

/// The system's error number at the bottom of an error, if there is one.
pub(crate) fn os_error(error: &(dyn Error + 'static)) -> Option<i32> {
    let mut current = Some(error);
    while let Some(error) = current {
        if let Some(number) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Some(number);
        }
        current = error.source();
    }
    None
}

/// An error with all its causes on one line, each said once.
pub(crate) fn describe(error: &(dyn Error + 'static)) -> String {
    let mut text = one_line(&error.to_string());
    let mut current = error.source();
    while let Some(error) = current {
        let cause = one_line(&error.to_string());
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
        current = error.source();
    }
    text
}

/// The verifier's log may follow an error by the thousand lines. What matters is its last two, but
/// for the statistics behind them.
fn one_line(text: &str) -> String {
    const STATISTICS: [&str; 3] = ["verification time ", "stack depth ", "processed "];
    const KEPT: usize = 2;
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .filter(|line| !STATISTICS.iter().any(|prefix| line.starts_with(prefix)))
        .collect();
    match lines.as_slice() {
        [first, rest @ ..] if rest.len() > KEPT => {
            format!("{first} … {}", rest[rest.len() - KEPT..].join(" | "))
        }
        lines => lines.join(" | "),
    }
}

/// Whether the process has `CAP_PERFMON`, or `CAP_SYS_ADMIN` which stands for it. The verifier does
/// not say that it misses it: it refuses programs that compute addresses.
fn may_compute_addresses() -> bool {
    const CAP_SYS_ADMIN: u32 = 21;
    const CAP_PERFMON: u32 = 38;
    let Ok(status) = fs::read_to_string("/proc/self/status") else { return true };
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .is_none_or(|bits| bits & (1 << CAP_PERFMON | 1 << CAP_SYS_ADMIN) != 0)
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn the_end_of_a_verifier_log_is_kept_without_its_statistics() {
        assert_eq!(one_line("refused\n"), "refused");
        assert_eq!(
            one_line("refused\n\n 1: (95) exit\nR0 !read_ok\n"),
            "refused | 1: (95) exit | R0 !read_ok"
        );
        let log = "refused\n0: r1\n1: r2\n2: r3\nR1 invalid\nverification time 9 usec\n\
                   stack depth 64\nprocessed 181 insns (limit 1000000)\n";
        assert_eq!(one_line(log), "refused … 2: r3 | R1 invalid");
    }
}
