//! The way of a packet: queue, parse, checksum, subflow, claim, copy, commit, recycle, answer.

use mpxdp_proto::segment::Segment;
use mpxdp_proto::subflow::{Disposition, State};
use mpxdp_proto::time::Instant;
use mpxdp_proto::wire::{Frame, IpFields, emit_frame, parse_frame_into};

use super::counters::{Counters, WorkerDrop};
use super::flows::{Entry, FlowId, FlowKey, Path};
use super::probe::{Probe, Stage};
use super::{Answer, Attached, Core, Progress, Worker};
use crate::checksum;
use crate::port::{Port, RxFrame, TxFrame};
use crate::receive::{Commit, Wanted};

/// Frames of one burst at most; a packet's frames are not split. A burst bounds how long the
/// answers of its first packet wait for its last.
const BURST: usize = 64;

/// Bytes of packets after which what was received is stored before more is looked at, so that the
/// payload is still in the cache that the checksum brought it into: half of the smallest
/// second-level cache in use (256 KiB), as the copy needs the same again for its target.
const SUB_BATCH: usize = 128 << 10;

impl<P: Port> Worker<P> {
    /// Takes a burst from each port and does everything that follows from it, and what else is
    /// due at `now`: commands, wishes of applications, timers.
    pub(crate) fn turn(&mut self, now: Instant) -> Progress {
        self.turn_watched(now, ())
    }

    /// The same, and `probe` is told of each stage.
    #[inline]
    pub(crate) fn turn_watched(&mut self, now: Instant, probe: impl Probe) -> Progress {
        let mut packets = 0;
        for port in 0..self.ports.len() {
            if !self.ports[port].facts.gone {
                packets += self.receive(now, port, probe);
            }
        }
        packets += self.core.take_strays(now);
        let asked = self.take_commands() + self.core.take_wishes(now);
        let due = self.core.take_due(now);
        probe.mark(Stage::Rest);
        self.answer(now);
        probe.mark(Stage::Acknowledge);
        if packets + asked + due > 0 {
            self.publish_tables();
        }
        let done = self.core.is_done(now);
        probe.mark(Stage::Rest);
        Progress { packets, busy: packets + asked + due > 0, done }
    }

    /// Receives one burst of one port.
    fn receive(&mut self, now: Instant, index: usize, probe: impl Probe) -> usize {
        let Self { ports, core, frames } = self;
        let port = &mut ports[index].port;
        let packets = port.receive(BURST, frames);
        probe.mark(Stage::Receive);
        if packets == 0 {
            return 0;
        }
        let (mut at, mut bytes, mut unstored) = (0, 0, 0);
        while at < frames.len() {
            let packet = pieces(port, frames, at);
            let (buffers, len) =
                packet.clone().fold((0, 0), |(n, len), piece| (n + 1, len + piece.len()));
            core.segment(now, Some(index), at, len, packet, probe);
            (at, bytes, unstored) = (at + buffers, bytes + len, unstored + len);
            if unstored >= SUB_BATCH || at == frames.len() {
                core.store(|source| pieces(port, frames, source), probe);
                // Frames go back at once, so that no reader, however slow, can starve the NIC.
                // Those that are left move to the front.
                port.recycle(frames.drain(..at));
                probe.mark(Stage::Recycle);
                (at, unstored) = (0, 0);
            }
        }
        core.handle.counters.burst(packets, bytes);
        packets
    }

    /// Sends what is to be sent: for each flow that anything happened to, one acknowledgement that
    /// covers all of the burst, and with it the newest edge and window.
    fn answer(&mut self, now: Instant) {
        let Self { ports, core, .. } = self;
        for Answer { key, path, segment } in core.answers.drain(..) {
            let ip = core.shared.protocol.ip;
            let mut sender = Sender::new(&mut ports[path.port], ip);
            sender.send(&core.handle.counters, &key, &path, || Some(segment));
            sender.finish();
        }
        let mut touched = std::mem::take(&mut core.touched);
        for id in touched.drain(..) {
            core.conclude(now, id, ports);
        }
        // `conclude` touches nothing, so nothing was pushed meanwhile.
        core.touched = touched;
        for attached in ports.iter_mut().filter(|attached| !attached.facts.gone) {
            if attached.port.flush().is_err() {
                core.handle.counters.dropped(WorkerDrop::FlushFailed);
            }
        }
    }
}

impl Core {
    /// Takes one packet in, `len` bytes in the buffers `packet`, up to the placements of its
    /// payload. `source` names it for [`store`](Self::store); `port` is where it came in, unless
    /// another worker handed it over. A packet that fails any check on the way changes nothing.
    pub(super) fn segment<'a>(
        &mut self,
        now: Instant,
        port: Option<usize>,
        source: usize,
        len: usize,
        packet: impl Iterator<Item = &'a [u8]> + Clone,
        probe: impl Probe,
    ) {
        let first = packet.clone().next().unwrap_or_default();
        let mut frame = Frame::default();
        if let Err(reason) = parse_frame_into(first, len, &mut frame) {
            return self.handle.counters.parse_error(reason);
        }
        probe.mark(Stage::Parse);
        if !is_checksum_right(&frame, packet.clone()) {
            return self.handle.counters.dropped(WorkerDrop::TcpChecksum);
        }
        probe.mark(Stage::Checksum);
        let key = FlowKey { local: frame.local, remote: frame.remote };
        let path = port.map(|port| Path { link: frame.link.reply(), port });
        let Some(id) = self.flows.find(&key) else {
            return self.no_flow(now, &key, path.as_ref(), source, &frame, packet);
        };
        let flow = match self.flows.get_mut(id) {
            Some(Entry::Flow(flow)) => flow,
            Some(Entry::Waiting(_)) => return self.time_wait(now, id, path, &frame),
            None => return,
        };
        if !flow.touched {
            flow.touched = true;
            flow.refresh_view();
            self.touched.push(id);
        }
        self.placements.clear();
        let withheld = flow.subflow.statistics().challenges_withheld;
        match flow.subflow.on_segment(now, &frame.segment, &flow.view, &mut self.placements) {
            Disposition::Accepted => flow.path = path.unwrap_or(flow.path),
            Disposition::Dropped(reason) => {
                self.handle.counters.disposed(reason);
                if flow.subflow.statistics().challenges_withheld != withheld {
                    self.handle.counters.dropped(WorkerDrop::ChallengeLimited);
                }
            }
        }
        self.take_events(id);
        self.place(now, id, source, frame.payload_at, packet);
        probe.mark(Stage::Subflow);
    }

    /// Has the payload that `placements` tells of, which lies at `payload_at` of the packet, stored
    /// by [`store`](Self::store), or held until it is proved.
    #[inline]
    pub(super) fn place<'a>(
        &mut self,
        now: Instant,
        id: FlowId,
        source: usize,
        payload_at: usize,
        packet: impl Iterator<Item = &'a [u8]> + Clone,
    ) {
        if self.placements.first().is_some_and(|placement| placement.mapping.is_some()) {
            return self.hold(now, id, payload_at, packet);
        }
        for placement in self.placements.drain(..) {
            let wanted = Wanted {
                to: placement.to,
                len: placement.len,
                source: source as u32,
                // A packet is no longer than 65535 octets and its link header.
                at: payload_at as u32 + placement.at,
            };
            self.wanted.push((id, wanted));
        }
    }

    /// Stores what was placed: for each connection one claim, the copies, and one commit. `packet`
    /// gives the buffers of the packet that a source names.
    pub(super) fn store<'a, I>(&mut self, packet: impl Fn(usize) -> I, probe: impl Probe)
    where
        I: Iterator<Item = &'a [u8]>,
    {
        let mut wanted = std::mem::take(&mut self.wanted);
        let of_one = wanted.iter().all(|(id, _)| *id == wanted[0].0);
        if !of_one {
            // By flows, and of each as it came. To look for those of each flow among all that are
            // left took seven times as many instructions in a burst of 64 flows.
            wanted.sort_unstable_by_key(|(id, wanted)| (*id, wanted.source, wanted.at));
        }
        for of_one in wanted.chunk_by(|(one, _), (other, _)| one == other) {
            self.wanted_of_one.extend(of_one.iter().map(|(_, wanted)| *wanted));
            self.store_of_one(of_one[0].0, &packet, probe);
        }
        wanted.clear();
        // Nothing is placed meanwhile.
        self.wanted = wanted;
    }

    /// Stores `wanted_of_one`, which is of the flow `id`, and empties it.
    pub(super) fn store_of_one<'a, I>(
        &mut self,
        id: FlowId,
        packet: &impl Fn(usize) -> I,
        probe: impl Probe,
    ) where
        I: Iterator<Item = &'a [u8]>,
    {
        let wanted = &self.wanted_of_one;
        // Without a connection, it came to nothing at the end of its handshake.
        if let Some(flow) = self.flows.flow_mut(id)
            && let Some(connection) = &flow.connection
        {
            let ring = &connection.ring;
            let outcome = ring.claim(wanted, &mut self.claims);
            probe.mark(Stage::Claim);
            for claim in &mut self.claims {
                let mut skip = claim.at() as usize;
                for piece in packet(claim.source() as usize) {
                    if skip >= piece.len() {
                        skip -= piece.len();
                        continue;
                    }
                    let end = piece.len().min(skip + claim.remaining());
                    ring.copy(claim, &piece[skip..end]);
                    skip = 0;
                    if claim.remaining() == 0 {
                        break;
                    }
                }
            }
            probe.mark(Stage::Copy);
            if let Some(record) = &flow.record {
                // Before the commit, so that whoever sees the bytes sees them counted.
                let queue = self.facts[flow.path.port].queue;
                record.publish(&flow.subflow, queue);
            }
            let before = ring.edge();
            let Commit { edge, advanced } = ring.commit(&mut self.claims);
            flow.refresh_view();
            if advanced && !flow.view.may_fall_back {
                // Others may have moved the edge too since `before`; that does no harm.
                flow.edge_moved((edge - before).saturating_sub(outcome.claimed));
            }
            if outcome.refused > 0 {
                // The subflow counts it as received, so it would be acknowledged and lost.
                self.handle.counters.dropped(WorkerDrop::RingRefused);
                self.abort_connection(id);
            }
        }
        self.wanted_of_one.clear();
        probe.mark(Stage::Commit);
    }

    /// Sends what a flow has to send, and brings its deadline, its connection's numbers and its
    /// place in the table up to date.
    fn conclude<P: Port>(&mut self, now: Instant, id: FlowId, ports: &mut [Attached<P>]) {
        let Some(flow) = self.flows.flow_mut(id) else { return };
        flow.touched = false;
        flow.refresh_view();
        let (key, path) = (flow.key, flow.path);
        let mut sender = Sender::new(&mut ports[path.port], self.shared.protocol.ip);
        let (subflow, view) = (&mut flow.subflow, &flow.view);
        let mut sent = false;
        while sender.send(&self.handle.counters, &key, &path, || subflow.poll_transmit(now, view)) {
            sent = true;
        }
        let blocked = sender.finish();
        if !blocked && subflow.state() == State::Closed && !ports[path.port].facts.gone {
            // With the flow its address may go from the steering program; from then on the kernel
            // answers its packets, and that must not come before our last word.
            if ports[path.port].port.flush().is_err() {
                self.handle.counters.dropped(WorkerDrop::FlushFailed);
            }
        }
        // One that repeats an older DATA_ACK repeats the window of that too.
        if sent && !flow.view.may_fall_back && !flow.subflow.data_ack_due(&flow.view) {
            flow.window_told();
        }
        self.take_events(id);
        self.settle(now, id, blocked);
    }
}

/// Sends segments through a port, with one frame in hand.
struct Sender<'a, P: Port> {
    port: &'a mut P,
    /// Whether the NIC is gone: what is sent is lost.
    gone: bool,
    ip: IpFields,
    frame: Option<TxFrame>,
    blocked: bool,
}

impl<'a, P: Port> Sender<'a, P> {
    fn new(Attached { port, facts }: &'a mut Attached<P>, ip: IpFields) -> Self {
        Self { port, gone: facts.gone, ip, frame: None, blocked: false }
    }

    /// Sends what `next` gives; says whether it gave something. It is not asked if there is no
    /// frame to send with.
    fn send(
        &mut self,
        counters: &Counters,
        key: &FlowKey,
        path: &Path,
        next: impl FnOnce() -> Option<Segment>,
    ) -> bool {
        if self.gone {
            return next().is_some();
        }
        let frame = self.frame.take().or_else(|| self.port.allocate()).or_else(|| {
            // Frames that were sent come back by a flush.
            self.port.flush().ok()?;
            self.port.allocate()
        });
        let Some(mut frame) = frame else {
            counters.dropped(WorkerDrop::NoTransmitFrame);
            self.blocked = true;
            return false;
        };
        let Some(segment) = next() else {
            self.frame = Some(frame);
            return false;
        };
        let bytes = self.port.bytes_mut(&mut frame);
        match emit_frame(bytes, &path.link, key.local, key.remote, self.ip, &segment, &[]) {
            Ok(len) => {
                self.port.transmit(frame, len);
                counters.sent();
            }
            Err(_) => {
                counters.dropped(WorkerDrop::EmitFailed);
                self.frame = Some(frame);
            }
        }
        true
    }

    /// Gives the frame in hand back; says whether one was missing.
    fn finish(self) -> bool {
        if let Some(frame) = self.frame {
            self.port.release(frame);
        }
        self.blocked
    }
}

/// The buffers of the packet that begins at `frames[at]`.
fn pieces<'a, P: Port>(
    port: &'a P,
    frames: &'a [RxFrame],
    at: usize,
) -> impl Iterator<Item = &'a [u8]> + Clone {
    let mut more = true;
    frames[at..]
        .iter()
        .take_while(move |frame| std::mem::replace(&mut more, frame.more()))
        .map(|frame| port.bytes(frame))
}

/// Whether the TCP checksum is right, over all buffers of the packet.
fn is_checksum_right<'a>(frame: &Frame, packet: impl Iterator<Item = &'a [u8]>) -> bool {
    let (mut start, mut end) = (frame.tcp_at, frame.end());
    let mut sum = checksum::Pieces::new();
    for piece in packet {
        let to = end.min(piece.len());
        if start < to {
            sum.add(&piece[start..to]);
        }
        start = start.saturating_sub(piece.len());
        end -= to;
    }
    checksum::fold(frame.pseudo_header_sum() + sum.sum()) == 0xffff
}
