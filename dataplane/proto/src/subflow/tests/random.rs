//! Whatever the sender does with its segments and the network with its packets, the stream is
//! exact, and what was acknowledged is in the ring.

use proptest::prelude::*;

use super::*;

/// How a sender divides its stream.
#[derive(Clone, Debug)]
struct Shape {
    /// Lengths of mappings, over and over.
    mappings: Vec<u16>,
    /// Payload lengths of segments, over and over.
    segments: Vec<u32>,
    /// What a segment carries besides.
    options: Vec<Carry>,
    /// The length of the stream.
    len: u64,
    /// Plain TCP, the stream ended by a FIN.
    plain: bool,
    timestamps: bool,
    capacity: u64,
    /// Whether the mappings lie in the stream in another order than on the subflow, as those of a
    /// peer with further subflows do. The window is larger than the stream then.
    shuffled: bool,
}

/// Which of the mappings that it lies under a segment carries, and how.
#[derive(Clone, Copy, Debug)]
enum Carry {
    /// None, where the receiver knows the mapping from an earlier segment.
    None,
    /// That of its first octet.
    First { short: bool },
    /// That of its last octet; what comes first is known already.
    Last { short: bool },
    /// A mapping of exactly itself.
    Itself { short: bool },
}

/// What the network does with a packet.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Arrives,
    Lost,
    Twice,
    /// So many packets overtake it.
    Late(u8),
    /// It arrives together with what the sender had sent before, cut anew.
    Collapsed,
}

fn carry() -> impl Strategy<Value = Carry> {
    prop_oneof![
        Just(Carry::None),
        any::<bool>().prop_map(|short| Carry::First { short }),
        any::<bool>().prop_map(|short| Carry::Last { short }),
        any::<bool>().prop_map(|short| Carry::Itself { short }),
    ]
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        8 => Just(Fate::Arrives),
        2 => Just(Fate::Lost),
        1 => Just(Fate::Twice),
        2 => (1..20_u8).prop_map(Fate::Late),
        1 => Just(Fate::Collapsed),
    ]
}

prop_compose! {
    fn shape()(
        mappings in prop::collection::vec(prop_oneof![9 => 200..4000_u16, 1 => 1..200_u16], 2..6),
        segments in prop::collection::vec(prop_oneof![9 => 200..2000_u32, 1 => 1..200_u32], 2..6),
        options in prop::collection::vec(carry(), 1..6),
        len in 0..30_000_u64,
        plain in prop::bool::weighted(0.2),
        timestamps in any::<bool>(),
        capacity in 3000..60_000_u64,
        shuffled in prop::bool::weighted(0.4),
    ) -> Shape {
        let shuffled = shuffled && !plain;
        let capacity = if shuffled { CAPACITY } else { capacity };
        Shape { mappings, segments, options, len, plain, timestamps, capacity, shuffled }
    }
}

/// A mapping: a range of the subflow, and where it begins in the stream.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    from: u64,
    to: u64,
    offset: u64,
}

impl Chunk {
    fn dss(&self) -> Dss {
        dss(self.from, self.offset, (self.to - self.from) as u16)
    }

    /// The part of it from `from` up to `to`.
    fn cut(&self, from: u64, to: u64) -> Self {
        Self { from, to, offset: self.offset + (from - self.from) }
    }
}

/// A sender of mappings and segments of a [`Shape`], that retransmits by a timer alone.
struct Sender {
    shape: Shape,
    mappings: Vec<Chunk>,
    sent_to: u64,
    acknowledged: u64,
    right_edge: u64,
    sequence: usize,
    data_acknowledged: u64,
    fin_acknowledged: bool,
    clock: u32,
}

impl Sender {
    fn new(shape: Shape) -> Self {
        let mut mappings = Vec::new();
        let mut at = 0;
        for len in shape.mappings.iter().cycle().map(|&len| u64::from(len)) {
            if at >= shape.len {
                break;
            }
            let to = (at + len).min(shape.len);
            mappings.push(Chunk { from: at, to, offset: at });
            at = to;
        }
        if shape.shuffled {
            // Back to front, but for the first, which the first window is about.
            let mut offset = shape.len;
            for chunk in mappings.iter_mut().skip(1) {
                offset -= chunk.to - chunk.from;
                chunk.offset = offset;
            }
        }
        Self {
            shape,
            mappings,
            sent_to: 0,
            acknowledged: 0,
            right_edge: 1000,
            sequence: 0,
            data_acknowledged: 0,
            fin_acknowledged: false,
            clock: 200,
        }
    }

    fn mapping_of(&self, position: u64) -> Chunk {
        let at = self.mappings.partition_point(|chunk| chunk.to <= position);
        self.mappings[at]
    }

    /// The payload of a segment.
    fn payload(&self, segment: &Segment) -> Vec<u8> {
        let mut at = u64::from(segment.seq.0.wrapping_sub(PEER.0 + 1));
        let end = at + u64::from(segment.payload_len);
        let mut payload = Vec::new();
        while at < end {
            let chunk = self.mapping_of(at);
            let part = chunk.cut(at, end.min(chunk.to));
            payload.extend(text(part.offset, (part.to - part.from) as u32));
            at = part.to;
        }
        payload
    }

    fn done(&self) -> bool {
        let all = self.acknowledged >= self.shape.len && self.fin_acknowledged;
        all && (self.shape.plain || self.data_acknowledged == self.shape.len + 1)
    }

    fn segment(&mut self, at: u64, len: u64) -> Segment {
        self.clock += 1;
        let mut segment = seg(at, len as u32);
        segment.options.timestamps =
            self.shape.timestamps.then_some(Timestamps { value: self.clock, echo: 0 });
        segment
    }

    /// The segment of the stream from `at` on. `first_copy` is false for retransmissions, which
    /// always carry a mapping, as do all in the first window.
    fn data(&mut self, at: u64, first_copy: bool) -> Segment {
        let lens = &self.shape.segments;
        let mut len = u64::from(lens[self.sequence % lens.len()]);
        len = len.min(self.shape.len - at).min(self.right_edge.saturating_sub(at).max(1));
        let mut carry = self.shape.options[self.sequence % self.shape.options.len()];
        self.sequence += 1;
        let window = 10 * u64::from(MSS);
        let first_known = self.acknowledged > at || self.mapping_of(at).from < self.acknowledged;
        if !first_copy || at < window {
            carry = Carry::First { short: self.sequence.is_multiple_of(2) };
        }
        if matches!(carry, Carry::None | Carry::Last { .. }) && !first_known {
            carry = Carry::First { short: false };
        }
        let mut segment = self.segment(at, len);
        let chunk = self.mapping_of(at);
        let (short, carried) = match carry {
            Carry::None => return segment,
            Carry::Last { short } => (short, self.mapping_of(at + len - 1)),
            Carry::First { short } => (short, chunk),
            Carry::Itself { short } => (short, chunk.cut(at, chunk.to.min(at + len))),
        };
        if !matches!(carry, Carry::Last { .. }) {
            // It says nothing of octets under a further mapping.
            len = len.min(carried.to - at);
            segment.payload_len = len as u32;
        }
        let mut dss = carried.dss();
        if let Some(mapping) = dss.mapping.as_mut().filter(|_| short) {
            mapping.data_seq = DssNumber::Short(peer_dsn(carried.offset) as u32);
        }
        segment.options.mptcp.dss = Some(dss);
        segment
    }

    fn end(&mut self) -> Segment {
        let segment = self.segment(self.shape.len, 0);
        let end = self.shape.len;
        if self.shape.plain {
            fin(segment)
        } else {
            let mut last =
                with_dss(segment, data_fin(end, end).options.mptcp.dss.unwrap_or_default());
            last.flags = last.flags.with(Flags::FIN);
            last
        }
    }

    /// What may be sent now, or sent again if `timeout`.
    fn poll(&mut self, timeout: bool) -> Vec<Segment> {
        let mut segments = Vec::new();
        if timeout {
            if self.acknowledged < self.shape.len {
                let segment = self.data(self.acknowledged, false);
                segments.push(segment);
            } else {
                segments.push(self.end());
            }
        }
        while self.sent_to < self.shape.len.min(self.right_edge) {
            let segment = self.data(self.sent_to, true);
            self.sent_to += u64::from(segment.payload_len);
            segments.push(segment);
            if self.sent_to >= self.shape.len {
                segments.push(self.end());
            }
        }
        if self.shape.plain {
            for segment in &mut segments {
                segment.options.mptcp = MptcpOptions::default();
            }
        }
        segments
    }

    fn take(&mut self, ack: &Segment, scale: u8) {
        let position = u64::from(ack.ack.0.wrapping_sub(PEER.0 + 1));
        self.acknowledged = self.acknowledged.max(position.min(self.shape.len));
        self.fin_acknowledged |= position > self.shape.len;
        self.right_edge =
            self.right_edge.max(position.min(self.shape.len) + (u64::from(ack.window) << scale));
        self.sent_to = self.sent_to.max(self.acknowledged);
        if let Some(DssNumber::Long(number)) = ack.options.mptcp.dss.and_then(|dss| dss.ack) {
            self.data_acknowledged = self.data_acknowledged.max(number.wrapping_sub(peer_dsn(0)));
        }
    }
}

/// Receives a stream sent as `shape` says over a network that acts as `fates` say.
fn transfer(shape: &Shape, fates: &[Fate], bursts: &[usize]) -> Result<(), TestCaseError> {
    let mut opening = if shape.plain { plain_syn() } else { syn() };
    if !shape.timestamps {
        opening.options.timestamps = None;
    }
    let mut trace = Trace::with_capacity(Config::default(), opening, shape.capacity);
    trace.expect_sent(1);
    let mut third = seg(0, 0);
    if !shape.timestamps {
        third.options.timestamps = None;
    }
    if !shape.plain {
        third.options.mptcp = capable_ack(None);
    }
    trace.accept(third);
    if !shape.plain {
        // A segment whose mapping is not known is no reason to fall back then.
        trace.connection.joined();
    }
    trace.subflow.request_ack();
    let scale = Config::scale_for(16 << 20).shift();
    let mut sender = Sender::new(shape.clone());
    for ack in trace.sent() {
        sender.take(&ack, scale);
    }
    // The network mends in the end, or a loss could meet every copy of the same segment for ever.
    let mut fates = fates.iter().copied().cycle().take(2000);
    let mut bursts = bursts.iter().copied().cycle();
    let mut network: Vec<Segment> = Vec::new();
    let mut late: Vec<(u8, Segment)> = Vec::new();
    let mut timeout = shape.len == 0;
    for round in 0.. {
        prop_assert!(round < 200_000, "no end: {} of {}", sender.acknowledged, shape.len);
        for segment in sender.poll(timeout) {
            match fates.next().unwrap_or(Fate::Arrives) {
                Fate::Arrives => network.push(segment),
                Fate::Lost => {}
                Fate::Twice => network.extend([segment, segment]),
                Fate::Late(by) => late.push((by, segment)),
                Fate::Collapsed => {
                    // All of what is under the segment's own mapping before it, and itself.
                    let at = u64::from(segment.seq.0.wrapping_sub(PEER.0 + 1));
                    let end = at + u64::from(segment.payload_len);
                    let from = match segment.options.mptcp.dss {
                        Some(_) if segment.payload_len > 0 => sender.mapping_of(at).from,
                        _ => at,
                    };
                    let mut collapsed = segment;
                    collapsed.seq = PEER + 1 + from as u32;
                    collapsed.payload_len = (end - from) as u32;
                    if let Some(dss) = &mut collapsed.options.mptcp.dss
                        && collapsed.payload_len > 0
                    {
                        dss.mapping = sender.mapping_of(at).dss().mapping;
                    }
                    network.push(collapsed);
                }
            }
        }
        for (by, segment) in core::mem::take(&mut late) {
            match by.checked_sub(1) {
                Some(by) => late.push((by, segment)),
                None => network.push(segment),
            }
        }
        let burst = bursts.next().unwrap_or(1).min(network.len());
        timeout = network.is_empty() && late.is_empty();
        for segment in network.drain(..burst) {
            let payload = sender.payload(&segment);
            let _ = trace.recv_bytes(segment, &payload);
            prop_assert!(trace.subflow.state() != State::Closed, "{:?}", trace.events);
        }
        trace.pass(ms(50));
        for ack in trace.sent() {
            let position = u64::from(ack.ack.0.wrapping_sub(PEER.0 + 1));
            let received = position.min(shape.len);
            // What is acknowledged is there.
            for chunk in sender.mappings.iter().filter(|chunk| chunk.from < received) {
                let part = chunk.cut(chunk.from, chunk.to.min(received));
                prop_assert!(trace.have.covers(part.offset..part.offset + part.to - part.from));
            }
            let edge = match ack.options.mptcp.dss.and_then(|dss| dss.ack) {
                Some(DssNumber::Long(number)) => number.wrapping_sub(peer_dsn(0)).min(shape.len),
                _ => received,
            };
            prop_assert!(trace.have.covers(0..edge));
            let told = edge + (u64::from(ack.window) << scale);
            prop_assert!(told <= trace.right_edge, "no room for what was told");
            if !matches!(fates.next(), Some(Fate::Lost)) {
                sender.take(&ack, scale);
            }
        }
        trace.read();
        let view = trace.view();
        if trace.subflow.window_update_due(&view) {
            trace.subflow.request_ack();
        }
        if sender.done() {
            break;
        }
    }
    trace.expect_stream(shape.len);
    prop_assert!(trace.stream.len() as u64 == shape.len, "bytes beyond the end");
    let end = StreamOffset(shape.len);
    let expected =
        if shape.plain { Event::StreamEnd { at: end } } else { Event::DataFin { at: end } };
    prop_assert!(trace.events.contains(&expected), "{:?}", trace.events);
    let fell_back = trace.events.iter().any(|event| matches!(event, Event::Fallback(_)));
    prop_assert!(!fell_back);
    let statistics = trace.subflow.statistics();
    prop_assert_eq!(statistics.bytes, shape.len);
    Ok(())
}

proptest! {
    #[test]
    fn any_stream_arrives_exactly(
        shape in shape(),
        fates in prop::collection::vec(fate(), 5..60),
        bursts in prop::collection::vec(1..70_usize, 1..8),
    ) {
        // A network that loses everything is no test.
        prop_assume!(fates.iter().any(|fate| matches!(fate, Fate::Arrives)));
        transfer(&shape, &fates, &bursts)?;
    }
}
