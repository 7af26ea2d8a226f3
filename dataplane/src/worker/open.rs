//! What a packet of no flow leads to: a new flow, a reset, or a hand-over to its worker.

use std::sync::Arc;

use mpxdp_proto::connection::View;
use mpxdp_proto::segment::{AddressId, Flags, MpJoin, Segment, Token};
use mpxdp_proto::seq::SeqNum;
use mpxdp_proto::subflow::{
    JoinOpening, PassiveOpening, Refusal, RefusalReason, Subflow, TimeWaitVerdict, refuse_join,
    reset_for,
};
use mpxdp_proto::time::Instant;
use mpxdp_proto::wire::Frame;

use super::counters::WorkerDrop;
use super::flows::{Entry, Flow, FlowId, FlowKey, Opening, Path};
use super::handle::Stray;
use super::shared::{PendingJoin, Shared};
use super::timers::Deadline;
use super::{Answer, Core};
use crate::connection::Connection;
use crate::listener::Full;

/// What the peer may send before there is a connection: a SYN/ACK's window is never scaled.
pub(super) const HANDSHAKE_WINDOW: u64 = 65535;

impl Core {
    /// Takes in a packet of no flow of this worker; `path` is `None` if another handed it over.
    /// `source` names it for [`store`](Self::store).
    pub(super) fn no_flow<'a>(
        &mut self,
        now: Instant,
        key: &FlowKey,
        path: Option<&Path>,
        source: usize,
        frame: &Frame,
        packet: impl Iterator<Item = &'a [u8]> + Clone,
    ) {
        let Some(path) = path else {
            // The flow ended while the packet was on its way here.
            return self.handle.counters.dropped(WorkerDrop::NoFlow);
        };
        if let Some(owner) = self.shared.owners.other(key, self.handle.index) {
            // The NIC now gives the flow to another queue than before. Its worker still has it.
            let bytes = packet.flatten().copied().collect();
            if !owner.hand_over(Stray { bytes }) {
                self.handle.counters.dropped(WorkerDrop::StrayLost);
            }
            return;
        }
        let flags = frame.segment.flags;
        if flags.contains(Flags::SYN) && !flags.contains(Flags::ACK) {
            self.open(now, key, path, &frame.segment, None);
        } else if !self.open_by_cookie(now, key, path, source, frame, packet) {
            self.handle.counters.dropped(WorkerDrop::NoFlow);
            self.reset(now, key, path, &frame.segment);
        }
    }

    /// Takes in a packet for a flow in TIME-WAIT.
    pub(super) fn time_wait(
        &mut self,
        now: Instant,
        id: FlowId,
        path: Option<Path>,
        frame: &Frame,
    ) {
        let Some(Entry::Waiting(waiting)) = self.flows.get_mut(id) else { return };
        let (key, path) = (waiting.key, path.unwrap_or(waiting.path));
        let verdict = waiting.state.on_segment(now, &frame.segment);
        self.timers.set(id, &mut waiting.deadline, Some(waiting.state.expires()));
        match verdict {
            TimeWaitVerdict::Ignore => self.handle.counters.dropped(WorkerDrop::TimeWait),
            TimeWaitVerdict::Reply(segment) => {
                self.answers.push(Answer { key, path, segment });
            }
            TimeWaitVerdict::Reopen(least) => {
                self.remove(now, id);
                self.open(now, &key, &path, &frame.segment, Some(least));
            }
            TimeWaitVerdict::Done => self.remove(now, id),
        }
    }

    /// Opens a flow for a SYN, if a listener is there and has room. Where only handshakes are too
    /// many, from all or from this source, a cookie takes the flow's place.
    fn open(
        &mut self,
        now: Instant,
        key: &FlowKey,
        path: &Path,
        syn: &Segment,
        least_isn: Option<SeqNum>,
    ) {
        if self.shared.protocol.mptcp
            && let Some(MpJoin::Syn { token, .. }) = syn.options.mptcp.join
        {
            return self.open_join(now, key, path, syn, token, least_isn);
        }
        let counters = &self.handle.counters;
        let Some(backlog) = self.shared.listeners.find(key.local) else {
            counters.dropped(WorkerDrop::NoListener);
            return self.reset(now, key, path, syn);
        };
        let place = match backlog.begin() {
            Ok(half_open) => (self.shared.sources)
                .begin(key.remote.ip(), backlog.limits.half_open_per_source)
                .map(|source| (half_open, source))
                .ok_or(WorkerDrop::SourceHalfOpenFull),
            Err(Full::HalfOpen) => Err(WorkerDrop::HalfOpenFull),
            // The client's SYN comes again, and there may be room then.
            Err(Full::Backlog) => return counters.dropped(WorkerDrop::BacklogFull),
        };
        let (half_open, source) = match place {
            Ok(place) => place,
            Err(reason) => {
                counters.dropped(reason);
                // A cookie cannot be made to follow on from TIME-WAIT.
                if least_isn.is_none() {
                    self.send_cookie(now, key, path, syn, &backlog);
                }
                return;
            }
        };
        let config = &self.shared.protocol;
        let wants_mptcp = config.mptcp && syn.options.mptcp.capable.is_some();
        let drawn = wants_mptcp
            .then(|| self.keys.draw(&self.shared.entropy, &self.shared.tokens))
            .flatten();
        let (local, token) = drawn.unzip();
        let opening = PassiveOpening {
            isn: self.isn(now, key, least_isn),
            timestamp_offset: self.shared.secret.timestamp_offset(key.local, key.remote),
            local,
            mss: self.facts[path.port].mss(key),
        };
        let subflow = match Subflow::passive_open(now, config, syn, &opening) {
            Ok(subflow) => subflow,
            Err(refusal) => return self.refuse(now, key, path, &refusal),
        };
        let _ = self.insert(Flow {
            key: *key,
            path: *path,
            subflow,
            connection: None,
            record: None,
            view: View::initial(HANDSHAKE_WINDOW),
            token,
            entrance: Arc::clone(&backlog.entrance),
            opening: Some(Opening::First { half_open, _source: source }),
            held: None,
            announcing: None,
            deadline: Deadline::default(),
            touched: false,
        });
    }

    /// Opens a flow for a SYN that joins the connection of `token`, on whichever worker that is,
    /// and whether or not its listener is still there (RFC 8684, section 3.2).
    fn open_join(
        &mut self,
        now: Instant,
        key: &FlowKey,
        path: &Path,
        syn: &Segment,
        token: Token,
        least_isn: Option<SeqNum>,
    ) {
        let (connection, address_id, pending) = match self.place_for_join(key, token) {
            Ok(place) => place,
            Err(reason) => return self.refuse(now, key, path, &refuse_join(syn, reason)),
        };
        let Some(nonce) = self.keys.nonce(&self.shared.entropy) else {
            let refusal = refuse_join(syn, RefusalReason::JoinResources);
            return self.refuse(now, key, path, &refusal);
        };
        let view = connection.view();
        let opening = JoinOpening {
            isn: self.isn(now, key, least_isn),
            timestamp_offset: self.shared.secret.timestamp_offset(key.local, key.remote),
            mss: self.facts[path.port].mss(key),
            nonce,
            address_id,
            backup: false,
        };
        let (config, level) = (&self.shared.protocol, &connection.level);
        let subflow = match Subflow::passive_join(now, config, syn, level, &view, &opening) {
            Ok(subflow) => subflow,
            Err(refusal) => return self.refuse(now, key, path, &refusal),
        };
        let _ = self.insert(Flow {
            key: *key,
            path: *path,
            subflow,
            entrance: Arc::clone(&connection.entrance),
            connection: Some(connection),
            record: None,
            view,
            token: None,
            opening: Some(Opening::Join { _pending: pending }),
            held: None,
            announcing: None,
            deadline: Deadline::default(),
            touched: false,
        });
    }

    /// The connection of `token`, our identifier of the address that the join comes to, and a place
    /// for it.
    fn place_for_join(
        &self,
        key: &FlowKey,
        token: Token,
    ) -> Result<(Arc<Connection>, AddressId, PendingJoin), RefusalReason> {
        let Shared { tokens, protocol, .. } = &*self.shared;
        let connection = tokens.find(token).ok_or(RefusalReason::JoinUnknownToken)?;
        let address_id = connection.address_id(key.local).ok_or(RefusalReason::JoinNotAnnounced)?;
        if key.local == connection.local() && protocol.deny_joins_to_initial_address {
            return Err(RefusalReason::JoinInitialAddress);
        }
        let pending = self.shared.begin_join(&connection)?;
        Ok((connection, address_id, pending))
    }

    /// Puts a new flow into the tables. `None`: another worker opened it this very moment, by
    /// another copy of the packet on another queue.
    pub(super) fn insert(&mut self, flow: Flow) -> Option<FlowId> {
        if !self.shared.owners.enter(flow.key, self.handle.index) {
            return None;
        }
        let id = self.flows.insert(Box::new(flow));
        self.half_open += 1;
        self.touch(id);
        Some(id)
    }

    /// Our initial sequence number, no less than what TIME-WAIT asks for.
    fn isn(&self, now: Instant, key: &FlowKey, least: Option<SeqNum>) -> SeqNum {
        let isn = self.shared.secret.isn(key.local, key.remote, now);
        least.filter(|least| isn.before(*least)).unwrap_or(isn)
    }

    /// Counts a SYN that opens nothing, and answers it where that is due.
    pub(super) fn refuse(&mut self, now: Instant, key: &FlowKey, path: &Path, refusal: &Refusal) {
        self.handle.counters.refused(refusal.reason);
        if let Some(segment) = refusal.reply {
            self.reset_with(now, key, path, segment);
        }
    }

    /// Answers a packet of no connection with a reset, where one is due (RFC 9293, section
    /// 3.10.7.1).
    fn reset(&mut self, now: Instant, key: &FlowKey, path: &Path, segment: &Segment) {
        if let Some(reset) = reset_for(segment) {
            self.reset_with(now, key, path, reset);
        }
    }

    fn reset_with(&mut self, now: Instant, key: &FlowKey, path: &Path, segment: Segment) {
        if self.resets.allow(now) {
            self.answers.push(Answer { key: *key, path: *path, segment });
        } else {
            self.handle.counters.dropped(WorkerDrop::ResetLimited);
        }
    }
}
