//! Every interleaving, and every reordering that the memory model allows, of small cases.
//!
//!     RUSTFLAGS="--cfg loom" cargo test --release -p mpxdp --lib loom_
//!
//! The memory is one of loom's cells for each byte, so a copy that races with the reader, with
//! another copy or with a relocation is found, not only wrong bytes.

use std::ops::Range;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::books::{Books, Cursor};
use crate::loom_model::model;

/// A byte of the stream, by its offset.
fn content(offset: u64) -> u8 {
    offset as u8 + 1
}

#[derive(Debug)]
struct Memory(Vec<UnsafeCell<u8>>);

impl Memory {
    fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self((0..capacity).map(|_| UnsafeCell::new(0)).collect()))
    }

    fn cell(&self, offset: u64) -> &UnsafeCell<u8> {
        &self.0[offset as usize % self.0.len()]
    }

    fn write(&self, range: Range<u64>) {
        for offset in range {
            // SAFETY: loom's cell checks that nobody else accesses it.
            self.cell(offset).with_mut(|byte| unsafe { *byte = content(offset) });
        }
    }

    fn read(&self, offset: u64) -> u8 {
        // SAFETY: loom's cell checks that nobody writes it.
        self.cell(offset).with(|byte| unsafe { *byte })
    }
}

type TestBooks = Arc<Books<Arc<Memory>>>;

fn books(capacity: usize) -> (TestBooks, Arc<Memory>) {
    let memory = Memory::new(capacity);
    (Arc::new(Books::new(0, capacity, Arc::clone(&memory)).unwrap()), memory)
}

/// Claims, copies and commits; says how much it claimed.
fn receive(books: &TestBooks, memory: &Memory, range: Range<u64>) -> u64 {
    let mut claims = Vec::new();
    let shares = books.claim(std::iter::once(range), |_, part| claims.push(part));
    for claim in &claims {
        memory.write(claim.clone());
    }
    books.commit(claims);
    shares.claimed
}

/// Reads all that is there, and compares it.
fn read(cursor: &mut Cursor<Arc<Memory>>, books: &TestBooks) -> u64 {
    cursor.refresh(books);
    let (range, memory) = cursor.readable();
    let n = range.end - range.start;
    for offset in range {
        assert_eq!(memory.read(offset), content(offset));
    }
    cursor.consume(books, n);
    n
}

fn sleep_until_ready(cursor: &Cursor<Arc<Memory>>, books: &TestBooks) {
    while !books.bell().arm(|| cursor.is_ready(books)) {
        books.bell().sleep(None).unwrap();
    }
}

#[test]
fn loom_overlapping_claims_of_two_workers_are_each_copied_once() {
    model(|| {
        let (books, memory) = books(4);
        let mut cursor = Cursor::new(&books);
        let other = {
            let (books, memory) = (Arc::clone(&books), Arc::clone(&memory));
            thread::spawn(move || receive(&books, &memory, 1..3))
        };
        let mine = receive(&books, &memory, 0..2);
        let before = read(&mut cursor, &books);
        let others = other.join().unwrap();
        assert_eq!(mine + others, 3);
        assert_eq!(before + read(&mut cursor, &books), 3);
    });
}

#[test]
fn loom_a_reader_sees_whole_bytes_whoever_commits_last() {
    model(|| {
        let (books, memory) = books(4);
        let workers: Vec<_> = [0..1, 1..2]
            .into_iter()
            .map(|range| {
                let (books, memory) = (Arc::clone(&books), Arc::clone(&memory));
                thread::spawn(move || receive(&books, &memory, range))
            })
            .collect();
        let mut cursor = Cursor::new(&books);
        let seen = read(&mut cursor, &books);
        for worker in workers {
            worker.join().unwrap();
        }
        assert_eq!(seen + read(&mut cursor, &books), 2);
    });
}

#[test]
fn loom_a_place_is_written_anew_only_after_it_was_read() {
    model(|| {
        let (books, memory) = books(1);
        let worker = {
            let (books, memory) = (Arc::clone(&books), Arc::clone(&memory));
            thread::spawn(move || {
                assert_eq!(receive(&books, &memory, 0..1), 1);
                // The window covers the second byte once the reader has consumed the first.
                receive(&books, &memory, 1..2)
            })
        };
        let mut cursor = Cursor::new(&books);
        let mut seen = read(&mut cursor, &books);
        let claimed = 1 + worker.join().unwrap();
        seen += read(&mut cursor, &books);
        assert_eq!(seen, claimed);
    });
}

#[test]
fn loom_no_wake_up_is_lost() {
    model(|| {
        let (books, memory) = books(4);
        let mut cursor = Cursor::new(&books);
        let worker = {
            let (books, memory) = (Arc::clone(&books), Arc::clone(&memory));
            thread::spawn(move || {
                receive(&books, &memory, 0..1);
                receive(&books, &memory, 1..2);
            })
        };
        // Loom reports a reader that nobody wakes as a deadlock.
        let mut seen = 0;
        while seen < 2 {
            sleep_until_ready(&cursor, &books);
            seen += read(&mut cursor, &books);
        }
        worker.join().unwrap();
    });
}

#[test]
fn loom_no_wake_up_is_lost_between_two_workers() {
    model(|| {
        let (books, memory) = books(4);
        let mut cursor = Cursor::new(&books);
        let workers: Vec<_> = [0..1, 1..2]
            .into_iter()
            .map(|range| {
                let (books, memory) = (Arc::clone(&books), Arc::clone(&memory));
                thread::spawn(move || receive(&books, &memory, range))
            })
            .collect();
        let mut seen = 0;
        while seen < 2 {
            sleep_until_ready(&cursor, &books);
            seen += read(&mut cursor, &books);
        }
        for worker in workers {
            worker.join().unwrap();
        }
    });
}

#[test]
fn loom_the_end_wakes_the_reader_before_or_after_the_last_byte() {
    model(|| {
        let (books, memory) = books(4);
        let mut cursor = Cursor::new(&books);
        let worker = {
            let books = Arc::clone(&books);
            thread::spawn(move || assert!(books.set_end(1)))
        };
        receive(&books, &memory, 0..1);
        while !cursor.is_end(&books) {
            sleep_until_ready(&cursor, &books);
            read(&mut cursor, &books);
        }
        worker.join().unwrap();
    });
}

#[test]
fn loom_a_failure_wakes_the_reader_and_hides_nothing() {
    model(|| {
        let (books, memory) = books(4);
        let mut cursor = Cursor::new(&books);
        let worker = {
            let books = Arc::clone(&books);
            thread::spawn(move || {
                receive(&books, &memory, 0..1);
                books.fail(super::Failure::Reset);
            })
        };
        let mut seen = 0;
        while books.failure().is_none() {
            sleep_until_ready(&cursor, &books);
            seen += read(&mut cursor, &books);
        }
        seen += read(&mut cursor, &books);
        assert_eq!(seen, 1, "what came before the failure is there as soon as it is");
        worker.join().unwrap();
    });
}

#[test]
fn loom_nothing_is_taken_beyond_the_end() {
    model(|| {
        let (books, memory) = books(4);
        let ender = {
            let books = Arc::clone(&books);
            thread::spawn(move || books.set_end(1))
        };
        let taken = receive(&books, &memory, 0..2);
        let ended = ender.join().unwrap();
        assert_eq!(taken, if ended { 1 } else { 2 });
        assert_eq!(books.end(), ended.then_some(1));
    });
}

#[test]
fn loom_the_reader_follows_the_ring_to_its_new_memory() {
    model(|| {
        let (books, memory) = books(2);
        let mut cursor = Cursor::new(&books);
        let worker = {
            let (books, old) = (Arc::clone(&books), Arc::clone(&memory));
            thread::spawn(move || {
                receive(&books, &old, 0..2);
                let new = Memory::new(4);
                let moved = books.relocate(4, |old, live| {
                    live.flatten().for_each(|offset| {
                        assert_eq!(old.read(offset), content(offset));
                        new.write(offset..offset + 1);
                    });
                    Arc::clone(&new)
                });
                assert!(moved);
                // In the old memory these would lie over what the reader may be looking at.
                assert_eq!(receive(&books, &new, 2..4), 2);
            })
        };
        let mut seen = read(&mut cursor, &books);
        seen += read(&mut cursor, &books);
        worker.join().unwrap();
        assert_eq!(seen + read(&mut cursor, &books), 4);
        assert!(books.right_edge() >= 4);
    });
}

#[test]
fn loom_a_claim_is_copied_to_the_memory_that_it_was_made_in_and_read_there() {
    model(|| {
        // As the ring does: the memory is found without the lock, by whoever holds a claim.
        let (old, new) = (Memory::new(2), Memory::new(4));
        let memories = Arc::new([Arc::clone(&old), Arc::clone(&new)]);
        let current = Arc::new(AtomicUsize::new(0));
        let books = Arc::new(Books::new(0, 2, Arc::clone(&old)).unwrap());
        let mut cursor = Cursor::new(&books);
        let worker = {
            let (books, memories) = (Arc::clone(&books), Arc::clone(&memories));
            let current = Arc::clone(&current);
            thread::spawn(move || {
                let mut claims = Vec::new();
                books.claim(std::iter::once(0..2), |_, part| claims.push(part));
                let memory = &memories[current.load(Ordering::Relaxed)];
                claims.iter().for_each(|claim| memory.write(claim.clone()));
                books.commit(claims);
            })
        };
        let grower = {
            let books = Arc::clone(&books);
            thread::spawn(move || {
                books.relocate(4, |_, live| {
                    live.flatten().for_each(|offset| new.write(offset..offset + 1));
                    current.store(1, Ordering::Relaxed);
                    Arc::clone(&new)
                })
            })
        };
        let seen = read(&mut cursor, &books);
        worker.join().unwrap();
        grower.join().unwrap();
        assert_eq!(seen + read(&mut cursor, &books), 2);
    });
}

#[test]
fn loom_what_is_advertised_is_covered_and_never_moves_back() {
    model(|| {
        let (books, memory) = books(2);
        let mut cursor = Cursor::new(&books);
        // As a worker does for each burst: store, look at the window, tell the peer.
        let work = |range: Range<u64>| {
            let (books, memory) = (Arc::clone(&books), Arc::clone(&memory));
            thread::spawn(move || {
                receive(&books, &memory, range);
                let told = books.right_edge();
                books.advertise(told);
                let advertised = books.advertised();
                assert!(advertised >= told, "another has told more, never less");
                books.advertise(told - 1);
                assert!(books.advertised() >= advertised, "and it does not move back");
            })
        };
        let workers = [work(0..1), work(1..2)];
        let mut seen = read(&mut cursor, &books);
        for worker in workers {
            worker.join().unwrap();
        }
        seen += read(&mut cursor, &books);
        assert_eq!((seen, books.right_edge()), (2, 4));
        assert!(books.advertised() <= 4, "no more was promised than there is");
    });
}

#[test]
fn loom_the_right_edge_never_moves_back() {
    model(|| {
        let (books, memory) = books(2);
        let mut cursor = Cursor::new(&books);
        receive(&books, &memory, 0..2);
        let reader = {
            let books = Arc::clone(&books);
            thread::spawn(move || read(&mut cursor, &books))
        };
        let grower = {
            let books = Arc::clone(&books);
            thread::spawn(move || {
                books.relocate(4, |old, live| {
                    let new = Memory::new(4);
                    live.flatten().for_each(|offset| {
                        assert_eq!(old.read(offset), content(offset));
                        new.write(offset..offset + 1);
                    });
                    new
                })
            })
        };
        let first = books.right_edge();
        let second = books.right_edge();
        assert!(first <= second);
        assert_eq!(reader.join().unwrap(), 2);
        assert!(grower.join().unwrap());
        assert!(second <= books.right_edge() && books.right_edge() <= 6);
    });
}
