//! The receive ring: where workers put a connection's data, and where its reader finds it.
//!
//! A byte's place is its stream offset modulo the capacity, so data that comes out of order is
//! already where it belongs, whichever subflow and worker it came by: the ring is the reorder
//! queue. The memory is mapped twice, back to back, so everything in order is one slice whatever
//! its place. The window is the ring's free space.
//!
//! Writers (any number of workers, through [`Ring`]):
//!
//! 1. [`claim`](Ring::claim), once a burst: of each range that was received, the parts that nobody
//!    has yet become [`Claim`]s. What lies below the in-order edge, what another worker has
//!    claimed, and what the window does not cover is left out. The first claim wins, and bytes that
//!    the reader was given never change.
//! 2. [`copy`](Ring::copy), without a lock: each claim's bytes.
//! 3. [`commit`](Ring::commit), once a burst: the in-order edge advances over what is complete now,
//!    and a sleeping reader is woken.
//!
//! The one reader, through [`Reader`]: [`peek`](Reader::peek), [`consume`](Reader::consume) and, to
//! sleep, [`wait`](Reader::wait) or its descriptor.
//!
//! # What is where
//!
//! `ledger` says who has which range, in one thread; `books` adds what threads share: the lock
//! around the ledger, the atomic edges, and the handshake of `doorbell` by which a sleeping reader
//! is woken. None of the three knows memory, and loom checks them. `mapping` is the memory, `spare`
//! what of it is kept for later; `tuning` decides when the ring should grow, and `prepare` makes
//! the memory for it.

mod books;
mod doorbell;
mod ledger;
#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
mod mapping;
mod prepare;
mod reader;
mod ring;
mod spare;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
mod tuning;

use std::io;
use std::sync::Arc;

pub use books::Failure;
pub use reader::{Consumed, Reader};
pub use ring::{Claim, Claimed, Commit, Ring, Wanted};

/// How large a connection's ring may be.
#[derive(Clone, Debug)]
pub struct RingConfig {
    /// The capacity to begin with, bytes; rounded up to a power of two of at least
    /// [`MIN_CAPACITY`].
    pub initial: usize,
    /// The capacity up to which the ring grows, bytes; rounded up in the same way, and never less
    /// than `initial`.
    pub limit: usize,
    /// Where the memory is accounted for.
    pub budget: Arc<dyn Budget>,
}

/// The smallest capacity, bytes: the window is reopened in steps of a quarter of the capacity, and
/// a step has to hold any segment.
pub const MIN_CAPACITY: usize = 256 << 10;

impl Default for RingConfig {
    /// 1 MiB, growing up to 16 MiB; without a budget.
    fn default() -> Self {
        Self { initial: 1 << 20, limit: 16 << 20, budget: Arc::new(Unlimited) }
    }
}

/// The memory that the rings of a process may take together.
pub trait Budget: Send + Sync + std::fmt::Debug {
    /// Asks for `bytes` of ring memory; `false` leaves the ring as it is.
    fn reserve(&self, bytes: usize) -> bool;
    /// Gives `bytes` back that were reserved before.
    fn release(&self, bytes: usize);
}

/// Bytes of memory that are kept for the next ring, of all rings of the process. A [`Budget`] that is to
/// bound the memory of a process counts them as taken, and has them [given up](give_up_spare_memory)
/// before it refuses anything.
#[must_use]
pub fn spare_memory() -> usize {
    spare::bytes()
}

/// Gives some of the [spare memory](spare_memory) back to the kernel; `false` if there is none.
pub fn give_up_spare_memory() -> bool {
    mapping::give_up_spare()
}

/// The budget that grants everything.
#[derive(Clone, Copy, Debug)]
pub struct Unlimited;

impl Budget for Unlimited {
    fn reserve(&self, _bytes: usize) -> bool {
        true
    }
    fn release(&self, _bytes: usize) {}
}

/// Makes a ring for the stream that begins at offset 0.
///
/// # Errors
///
/// What the kernel says where it has no memory or descriptors left; `OutOfMemory` where the budget
/// refuses `config.initial`.
pub fn ring(config: RingConfig) -> io::Result<(Arc<Ring>, Reader)> {
    let ring = Arc::new(Ring::new(config, 0)?);
    let reader = Reader::new(Arc::clone(&ring));
    Ok((ring, reader))
}
