//! The subflow by packet traces, and by random ones.
//!
//! A [`Trace`] is a subflow with the little of a driver that it needs: a model of the receive ring,
//! a connection, and a clock that stands still until it is moved.

mod acceptance;
mod acks;
mod close;
mod cookie;
mod doubt;
mod dss;
mod fallback;
mod handshake;
mod hostile;
mod join;
mod mapping;
mod random;
mod rfc;
mod sack;
mod several;
mod signals;
mod spaces;
mod stripped;
mod sums;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::*;
use crate::connection::{Connection, LocalKey};
use crate::crypto::key_to_token_and_idsn;
use crate::range_set::RangeSet;
use crate::segment::*;
use crate::wire::options::{MAX_LEN, emit, options_len, parse};

/// The peer's initial sequence number; it wraps in the first kilobyte.
const PEER: SeqNum = SeqNum(0xffff_ff00);
/// Ours.
const OURS: SeqNum = SeqNum(7_000_000);
const PEER_KEY: Key = Key(0x0123_4567_89ab_cdef);
const OUR_KEY: Key = Key(0xfedc_ba98_7654_3210);
/// The receive ring of a trace.
const CAPACITY: u64 = 1 << 20;
const MSS: u16 = 1460;

/// The peer's data sequence number of a stream offset.
fn peer_dsn(offset: u64) -> u64 {
    let (_, idsn) = key_to_token_and_idsn(PEER_KEY);
    (idsn + 1 + offset).0
}

/// Our data sequence number of a stream offset.
fn our_dsn(offset: u64) -> u64 {
    let (_, idsn) = key_to_token_and_idsn(OUR_KEY);
    (idsn + 1 + offset).0
}

/// The byte of the stream at an offset: no period below 251 * 256 hides a misplaced piece.
fn byte_at(offset: u64) -> u8 {
    (offset % 251) as u8 ^ (offset / 251 % 256) as u8
}

/// The stream from `from` on.
fn text(from: u64, len: u32) -> Vec<u8> {
    (from..from + u64::from(len)).map(byte_at).collect()
}

/// A time after the start of the trace.
const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn capable(body: MpCapableBody) -> MptcpOptions {
    let capable = MpCapable {
        version: 1,
        checksum_required: false,
        extensibility: false,
        no_join_to_initial_address: false,
        algorithms: 1,
        body,
    };
    MptcpOptions { capable: Some(capable), ..Default::default() }
}

/// MP_CAPABLE of the third ACK, with the mapping of the first data if it has a length.
fn capable_ack(length: Option<u16>) -> MptcpOptions {
    capable(MpCapableBody::Ack {
        sender: PEER_KEY,
        receiver: OUR_KEY,
        data: length.map(|length| MpCapableData { length, checksum: None }),
    })
}

/// A SYN as Linux sends it.
fn syn() -> Segment {
    Segment {
        seq: PEER,
        flags: Flags::SYN,
        window: 64240,
        options: Options {
            mss: Some(1460),
            window_scale: Some(WindowScale::new(7)),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: 100, echo: 0 }),
            mptcp: capable(MpCapableBody::Syn),
            ..Default::default()
        },
        ..Default::default()
    }
}

/// A SYN that asks for no MPTCP.
fn plain_syn() -> Segment {
    let mut syn = syn();
    syn.options.mptcp = MptcpOptions::default();
    syn
}

/// A segment of the peer after its SYN: `payload_len` octets from payload position `at`.
fn seg(at: u64, payload_len: u32) -> Segment {
    Segment {
        seq: PEER + 1 + at as u32,
        ack: OURS + 1,
        flags: Flags::ACK,
        window: 502,
        payload_len,
        options: Options {
            timestamps: Some(Timestamps { value: 101, echo: 0 }),
            ..Default::default()
        },
        ..Default::default()
    }
}

fn with_mptcp(segment: Segment, mptcp: MptcpOptions) -> Segment {
    Segment { options: Options { mptcp, ..segment.options }, ..segment }
}

/// A DSS with a 64-bit DATA_ACK of nothing and a 64-bit mapping of `length` octets: payload
/// position `position` lies at stream offset `offset`.
fn dss(position: u64, offset: u64, length: u16) -> Dss {
    Dss {
        data_fin: false,
        ack: Some(DssNumber::Long(our_dsn(0))),
        mapping: Some(DssMapping {
            data_seq: DssNumber::Long(peer_dsn(offset)),
            subflow_seq: (position as u32).wrapping_add(1),
            length,
            checksum: None,
        }),
    }
}

fn with_dss(segment: Segment, dss: Dss) -> Segment {
    with_mptcp(segment, MptcpOptions { dss: Some(dss), ..Default::default() })
}

/// A segment that maps itself, its subflow position being its stream offset.
fn mapped(at: u64, len: u32) -> Segment {
    with_dss(seg(at, len), dss(at, at, len as u16))
}

/// The peer's DATA_FIN on its own, its stream being `at` octets long; `position` is its payload
/// position.
fn data_fin(position: u64, at: u64) -> Segment {
    let mut fin = dss(0, at, 1);
    fin.data_fin = true;
    fin.mapping.as_mut().expect("dss() has a mapping").subflow_seq = 0;
    with_dss(seg(position, 0), fin)
}

/// `segment` with a DATA_ACK of our stream, `offset` octets and, in MPTCP, its DATA_FIN.
fn data_ack(segment: Segment, sequence: u64) -> Segment {
    let mut dss = segment.options.mptcp.dss.unwrap_or_default();
    dss.ack = Some(DssNumber::Long(sequence));
    with_dss(segment, dss)
}

fn fin(segment: Segment) -> Segment {
    Segment { flags: segment.flags.with(Flags::FIN), ..segment }
}

/// A subflow with the model of a driver.
struct Trace {
    subflow: Subflow,
    connection: Connection,
    now: Instant,
    /// What the ring holds, and where.
    stream: Vec<u8>,
    have: RangeSet,
    /// What the reader took.
    consumed: u64,
    capacity: u64,
    /// The highest right edge; it never moves back.
    right_edge: u64,
    /// What of the window is told only while it closes.
    slack: u64,
    /// The highest right edge that any subflow told.
    told: StreamOffset,
    /// Events not yet looked at.
    events: Vec<Event>,
    /// Payload that is not proved by its mapping's checksum, and where it belongs.
    held: Vec<(MappingId, u64, Vec<u8>)>,
}

impl Trace {
    /// A SYN came to a listener with this configuration.
    fn listen(config: Config, syn: Segment) -> Self {
        Self::with_capacity(config, syn, CAPACITY)
    }

    /// The same, with a receive ring of `capacity` octets.
    fn with_capacity(config: Config, syn: Segment, capacity: u64) -> Self {
        let local = LocalKey::new(OUR_KEY);
        let opening =
            PassiveOpening { isn: OURS, timestamp_offset: 0, local: Some(local), mss: MSS };
        let now = Instant(1_000_000_000);
        let subflow = Subflow::passive_open(now, &Arc::new(config), &syn, &opening);
        Self::of(subflow.expect("a SYN opens a subflow"), Connection::new(Some(local)), capacity)
    }

    /// A subflow of a connection of which nothing came yet.
    fn of(subflow: Subflow, connection: Connection, capacity: u64) -> Self {
        Self {
            subflow,
            connection,
            now: Instant(1_000_000_000),
            stream: Vec::new(),
            have: RangeSet::new(),
            consumed: 0,
            capacity,
            right_edge: capacity,
            slack: 0,
            told: StreamOffset::ZERO,
            events: Vec::new(),
            held: Vec::new(),
        }
    }

    /// The same, with the default configuration and no quick acknowledgements.
    fn with_syn(syn: Segment) -> Self {
        Self::listen(calm(), syn)
    }

    /// Established, MPTCP.
    fn mptcp() -> Self {
        Self::mptcp_with_capacity(CAPACITY)
    }

    /// The same, with a receive ring of `capacity` octets.
    fn mptcp_with_capacity(capacity: u64) -> Self {
        let mut trace = Self::with_capacity(calm(), syn(), capacity);
        trace.expect_sent(1);
        trace.accept(with_mptcp(seg(0, 0), capable_ack(None)));
        trace.expect_events(&[Event::Established { mptcp: Some(PEER_KEY) }]);
        trace.expect_sent(0);
        trace
    }

    /// Established, plain TCP.
    fn plain() -> Self {
        let mut trace = Self::with_syn(plain_syn());
        trace.expect_sent(1);
        trace.accept(seg(0, 0));
        trace.expect_events(&[Event::Established { mptcp: None }]);
        trace.expect_sent(0);
        trace
    }

    fn edge(&self) -> u64 {
        self.have.first().filter(|first| first.start == 0).map_or(0, |first| first.end)
    }

    fn view(&mut self) -> View {
        let edge = self.edge();
        self.right_edge = self.right_edge.max(self.consumed + self.capacity);
        self.told = self.told.max(self.subflow.advertised());
        let view = self.connection.view(StreamOffset(edge), StreamOffset(self.right_edge));
        View { slack: self.slack, told: self.told, ..view }
    }

    /// The reader takes everything there is.
    fn read(&mut self) {
        self.consumed = self.edge();
    }

    /// A segment with `payload` comes in.
    fn recv_bytes(&mut self, segment: Segment, payload: &[u8]) -> Disposition {
        assert_eq!(segment.payload_len as usize, payload.len(), "a trace's own mistake");
        let view = self.view();
        let mut placements = Vec::new();
        let disposition = self.subflow.on_segment(self.now, &segment, &view, &mut placements);
        for placement in placements {
            let Placement { to, at, len, mapping } = placement;
            let bytes = &payload[at as usize..(at + len) as usize];
            assert!(len > 0, "an empty placement");
            assert!(to.0 + u64::from(len) <= self.right_edge, "taken beyond the right edge");
            match mapping {
                None => self.store(to.0, bytes),
                Some(mapping) => {
                    self.held.push((mapping, to.0, bytes.to_vec()));
                    let view = self.view();
                    let sum = sum_of(bytes);
                    let verdict = self.subflow.on_payload_sum(self.now, &placement, sum, &view);
                    if let Some(Verdict::Proved(proved)) = verdict {
                        self.release(|mapping| mapping == proved);
                    }
                }
            }
        }
        self.poll_events();
        disposition
    }

    /// Bytes come into the ring, where they are not yet.
    fn store(&mut self, to: u64, bytes: &[u8]) {
        let range = to..to + bytes.len() as u64;
        let end = usize::try_from(range.end).expect("streams here are short");
        self.stream.resize(self.stream.len().max(end), 0);
        for part in self.have.missing(range.clone()).collect::<Vec<_>>() {
            let from = (part.start - range.start) as usize;
            let bytes = &bytes[from..from + (part.end - part.start) as usize];
            self.stream[part.start as usize..part.end as usize].copy_from_slice(bytes);
        }
        self.have.insert(range);
    }

    /// What is held of these mappings comes into the ring.
    fn release(&mut self, proved: impl Fn(MappingId) -> bool) {
        for (mapping, to, bytes) in core::mem::take(&mut self.held) {
            if proved(mapping) {
                self.store(to, &bytes);
            } else {
                self.held.push((mapping, to, bytes));
            }
        }
    }

    /// A segment comes in whose payload is the stream's from `offset` on.
    fn recv_at(&mut self, segment: Segment, offset: u64) -> Disposition {
        self.recv_bytes(segment, &text(offset, segment.payload_len))
    }

    /// A segment comes in whose payload is the stream's, from where its position says.
    fn recv(&mut self, segment: Segment) -> Disposition {
        self.recv_at(segment, u64::from(segment.seq.0.wrapping_sub(PEER.0 + 1)))
    }

    fn accept(&mut self, segment: Segment) {
        assert_eq!(self.recv(segment), Disposition::Accepted, "{segment:?}");
    }

    fn refuse(&mut self, segment: Segment, reason: DropReason) {
        assert_eq!(self.recv(segment), Disposition::Dropped(reason), "{segment:?}");
    }

    fn poll_events(&mut self) {
        while let Some(event) = self.subflow.poll_event() {
            assert!(self.connection.on_event(&event), "{event:?} contradicts another subflow");
            match event {
                Event::Fallback(_) => self.release(|_| true),
                Event::Closed => self.held.clear(),
                _ => {}
            }
            // The connection knows; nearly every trace has it with its first data.
            if event != Event::FullyEstablished {
                self.events.push(event);
            }
        }
    }

    /// What is sent at the end of a burst. Every segment must survive the wire.
    fn sent(&mut self) -> Vec<Segment> {
        let view = self.view();
        let mut sent = Vec::new();
        while let Some(segment) = self.subflow.poll_transmit(self.now, &view) {
            assert_survives_the_wire(&segment);
            sent.push(segment);
            assert!(sent.len() < 8, "no end to what is sent: {sent:?}");
        }
        self.poll_events();
        sent
    }

    fn expect_sent(&mut self, count: usize) -> Vec<Segment> {
        let sent = self.sent();
        assert_eq!(sent.len(), count, "{sent:#?}");
        sent
    }

    /// The one segment that is sent.
    fn expect_one(&mut self) -> Segment {
        self.expect_sent(1)[0]
    }

    /// The one segment that is sent, which is an acknowledgement up to payload position `at`.
    fn expect_ack(&mut self, at: u64) -> Segment {
        let ack = self.expect_one();
        assert_eq!((ack.flags, ack.ack), (Flags::ACK, PEER + 1 + at as u32), "{ack:?}");
        ack
    }

    fn expect_events(&mut self, expected: &[Event]) {
        self.poll_events();
        assert_eq!(core::mem::take(&mut self.events), expected);
    }

    /// Lets time pass, and does what is due after it.
    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        let view = self.view();
        self.subflow.on_timeout(self.now, &view);
        self.poll_events();
    }

    /// Lets time pass until the next timer, and returns how long that took.
    fn pass_to_timer(&mut self) -> Duration {
        let due = self.subflow.next_timeout().expect("a timer is running");
        let took = due.saturating_since(self.now);
        self.now = self.now.max(due);
        let view = self.view();
        self.subflow.on_timeout(self.now, &view);
        self.poll_events();
        took
    }

    /// Everything up to `len` is in the ring, as it was sent, and nothing beyond.
    fn expect_stream(&self, len: u64) {
        assert_eq!(self.edge(), len);
        assert!(self.stream[..len as usize] == text(0, len as u32), "the stream has wrong bytes");
    }

    fn expect_state(&self, state: State) {
        assert_eq!(self.subflow.state(), state);
    }
}

/// The sum of 16-bit words that the driver gives, the plain way.
fn sum_of(bytes: &[u8]) -> u32 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&b| u32::from(b));
    let mut sum = bytes.chunks(2).map(word).fold(0_u64, |sum, word| sum + u64::from(word));
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u32
}

/// No acknowledgement out of the ordinary at the start.
fn calm() -> Config {
    let mut config = Config::default();
    config.acks.quick = 0;
    config
}

/// Options that do not fit, or that a receiver would read differently, are a bug.
fn assert_survives_the_wire(segment: &Segment) {
    let mut buf = [0; MAX_LEN];
    let len =
        emit(&segment.options, &mut buf).unwrap_or_else(|error| panic!("{error:?}: {segment:?}"));
    assert_eq!(len, options_len(&segment.options));
    assert_eq!(parse(&buf[..len], segment.flags), segment.options, "{segment:?}");
}
