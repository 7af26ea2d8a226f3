//! What becomes of flows when our addresses and NICs change (RFC 8684, sections 3.4.1 and 3.4.2).

use mpxdp_proto::subflow::{Abort, ResetReason};

use super::Core;
use super::flows::FlowId;
use crate::connection::Announced;

impl Core {
    /// Tells the peer of the next of our further addresses that it does not know.
    pub(super) fn announce(&mut self, id: FlowId) {
        let Some(flow) = self.flows.flow_mut(id) else { return };
        let Some(connection) = &flow.connection else { return };
        if !connection.level.is_fully_established() {
            return;
        }
        if let Some(Announced { id, at }) = connection.next_to_announce() {
            let port = Some(at.port()).filter(|&port| port != connection.local().port());
            if flow.subflow.announce(id, at.ip(), port) {
                flow.announcing = Some(id);
            } else {
                connection.not_announced(id);
            }
        }
    }

    /// Our addresses have changed. A subflow at one that is ours no more is given up, if there are
    /// others to go on; those tell the peer.
    pub(super) fn follow_addresses(&mut self, id: FlowId) {
        let Some(flow) = self.flows.flow_mut(id) else { return };
        let (Some(connection), Some(record)) = (&flow.connection, &flow.record) else { return };
        if !connection.is_mptcp() {
            return;
        }
        if !connection.entrance.is_local(flow.key.local.ip()) {
            //  RFC 8684, section 3.4.2: "The sending and receipt (if no keepalive response was
            //  received) of this message SHOULD trigger the sending of RSTs by both hosts on the
            //  affected subflow(s) (if possible)".
            if connection.lives_without(record) {
                self.give_up(id);
            }
            return;
        }
        flow.subflow.keep_addresses(connection.ours());
        for address in connection.take_withdrawn() {
            if !flow.subflow.withdraw(&[address]) {
                connection.not_withdrawn(address);
            }
        }
        self.announce(id);
    }

    /// A NIC is gone, and with it the way to the peers of the flows there. Their connections go on
    /// by other subflows, if there are or come to be any.
    pub(super) fn leave_nic(&mut self, nic: &str) {
        for id in self.flows.active_ids() {
            let Some(flow) = self.flows.flow_mut(id) else { continue };
            if &*self.facts[flow.path.port].nic == nic {
                self.give_up(id);
            }
        }
    }

    /// Resets a subflow, as far as that can still be told.
    fn give_up(&mut self, id: FlowId) {
        let Some(flow) = self.flows.flow_mut(id) else { return };
        flow.subflow.abort(Abort::Subflow(ResetReason::Unspecified));
        self.take_events(id);
        self.touch(id);
    }
}
