//! The wake-up of a reader that sleeps, and the descriptor that says there is something to read.
//!
//! The bell is *armed* (the descriptor is not readable, and the next event will make it so) or
//! *rung* (the descriptor is readable). It starts out armed, so that a program may poll before it
//! ever reads. Only a reader that found nothing arms it; so a reader that polls its ring or spins
//! costs the writers one system call at most, and while the bell is rung they only load a flag.
//!
//! # Ordering
//!
//! Writer: publish the event (the edge, the end, a failure); fence; load `armed`.
//! Reader: set `armed`; fence; look whether there is anything to read.
//!
//! Both fences are sequentially consistent, so one comes first in their single order. If it is the
//! writer's, the reader sees the event; if the reader's, the writer sees the flag. Neither can miss
//! the other (Dekker's argument).
//!
//! The reader clears the descriptor before it sets the flag. A writer that took the flag of the
//! round before may ring after that; the reader then wakes up for nothing once, and clears it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::event::Event;
use crate::sync::{AtomicBool, Ordering, fence};

/// See the module.
#[derive(Debug)]
pub(super) struct Doorbell {
    armed: AtomicBool,
    event: Event,
}

impl Doorbell {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { armed: AtomicBool::new(true), event: Event::new()? })
    }

    /// Tells of an event that the caller has published before.
    pub(super) fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.armed.load(Ordering::Relaxed) {
            self.ring_if_armed();
        }
    }

    #[cold]
    fn ring_if_armed(&self) {
        // Of several that saw the flag one takes it, and makes the system call.
        if self.armed.swap(false, Ordering::Relaxed) {
            self.event.signal();
        }
    }

    /// Arms the bell unless `ready` says that there is something to read. Returns what it said.
    pub(super) fn arm(&self, mut ready: impl FnMut() -> bool) -> bool {
        self.event.clear();
        // A swap, as the writers' is: so each of them sees what the one before it left. (A store
        // would do by the rules of C++, but loom does not know them all.)
        self.armed.swap(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let ready = ready();
        if ready {
            // As long as there is something to read the descriptor says so, also to a program that
            // takes a part of it now and polls then.
            self.ring_if_armed();
        }
        ready
    }

    /// Sleeps until the bell is rung; `None` is for ever. Says whether it was.
    pub(super) fn sleep(&self, timeout: Option<Duration>) -> io::Result<bool> {
        self.event.wait(timeout)
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
