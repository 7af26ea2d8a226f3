//! The flows that a worker owns, found by their addresses in one look-up.

use std::hash::{BuildHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hashbrown::HashMap;
use mpxdp_proto::connection::View;
use mpxdp_proto::segment::AddressId;
use mpxdp_proto::subflow::{Subflow, TimeWait};
use mpxdp_proto::wire::LinkHeader;
use siphasher::sip::SipHasher13;

use super::held::Held;
use super::shared::{PendingJoin, TokenInUse};
use super::sources::SourcePlace;
use super::timers::Deadline;
use crate::connection::{Connection, Record, Wishes};
use crate::listener::{Backlog, Entrance, HalfOpen};

/// The addresses of a flow: ours, then the peer's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FlowKey {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

impl Hash for FlowKey {
    /// Hashes 12 or 36 octets in one piece: half the time of the derived implementation, which
    /// feeds the hasher field by field. Flow information and scope are always 0 here.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut bytes = [0; 36];
        let mut at = 0;
        for end in [self.local, self.remote] {
            match end.ip() {
                IpAddr::V4(ip) => {
                    bytes[at..at + 4].copy_from_slice(&ip.octets());
                    at += 4;
                }
                IpAddr::V6(ip) => {
                    bytes[at..at + 16].copy_from_slice(&ip.octets());
                    at += 16;
                }
            }
            bytes[at..at + 2].copy_from_slice(&end.port().to_be_bytes());
            at += 2;
        }
        state.write(&bytes[..at]);
    }
}

/// A keyed hash: a peer that chooses its ports cannot make the table slow without the key.
#[derive(Clone, Debug)]
pub(crate) struct FlowHash([u8; 16]);

impl FlowHash {
    /// Hashes under a secret of 16 octets.
    pub(crate) const fn new(secret: [u8; 16]) -> Self {
        Self(secret)
    }
}

impl BuildHasher for FlowHash {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_key(&self.0)
    }
}

/// Names a flow of one worker. The name of a flow that has gone finds nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct FlowId {
    index: u32,
    generation: u32,
}

impl FlowId {
    #[cfg(test)]
    pub(crate) const fn new(index: u32, generation: u32) -> Self {
        Self { index, generation }
    }

    /// The place in the table.
    #[cfg(test)]
    pub(super) const fn index(self) -> usize {
        self.index as usize
    }
}

/// How answers reach a flow's peer: back the way its last valid packet came. No neighbour has to
/// be looked up, and VLAN tags stay.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    /// The link header of the answers.
    pub(super) link: LinkHeader,
    /// The worker's port, by its place in the worker.
    pub(super) port: usize,
}

/// What a subflow takes up during its handshake.
pub(super) enum Opening {
    /// The first of a connection: a place at the listener.
    First {
        half_open: HalfOpen,
        /// Given back when it is dropped.
        _source: SourcePlace,
    },
    /// The first of a connection whose handshake took up nothing: the listener's backlog.
    Cookie(Arc<Backlog>),
    /// A further one: a place in the connection, and among all joins.
    Join {
        /// Given back when it is dropped.
        _pending: PendingJoin,
    },
}

/// A subflow, and what the worker keeps with it.
pub(super) struct Flow {
    pub(super) key: FlowKey,
    pub(super) path: Path,
    pub(super) subflow: Subflow,
    /// Its connection: from the end of the handshake on, or from the start if it joins.
    pub(super) connection: Option<Arc<Connection>>,
    /// What others see of it, once it belongs to the connection.
    pub(super) record: Option<Arc<Record>>,
    /// The connection as it was when this was last brought up to date, at most a burst ago.
    pub(super) view: View,
    /// Our token, until there is a connection, and while that may come to speak MPTCP.
    pub(super) token: Option<TokenInUse>,
    /// What it takes up until the end of its handshake.
    pub(super) opening: Option<Opening>,
    /// Keeps the port steered to us.
    pub(super) entrance: Arc<Entrance>,
    /// Payload that waits for its checksum, where there ever was some.
    pub(super) held: Option<Box<Held>>,
    /// The address that is being announced on this subflow.
    pub(super) announcing: Option<AddressId>,
    pub(super) deadline: Deadline,
    /// Whether it is among the flows that this turn has to finish.
    pub(super) touched: bool,
}

impl Flow {
    /// Brings the view up to date.
    #[inline]
    pub(super) fn refresh_view(&mut self) {
        if let Some(connection) = &self.connection {
            self.view = connection.view();
        }
    }
}

/// What only connections that more than one subflow has ever belonged to need.
impl Flow {
    /// The edge moved, by `jumped` bytes more than this subflow brought: those had come by others.
    ///
    /// Where that closed a gap, the peer is told at once, and on this subflow only: an unprompted
    /// acknowledgement on another leads Linux to send past the window (docs/decisions/0007). Where
    /// the stream is complete, all tell it, as nothing else may come that would be answered.
    pub(super) fn edge_moved(&mut self, jumped: u64) {
        let (Some(connection), Some(me)) = (&self.connection, &self.record) else { return };
        let complete = self.view.remote_complete();
        if complete {
            connection.ask_others(me, Wishes::ACK);
        }
        if (jumped > 0 || complete) && self.subflow.data_ack_due(&self.view) {
            // Where this closed a gap of the stream but not of its own, what is told waits for that.
            self.subflow.request_ack();
        }
    }

    /// An acknowledgement went out with what the view says.
    pub(super) fn window_told(&self) {
        if let (Some(connection), Some(me)) = (&self.connection, &self.record) {
            connection.on_window_told(me, &self.view);
        }
    }

    /// The subflow was asked to tell of the window, and there was nothing to tell.
    pub(super) fn window_not_told(&self) {
        if let (Some(connection), Some(me)) = (&self.connection, &self.record) {
            connection.on_window_not_told(me);
        }
    }
}

/// A flow of which only TIME-WAIT is left.
pub(super) struct Waiting {
    pub(super) key: FlowKey,
    pub(super) path: Path,
    pub(super) state: TimeWait,
    pub(super) deadline: Deadline,
    /// Keeps the port steered to us.
    _entrance: Arc<Entrance>,
}

/// What a place of the table holds.
pub(super) enum Entry {
    Flow(Box<Flow>),
    Waiting(Box<Waiting>),
}

impl Entry {
    const fn key(&self) -> &FlowKey {
        match self {
            Self::Flow(flow) => &flow.key,
            Self::Waiting(waiting) => &waiting.key,
        }
    }

    pub(super) const fn deadline_mut(&mut self) -> &mut Deadline {
        match self {
            Self::Flow(flow) => &mut flow.deadline,
            Self::Waiting(waiting) => &mut waiting.deadline,
        }
    }
}

#[derive(Default)]
struct Slot {
    generation: u32,
    entry: Option<Entry>,
}

/// All flows of a worker.
pub(super) struct Flows {
    by_key: HashMap<FlowKey, u32, FlowHash>,
    slots: Vec<Slot>,
    vacant: Vec<u32>,
    waiting: usize,
    /// The flow of the last look-up: in a burst the next packet is mostly of the same.
    last: Option<(FlowKey, FlowId)>,
}

impl Flows {
    pub(super) fn new(hash: FlowHash) -> Self {
        Self {
            by_key: HashMap::with_hasher(hash),
            slots: Vec::new(),
            vacant: Vec::new(),
            waiting: 0,
            last: None,
        }
    }

    /// The flow of these addresses.
    #[inline]
    pub(super) fn find(&mut self, key: &FlowKey) -> Option<FlowId> {
        if let Some((last, id)) = &self.last
            && last == key
        {
            return Some(*id);
        }
        let index = *self.by_key.get(key)?;
        let id = FlowId { index, generation: self.slots[index as usize].generation };
        self.last = Some((*key, id));
        Some(id)
    }

    /// The entry of a flow, unless it has gone.
    #[inline]
    pub(super) fn get_mut(&mut self, id: FlowId) -> Option<&mut Entry> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation == id.generation { slot.entry.as_mut() } else { None }
    }

    /// The flow, unless it has gone or is in TIME-WAIT.
    #[inline]
    pub(super) fn flow_mut(&mut self, id: FlowId) -> Option<&mut Flow> {
        match self.get_mut(id)? {
            Entry::Flow(flow) => Some(flow),
            Entry::Waiting(_) => None,
        }
    }

    /// Adds a flow whose addresses are not in the table yet.
    pub(super) fn insert(&mut self, flow: Box<Flow>) -> FlowId {
        let key = flow.key;
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).expect("memory ends before 2^32 flows")
        });
        let slot = &mut self.slots[index as usize];
        slot.entry = Some(Entry::Flow(flow));
        let before = self.by_key.insert(key, index);
        debug_assert!(before.is_none(), "two flows of the same addresses");
        FlowId { index, generation: slot.generation }
    }

    /// Removes a flow.
    pub(super) fn remove(&mut self, id: FlowId) -> Option<Entry> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        let entry = slot.entry.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.vacant.push(id.index);
        self.by_key.remove(entry.key());
        self.waiting -= usize::from(matches!(entry, Entry::Waiting(_)));
        self.last = None;
        Some(entry)
    }

    /// Reduces a flow to what TIME-WAIT needs, and gives the rest back. The name stays valid.
    pub(super) fn reduce(&mut self, id: FlowId, state: TimeWait) -> Option<Box<Flow>> {
        let Some(place @ Entry::Flow(_)) = self.get_mut(id) else { return None };
        let Entry::Flow(flow) = place else { return None };
        let waiting = Entry::Waiting(Box::new(Waiting {
            key: flow.key,
            path: flow.path,
            state,
            deadline: flow.deadline,
            _entrance: Arc::clone(&flow.entrance),
        }));
        let Entry::Flow(flow) = std::mem::replace(place, waiting) else { return None };
        self.waiting += 1;
        Some(flow)
    }

    /// How many flows there are, without those in TIME-WAIT.
    pub(super) fn active(&self) -> usize {
        self.by_key.len() - self.waiting
    }

    /// How many flows are in TIME-WAIT.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// The names of all flows that are not in TIME-WAIT; for rare occasions.
    pub(super) fn active_ids(&self) -> Vec<FlowId> {
        let slots = self.slots.iter().zip(0..);
        slots
            .filter(|(slot, _)| matches!(slot.entry, Some(Entry::Flow(_))))
            .map(|(slot, index)| FlowId { index, generation: slot.generation })
            .collect()
    }
}
