//! What is wanted of a subflow, and whether its worker knows that something is.
//!
//! Whoever wants something adds the wish and then marks the subflow as queued; the one that marks
//! it enters it in the worker's queue. The worker takes the mark away before it takes the wishes.
//! So a wish that is added too late for that finds no mark, and brings the subflow into the queue
//! again. Both take the mark by a swap: the worker thereby sees what those did that found it there.
//!
//! # Ordering
//!
//! Whoever asks releases, the worker acquires. With the mark, so that the worker that takes it away
//! sees the wishes of those who found it (loom cannot tell: its swaps see the last value in any
//! case). With the wishes, so that the worker sees what they are about, also where it takes one
//! whose asker is not yet at the mark.

use crate::sync::{AtomicBool, AtomicU8, Ordering};

/// What the application, or another subflow's worker, wants of a subflow's worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wishes(u8);

impl Wishes {
    /// What the connection knows has changed: our stream has ended, say. Tell the peer what it is
    /// to know.
    pub(crate) const TELL: Self = Self(1);
    /// The window has opened: tell the peer if it is to know.
    pub(crate) const WINDOW: Self = Self(2);
    /// Reset the connection.
    pub(crate) const ABORT: Self = Self(4);
    /// Data is complete that was not when the peer was last told: acknowledge it.
    pub(crate) const ACK: Self = Self(8);
    /// The connection has ended without us: reset the subflow.
    pub(crate) const RESET: Self = Self(16);
    /// The peer has given up its address: see whether the subflow still works.
    pub(crate) const CHECK: Self = Self(32);

    /// Our addresses have changed: tell the peer, and leave one that is ours no more.
    pub(crate) const ADDRESSES: Self = Self(64);

    /// Whether `wish` is among them.
    pub(crate) const fn contain(self, wish: Self) -> bool {
        self.0 & wish.0 != 0
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Attention {
    wishes: AtomicU8,
    queued: AtomicBool,
}

impl Attention {
    /// Nothing is wanted.
    pub(super) fn new() -> Self {
        Self { wishes: AtomicU8::new(0), queued: AtomicBool::new(false) }
    }

    /// Adds a wish; says whether the caller is to enter the subflow in its worker's queue.
    pub(super) fn ask(&self, wish: Wishes) -> bool {
        self.wishes.fetch_or(wish.0, Ordering::Release);
        !self.queued.swap(true, Ordering::Release)
    }

    /// For the worker, once it has found the subflow in its queue: what was wanted until now.
    pub(super) fn take(&self) -> Wishes {
        self.queued.swap(false, Ordering::Acquire);
        Wishes(self.wishes.swap(0, Ordering::Acquire))
    }
}
