//! The writers' side of a ring.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mpxdp_proto::seq::StreamOffset;
use mpxdp_proto::time::Instant;

use super::books::{Books, Failure};
use super::mapping::Mapping;
use super::prepare::{self, Slot};
use super::tuning::Tuning;
use super::{Budget, MIN_CAPACITY, RingConfig};

/// A range that was received: `len` bytes for `to`, to be found at `at` in what `source` names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The place in the stream.
    pub to: StreamOffset,
    /// Bytes.
    pub len: u32,
    /// The caller's name for the payload, for instance the index of the packet in its burst.
    pub source: u32,
    /// Where in that payload the bytes begin.
    pub at: u32,
}

/// A part of a [`Wanted`] range that is the caller's to copy.
///
/// It must be given back by [`Ring::commit`] or [`Ring::abandon`]: as long as it is not, its range
/// is nobody else's and the stream cannot pass it. Debug builds panic where one is dropped.
#[derive(Debug)]
#[must_use = "a claim that is neither committed nor abandoned stops the stream"]
pub struct Claim {
    range: Range<u64>,
    copied: u32,
    source: u32,
    at: u32,
    /// Which ring it belongs to; 0 once it was given back.
    ring: u64,
}

impl Claim {
    /// Where the next bytes to copy belong in the stream.
    #[must_use]
    pub fn to(&self) -> StreamOffset {
        StreamOffset(self.range.start + u64::from(self.copied))
    }

    /// The [`Wanted::source`] that the claim is a part of.
    #[must_use]
    pub fn source(&self) -> u32 {
        self.source
    }

    /// Where in the source's payload the next bytes to copy begin.
    #[must_use]
    pub fn at(&self) -> u32 {
        self.at + self.copied
    }

    /// How many bytes are still to be copied.
    #[must_use]
    pub fn remaining(&self) -> usize {
        (self.range.end - self.range.start) as usize - self.copied as usize
    }

    fn give_back(mut self, ring: u64) -> Range<u64> {
        assert_eq!(self.ring, ring, "the claim is another ring's");
        self.ring = 0;
        self.range.clone()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        debug_assert!(
            self.ring == 0 || std::thread::panicking(),
            "a claim of {:?} was dropped",
            self.range
        );
    }
}

/// What became of the ranges of one [`Ring::claim`], in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Claimed {
    /// Bytes that are the caller's to copy now.
    pub claimed: u64,
    /// Bytes that were there, or claimed, before.
    pub duplicate: u64,
    /// Bytes that have no place: beyond the right edge or the end of the stream, further pieces of
    /// a stream that has thousands of gaps, or because the reader is gone or the ring has failed.
    ///
    /// The subflow must not let them count as received. If it acknowledged them already, it can
    /// only be reset: the data level has not acknowledged them, so the peer still has them.
    pub refused: u64,
}

/// What a [`Ring::commit`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Commit {
    /// The in-order edge: the first byte that is not there yet.
    pub edge: StreamOffset,
    /// Whether this commit moved it.
    pub advanced: bool,
}

/// The receive ring of one connection, as its writers see it. See the [module](super).
#[derive(Debug)]
pub struct Ring {
    id: u64,
    books: Books<Arc<Mapping>>,
    /// The books' memory, for use without their lock by holders of a claim.
    memory: AtomicPtr<Mapping>,
    limit: usize,
    /// No call of [`Ring::tune`] before this time has anything to do; nanoseconds.
    tune_at: AtomicU64,
    /// After the books: what was granted is given back when the memory is.
    growth: Mutex<Growth>,
}

#[derive(Debug)]
struct Growth {
    tuning: Tuning,
    /// A larger memory that waits for the claims in flight.
    next: Option<Arc<Mapping>>,
    /// One that is being made.
    making: Option<Arc<Slot>>,
    /// What the budget has granted; the last one, as it is given back after the memory.
    granted: Grant,
}

/// Bytes of a budget, which go back to it at the end. Whoever has memory for them drops that first, so
/// that there is never more memory than was granted.
#[derive(Debug)]
struct Grant {
    budget: Arc<dyn Budget>,
    bytes: usize,
}

impl Grant {
    /// `None` if that is beyond the budget.
    fn new(budget: Arc<dyn Budget>, bytes: usize) -> Option<Self> {
        budget.reserve(bytes).then(|| Self { budget, bytes })
    }

    /// Adds to it; `false` if that is beyond the budget.
    fn grow(&mut self, bytes: usize) -> bool {
        let granted = self.budget.reserve(bytes);
        self.bytes += if granted { bytes } else { 0 };
        granted
    }

    /// Gives back what is more than `bytes`.
    fn shrink_to(&mut self, bytes: usize) {
        self.budget.release(self.bytes - bytes);
        self.bytes = bytes;
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

impl Ring {
    pub(super) fn new(config: RingConfig, origin: u64) -> io::Result<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let RingConfig { initial, limit, budget } = config;
        let capacity = capacity_for(initial)?;
        let limit = capacity_for(limit)?.max(capacity);
        let granted = Grant::new(budget, capacity).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Arc::new(Mapping::new(capacity)?);
        let memory = Arc::as_ptr(&mapping);
        let books = Books::new(origin, capacity, mapping)?;
        Ok(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            books,
            memory: AtomicPtr::new(memory.cast_mut()),
            limit,
            tune_at: AtomicU64::new(0),
            growth: Mutex::new(Growth {
                tuning: Tuning::default(),
                next: None,
                making: None,
                granted,
            }),
        })
    }

    /// Claims what nobody has yet of each range, and appends the claims to `out`.
    ///
    /// One lock for all of `wanted`: call it once a burst. Bytes that the right edge does not cover
    /// are refused, so the window holds even where a subflow's own view of it is out of date.
    pub fn claim(&self, wanted: &[Wanted], out: &mut Vec<Claim>) -> Claimed {
        let ranges = wanted.iter().map(|w| w.to.0..w.to.0 + u64::from(w.len));
        let shares = self.books.claim(ranges, |index, range| {
            let Wanted { to, len: _, source, at } = wanted[index];
            // At most the length of the wanted range, which is a u32.
            let skipped = (range.start - to.0) as u32;
            out.push(Claim { range, copied: 0, source, at: at + skipped, ring: self.id });
        });
        Claimed { claimed: shares.claimed, duplicate: shares.duplicate, refused: shares.refused }
    }

    /// Copies the claim's next bytes. A payload in several pieces takes several calls.
    ///
    /// # Panics
    ///
    /// If `bytes` are more than [`Claim::remaining`], or the claim is another ring's.
    pub fn copy(&self, claim: &mut Claim, bytes: &[u8]) {
        assert_eq!(claim.ring, self.id, "the claim is another ring's");
        assert!(bytes.len() <= claim.remaining(), "more bytes than claimed");
        // Relaxed: the memory changes under the lock, and not while a claim is in flight; so this
        // is what was there when the claim was made under the same lock, by this thread or one that
        // handed the claim to it.
        let memory = self.memory.load(Ordering::Relaxed);
        // SAFETY: the books own the memory, and replace it only while no claim is in flight. This
        // one is: it names this ring and has not been given back.
        let memory = unsafe { &*memory };
        // SAFETY: A range is claimed once, so no other writer uses these bytes, and none below the
        // right edge shares a place with another of the window: the reader gives bytes back before
        // the right edge comes to cover their place again. The reader makes slices of committed
        // bytes only. `claim` is borrowed mutably, so it is not copied to twice at once; and it is
        // no longer than the window, which is no larger than the capacity.
        unsafe { memory.write(claim.to().0, bytes) };
        // At most `remaining`, which is a u32.
        claim.copied += bytes.len() as u32;
    }

    /// Gives back claims that have been copied, all that `claims` holds; the reader sees what is in
    /// order now, and is woken if it sleeps and the edge moved.
    ///
    /// One lock for all of `claims`: call it once a burst.
    ///
    /// # Panics
    ///
    /// If a claim is another ring's. In debug builds also if one has not been copied.
    pub fn commit(&self, claims: &mut Vec<Claim>) -> Commit {
        let (edge, advanced) = self.books.commit(claims.drain(..).map(|claim| {
            debug_assert_eq!(claim.remaining(), 0, "a commit before the copy");
            claim.give_back(self.id)
        }));
        Commit { edge: StreamOffset(edge), advanced }
    }

    /// Gives a claim back without its bytes: its range is free again.
    ///
    /// # Panics
    ///
    /// If the claim is another ring's.
    pub fn abandon(&self, claim: Claim) {
        self.books.abandon(claim.give_back(self.id));
    }

    /// The in-order edge: the first byte that is not there yet, what a DATA_ACK acknowledges.
    #[must_use]
    pub fn edge(&self) -> StreamOffset {
        StreamOffset(self.books.edge())
    }

    /// The right edge of the window: what may be advertised. It never moves back.
    #[must_use]
    pub fn right_edge(&self) -> StreamOffset {
        StreamOffset(self.books.right_edge())
    }

    /// Tells that an acknowledgement goes out that lets the peer send up to `right_edge`. The
    /// reader decides by it when a window update is due.
    pub fn advertise(&self, right_edge: StreamOffset) {
        self.books.advertise(right_edge.0);
    }

    /// The highest right edge that any acknowledgement has told.
    #[must_use]
    pub fn advertised(&self) -> StreamOffset {
        StreamOffset(self.books.advertised())
    }

    /// Bytes in the ring or kept free for what the window promised.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.books.capacity()
    }

    /// How far the reader is.
    #[must_use]
    pub fn consumed(&self) -> StreamOffset {
        StreamOffset(self.books.consumed())
    }

    /// Says that the stream is `end` bytes long: a DATA_FIN or FIN has that place. The data before
    /// it may still be missing. Returns `false`, and changes nothing, if another end was given
    /// before or data lies beyond: the peer contradicts itself.
    pub fn set_end(&self, end: StreamOffset) -> bool {
        self.books.set_end(end.0)
    }

    /// Where the stream ends, if that is known.
    #[must_use]
    pub fn end(&self) -> Option<StreamOffset> {
        self.books.end().map(StreamOffset)
    }

    /// Whether the stream's end is known and all data before it is there.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.end() == Some(self.edge())
    }

    /// Says that no more data will come. The reader is still given what is in order; then the
    /// failure. Only the first one counts. From now on every claim is refused.
    pub fn fail(&self, failure: Failure) {
        self.books.fail(failure);
    }

    /// The failure, if there was one.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        self.books.failure()
    }

    /// Whether the [`Reader`](super::Reader) was dropped; from then on every claim is refused.
    #[must_use]
    pub fn is_reader_gone(&self) -> bool {
        self.books.is_reader_gone()
    }

    /// Whether [`tune`](Self::tune) would do anything now. Mostly it does no more than load a
    /// number.
    #[must_use]
    pub fn is_tuning_due(&self, now: Instant) -> bool {
        now.0 >= self.tune_at.load(Ordering::Relaxed) && self.capacity() < self.limit
    }

    /// Lets the ring grow where its size limits the stream. `rtt` is the round-trip time as the
    /// receiver sees it.
    ///
    /// Call it once a burst, while the caller holds no claim of this ring: the ring moves to a
    /// larger memory only while there is none. It does nothing before
    /// [`is_tuning_due`](Self::is_tuning_due).
    pub fn tune(&self, now: Instant, rtt: Duration) {
        if !self.is_tuning_due(now) {
            return;
        }
        // Another worker that is at it does for this one too.
        if let Ok(mut growth) = self.growth.try_lock() {
            let next = self.tune_with(&mut growth, now, rtt);
            self.tune_at.store(next.0, Ordering::Relaxed);
        }
    }

    fn tune_with(&self, growth: &mut Growth, now: Instant, rtt: Duration) -> Instant {
        let capacity = self.capacity();
        if growth.next.is_none() && growth.making.is_none() {
            let advice = growth.tuning.look(now, rtt, self.books.consumed(), capacity);
            if !advice.grow || capacity >= self.limit {
                return advice.next;
            }
            if !growth.granted.grow(capacity) {
                return growth.tuning.refused(now);
            }
            if let Some(spare) = Mapping::spare(capacity * 2) {
                growth.next = Some(Arc::new(spare));
            } else {
                let slot = Arc::<Slot>::default();
                if prepare::ask(capacity * 2, Arc::clone(&slot)).is_err() {
                    return self.no_memory(growth, now);
                }
                growth.making = Some(slot);
            }
        }
        if let Some(slot) = &growth.making {
            let Some(made) = slot.take() else { return now + rtt };
            growth.making = None;
            match made {
                Ok(memory) => growth.next = Some(Arc::new(memory)),
                Err(_) => return self.no_memory(growth, now),
            }
        }
        if self.move_to(&mut growth.next) { now + rtt } else { now }
    }

    fn no_memory(&self, growth: &mut Growth, now: Instant) -> Instant {
        growth.granted.shrink_to(self.capacity());
        growth.tuning.refused(now)
    }

    /// Moves to the memory in `next`, if no claim is in flight; says whether it did.
    fn move_to(&self, next: &mut Option<Arc<Mapping>>) -> bool {
        let Some(capacity) = next.as_ref().map(|memory| memory.capacity()) else { return false };
        self.books.relocate(capacity, |old, live| {
            let new = next.take().expect("looked at above");
            for range in live {
                // SAFETY: the range lies within the window, so it is no longer than the old
                // capacity; it is committed, so nobody writes it.
                let bytes = unsafe { old.bytes(range.start, (range.end - range.start) as usize) };
                // SAFETY: no longer than the new capacity; nobody else knows the new memory yet.
                unsafe { new.write(range.start, bytes) };
            }
            self.memory.store(Arc::as_ptr(&new).cast_mut(), Ordering::Relaxed);
            new
        })
    }

    pub(super) fn books(&self) -> &Books<Arc<Mapping>> {
        &self.books
    }

    /// Whether a larger memory is being made.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(super) fn is_waiting_for_memory(&self) -> bool {
        self.growth.lock().expect("no test panics with it").making.is_some()
    }

    /// Grows without being asked to; says whether no claim stood in the way.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(super) fn grow(&self) -> bool {
        let capacity = self.capacity();
        let memory = Mapping::new(capacity * 2).expect("there is memory for tests");
        let moved = self.move_to(&mut Some(Arc::new(memory)));
        if moved {
            let mut growth = self.growth.lock().expect("no test panics with it");
            assert!(growth.granted.grow(capacity), "no test has so small a budget");
        }
        moved
    }
}

fn capacity_for(bytes: usize) -> io::Result<usize> {
    bytes
        .max(MIN_CAPACITY)
        .checked_next_power_of_two()
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}
