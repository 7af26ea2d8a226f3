//! What does not come from a port: packets from other workers, commands, wishes, timers.

use std::iter;
use std::time::Duration;

use mpxdp_proto::subflow::{Abort, ResetReason};
use mpxdp_proto::time::Instant;

use super::flows::Entry;
use super::handle::Command;
use super::{Attached, Core, PortFacts, Worker};
use crate::connection::Wishes;
use crate::port::Port;
use crate::receive::Failure;
use crate::stats::{Closed, PortReport, TableSizes};

/// How many of each kind a turn takes, so that none keeps the ports waiting.
const AT_ONCE: usize = 64;

impl<P: Port> Worker<P> {
    /// Carries out what was commanded; says how many commands there were.
    pub(super) fn take_commands(&mut self) -> usize {
        let mut taken = 0;
        while let Ok(command) = self.core.inbox.commands.try_recv() {
            taken += 1;
            match command {
                Command::Stop { deadline } => {
                    // A second command can only make it sooner.
                    let at = self.core.stop_at.map_or(deadline, |at| at.min(deadline));
                    self.core.stop_at = Some(at);
                }
                Command::Report { to } => {
                    // Whoever asked may have given up waiting.
                    let _ = to.send(self.port_reports());
                }
                Command::NicGone { nic } => {
                    self.change_ports(&nic, |facts| facts.gone = true);
                    self.core.leave_nic(&nic);
                }
                Command::Mtu { nic, mtu } => self.change_ports(&nic, |facts| facts.mtu = mtu),
                #[cfg(test)]
                Command::Panic => panic!("a panic for a test"),
            }
        }
        taken
    }

    /// Changes what is known of the ports of a NIC, where it is kept.
    fn change_ports(&mut self, nic: &str, change: impl Fn(&mut PortFacts)) {
        let of_ports = self.ports.iter_mut().map(|attached| &mut attached.facts);
        of_ports.chain(&mut self.core.facts).filter(|facts| &*facts.nic == nic).for_each(change);
    }

    fn port_reports(&mut self) -> Vec<PortReport> {
        let report = |attached: &mut Attached<P>| PortReport {
            nic: attached.facts.nic.to_string(),
            queue: attached.facts.queue,
            worker: self.core.handle.index,
            mode: attached.port.mode(),
            statistics: attached.port.statistics(),
            frames: attached.port.frames(),
        };
        self.ports.iter_mut().map(report).collect()
    }

    /// Publishes how full the tables are.
    pub(crate) fn publish_tables(&self) {
        let core = &self.core;
        core.handle.counters.tables(TableSizes {
            half_open: core.half_open,
            subflows: core.flows.active(),
            time_wait: core.flows.waiting(),
            frames_held: self.ports.iter().map(|attached| attached.port.frames().held).sum(),
        });
    }
}

impl Core {
    /// Takes in what other workers handed over; says how many packets there were.
    pub(super) fn take_strays(&mut self, now: Instant) -> usize {
        let mut taken = 0;
        while taken < AT_ONCE
            && let Ok(stray) = self.inbox.strays.try_recv()
        {
            taken += 1;
            self.handle.counters.handed_over();
            self.segment(now, None, 0, stray.bytes.len(), iter::once(&*stray.bytes), ());
            self.store(|_| iter::once(&*stray.bytes), ());
        }
        taken
    }

    /// Does what applications ask for; says how many connections there were to look at.
    pub(super) fn take_wishes(&mut self, now: Instant) -> usize {
        let mut taken = 0;
        while taken < AT_ONCE
            && let Some(id) = self.handle.next_attention()
        {
            taken += 1;
            let Some(flow) = self.flows.flow_mut(id) else { continue };
            let Some(record) = &flow.record else { continue };
            let wishes = record.take_wishes();
            flow.refresh_view();
            let (subflow, view) = (&mut flow.subflow, &flow.view);
            if wishes.contain(Wishes::ACK) && subflow.data_ack_due(view) {
                subflow.request_data_ack();
            } else if wishes.contain(Wishes::WINDOW) && subflow.window_update_due(view) {
                subflow.request_ack();
            } else if wishes.contain(Wishes::WINDOW) {
                flow.window_not_told();
            }
            if wishes.contain(Wishes::CHECK) {
                flow.subflow.check_path(now);
            }
            if wishes.contain(Wishes::ADDRESSES) {
                self.follow_addresses(id);
            }
            let Some(flow) = self.flows.flow_mut(id) else { continue };
            if wishes.contain(Wishes::ABORT) {
                self.abort_connection(id);
            } else if wishes.contain(Wishes::RESET) {
                flow.subflow.abort(Abort::Subflow(ResetReason::Unspecified));
                self.take_events(id);
            }
            self.touch(id);
        }
        taken
    }

    /// Lets the flows know whose time has come; says how many there were.
    pub(super) fn take_due(&mut self, now: Instant) -> usize {
        if self.stop_at.is_some_and(|at| at <= now) {
            for id in self.flows.active_ids() {
                self.abort_connection(id);
            }
        }
        let mut due = self.take_orphans(now);
        while let Some(entry) = self.timers.pop(now) {
            let id = entry.1;
            let Some(place) = self.flows.get_mut(id) else { continue };
            if !self.timers.is_due(entry, place.deadline_mut(), now) {
                continue;
            }
            due += 1;
            match place {
                Entry::Flow(flow) => {
                    flow.refresh_view();
                    flow.subflow.on_timeout(now, &flow.view);
                    self.take_events(id);
                    self.touch(id);
                }
                Entry::Waiting(waiting) if waiting.state.expires() <= now => self.remove(now, id),
                Entry::Waiting(waiting) => {
                    let expires = waiting.state.expires();
                    self.timers.set(id, &mut waiting.deadline, Some(expires));
                }
            }
        }
        due
    }

    /// Ends connections that no subflow has belonged to for too long, or that are left when the
    /// worker is to stop; says how many.
    fn take_orphans(&mut self, now: Instant) -> usize {
        let mut ended = 0;
        let stop = self.stop_at.is_some_and(|at| at <= now);
        while let Some((since, connection)) = self.orphans.front()
            && (stop || *since + self.shared.joins.close_timeout <= now)
        {
            if let Some(connection) = connection.upgrade()
                && connection.is_orphaned_since(*since)
            {
                ended += 1;
                let (failure, how) = if stop {
                    (Failure::Aborted, connection.aborted())
                } else {
                    (Failure::TimedOut, Closed::Timeout)
                };
                connection.end(failure, how, Wishes::RESET);
            }
            self.orphans.pop_front();
        }
        ended
    }

    /// Whether a connection whose last subflow was ours may yet get another.
    fn has_orphans(&self) -> bool {
        self.orphans.iter().any(|(since, connection)| {
            connection.upgrade().is_some_and(|connection| connection.is_orphaned_since(*since))
        })
    }

    /// Whether the worker was told to stop, and nothing is left that keeps it.
    pub(super) fn is_done(&self, now: Instant) -> bool {
        /// For resets that found no frame to be sent in: a link may be down.
        const PATIENCE: Duration = Duration::from_secs(1);

        self.stop_at.is_some_and(|at| {
            self.flows.active() == 0 && !self.has_orphans() || at + PATIENCE <= now
        })
    }

    /// When the next turn is due although nothing comes in.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let orphan = self.orphans.front().map(|(at, _)| *at + self.shared.joins.close_timeout);
        [self.timers.next(), self.stop_at, orphan].into_iter().flatten().min()
    }
}
