//! What other threads hold of a worker: its doorbell, its inbox and its counters.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, TrySendError};
use crossbeam_queue::SegQueue;
use mpxdp_proto::time::Instant;

use super::bell::Bell;
use super::counters::Counters;
use super::flows::FlowId;
use crate::stats::PortReport;

/// How many packets may wait to be handed over to a worker. They only come while the NIC's
/// distribution of flows over queues changes.
const STRAYS: usize = 512;

/// What a worker can be told.
#[derive(Clone, Debug)]
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
    /// A NIC is gone: its ports are of no use any more, nor are the subflows there.
    NicGone {
        /// Its name.
        nic: Arc<str>,
    },
    /// A NIC has another MTU.
    Mtu {
        /// Its name.
        nic: Arc<str>,
        /// Octets.
        mtu: u32,
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
    bell: Bell,
}

/// The worker's own ends of its channels.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) commands: Receiver<Command>,
    pub(super) strays: Receiver<Stray>,
}

impl Handle {
    /// A handle, and what its worker needs of it.
    ///
    /// # Errors
    ///
    /// No descriptor is left.
    pub(crate) fn new(index: usize, cpu: Option<usize>) -> io::Result<(Self, Inbox)> {
        let (commands, commands_in) = crossbeam_channel::unbounded();
        let (strays, strays_in) = crossbeam_channel::bounded(STRAYS);
        let handle = Self {
            index,
            cpu,
            counters: Counters::default(),
            attention: SegQueue::new(),
            commands,
            strays,
            bell: Bell::new()?,
        };
        Ok((handle, Inbox { commands: commands_in, strays: strays_in }))
    }

    /// Tells the worker something.
    pub(crate) fn command(&self, command: Command) {
        // The receiver goes with the thread; then there is nobody to tell.
        let _ = self.commands.send(command);
        self.bell.wake();
    }

    /// Has the worker look at a flow.
    pub(crate) fn attend(&self, flow: FlowId) {
        self.attention.push(flow);
        self.bell.wake();
    }

    /// Hands a packet over to the worker; says whether there was room for it.
    pub(super) fn hand_over(&self, stray: Stray) -> bool {
        match self.strays.try_send(stray) {
            Ok(()) => {
                self.bell.wake();
                true
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }

    /// The next flow to look at.
    pub(crate) fn next_attention(&self) -> Option<FlowId> {
        self.attention.pop()
    }

    /// For the worker: announces that it is about to sleep. `false`: something came meanwhile.
    pub(crate) fn fall_asleep(&self, inbox: &Inbox) -> bool {
        self.bell.fall_asleep(|| {
            self.attention.is_empty() && inbox.commands.is_empty() && inbox.strays.is_empty()
        })
    }

    /// For loom's workers: sleeps until somebody rings.
    #[cfg(all(loom, test))]
    pub(crate) fn sleep(&self) {
        self.bell.sleep();
    }

    /// For the worker: it is awake again.
    pub(crate) fn wake_up(&self, rung: bool) {
        self.bell.wake_up(rung);
    }

    /// What the worker sleeps on, besides its ports.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
