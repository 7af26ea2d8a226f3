//! What the machine could do with the same frames: the least that any receiver has to do.

use mpxdp::checksum;
use mpxdp::port::{MemoryPort, Port, RxFrame, send_packet};

use super::clock::{switches, ticks};
use super::peer::{Peer, Shape};
use super::rig::{BURST, FRAME_SIZE, memory, packets_of_a_block};
use super::round::Measured;

/// Octets of the Ethernet and IPv4 headers.
const TCP_AT: usize = 34;

/// What is done to each packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Work {
    /// The payload is copied into the ring of its connection.
    Copy,
    /// The TCP checksum is verified.
    Checksum,
    /// Both, one packet after the other, so that the copy finds the payload in the cache.
    ChecksumAndCopy,
}

/// Frames on a cable, and one flat ring for each connection.
pub(super) struct Limits {
    near: MemoryPort,
    far: MemoryPort,
    peer: Peer,
    payload_at: usize,
    packets: usize,
    rings: Vec<u8>,
    ring: usize,
    /// How far each ring is filled.
    at: Vec<usize>,
    order: Vec<usize>,
    frames: Vec<RxFrame>,
    buf: Vec<u8>,
}

impl Limits {
    pub(super) fn new(shape: Shape, ring: usize) -> Self {
        let (near, far) = MemoryPort::pair(memory(FRAME_SIZE));
        let mut peer = Peer::new(shape);
        peer.pretend();
        let payload_at = Peer::headers(shape.mptcp);
        Self {
            near,
            far,
            peer,
            payload_at,
            packets: packets_of_a_block(payload_at + shape.payload, FRAME_SIZE),
            // Not zeros, so that the pages are there.
            rings: vec![1; ring * shape.connections as usize],
            ring,
            at: vec![0; shape.connections as usize],
            order: Vec::new(),
            frames: Vec::new(),
            buf: Vec::new(),
        }
    }

    /// Makes a block of packets, and measures the work on it.
    pub(super) fn block(&mut self, work: Work) -> Measured {
        self.order.clear();
        for _ in 0..self.packets {
            let (len, connection) = self.peer.next_packet(&mut self.buf);
            assert!(send_packet(&mut self.far, &self.buf[..len]), "a block fits the cable");
            self.order.push(connection);
        }
        self.far.flush().expect("memory does not fail");
        let before = switches();
        let mut measured = Measured::default();
        loop {
            let packets = self.near.receive(BURST, &mut self.frames);
            if packets == 0 {
                return Measured { switches: switches() - before, ..measured };
            }
            let first = measured.packets as usize;
            let begin = ticks();
            self.burst(first, work);
            measured.ticks += ticks() - begin;
            measured.packets += packets as u64;
            measured.readings += 1;
            self.near.recycle(self.frames.drain(..));
        }
    }

    #[inline]
    fn burst(&mut self, first: usize, work: Work) {
        let Self { near, frames, order, rings, ring, at, payload_at, .. } = self;
        let mut rest = &frames[..];
        let mut connections = order[first..].iter();
        while let Some(last) = rest.iter().position(|frame| !frame.more()) {
            let (packet, behind) = rest.split_at(last + 1);
            rest = behind;
            let Some(&connection) = connections.next() else { return };
            if work != Work::Copy {
                assert!(is_intact(near, packet), "the clients' checksums are right");
            }
            if work != Work::Checksum {
                let mut skip = *payload_at;
                for frame in packet {
                    let bytes = &near.bytes(frame)[skip..];
                    skip = 0;
                    let into = &mut rings[connection * *ring..][..*ring];
                    copy(into, &mut at[connection], bytes);
                }
            }
        }
        std::hint::black_box(rings.as_ptr());
    }
}

/// Copies to place `at` of a ring.
#[inline]
fn copy(ring: &mut [u8], at: &mut usize, bytes: &[u8]) {
    let first = bytes.len().min(ring.len() - *at);
    ring[*at..*at + first].copy_from_slice(&bytes[..first]);
    *at = (*at + first) % ring.len();
    if first < bytes.len() {
        copy(ring, at, &bytes[first..]);
    }
}

/// Whether the TCP checksum is right; of the headers no more is looked at than that takes.
#[inline]
fn is_intact(port: &MemoryPort, packet: &[RxFrame]) -> bool {
    let Some(first) = packet.first().map(|frame| port.bytes(frame)) else { return false };
    let mut pieces = checksum::Pieces::new();
    let mut skip = TCP_AT;
    let mut len = 0;
    for frame in packet {
        let bytes = &port.bytes(frame)[skip..];
        skip = 0;
        len += bytes.len();
        pieces.add(bytes);
    }
    // Both addresses; the protocol; the length.
    let pseudo_header = checksum::sum(&first[26..TCP_AT]) + 6 + len as u32;
    checksum::fold(pseudo_header + pieces.sum()) == 0xffff
}

#[cfg(test)]
mod tests {
    use mpxdp_proto::wire::parse_frame;

    use super::*;

    #[test]
    fn a_copy_wraps_at_the_ring_s_end() {
        let (mut ring, mut at) = ([0; 5], 3);
        copy(&mut ring, &mut at, &[1, 2, 3, 4]);
        assert_eq!((ring, at), ([3, 4, 0, 1, 2], 2));
    }

    #[test]
    fn headers_are_where_they_are_taken_to_be() {
        for mptcp in [false, true] {
            let shape = Shape { connections: 1, subflows: 1, payload: 100, reorder: 0.0, mptcp };
            let mut peer = Peer::new(shape);
            peer.pretend();
            let mut buf = Vec::new();
            let (len, _) = peer.next_packet(&mut buf);
            let frame = parse_frame(&buf[..len], len).expect("a right frame");
            assert_eq!(frame.tcp_at, TCP_AT);
            assert_eq!(frame.payload_at, Peer::headers(mptcp));
        }
    }

    #[test]
    fn every_limit_takes_some_time() {
        let shape = Shape { connections: 2, subflows: 1, payload: 5000, reorder: 0.0, mptcp: true };
        let mut limits = Limits::new(shape, 1 << 18);
        for work in [Work::Copy, Work::Checksum, Work::ChecksumAndCopy] {
            let measured = limits.block(work);
            assert_eq!(measured.packets, 512);
            assert!(measured.ticks > 0);
        }
    }
}
