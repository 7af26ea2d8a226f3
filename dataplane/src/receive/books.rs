//! What the writers and the reader of a ring share, but for the bytes.
//!
//! # Who writes what, and the order in which it is seen
//!
//! - `state`: the ledger and the current memory, under the one lock. It is held for the bookkeeping
//!   of a burst, and while the ring moves to a larger memory; never for a copy of received data.
//! - `edge`: stored (release) by writers with the lock held, loaded (acquire) by the reader. The
//!   copies of all workers below an edge happen before the store of that edge: their own commits,
//!   in the same lock, came first.
//! - `right_edge`: raised (release) by the reader after it has finished with the bytes, loaded
//!   (acquire) by a writer before it claims. So every reading of a place happens before the claim
//!   that writes it anew. It is a maximum, so it never moves back (RFC 8684, section 3.3.5).
//! - `generation`: counts the memories. It is stored with the lock held, before any edge that needs
//!   the new memory, so a reader that loads the edge first and the generation second never looks
//!   for new bytes in an old memory. The old one is intact until the reader lets go of it: nobody
//!   writes to it any more.
//! - `end` and `failure`: stored (release) and loaded (acquire), as the reader who sees one is to
//!   see what came before it: the data, and what the connection says of its end.
//! - The others are relaxed: numbers that stand for themselves, and do if they are a little old.
//!   `consumed` too, although a writer takes bytes for read because of it: it does so only for a
//!   new memory, in which nobody has read anything yet.
//!
//! The memory changes only while no claim is in flight, so a writer may use the memory that it
//! found at its claim until its commit.

use std::io;
use std::ops::Range;
use std::sync::PoisonError;

use crossbeam_utils::CachePadded;

use super::doorbell::Doorbell;
use super::ledger::{Ledger, Shares};
use crate::sync::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering};

/// Why no more data will come, other than that the stream is complete.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Failure {
    /// The peer reset the connection.
    Reset = 1,
    /// The peer closed the connection with MP_FASTCLOSE (RFC 8684, section 3.5).
    FastClose = 2,
    /// The peer did not answer any more.
    TimedOut = 3,
    /// The peer broke the protocol in a way that leaves nothing to fall back to.
    Protocol = 4,
    /// The application, or the engine at its end, gave the connection up.
    Aborted = 5,
}

impl Failure {
    const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Reset,
            2 => Self::FastClose,
            3 => Self::TimedOut,
            4 => Self::Protocol,
            5 => Self::Aborted,
            _ => return None,
        })
    }
}

impl From<Failure> for io::ErrorKind {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Reset | Failure::FastClose => Self::ConnectionReset,
            Failure::TimedOut => Self::TimedOut,
            Failure::Protocol => Self::InvalidData,
            Failure::Aborted => Self::ConnectionAborted,
        }
    }
}

/// The end of a stream whose end is not known yet.
const OPEN_END: u64 = u64::MAX;

/// See the module. `M` is a handle of the memory.
#[derive(Debug)]
pub(super) struct Books<M> {
    state: CachePadded<Mutex<State<M>>>,
    published: CachePadded<Published>,
    returned: CachePadded<Returned>,
    rare: CachePadded<Rare>,
}

#[derive(Debug)]
struct State<M> {
    ledger: Ledger,
    memory: M,
}

/// What writers tell the reader.
#[derive(Debug)]
struct Published {
    edge: AtomicU64,
    /// The highest right edge that any acknowledgement has carried.
    advertised: AtomicU64,
}

/// What the reader tells writers.
#[derive(Debug)]
struct Returned {
    consumed: AtomicU64,
    right_edge: AtomicU64,
}

/// What changes a few times in a connection's life.
#[derive(Debug)]
struct Rare {
    bell: Doorbell,
    end: AtomicU64,
    failure: AtomicU8,
    reader_gone: AtomicBool,
    capacity: AtomicUsize,
    generation: AtomicUsize,
}

impl<M> Books<M> {
    /// For a stream of which all below `origin` was read, in a memory of `capacity` bytes.
    pub(super) fn new(origin: u64, capacity: usize, memory: M) -> io::Result<Self> {
        let state = State { ledger: Ledger::new(origin), memory };
        Ok(Self {
            state: CachePadded::new(Mutex::new(state)),
            published: CachePadded::new(Published {
                edge: AtomicU64::new(origin),
                advertised: AtomicU64::new(origin),
            }),
            returned: CachePadded::new(Returned {
                consumed: AtomicU64::new(origin),
                right_edge: AtomicU64::new(origin + capacity as u64),
            }),
            rare: CachePadded::new(Rare {
                bell: Doorbell::new()?,
                end: AtomicU64::new(OPEN_END),
                failure: AtomicU8::new(0),
                reader_gone: AtomicBool::new(false),
                capacity: AtomicUsize::new(capacity),
                generation: AtomicUsize::new(0),
            }),
        })
    }

    pub(super) fn edge(&self) -> u64 {
        self.published.edge.load(Ordering::Acquire)
    }

    pub(super) fn consumed(&self) -> u64 {
        self.returned.consumed.load(Ordering::Relaxed)
    }

    pub(super) fn right_edge(&self) -> u64 {
        self.returned.right_edge.load(Ordering::Acquire)
    }

    pub(super) fn capacity(&self) -> usize {
        self.rare.capacity.load(Ordering::Relaxed)
    }

    pub(super) fn bell(&self) -> &Doorbell {
        &self.rare.bell
    }

    pub(super) fn end(&self) -> Option<u64> {
        let end = self.rare.end.load(Ordering::Acquire);
        (end != OPEN_END).then_some(end)
    }

    pub(super) fn failure(&self) -> Option<Failure> {
        Failure::from_code(self.rare.failure.load(Ordering::Acquire))
    }

    pub(super) fn is_reader_gone(&self) -> bool {
        self.rare.reader_gone.load(Ordering::Relaxed)
    }

    /// Claims what is free of each range, and passes each part to `take` with the index of its
    /// range. One lock for all of them.
    pub(super) fn claim(
        &self,
        wanted: impl IntoIterator<Item = Range<u64>>,
        mut take: impl FnMut(usize, Range<u64>),
    ) -> Shares {
        let mut state = self.lock();
        // Loaded with the lock held: `end` is set under it.
        let limit = if self.is_reader_gone() || self.failure().is_some() {
            0
        } else {
            self.right_edge().min(self.rare.end.load(Ordering::Relaxed))
        };
        let mut total = Shares::default();
        for (index, range) in wanted.into_iter().enumerate() {
            let shares = state.ledger.claim(range, limit, |part| take(index, part));
            total.claimed += shares.claimed;
            total.duplicate += shares.duplicate;
            total.refused += shares.refused;
        }
        total
    }

    /// Commits claims that the caller has copied, and wakes the reader if the edge moved. One lock
    /// for all of them. Returns the edge and whether it moved.
    pub(super) fn commit(&self, claims: impl IntoIterator<Item = Range<u64>>) -> (u64, bool) {
        let (edge, advanced) = {
            let mut state = self.lock();
            let before = state.ledger.edge();
            for claim in claims {
                state.ledger.commit(claim);
            }
            let edge = state.ledger.edge();
            if edge != before {
                // With the lock held, so that a lower edge cannot overwrite a higher one.
                self.published.edge.store(edge, Ordering::Release);
            }
            (edge, edge != before)
        };
        if advanced {
            self.rare.bell.ring();
        }
        (edge, advanced)
    }

    /// Makes a claim's range free again.
    pub(super) fn abandon(&self, claim: Range<u64>) {
        self.lock().ledger.abandon(claim);
    }

    /// Says where the stream ends. `false` if that contradicts an end given before, or data.
    pub(super) fn set_end(&self, end: u64) -> bool {
        {
            let state = self.lock();
            match self.end() {
                Some(known) => return known == end,
                None if end < state.ledger.highest() || end == OPEN_END => return false,
                None => self.rare.end.store(end, Ordering::Release),
            }
        }
        self.rare.bell.ring();
        true
    }

    /// Says that no more data will come; the first reason given is kept.
    pub(super) fn fail(&self, failure: Failure) {
        let first = self.rare.failure.compare_exchange(
            0,
            failure as u8,
            Ordering::Release,
            Ordering::Relaxed,
        );
        if first.is_ok() {
            self.rare.bell.ring();
        }
    }

    /// An acknowledgement goes out that lets the peer send up to `right_edge`.
    pub(super) fn advertise(&self, right_edge: u64) {
        let advertised = &self.published.advertised;
        // Mostly the same again, or another worker's is higher: no write to the line then.
        if advertised.load(Ordering::Relaxed) < right_edge {
            advertised.fetch_max(right_edge, Ordering::Relaxed);
        }
    }

    pub(super) fn advertised(&self) -> u64 {
        self.published.advertised.load(Ordering::Relaxed)
    }

    /// Moves to a memory of `capacity` bytes, if no claim is in flight; says whether it did.
    ///
    /// `make` is given the old memory and the ranges whose bytes must be in the one it returns.
    pub(super) fn relocate(
        &self,
        capacity: usize,
        make: impl FnOnce(&M, &mut dyn Iterator<Item = Range<u64>>) -> M,
    ) -> bool {
        let mut state = self.lock();
        if state.ledger.in_flight() > 0 {
            return false;
        }
        // The reader may consume more meanwhile; then some bytes are moved for nothing.
        let consumed = self.consumed();
        let in_order = consumed..state.ledger.edge();
        let mut live = std::iter::once(in_order).chain(state.ledger.committed_beyond());
        let memory = make(&state.memory, &mut live);
        drop(live);
        state.memory = memory;
        // Relaxed: whoever needs the new memory takes the lock, or has loaded an edge that was stored
        // with the lock held later. And a writer that loads this right edge has loaded what the
        // reader released before: a maximum goes on with the release sequence that it finds.
        self.rare.generation.fetch_add(1, Ordering::Relaxed);
        self.rare.capacity.store(capacity, Ordering::Relaxed);
        self.returned.right_edge.fetch_max(consumed + capacity as u64, Ordering::Relaxed);
        true
    }

    fn lock(&self) -> MutexGuard<'_, State<M>> {
        // No code that may panic runs between two changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reader's side: how far it is, and the memory it looks into.
#[derive(Debug)]
pub(super) struct Cursor<M> {
    consumed: u64,
    /// The edge as of the last look.
    edge: u64,
    memory: M,
    generation: usize,
    /// The right edge as of the last time that a window update was called for.
    called_for: u64,
}

impl<M: Clone> Cursor<M> {
    pub(super) fn new(books: &Books<M>) -> Self {
        let state = books.lock();
        let consumed = books.consumed();
        Self {
            consumed,
            edge: consumed,
            memory: state.memory.clone(),
            generation: books.rare.generation.load(Ordering::Relaxed),
            called_for: 0,
        }
    }

    pub(super) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// What may be read, in the memory that goes with it.
    pub(super) fn readable(&self) -> (Range<u64>, &M) {
        (self.consumed..self.edge, &self.memory)
    }

    /// Looks for new data.
    pub(super) fn refresh(&mut self, books: &Books<M>) {
        // The edge first, then the generation: see the module.
        self.edge = books.edge();
        if books.rare.generation.load(Ordering::Relaxed) != self.generation {
            self.follow(books);
        }
    }

    #[cold]
    fn follow(&mut self, books: &Books<M>) {
        let state = books.lock();
        self.memory = state.memory.clone();
        self.generation = books.rare.generation.load(Ordering::Relaxed);
    }

    /// Gives `n` bytes back; says whether the peer should be told of the larger window.
    pub(super) fn consume(&mut self, books: &Books<M>, n: u64) -> bool {
        self.consumed += n;
        books.returned.consumed.store(self.consumed, Ordering::Relaxed);
        let capacity = books.capacity() as u64;
        let right_edge = self.consumed + capacity;
        let right_edge =
            books.returned.right_edge.fetch_max(right_edge, Ordering::Release).max(right_edge);

        //  RFC 9293, section 3.8.6.2.2: the receiver should not advance the right window edge by
        //  less than the smaller of half the buffer and a segment. A quarter of the buffer is more
        //  than any segment here.
        //
        // And while data flows, acknowledgements carry the window anyway. An update of its own is
        // for a peer that runs out: what it may still send is less than what it would gain.
        let offered = books.advertised().max(self.called_for);
        let gained = right_edge.saturating_sub(offered);
        let remaining = offered.saturating_sub(self.edge);
        let due = gained >= capacity / 4 && gained >= remaining;
        if due {
            self.called_for = right_edge;
        }
        due
    }

    /// Whether there is something to say to the application: data, the end, a failure.
    pub(super) fn is_ready(&self, books: &Books<M>) -> bool {
        books.edge() > self.consumed || self.is_end(books) || books.failure().is_some()
    }

    /// Whether all was read that there will ever be.
    pub(super) fn is_end(&self, books: &Books<M>) -> bool {
        books.end() == Some(self.consumed)
    }

    /// The reader goes away: what comes from now on is refused.
    pub(super) fn leave(&self, books: &Books<M>) {
        books.rare.reader_gone.store(true, Ordering::Relaxed);
    }
}
