//! Mappings that are in no use now, kept for the next ring.
//!
//! To map memory twice and to touch its pages for the first time costs far more than to use it: on
//! a virtual machine 0.2 ms for a ring of 1 MiB, and nearly 1 ms for its first lap. A worker that
//! accepts a connection has no such time, while its other connections wait.
//!
//! They are memory of the process all the same. So a limit of memory counts them, and has them given
//! up before it refuses anything: `bytes` and `pop`.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The memory that is kept at most, bytes: enough for the rings of 128 small connections, or for
/// what a growing one leaves behind.
const LIMIT: usize = 32 << 20;

static SPARE: Mutex<Vec<Pages>> = Mutex::new(Vec::new());

/// Bytes that are kept. Written with the lock held.
static BYTES: AtomicUsize = AtomicUsize::new(0);

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
    let mut bytes = bytes() + pages.capacity;
    spare.push(pages);
    let mut surplus = 0;
    while bytes > LIMIT {
        bytes -= spare[surplus].capacity;
        surplus += 1;
    }
    BYTES.store(bytes, Ordering::Relaxed);
    spare.drain(..surplus).collect()
}

/// Takes out pages of `capacity` bytes, if there are any: those kept last, which are in the cache
/// if any are. What they hold is what some ring has left in them.
pub(super) fn take(capacity: usize) -> Option<Pages> {
    remove(|spare| spare.iter().rposition(|pages| pages.capacity == capacity))
}

/// Takes out those that were kept the longest, if there are any, to be unmapped.
pub(super) fn pop() -> Option<Pages> {
    remove(|spare| (!spare.is_empty()).then_some(0))
}

fn remove(choose: impl FnOnce(&[Pages]) -> Option<usize>) -> Option<Pages> {
    let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
    let chosen = choose(&spare)?;
    let pages = spare.remove(chosen);
    BYTES.store(bytes() - pages.capacity, Ordering::Relaxed);
    Some(pages)
}

/// Bytes that are kept now.
pub(super) fn bytes() -> usize {
    BYTES.load(Ordering::Relaxed)
}
