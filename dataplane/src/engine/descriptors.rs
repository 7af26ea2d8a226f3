//! Whether the process may have as many files open as an engine needs. The calls that would fail
//! later are spread over libraries, whose errors do not say that this is why.

use std::fs;

use crate::error::{Error, Result, descriptors};

/// What a NIC's steering program takes: seven stay open, its maps and its link, and the loader opens
/// some more for a moment. A round number above both.
const PER_NIC: u64 = 24;
/// A socket for each queue, and a worker's bell.
const PER_QUEUE: u64 = 2;
/// A listener and a first connection.
const BESIDES: u64 = 8;

/// Checks for `nics` NICs with `queues` queues together.
///
/// # Errors
///
/// [`Error::Descriptors`].
pub(super) fn check(nics: usize, queues: usize) -> Result<()> {
    // A directory that cannot be read for want of a descriptor shows nothing that is open.
    let open = fs::read_dir("/proc/self/fd").map_or(u64::MAX, |entries| entries.count() as u64);
    let needed = PER_NIC * nics as u64 + PER_QUEUE * queues as u64 + BESIDES;
    let limit = descriptors();
    if open.saturating_add(needed) <= limit {
        return Ok(());
    }
    let what = format!("opening {queues} receive queues of {nics} NICs takes {needed} descriptors");
    Err(Error::Descriptors { what, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_limit_is_refused_before_anything_is_opened() {
        check(1, 2).unwrap();
        let limit = descriptors();
        let queues = usize::try_from(limit / 2).unwrap_or(usize::MAX);
        let error = check(1, queues).unwrap_err().to_string();
        assert!(error.contains("RLIMIT_NOFILE") && error.contains(&limit.to_string()), "{error}");
    }
}
