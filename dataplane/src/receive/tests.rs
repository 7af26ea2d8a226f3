use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use mpxdp_proto::seq::StreamOffset;
use mpxdp_proto::time::Instant;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::mapping::Mapping;
use super::*;

mod model;
mod threads;

/// The stream's content: without a period that a power of two divides, so that a byte of another
/// lap is a wrong byte.
pub(super) fn pattern(from: u64, len: usize) -> Vec<u8> {
    (from..from + len as u64).map(|n| (n % 65_521 % 251) as u8).collect()
}

pub(super) fn new(config: RingConfig, origin: u64) -> (Arc<Ring>, Reader) {
    let ring = Arc::new(Ring::new(config, origin).unwrap());
    let reader = Reader::new(Arc::clone(&ring));
    (ring, reader)
}

fn small() -> RingConfig {
    RingConfig { initial: MIN_CAPACITY, limit: 4 * MIN_CAPACITY, ..RingConfig::default() }
}

fn wanted(to: u64, len: u32) -> Wanted {
    Wanted { to: StreamOffset(to), len, source: 0, at: 0 }
}

fn claim(ring: &Ring, to: u64, len: u32) -> (Vec<Claim>, Claimed) {
    let mut claims = Vec::new();
    let claimed = ring.claim(&[wanted(to, len)], &mut claims);
    (claims, claimed)
}

fn fill(ring: &Ring, claims: &mut [Claim]) {
    for claim in claims {
        let bytes = pattern(claim.to().0, claim.remaining());
        ring.copy(claim, &bytes);
    }
}

/// What a worker does with a burst of one packet.
fn receive(ring: &Ring, to: u64, len: u32) -> Commit {
    let (mut claims, _) = claim(ring, to, len);
    fill(ring, &mut claims);
    ring.commit(&mut claims)
}

fn is_readable(reader: &Reader) -> bool {
    let mut fds = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
}

fn read_all(reader: &mut Reader) -> Vec<u8> {
    let bytes = reader.peek().to_vec();
    let _ = reader.consume(bytes.len());
    bytes
}

#[test]
fn data_out_of_order_is_one_slice_once_the_gap_closes() {
    let (ring, mut reader) = new(small(), 0);
    assert_eq!(receive(&ring, 1000, 500), Commit { edge: StreamOffset(0), advanced: false });
    assert!(reader.peek().is_empty());
    assert_eq!(receive(&ring, 0, 1000), Commit { edge: StreamOffset(1500), advanced: true });
    assert_eq!(reader.available(), 1500);
    assert_eq!(read_all(&mut reader), pattern(0, 1500));
}

#[test]
fn a_slice_crosses_the_end_of_the_memory() {
    let origin = MIN_CAPACITY as u64 - 700;
    let (ring, mut reader) = new(small(), origin);
    receive(&ring, origin, 1400);
    assert_eq!(read_all(&mut reader), pattern(origin, 1400));
}

#[test]
fn a_claim_says_where_in_its_source_it_begins() {
    let (ring, _reader) = new(small(), 0);
    receive(&ring, 0, 100);
    receive(&ring, 200, 100);
    let mut claims = Vec::new();
    let wanted = [
        Wanted { to: StreamOffset(50), len: 300, source: 7, at: 20 },
        Wanted { to: StreamOffset(400), len: 10, source: 8, at: 0 },
    ];
    let claimed = ring.claim(&wanted, &mut claims);
    assert_eq!(claimed, Claimed { claimed: 160, duplicate: 150, refused: 0 });
    let parts: Vec<_> =
        claims.iter().map(|c| (c.to().0, c.remaining(), c.source(), c.at())).collect();
    assert_eq!(parts, [(100, 100, 7, 70), (300, 50, 7, 270), (400, 10, 8, 0)]);
    // A payload in two pieces.
    ring.copy(&mut claims[0], &pattern(100, 30));
    assert_eq!((claims[0].to().0, claims[0].remaining(), claims[0].at()), (130, 70, 100));
    fill(&ring, &mut claims);
    assert_eq!(ring.commit(&mut claims).edge, StreamOffset(350));
}

#[test]
fn the_first_claim_wins_and_what_was_given_never_changes() {
    let (ring, mut reader) = new(small(), 0);
    let (mut first, _) = claim(&ring, 0, 100);
    // Another copy of the same range, conflicting, comes while the first is still being copied.
    let (second, claimed) = claim(&ring, 0, 150);
    assert_eq!(claimed.duplicate, 100);
    assert_eq!(second.len(), 1);
    for mut claim in second {
        ring.copy(&mut claim, &[0xee; 50]);
        ring.commit(&mut vec![claim]);
    }
    fill(&ring, &mut first);
    ring.commit(&mut first);
    let given = reader.peek();
    assert_eq!(given[..100], pattern(0, 100));
    assert_eq!(given[100..], [0xee; 50]);
    // And once more, while the reader holds the slice.
    let (none, claimed) = claim(&ring, 0, 150);
    assert!(none.is_empty());
    assert_eq!(claimed, Claimed { claimed: 0, duplicate: 150, refused: 0 });
    assert_eq!(given[..100], pattern(0, 100));
}

#[test]
fn nothing_beyond_the_right_edge_is_taken() {
    let (ring, mut reader) = new(small(), 0);
    let capacity = ring.capacity() as u64;
    assert_eq!(ring.right_edge(), StreamOffset(capacity));
    let (mut claims, claimed) = claim(&ring, 0, capacity as u32 + 10);
    assert_eq!(claimed, Claimed { claimed: capacity, duplicate: 0, refused: 10 });
    fill(&ring, &mut claims);
    ring.commit(&mut claims);
    assert_eq!(claim(&ring, capacity, 1).1.refused, 1);
    assert_eq!(reader.peek().len(), ring.capacity());
    let _ = reader.consume(10);
    assert_eq!(ring.right_edge(), StreamOffset(capacity + 10));
    receive(&ring, capacity, 10);
    assert_eq!(read_all(&mut reader), pattern(10, ring.capacity()));
}

#[test]
fn an_abandoned_claim_is_free_again() {
    let (ring, mut reader) = new(small(), 0);
    let (mut claims, _) = claim(&ring, 0, 100);
    receive(&ring, 100, 100);
    ring.abandon(claims.remove(0));
    assert_eq!(ring.edge(), StreamOffset(0));
    assert_eq!(receive(&ring, 0, 200).edge, StreamOffset(200));
    assert_eq!(read_all(&mut reader), pattern(0, 200));
}

#[test]
#[should_panic(expected = "another ring's")]
fn a_claim_is_of_use_to_its_own_ring_only() {
    let (ring, _reader) = new(small(), 0);
    let (other, _other_reader) = new(small(), 0);
    let (mut claims, _) = claim(&ring, 0, 100);
    other.copy(&mut claims[0], &[0; 100]);
}

#[test]
#[should_panic(expected = "was dropped")]
#[cfg(debug_assertions)]
fn a_claim_that_is_dropped_is_found_out() {
    let (ring, _reader) = new(small(), 0);
    drop(claim(&ring, 0, 100));
}

#[test]
fn the_end_may_be_known_before_the_data() {
    let (ring, mut reader) = new(small(), 0);
    assert!(ring.set_end(StreamOffset(100)));
    assert!(!reader.is_ready() && !ring.is_complete());
    let (mut claims, claimed) = claim(&ring, 0, 120);
    assert_eq!(claimed.refused, 20, "there is nothing after the end");
    fill(&ring, &mut claims);
    ring.commit(&mut claims);
    assert!(ring.is_complete());
    assert!(!reader.is_end());
    assert_eq!(read_all(&mut reader).len(), 100);
    assert!(reader.is_end() && reader.is_ready());
}

#[test]
fn a_stream_has_one_end_and_no_data_behind_it() {
    let (ring, _reader) = new(small(), 0);
    receive(&ring, 50, 50);
    assert!(!ring.set_end(StreamOffset(99)));
    assert_eq!(ring.end(), None);
    assert!(ring.set_end(StreamOffset(100)));
    assert!(ring.set_end(StreamOffset(100)), "a retransmission of it");
    assert!(!ring.set_end(StreamOffset(101)));
    assert_eq!(ring.end(), Some(StreamOffset(100)));
}

#[test]
fn a_failure_comes_after_the_data_and_the_first_one_counts() {
    let (ring, mut reader) = new(small(), 0);
    receive(&ring, 0, 10);
    ring.fail(Failure::Reset);
    ring.fail(Failure::TimedOut);
    assert_eq!(claim(&ring, 10, 10).1.refused, 10);
    assert_eq!(read_all(&mut reader), pattern(0, 10));
    assert!(reader.is_ready());
    assert_eq!(reader.failure(), Some(Failure::Reset));
}

#[test]
fn a_reader_that_is_gone_takes_no_data() {
    let (ring, reader) = new(small(), 0);
    receive(&ring, 0, 10);
    assert!(!ring.is_reader_gone());
    drop(reader);
    assert!(ring.is_reader_gone());
    assert_eq!(claim(&ring, 10, 10).1.refused, 10);
}

#[test]
#[should_panic(expected = "more than was there")]
fn more_than_was_seen_cannot_be_consumed() {
    let (ring, mut reader) = new(small(), 0);
    receive(&ring, 0, 10);
    assert_eq!(reader.peek().len(), 10);
    receive(&ring, 10, 10);
    let _ = reader.consume(11);
}

#[test]
fn the_descriptor_is_readable_while_there_is_something_to_be_had() {
    let (ring, mut reader) = new(small(), 0);
    assert!(!is_readable(&reader));
    // Data comes before the program ever read.
    receive(&ring, 0, 100);
    assert!(is_readable(&reader));
    // It takes a part of it, and polls again.
    assert_eq!(reader.peek().len(), 100);
    let _ = reader.consume(40);
    assert!(is_readable(&reader));
    // It takes the rest and does not look for more; then it does.
    let _ = reader.consume(60);
    assert!(!reader.arm());
    assert!(!is_readable(&reader));
    // Data out of order is nothing to be had.
    receive(&ring, 150, 50);
    assert!(!is_readable(&reader));
    receive(&ring, 100, 50);
    assert!(is_readable(&reader));
    // A program that arms although there is data does not lose it.
    assert!(reader.arm());
    assert!(is_readable(&reader));
    read_all(&mut reader);
    assert!(!reader.arm());
    ring.set_end(StreamOffset(200));
    assert!(is_readable(&reader));
}

#[test]
fn a_failure_makes_the_descriptor_readable() {
    let (ring, mut reader) = new(small(), 0);
    assert!(!reader.arm());
    ring.fail(Failure::TimedOut);
    assert!(is_readable(&reader));
    assert!(reader.wait(None).unwrap());
}

#[test]
fn waiting_ends_with_its_time() {
    let (ring, mut reader) = new(small(), 0);
    let start = std::time::Instant::now();
    assert!(!reader.wait(Some(Duration::from_millis(30))).unwrap());
    assert!(start.elapsed() >= Duration::from_millis(30));
    receive(&ring, 0, 1);
    assert!(reader.wait(Some(Duration::ZERO)).unwrap());
}

#[test]
fn data_wakes_a_sleeping_reader() {
    let (ring, mut reader) = new(small(), 0);
    let (said, heard) = mpsc::channel();
    let sleeper = std::thread::spawn(move || {
        for n in 0..50_usize {
            assert!(reader.wait(None).unwrap());
            said.send(read_all(&mut reader).len() + n).unwrap();
        }
    });
    for n in 0..50_u64 {
        receive(&ring, n * 10, 10);
        assert_eq!(heard.recv_timeout(Duration::from_secs(20)).unwrap() as u64, 10 + n);
    }
    sleeper.join().unwrap();
}

#[test]
fn a_window_update_is_due_when_the_peer_runs_out() {
    let (ring, mut reader) = new(small(), 0);
    let capacity = ring.capacity();
    ring.advertise(ring.right_edge());
    receive(&ring, 0, capacity as u32);
    assert_eq!(reader.peek().len(), capacity);
    // Less than a quarter is not worth a packet.
    assert!(!reader.consume(capacity / 4 - 1).window_update_due);
    assert!(reader.consume(1).window_update_due);
    // Once for each step.
    assert!(!reader.consume(1).window_update_due);
    // The same, as acknowledgements went out with it.
    ring.advertise(ring.right_edge());
    assert!(!reader.consume(capacity / 4 - 1).window_update_due);
}

#[test]
fn no_window_update_is_due_while_the_peer_has_plenty() {
    let (ring, mut reader) = new(small(), 0);
    let capacity = ring.capacity() as u64;
    ring.advertise(ring.right_edge());
    let third = (capacity / 3) as u32;
    receive(&ring, 0, third);
    assert_eq!(reader.peek().len(), third as usize);
    // The peer may still send two thirds, and would gain one.
    assert!(!reader.consume(third as usize).window_update_due);
    // Now it may send one, and would gain two.
    receive(&ring, u64::from(third), third);
    assert_eq!(reader.peek().len(), third as usize);
    assert!(reader.consume(third as usize).window_update_due);
}

#[test]
fn growing_keeps_every_byte_and_the_slice_that_the_reader_holds() {
    let origin = 3 * MIN_CAPACITY as u64 + 1234;
    let (ring, mut reader) = new(small(), origin);
    receive(&ring, origin, 200_000);
    receive(&ring, origin + 210_000, 20_000);
    let held = reader.peek();
    assert!(ring.grow());
    assert_eq!(ring.capacity(), 2 * MIN_CAPACITY);
    assert_eq!(ring.right_edge(), StreamOffset(origin + 2 * MIN_CAPACITY as u64));
    // The new window is filled, over the places of the old memory.
    receive(&ring, origin, 2 * MIN_CAPACITY as u32);
    assert_eq!(held, pattern(origin, 200_000));
    assert_eq!(read_all(&mut reader), pattern(origin, 2 * MIN_CAPACITY));
}

#[test]
fn the_ring_stays_where_it_is_while_a_claim_is_in_flight() {
    let (ring, mut reader) = new(small(), 0);
    let (mut claims, _) = claim(&ring, 0, 1000);
    assert!(!ring.grow());
    fill(&ring, &mut claims);
    ring.commit(&mut claims);
    assert!(ring.grow());
    assert_eq!(read_all(&mut reader), pattern(0, 1000));
}

/// One round trip of a stream whose reader keeps up. A memory that is asked for is ready at its
/// end.
fn round(ring: &Ring, reader: &mut Reader, now: &mut u64, bytes: usize) {
    tune(ring, now);
    *now += 1_000_000;
    receive(ring, ring.edge().0, bytes as u32);
    assert_eq!(read_all(reader).len(), bytes);
}

/// Tunes, and waits for a memory that is being made for it.
fn tune(ring: &Ring, now: &mut u64) {
    ring.tune(Instant(*now), Duration::from_millis(1));
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while ring.is_waiting_for_memory() {
        assert!(std::time::Instant::now() < deadline, "no memory");
        std::thread::sleep(Duration::from_millis(1));
        *now += 1_000_000;
        ring.tune(Instant(*now), Duration::from_millis(1));
    }
}

#[test]
fn a_stream_that_fills_its_window_gets_a_larger_one_up_to_the_limit() {
    let (ring, mut reader) = new(small(), 0);
    let mut now = 0;
    for _ in 0..10 {
        round(&ring, &mut reader, &mut now, MIN_CAPACITY / 2);
    }
    assert_eq!(ring.capacity(), MIN_CAPACITY, "half a window is not more than half");
    for _ in 0..10 {
        let bytes = ring.capacity() * 3 / 4;
        round(&ring, &mut reader, &mut now, bytes);
    }
    assert_eq!(ring.capacity(), 4 * MIN_CAPACITY, "the limit");
}

#[test]
fn growth_waits_for_the_claims_in_flight() {
    let (ring, mut reader) = new(small(), 0);
    let mut now = 0;
    round(&ring, &mut reader, &mut now, MIN_CAPACITY);
    let (mut others, _) = claim(&ring, ring.edge().0, 1000);
    tune(&ring, &mut now);
    assert_eq!(ring.capacity(), MIN_CAPACITY);
    fill(&ring, &mut others);
    ring.commit(&mut others);
    tune(&ring, &mut now);
    assert_eq!(ring.capacity(), 2 * MIN_CAPACITY);
}

#[derive(Debug)]
struct Purse {
    limit: usize,
    used: AtomicUsize,
}

impl Budget for Purse {
    fn reserve(&self, bytes: usize) -> bool {
        let fits = |used| (used + bytes <= self.limit).then_some(used + bytes);
        self.used.try_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }
    fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[test]
fn the_budget_is_asked_and_given_back() {
    let purse = Arc::new(Purse { limit: 2 * MIN_CAPACITY, used: AtomicUsize::new(0) });
    let config = RingConfig { budget: Arc::clone(&purse) as Arc<dyn Budget>, ..small() };
    let (ring, mut reader) = new(config, 0);
    let mut now = 0;
    for _ in 0..10 {
        let bytes = ring.capacity();
        round(&ring, &mut reader, &mut now, bytes);
    }
    assert_eq!(ring.capacity(), 2 * MIN_CAPACITY, "the budget allows no more");
    assert_eq!(purse.used.load(Ordering::Relaxed), 2 * MIN_CAPACITY);
    drop((ring, reader));
    assert_eq!(purse.used.load(Ordering::Relaxed), 0);
}

#[test]
fn a_budget_that_is_used_up_refuses_a_ring() {
    let purse = Arc::new(Purse { limit: MIN_CAPACITY - 1, used: AtomicUsize::new(0) });
    let config = RingConfig { budget: Arc::clone(&purse) as Arc<dyn Budget>, ..small() };
    let error = ring(config).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    assert_eq!(purse.used.load(Ordering::Relaxed), 0);
}

/// Otherwise it counts for nobody for a moment, and the limit may be passed by it.
#[test]
fn memory_is_given_back_after_it_became_spare() {
    /// More than any other test's ring has.
    const SIZE: usize = 32 << 20;
    /// A budget that looks whether the memory is spare when it gets it back.
    #[derive(Debug, Default)]
    struct Order(AtomicBool);
    impl Budget for Order {
        fn reserve(&self, _: usize) -> bool {
            true
        }
        fn release(&self, _: usize) {
            self.0.store(Mapping::spare(SIZE).is_some(), Ordering::Relaxed);
        }
    }
    // Other tests may keep so much that it goes at once, but not each time.
    let was_spare = (0..100).any(|_| {
        let order = Arc::new(Order::default());
        let budget = Arc::clone(&order) as Arc<dyn Budget>;
        drop(ring(RingConfig { initial: SIZE, limit: SIZE, budget }).unwrap());
        order.0.load(Ordering::Relaxed)
    });
    assert!(was_spare);
}
