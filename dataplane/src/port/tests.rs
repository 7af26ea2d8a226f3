//! Tests of the ports in memory, and what the tests of every port share.

mod replay;

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const SMALL: MemoryOptions =
    MemoryOptions { frame_size: 64, receive_frames: 8, transmit_frames: 4 };

/// The content of packet `number`: different bytes in every packet and at every place.
pub(super) fn content(number: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (number.wrapping_mul(31) + at * 7 + at / 256) as u8).collect()
}

fn receive_all(port: &mut MemoryPort) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    receive_packets(port, usize::MAX, |packet| packets.push(packet.to_vec()));
    packets
}

#[test]
fn packets_cross_the_cable_in_order_and_whole() {
    let (mut a, mut b) = MemoryPort::pair(SMALL);
    let sent = [content(1, 1), content(2, 64), content(3, 65), content(4, 20)];
    assert!(send_packet(&mut a, &sent[0]));
    assert!(receive_all(&mut b).is_empty(), "nothing goes out before the flush");
    a.flush().unwrap();
    assert_eq!(receive_all(&mut b), sent[..1]);
    for packet in &sent[1..3] {
        assert!(send_packet(&mut a, packet));
    }
    assert!(send_packet(&mut b, &sent[3]));
    a.flush().unwrap();
    b.flush().unwrap();
    assert_eq!(receive_all(&mut b), sent[1..3]);
    assert_eq!(receive_all(&mut a), sent[3..]);
}

#[test]
fn a_packet_of_several_frames_has_more_set_on_all_but_its_last() {
    let (mut a, mut b) = MemoryPort::pair(SMALL);
    assert!(send_packet(&mut a, &content(1, 150)));
    a.flush().unwrap();
    let mut frames = Vec::new();
    // The maximum does not split a packet.
    assert_eq!(b.receive(1, &mut frames), 1);
    let seen: Vec<_> = frames.iter().map(|frame| (frame.len(), frame.more())).collect();
    assert_eq!(seen, [(64, true), (64, true), (22, false)]);
    b.recycle(frames.drain(..));
}

#[test]
fn an_unfinished_packet_stays_queued() {
    let (mut a, mut b) = MemoryPort::pair(SMALL);
    let part = a.allocate().unwrap();
    a.transmit_part(part, 64);
    a.flush().unwrap();
    assert!(receive_all(&mut b).is_empty());
    assert_eq!(a.frames().tx, 1);
    let end = a.allocate().unwrap();
    a.transmit(end, 1);
    a.flush().unwrap();
    assert_eq!(receive_all(&mut b)[0].len(), 65);
}

#[test]
fn what_finds_no_buffer_is_lost_whole_and_counted() {
    let (mut a, mut b) = MemoryPort::pair(SMALL);
    for number in 0..3 {
        assert!(send_packet(&mut a, &content(number, 192)));
        a.flush().unwrap();
    }
    // Eight buffers: two packets of three, and no room for a third.
    assert_eq!(b.frames().rx, 6);
    assert_eq!(b.statistics().rx_fill_ring_empty_descs, 1);
    assert!(send_packet(&mut a, &content(9, 128)));
    a.flush().unwrap();
    assert_eq!(receive_all(&mut b), [content(0, 192), content(1, 192), content(9, 128)]);
    assert_eq!(b.frames().fill, 8);
}

#[test]
fn sent_frames_come_back_by_completion() {
    let (mut a, _b) = MemoryPort::pair(SMALL);
    let frames: Vec<_> = std::iter::from_fn(|| a.allocate()).collect();
    assert_eq!(frames.len(), 4);
    for frame in frames {
        a.transmit(frame, 1);
    }
    assert!(a.allocate().is_none(), "all are queued");
    a.flush().unwrap();
    assert_eq!((a.frames().completion, a.frames().free), (4, 0));
    let frame = a.allocate().unwrap();
    assert_eq!((a.frames().completion, a.frames().free), (0, 3));
    a.release(frame);
}

#[test]
#[should_panic(expected = "another port's")]
fn a_frame_of_another_port_is_refused() {
    let (mut a, mut b) = MemoryPort::pair(SMALL);
    let frame = a.allocate().unwrap();
    b.release(frame);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "never given back")]
fn a_dropped_frame_shows_when_the_port_closes() {
    let (mut a, _b) = MemoryPort::pair(SMALL);
    assert!(a.allocate().is_some());
    assert_eq!(a.frames().held, 1);
}

/// What the random test does to one of two joined ports.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    /// Queue a packet of so many bytes.
    Send {
        len: usize,
    },
    /// Take a buffer and hold it.
    Allocate,
    /// Give a held buffer back unused.
    Release {
        which: prop::sample::Index,
    },
    /// Send a held buffer as it is.
    SendHeld {
        which: prop::sample::Index,
        len: usize,
    },
    Flush,
    /// Take up to so many frames and hold them.
    Receive {
        max: usize,
    },
    /// Give back so many of the frames held, the oldest first.
    Recycle {
        count: usize,
    },
}

/// Random operations; each goes to the first port or to the second.
pub(super) fn operations(
    longest: usize,
    count: std::ops::Range<usize>,
) -> impl Strategy<Value = Vec<(bool, Operation)>> {
    let which = any::<prop::sample::Index>;
    let operation = prop_oneof![
        4 => (1..=longest).prop_map(|len| Operation::Send { len }),
        1 => Just(Operation::Allocate),
        1 => which().prop_map(|which| Operation::Release { which }),
        1 => (which(), 14..=60usize).prop_map(|(which, len)| Operation::SendHeld { which, len }),
        3 => Just(Operation::Flush),
        4 => (0..20usize).prop_map(|max| Operation::Receive { max }),
        4 => (0..20usize).prop_map(|count| Operation::Recycle { count }),
    ];
    prop::collection::vec((any::<bool>(), operation), count)
}

/// One of two joined ports, and what its user holds.
struct Side<P> {
    port: P,
    rx: VecDeque<RxFrame>,
    tx: Vec<TxFrame>,
}

impl<P: Port> Side<P> {
    const fn new(port: P) -> Self {
        Self { port, rx: VecDeque::new(), tx: Vec::new() }
    }

    fn apply(&mut self, operation: &Operation, packet: &mut impl FnMut(usize) -> Vec<u8>) {
        let Self { port, rx, tx } = self;
        match operation {
            Operation::Send { len } => {
                send_packet(port, &packet(*len));
            }
            Operation::Allocate => tx.extend(port.allocate()),
            Operation::Release { which } if !tx.is_empty() => {
                port.release(tx.swap_remove(which.index(tx.len())));
            }
            Operation::SendHeld { which, len } if !tx.is_empty() => {
                let mut frame = tx.swap_remove(which.index(tx.len()));
                let bytes = packet(*len);
                port.bytes_mut(&mut frame)[..bytes.len()].copy_from_slice(&bytes);
                port.transmit(frame, bytes.len());
            }
            Operation::Release { .. } | Operation::SendHeld { .. } => {}
            Operation::Flush => port.flush().unwrap(),
            Operation::Receive { max } => {
                let mut frames = Vec::new();
                let packets = port.receive(*max, &mut frames);
                assert_eq!(packets, frames.iter().filter(|frame| !frame.more()).count());
                assert!(frames.last().is_none_or(|frame| !frame.more()), "a packet is split");
                rx.extend(frames);
            }
            Operation::Recycle { count } => port.recycle(rx.drain(..(*count).min(rx.len()))),
        }
        let account = port.frames();
        assert!(account.is_conserved(), "{account:?}");
        assert_eq!(account.held, rx.len() + tx.len(), "{account:?}");
    }

    fn give_back(&mut self) {
        self.port.recycle(self.rx.drain(..));
        for frame in self.tx.drain(..) {
            self.port.release(frame);
        }
    }
}

/// Applies random operations to two joined ports and checks their accounts after each; returns the
/// ports with nothing held. The ledger of debug builds checks that no buffer is in two places.
pub(super) fn conserve_frames<P: Port>(
    ports: (P, P),
    operations: &[(bool, Operation)],
    mut packet: impl FnMut(usize) -> Vec<u8>,
) -> (P, P) {
    let (mut first, mut second) = (Side::new(ports.0), Side::new(ports.1));
    for (to_first, operation) in operations {
        let side = if *to_first { &mut first } else { &mut second };
        side.apply(operation, &mut packet);
    }
    first.give_back();
    second.give_back();
    (first.port, second.port)
}

proptest! {
    #[test]
    fn frames_are_conserved_in_memory(operations in operations(300, 1..200)) {
        let mut number = 0;
        let (mut a, mut b) = conserve_frames(MemoryPort::pair(SMALL), &operations, |len| {
            number += 1;
            content(number, len)
        });
        for port in [&mut a, &mut b] {
            port.flush().unwrap();
        }
        for port in [&mut a, &mut b] {
            receive_packets(port, usize::MAX, |_| {});
            port.flush().unwrap();
            let account = port.frames();
            prop_assert_eq!((account.held, account.rx, account.fill), (0, 0, 8));
        }
    }

    /// Whatever arrives arrived whole and in order, and what did not was counted as lost.
    #[test]
    fn every_packet_arrives_or_is_counted(
        bursts in prop::collection::vec((prop::collection::vec(1..250usize, 1..6), 0..10usize), 1..40),
    ) {
        let (mut a, mut b) = MemoryPort::pair(SMALL);
        let (mut sent, mut next, mut received) = (Vec::new(), 0, 0);
        for (lens, max) in bursts {
            for len in lens {
                let packet = content(sent.len() as u64, len);
                if send_packet(&mut a, &packet) {
                    sent.push(packet);
                }
            }
            a.flush().unwrap();
            let mut check = |packet: &[u8]| {
                // A lost packet is one that is skipped here.
                while sent[next] != packet {
                    next += 1;
                }
                next += 1;
                received += 1;
            };
            receive_packets(&mut b, max, &mut check);
        }
        receive_packets(&mut b, usize::MAX, |packet| {
            while sent[next] != packet {
                next += 1;
            }
            next += 1;
            received += 1;
        });
        prop_assert_eq!(received + b.statistics().rx_fill_ring_empty_descs, sent.len() as u64);
    }
}
