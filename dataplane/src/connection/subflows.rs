//! The subflows of one connection, as other threads than their workers see them.
//!
//! Each has a record, which its worker writes without a lock. The list of the records is behind a
//! lock that nobody takes for packets: it is for joins and ends, for what the application asks of
//! all workers, for windows that close and open, and once in a round trip.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use mpxdp_proto::segment::AddressId;
use mpxdp_proto::subflow::Subflow;
use mpxdp_proto::time::Instant;

use super::attention::{Attention, Wishes};
use crate::stats::SubflowStatistics;
use crate::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering};
use crate::worker::{Counter, FlowId, FlowKey, Handle};

/// Records of subflows that ended are kept for reports, but no more than this with those that
/// live: peers on a bad path may join again and again.
const KEPT: usize = 64;

/// What is known of a subflow outside of its worker.
#[derive(Debug)]
pub(crate) struct Record {
    key: FlowKey,
    id: FlowId,
    worker: Arc<Handle>,
    nic: Arc<str>,
    /// The peer's identifier of its address.
    remote_id: AddressId,
    attention: Attention,
    /// Written with the list's lock held.
    ended: AtomicBool,

    // What follows is written by the subflow's worker alone.
    queue: AtomicU32,
    /// Whether the window that the peer was last told on this subflow is so small that it may not
    /// be able to send on it.
    narrow: AtomicBool,
    /// Whether the peer wants it as a backup.
    backup: AtomicBool,
    /// The smoothed round-trip time in nanoseconds; 0 if unknown.
    round_trip: AtomicU64,
    bytes: Counter,
    segments: Counter,
    out_of_order: Counter,
    duplicate_bytes: Counter,
    retransmitted_bytes: Counter,
}

impl Record {
    /// Of the subflow `key`, which is `id` to `worker` and comes in on `nic`; the peer's address
    /// has the identifier `remote_id`.
    pub(crate) fn new(
        key: FlowKey,
        id: FlowId,
        worker: Arc<Handle>,
        nic: Arc<str>,
        remote_id: AddressId,
    ) -> Arc<Self> {
        Arc::new(Self {
            key,
            id,
            worker,
            nic,
            remote_id,
            attention: Attention::new(),
            ended: AtomicBool::new(false),
            queue: AtomicU32::new(0),
            narrow: AtomicBool::new(false),
            backup: AtomicBool::new(false),
            round_trip: AtomicU64::new(0),
            bytes: Counter::default(),
            segments: Counter::default(),
            out_of_order: Counter::default(),
            duplicate_bytes: Counter::default(),
            retransmitted_bytes: Counter::default(),
        })
    }

    /// Asks something of the subflow's worker, and wakes it if it sleeps.
    fn ask(&self, wish: Wishes) {
        // One entry in the worker's queue is enough, however often it is asked.
        if self.attention.ask(wish) {
            self.worker.attend(self.id);
        }
    }

    /// For the worker: what has been asked for since the last time.
    pub(crate) fn take_wishes(&self) -> Wishes {
        self.attention.take()
    }

    /// For the worker: what there is to know of the subflow, and the queue of its last packet.
    pub(crate) fn publish(&self, subflow: &Subflow, queue: u32) {
        let (counts, round_trip) = (subflow.statistics(), subflow.round_trip());
        let (_, backup) = subflow.backup();
        self.backup.store(backup, Ordering::Relaxed);
        self.bytes.set(counts.bytes);
        self.segments.set(counts.segments);
        self.out_of_order.set(counts.out_of_order);
        self.duplicate_bytes.set(counts.duplicate_bytes);
        self.retransmitted_bytes.set(counts.retransmitted_bytes);
        self.queue.store(queue, Ordering::Relaxed);
        let nanos = round_trip.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        self.round_trip.store(nanos, Ordering::Relaxed);
    }

    fn statistics(&self) -> SubflowStatistics {
        SubflowStatistics {
            local: self.key.local,
            remote: self.key.remote,
            nic: self.nic.to_string(),
            queue: self.queue.load(Ordering::Relaxed),
            worker: self.worker.index,
            live: !self.ended.load(Ordering::Relaxed),
            backup: self.backup.load(Ordering::Relaxed),
            bytes: self.bytes.get(),
            segments: self.segments.get(),
            out_of_order: self.out_of_order.get(),
            duplicate_bytes: self.duplicate_bytes.get(),
            retransmitted_bytes: self.retransmitted_bytes.get(),
        }
    }
}

/// The subflows of a connection.
#[derive(Debug)]
pub(super) struct Subflows {
    first: FlowKey,
    list: Mutex<List>,
    /// Whether a subflow's `narrow` may be set that was not asked to tell of the window since; read
    /// for every burst.
    any_narrow: AtomicBool,
}

#[derive(Debug)]
struct List {
    /// Those that live and the last that ended, in the order in which they came.
    records: Vec<Arc<Record>>,
    live: usize,
    /// Joins whose handshake is under way.
    joining: usize,
    /// The connection has ended, so there are no further joins.
    closed: bool,
    /// Since when there has been no subflow.
    orphaned: Option<Instant>,
}

impl List {
    fn live(&self) -> impl Iterator<Item = &Arc<Record>> {
        self.records.iter().filter(|record| !record.ended.load(Ordering::Relaxed))
    }
}

impl Subflows {
    /// The first subflow and no other.
    pub(super) fn new(first: Arc<Record>) -> Self {
        let key = first.key;
        let list =
            List { records: vec![first], live: 1, joining: 0, closed: false, orphaned: None };
        Self { first: key, list: Mutex::new(list), any_narrow: AtomicBool::new(false) }
    }

    pub(super) const fn first(&self) -> &FlowKey {
        &self.first
    }

    /// Takes a place for a subflow that joins, if there are fewer than `limit`.
    pub(super) fn begin_join(&self, limit: usize) -> bool {
        let mut list = self.lock();
        let room = !list.closed && list.live + list.joining < limit;
        list.joining += usize::from(room);
        room
    }

    /// Gives the place back, or leaves it to the subflow that was added.
    pub(super) fn end_join(&self) {
        self.lock().joining -= 1;
    }

    /// Adds a subflow that has joined. `false`: the connection has ended.
    pub(super) fn add(&self, record: Arc<Record>) -> bool {
        let mut list = self.lock();
        if list.closed {
            return false;
        }
        if list.records.len() >= KEPT
            && let Some(ended) =
                list.records.iter().position(|record| record.ended.load(Ordering::Relaxed))
        {
            list.records.remove(ended);
        }
        list.records.push(record);
        list.live += 1;
        list.orphaned = None;
        true
    }

    /// A subflow has ended; says whether it was the last.
    pub(super) fn leave(&self, record: &Record, now: Instant) -> bool {
        let mut list = self.lock();
        record.ended.store(true, Ordering::Relaxed);
        list.live -= 1;
        let last = list.live == 0;
        if last {
            list.orphaned = Some(now);
        }
        last
    }

    /// Whether there has been no subflow since `when`, and the connection has not ended.
    pub(super) fn is_orphaned_since(&self, when: Instant) -> bool {
        let list = self.lock();
        !list.closed && list.live == 0 && list.orphaned == Some(when)
    }

    /// The connection has ended; says whether it had not before.
    pub(super) fn close(&self) -> bool {
        !std::mem::replace(&mut self.lock().closed, true)
    }

    /// Asks something of the workers of those subflows that `of` chooses; says whether any subflow
    /// lives.
    pub(super) fn ask(&self, wish: Wishes, of: impl Fn(&Record) -> bool) -> bool {
        let list = self.lock();
        list.live().filter(|record| of(record)).for_each(|record| record.ask(wish));
        list.live > 0
    }

    /// Whether `what` holds of a subflow that lives.
    pub(super) fn any(&self, what: impl Fn(&Record) -> bool) -> bool {
        self.lock().live().any(|record| what(record))
    }

    /// An acknowledgement went out by `me` that left the peer `room` bytes of a window of
    /// `capacity`.
    ///
    /// The window that TCP of the peer keeps for a subflow is the one it was last told there. So a
    /// subflow that was last told of less than a quarter is told anew once half of the window is
    /// open, even if all other data comes by other subflows, whose acknowledgements tell of the
    /// window in passing.
    pub(super) fn on_window_told(&self, me: &Record, room: u64, capacity: u64) {
        let narrow = room < capacity / 4;
        if me.narrow.load(Ordering::Relaxed) != narrow {
            me.narrow.store(narrow, Ordering::Relaxed);
        }
        if narrow {
            // Each time: it may be narrow still, or again, since it was asked to tell otherwise.
            self.any_narrow.store(true, Ordering::Release);
        }
        if room >= capacity / 2
            && self.any_narrow.load(Ordering::Relaxed)
            // Acquire: whoever set it is found among the records.
            && self.any_narrow.swap(false, Ordering::Acquire)
        {
            for other in self.lock().live() {
                if other.narrow.load(Ordering::Relaxed) {
                    other.ask(Wishes::WINDOW);
                }
            }
        }
    }

    /// `me` was asked to tell of the window, and had closed again before it could: it is to be asked
    /// when it opens the next time.
    pub(super) fn on_window_not_told(&self, me: &Record) {
        if me.narrow.load(Ordering::Relaxed) {
            self.any_narrow.store(true, Ordering::Release);
        }
    }

    /// The longest round-trip time of those that live.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        let list = self.lock();
        let longest = list.live().map(|record| record.round_trip.load(Ordering::Relaxed)).max();
        longest.filter(|&nanos| nanos > 0).map(Duration::from_nanos)
    }

    pub(super) fn statistics(&self) -> Vec<SubflowStatistics> {
        self.lock().records.iter().map(|record| record.statistics()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        // The list is consistent between any two statements that could panic.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Record {
    /// Our address.
    pub(super) fn local(&self) -> IpAddr {
        self.key.local.ip()
    }

    /// Whether the peer's address is one of `ids`.
    pub(crate) fn is_from(&self, ids: &[AddressId]) -> bool {
        ids.contains(&self.remote_id)
    }
}

/// An address and port of ours that peers are told of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Announced {
    /// Its identifier, the same for all connections of an engine.
    pub(crate) id: AddressId,
    /// Where joins come to.
    pub(crate) at: SocketAddr,
}
