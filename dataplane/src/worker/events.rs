//! What a subflow tells, and what becomes of its connection and of its place in the table.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use mpxdp_proto::connection::Connection as DataLevel;
use mpxdp_proto::segment::AddressId;
use mpxdp_proto::subflow::{Abort, Event, ResetCause, ResetReason, State, TimeWait};
use mpxdp_proto::time::Instant;

use super::Core;
use super::counters::WorkerDrop;
use super::flows::{Entry, Flow, FlowId, Opening};
use crate::connection::{Connection, Record, Wishes};
use crate::receive::{Failure, ring};
use crate::stats::Closed;
use crate::stream::Stream;

impl Core {
    /// Takes note of everything that a subflow tells.
    pub(super) fn take_events(&mut self, id: FlowId) {
        while let Some(flow) = self.flows.flow_mut(id)
            && let Some(event) = flow.subflow.poll_event()
        {
            match event {
                Event::Established { .. } => self.establish(id, &event),
                Event::Joined { address_id, .. } => self.join(id, address_id, &event),
                _ => self.take_event(id, &event),
            }
            if let Some(flow) = self.flows.flow_mut(id) {
                flow.refresh_view();
            }
        }
    }

    /// Takes note of what a subflow tells that belongs to a connection.
    fn take_event(&mut self, id: FlowId, event: &Event) {
        let Some(flow) = self.flows.flow_mut(id) else { return };
        // A join that came to nothing is none of the connection's business.
        let (Some(connection), Some(me)) = (&flow.connection, &flow.record) else { return };
        if !connection.level.on_event(event) {
            // A fallback may have placed payload where it would lie in plain TCP.
            self.placements.clear();
            return flow.subflow.abort(Abort::Subflow(ResetReason::MptcpSpecific));
        }
        // As long as a connection speaks MPTCP, others may go on when a subflow has ended, or come
        // to it; see `forget`.
        let alone = !connection.is_mptcp();
        match *event {
            Event::DataFin { at } => {
                connection.set_end(at, Closed::DataFin);
                if connection.is_complete() {
                    connection.ask_others(me, Wishes::ACK);
                }
            }
            Event::StreamEnd { at } => connection.set_end(at, Closed::Fin),
            // Their subflows may now be closed too.
            Event::LocalFinAcked => connection.ask_others(me, Wishes::TELL),
            Event::Fallback(_) => {
                connection.forget_token();
                self.store_held(id, None);
            }
            // Before, a subflow that joins would be too early.
            Event::FullyEstablished => self.announce(id),
            Event::AddressEchoed(address) | Event::AddressUnanswered(address) => {
                connection.announced(address);
                flow.announcing = None;
                self.announce(id);
            }
            Event::AddressesRemoved(removed) => connection.check_paths(removed.as_slice()),
            Event::FastClose => {
                connection.end(Failure::FastClose, Closed::FastClose, Wishes::RESET);
            }
            Event::Reset(ResetCause::Local) if alone || flow.view.reader_gone => {
                connection.end(Failure::Aborted, connection.aborted(), Wishes::ABORT);
            }
            Event::Reset(ResetCause::Violation(_)) if alone => {
                connection.end(Failure::Protocol, Closed::Reset, Wishes::RESET);
            }
            Event::TimedOut if alone => {
                connection.end(Failure::TimedOut, Closed::Timeout, Wishes::RESET);
            }
            Event::Reset(_) | Event::Closed if alone => {
                connection.end(Failure::Reset, Closed::Reset, Wishes::RESET);
            }
            Event::Established { .. }
            | Event::Joined { .. }
            | Event::ChecksumsInUse
            | Event::AddressAnnounced(_)
            | Event::PriorityChanged { .. }
            | Event::ChecksumFailed { .. }
            | Event::SubflowFin
            | Event::Reset(_)
            | Event::TimedOut
            | Event::Closed => {}
        }
    }

    /// The handshake is complete: the connection comes to be, and waits to be accepted.
    fn establish(&mut self, id: FlowId, event: &Event) {
        let Some(flow) = self.flows.flow_mut(id) else { return };
        let Some(opening) = flow.opening.take() else { return };
        self.half_open -= 1;
        let backlog = match &opening {
            Opening::First { half_open, .. } => half_open.backlog(),
            Opening::Cookie(backlog) => backlog,
            // What joins tells of that by another event.
            Opening::Join { .. } => return,
        };
        let (ring, reader) = match ring(self.shared.ring.clone()) {
            Ok(both) => both,
            Err(e) => {
                // What the kernel refuses has its number.
                let ours = e.kind() == ErrorKind::OutOfMemory && e.raw_os_error().is_none();
                let reason = if ours { WorkerDrop::MemoryLimit } else { WorkerDrop::NoRing };
                self.handle.counters.dropped(reason);
                return flow.subflow.abort(Abort::Connection);
            }
        };
        let level = DataLevel::new(flow.subflow.local_key());
        // There is nothing yet that it could contradict.
        let _ = level.on_event(event);
        let nic = Arc::clone(&self.facts[flow.path.port].nic);
        let first = Record::new(flow.key, id, Arc::clone(&self.handle), nic, AddressId(0));
        let entrance = Arc::clone(&flow.entrance);
        let slack = self.shared.protocol.window_slack();
        let connection =
            Arc::new(Connection::new(level, ring, slack, entrance, Arc::clone(&first)));
        if let Some(token) = flow.token.take()
            && connection.is_mptcp()
        {
            connection.open_to_joins(token);
        }
        flow.connection = Some(Arc::clone(&connection));
        flow.record = Some(first);
        flow.refresh_view();
        let stream = Stream::new(reader, connection);
        if let Some(refused) = backlog.push(stream) {
            // Dropping it resets the connection.
            self.handle.counters.dropped(WorkerDrop::BacklogFull);
            drop(refused);
        }
    }

    /// A further subflow is proved to be of the connection's peer.
    fn join(&mut self, id: FlowId, address_id: AddressId, event: &Event) {
        let Some(flow) = self.flows.flow_mut(id) else { return };
        // Its place is given back when it has another in the connection's list.
        let Some(_opening) = flow.opening.take() else { return };
        self.half_open -= 1;
        let Some(connection) = &flow.connection else { return };
        let nic = Arc::clone(&self.facts[flow.path.port].nic);
        let record = Record::new(flow.key, id, Arc::clone(&self.handle), nic, address_id);
        if connection.level.on_event(event) && connection.add(Arc::clone(&record)) {
            flow.record = Some(record);
        } else {
            flow.subflow.abort(Abort::Subflow(ResetReason::Prohibited));
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
        if let (Some(connection), Some(record)) = (&flow.connection, &flow.record) {
            let queue = self.facts[flow.path.port].queue;
            record.publish(&flow.subflow, queue);
            connection.ring.advertise(flow.subflow.advertised());
            if connection.ring.is_tuning_due(now)
                && let Some(round_trip) = connection.round_trip()
            {
                connection.ring.tune(now, round_trip);
            }
        }
        if blocked {
            return;
        }
        if flow.subflow.state() == State::Closed {
            self.remove(now, id);
        } else if let Some(state) = flow.subflow.time_wait() {
            self.reduce(now, id, state);
        }
    }

    /// Ends a flow's connection from our side: all of its subflows are reset.
    pub(super) fn abort_connection(&mut self, id: FlowId) {
        let Some(flow) = self.flows.flow_mut(id) else { return };
        flow.subflow.abort(Abort::Connection);
        if let (Some(connection), Some(_)) = (&flow.connection, &flow.record) {
            connection.end(Failure::Aborted, connection.aborted(), Wishes::ABORT);
        }
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
    pub(super) fn remove(&mut self, now: Instant, id: FlowId) {
        match self.flows.remove(id) {
            Some(Entry::Flow(flow)) => {
                self.shared.owners.leave(&flow.key);
                self.forget(now, *flow);
            }
            Some(Entry::Waiting(waiting)) => self.shared.owners.leave(&waiting.key),
            None => {}
        }
    }

    /// Keeps of a flow in TIME-WAIT what that needs, and no more.
    fn reduce(&mut self, now: Instant, id: FlowId, state: TimeWait) {
        if let Some(flow) = self.flows.reduce(id, state) {
            self.forget(now, *flow);
        }
    }

    /// What a flow held is given up. Its connection has ended with it, unless it has other subflows
    /// or may yet come to have: then it has some time for that.
    fn forget(&mut self, now: Instant, flow: Flow) {
        self.half_open -= usize::from(flow.opening.is_some());
        if let (Some(connection), Some(address)) = (&flow.connection, flow.announcing) {
            connection.not_announced(address);
        }
        if let (Some(connection), Some(record)) = (flow.connection, flow.record)
            && connection.leave(&record, now)
        {
            self.orphans.push_back((now, Arc::downgrade(&connection)));
        }
    }
}
