//! What workers and the application share of one connection.

mod announcing;
mod attention;
#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
mod subflows;
#[cfg(test)]
mod support;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use mpxdp_proto::connection::{Connection as DataLevel, Mode, View};
use mpxdp_proto::segment::AddressId;
use mpxdp_proto::seq::StreamOffset;
use mpxdp_proto::subflow::FallbackReason;
use mpxdp_proto::time::Instant as EngineTime;

use self::announcing::Announcing;
use self::subflows::Subflows;
use crate::listener::Entrance;
use crate::receive::{Failure, Ring};
use crate::stats::{Closed, ConnectionStatistics};
use crate::sync::{AtomicU8, Ordering};
use crate::worker::TokenInUse;

pub(crate) use self::attention::Wishes;
pub(crate) use self::subflows::{Announced, Record};

/// A connection, as the workers of its subflows and the application's thread share it.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The data level.
    pub(crate) level: DataLevel,
    /// Where its bytes are.
    pub(crate) ring: Arc<Ring>,
    /// So many bytes of the window are told only while it closes, see [`View::slack`].
    slack: u64,
    /// Where it came in; keeps that steered to us for subflows that join.
    pub(crate) entrance: Arc<Entrance>,
    subflows: Subflows,
    announcing: Announcing,
    /// By which subflows that join find it.
    token: Mutex<Option<TokenInUse>>,
    closed: AtomicU8,
    established: Instant,
    ended: OnceLock<Instant>,
}

impl Connection {
    /// A connection that came in at `entrance` by the subflow `first`; `slack` as in
    /// [`View::slack`].
    pub(crate) fn new(
        level: DataLevel,
        ring: Arc<Ring>,
        slack: u64,
        entrance: Arc<Entrance>,
        first: Arc<Record>,
    ) -> Self {
        Self {
            level,
            ring,
            slack,
            entrance,
            subflows: Subflows::new(first),
            announcing: Announcing::new(),
            token: Mutex::new(None),
            closed: AtomicU8::new(0),
            established: Instant::now(),
            ended: OnceLock::new(),
        }
    }

    /// Lets subflows join by `token`, until the connection ends or falls back.
    pub(crate) fn open_to_joins(self: &Arc<Self>, token: TokenInUse) {
        token.names(self);
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token);
    }

    /// Gives up the token.
    pub(crate) fn forget_token(&self) {
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(token);
    }

    /// Our address on the first subflow.
    pub(crate) const fn local(&self) -> SocketAddr {
        self.subflows.first().local
    }

    /// The peer's address on the first subflow.
    pub(crate) const fn remote(&self) -> SocketAddr {
        self.subflows.first().remote
    }

    /// Whether it speaks MPTCP, so that a subflow's end is not its own.
    pub(crate) fn is_mptcp(&self) -> bool {
        self.level.mode() == Mode::Mptcp
    }

    /// What a subflow must know of the connection now.
    #[inline]
    pub(crate) fn view(&self) -> View {
        // The facts first: if the application has gone, then from a stream of which at least all was
        // here that it had read. With an edge from before, a complete stream would seem not to be,
        // and what another subflow repeats of it would be answered with a reset.
        let facts = self.level.view(StreamOffset::ZERO, StreamOffset::ZERO);
        let (edge, right_edge) = (self.ring.edge(), self.ring.right_edge());
        View { edge, right_edge, slack: self.slack, told: self.ring.advertised(), ..facts }
    }

    /// The identifier of the address and port that a join may come to: that of the first subflow,
    /// or one that is announced.
    pub(crate) fn address_id(&self, to: SocketAddr) -> Option<AddressId> {
        if to == self.local() && self.announcing.knows(AddressId(0)) {
            return Some(AddressId(0));
        }
        self.entrance.announced().iter().find(|known| known.at == to).map(|known| known.id)
    }

    /// What is to be announced to the peer, in this order: it surely has a use for addresses of the
    /// family that it came by.
    fn to_announce(&self) -> Vec<Announced> {
        let initial = self.local();
        let mut further = self.entrance.announced();
        if self.announcing.knows(AddressId(0)) {
            further.retain(|known| known.at != initial);
        }
        further.sort_by_key(|known| known.at.is_ipv4() != initial.is_ipv4());
        further
    }

    /// The next address to announce, by the subflow that asks: it says what came of it by one of
    /// the next two.
    pub(crate) fn next_to_announce(&self) -> Option<Announced> {
        self.announcing.next(self.to_announce().into_iter())
    }

    /// The announcement of `id` was echoed, or given up.
    pub(crate) fn announced(&self, id: AddressId) {
        self.announcing.done(id);
    }

    /// The announcement of `id` could not be made.
    pub(crate) fn not_announced(&self, id: AddressId) {
        self.announcing.undone(id);
    }

    /// The identifiers of addresses that are ours no more, which the subflow that asks is to tell
    /// the peer; what it cannot tell, it says by [`not_withdrawn`](Self::not_withdrawn).
    pub(crate) fn take_withdrawn(&self) -> Vec<AddressId> {
        self.announcing.take_gone(self.ours())
    }

    /// Tells which identifiers are of addresses that are ours now.
    pub(crate) fn ours(&self) -> impl Fn(AddressId) -> bool {
        let announced = self.entrance.announced();
        let initial = self.entrance.is_local(self.local().ip());
        move |id| match id {
            AddressId(0) => initial,
            id => announced.iter().any(|known| known.id == id),
        }
    }

    /// The peer could not be told that `id` is ours no more.
    pub(crate) fn not_withdrawn(&self, id: AddressId) {
        self.announcing.not_told(id);
    }

    /// Whether a subflow other than `me` lives at an address of ours.
    pub(crate) fn lives_without(&self, me: &Record) -> bool {
        self.subflows
            .any(|record| !std::ptr::eq(record, me) && self.entrance.is_local(record.local()))
    }

    /// Takes a place for a subflow that joins, if there are fewer than `limit`.
    pub(crate) fn begin_join(self: &Arc<Self>, limit: usize) -> Option<Joining> {
        self.subflows.begin_join(limit).then(|| Joining(Arc::clone(self)))
    }

    /// Adds a subflow that has joined. `false`: the connection has ended.
    pub(crate) fn add(&self, record: Arc<Record>) -> bool {
        self.subflows.add(record)
    }

    /// A subflow has ended. If it was the last, the connection has ended too, unless another may
    /// yet join: then it says so.
    pub(crate) fn leave(&self, record: &Record, now: EngineTime) -> bool {
        if !self.subflows.leave(record, now) {
            // What it acknowledged last may be lost, and it will not be asked again. And what it was
            // announcing is another's to announce.
            self.subflows.ask(Wishes::ACK, |_| true);
            self.subflows.ask(Wishes::ADDRESSES, |_| true);
            return false;
        }
        // Nobody else will look at what was asked of it.
        if record.take_wishes().contain(Wishes::ABORT) {
            self.end(Failure::Aborted, self.aborted(), Wishes::ABORT);
            return false;
        }
        let over = !self.is_mptcp() || self.level.is_closed(self.ring.edge());
        if over || self.ring.failure().is_some() {
            self.end(Failure::Reset, Closed::Reset, Wishes::RESET);
            return false;
        }
        self.subflows.is_orphaned_since(now)
    }

    /// Whether there has been no subflow since `when`, while the connection has not ended.
    pub(crate) fn is_orphaned_since(&self, when: EngineTime) -> bool {
        self.subflows.is_orphaned_since(when)
    }

    /// Asks something of the workers of all subflows. Without any, an abort ends the connection.
    pub(crate) fn ask(&self, wish: Wishes) {
        let heard = self.subflows.ask(wish, |_| true);
        if !heard && wish.contain(Wishes::ABORT) {
            self.end(Failure::Aborted, self.aborted(), wish);
        }
    }

    /// Asks something of the workers of all subflows but `me`.
    pub(crate) fn ask_others(&self, me: &Record, wish: Wishes) {
        self.subflows.ask(wish, |record| !std::ptr::eq(record, me));
    }

    /// The peer has given up addresses: asks the workers of the subflows from there to see whether
    /// they still work.
    pub(crate) fn check_paths(&self, ids: &[AddressId]) {
        self.subflows.ask(Wishes::CHECK, |record| record.is_from(ids));
    }

    /// An acknowledgement went out by `me`, with what `view` says.
    pub(crate) fn on_window_told(&self, me: &Record, view: &View) {
        let room = view.right_edge.0.saturating_sub(view.edge.0);
        self.subflows.on_window_told(me, room, self.ring.capacity() as u64);
    }

    /// `me` was asked to tell of the window, and has nothing to tell now.
    pub(crate) fn on_window_not_told(&self, me: &Record) {
        self.subflows.on_window_not_told(me);
    }

    /// The longest round-trip time of its subflows: the data that is under way on the slowest has
    /// to fit into the window with all that comes by the others meanwhile.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.subflows.round_trip()
    }

    /// The peer's stream ends at `at`; `how` if nothing else comes first.
    pub(crate) fn set_end(&self, at: StreamOffset, how: Closed) {
        // The ring wakes the reader, who may ask how at once: its end is stored with release.
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.closed.compare_exchange(0, closed_code(how), set, fetch);
        self.ring.set_end(at);
    }

    /// How a connection counts as closed that our side has aborted.
    pub(crate) fn aborted(&self) -> Closed {
        if self.is_mptcp() { Closed::FastClose } else { Closed::Reset }
    }

    /// The one end of a connection, whatever the cause. If the peer's stream is not complete, its
    /// reader is told of `failure`. The workers of subflows that are left are asked for `left`.
    pub(crate) fn end(&self, failure: Failure, how: Closed, left: Wishes) {
        if !self.subflows.close() {
            return;
        }
        if !self.is_complete() {
            // Relaxed, and first: the ring's failure is stored with release.
            self.closed.store(closed_code(how), Ordering::Relaxed);
            self.ring.fail(failure);
        }
        self.ended.get_or_init(Instant::now);
        self.forget_token();
        self.subflows.ask(left, |_| true);
    }

    /// Whether the peer's stream has come whole.
    pub(crate) fn is_complete(&self) -> bool {
        let edge = self.ring.edge();
        self.level.view(edge, edge).remote_complete()
    }

    /// What the connection has done so far.
    pub(crate) fn statistics(&self) -> ConnectionStatistics {
        let (mptcp, fallback) = match self.level.mode() {
            Mode::Negotiating => (false, None),
            Mode::Mptcp => (true, None),
            Mode::Plain(reason) => (false, reason.map(FallbackReason::name)),
        };
        let failed = self.ring.failure().is_some();
        let closed = closed_from(self.closed.load(Ordering::Relaxed));
        let end = self.ended.get().copied().unwrap_or_else(Instant::now);
        ConnectionStatistics {
            local: self.local(),
            remote: self.remote(),
            bytes: self.ring.edge().0,
            age: end.saturating_duration_since(self.established),
            mptcp,
            fallback,
            checksums: mptcp && self.level.checksums(),
            // The end may have been announced while data before it is still missing.
            closed: closed.filter(|_| failed || self.is_complete()),
            subflows: self.subflows.statistics(),
        }
    }
}

/// A place among the subflows of a connection for one whose handshake is under way, until it is
/// dropped.
#[derive(Debug)]
pub(crate) struct Joining(Arc<Connection>);

impl Drop for Joining {
    fn drop(&mut self) {
        self.0.subflows.end_join();
    }
}

const fn closed_code(how: Closed) -> u8 {
    match how {
        Closed::DataFin => 1,
        Closed::Fin => 2,
        Closed::Reset => 3,
        Closed::FastClose => 4,
        Closed::Timeout => 5,
    }
}

const fn closed_from(code: u8) -> Option<Closed> {
    match code {
        1 => Some(Closed::DataFin),
        2 => Some(Closed::Fin),
        3 => Some(Closed::Reset),
        4 => Some(Closed::FastClose),
        5 => Some(Closed::Timeout),
        _ => None,
    }
}
