//! Mappings that are in no use now, kept for the next ring.
//!
//! To map memory twice and to touch its pages for the first time costs far more than to use it: on
//! a virtual machine 0.2 ms for a ring of 1 MiB, and nearly 1 ms for its first lap. A worker that
//! accepts a connection has no such time, while its other connections wait.

use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

/// The memory that is kept at most, bytes: enough for the rings of 128 small connections, or for
/// what a growing one leaves behind.
const LIMIT: usize = 32 << 20;

static SPARE: Mutex<Spare> = Mutex::new(Spare { pages: Vec::new(), bytes: 0 });

#[derive(Debug)]
struct Spare {
    pages: Vec<Pages>,
    bytes: usize,
}

/// Memory that is mapped twice, and that whoever has this value may use or unmap.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) base: NonNull<u8>,
    /// Bytes, once.
    pub(super) capacity: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Pages {}

/// Keeps `pages`. Returns what is to be unmapped for it: those that were kept the longest.
pub(super) fn keep(pages: Pages) -> Vec<Pages> {
    let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
    spare.bytes += pages.capacity;
    spare.pages.push(pages);
    let mut surplus = 0;
    while spare.bytes > LIMIT {
        spare.bytes -= spare.pages[surplus].capacity;
        surplus += 1;
    }
    spare.pages.drain(..surplus).collect()
}

/// Takes out pages of `capacity` bytes, if there are any: those kept last, which are in the cache
/// if any are. What they hold is what some ring has left in them.
pub(super) fn take(capacity: usize) -> Option<Pages> {
    let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
    let last = spare.pages.iter().rposition(|pages| pages.capacity == capacity)?;
    spare.bytes -= capacity;
    Some(spare.pages.remove(last))
}
