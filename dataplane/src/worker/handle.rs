//! What other threads hold of a worker: its doorbell, its inbox and its counters.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};

use crossbeam_channel::{Receiver, Sender, TrySendError};
use crossbeam_queue::SegQueue;
use mpxdp_proto::time::Instant;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::counters::Counters;
use super::flows::FlowId;
use crate::stats::PortReport;

/// How many packets may wait to be handed over to a worker. They only come while the NIC's
/// distribution of flows over queues changes.
const STRAYS: usize = 512;

/// What a worker can be told.
#[derive(Debug)]
pub(crate) enum Command {
    /// End once no flow is left, and by `deadline` with those that are left reset.
    Stop {
        /// On the engine's clock.
        deadline: Instant,
    },
    /// Tell about the ports.
    Report {
        /// Where to.
        to: Sender<Vec<PortReport>>,
    },
    /// Panic, to see what comes of it.
    #[cfg(test)]
    Panic,
}

/// A packet of one worker's flow that came in at another: a copy, since the frame belongs to a
/// port of the other.
#[derive(Debug)]
pub(super) struct Stray {
    /// The packet, from its link header on.
    pub(super) bytes: Box<[u8]>,
}

/// What other threads hold of a worker.
#[derive(Debug)]
pub(crate) struct Handle {
    /// The worker's number in the engine.
    pub(crate) index: usize,
    /// The CPU that it is pinned to.
    pub(crate) cpu: Option<usize>,
    /// Its counters.
    pub(crate) counters: Counters,
    attention: SegQueue<FlowId>,
    commands: Sender<Command>,
    strays: Sender<Stray>,
    asleep: AtomicBool,
    bell: EventFd,
}

/// The worker's own ends of its channels.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) commands: Receiver<Command>,
    pub(super) strays: Receiver<Stray>,
}

impl Handle {
    /// A handle, and what its worker needs of it.
    ///
    /// # Errors
    ///
    /// No descriptor is left.
    pub(super) fn new(index: usize, cpu: Option<usize>) -> io::Result<(Self, Inbox)> {
        let (commands, commands_in) = crossbeam_channel::unbounded();
        let (strays, strays_in) = crossbeam_channel::bounded(STRAYS);
        let bell = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        let handle = Self {
            index,
            cpu,
            counters: Counters::default(),
            attention: SegQueue::new(),
            commands,
            strays,
            asleep: AtomicBool::new(false),
            bell,
        };
        Ok((handle, Inbox { commands: commands_in, strays: strays_in }))
    }

    /// Tells the worker something.
    pub(crate) fn command(&self, command: Command) {
        // The receiver goes with the thread; then there is nobody to tell.
        let _ = self.commands.send(command);
        self.wake();
    }

    /// Has the worker look at a flow.
    pub(crate) fn attend(&self, flow: FlowId) {
        self.attention.push(flow);
        self.wake();
    }

    /// Hands a packet over to the worker; says whether there was room for it.
    pub(super) fn hand_over(&self, stray: Stray) -> bool {
        match self.strays.try_send(stray) {
            Ok(()) => {
                self.wake();
                true
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }

    /// Ends the worker's sleep, if it sleeps.
    fn wake(&self) {
        // Pairs with the fence in `fall_asleep`: either the worker sees what was just put into a
        // queue, or this sees that it sleeps.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            // It fails only if the counter is full, and then the descriptor is readable anyway.
            let _ = self.bell.write(1);
        }
    }

    /// The next flow to look at.
    pub(super) fn next_attention(&self) -> Option<FlowId> {
        self.attention.pop()
    }

    /// For the worker: announces that it is about to sleep. `false`: something came meanwhile.
    pub(super) fn fall_asleep(&self, inbox: &Inbox) -> bool {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let idle =
            self.attention.is_empty() && inbox.commands.is_empty() && inbox.strays.is_empty();
        if !idle {
            self.asleep.store(false, Ordering::Relaxed);
        }
        idle
    }

    /// For the worker: it is awake again.
    pub(super) fn wake_up(&self, rung: bool) {
        self.asleep.store(false, Ordering::Relaxed);
        if rung {
            // It fails only if nobody rang, and that is all the same.
            let _ = self.bell.read();
        }
    }

    /// What the worker sleeps on, besides its ports.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
