//! A worker, a cable in memory and any number of clients, in virtual time.

use std::collections::VecDeque;
use std::io::{BufRead, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mpxdp_proto::config::Config;
use mpxdp_proto::segment::AddressId;
use mpxdp_proto::time::Instant;
use mpxdp_proto::wire::parse_frame;
use mpxdp_sim::client::{Client, ClientOptions};
use mpxdp_sim::{Content, Pattern, Sender, SenderOptions};

use crate::connection::Announced;
use crate::listener::{Backlog, Directory, Entrance, Limits, Listener};
use crate::port::{MemoryOptions, MemoryPort, Port, receive_packets, send_packet};
use crate::receive::RingConfig;
use crate::stats::{TableSizes, WorkerReport};
use crate::stream::Stream;
use crate::worker::{Attached, Entropy, Handle, JoinLimits, PortFacts, Shared, Worker};

/// Where the worker listens.
pub(super) fn server() -> SocketAddr {
    "10.0.0.2:5001".parse().unwrap()
}

/// What happens to packets on the cable.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weather {
    /// Of 256 packets, so many are lost.
    pub(super) loss: u8,
    /// So many come twice.
    pub(super) duplicate: u8,
    /// So many come after the next ones.
    pub(super) reorder: u8,
    /// So many come with a bit turned over.
    pub(super) corrupt: u8,
}

/// One direction of the cable: a delay, and the weather.
struct Way {
    weather: Weather,
    delay: Duration,
    random: u64,
    under_way: VecDeque<(Instant, Vec<u8>)>,
}

impl Way {
    fn chance(&mut self, of_256: u8) -> bool {
        // xorshift64: reproducible, and random enough to lose packets by.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 32) as u8 > 255 - of_256
    }

    fn put(&mut self, now: Instant, packet: &[u8]) {
        let Weather { loss, duplicate, reorder, corrupt } = self.weather;
        if self.chance(loss) {
            return;
        }
        let mut packet = packet.to_vec();
        if self.chance(corrupt) {
            let at = self.random as usize % packet.len();
            packet[at] ^= 1 << (self.random >> 61);
        }
        let mut at = now + self.delay;
        if self.chance(reorder) {
            at = at + self.delay * 3;
        }
        if self.chance(duplicate) {
            self.under_way.push_back((at + self.delay, packet.clone()));
        }
        self.under_way.push_back((at, packet));
    }

    fn take(&mut self, now: Instant) -> Option<Vec<u8>> {
        let first = self.under_way.iter().position(|(at, _)| *at <= now)?;
        self.under_way.remove(first).map(|(_, packet)| packet)
    }

    fn next(&self) -> Option<Instant> {
        self.under_way.iter().map(|(at, _)| *at).min()
    }
}

/// How the world is made.
pub(super) struct Setup {
    pub(super) protocol: Config,
    pub(super) ring: RingConfig,
    pub(super) limits: Limits,
    pub(super) joins: JoinLimits,
    /// Further addresses that peers are told of.
    pub(super) announced: Vec<SocketAddr>,
    pub(super) weather: Weather,
    pub(super) seed: u64,
    pub(super) mtu: u32,
    /// How many workers there are; each has a cable of its own.
    pub(super) workers: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            protocol: Config { time_wait: Duration::from_secs(5), ..Config::default() },
            ring: RingConfig { initial: 256 << 10, limit: 1 << 20, ..RingConfig::default() },
            limits: Limits { backlog: 64, half_open: 64, half_open_per_source: 64 },
            joins: JoinLimits { subflows: 8, pending: 64, close_timeout: Duration::from_secs(60) },
            announced: Vec::new(),
            weather: Weather::default(),
            seed: 1,
            mtu: 1500,
            workers: 1,
        }
    }
}

/// One worker and the far end of its cable.
pub(super) struct Seat {
    pub(super) worker: Worker<MemoryPort>,
    pub(super) handle: Arc<Handle>,
    pub(super) far: MemoryPort,
}

pub(super) struct World {
    pub(super) now: Instant,
    pub(super) seats: Vec<Seat>,
    pub(super) shared: Arc<Shared>,
    pub(super) listener: Option<Listener>,
    pub(super) senders: Vec<Sender>,
    /// The cable that packets to the worker take now.
    pub(super) route: usize,
    pub(super) clients: Vec<Client>,
    /// What clients have sent: when it arrives, on which cable.
    lanes: Vec<(Instant, usize, Vec<u8>)>,
    there: Way,
    back: Way,
    /// Frames that came back and are for no sender.
    pub(super) unclaimed: Vec<Vec<u8>>,
}

impl World {
    pub(super) fn new(setup: Setup) -> Self {
        let Setup { protocol, ring, limits, joins, announced, weather, seed, mtu, workers } = setup;
        let shared = Arc::new(Shared::new(protocol, ring, joins, Entropy::seeded(seed)).unwrap());
        let seats: Vec<Seat> = (0..workers)
            .map(|index| {
                let options = MemoryOptions { receive_frames: 512, ..MemoryOptions::default() };
                let (near, far) = MemoryPort::pair(options);
                let nic = format!("mem{index}").into();
                let facts = PortFacts { nic, queue: index as u32, mtu, gone: false };
                let ports = vec![Attached { port: near, facts }];
                let (worker, handle) =
                    Worker::new(index, None, ports, Arc::clone(&shared)).unwrap();
                Seat { worker, handle, far }
            })
            .collect();
        shared.introduce(seats.iter().map(|seat| Arc::clone(&seat.handle)).collect());
        let way = |random| Way {
            weather,
            delay: Duration::from_micros(50),
            random: random | 1,
            under_way: VecDeque::new(),
        };
        let mut world = Self {
            now: Instant(3_600_000_000_000),
            seats,
            listener: None,
            senders: Vec::new(),
            clients: Vec::new(),
            lanes: Vec::new(),
            route: 0,
            there: way(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            back: way(seed.wrapping_mul(0xbf58_476d_1ce4_e5b9)),
            unclaimed: Vec::new(),
            shared,
        };
        world.listener = Some(world.listen_and_announce(server(), limits, &announced));
        world
    }

    pub(super) fn listen(&self, at: SocketAddr, limits: Limits) -> Listener {
        self.listen_and_announce(at, limits, &[])
    }

    fn listen_and_announce(
        &self,
        at: SocketAddr,
        limits: Limits,
        announced: &[SocketAddr],
    ) -> Listener {
        let entrance = Arc::new(Entrance::default());
        let local = std::iter::once(&at).chain(announced).map(SocketAddr::ip).collect();
        let announced =
            announced.iter().zip(1..).map(|(at, n)| Announced { id: AddressId(n), at: *at });
        entrance.set(local, announced.collect());
        let backlog = Backlog::new(entrance, limits).unwrap();
        let directory: &Arc<Directory> = &self.shared.listeners;
        assert!(directory.add(at, &backlog));
        Listener::new(at, backlog, Arc::clone(directory))
    }

    /// The options of client number `n`, which sends `len` bytes of the pattern of its number.
    pub(super) fn options(n: u16, len: u64) -> SenderOptions {
        let local = SocketAddr::new([10, 0, 0, 1].into(), 40_000 + n);
        let content = Content::Pattern { pattern: Pattern::new(n.into()), len };
        SenderOptions::new(local, server(), content)
    }

    /// Adds a client, and gives its place.
    pub(super) fn connect(&mut self, options: SenderOptions) -> usize {
        self.senders.push(Sender::new(options));
        self.senders.len() - 1
    }

    /// Adds a client with several subflows, and gives its place.
    pub(super) fn join(&mut self, options: ClientOptions) -> usize {
        self.clients.push(Client::new(options));
        self.clients.len() - 1
    }

    /// Puts a frame on the cable to the worker, whatever the weather.
    pub(super) fn inject(&mut self, frame: &[u8]) {
        let far = &mut self.seats[self.route].far;
        assert!(send_packet(far, frame));
        far.flush().unwrap();
    }

    /// Does everything that is due now; says whether there was something.
    fn step(&mut self) -> bool {
        let mut busy = false;
        let mut buf = vec![0; 1 << 17];
        for sender in &mut self.senders {
            sender.on_timeout(self.now);
            while let Some(len) = sender.poll_frame(self.now, &mut buf) {
                self.there.put(self.now, &buf[..len]);
                busy = true;
            }
        }
        busy |= self.step_clients();
        while let Some(packet) = self.there.take(self.now) {
            let far = &mut self.seats[self.route].far;
            busy = true;
            // A packet for which there is no frame is lost, as on a NIC.
            if !send_packet(far, &packet) {
                break;
            }
            far.flush().unwrap();
        }
        for seat in &mut self.seats {
            seat.far.flush().unwrap();
            busy |= seat.worker.turn(self.now).busy;
            let back = &mut self.back;
            let now = self.now;
            receive_packets(&mut seat.far, 4096, |packet| back.put(now, packet));
        }
        while let Some(packet) = self.back.take(self.now) {
            busy = true;
            let frame = parse_frame(&packet, packet.len()).ok();
            let (now, clients) = (self.now, &mut self.clients);
            let mut claimed =
                frame.is_some_and(|frame| clients.iter_mut().any(|c| c.on_frame(now, &frame)));
            for sender in &mut self.senders {
                let before = sender.statistics().ignored;
                sender.on_frame(self.now, &packet);
                claimed |= sender.statistics().ignored == before;
            }
            if !claimed {
                self.unclaimed.push(packet);
            }
        }
        busy
    }

    /// Has the clients do what they do by themselves, and puts what came through into the cables.
    fn step_clients(&mut self) -> bool {
        let now = self.now;
        let mut sent = Vec::new();
        for client in &mut self.clients {
            client.poll(now);
            sent.extend(client.take_out());
        }
        let mut busy = !sent.is_empty();
        for (path, frame) in sent {
            // Handshakes come through: how they fare in bad weather is tested with the subflow.
            if frame.len() < 300 || !self.there.chance(self.there.weather.loss) {
                self.lanes.push((now + path.delay, path.seat, frame));
            }
        }
        // In the order in which they were sent, as `lanes` is.
        for (_, seat, frame) in self.lanes.extract_if(.., |(at, ..)| *at <= now) {
            let far = &mut self.seats[seat].far;
            busy = true;
            send_packet(far, &frame);
            far.flush().unwrap();
        }
        busy
    }

    /// Lets everything that is due now happen, and then time pass until something is; no more
    /// than `most`.
    pub(super) fn advance(&mut self, most: Duration) {
        let mut steps = 0;
        while self.step() {
            steps += 1;
            assert!(steps < 100_000, "the world does not come to rest");
        }
        let due = self.seats.iter().filter_map(|seat| seat.worker.core.next_due());
        let due = due
            .chain(self.senders.iter().filter_map(Sender::next_timeout))
            .chain(self.clients.iter().filter_map(Client::next_timeout))
            .chain(self.lanes.iter().map(|(at, ..)| *at))
            .chain(self.there.next())
            .chain(self.back.next());
        let limit = self.now + most;
        self.now = due.min().map_or(limit, |at| at.max(self.now + MOMENT).min(limit));
    }

    /// Lets `time` pass.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.advance(end.saturating_since(self.now));
        }
    }

    /// Accepts what waits.
    pub(super) fn accept(&mut self) -> Option<Reading> {
        let stream = self.listener.as_ref()?.try_accept().unwrap()?;
        Some(Reading::new(stream))
    }

    /// Accepts, reads and closes whatever comes, until all clients are done or `time` has passed.
    pub(super) fn serve(&mut self, time: Duration) -> Vec<Reading> {
        let (mut open, mut ended): (Vec<Reading>, _) = (Vec::new(), Vec::new());
        let end = self.now + time;
        while self.now < end {
            open.extend(std::iter::from_fn(|| self.accept()));
            for reading in &mut open {
                reading.read();
            }
            ended.extend(open.extract_if(.., |reading| reading.end.is_some()).map(|mut r| {
                r.close();
                r
            }));
            if open.is_empty()
                && self.senders.iter().all(|s| s.is_done() || s.failure().is_some())
                && self.clients.iter().all(Client::is_done)
            {
                break;
            }
            self.advance(Duration::from_millis(10));
        }
        ended.extend(open);
        ended
    }

    /// Asserts that nothing is left of any connection, once TIME-WAIT is over.
    pub(super) fn assert_empty(&mut self) {
        // The longest is a FIN whose last acknowledgement was lost, retransmitted to the end.
        self.pass(Duration::from_secs(300));
        assert_eq!(self.shared.tokens.len(), 0, "tokens are left");
        for seat in &mut self.seats {
            seat.worker.publish_tables();
            let report = seat.handle.counters.report(None);
            assert_eq!(report.tables, TableSizes::default());
            for attached in &seat.worker.ports {
                let frames = attached.port.frames();
                assert!(frames.is_conserved() && frames.held == 0, "{frames:?}");
            }
        }
    }

    pub(super) fn report(&self, seat: usize) -> WorkerReport {
        self.seats[seat].handle.counters.report(None)
    }

    pub(super) fn dropped(&self, reason: &str) -> u64 {
        let count = |seat: &Seat| {
            let report = seat.handle.counters.report(None);
            report.drops.iter().find(|(name, _)| *name == reason).map_or(0, |(_, n)| *n)
        };
        self.seats.iter().map(count).sum()
    }
}

/// The least time that passes when nothing can be done at once.
const MOMENT: Duration = Duration::from_micros(10);

/// A stream, and a check of every byte that it gives.
pub(super) struct Reading {
    pub(super) stream: Option<Stream>,
    pattern: Pattern,
    pub(super) bytes: u64,
    /// How it ended: the kind of the error, or `None` inside for the end of the stream.
    pub(super) end: Option<Option<ErrorKind>>,
    pub(super) statistics: Option<crate::ConnectionStatistics>,
}

impl Reading {
    fn new(mut stream: Stream) -> Self {
        stream.set_nonblocking(true);
        let pattern = Pattern::new(u64::from(stream.peer_addr().port() - 40_000));
        Self { stream: Some(stream), pattern, bytes: 0, end: None, statistics: None }
    }

    /// Reads everything that is there.
    pub(super) fn read(&mut self) {
        self.read_up_to(usize::MAX);
    }

    /// Reads no more than `most` bytes.
    pub(super) fn read_up_to(&mut self, mut most: usize) {
        let Some(stream) = &mut self.stream else { return };
        while most > 0 && self.end.is_none() {
            match stream.fill_buf() {
                Ok([]) => self.end = Some(None),
                Ok(bytes) => {
                    let n = bytes.len().min(most);
                    self.pattern.check(self.bytes, &bytes[..n]).unwrap();
                    stream.consume(n);
                    self.bytes += n as u64;
                    most -= n;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => self.end = Some(Some(e.kind())),
            }
        }
    }

    /// Drops the stream.
    pub(super) fn close(&mut self) {
        self.statistics = self.stream.take().map(|stream| stream.statistics());
    }
}
