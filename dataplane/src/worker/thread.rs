//! The loop of a worker's thread: turns as long as there is something to do, then a look around for
//! a while, then sleep.

use std::any::Any;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use mpxdp_proto::time::Instant;
use nix::poll::{PollFd, PollFlags, PollTimeout};

use super::Worker;
use crate::clock::Clock;
use crate::connection::Wishes;
use crate::listener::poll_timeout;
use crate::port::Port;
use crate::receive::Failure;
use crate::stats::Closed;

/// How long a worker sleeps at most when a port has no descriptor to sleep on: an eighth of the
/// time that it has been idle, within these bounds. Looking 60 times a second takes 0.2 % of a CPU.
const SHORTEST_DOZE: Duration = Duration::from_millis(1);
const LONGEST_DOZE: Duration = Duration::from_millis(16);

/// Runs a worker until it was told to stop.
///
/// # Errors
///
/// The message of a panic. Then the worker's connections have failed, and their readers know.
pub(crate) fn run<P: Port>(
    mut worker: Worker<P>,
    clock: &Clock,
    spin: Duration,
) -> Result<(), String> {
    let ran = catch_unwind(AssertUnwindSafe(|| worker.work(clock, spin)));
    let failed = ran.is_err();
    // After a panic nothing is sure, not even that the rest can be taken down without another.
    let ended = catch_unwind(AssertUnwindSafe(move || {
        if failed {
            worker.fail();
        }
        drop(worker);
    }));
    ran.and(ended).map_err(|panic| message(&*panic))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref().cloned()).unwrap_or_else(|| "no message".to_owned())
}

impl<P: Port> Worker<P> {
    fn work(&mut self, clock: &Clock, spin: Duration) {
        let mut before = clock.now();
        let (mut busy, mut idle_since) = (true, before);
        loop {
            let now = clock.now();
            self.core.handle.counters.time(now.saturating_since(before), busy);
            before = now;
            let progress = self.turn(now);
            busy = progress.busy;
            if progress.done {
                return;
            }
            if busy {
                idle_since = now;
            } else if now.saturating_since(idle_since) < spin {
                std::hint::spin_loop();
            } else {
                self.sleep(now, now.saturating_since(idle_since));
            }
        }
    }

    /// Sleeps until a packet comes, another thread rings, or a deadline comes; it has been `idle`
    /// for some time.
    fn sleep(&self, now: Instant, idle: Duration) {
        let Self { ports, core, .. } = self;
        if !core.handle.fall_asleep(&core.inbox) {
            return;
        }
        let there = || ports.iter().filter(|attached| !attached.facts.gone);
        let blind = there().any(|attached| attached.port.poll_fd().is_none());
        let doze = blind.then(|| (idle / 8).clamp(SHORTEST_DOZE, LONGEST_DOZE));
        let due = core.next_due().map(|at| at.saturating_since(now));
        let longest = [due, doze].into_iter().flatten().min();
        let timeout = longest.map_or(PollTimeout::NONE, poll_timeout);
        let bell = core.handle.bell();
        let descriptors = there().filter_map(|attached| attached.port.poll_fd());
        let mut on: Vec<PollFd<'_>> = std::iter::once(bell.as_fd())
            .chain(descriptors)
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        // Whatever ends the sleep, a signal too, the next turn finds out what there is to do.
        let _ = nix::poll::poll(&mut on, timeout);
        let rung = on[0].any() == Some(true);
        core.handle.wake_up(rung);
    }

    /// Tells the readers of all connections that nothing more comes.
    fn fail(&mut self) {
        for id in self.core.flows.active_ids() {
            if let Some(flow) = self.core.flows.flow_mut(id)
                && let Some(connection) = &flow.connection
            {
                connection.end(Failure::Aborted, Closed::Reset, Wishes::RESET);
            }
        }
    }
}
