//! The engine's workers, the network and the clients, in virtual time, and what the model says of
//! each connection.

use std::io::BufRead;
use std::net::SocketAddr;
use std::time::Duration;

use mpxdp::port::{MemoryOptions, MemoryPort, Port, receive_packets, send_packet};
use mpxdp::virtual_time::Workers;
use mpxdp::{Checksums, EngineConfig, Listener, Stream, TableSizes};
use mpxdp_proto::time::Instant;
use mpxdp_proto::wire::parse_frame;
use mpxdp_sim::client::{Client, ClientOptions, Path, State};
use mpxdp_sim::middlebox::{ChainSpec, Kind};
use mpxdp_sim::network::{LinkId, Network, NodeId, Step};
use mpxdp_sim::{Content, FirstData, Pattern, Sender, SenderOptions};

use crate::case::{Case, ClientShape, LINKS, SenderShape};
use crate::edges::RightEdges;

const WORKERS: usize = 2;
/// Every engine time is this much later than the network's, which begins at 0.
const START: Duration = Duration::from_secs(3600);
/// The least time that passes when nothing can be done at once.
const MOMENT: Duration = Duration::from_micros(10);
/// Ports of senders.
const SENDERS: std::ops::Range<u16> = 50_000..60_000;
/// Subflows that are opened later have ports below this.
const LAST_PORT: u16 = 61_000;
/// A ring that does not grow, since that takes a thread.
const RING: usize = mpxdp::receive::MIN_CAPACITY;
/// More than all connections of a case take.
const MEMORY: usize = 24 * RING;

/// What becomes of a client's stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// Its reader gets all of it, and the client is told so.
    Whole,
    /// Its reader gets some of it from the beginning on: somebody has aborted, or the network may
    /// have taken MPTCP's options from a connection that could not go on without.
    Part,
}

/// What a client sends, and what is to become of it.
#[derive(Clone, Copy, Debug)]
struct Expected {
    pattern: Pattern,
    len: u64,
    fate: Fate,
}

/// A stream, and a check of every byte that it gives.
struct Reading {
    stream: Option<Stream>,
    /// The client by its place among all, clients before senders.
    from: usize,
    bytes: u64,
    /// The stream has ended: well, or by an error.
    end: Option<bool>,
}

pub(crate) struct World {
    network: Network,
    /// The hosts of all clients, and the engine's.
    hosts: NodeId,
    engine: NodeId,
    links: Vec<LinkId>,
    workers: Workers<MemoryPort>,
    /// The far end of the port on each link.
    cables: Vec<MemoryPort>,
    listener: Option<Listener>,
    clients: Vec<Client>,
    senders: Vec<Sender>,
    /// Of each client and then of each sender.
    expected: Vec<Expected>,
    readings: Vec<Reading>,
    /// The links that change sequence numbers.
    renumbering: Vec<bool>,
    /// Subflows, by their client and place, whose numbers changed on their way.
    torn: Vec<(usize, usize)>,
    /// The windows of senders, which all take the last link.
    edges: RightEdges,
    /// Whether that link keeps the order of what it carries.
    ordered: bool,
    /// Whether it translates ports.
    translated: bool,
    /// Ports of subflows that are opened later.
    next_port: u16,
    scratch: Vec<u8>,
    /// Whether to print what arrives.
    trace: bool,
}

fn server() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], 5001))
}

/// The address of a client's first subflow; the others have the ports behind it.
fn home(client: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 40_000 + 100 * client as u16))
}

fn sender_home(sender: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], SENDERS.start + sender as u16))
}

fn path(local: SocketAddr, link: u8) -> Path {
    // The delay is the link's.
    Path { local, remote: server(), seat: link.into(), delay: Duration::ZERO }
}

/// Whether frames come through it, and in order.
const fn is_harmless(kind: &Kind) -> bool {
    matches!(kind, Kind::Delay { .. } | Kind::Duplicate(_) | Kind::Sequence | Kind::Split { .. })
}

const fn is_over(state: State) -> bool {
    matches!(state, State::Closed | State::Reset(_))
}

fn keeps_order(link: &ChainSpec) -> bool {
    !link.items.iter().any(|item| matches!(item.kind, Kind::Reorder { .. }))
}

fn translates(link: &ChainSpec) -> bool {
    link.items.iter().any(|item| matches!(item.kind, Kind::Nat { .. }))
}

fn renumbers(link: &ChainSpec) -> bool {
    link.items.iter().any(|item| matches!(item.kind, Kind::Sequence))
}

impl World {
    pub(crate) fn new(case: &Case) -> Self {
        let config = EngineConfig {
            receive_initial: RING,
            receive_limit: RING,
            memory_limit: MEMORY,
            half_open: if case.cookies { 0 } else { 64 },
            checksums: Checksums::Accept,
            time_wait: Duration::from_secs(5),
            ..EngineConfig::default()
        };
        let mut network = Network::new(case.seed);
        let (hosts, engine) = (network.add_node(), network.add_node());
        let (mut near, mut cables, mut links) = (Vec::new(), Vec::new(), Vec::new());
        for (number, spec) in (0..u16::from(LINKS)).zip(&case.links) {
            let ends = (hosts.interface(number), engine.interface(number));
            links.push(network.connect(ends.0, ends.1, spec));
            let options =
                MemoryOptions { frame_size: 2048, receive_frames: 256, transmit_frames: 16 };
            let (end, far) = MemoryPort::pair(options);
            near.push(end);
            cables.push(far);
        }
        let mut near = near.into_iter();
        let each = usize::from(LINKS) / WORKERS;
        let ports: Vec<_> = (0..WORKERS).map(|_| near.by_ref().take(each).collect()).collect();
        let workers = Workers::new(config, case.seed, 1500, ports).expect("there are descriptors");
        let further = [SocketAddr::from(([10, 0, 0, 3], 5001))];
        let announced = if case.announces { &further[..] } else { &[] };
        let listener = workers.listen(server(), announced).expect("nobody else listens");
        let mut world = Self {
            network,
            hosts,
            engine,
            links,
            workers,
            cables,
            listener: Some(listener),
            clients: Vec::new(),
            senders: Vec::new(),
            expected: Vec::new(),
            readings: Vec::new(),
            renumbering: case.links.iter().map(renumbers).collect(),
            torn: Vec::new(),
            edges: RightEdges::default(),
            ordered: case.links.last().is_some_and(keeps_order),
            translated: case.links.last().is_some_and(translates),
            next_port: 60_000,
            scratch: vec![0; 1 << 17],
            trace: mpxdp_fuzz::is_traced(),
        };
        for shape in &case.clients {
            world.add_client(shape);
        }
        let odd = case.links.last().is_some_and(|chain| chain.to_string().contains("strip"));
        for shape in &case.senders {
            world.add_sender(shape, if odd { Fate::Part } else { Fate::Whole });
        }
        // Nothing is kept of a handshake by cookie: if both its last packet and the first data get
        // lost or come late, the next is answered by a reset.
        let is_calm = |link: &ChainSpec| link.items.iter().all(|item| is_harmless(&item.kind));
        if case.cookies && !case.links.iter().all(is_calm) {
            world.expected.iter_mut().for_each(|expected| expected.fate = Fate::Part);
        }
        world
    }

    fn add_client(&mut self, shape: &ClientShape) {
        let home = home(self.clients.len());
        let local = |k: u16| SocketAddr::new(home.ip(), home.port() + k);
        let paths = (0..).zip(&shape.links).map(|(k, &link)| path(local(k), link)).collect();
        let len = u64::from(shape.chunk) * u64::from(shape.chunks);
        let (chunk, checksums) = (shape.chunk.into(), shape.checksums);
        let first_data = FirstData::Capable;
        let options =
            ClientOptions { chunk, checksums, first_data, ..ClientOptions::new(len, paths) };
        self.clients.push(Client::new(options));
        let pattern = Pattern::new((home.port() - 40_000).into());
        self.expected.push(Expected { pattern, len, fate: Fate::Whole });
    }

    fn add_sender(&mut self, shape: &SenderShape, fate: Fate) {
        let number = self.senders.len();
        let pattern = Pattern::new(1000 + number as u64);
        let len = shape.len.into();
        let content = Content::Pattern { pattern, len };
        let options = SenderOptions::new(sender_home(number), server(), content);
        self.senders.push(Sender::new(SenderOptions {
            mptcp: shape.mptcp,
            mss: shape.mss,
            timestamps: shape.timestamps,
            window_scale: options.window_scale.filter(|_| shape.scaled),
            max_timeouts: 100,
            ..options
        }));
        self.expected.push(Expected { pattern, len, fate });
    }

    fn now(&self) -> Instant {
        self.network.now() + START
    }

    /// Does everything that is due now; says whether there was something.
    fn step(&mut self) -> bool {
        let now = self.now();
        let mut busy = false;
        for client in &mut self.clients {
            client.poll(now);
            for (path, frame) in client.take_out() {
                busy = true;
                self.network.send(self.hosts.interface(path.seat as u16), frame);
            }
        }
        for sender in &mut self.senders {
            sender.on_timeout(now);
            while let Some(len) = sender.poll_frame(now, &mut self.scratch) {
                busy = true;
                let last = u16::from(LINKS) - 1;
                self.network.send(self.hosts.interface(last), self.scratch[..len].to_vec());
            }
        }
        for worker in 0..WORKERS {
            busy |= self.workers.turn(worker, now);
        }
        for (cable, number) in self.cables.iter_mut().zip(0..) {
            cable.flush().expect("a cable in memory takes everything");
            let (network, from) = (&mut self.network, self.engine.interface(number));
            let to_senders = number == u16::from(LINKS) - 1;
            receive_packets(cable, usize::MAX, |packet| {
                // A client's windows are those of all its subflows. Who is behind a translator is not
                // seen here.
                let of_sender = || {
                    let frame = parse_frame(packet, packet.len()).expect("what is sent is right");
                    self.clients.is_empty()
                        || !self.translated && SENDERS.contains(&frame.local.port())
                };
                if to_senders && of_sender() {
                    self.edges.note(packet);
                }
                network.send(from, packet.to_vec());
            });
        }
        for frames in self.workers.frames() {
            assert!(frames.is_conserved() && frames.held == 0, "{frames:?}");
        }
        assert!(self.workers.memory_in_use() <= MEMORY);
        busy
    }

    /// Lets everything that is due now happen, and then time pass until something is; not beyond
    /// `end`, on the network's clock.
    fn advance(&mut self, end: Instant) {
        let mut steps = 0;
        while self.step() {
            steps += 1;
            assert!(steps < 10_000, "the world does not come to rest");
        }
        let due = self.workers.next_due();
        let due = due
            .into_iter()
            .chain(self.clients.iter().filter_map(Client::next_timeout))
            .chain(self.senders.iter().filter_map(Sender::next_timeout))
            .map(|at| at - START)
            .min();
        let now = self.network.now();
        let timer = due.map_or(end, |at| at.max(now + MOMENT).min(end));
        self.network.set_timer(self.engine, Some(timer));
        let mut step = self.network.step(end);
        // What arrives at the same moment makes one burst.
        while let Step::Frame { to, interface, frame } = step {
            self.deliver(to, interface, &frame);
            step = self.network.step(self.network.now());
        }
        assert_ne!(step, Step::Exhausted);
    }

    fn deliver(&mut self, to: NodeId, interface: u16, frame: &[u8]) {
        if self.trace {
            mpxdp_fuzz::show(self.now(), if to == self.engine { "->" } else { "<-" }, frame);
        }
        if to == self.engine {
            let cable = &mut self.cables[usize::from(interface)];
            // Without a free frame it is lost, as on a NIC.
            let _ = send_packet(cable, frame);
            cable.flush().expect("a cable in memory takes everything");
            return;
        }
        let now = self.now();
        let Ok(parsed) = parse_frame(frame, frame.len()) else { return };
        if !parsed.is_checksum_right(frame) {
            return;
        }
        if !self.clients.iter_mut().any(|client| client.on_frame(now, &parsed)) {
            for sender in &mut self.senders {
                sender.on_frame(now, frame);
            }
        }
    }

    /// Lets `time` pass, and accepts what comes.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.network.now() + time;
        while self.network.now() < end {
            self.advance(end);
            self.accept();
        }
    }

    fn accept(&mut self) {
        while let Some(listener) = &self.listener
            && let Some(mut stream) = listener.try_accept().expect("the engine runs")
        {
            stream.set_nonblocking(true);
            let peer = stream.peer_addr();
            let clients = (0..self.clients.len()).map(home);
            let all = clients.chain((0..self.senders.len()).map(sender_home));
            // Behind a translator only the address is what it was; what comes is told by its bytes.
            let from = all.into_iter().position(|home| home == peer);
            self.readings.push(Reading {
                stream: Some(stream),
                from: from.unwrap_or(usize::MAX),
                bytes: 0,
                end: None,
            });
        }
    }

    /// Checks that no client was told of data that its reader cannot get. DATA_FIN counts as one.
    fn check_told(&self) {
        for reading in &self.readings {
            if let Some(client) = self.clients.get(reading.from)
                && let Some(stream) = &reading.stream
                && reading.end.is_none()
            {
                let there = reading.bytes + stream.available() as u64;
                assert!(client.acked <= there + 1, "{} of {there} acknowledged", client.acked);
            }
        }
    }

    /// Has a reader read up to `most` bytes.
    pub(crate) fn read(&mut self, reader: usize, most: usize) {
        self.check_told();
        if let Some(reading) = self.readings.get_mut(reader) {
            reading.read(most, &self.expected, self.clients.len());
        }
    }

    /// A client opens a further subflow, once it knows the token.
    pub(crate) fn open(&mut self, client: usize, link: u8) {
        let now = self.now();
        let local = SocketAddr::new(home(0).ip(), self.next_port);
        if let Some(client) = self.clients.get_mut(client)
            && client.acked > 0
        {
            self.next_port += 1;
            client.open(now, path(local, link));
        }
    }

    /// A client resets a subflow if another is left.
    pub(crate) fn end(&mut self, client: usize, subflow: usize) {
        let Some(client) = self.clients.get_mut(client) else { return };
        let live = |n: usize| client.subflows.get(n).is_some_and(|s| s.state == State::Established);
        let others = (0..client.subflows.len()).any(|n| n != subflow && live(n));
        if live(subflow) && others {
            client.reset(subflow, false);
        }
    }

    /// What a client sends on a subflow takes another link.
    ///
    /// If it leaves a middlebox that shifts its sequence numbers, or meets one with its SYN, it is a TCP
    /// connection that no longer works: what either side sends is outside the other's window, a reset
    /// too. The receiver cannot know why, so it is the client that gives it up (see
    /// [`mend`](Self::mend)). It goes on by another subflow, which it can open as soon as it knows that
    /// the server has taken some of its data as MPTCP; until then, nothing is promised.
    pub(crate) fn shift(&mut self, number: usize, subflow: usize, link: u8) {
        if let Some(client) = self.clients.get_mut(number)
            && let Some(shifted) = client.subflows.get_mut(subflow)
        {
            let left = std::mem::replace(&mut shifted.path.seat, link.into());
            let renumbering = |seat: usize| self.renumbering[seat];
            let begins = shifted.state == State::SynSent && renumbering(link.into());
            if left != usize::from(link) && (renumbering(left) || begins) {
                self.torn.push((number, subflow));
                if client.acked == 0 {
                    self.expected[number].fate = Fate::Part;
                }
            }
        }
    }

    /// A client says on another subflow that it has given up the address of one.
    pub(crate) fn remove(&mut self, client: usize, subflow: usize) {
        let Some(client) = self.clients.get_mut(client) else { return };
        let live = |n: &usize| client.subflows[*n].state == State::Established;
        let other = (0..client.subflows.len()).filter(live).find(|n| *n != subflow);
        if let Some(other) = other {
            client.remove_addresses(other, &[subflow as u8]);
        }
    }

    pub(crate) fn set_link(&mut self, link: u8, up: bool) {
        self.network.set_link(self.links[usize::from(link)], up);
    }

    /// A reader goes away, which aborts its connection unless it has read it to its end.
    pub(crate) fn leave(&mut self, reader: usize) {
        let Some(reading) = self.readings.get_mut(reader) else { return };
        if reading.stream.is_some() && reading.end != Some(true) {
            match self.expected.get_mut(reading.from) {
                Some(expected) => expected.fate = Fate::Part,
                // A sender's port was translated, and nothing came yet to tell which.
                None => {
                    let senders = &mut self.expected[self.clients.len()..];
                    senders.iter_mut().for_each(|sender| sender.fate = Fate::Part);
                }
            }
        }
        reading.stream = None;
    }

    /// A client resets its connection.
    pub(crate) fn abort(&mut self, client: usize) {
        let Some(aborting) = self.clients.get_mut(client) else { return };
        if let Some(live) = aborting.subflows.iter().position(|s| s.state == State::Established) {
            aborting.reset(live, true);
            // The other subflows are the server's to reset.
            aborting.set_automatic(false);
            self.expected[client].fate = Fate::Part;
        }
    }

    /// All links are up again, and clients give up the subflows that no longer work.
    pub(crate) fn mend(&mut self) {
        for link in &self.links {
            self.network.set_link(*link, true);
        }
        for (client, subflow) in std::mem::take(&mut self.torn) {
            let client = &mut self.clients[client];
            if !is_over(client.subflows[subflow].state) {
                client.reset(subflow, false);
            }
        }
    }

    /// Everybody reads, clients without a subflow open one, until all clients are done or `time` has
    /// passed.
    pub(crate) fn serve(&mut self, time: Duration) {
        let end = self.network.now() + time;
        while self.network.now() < end {
            self.accept();
            self.check_told();
            for reading in &mut self.readings {
                reading.read(usize::MAX, &self.expected, self.clients.len());
                if reading.end.is_some() {
                    reading.stream = None;
                }
            }
            for client in 0..self.clients.len() {
                let subflows = &self.clients[client].subflows;
                let stranded = !subflows.is_empty()
                    && subflows.iter().all(|s| is_over(s.state))
                    && !self.clients[client].is_acknowledged();
                // One that is refused again and again will not come to its end.
                if stranded
                    && self.expected[client].fate == Fate::Whole
                    && self.next_port < LAST_PORT
                {
                    self.open(client, 0);
                }
            }
            let clients = self.clients.iter().zip(&self.expected);
            let done = clients.filter(|(_, e)| e.fate == Fate::Whole).all(|(c, _)| c.is_done());
            let senders = |s: &Sender| s.is_done() || s.failure().is_some();
            if done && self.senders.iter().all(senders) {
                return;
            }
            self.advance(self.network.now() + Duration::from_millis(20));
        }
    }

    /// Whether all clients know that the server has all of theirs.
    pub(crate) fn are_acknowledged(&self) -> bool {
        self.clients.iter().all(Client::is_acknowledged)
    }

    pub(crate) fn fates(&self) -> Vec<Fate> {
        self.expected.iter().map(|expected| expected.fate).collect()
    }

    /// Checks that what was to be read whole was, once, and that its client knows.
    pub(crate) fn check_whole(&self) {
        for (from, expected) in self.expected.iter().enumerate() {
            let mut readings = self.readings.iter().filter(|reading| reading.from == from);
            // A SYN that was sent twice may have opened a second connection, that gets nowhere.
            let whole = readings
                .clone()
                .filter(|reading| reading.end == Some(true) && reading.bytes == expected.len)
                .count();
            if expected.fate == Fate::Part {
                assert!(whole <= 1);
                continue;
            }
            let client = self.clients.get(from);
            assert!(client.is_none_or(Client::is_acknowledged), "{from}: {client:?}");
            let sender = from.checked_sub(self.clients.len()).map(|n| &self.senders[n]);
            assert!(sender.is_none_or(Sender::is_done), "{from}: {sender:?}");
            assert!(
                whole == 1 || sender.is_some() && readings.next().is_none(),
                "{whole} readers have all of {from}"
            );
        }
        // Where options get lost, the two may disagree on whether there is a data level.
        let clear = self.expected[self.clients.len()..].iter().map(|e| e.fate == Fate::Whole);
        for (sender, _) in self.senders.iter().zip(clear).filter(|(_, clear)| *clear) {
            // Of two acknowledgements of the same data the network may turn the order; `edges` knows
            // in which they were sent.
            assert!(!self.ordered || sender.statistics().window_taken_back == 0);
            assert_eq!(sender.statistics().false_acks, 0);
        }
    }

    /// Checks that nothing is left of any connection once everybody has gone.
    pub(crate) fn assert_empty(mut self) {
        self.readings.clear();
        self.listener = None;
        self.clients.clear();
        self.senders.clear();
        self.pass(Duration::from_secs(600));
        assert_eq!(self.workers.next_due(), None, "something still waits");
        assert_eq!(self.workers.tokens_in_use(), 0, "tokens are left");
        assert_eq!(self.workers.memory_in_use(), 0, "memory is left");
        for worker in 0..WORKERS {
            let report = self.workers.report(worker);
            assert_eq!(report.tables, TableSizes::default());
            let refused = report.drops.iter().find(|(name, _)| *name == "receive_ring_refused");
            // What came in one burst with the end of its connection has no place any more.
            let calm = self.expected.iter().all(|expected| expected.fate == Fate::Whole);
            assert!(!calm || refused.is_none(), "acknowledged data had no place");
        }
    }
}

impl Reading {
    fn read(&mut self, mut most: usize, expected: &[Expected], clients: usize) {
        let Some(stream) = &mut self.stream else { return };
        while most > 0 && self.end.is_none() {
            match stream.fill_buf() {
                Ok([]) => self.end = Some(true),
                Ok(bytes) => {
                    let n = bytes.len().min(most);
                    let whose = |of: &Expected| of.pattern.check(self.bytes, &bytes[..n]).is_ok();
                    if self.from == usize::MAX {
                        // A sender's port was translated.
                        let sender = expected[clients..].iter().position(whose);
                        self.from = clients + sender.expect("somebody's bytes");
                    }
                    let from = &expected[self.from];
                    from.pattern.check(self.bytes, &bytes[..n]).expect("the client's bytes");
                    stream.consume(n);
                    self.bytes += n as u64;
                    most -= n;
                    assert!(self.bytes <= from.len, "more than was sent");
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(_) => self.end = Some(false),
            }
        }
    }
}
