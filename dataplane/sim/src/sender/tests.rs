//! The sender against the protocol core of mpxdp, over a network in virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;

use mpxdp_proto::config::Config;
use mpxdp_proto::connection::{Connection, LocalKey, Mode as ConnectionMode};
use mpxdp_proto::segment::Flags;
use mpxdp_proto::seq::StreamOffset;
use mpxdp_proto::subflow::{Disposition, Event, PassiveOpening, Placement, Subflow, reset_for};
use mpxdp_proto::wire::{Frame, IpFields, emit_frame, parse_frame};
use proptest::prelude::*;

use super::*;

/// What a network does to frames; each is a share of 256 of them.
#[derive(Clone, Copy, Debug, Default)]
struct Network {
    lose: u8,
    double: u8,
    delay: u8,
    damage: u8,
}

/// A small generator, so that a run can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn happens(&mut self, share: u8) -> bool {
        (self.next() >> 20) as u8 <= share && share > 0
    }
}

/// A server: one subflow, its connection, and a plain vector as the receive ring.
struct Server {
    config: Arc<Config>,
    subflow: Option<Subflow>,
    connection: Connection,
    /// The stream: what is here of it, by place.
    pieces: BTreeMap<u64, Vec<u8>>,
    stream: Vec<u8>,
    read: u64,
    window: u64,
    /// The reader takes so many bytes at each turn.
    reads: u64,
    reply_to: Option<Frame>,
    answers: Vec<mpxdp_proto::segment::Segment>,
    events: Vec<Event>,
}

const SERVER_KEY: Key = Key(0xfeed_face_cafe_beef);

impl Server {
    fn new(config: Config, window: u64, reads: u64) -> Self {
        Self {
            config: Arc::new(config),
            subflow: None,
            connection: Connection::new(Some(LocalKey::new(SERVER_KEY))),
            pieces: BTreeMap::new(),
            stream: Vec::new(),
            read: 0,
            window,
            reads,
            reply_to: None,
            answers: Vec::new(),
            events: Vec::new(),
        }
    }

    fn view(&self) -> mpxdp_proto::connection::View {
        let edge = StreamOffset(self.stream.len() as u64);
        self.connection.view(edge, StreamOffset(self.read + self.window))
    }

    fn on_frame(&mut self, now: Instant, bytes: &[u8]) {
        let Ok(frame) = parse_frame(bytes, bytes.len()) else {
            return;
        };
        if !frame.is_checksum_right(bytes) {
            return;
        }
        let segment = &frame.segment;
        self.reply_to = Some(frame);
        let view = self.view();
        let Some(subflow) = &mut self.subflow else {
            let opening = PassiveOpening {
                isn: SeqNum(0xffff_fff0),
                timestamp_offset: 77,
                local: self.connection.local_key(),
                mss: 1460,
            };
            match Subflow::passive_open(now, &self.config, segment, &opening) {
                Ok(subflow) => self.subflow = Some(subflow),
                Err(_) => self.answers.extend(reset_for(segment)),
            }
            return;
        };
        let mut placements: Vec<Placement> = Vec::new();
        let disposition = subflow.on_segment(now, segment, &view, &mut placements);
        if let Disposition::Dropped(_) = disposition {
            assert!(placements.is_empty());
        }
        let payload = &bytes[frame.payload_at..frame.end()];
        for Placement { to, at, len, .. } in placements {
            let piece = payload[at as usize..(at + len) as usize].to_vec();
            assert!(to.0 + u64::from(len) <= view.right_edge.0, "beyond the window");
            self.pieces.insert(to.0, piece);
        }
        self.reassemble();
        self.take_events();
    }

    fn reassemble(&mut self) {
        while let Some(entry) = self.pieces.first_entry() {
            let (at, edge) = (*entry.key(), self.stream.len() as u64);
            if at > edge {
                break;
            }
            let piece = entry.remove();
            let known = (edge - at) as usize;
            self.stream.extend_from_slice(piece.get(known..).unwrap_or_default());
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.subflow.as_mut().and_then(Subflow::poll_event) {
            self.connection.on_event(&event);
            self.events.push(event);
        }
    }

    fn turn(&mut self, now: Instant) {
        self.read = (self.read + self.reads).min(self.stream.len() as u64);
        // The application closes when it has read everything.
        if self.view().remote_complete() && self.read == self.stream.len() as u64 {
            self.connection.shutdown_write(StreamOffset::ZERO);
        }
        let view = self.view();
        if let Some(subflow) = &mut self.subflow {
            if subflow.window_update_due(&view) {
                subflow.request_ack();
            }
            if subflow.next_timeout().is_some_and(|at| at <= now) {
                subflow.on_timeout(now, &view);
            }
        }
        self.take_events();
    }

    fn poll_frame(&mut self, now: Instant, buf: &mut [u8]) -> Option<usize> {
        let view = self.view();
        let frame = self.reply_to?;
        let segment = self.answers.pop().or_else(|| {
            self.subflow.as_mut().and_then(|subflow| subflow.poll_transmit(now, &view))
        })?;
        let (link, local, remote) = (frame.link.reply(), frame.local, frame.remote);
        let ip = IpFields::default();
        Some(emit_frame(buf, &link, local, remote, ip, &segment, &[]).expect("a frame fits"))
    }
}

/// Both ends and the network between them.
struct Run {
    now: Instant,
    sender: Sender,
    server: Server,
    network: Network,
    random: Random,
    /// Frames under way by their time of arrival and a running number; to the server or back.
    flying: BTreeMap<(Instant, u64), (bool, Vec<u8>)>,
    sent: u64,
    /// Every segment that the sender sent.
    trace: Vec<mpxdp_proto::segment::Segment>,
}

const LATENCY: Duration = Duration::from_micros(100);

impl Run {
    fn new(sender: SenderOptions, server: Server, network: Network, seed: u64) -> Self {
        Self {
            now: Instant(5_000_000_000),
            sender: Sender::new(sender),
            server,
            network,
            random: Random(seed | 1),
            flying: BTreeMap::new(),
            sent: 0,
            trace: Vec::new(),
        }
    }

    fn fly(&mut self, to_server: bool, mut frame: Vec<u8>) {
        let Network { lose, double, delay, damage } = self.network;
        if self.random.happens(lose) {
            return;
        }
        if self.random.happens(double) {
            self.launch(to_server, frame.clone(), 3);
        }
        if self.random.happens(damage) {
            let at = self.random.next() as usize % frame.len();
            frame[at] ^= 0x10;
        }
        let slower = if self.random.happens(delay) { 1 + self.random.next() % 20 } else { 1 };
        self.launch(to_server, frame, slower);
    }

    fn launch(&mut self, to_server: bool, frame: Vec<u8>, latencies: u64) {
        let arrival = self.now + LATENCY * latencies as u32;
        self.sent += 1;
        self.flying.insert((arrival, self.sent), (to_server, frame));
    }

    fn exchange(&mut self) {
        let mut buf = vec![0; 70_000];
        while let Some(len) = self.sender.poll_frame(self.now, &mut buf) {
            let frame = parse_frame(&buf[..len], len).expect("the sender's frames are right");
            assert!(len <= usize::from(self.sender.options.mss) + 74, "a frame of {len} bytes");
            self.trace.push(frame.segment);
            self.fly(true, buf[..len].to_vec());
        }
        self.server.turn(self.now);
        while let Some(len) = self.server.poll_frame(self.now, &mut buf) {
            self.fly(false, buf[..len].to_vec());
        }
    }

    /// Goes on to the next thing that happens; says `false` if nothing ever will.
    fn step(&mut self) -> bool {
        self.exchange();
        let server = self.server.subflow.as_ref().and_then(Subflow::next_timeout);
        let arrival = self.flying.first_key_value().map(|(&(at, _), _)| at);
        let reading =
            (self.server.read < self.server.stream.len() as u64).then(|| self.now + LATENCY);
        let next =
            [self.sender.next_timeout(), server, arrival, reading].into_iter().flatten().min();
        let Some(next) = next else {
            return false;
        };
        self.now = self.now.max(next);
        while let Some(first) = self.flying.first_entry() {
            if first.key().0 > self.now {
                break;
            }
            let (to_server, frame) = first.remove();
            if to_server {
                self.server.on_frame(self.now, &frame);
            } else {
                self.sender.on_frame(self.now, &frame);
            }
        }
        self.sender.on_timeout(self.now);
        true
    }

    fn run(&mut self) {
        for _ in 0..2_000_000 {
            if self.sender.is_done() || self.sender.failure().is_some() || !self.step() {
                self.exchange();
                return;
            }
        }
        panic!("no end: {:?}, server {:?}", self.sender, self.server.events);
    }

    fn assert_delivered(&self) {
        let Self { sender, server, .. } = self;
        assert!(
            sender.is_done(),
            "{:?} after {} of {} bytes; server: {:?} {:?}",
            sender.phase,
            sender.acknowledged(),
            sender.total(),
            server.events,
            server.subflow.as_ref().map(Subflow::state),
        );
        let mut wanted = vec![0; sender.total() as usize];
        sender.options.content.fill(0, &mut wanted);
        assert!(server.stream == wanted, "the stream differs");
        assert_eq!(sender.acknowledged(), sender.total());
        let SenderStatistics { window_taken_back, false_acks, .. } = sender.statistics();
        assert_eq!(false_acks, 0);
        // Of two acknowledgements that differ in the window only, the network may turn the order.
        assert!(window_taken_back == 0 || self.network.delay + self.network.double > 0);
    }
}

fn pattern(len: u64) -> Content {
    Content::Pattern { pattern: Pattern::new(3), len }
}

fn options(len: u64) -> SenderOptions {
    let (local, remote) = (([10, 0, 0, 1], 40_000).into(), ([10, 0, 0, 2], 5000).into());
    SenderOptions::new(local, remote, pattern(len))
}

fn server() -> Server {
    Server::new(Config::default(), 256 << 10, u64::MAX / 2)
}

fn lossless(sender: SenderOptions) -> Run {
    let mut run = Run::new(sender, server(), Network::default(), 1);
    run.run();
    run.assert_delivered();
    let SenderStatistics { retransmitted, timeouts, ignored, .. } = run.sender.statistics();
    assert_eq!((retransmitted, timeouts, ignored), (0, 0, 0));
    run
}

#[test]
fn a_stream_crosses_by_mptcp_and_ends_with_data_fin() {
    for len in [0, 1, 1447, 1448, 1449, 65_535, 65_536, 65_537, 1 << 20] {
        let run = lossless(options(len));
        assert!(run.sender.is_mptcp());
        assert_eq!(run.server.connection.mode(), ConnectionMode::Mptcp);
        let end = Event::DataFin { at: StreamOffset(len) };
        assert!(run.server.events.contains(&end), "{len} bytes: {:?}", run.server.events);
        assert!(run.server.connection.is_closed(StreamOffset(len)));
    }
}

#[test]
fn a_stream_crosses_by_plain_tcp_and_ends_with_fin() {
    for len in [0, 1, 100_000] {
        let run = lossless(SenderOptions { mptcp: None, ..options(len) });
        assert!(!run.sender.is_mptcp());
        assert_eq!(run.server.connection.mode(), ConnectionMode::Plain(None));
        let end = Event::StreamEnd { at: StreamOffset(len) };
        assert!(run.server.events.contains(&end), "{len} bytes: {:?}", run.server.events);
    }
}

#[test]
fn a_stream_crosses_by_ipv6() {
    let (local, remote) = ("[fd00::1]:40000".parse().unwrap(), "[fd00::2]:5000".parse().unwrap());
    lossless(SenderOptions { local, remote, mss: 1440, ..options(100_000) });
}

#[test]
fn every_form_of_mapping_delivers_the_stream() {
    for long_numbers in [true, false] {
        for mapping_len in [0, 100, 1000, 1460, 5000, 65_534] {
            for straddle in [true, false] {
                for first_data in [FirstData::Capable, FirstData::Dss] {
                    for data_fin_with_data in [true, false] {
                        let mptcp = MptcpOptions {
                            long_numbers,
                            mapping_len,
                            straddle,
                            first_data,
                            data_fin_with_data,
                            ..MptcpOptions::default()
                        };
                        let run =
                            lossless(SenderOptions { mptcp: Some(mptcp), ..options(200_000) });
                        let mode = run.server.connection.mode();
                        assert_eq!(mode, ConnectionMode::Mptcp, "{mptcp:?}");
                        assert!(run.sender.is_mptcp(), "{mptcp:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_mapping_of_many_segments_is_told_once() {
    let mptcp = MptcpOptions { mapping_len: 10_000, ..MptcpOptions::default() };
    let run = lossless(SenderOptions { mptcp: Some(mptcp), ..options(30_000) });
    let told = |segment: &&mpxdp_proto::segment::Segment| {
        let options = &segment.options.mptcp;
        segment.payload_len > 0
            && (options.capable.is_some() || options.dss.is_some_and(|dss| dss.mapping.is_some()))
    };
    assert_eq!(run.trace.iter().filter(told).count(), 3);
    let data = run.trace.iter().filter(|segment| segment.payload_len > 0).count();
    // 1460 bytes less 12 of timestamps and 28 of DSS are 1420: eight segments a mapping.
    assert_eq!(data, 24);
}

#[test]
fn straddling_segments_cover_the_end_of_one_mapping_and_the_start_of_the_next() {
    let mptcp = MptcpOptions { mapping_len: 2000, straddle: true, ..MptcpOptions::default() };
    let run = lossless(SenderOptions { mptcp: Some(mptcp), ..options(30_000) });
    let isn = run.sender.options.isn;
    let inside = run.trace.iter().filter(|segment| {
        let mapping = segment.options.mptcp.dss.and_then(|dss| dss.mapping);
        // Where the mapping begins, counted from the segment's first byte.
        mapping.is_some_and(|mapping| {
            let ahead = (isn + mapping.subflow_seq).distance_from(segment.seq);
            segment.payload_len > 0 && ahead > 0
        })
    });
    assert!(inside.count() >= 10);
}

#[test]
fn the_window_is_obeyed_and_its_updates_go_on() {
    // A reader that reads little at a time, with a small window, with and without scaling.
    for window_scale in [Some(WindowScale::new(7)), None] {
        let server = Server::new(Config::default(), 20_000, 700);
        let sender = SenderOptions { window_scale, ..options(300_000) };
        let mut run = Run::new(sender, server, Network::default(), 1);
        run.run();
        run.assert_delivered();
        // The server asserts that nothing is placed beyond its window; nor is anything lost there.
        assert_eq!(run.sender.statistics().retransmitted, 0);
    }
}

#[test]
fn a_reader_that_stops_and_goes_on_gets_everything() {
    let mut run = Run::new(
        options(300_000),
        Server::new(Config::default(), 50_000, 0),
        Network::default(),
        1,
    );
    let stop = run.now + Duration::from_secs(30);
    while run.now < stop && run.step() {}
    assert!(run.sender.failure().is_none(), "a closed window is no failure");
    assert_eq!(run.sender.acknowledged(), 50_000);
    assert!(run.sender.statistics().timeouts > 3, "the window was asked for");
    run.server.reads = 100_000;
    run.run();
    run.assert_delivered();
}

#[test]
fn a_server_without_mptcp_gets_the_stream_by_plain_tcp() {
    let config = Config { mptcp: false, ..Config::default() };
    let server = Server::new(config, 256 << 10, 1 << 20);
    let mut run = Run::new(options(100_000), server, Network::default(), 1);
    run.run();
    run.assert_delivered();
    assert!(!run.sender.is_mptcp() && !run.sender.fell_back());
}

#[test]
fn an_aborted_connection_is_reset_at_the_server() {
    let mut run = Run::new(options(1 << 20), server(), Network::default(), 1);
    while run.sender.acknowledged() < 100_000 && run.step() {}
    run.sender.abort();
    for _ in 0..20 {
        run.step();
    }
    assert_eq!(run.sender.failure(), Some(Failure::Aborted));
    assert!(run.server.events.iter().any(|event| matches!(event, Event::Reset(_))));
    let last = run.trace.last().unwrap();
    assert!(last.flags.contains(Flags::RST));
}

#[test]
fn a_reset_that_answers_the_last_acknowledgement_is_no_failure() {
    let mut run = lossless(options(1000));
    let reset = reset_for(run.trace.last().unwrap()).unwrap();
    let SenderOptions { link, local, remote, .. } = run.sender.options;
    let mut buf = vec![0; 200];
    let len = emit_frame(&mut buf, &link, remote, local, IpFields::default(), &reset, &[]).unwrap();
    run.sender.on_frame(run.now, &buf[..len]);
    run.assert_delivered();
}

#[test]
fn a_server_that_is_not_there_is_given_up() {
    let mut run = Run::new(options(10), server(), Network { lose: 255, ..Network::default() }, 1);
    run.run();
    assert_eq!(run.sender.failure(), Some(Failure::TimedOut));
    assert_eq!(run.trace.len(), 13, "the SYN and its retransmissions");
}

#[test]
fn a_stream_can_be_left_open_and_ended_later() {
    let sender = SenderOptions { ends: false, ..options(10_000) };
    let mut run = Run::new(sender, server(), Network::default(), 1);
    run.run();
    assert!(!run.sender.is_done() && run.sender.failure().is_none());
    assert_eq!(run.sender.acknowledged(), 10_000);
    run.sender.finish();
    run.run();
    run.assert_delivered();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whatever the network does, the stream arrives as it was sent.
    #[test]
    fn the_stream_survives_a_bad_network(
        seed: u64,
        len in 1..60_000u64,
        mss in 200..1460u16,
        mapping_len in prop_oneof![Just(0), 50..65_534u16],
        (long_numbers, straddle, data_fin_with_data) in any::<(bool, bool, bool)>(),
        first_data in prop_oneof![Just(FirstData::Capable), Just(FirstData::Dss)],
        (mptcp, timestamps, sack, scaled) in any::<(bool, bool, bool, bool)>(),
        window in 3000..100_000u64,
        reads in 500..50_000u64,
        (lose, double, delay, damage) in (0..20u8, 0..20u8, 0..40u8, 0..8u8),
    ) {
        let details = MptcpOptions {
            long_numbers, mapping_len, straddle, first_data, data_fin_with_data,
            ..MptcpOptions::default()
        };
        let sender = SenderOptions {
            mptcp: mptcp.then_some(details),
            mss, timestamps, sack,
            window_scale: scaled.then_some(WindowScale::new(7)),
            max_timeouts: 60,
            ..options(len)
        };
        let network = Network { lose, double, delay, damage };
        let server = Server::new(Config::default(), window, reads);
        let mut run = Run::new(sender, server, network, seed);
        run.run();
        run.assert_delivered();
        let sender_by_mptcp = run.sender.is_mptcp();
        prop_assert_eq!(run.server.connection.mode() == ConnectionMode::Mptcp, sender_by_mptcp);
        // A segment that overtakes the one with MP_CAPABLE makes the server fall back.
        let in_order = lose == 0 && delay == 0 && damage == 0;
        prop_assert!(sender_by_mptcp == mptcp || (mptcp && !in_order));
    }
}
