//! How a worker sleeps, and how others end its sleep.
//!
//! # Ordering
//!
//! Whoever wakes: put something where the worker looks; fence; load `asleep`.
//! The worker: set `asleep`; fence; look.
//!
//! As with the reader's doorbell, both fences are sequentially consistent, so one comes first in
//! their single order. If it is the waker's, the worker sees what was put there; if the worker's,
//! the waker sees that it sleeps, and rings.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::event::Event;
use crate::sync::{AtomicBool, Ordering, fence};

/// See the module.
#[derive(Debug)]
pub(super) struct Bell {
    asleep: AtomicBool,
    event: Event,
}

impl Bell {
    /// Of a worker that is awake.
    ///
    /// # Errors
    ///
    /// No descriptor is left.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { asleep: AtomicBool::new(false), event: Event::new()? })
    }

    /// Ends the worker's sleep, if it sleeps. What it is to find must be there already.
    pub(super) fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            self.event.signal();
        }
    }

    /// For the worker: it is about to sleep, unless `idle` says that something is there. Returns
    /// what that said.
    pub(super) fn fall_asleep(&self, idle: impl FnOnce() -> bool) -> bool {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let idle = idle();
        if !idle {
            self.asleep.store(false, Ordering::Relaxed);
        }
        idle
    }

    /// For the worker: it is awake again; `rung` if the descriptor was readable. A bell that rings
    /// from now on ends the next sleep before its time, once.
    pub(super) fn wake_up(&self, rung: bool) {
        self.asleep.store(false, Ordering::Relaxed);
        if rung {
            self.event.clear();
        }
    }

    /// The descriptor's part of a sleep: returns once the bell was rung.
    #[cfg(all(loom, test))]
    pub(super) fn sleep(&self) {
        self.event.wait(None).expect("loom's does not fail");
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
