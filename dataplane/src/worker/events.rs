//! What a subflow tells, and what becomes of its connection and of its place in the table.

use std::sync::Arc;
use std::time::Duration;

use mpxdp_proto::connection::{Connection as DataLevel, Mode};
use mpxdp_proto::subflow::{Abort, Event, ResetCause, State, TimeWait};
use mpxdp_proto::time::Instant;

use super::Core;
use super::counters::WorkerDrop;
use super::flows::{Entry, Flow, FlowId};
use crate::connection::Connection;
use crate::receive::{Failure, ring};
use crate::stats::Closed;
use crate::stream::Stream;

impl Core {
    /// Takes note of everything that a subflow tells.
    pub(super) fn take_events(&mut self, id: FlowId) {
        while let Some(flow) = self.flows.flow_mut(id)
            && let Some(event) = flow.subflow.poll_event()
        {
            if let Event::Established { .. } = event {
                self.establish(id, &event);
                continue;
            }
            let Some(connection) = &flow.connection else { continue };
            connection.level.on_event(&event);
            match event {
                Event::DataFin { at } => connection.set_end(at, Closed::DataFin),
                Event::StreamEnd { at } => connection.set_end(at, Closed::Fin),
                Event::FastClose => connection.fail(Failure::FastClose, Closed::FastClose),
                Event::Reset(ResetCause::Peer { .. }) => {
                    connection.fail(Failure::Reset, Closed::Reset);
                }
                Event::Reset(ResetCause::Violation(_)) => {
                    connection.fail(Failure::Protocol, Closed::Reset);
                }
                Event::Reset(ResetCause::Local) => {
                    let mptcp = connection.level.mode() == Mode::Mptcp;
                    let how = if mptcp { Closed::FastClose } else { Closed::Reset };
                    connection.fail(Failure::Aborted, how);
                }
                Event::TimedOut => connection.fail(Failure::TimedOut, Closed::Timeout),
                // The only subflow: with it the connection ends, whatever is missing.
                Event::Closed => connection.fail(Failure::Reset, Closed::Reset),
                Event::Established { .. }
                | Event::Fallback(_)
                | Event::ChecksumsInUse
                | Event::Joined { .. }
                | Event::FullyEstablished
                | Event::AddressAnnounced(_)
                | Event::AddressEchoed(_)
                | Event::AddressesRemoved(_)
                | Event::PriorityChanged { .. }
                | Event::ChecksumFailed { .. }
                | Event::SubflowFin
                | Event::LocalFinAcked => {}
            }
            flow.refresh_view();
        }
    }

    /// The handshake is complete: the connection comes to be, and waits to be accepted.
    fn establish(&mut self, id: FlowId, event: &Event) {
        let Some(flow) = self.flows.flow_mut(id) else { return };
        let Some(half_open) = flow.half_open.take() else { return };
        self.half_open -= 1;
        let Ok((ring, reader)) = ring(self.shared.ring.clone()) else {
            self.handle.counters.dropped(WorkerDrop::NoRing);
            return flow.subflow.abort(Abort::Connection);
        };
        let level = DataLevel::new(flow.subflow.local_key());
        level.on_event(event);
        let facts = &self.facts[flow.path.port];
        let nic = Arc::clone(&facts.nic);
        let connection = Connection::new(level, ring, flow.key, id, Arc::clone(&self.handle), nic);
        let connection = Arc::new(connection);
        flow.connection = Some(Arc::clone(&connection));
        flow.refresh_view();
        let stream = Stream::new(reader, connection);
        if let Some(refused) = half_open.backlog().push(stream) {
            // Dropping it resets the connection.
            self.handle.counters.dropped(WorkerDrop::BacklogFull);
            drop(refused);
        }
    }

    /// Brings the deadline, the connection's numbers and the place in the table up to date, once a
    /// turn. `blocked`: something is left to send and there was no frame for it.
    pub(super) fn settle(&mut self, now: Instant, id: FlowId, blocked: bool) {
        /// When to try again to send what there was no frame for.
        const RETRY: Duration = Duration::from_millis(1);

        let Some(flow) = self.flows.flow_mut(id) else { return };
        let next = flow.subflow.next_timeout();
        let next =
            if blocked { Some(next.map_or(now + RETRY, |at| at.min(now + RETRY))) } else { next };
        self.timers.set(id, &mut flow.deadline, next);
        if flow.subflow.local_key().is_none() {
            flow.token = None;
        }
        if let Some(connection) = &flow.connection {
            let queue = self.facts[flow.path.port].queue;
            connection.publish(&flow.subflow.statistics(), queue);
            connection.ring.advertise(flow.subflow.advertised());
            if let Some(round_trip) = flow.subflow.round_trip() {
                connection.ring.tune(now, round_trip);
            }
        }
        if blocked {
            return;
        }
        if flow.subflow.state() == State::Closed {
            self.remove(id);
        } else if let Some(state) = flow.subflow.time_wait() {
            self.reduce(id, state);
        }
    }

    /// Ends a flow's connection from our side.
    pub(super) fn end_connection(&mut self, id: FlowId, how: Abort) {
        let Some(flow) = self.flows.flow_mut(id) else { return };
        flow.subflow.abort(how);
        self.take_events(id);
        self.touch(id);
    }

    /// Puts a flow among those that this turn has to conclude.
    pub(super) fn touch(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.flow_mut(id)
            && !flow.touched
        {
            flow.touched = true;
            flow.refresh_view();
            self.touched.push(id);
        }
    }

    /// The one end of a flow, whatever the cause.
    pub(super) fn remove(&mut self, id: FlowId) {
        match self.flows.remove(id) {
            Some(Entry::Flow(flow)) => {
                self.shared.owners.leave(&flow.key);
                self.forget(*flow);
            }
            Some(Entry::Waiting(waiting)) => self.shared.owners.leave(&waiting.key),
            None => {}
        }
    }

    /// Keeps of a flow in TIME-WAIT what that needs, and no more.
    fn reduce(&mut self, id: FlowId, state: TimeWait) {
        if let Some(flow) = self.flows.reduce(id, state) {
            self.forget(*flow);
        }
    }

    /// What a flow held is given up: its connection has ended with it.
    fn forget(&mut self, flow: Flow) {
        if flow.half_open.is_some() {
            self.half_open -= 1;
        }
        if let Some(connection) = flow.connection {
            connection.fail(Failure::Reset, Closed::Reset);
            connection.finish();
        }
    }
}
