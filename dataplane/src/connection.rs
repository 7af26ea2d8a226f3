//! What a worker and the application share of one connection.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use mpxdp_proto::connection::{Connection as DataLevel, Mode, View};
use mpxdp_proto::seq::StreamOffset;
use mpxdp_proto::subflow::{FallbackReason, SubflowStatistics as Counts};

use crate::receive::{Failure, Ring};
use crate::stats::{Closed, ConnectionStatistics, SubflowStatistics};
use crate::worker::{Counter, FlowId, FlowKey, Handle};

/// What the application wants of a connection's workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wishes(u8);

impl Wishes {
    /// Our stream has ended: tell the peer.
    pub(crate) const TELL: Self = Self(1);
    /// The window has opened: tell the peer if it is to know.
    pub(crate) const WINDOW: Self = Self(2);
    /// Reset the connection.
    pub(crate) const ABORT: Self = Self(4);

    /// Whether `wish` is among them.
    pub(crate) const fn contain(self, wish: Self) -> bool {
        self.0 & wish.0 != 0
    }
}

/// A connection, as its worker and the application's thread share it.
pub(crate) struct Connection {
    /// The data level.
    pub(crate) level: DataLevel,
    /// Where its bytes are.
    pub(crate) ring: Arc<Ring>,
    wishes: AtomicU8,
    queued: AtomicBool,
    closed: AtomicU8,
    established: Instant,
    ended: OnceLock<Instant>,
    subflow: SubflowRecord,
}

/// What is known of a subflow outside of its worker.
struct SubflowRecord {
    key: FlowKey,
    id: FlowId,
    worker: Arc<Handle>,
    nic: Arc<str>,
    queue: AtomicU32,
    bytes: Counter,
    segments: Counter,
    out_of_order: Counter,
    duplicate_bytes: Counter,
    retransmitted_bytes: Counter,
}

impl Connection {
    /// A connection whose first subflow is `key`, which is `id` to `worker` and came in on `nic`.
    pub(crate) fn new(
        level: DataLevel,
        ring: Arc<Ring>,
        key: FlowKey,
        id: FlowId,
        worker: Arc<Handle>,
        nic: Arc<str>,
    ) -> Self {
        Self {
            level,
            ring,
            wishes: AtomicU8::new(0),
            queued: AtomicBool::new(false),
            closed: AtomicU8::new(0),
            established: Instant::now(),
            ended: OnceLock::new(),
            subflow: SubflowRecord {
                key,
                id,
                worker,
                nic,
                queue: AtomicU32::new(0),
                bytes: Counter::default(),
                segments: Counter::default(),
                out_of_order: Counter::default(),
                duplicate_bytes: Counter::default(),
                retransmitted_bytes: Counter::default(),
            },
        }
    }

    pub(crate) const fn local(&self) -> SocketAddr {
        self.subflow.key.local
    }

    pub(crate) const fn remote(&self) -> SocketAddr {
        self.subflow.key.remote
    }

    /// What a subflow must know of the connection now.
    #[inline]
    pub(crate) fn view(&self) -> View {
        self.level.view(self.ring.edge(), self.ring.right_edge())
    }

    /// For the application: asks something of the worker, and wakes it if it sleeps.
    pub(crate) fn ask(&self, wish: Wishes) {
        self.wishes.fetch_or(wish.0, Ordering::SeqCst);
        // One entry in the worker's queue is enough, however often the reader asks.
        if !self.queued.swap(true, Ordering::SeqCst) {
            self.subflow.worker.attend(self.subflow.id);
        }
    }

    /// For the worker: what has been asked for since the last time.
    pub(crate) fn take_wishes(&self) -> Wishes {
        self.queued.store(false, Ordering::SeqCst);
        Wishes(self.wishes.swap(0, Ordering::SeqCst))
    }

    /// The peer's stream ends at `at`; `how` if nothing else comes first.
    pub(crate) fn set_end(&self, at: StreamOffset, how: Closed) {
        // The ring wakes the reader, who may ask how at once.
        self.close(how);
        self.ring.set_end(at);
    }

    /// No more data comes, and what came is not complete.
    pub(crate) fn fail(&self, failure: Failure, how: Closed) {
        if !self.is_complete() {
            self.closed.store(closed_code(how), Ordering::Release);
            self.ring.fail(failure);
            self.finish();
        }
    }

    /// Whether the peer's stream has come whole.
    pub(crate) fn is_complete(&self) -> bool {
        let edge = self.ring.edge();
        self.level.view(edge, edge).remote_complete()
    }

    /// Takes the time at which the connection ended.
    pub(crate) fn finish(&self) {
        self.ended.get_or_init(Instant::now);
    }

    fn close(&self, how: Closed) {
        let _ =
            self.closed.compare_exchange(0, closed_code(how), Ordering::AcqRel, Ordering::Acquire);
    }

    /// For the worker: what the subflow has counted, and the queue of its last packet.
    pub(crate) fn publish(&self, counts: &Counts, queue: u32) {
        let record = &self.subflow;
        record.bytes.set(counts.bytes);
        record.segments.set(counts.segments);
        record.out_of_order.set(counts.out_of_order);
        record.duplicate_bytes.set(counts.duplicate_bytes);
        record.retransmitted_bytes.set(counts.retransmitted_bytes);
        record.queue.store(queue, Ordering::Relaxed);
    }

    /// What the connection has done so far.
    pub(crate) fn statistics(&self) -> ConnectionStatistics {
        let record = &self.subflow;
        let (mptcp, fallback) = match self.level.mode() {
            Mode::Negotiating => (false, None),
            Mode::Mptcp => (true, None),
            Mode::Plain(reason) => (false, reason.map(FallbackReason::name)),
        };
        let failed = self.ring.failure().is_some();
        let closed = closed_from(self.closed.load(Ordering::Acquire));
        let end = self.ended.get().copied().unwrap_or_else(Instant::now);
        ConnectionStatistics {
            local: self.local(),
            remote: self.remote(),
            bytes: self.ring.edge().0,
            age: end.saturating_duration_since(self.established),
            mptcp,
            fallback,
            // The end may have been announced while data before it is still missing.
            closed: closed.filter(|_| failed || self.is_complete()),
            subflows: vec![SubflowStatistics {
                local: self.local(),
                remote: self.remote(),
                nic: record.nic.to_string(),
                queue: record.queue.load(Ordering::Relaxed),
                worker: record.worker.index,
                bytes: record.bytes.get(),
                segments: record.segments.get(),
                out_of_order: record.out_of_order.get(),
                duplicate_bytes: record.duplicate_bytes.get(),
                retransmitted_bytes: record.retransmitted_bytes.get(),
            }],
        }
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
