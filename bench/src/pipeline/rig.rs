//! A worker over a cable in memory, with clients at the far end and readers at this one.

use std::io::BufRead;
use std::time::Duration;

use mpxdp::port::{MemoryOptions, MemoryPort, Port, receive_packets, send_packet};
use mpxdp::stepped::SteppedWorker;
use mpxdp::{EngineConfig, Stream};
use mpxdp_proto::time::Instant;

use super::clock::{Watch, switches, ticks};
use super::peer::{Peer, SERVER, Shape, pattern};
use super::round::Measured;
use crate::{Error, Interrupt, Result};

/// Bytes of a buffer of the port: what an AF_XDP port has, so that a packet with more takes several.
pub(super) const FRAME_SIZE: usize = 4096;
/// Buffers of the port: so many frames are on the cable at once, as many as an AF_XDP port of the
/// default size has.
pub(super) const FRAMES: usize = 1024;
/// Frames of a worker's burst.
pub(super) const BURST: usize = 64;
/// Packets come as fast as a link of this rate brings them, as far as the worker's time tells.
const BITS_PER_SECOND: u64 = 40_000_000_000;
/// The MTU of the link: every payload fits.
const MTU: u32 = 9216;

/// See the [module](self).
pub(super) struct Rig {
    worker: SteppedWorker<MemoryPort>,
    far: MemoryPort,
    peer: Peer,
    streams: Vec<Stream>,
    /// Octets of each stream that were read.
    read: Vec<u64>,
    now: Instant,
    /// Whether what is read is compared with what was sent.
    verify: bool,
    /// The connection of each packet of a block.
    order: Vec<usize>,
    /// Octets of a packet of the block.
    packet: usize,
    buf: Vec<u8>,
}

/// The sizes of the port.
pub(super) const fn memory(frame_size: usize) -> MemoryOptions {
    MemoryOptions { frame_size, receive_frames: FRAMES, transmit_frames: FRAMES }
}

/// How many packets of so many octets a block has: as many as the buffers hold.
pub(super) const fn packets_of_a_block(packet: usize, frame_size: usize) -> usize {
    FRAMES / packet.div_ceil(frame_size)
}

impl Rig {
    /// Opens all connections, whose rings have `ring` bytes.
    ///
    /// # Errors
    ///
    /// No memory or descriptors are left.
    pub(super) fn new(shape: Shape, ring: usize) -> Result<Self> {
        let (near, far) = MemoryPort::pair(memory(FRAME_SIZE));
        let config = EngineConfig {
            receive_initial: ring,
            receive_limit: ring,
            half_open_per_source: usize::MAX,
            ..EngineConfig::default()
        };
        let failed = |e| Error::failed("pipeline", e);
        let worker = SteppedWorker::new(near, MTU, &config).map_err(failed)?;
        let listener = worker.listen(SERVER).map_err(failed)?;
        let mut rig = Self {
            worker,
            far,
            peer: Peer::new(shape),
            streams: Vec::new(),
            read: vec![0; shape.connections as usize],
            // One hour, as with an engine.
            now: Instant(3_600_000_000_000),
            verify: true,
            order: Vec::new(),
            packet: Peer::headers(shape.mptcp) + shape.payload,
            buf: Vec::new(),
        };
        for index in 0..shape.connections as usize {
            rig.open(index)?;
            let stream = listener.try_accept().map_err(failed)?.ok_or_else(|| {
                Error::Failed(format!("connection {index} was not accepted: {}", rig.drops()))
            })?;
            rig.streams.push(stream);
            rig.read_stream(index)?;
        }
        Ok(rig)
    }

    fn open(&mut self, index: usize) -> Result<()> {
        let Self { worker, far, peer, now, .. } = self;
        peer.open(index, &mut |frame, answer| {
            send_packet(far, frame);
            far.flush().expect("memory does not fail");
            *now = *now + Duration::from_micros(1);
            worker.turn(*now);
            receive_packets(far, FRAMES, |frame| answer(frame));
        })
    }

    /// Has as much sent and read, in the largest packets, as makes every page of every ring known to
    /// the processor; what is read is compared.
    ///
    /// # Errors
    ///
    /// Something did not arrive as it was sent, or a signal came.
    pub(super) fn warm_up(
        &mut self,
        shape: Shape,
        ring: usize,
        interrupt: &Interrupt,
    ) -> Result<()> {
        const LARGE: usize = 8948;
        self.verify = true;
        self.peer.set_payload(LARGE);
        self.peer.set_reorder(0.0);
        let bytes = ring as u64 * u64::from(shape.connections);
        let packets = bytes.div_ceil(LARGE as u64);
        let mut sent = 0;
        while sent < packets {
            interrupt.check()?;
            sent += self.block(Peer::headers(shape.mptcp) + LARGE, usize::MAX, ())?.packets;
        }
        self.peer.set_payload(shape.payload);
        self.peer.set_reorder(shape.reorder);
        self.block(Peer::headers(shape.mptcp) + shape.payload, usize::MAX, ())?;
        Ok(())
    }

    /// From now on what is read is compared with what was sent, or not.
    pub(super) fn set_verify(&mut self, verify: bool) {
        self.verify = verify;
    }

    /// Makes a block of packets of `packet` octets, and then measures how it goes through the worker
    /// to the readers: `most` packets, or as many as the port has buffers for. `watch` is told of the
    /// stages.
    ///
    /// # Errors
    ///
    /// A packet got lost, or what is read is wrong.
    pub(super) fn block(
        &mut self,
        packet: usize,
        most: usize,
        watch: impl Watch,
    ) -> Result<Measured> {
        self.order.clear();
        self.packet = packet;
        for _ in 0..packets_of_a_block(packet, FRAME_SIZE).min(most) {
            let (len, connection) = self.peer.next_packet(&mut self.buf);
            self.put(len, connection)?;
        }
        self.pass(watch)
    }

    fn put(&mut self, len: usize, connection: usize) -> Result<()> {
        if !send_packet(&mut self.far, &self.buf[..len]) {
            return Err(Error::Failed("pipeline: the cable is full".into()));
        }
        self.order.push(connection);
        Ok(())
    }

    /// Lets what lies on the cable pass.
    fn pass(&mut self, watch: impl Watch) -> Result<Measured> {
        self.far.flush().expect("memory does not fail");
        let packets = self.order.len();
        let mut taken = 0;
        let before = switches();
        watch.begin();
        let begin = ticks();
        while taken < packets {
            let turn = self.worker.turn_watched(self.now, watch);
            if turn.packets == 0 {
                return Err(Error::Failed(format!("pipeline: packets got lost: {}", self.drops())));
            }
            let burst = taken..taken + turn.packets;
            taken = burst.end;
            self.read_burst(burst)?;
            watch.read();
            // The same for all payloads and on all machines.
            self.now = self.now + Duration::from_nanos(turn.packets as u64 * self.gap());
        }
        let ticks = ticks() - begin;
        let switches = switches() - before;
        self.peer.tick();
        let peer = &mut self.peer;
        receive_packets(&mut self.far, usize::MAX, |frame| {
            peer.on_frame(frame);
        });
        Ok(Measured { ticks, packets: packets as u64, readings: 1, switches, stages: watch.take() })
    }

    /// Nanoseconds from one packet to the next.
    const fn gap(&self) -> u64 {
        (self.packet as u64 * 8 * 1_000_000_000).div_ceil(BITS_PER_SECOND)
    }

    /// Reads the streams that packets of a burst belonged to.
    #[inline]
    fn read_burst(&mut self, burst: std::ops::Range<usize>) -> Result<()> {
        if let [_] = self.streams[..] {
            return self.read_stream(0);
        }
        for at in burst {
            self.read_stream(self.order[at])?;
        }
        Ok(())
    }

    /// Reads what a stream has, in place.
    #[inline]
    fn read_stream(&mut self, index: usize) -> Result<()> {
        let stream = &mut self.streams[index];
        if stream.available() == 0 {
            return Ok(());
        }
        let bytes = stream.fill_buf().map_err(|e| Error::failed("pipeline: reading", e))?;
        let (len, from) = (bytes.len(), self.read[index]);
        if self.verify {
            pattern(index as u32).check(from, bytes).map_err(|e| {
                Error::failed(format_args!("pipeline: connection {index} is damaged"), e)
            })?;
        }
        stream.consume(len);
        self.read[index] += len as u64;
        Ok(())
    }

    /// Lets late packets arrive, and checks that every byte of every stream was read and
    /// acknowledged.
    ///
    /// # Errors
    ///
    /// One was not.
    pub(super) fn finish(&mut self) -> Result<()> {
        loop {
            self.order.clear();
            while self.order.len() < FRAMES / 4
                && let Some((len, connection)) = self.peer.next_late(&mut self.buf)
            {
                self.put(len, connection)?;
            }
            if self.order.is_empty() {
                break;
            }
            self.pass(())?;
        }
        // Acknowledgements may be held back for 40 ms. Time passes in steps so small that those of
        // one find room on the cable.
        for _ in 0..6000 {
            self.now = self.now + Duration::from_micros(10);
            self.worker.turn(self.now);
            let peer = &mut self.peer;
            receive_packets(&mut self.far, usize::MAX, |frame| {
                peer.on_frame(frame);
            });
        }
        self.check_all()
    }

    /// Checks that every byte of every stream was read and acknowledged.
    fn check_all(&self) -> Result<()> {
        for index in 0..self.streams.len() {
            let (sent, read) = (self.peer.sent(index), self.read[index]);
            let acknowledged = self.peer.acknowledged(index);
            if read != sent || acknowledged != sent {
                return Err(Error::Failed(format!(
                    "pipeline: connection {index}: {sent} bytes sent, {read} read, {acknowledged} \
                     acknowledged: {}",
                    self.drops()
                )));
            }
        }
        Ok(())
    }

    /// Sends a packet of the first connection to nowhere.
    #[cfg(test)]
    pub(super) fn forget_a_packet(&mut self) {
        while self.peer.next_packet(&mut self.buf).1 != 0 {}
    }

    /// Packets that came out of order, of all connections.
    #[cfg(test)]
    pub(super) fn out_of_order(&self) -> u64 {
        let subflows = self.streams.iter().flat_map(|stream| stream.statistics().subflows);
        subflows.map(|subflow| subflow.out_of_order).sum()
    }

    fn drops(&self) -> String {
        let drops = self.worker.report().drops;
        let named: Vec<String> = drops.iter().map(|(name, n)| format!("{name} {n}")).collect();
        if named.is_empty() { "nothing was dropped".into() } else { named.join(", ") }
    }
}
