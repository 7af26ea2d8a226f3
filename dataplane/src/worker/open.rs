//! What a packet of no flow leads to: a new flow, a reset, or a hand-over to its worker.

use std::sync::Arc;

use mpxdp_proto::connection::View;
use mpxdp_proto::segment::{Flags, Segment};
use mpxdp_proto::seq::SeqNum;
use mpxdp_proto::subflow::{PassiveOpening, Subflow, TimeWaitVerdict, reset_for};
use mpxdp_proto::time::Instant;
use mpxdp_proto::wire::Frame;

use super::counters::WorkerDrop;
use super::flows::{Entry, Flow, FlowId, FlowKey, Path};
use super::handle::Stray;
use super::timers::Deadline;
use super::{Answer, Core};
use crate::listener::Full;

/// What the peer may send before there is a connection: a SYN/ACK's window is never scaled.
const HANDSHAKE_WINDOW: u64 = 65535;

impl Core {
    /// Takes in a packet of no flow of this worker; `path` is `None` if another handed it over.
    pub(super) fn no_flow<'a>(
        &mut self,
        now: Instant,
        key: &FlowKey,
        path: Option<&Path>,
        frame: &Frame,
        packet: impl Iterator<Item = &'a [u8]>,
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
        } else {
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
                self.remove(id);
                self.open(now, &key, &path, &frame.segment, Some(least));
            }
            TimeWaitVerdict::Done => self.remove(id),
        }
    }

    /// Opens a flow for a SYN, if a listener is there and has room.
    fn open(
        &mut self,
        now: Instant,
        key: &FlowKey,
        path: &Path,
        syn: &Segment,
        least_isn: Option<SeqNum>,
    ) {
        let counters = &self.handle.counters;
        let Some(backlog) = self.shared.listeners.find(key.local) else {
            counters.dropped(WorkerDrop::NoListener);
            return self.reset(now, key, path, syn);
        };
        let half_open = match backlog.begin() {
            Ok(half_open) => half_open,
            // The client's SYN comes again, and there may be room then.
            Err(Full::HalfOpen) => return counters.dropped(WorkerDrop::HalfOpenFull),
            Err(Full::Backlog) => return counters.dropped(WorkerDrop::BacklogFull),
        };
        let config = &self.shared.protocol;
        let wants_mptcp = config.mptcp && syn.options.mptcp.capable.is_some();
        let drawn = wants_mptcp.then(|| self.keys.draw(&self.shared.tokens)).flatten();
        let (local, token) = drawn.unzip();
        let isn = self.shared.secret.isn(key.local, key.remote, now);
        let opening = PassiveOpening {
            isn: least_isn.filter(|least| isn.before(*least)).unwrap_or(isn),
            timestamp_offset: self.shared.secret.timestamp_offset(key.local, key.remote),
            local,
            mss: self.facts[path.port].mss(key),
        };
        let subflow = match Subflow::passive_open(now, config, syn, &opening) {
            Ok(subflow) => subflow,
            Err(refusal) => {
                counters.refused(refusal.reason);
                if let Some(segment) = refusal.reply {
                    self.reset_with(now, key, path, segment);
                }
                return;
            }
        };
        if !self.shared.owners.enter(*key, self.handle.index) {
            // Another worker opened it this very moment: two copies of the SYN on two queues.
            return;
        }
        let id = self.flows.insert(Box::new(Flow {
            key: *key,
            path: *path,
            subflow,
            connection: None,
            view: View::initial(HANDSHAKE_WINDOW),
            token,
            hold: Arc::clone(&backlog.hold),
            half_open: Some(half_open),
            deadline: Deadline::default(),
            touched: false,
        }));
        self.half_open += 1;
        self.touch(id);
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
