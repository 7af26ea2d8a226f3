//! The endpoint: workers over ports in memory, what reads its streams, and what holds for it
//! whatever comes in.

use std::io::BufRead;
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use mpxdp::port::{MemoryOptions, MemoryPort, Port, receive_packets, send_packet};
use mpxdp::virtual_time::Workers;
use mpxdp::{Checksums, EngineConfig, Keepalive, Listener, Stream, TableSizes};
use mpxdp_proto::time::Instant;

use super::input::Input;

/// Workers, each with one port.
pub(super) const WORKERS: usize = 2;
/// Turns in a row after which something answers itself without end.
const MANY_TURNS: usize = 2000;
/// Deadlines after which something never comes to an end.
const MANY_DEADLINES: usize = 20_000;
/// The smallest ring.
const RING: usize = mpxdp::receive::MIN_CAPACITY;

/// Where the endpoint listens, first by IPv4 and then by IPv6.
pub(super) fn listening() -> [SocketAddr; 2] {
    [
        SocketAddr::from(([10, 0, 0, 2], 5001)),
        SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, 2], 5001)),
    ]
}

/// Further addresses, which peers are told of.
pub(super) fn announced() -> [SocketAddr; 2] {
    [SocketAddr::from(([10, 0, 0, 3], 5001)), SocketAddr::from(([10, 0, 0, 2], 5002))]
}

/// A port's far end.
struct Cable {
    far: MemoryPort,
    /// What the endpoint sends fills the cable, and then is lost.
    jammed: bool,
}

/// A stream that was accepted.
pub(super) struct Reading {
    stream: Stream,
    /// The peer, by the address of its first subflow.
    pub(super) peer: SocketAddr,
    pub(super) position: u64,
    /// What was seen without being consumed: it must stay as it is.
    seen: Vec<u8>,
    pub(super) ended: bool,
    /// The application wants no more of it.
    pub(super) shut: bool,
}

pub(super) struct World {
    pub(super) now: Instant,
    workers: Workers<MemoryPort>,
    cables: Vec<Cable>,
    listeners: Vec<Listener>,
    pub(super) readings: Vec<Reading>,
    memory_limit: usize,
    /// What the endpoint sent, in order, not yet looked at.
    pub(super) sent: Vec<Vec<u8>>,
}

impl World {
    /// An endpoint whose configuration `input` chooses.
    pub(super) fn new(input: &mut Input<'_>) -> Self {
        let memory_limit = RING * (1 + usize::from(input.below(4))) + 4096;
        let config = EngineConfig {
            // Rings that do not grow: that takes a thread.
            receive_initial: RING,
            receive_limit: RING,
            memory_limit,
            backlog: 1 + usize::from(input.below(4)),
            half_open: [0, 1, 8][usize::from(input.below(3))],
            half_open_per_source: [1, 8][usize::from(input.below(2))],
            checksums: [Checksums::Refuse, Checksums::Accept, Checksums::Require]
                [usize::from(input.below(3))],
            keepalive: input.flag().then(|| Keepalive {
                idle: Duration::from_secs(30),
                interval: Duration::from_secs(5),
                probes: 3,
            }),
            subflows: 1 + usize::from(input.below(4)),
            pending_joins: usize::from(input.below(4)),
            mptcp: input.below(8) != 7,
            ..EngineConfig::default()
        };
        let options = MemoryOptions {
            frame_size: [512, 2048][usize::from(input.below(2))],
            receive_frames: 48,
            transmit_frames: 8,
        };
        let (near, cables): (Vec<_>, Vec<_>) = (0..WORKERS)
            .map(|_| {
                let (near, far) = MemoryPort::pair(options);
                (vec![near], Cable { far, jammed: false })
            })
            .unzip();
        let workers = Workers::new(config, 1, 1500, near).expect("there are descriptors");
        let announced = &announced()[..usize::from(input.below(3))];
        let listen = |at| workers.listen(at, announced).expect("nobody else listens");
        let listeners = listening().map(listen).into();
        Self {
            // Not at the very beginning of time, where there is no time before now.
            now: Instant(3_600_000_000_000),
            workers,
            cables,
            listeners,
            readings: Vec::new(),
            memory_limit,
            sent: Vec::new(),
        }
    }

    /// Puts a frame on a worker's cable and lets what follows from it happen.
    pub(super) fn deliver(&mut self, worker: usize, frame: &[u8]) {
        let far = &mut self.cables[worker % WORKERS].far;
        // Without a free frame it is lost, as on any network.
        let _ = send_packet(far, frame);
        far.flush().expect("a cable in memory takes everything");
        self.settle();
    }

    /// Lets everything happen that is due now.
    pub(super) fn settle(&mut self) {
        let mut turns = 0;
        loop {
            let mut busy = false;
            for (index, cable) in self.cables.iter_mut().enumerate() {
                busy |= self.workers.turn(index, self.now);
                cable.far.flush().expect("a cable in memory takes everything");
                if !cable.jammed {
                    let sent = &mut self.sent;
                    receive_packets(&mut cable.far, usize::MAX, |packet| {
                        sent.push(packet.to_vec());
                    });
                }
            }
            self.check();
            if !busy {
                return;
            }
            turns += 1;
            assert!(turns < MANY_TURNS, "the endpoint does not come to rest");
        }
    }

    fn check(&self) {
        for frames in self.workers.frames() {
            assert!(frames.is_conserved(), "{frames:?}");
            assert_eq!(frames.held, 0, "{frames:?}");
        }
        let used = self.workers.memory_in_use();
        assert!(used <= self.memory_limit, "{used} of {}", self.memory_limit);
    }

    /// Lets `time` pass, with every deadline in it. `answer` sees to what the endpoint sends.
    pub(super) fn pass(&mut self, time: Duration, mut answer: impl FnMut(&mut Self)) {
        let end = self.now + time;
        let mut deadlines = 0;
        while let Some(due) = self.workers.next_due().filter(|due| *due <= end) {
            // A deadline that has passed is one of a turn that could not send.
            self.now = due.max(self.now + Duration::from_micros(1)).min(end);
            self.settle();
            answer(self);
            deadlines += 1;
            assert!(deadlines < MANY_DEADLINES, "deadlines without an end");
            if self.now == end {
                break;
            }
        }
        self.now = end;
        self.settle();
        answer(self);
    }

    pub(super) fn jam(&mut self, worker: usize, jammed: bool) {
        self.cables[worker % WORKERS].jammed = jammed;
        self.settle();
    }

    pub(super) fn accept(&mut self, listener: usize) {
        let Some(listener) = self.listeners.get(listener) else { return };
        if let Ok(Some(mut stream)) = listener.try_accept() {
            stream.set_nonblocking(true);
            let peer = stream.peer_addr();
            let seen = Vec::new();
            self.readings.push(Reading {
                stream,
                peer,
                position: 0,
                seen,
                ended: false,
                shut: false,
            });
        }
    }

    pub(super) fn stop_listening(&mut self, listener: usize) {
        if listener < self.listeners.len() {
            self.listeners.remove(listener);
        }
        self.settle();
    }

    /// Drops a stream, or resets its connection.
    pub(super) fn close(&mut self, reading: usize, abort: bool) {
        if reading >= self.readings.len() {
            return;
        }
        let Reading { stream, .. } = self.readings.swap_remove(reading);
        if abort {
            stream.abort();
        } else {
            drop(stream);
        }
        self.settle();
    }

    pub(super) fn shut_down(&mut self, reading: usize, how: Shutdown) {
        if let Some(reading) = self.readings.get_mut(reading) {
            reading.stream.shutdown(how).expect("it has no way to fail");
            reading.shut |= how != Shutdown::Write;
            reading.ended |= reading.shut;
        }
        self.settle();
    }

    /// Looks at what can be read of a stream and consumes up to `most` of it; `check` is told of
    /// what was consumed.
    pub(super) fn read(
        &mut self,
        reading: usize,
        most: usize,
        check: impl FnOnce(&Reading, &[u8]),
    ) {
        let Some(reading) = self.readings.get_mut(reading) else { return };
        let Ok(bytes) = reading.stream.fill_buf() else { return };
        let (before, len) = (reading.seen.len(), bytes.len());
        assert!(len >= before || reading.ended, "bytes that were there are gone");
        assert!(bytes[..before.min(len)] == reading.seen[..before.min(len)], "bytes changed");
        assert!(!reading.ended || bytes.is_empty(), "bytes came after the end");
        reading.ended |= bytes.is_empty();
        let n = len.min(most);
        let taken = bytes[..n].to_vec();
        reading.seen = bytes[n..].to_vec();
        reading.stream.consume(n);
        check(reading, &taken);
        reading.position += n as u64;
        self.settle();
    }

    /// Ends everything on the endpoint's side; after all timeouts nothing may be left of it.
    pub(super) fn wind_up(&mut self, answer: impl FnMut(&mut Self)) {
        for cable in &mut self.cables {
            cable.jammed = false;
        }
        self.readings.clear();
        self.listeners.clear();
        self.settle();
        self.pass(Duration::from_secs(1200), answer);
        assert_eq!(self.workers.next_due(), None, "something still waits");
        assert_eq!(self.workers.tokens_in_use(), 0, "tokens are left");
        assert_eq!(self.workers.memory_in_use(), 0, "memory is left");
        for worker in 0..WORKERS {
            let report = self.workers.report(worker);
            assert_eq!(report.tables, TableSizes::default());
        }
    }
}
