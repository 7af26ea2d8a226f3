//! SYN cookies: handshakes of which nothing is kept, while too many others are under way.

use std::sync::Arc;

use mpxdp_proto::connection::View;
use mpxdp_proto::segment::Segment;
use mpxdp_proto::subflow::{CookieOpening, Disposition, Subflow};
use mpxdp_proto::time::Instant;
use mpxdp_proto::wire::Frame;

use super::counters::WorkerDrop;
use super::flows::{Flow, FlowKey, Opening, Path};
use super::open::HANDSHAKE_WINDOW;
use super::shared::Shared;
use super::timers::Deadline;
use super::{Answer, Core};
use crate::listener::Backlog;

impl Core {
    /// Answers a SYN by a cookie: one packet for one, and none that is sent again.
    pub(super) fn send_cookie(
        &mut self,
        now: Instant,
        key: &FlowKey,
        path: &Path,
        syn: &Segment,
        backlog: &Backlog,
    ) {
        let Shared { protocol, cookies, tokens, .. } = &*self.shared;
        let opening = self.cookie_opening(key, path);
        let mptcp = protocol.mptcp
            && syn.options.mptcp.capable.is_some()
            && tokens.is_free(cookies.local_key(&opening, syn).token);
        let view = View::initial(HANDSHAKE_WINDOW);
        match Subflow::cookie_syn_ack(now, protocol, cookies, &opening, syn, mptcp, &view) {
            Ok(Some(segment)) => {
                backlog.cookie_sent(now);
                self.answers.push(Answer { key: *key, path: *path, segment });
            }
            Ok(None) => {}
            Err(refusal) => self.refuse(now, key, path, &refusal),
        }
    }

    /// Opens a flow by a packet of no flow that completes a handshake begun by a cookie; says
    /// whether that is settled. `source` names the packet for [`store`](Self::store).
    pub(super) fn open_by_cookie<'a>(
        &mut self,
        now: Instant,
        key: &FlowKey,
        path: &Path,
        source: usize,
        frame: &Frame,
        packet: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> bool {
        let Shared { protocol, cookies, tokens, listeners, .. } = &*self.shared;
        let Some(backlog) = listeners.find(key.local) else { return false };
        if !backlog.expects_cookies(now) {
            return false;
        }
        if !backlog.has_room() {
            // The client's first data comes again and completes the handshake as well, if what
            // follows it is not answered by a reset meanwhile.
            self.handle.counters.dropped(WorkerDrop::BacklogFull);
            return true;
        }
        let opening = self.cookie_opening(key, path);
        let view = View::initial(HANDSHAKE_WINDOW);
        let (segment, placements) = (&frame.segment, &mut self.placements);
        placements.clear();
        let Some((subflow, disposition)) =
            Subflow::open_by_cookie(now, protocol, cookies, &opening, segment, &view, placements)
        else {
            return false;
        };
        let local = subflow.local_key();
        let token = local.and_then(|local| tokens.enter(local.token));
        if local.is_some() && token.is_none() {
            // It has come into use since the SYN, and this client was promised MPTCP.
            return false;
        }
        let entrance = Arc::clone(&backlog.entrance);
        let flow = Flow {
            key: *key,
            path: *path,
            subflow,
            connection: None,
            record: None,
            view,
            token,
            entrance,
            opening: Some(Opening::Cookie(backlog)),
            held: None,
            announcing: None,
            deadline: Deadline::default(),
            touched: false,
        };
        let Some(id) = self.insert(flow) else { return true };
        self.handle.counters.opened_by_cookie();
        if let Disposition::Dropped(reason) = disposition {
            self.handle.counters.disposed(reason);
        }
        self.take_events(id);
        self.place(now, id, source, frame.payload_at, packet);
        true
    }

    fn cookie_opening(&self, key: &FlowKey, path: &Path) -> CookieOpening {
        let FlowKey { local, remote } = *key;
        CookieOpening {
            local,
            remote,
            timestamp_offset: self.shared.secret.timestamp_offset(local, remote),
            mss: self.facts[path.port].mss(key),
        }
    }
}
