//! Several subflows of one connection: whatever each of their networks does, and whichever of them
//! ends, the stream is exact.

use proptest::prelude::*;

use super::join::{join, join_syn, third_ack};
use super::sums::{checked, with_checksum};
use super::*;

/// A part of the stream, and where a subflow has it.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    position: u64,
    offset: u64,
    len: u64,
}

/// What the peer does.
#[derive(Clone, Debug)]
struct Plan {
    subflows: usize,
    checksums: bool,
    len: u64,
    capacity: u64,
    slack: u64,
    /// Chances in 256: that a segment is lost, comes twice, and that a chunk is sent once more on
    /// another subflow.
    lost: u8,
    twice: u8,
    again: u8,
    /// After so many rounds the last subflow is reset.
    cut: usize,
    seed: u64,
}

prop_compose! {
    fn plan()(
        subflows in 2..5_usize,
        checksums in any::<bool>(),
        len in 1..40_000_u64,
        capacity in 4_000..60_000_u64,
        slack in prop_oneof![Just(0), Just(Config::default().window_slack())],
        lost in 0..100_u8,
        twice in 0..100_u8,
        again in 0..100_u8,
        cut in 1..60_usize,
        seed in 1..u64::MAX,
    ) -> Plan {
        Plan { subflows, checksums, len, capacity, slack, lost, twice, again, cut, seed }
    }
}

/// Xorshift: the same seed makes the same network.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    pub(super) fn chance(&mut self, of_256: u8) -> bool {
        self.below(256) < u64::from(of_256)
    }
}

/// The peer's end of a subflow, and ours while another is in the trace.
struct Flow {
    subflow: Option<Subflow>,
    held: Vec<(MappingId, u64, Vec<u8>)>,
    chunks: Vec<Chunk>,
    /// The end of what was mapped.
    mapped: u64,
    acknowledged: u64,
    /// The window that the peer's TCP has.
    window: u64,
    alive: bool,
}

impl Flow {
    fn new(subflow: Option<Subflow>) -> Self {
        let (held, chunks) = (Vec::new(), Vec::new());
        Self { subflow, held, chunks, mapped: 0, acknowledged: 0, window: 0, alive: true }
    }

    fn append(&mut self, offset: u64, len: u64) {
        self.chunks.push(Chunk { position: self.mapped, offset, len });
        self.mapped += len;
    }

    /// The segments of the next `limit` octets, up to three for a mapping.
    fn segments(&self, limit: u64, end: u64, plan: &Plan) -> Vec<(Segment, u64)> {
        let mut segments = Vec::new();
        for chunk in &self.chunks {
            let step = chunk.len.div_ceil(3);
            for at in (0..chunk.len).step_by(step as usize) {
                let position = chunk.position + at;
                let len = step.min(chunk.len - at);
                let here = position + len > self.acknowledged
                    && position < self.acknowledged + limit
                    && chunk.offset + chunk.len <= end;
                if here {
                    let mapping = dss(chunk.position, chunk.offset, chunk.len as u16);
                    let mapping = match plan.checksums {
                        true => with_checksum(mapping, &text(chunk.offset, chunk.len as u32)),
                        false => mapping,
                    };
                    let segment = with_dss(seg(position, len as u32), mapping);
                    segments.push((segment, chunk.offset + at));
                }
            }
        }
        segments
    }
}

struct Peer {
    plan: Plan,
    random: Random,
    trace: Trace,
    flows: Vec<Flow>,
    /// The highest DATA_ACK and right edge that any subflow told.
    data_acknowledged: u64,
    right_edge: u64,
    scheduled: u64,
}

impl Peer {
    fn new(plan: Plan) -> Self {
        let mut trace = if plan.checksums { checked() } else { Trace::mptcp() };
        trace.capacity = plan.capacity;
        trace.right_edge = plan.capacity;
        trace.slack = plan.slack;
        trace.accept(with_dss(seg(0, 0), Dss { mapping: None, ..dss(0, 0, 0) }));
        let view = trace.view();
        let mut flows = Vec::from([Flow::new(None)]);
        for _ in 1..plan.subflows {
            let subflow = join(&trace.connection, &join_syn(), &view);
            flows.push(Flow::new(Some(subflow.expect("the connection takes it"))));
        }
        let mut peer = Self {
            random: Random(plan.seed),
            trace,
            flows,
            data_acknowledged: 0,
            right_edge: 0,
            scheduled: 0,
            plan,
        };
        for index in 1..peer.flows.len() {
            peer.with(index, |trace| {
                trace.expect_sent(1);
                trace.accept(third_ack());
                trace.expect_sent(1);
            });
        }
        peer.with(0, |trace| trace.subflow.request_ack());
        peer.take_acks(0, false);
        peer
    }

    /// Does something with our end of a subflow.
    fn with<T>(&mut self, index: usize, f: impl FnOnce(&mut Trace) -> T) -> T {
        let flow = &mut self.flows[index];
        let mut other = flow.subflow.take();
        if let Some(other) = &mut other {
            core::mem::swap(&mut self.trace.subflow, other);
        }
        core::mem::swap(&mut self.trace.held, &mut flow.held);
        let result = f(&mut self.trace);
        core::mem::swap(&mut self.trace.held, &mut flow.held);
        if let Some(mut other) = other {
            core::mem::swap(&mut self.trace.subflow, &mut other);
            flow.subflow = Some(other);
        }
        result
    }

    /// Gives new parts of the stream to subflows, and some old ones a second time.
    fn schedule(&mut self) {
        while self.scheduled < self.plan.len {
            let len = (1 + self.random.below(1500)).min(self.plan.len - self.scheduled);
            if self.scheduled + len > self.right_edge {
                return;
            }
            let index = self.any_alive();
            self.flows[index].append(self.scheduled, len);
            if self.random.chance(self.plan.again) {
                // Not as it was divided the first time.
                let back = self.random.below(self.scheduled + 1).min(500);
                let index = self.any_alive();
                self.flows[index].append(self.scheduled - back, len + back);
            }
            self.scheduled += len;
        }
    }

    fn any_alive(&mut self) -> usize {
        let alive = self.flows.iter().filter(|flow| flow.alive).count();
        self.random.below(alive as u64) as usize
    }

    fn transmit(&mut self, index: usize) {
        let limit = 1 + self.random.below(8000);
        let flow = &self.flows[index];
        let mut network = flow.segments(limit, self.right_edge, &self.plan);
        // Any order: each takes another's place.
        for at in 1..network.len() {
            let other = self.random.below(at as u64 + 1) as usize;
            network.swap(at, other);
        }
        for (segment, offset) in network {
            let copies = match (self.random.chance(self.plan.lost), self.plan.twice) {
                (true, _) => 0,
                (false, twice) => 1 + usize::from(self.random.chance(twice)),
            };
            for _ in 0..copies {
                let _ = self.with(index, |trace| trace.recv_at(segment, offset));
            }
        }
    }

    fn take_acks(&mut self, index: usize, may_be_lost: bool) {
        for ack in self.with(index, Trace::sent) {
            assert!(!ack.flags.contains(Flags::RST), "{:?}", self.trace.events);
            let position = u64::from(ack.ack.0.wrapping_sub(PEER.0 + 1));
            let number = ack.options.mptcp.dss.and_then(|dss| dss.ack);
            let Some(DssNumber::Long(number)) = number else { panic!("no DATA_ACK: {ack:?}") };
            let edge = number.wrapping_sub(peer_dsn(0));
            let there = self.trace.edge();
            assert!(edge <= there + 1, "more was acknowledged than there is");
            let flow = &mut self.flows[index];
            // What the subflow acknowledges is in the ring, or held for its checksum.
            for chunk in flow.chunks.iter().filter(|chunk| chunk.position + chunk.len <= position) {
                let range = chunk.offset..chunk.offset + chunk.len;
                assert!(self.trace.have.covers(range), "{chunk:?} was lost");
            }
            let told = edge + (u64::from(ack.window) << 9);
            assert!(told <= self.trace.right_edge + 1, "no room for what was told");
            self.trace.told = self.trace.told.max(StreamOffset(told));
            if may_be_lost && self.random.chance(self.plan.lost) {
                continue;
            }
            // TCP takes a smaller window only with what acknowledges something new, and Linux adds
            // the window that TCP has to whatever DATA_ACK comes.
            let window = u64::from(ack.window) << 9;
            if position > flow.acknowledged || window > flow.window {
                flow.window = window;
            }
            assert!(
                edge + flow.window <= self.trace.right_edge + 1,
                "Linux would send past the edge"
            );
            flow.acknowledged = flow.acknowledged.max(position);
            self.data_acknowledged = self.data_acknowledged.max(edge);
            self.right_edge = self.right_edge.max(told);
        }
    }

    /// The path of the last subflow fails: what was not acknowledged at the data level is sent
    /// again on others, cut anew.
    fn cut(&mut self) {
        let last = self.flows.len() - 1;
        self.with(last, |trace| {
            let next = trace.subflow.receive.received;
            let reset = Segment { flags: Flags::RST.with(Flags::ACK), ..seg(next, 0) };
            trace.accept(reset);
            trace.expect_state(State::Closed);
            trace.expect_sent(0);
        });
        self.flows[last].alive = false;
        let mut at = self.data_acknowledged.min(self.scheduled);
        while at < self.scheduled {
            let len = (1 + self.random.below(1000)).min(self.scheduled - at);
            let index = self.any_alive();
            self.flows[index].append(at, len);
            at += len;
        }
    }

    fn run(&mut self) {
        for round in 0.. {
            assert!(round < 20_000, "no end: {} of {}", self.data_acknowledged, self.plan.len);
            self.schedule();
            if round == self.plan.cut {
                self.cut();
            }
            for index in 0..self.flows.len() {
                if !self.flows[index].alive {
                    continue;
                }
                self.transmit(index);
                self.trace.now = self.trace.now + ms(10);
                self.with(index, |trace| {
                    trace.pass(ms(0));
                    // What changed on other subflows, or by the reader, is told unasked.
                    let view = trace.view();
                    if trace.subflow.data_ack_due(&view) || trace.subflow.window_update_due(&view) {
                        trace.subflow.request_ack();
                    }
                });
                self.take_acks(index, true);
            }
            if self.random.below(3) == 0 {
                self.trace.read();
            }
            if self.scheduled == self.plan.len && self.data_acknowledged >= self.plan.len {
                break;
            }
            if round % 50 == 49 {
                // A lost acknowledgement is told again by what a sender's probes ask for.
                self.with(0, |trace| trace.subflow.request_ack());
                self.take_acks(0, false);
            }
        }
        self.trace.expect_stream(self.plan.len);
        let failed = self.with(0, |trace| trace.subflow.statistics().checksum_failures);
        assert_eq!(failed, 0);
        assert_eq!(self.trace.connection.mode(), crate::connection::Mode::Mptcp);
    }
}

proptest! {
    #[test]
    fn any_stream_over_several_subflows_arrives_exactly(plan in plan()) {
        Peer::new(plan).run();
    }
}

/// A sender like Linux: at the data level it goes by the highest right edge that it ever saw, and on
/// each subflow by the window that came last.
struct Filling {
    peer: Peer,
    /// Of each subflow, how much was sent.
    sent: Vec<u64>,
}

impl Filling {
    /// Gives all that the window has room for to subflows, in segments.
    fn schedule(&mut self) {
        let Peer { scheduled, right_edge, .. } = self.peer;
        for at in (scheduled..right_edge).step_by(1448) {
            let index = self.peer.any_alive();
            self.peer.flows[index].append(at, 1448.min(right_edge - at));
        }
        self.peer.scheduled = scheduled.max(right_edge);
    }

    /// Sends one segment of a subflow, if its window has room for all of it.
    fn transmit(&mut self, index: usize) -> bool {
        let flow = &self.peer.flows[index];
        let Some(&Chunk { position, offset, len }) =
            flow.chunks.iter().find(|chunk| chunk.position == self.sent[index])
        else {
            return false;
        };
        let fits = position + len <= flow.acknowledged + flow.window;
        if fits {
            self.sent[index] += len;
            let segment = with_dss(seg(position, len as u32), dss(position, offset, len as u16));
            let _ = self.peer.with(index, |trace| trace.recv_at(segment, offset));
        }
        fits
    }

    /// Until nothing more can be sent, whatever is waited for.
    fn run(&mut self) {
        let mut idle = 0;
        while idle < 3 {
            self.schedule();
            idle += 1;
            for index in 0..self.sent.len() {
                // A few come together and have one answer.
                for _ in 0..=self.peer.random.below(3) {
                    if self.transmit(index) {
                        idle = 0;
                    }
                }
                if idle > 0 {
                    self.peer.with(index, |trace| trace.pass(ms(50)));
                }
                self.peer.take_acks(index, false);
            }
        }
    }
}

/// Closes as many windows, and says how often a subflow was left with data that it could not send.
fn stuck(cases: u64, slack: u64) -> u64 {
    let closed = (1..=cases).map(|seed| {
        let mut peer = Peer::new(Plan {
            subflows: 2 + seed as usize % 3,
            checksums: false,
            len: u64::MAX,
            // More than a SYN/ACK can tell.
            capacity: 70_000 + seed * 97 % 5000,
            slack,
            lost: 0,
            twice: 0,
            again: 0,
            cut: 0,
            seed,
        });
        for index in 1..peer.flows.len() {
            peer.with(index, |trace| trace.subflow.request_ack());
            peer.take_acks(index, false);
        }
        let sent = peer.flows.iter().map(|_| 0).collect();
        let mut filling = Filling { peer, sent };
        filling.run();
        filling.peer
    });
    closed.filter(|peer| peer.data_acknowledged < peer.scheduled).count() as u64
}

/// Linux takes what a subflow keeps for longer than a timeout to another one.
#[test]
fn a_window_that_closes_leaves_nothing_behind_on_a_subflow() {
    assert_eq!(stuck(1000, Config::default().window_slack()), 0);
    assert!(stuck(1000, 0) > 100, "rounded down to the end it does, or this test finds nothing");
}
