//! What goes over the stream: a greeting, then messages of one size, each stamped with the moment at
//! which it was due and that at which its write began.
//!
//! All numbers are little-endian. Greeting: 8 octets of magic, the messages' size in 4, 4 of zero, the
//! clock's boot in 16, its time namespace in 8. Message: sequence number, due moment and moment of the
//! write in 8 octets each, then zeros up to its size.

use std::io::{self, ErrorKind};

use super::clock::{Identity, Moment};
use super::histogram::{Latencies, empty};

/// Octets of a greeting.
pub const GREETING: usize = 40;

/// Octets of a stamp, the least size of a message.
pub const STAMP: usize = 24;

/// The largest message: some responses are that large, no request is.
pub const LARGEST: usize = 1 << 20;

const MAGIC: u64 = u64::from_le_bytes(*b"mpxdplt1");

/// What the sender says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Octets of each message.
    pub size: u32,
    /// The clock that the stamps are of.
    pub clock: Identity,
}

impl Greeting {
    /// As it goes over the stream.
    #[must_use]
    pub fn to_bytes(self) -> [u8; GREETING] {
        let mut bytes = [0; GREETING];
        bytes[0..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.size.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.clock.boot.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.clock.namespace.to_le_bytes());
        bytes
    }

    /// From the stream.
    fn from_bytes(bytes: &[u8; GREETING]) -> io::Result<Self> {
        if u64_at(bytes, 0) != MAGIC {
            return Err(invalid("the peer is no sender of this benchmark".into()));
        }
        let boot = u128::from(u64_at(bytes, 16)) | u128::from(u64_at(bytes, 24)) << 64;
        Ok(Self {
            // The upper half is zero.
            size: u64_at(bytes, 8) as u32,
            clock: Identity { boot, namespace: u64_at(bytes, 32) },
        })
    }
}

/// The head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Its number, from 0 on, the warm-up included.
    pub sequence: u64,
    /// When it should have been written.
    pub due: Moment,
    /// When its write began.
    pub written: Moment,
}

impl Stamp {
    /// Writes it to the beginning of a message.
    ///
    /// # Panics
    ///
    /// If the message is shorter than [`STAMP`].
    pub fn put(&self, message: &mut [u8]) {
        let Self { sequence, due, written } = self;
        message[0..8].copy_from_slice(&sequence.to_le_bytes());
        message[8..16].copy_from_slice(&due.0.to_le_bytes());
        message[16..24].copy_from_slice(&written.0.to_le_bytes());
    }

    fn from_bytes(bytes: &[u8; STAMP]) -> Self {
        Self {
            sequence: u64_at(bytes, 0),
            due: Moment(u64_at(bytes, 8)),
            written: Moment(u64_at(bytes, 16)),
        }
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn invalid(what: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

/// The latencies of the messages that are measured.
#[derive(Clone, Debug)]
pub struct Recorder {
    warm_up: u64,
    latency: Latencies,
    transit: Latencies,
}

impl Recorder {
    /// Leaves out the first `warm_up` messages.
    #[must_use]
    pub fn new(warm_up: u64) -> Self {
        Self { warm_up, latency: empty(), transit: empty() }
    }

    /// Takes a message that the application had, whole, at `now`.
    pub fn record(&mut self, stamp: &Stamp, now: Moment) {
        if stamp.sequence >= self.warm_up {
            self.latency.saturating_record(now.since(stamp.due));
            self.transit.saturating_record(now.since(stamp.written));
        }
    }

    /// From the moment at which a message was due, in nanoseconds.
    #[must_use]
    pub const fn latency(&self) -> &Latencies {
        &self.latency
    }

    /// From the moment at which its write began, in nanoseconds.
    #[must_use]
    pub const fn transit(&self) -> &Latencies {
        &self.transit
    }
}

/// Finds the messages in the stream, wherever it was cut, and records them.
#[derive(Debug)]
pub struct Decoder {
    size: usize,
    clock: Identity,
    recorder: Recorder,
    /// The number of the message that comes next; none before the greeting.
    next: Option<u64>,
    /// What there is of a greeting or a stamp that came in parts.
    head: [u8; GREETING],
    /// Octets of the current greeting or message so far.
    have: usize,
}

impl Decoder {
    /// For messages of `size` octets, stamped by the clock of this process.
    #[must_use]
    pub const fn new(size: usize, clock: Identity, recorder: Recorder) -> Self {
        Self { size, clock, recorder, next: None, head: [0; GREETING], have: 0 }
    }

    /// Takes the next bytes of the stream, which the application had at `now`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidData`] if they are no message, not the next one, or if the sender's clock
    /// is not ours.
    pub fn take(&mut self, mut bytes: &[u8], now: Moment) -> io::Result<()> {
        while !bytes.is_empty() {
            let (head, whole) =
                if self.next.is_some() { (STAMP, self.size) } else { (GREETING, GREETING) };
            let taken = bytes.len().min(whole - self.have);
            if self.have < head {
                let part = taken.min(head - self.have);
                self.head[self.have..self.have + part].copy_from_slice(&bytes[..part]);
            }
            self.have += taken;
            bytes = &bytes[taken..];
            if self.have == whole {
                self.have = 0;
                self.whole(now)?;
            }
        }
        Ok(())
    }

    /// A greeting or a message is whole.
    fn whole(&mut self, now: Moment) -> io::Result<()> {
        let Some(next) = self.next else {
            let greeting = Greeting::from_bytes(&self.head)?;
            self.next = Some(0);
            return self.check(&greeting);
        };
        let mut stamp = [0; STAMP];
        stamp.copy_from_slice(&self.head[..STAMP]);
        let stamp = Stamp::from_bytes(&stamp);
        if stamp.sequence != next {
            return Err(invalid(format!("message {next} should come, not {}", stamp.sequence)));
        }
        self.next = Some(next + 1);
        self.recorder.record(&stamp, now);
        Ok(())
    }

    fn check(&self, greeting: &Greeting) -> io::Result<()> {
        if greeting.size as usize != self.size {
            let (ours, theirs) = (self.size, greeting.size);
            return Err(invalid(format!("the sender's messages have {theirs} octets, not {ours}")));
        }
        if greeting.clock != self.clock {
            return Err(invalid(
                "the sender's clock is not this machine's, and one-way latency needs one clock: \
                 run sender and reader on one kernel, in one time namespace"
                    .into(),
            ));
        }
        Ok(())
    }

    /// What was recorded, and the number of messages, at the end of the stream.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::UnexpectedEof`] if it ended within a message, or before any.
    pub fn finish(self) -> io::Result<(Recorder, u64)> {
        match self.next {
            Some(messages) if self.have == 0 => Ok((self.recorder, messages)),
            _ => Err(io::Error::new(ErrorKind::UnexpectedEof, "the stream ended in a message")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: Identity = Identity { boot: 1 << 100 | 5, namespace: 9 };

    fn stream(size: u32, clock: Identity, messages: u64) -> Vec<u8> {
        let mut bytes = Greeting { size, clock }.to_bytes().to_vec();
        for sequence in 0..messages {
            let mut message = vec![0; size as usize];
            let due = Moment(sequence * 100);
            Stamp { sequence, due, written: due.after(10) }.put(&mut message);
            bytes.extend(message);
        }
        bytes
    }

    fn decoder(size: usize) -> Decoder {
        Decoder::new(size, CLOCK, Recorder::new(2))
    }

    #[test]
    fn messages_are_found_wherever_the_stream_is_cut() {
        let bytes = stream(30, CLOCK, 5);
        for piece in 1..=bytes.len() {
            let mut decoder = decoder(30);
            for part in bytes.chunks(piece) {
                decoder.take(part, Moment(500)).expect("well-formed");
            }
            let (recorder, messages) = decoder.finish().expect("whole");
            assert_eq!((messages, recorder.latency().len()), (5, 3), "in pieces of {piece}");
            // Of those after the warm-up, number 2 was due first and 4 last.
            assert_eq!((recorder.latency().min(), recorder.latency().max()), (100, 300));
            assert_eq!((recorder.transit().min(), recorder.transit().max()), (90, 290));
        }
    }

    #[test]
    fn a_message_counts_once_its_last_byte_is_there() {
        let bytes = stream(100, CLOCK, 3);
        let mut decoder = decoder(100);
        let (most, last) = bytes.split_at(bytes.len() - 1);
        decoder.take(most, Moment(3_000)).expect("well-formed");
        assert_eq!(decoder.recorder.latency().len(), 0);
        decoder.take(last, Moment(900_000)).expect("well-formed");
        assert!(decoder.recorder.latency().min() > 890_000);
    }

    #[test]
    fn another_machines_clock_is_refused() {
        let theirs = Identity { boot: 77, ..CLOCK };
        let error = decoder(30).take(&stream(30, theirs, 1), Moment(0)).expect_err("not ours");
        assert!(error.to_string().contains("clock"), "{error}");
        let elsewhere = Identity { namespace: 10, ..CLOCK };
        assert!(decoder(30).take(&stream(30, elsewhere, 1), Moment(0)).is_err());
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let error = decoder(30).take(&[b'x'; 40], Moment(0)).expect_err("no greeting");
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        let error = decoder(31).take(&stream(30, CLOCK, 1), Moment(0)).expect_err("another size");
        assert!(error.to_string().contains("31"), "{error}");
        let mut lost = stream(30, CLOCK, 3);
        lost.drain(GREETING + 30..GREETING + 60);
        let error = decoder(30).take(&lost, Moment(0)).expect_err("one is missing");
        assert!(error.to_string().contains("message 1"), "{error}");
    }

    #[test]
    fn a_stream_that_ends_early_is_an_error() {
        let bytes = stream(30, CLOCK, 3);
        for end in [0, 39, 41, bytes.len() - 1] {
            let mut decoder = decoder(30);
            decoder.take(&bytes[..end], Moment(0)).expect("well-formed so far");
            let error = decoder.finish().expect_err("not whole");
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{end}");
        }
    }
}
