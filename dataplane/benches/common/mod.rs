//! What both kinds of benchmarks work on: a frame as MPTCP sends it, an open subflow, a ring, and a
//! worker with a client.

#![allow(dead_code, reason = "not every benchmark needs all of it")]

use std::sync::Arc;
use std::time::Duration;

use mpxdp::port::{MemoryOptions, MemoryPort, Port, receive_packets, send_packet};
use mpxdp::receive::{Claim, Reader, Ring, RingConfig, Wanted, ring};
use mpxdp::stepped::SteppedWorker;
use mpxdp::{EngineConfig, Listener, Stream};
use mpxdp_proto::config::Config;
use mpxdp_proto::connection::LocalKey;
use mpxdp_proto::range_set::RangeSet;
use mpxdp_proto::segment::{
    Dss, DssMapping, DssNumber, Flags, Key, MpCapable, MpCapableBody, Options, Segment, Timestamps,
    WindowScale,
};
use mpxdp_proto::seq::{SeqNum, StreamOffset};
use mpxdp_proto::subflow::{Disposition, PassiveOpening, Placement, Subflow, View};
use mpxdp_proto::time::Instant;
use mpxdp_proto::wire::{IpFields, LinkHeader, MacAddress, emit_frame};
use mpxdp_sim::{Content, Pattern, Sender, SenderOptions};

/// Packets of a burst.
pub(crate) const BURST: u32 = 64;
/// Payload of a packet of 1500 octets with timestamps and a mapping.
pub(crate) const PAYLOAD: u32 = 1420;

const CLIENT: &str = "10.0.0.1:40000";
const SERVER: &str = "10.0.0.2:5001";
const LINK: LinkHeader =
    LinkHeader::new(MacAddress([2, 0, 0, 0, 0, 2]), MacAddress([2, 0, 0, 0, 0, 1]));
const CLIENT_KEY: Key = Key(0x0123_4567_89ab_cdef);
const SERVER_KEY: Key = Key(0xfedc_ba98_7654_3210);
const ISN: SeqNum = SeqNum(1000);
const SERVER_ISN: SeqNum = SeqNum(2000);

/// The options of a data segment: timestamps, and a DSS with 64-bit numbers and a mapping.
fn data_segment(offset: u64, len: u32) -> Segment {
    let mut options =
        Options { timestamps: Some(Timestamps { value: 7, echo: 9 }), ..Options::default() };
    options.mptcp.dss = Some(Dss {
        ack: Some(DssNumber::Long(LocalKey::new(SERVER_KEY).idsn.0.wrapping_add(1))),
        mapping: Some(DssMapping {
            data_seq: DssNumber::Long(
                LocalKey::new(CLIENT_KEY).idsn.0.wrapping_add(1).wrapping_add(offset),
            ),
            subflow_seq: (offset as u32).wrapping_add(1),
            length: len as u16,
            checksum: None,
        }),
        data_fin: false,
    });
    Segment {
        seq: ISN + 1 + offset as u32,
        ack: SERVER_ISN + 1,
        flags: Flags::ACK.with(Flags::PSH),
        window: 1000,
        payload_len: len,
        options,
        ..Segment::default()
    }
}

/// A frame with so much payload.
pub(crate) fn frame(payload: u32) -> Vec<u8> {
    let mut buf = vec![0; payload as usize + 128];
    let (client, server) = (CLIENT.parse().expect("right"), SERVER.parse().expect("right"));
    let bytes = noise(payload as usize);
    let segment = data_segment(0, payload);
    let ip = IpFields::default();
    let len = emit_frame(&mut buf, &LINK, client, server, ip, &segment, &bytes).expect("it fits");
    buf.truncate(len);
    buf
}

/// The octets of a data segment's options.
pub(crate) fn option_bytes() -> Vec<u8> {
    frame(0)[14 + 20 + 20..].to_vec()
}

/// Bytes without a pattern.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Pattern::new(1).fill(0, &mut bytes);
    bytes
}

/// An established subflow and its view of the connection.
pub(crate) struct Open {
    pub(crate) subflow: Subflow,
    pub(crate) view: View,
    pub(crate) now: Instant,
    pub(crate) placements: Vec<Placement>,
    offset: u64,
}

impl Open {
    pub(crate) fn new() -> Self {
        let now = Instant(3_600_000_000_000);
        let capable = |body| {
            Some(MpCapable {
                version: 1,
                checksum_required: false,
                extensibility: false,
                no_join_to_initial_address: false,
                algorithms: 1,
                body,
            })
        };
        let mut options = Options {
            mss: Some(1460),
            window_scale: Some(WindowScale::new(7)),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: 5, echo: 0 }),
            ..Options::default()
        };
        options.mptcp.capable = capable(MpCapableBody::Syn);
        let syn = Segment { seq: ISN, flags: Flags::SYN, options, ..Segment::default() };
        let opening = PassiveOpening {
            isn: SERVER_ISN,
            timestamp_offset: 0,
            local: Some(LocalKey::new(SERVER_KEY)),
            mss: 1460,
        };
        let mut subflow = Subflow::passive_open(now, &Arc::new(Config::default()), &syn, &opening)
            .expect("a right SYN");
        let mut view = View::initial(65_535);
        subflow.poll_transmit(now, &view).expect("a SYN/ACK");
        let mut ack = data_segment(0, 0);
        ack.flags = Flags::ACK;
        ack.options.mptcp.dss = None;
        ack.options.mptcp.capable =
            capable(MpCapableBody::Ack { sender: CLIENT_KEY, receiver: SERVER_KEY, data: None });
        let mut placements = Vec::new();
        let taken = subflow.on_segment(now, &ack, &view, &mut placements);
        assert_eq!(taken, Disposition::Accepted);
        view.right_edge = StreamOffset(1 << 20);
        let mut open = Self { subflow, view, now, placements, offset: 0 };
        // The first data confirms that options pass.
        for _ in 0..32 {
            let segments = open.burst();
            open.take(&segments);
            while open.subflow.poll_event().is_some() {}
            open.acknowledge();
        }
        open
    }

    /// The segments of the next burst, in order.
    pub(crate) fn burst(&self) -> Vec<Segment> {
        let segment = |n| data_segment(self.offset + u64::from(n * PAYLOAD), PAYLOAD);
        (0..BURST).map(segment).collect()
    }

    /// Takes a burst in; what it brought is stored and read.
    pub(crate) fn take(&mut self, segments: &[Segment]) {
        for segment in segments {
            self.placements.clear();
            let view = &self.view;
            let taken = self.subflow.on_segment(self.now, segment, view, &mut self.placements);
            assert_eq!(taken, Disposition::Accepted);
        }
        self.offset += u64::from(BURST * PAYLOAD);
        self.view.edge = StreamOffset(self.offset);
        self.view.right_edge = StreamOffset(self.offset + (1 << 20));
    }

    /// The acknowledgement that is due, as a segment.
    pub(crate) fn acknowledge(&mut self) -> Segment {
        self.subflow.request_ack();
        self.subflow.poll_transmit(self.now, &self.view).expect("it is due")
    }
}

/// Writes an acknowledgement to a frame.
pub(crate) fn emit_ack(segment: &Segment, buf: &mut [u8]) -> usize {
    let (client, server) = (CLIENT.parse().expect("right"), SERVER.parse().expect("right"));
    emit_frame(buf, &LINK, server, client, IpFields::default(), segment, &[]).expect("it fits")
}

/// A ring and its reader, and a burst to store.
pub(crate) struct Store {
    ring: Arc<Ring>,
    reader: Reader,
    claims: Vec<Claim>,
    payload: Vec<u8>,
    offset: u64,
}

impl Store {
    pub(crate) fn new() -> Self {
        let config = RingConfig { initial: 1 << 20, limit: 1 << 20, ..RingConfig::default() };
        let (ring, reader) = ring(config).expect("there is memory");
        let payload = noise(PAYLOAD as usize);
        let mut store = Self { ring, reader, claims: Vec::new(), payload, offset: 0 };
        for _ in 0..16 {
            let wanted = store.burst();
            store.store(&wanted);
        }
        store
    }

    /// What the next burst brings.
    pub(crate) fn burst(&self) -> Vec<Wanted> {
        let wanted = |n| Wanted {
            to: StreamOffset(self.offset + u64::from(n * PAYLOAD)),
            len: PAYLOAD,
            source: n,
            at: 0,
        };
        (0..BURST).map(wanted).collect()
    }

    /// Claims, copies and commits a burst, and reads it.
    pub(crate) fn store(&mut self, wanted: &[Wanted]) {
        let claimed = self.ring.claim(wanted, &mut self.claims);
        for claim in &mut self.claims {
            self.ring.copy(claim, &self.payload);
        }
        let committed = self.ring.commit(&mut self.claims);
        let len = self.reader.peek().len();
        let _ = self.reader.consume(len);
        self.offset += claimed.claimed;
        assert!(committed.advanced && len as u64 == claimed.claimed);
    }
}

/// A set with so many gaps.
pub(crate) fn gaps(count: u64) -> RangeSet {
    (0..count).map(|n| 3000 * n..3000 * n + 1420).collect()
}

/// A worker, and a client that sends to it.
pub(crate) struct Turning {
    worker: SteppedWorker<MemoryPort>,
    far: MemoryPort,
    sender: Sender,
    now: Instant,
    stream: Option<Stream>,
    listener: Listener,
}

impl Turning {
    /// With a burst on the cable, of a connection that is long open.
    pub(crate) fn new() -> Self {
        let (near, far) = MemoryPort::pair(MemoryOptions::default());
        let config = EngineConfig {
            receive_initial: 1 << 20,
            receive_limit: 1 << 20,
            ..EngineConfig::default()
        };
        let worker = SteppedWorker::new(near, 1500, &config).expect("there is memory");
        let server = SERVER.parse().expect("right");
        let listener = worker.listen(server).expect("it is free");
        let content = Content::Pattern { pattern: Pattern::new(1), len: 1 << 40 };
        let options = SenderOptions::new(CLIENT.parse().expect("right"), server, content);
        let mut turning = Self {
            worker,
            far,
            sender: Sender::new(options),
            now: Instant(3_600_000_000_000),
            stream: None,
            listener,
        };
        for _ in 0..64 {
            turning.fill();
            turning.turn();
            turning.drain();
        }
        turning.fill();
        turning
    }

    /// Puts up to a burst on the cable.
    fn fill(&mut self) {
        let mut buf = vec![0; 2048];
        for _ in 0..BURST {
            let Some(len) = self.sender.poll_frame(self.now, &mut buf) else { break };
            assert!(send_packet(&mut self.far, &buf[..len]), "a burst fits");
        }
        self.far.flush().expect("memory does not fail");
    }

    /// What is measured: the worker takes the burst; says how many packets it was.
    pub(crate) fn turn(&mut self) -> usize {
        self.worker.turn(self.now).packets
    }

    fn drain(&mut self) {
        use std::io::BufRead;

        self.now = self.now + Duration::from_micros(20);
        let (sender, now) = (&mut self.sender, self.now);
        receive_packets(&mut self.far, usize::MAX, |packet| sender.on_frame(now, packet));
        if self.stream.is_none() {
            self.stream = self.listener.try_accept().expect("the engine runs");
        }
        let streams = self.stream.iter_mut();
        for stream in streams.filter(|stream| stream.available() > 0) {
            let len = stream.fill_buf().expect("there is something").len();
            stream.consume(len);
        }
    }
}

/// Does something `n` times.
pub(crate) fn times<T>(n: u32, mut f: impl FnMut() -> T) {
    for _ in 0..n {
        std::hint::black_box(f());
    }
}
