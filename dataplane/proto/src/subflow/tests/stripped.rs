//! A model of Linux's sender on a path that loses MPTCP's options, in either direction and from any octet
//! on. Whatever that does, what is in the ring is the stream.
//!
//! The model has what makes such a path dangerous: it falls back without a word, and while it does not, it
//! sends data again as new of the subflow if it has no DATA_ACK, and probes a closed window with an old
//! octet. It answers MP_FAIL, and falls back with its next data; or, as before Linux 5.17, does neither.

use proptest::prelude::*;

use super::*;

/// The time between two rounds; twice that is the round-trip time.
const ROUND: Duration = ms(5);
/// Rounds without news until something is sent again.
const PATIENCE: u32 = 40;

#[derive(Clone, Debug)]
struct Case {
    total: u64,
    mss: u16,
    /// From which octet of payload on options are lost on the way to us, and on the way back.
    forward: Option<u64>,
    backward: Option<u64>,
    capacity: u64,
    /// The reader takes everything every so many rounds.
    reads_every: u32,
    /// So many packets of a hundred are lost.
    loss: u8,
    timestamps: bool,
    answers_fail: bool,
    /// So many segments are taken before we acknowledge.
    burst: usize,
    seed: u64,
}

/// What loses options begins with it at one octet: on one way, or on both at once. If the ways change at
/// times of their own, both within the first round trip, nothing can tell; so do losses there.
fn losing() -> impl Strategy<Value = (Option<u64>, Option<u64>, u8)> {
    let from = || prop_oneof![0..40_000_u64, Just(0), Just(14_000)];
    let loss = || prop_oneof![3 => Just(0_u8), 1 => 0..10_u8];
    prop_oneof![
        1 => loss().prop_map(|loss| (None, None, loss)),
        3 => (from(), loss()).prop_map(|(at, loss)| (Some(at), None, loss)),
        1 => (from(), loss()).prop_map(|(at, loss)| (None, Some(at), loss)),
        2 => from().prop_map(|at| (Some(at), Some(at), 0)),
        2 => (from(), loss()).prop_map(|(at, loss)| (Some(at), Some(0), loss)),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let reader = (2000..100_000_u64, prop_oneof![3 => Just(1_u32), 2 => 1..200_u32]);
    let peer = (1..120_000_u64, 500..1400_u16, any::<bool>(), any::<bool>());
    (losing(), reader, peer, 1..8_usize, any::<u64>()).prop_map(
        |(losing, reader, peer, burst, seed)| {
            let (forward, backward, loss) = losing;
            let (capacity, reads_every) = reader;
            let (total, mss, timestamps, answers_fail) = peer;
            Case {
                total,
                mss,
                forward,
                backward,
                capacity,
                reads_every,
                loss,
                timestamps,
                answers_fail,
                burst,
                seed,
            }
        },
    )
}

/// Payload of the subflow: where it is there, and in the stream.
#[derive(Clone, Copy, Debug)]
struct Piece {
    position: u64,
    offset: u64,
    len: u32,
}

struct Peer {
    case: Case,
    pieces: Vec<Piece>,
    /// The payload positions that are acknowledged, sent for the first time, and in all.
    acked: u64,
    next: u64,
    end: u64,
    /// The same of the stream.
    data_acked: u64,
    data_next: u64,
    /// The right edge, as a payload position or, in MPTCP, in the stream.
    edge: u64,
    plain: bool,
    established: bool,
    infinite_due: bool,
    retransmitted: bool,
    in_flight: u64,
    quiet: u32,
    echo: u32,
    fin_sent: bool,
    over: bool,
}

impl Peer {
    fn new(case: Case, edge: u64) -> Self {
        Self {
            case,
            pieces: Vec::new(),
            acked: 0,
            next: 0,
            end: 0,
            data_acked: 0,
            data_next: 0,
            edge,
            plain: false,
            established: false,
            infinite_due: false,
            retransmitted: false,
            in_flight: 10,
            quiet: 0,
            echo: 0,
            fin_sent: false,
            over: false,
        }
    }

    fn stamped(&self, segment: Segment, now: Instant) -> Segment {
        let timestamps = self
            .case
            .timestamps
            .then(|| Timestamps { value: 200 + (now.0 / 1_000_000) as u32, echo: self.echo });
        Segment { options: Options { timestamps, ..segment.options }, ..segment }
    }

    /// A segment of ours comes. Returns the answer that is due at once.
    fn on_segment(&mut self, ours: &Segment, now: Instant) -> Option<Segment> {
        if ours.flags.contains(Flags::RST) {
            self.over = true;
            return None;
        }
        if let Some(theirs) = ours.options.timestamps {
            self.echo = self.echo.max(theirs.value);
        }
        let acked = u64::from(ours.ack.0.wrapping_sub(PEER.0 + 1));
        let (dss, fail) = (ours.options.mptcp.dss, ours.options.mptcp.fail);
        let mut answer = None;
        if !self.plain {
            match dss.and_then(|dss| dss.ack) {
                Some(DssNumber::Long(number)) => {
                    self.established = true;
                    let data_acked = number.wrapping_sub(peer_dsn(0));
                    if data_acked <= self.data_next {
                        if data_acked > self.data_acked {
                            self.data_acked = data_acked;
                            self.quiet = 0;
                        }
                        self.edge = self.edge.max(data_acked + (u64::from(ours.window) << 9));
                    }
                }
                Some(DssNumber::Short(_)) => panic!("ours are long"),
                // Our first acknowledgements may be of the handshake.
                None if !self.established && acked > 0 => self.plain = true,
                None => {}
            }
            if fail.is_some() && self.case.answers_fail && !self.retransmitted {
                self.infinite_due = true;
                let mptcp = MptcpOptions { fail: Some(our_dsn(0)), ..Default::default() };
                answer = Some(self.stamped(with_mptcp(seg(self.next, 0), mptcp), now));
            }
        }
        if self.plain {
            self.edge = self.edge.max(acked + (u64::from(ours.window) << 9));
        }
        if acked > self.acked {
            // Slow start.
            self.in_flight += 2;
            self.acked = acked;
            self.quiet = 0;
        }
        answer
    }

    fn push(&mut self, offset: u64, len: u32) {
        self.pieces.push(Piece { position: self.end, offset, len });
        self.end += u64::from(len);
    }

    /// A segment of a piece that was sent before, or is now.
    fn segment(&self, piece: Piece, now: Instant) -> (Segment, u64) {
        let Piece { position, offset, len } = piece;
        let segment = seg(position, len);
        let segment = match self.plain {
            true => segment,
            false => with_dss(segment, dss(position, offset, len as u16)),
        };
        (self.stamped(segment, now), offset)
    }

    /// What is sent in a round.
    fn round(&mut self, now: Instant) -> Vec<(Segment, u64)> {
        let mut sent = Vec::new();
        self.quiet += 1;
        let again = self.quiet > PATIENCE;
        if again {
            self.quiet = 0;
        }
        let mss = u64::from(self.case.mss);
        loop {
            let room = self.edge.saturating_sub(self.data_next);
            let len = (self.case.total - self.data_next).min(mss).min(room) as u32;
            if len == 0 || self.end - self.acked >= self.in_flight * mss {
                break;
            }
            self.push(self.data_next, len);
            self.data_next += u64::from(len);
            if self.infinite_due {
                self.infinite_due = false;
                self.plain = true;
                let Piece { position, offset, .. } = *self.pieces.last().expect("it was pushed");
                let infinite = with_dss(seg(position, len), dss(position, offset, 0));
                sent.push((self.stamped(infinite, now), offset));
                self.next = self.end;
            }
            self.flush(now, &mut sent);
        }
        if again && self.acked < self.end {
            let lost = self.pieces.iter().find(|p| p.position + u64::from(p.len) > self.acked);
            sent.push(self.segment(*lost.expect("it is there"), now));
        } else if again && !self.plain {
            let probe = self.edge <= self.data_next && self.data_next < self.case.total;
            if self.data_acked < self.data_next {
                // All is acknowledged by TCP: as new of the subflow.
                let len = (self.data_next - self.data_acked).min(mss) as u32;
                self.push(self.data_acked, len);
                self.retransmitted = true;
            } else if probe && self.data_acked > 0 {
                self.push(self.data_acked - 1, 1);
            } else if self.data_next == self.case.total {
                sent.push((self.stamped(data_fin(self.end, self.case.total), now), 0));
            }
            self.flush(now, &mut sent);
        }
        let all = self.data_next == self.case.total && self.acked == self.end;
        if self.plain && all && (!self.fin_sent || again) {
            self.fin_sent = true;
            sent.push((self.stamped(fin(seg(self.end, 0)), now), 0));
        }
        sent
    }

    fn flush(&mut self, now: Instant, sent: &mut Vec<(Segment, u64)>) {
        let new = self.pieces.iter().rev().take_while(|piece| piece.position >= self.next);
        let new: Vec<_> = new.copied().collect();
        sent.extend(new.into_iter().rev().map(|piece| self.segment(piece, now)));
        self.next = self.end;
    }
}

/// A die for losses.
struct Dice(u64);

impl Dice {
    fn percent(&mut self, chance: u8) -> bool {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % 100 < u64::from(chance)
    }
}

fn without_mptcp(segment: Segment) -> Segment {
    with_mptcp(segment, MptcpOptions::default())
}

/// Runs a connection to its end, or for long enough; returns how much arrived, and whether the stream has
/// ended.
fn run(case: &Case) -> (u64, bool) {
    let mut syn = syn();
    if !case.timestamps {
        syn.options.timestamps = None;
    }
    let mut trace = Trace::with_capacity(Config::default(), syn, case.capacity);
    trace.expect_sent(1);
    let mut peer = Peer::new(case.clone(), case.capacity.min(65_535));
    let now = trace.now;
    let third = peer.stamped(with_mptcp(seg(0, 0), capable_ack(None)), now);
    trace.accept(third);
    let mut dice = Dice(case.seed);
    let (mut passed, mut to_us, mut to_peer) = (0, Vec::new(), Vec::<Segment>::new());
    for round in 1..3000 {
        trace.pass(ROUND);
        let now = trace.now;
        let mut answers: Vec<(Segment, u64)> = Vec::new();
        for ours in core::mem::take(&mut to_peer) {
            answers.extend(peer.on_segment(&ours, now).map(|answer| (answer, 0)));
        }
        if peer.over {
            break;
        }
        answers.extend(peer.round(now));
        let arriving = core::mem::replace(&mut to_us, answers);
        let mut ours = Vec::new();
        for burst in arriving.chunks(case.burst) {
            for &(segment, offset) in burst {
                if dice.percent(case.loss) {
                    continue;
                }
                let stripped = case.forward.is_some_and(|from| passed >= from);
                passed += u64::from(segment.payload_len);
                let segment = if stripped { without_mptcp(segment) } else { segment };
                let _ = trace.recv_at(segment, offset);
            }
            ours.extend(trace.sent());
        }
        if round % case.reads_every == 0 {
            trace.read();
            let view = trace.view();
            if trace.subflow.window_update_due(&view) {
                trace.subflow.request_ack();
            }
        }
        ours.extend(trace.sent());
        let stripped = case.backward.is_some_and(|from| passed >= from);
        let ours = ours.into_iter().filter(|_| !dice.percent(case.loss));
        to_peer = ours.map(|one| if stripped { without_mptcp(one) } else { one }).collect();
        let edge = trace.edge();
        assert!(edge <= case.total, "{edge} octets of {}", case.total);
        if trace.subflow.state() == State::Closed {
            break;
        }
    }
    let edge = trace.edge();
    trace.expect_stream(edge);
    let view = trace.view();
    if let Some(at) = view.remote_fin {
        assert_eq!(at.0, case.total, "the stream ends too early");
    }
    (edge, view.remote_complete())
}

proptest! {
    #[test]
    fn whatever_loses_options_what_arrives_is_the_stream(case in case()) {
        let (arrived, complete) = run(&case);
        // A peer that never had an option of ours after the handshake has fallen back; if the window
        // closes, its next octet may be taken for an old one. One that always had, and whose own came
        // through, needs not to.
        let own = matches!(case.forward, None | Some(0));
        let deaf = case.backward == Some(0) && own && case.capacity > case.total && case.timestamps;
        let whole = case.backward.is_none() && case.forward.is_none();
        if case.reads_every == 1 && case.loss == 0 && (whole || deaf) {
            prop_assert_eq!((arrived, complete), (case.total, true));
        }
    }
}

/// What the first flight's end looks like to us says nothing about the way back; either way it ends well,
/// or with an error.
#[test]
fn options_lost_from_the_end_of_the_first_flight_on() {
    let case = Case {
        total: 100_000,
        mss: 1400,
        forward: Some(14_000),
        backward: None,
        capacity: 1 << 17,
        reads_every: 1,
        loss: 0,
        timestamps: true,
        answers_fail: true,
        burst: 10,
        seed: 1,
    };
    let (arrived, complete) = run(&case);
    assert!((14_001..100_000).contains(&arrived) && !complete, "{arrived}");
    let deaf = Case { backward: Some(0), ..case.clone() };
    assert_eq!(run(&deaf), (100_000, true));
    // One that knows no MP_FAIL sends all of it, and never hears of its DATA_FIN.
    let old = Case { answers_fail: false, ..case };
    assert_eq!(run(&old), (100_000, false));
    // And a reader that takes its time has it probe the window.
    let slow = Case { capacity: 20_000, reads_every: 200, ..old };
    let (arrived, complete) = run(&slow);
    assert!(arrived > 14_000 && !complete, "{arrived}");
}
