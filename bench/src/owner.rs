//! Who a change of the system belongs to: what its process leaves behind is found and undone by the
//! next one.

use std::fmt;
use std::fs;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// A process. Its number alone would be used again by another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    pid: u32,
    started: u64,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)
    }
}

impl Owner {
    /// This process.
    pub(crate) fn current() -> Result<Self> {
        let pid = std::process::id();
        let started = start_time(pid).ok_or_else(|| {
            Error::Failed("cannot read /proc/self/stat: is /proc mounted?".into())
        })?;
        Ok(Self { pid, started })
    }

    /// Its number.
    pub(crate) const fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it still runs.
    pub(crate) fn is_alive(&self) -> bool {
        start_time(self.pid) == Some(self.started)
    }
}

/// When a process started, in clock ticks since boot; none if there is no such process.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_start_time(&stat)
}

/// The 22nd field of /proc/PID/stat. The second is the command in parentheses, which may itself
/// hold spaces and parentheses; it ends with the last one.
fn parse_start_time(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_time_is_found_behind_any_command_name() {
        let fields = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
        for command in ["sh", "a b", "x) S 1 (y", ")"] {
            assert_eq!(parse_start_time(&format!("12 ({command}) {fields}")), Some(4711));
        }
        assert_eq!(parse_start_time("12 (sh) S 1"), None);
        assert_eq!(parse_start_time(""), None);
    }

    #[test]
    fn an_owner_is_alive_only_with_its_own_start_time() {
        let me = Owner::current().expect("own process");
        assert!(me.is_alive());
        assert!(!Owner { started: me.started + 1, ..me }.is_alive());
        let gone = std::process::Command::new("true").spawn().and_then(|mut child| {
            let pid = child.id();
            child.wait().map(|_| pid)
        });
        let gone = Owner { pid: gone.expect("true runs"), started: 0 };
        assert!(!gone.is_alive());
    }
}
