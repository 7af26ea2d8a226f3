//! A cable in memory: two ports, joined by bounded queues.
//!
//! It does with buffers what a NIC and the kernel do: a packet is lost when the receiver has no
//! buffer for it or its ring is full, a sent buffer comes back later through a completion, and a
//! packet larger than a buffer comes in several. Buffers are passed, not copied.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::frames::{Ledger, Owner, next_port_id};
use super::{FrameAccount, Port, PortMode, PortStatistics, RxFrame, TxFrame};

/// The sizes of a [`MemoryPort`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryOptions {
    /// Bytes of a buffer.
    pub frame_size: usize,
    /// Buffers for receiving.
    pub receive_frames: usize,
    /// Buffers for sending.
    pub transmit_frames: usize,
}

impl Default for MemoryOptions {
    /// What an AF_XDP port has by default, less memory: 4096-byte buffers, 1024 for receiving, 256
    /// for sending.
    fn default() -> Self {
        Self { frame_size: 4096, receive_frames: 1024, transmit_frames: 256 }
    }
}

/// What travels: a buffer, the bytes used of it, and whether its packet goes on in the next.
#[derive(Debug)]
struct Carried {
    bytes: Box<[u8]>,
    len: u32,
    more: bool,
}

/// One direction of the cable.
#[derive(Debug, Default)]
struct Direction {
    /// Sent and not yet received; whole packets only.
    carried: VecDeque<Carried>,
    /// Buffers given in exchange for those that the receiver took.
    returned: Vec<Box<[u8]>>,
    /// Buffers that the receiver offers for packets, less those in `carried`.
    room: usize,
    /// Packets for which there was no room.
    lost: u64,
}

fn lock(direction: &Mutex<Direction>) -> MutexGuard<'_, Direction> {
    // A direction is consistent between any two statements that could panic.
    direction.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A buffer that waits to be sent.
#[derive(Debug)]
struct Queued {
    index: u32,
    len: u32,
    more: bool,
}

/// One end of a cable in memory; [`MemoryPort::pair`] makes both.
///
/// Either end may move to another thread. A lock is taken once for a burst, not for a frame.
#[derive(Debug)]
pub struct MemoryPort {
    id: u32,
    frame_size: usize,
    ledger: Ledger,
    /// The memory: the receive buffers, then the transmit buffers.
    buffers: Vec<Box<[u8]>>,
    /// Receive buffers that wait for packets.
    fill: Vec<u32>,
    /// Transmit buffers that wait to be allocated.
    free: Vec<u32>,
    /// Transmit buffers to be sent at the next flush.
    queued: VecDeque<Queued>,
    /// Transmit buffers that were sent.
    completed: Vec<u32>,
    incoming: Arc<Mutex<Direction>>,
    outgoing: Arc<Mutex<Direction>>,
}

impl MemoryPort {
    /// The two ends of a new cable.
    ///
    /// # Panics
    ///
    /// If a size of `options` is 0 or beyond 2^31.
    #[must_use]
    pub fn pair(options: MemoryOptions) -> (Self, Self) {
        let one_way = || Arc::new(Mutex::new(Direction::new(options)));
        let (there, back) = (one_way(), one_way());
        let near = Self::new(options, Arc::clone(&back), Arc::clone(&there));
        (near, Self::new(options, there, back))
    }

    fn new(
        options: MemoryOptions,
        incoming: Arc<Mutex<Direction>>,
        outgoing: Arc<Mutex<Direction>>,
    ) -> Self {
        let MemoryOptions { frame_size, receive_frames, transmit_frames } = options;
        for size in [frame_size, receive_frames, transmit_frames] {
            assert!((1..1 << 31).contains(&size), "a memory port of {options:?} cannot be");
        }
        let total = receive_frames + transmit_frames;
        Self {
            id: next_port_id(),
            frame_size,
            ledger: Ledger::new(receive_frames, transmit_frames),
            buffers: (0..total).map(|_| buffer(frame_size)).collect(),
            fill: (0..receive_frames as u32).rev().collect(),
            free: (receive_frames as u32..total as u32).rev().collect(),
            queued: VecDeque::with_capacity(transmit_frames),
            completed: Vec::with_capacity(transmit_frames),
            incoming,
            outgoing,
        }
    }

    fn queue(&mut self, frame: TxFrame, len: usize, more: bool) {
        self.check(frame.port);
        assert!((1..=self.frame_size).contains(&len), "{len} bytes in a frame");
        self.ledger.pass(frame.at as usize, Owner::Held, Owner::Transmit);
        self.queued.push_back(Queued { index: frame.at, len: len as u32, more });
    }

    fn reclaim(&mut self) {
        for index in self.completed.drain(..) {
            self.ledger.pass(index as usize, Owner::Transmit, Owner::Free);
            self.free.push(index);
        }
    }

    #[inline]
    fn check(&self, port: u32) {
        assert_eq!(port, self.id, "the frame is another port's");
    }
}

fn buffer(size: usize) -> Box<[u8]> {
    vec![0; size].into_boxed_slice()
}

impl Direction {
    fn new(options: MemoryOptions) -> Self {
        let frames = options.receive_frames;
        Self {
            carried: VecDeque::with_capacity(frames),
            returned: (0..frames).map(|_| buffer(options.frame_size)).collect(),
            room: frames,
            lost: 0,
        }
    }
}

impl Port for MemoryPort {
    fn receive(&mut self, max: usize, out: &mut Vec<RxFrame>) -> usize {
        let mut incoming = lock(&self.incoming);
        let (mut frames, mut packets) = (0, 0);
        while frames < max {
            loop {
                let Some(carried) = incoming.carried.pop_front() else {
                    return packets;
                };
                let index = self.fill.pop().expect("a packet is carried only if a buffer waits");
                let empty = std::mem::replace(&mut self.buffers[index as usize], carried.bytes);
                incoming.returned.push(empty);
                self.ledger.pass(index as usize, Owner::Receive, Owner::Held);
                let Carried { len, more, .. } = carried;
                out.push(RxFrame { at: index, len, port: self.id, more });
                frames += 1;
                if !more {
                    break;
                }
            }
            packets += 1;
        }
        packets
    }

    fn bytes<'a>(&'a self, frame: &'a RxFrame) -> &'a [u8] {
        self.check(frame.port);
        &self.buffers[frame.at as usize][..frame.len as usize]
    }

    fn recycle(&mut self, frames: impl Iterator<Item = RxFrame>) {
        let mut count = 0;
        for frame in frames {
            self.check(frame.port);
            self.ledger.pass(frame.at as usize, Owner::Held, Owner::Receive);
            self.fill.push(frame.at);
            count += 1;
        }
        lock(&self.incoming).room += count;
    }

    fn allocate(&mut self) -> Option<TxFrame> {
        if self.free.is_empty() {
            self.reclaim();
        }
        let index = self.free.pop()?;
        self.ledger.pass(index as usize, Owner::Free, Owner::Held);
        Some(TxFrame { at: index, port: self.id })
    }

    fn bytes_mut<'a>(&'a mut self, frame: &'a mut TxFrame) -> &'a mut [u8] {
        self.check(frame.port);
        &mut self.buffers[frame.at as usize]
    }

    fn transmit(&mut self, frame: TxFrame, len: usize) {
        self.queue(frame, len, false);
    }

    fn transmit_part(&mut self, frame: TxFrame, len: usize) {
        self.queue(frame, len, true);
    }

    fn release(&mut self, frame: TxFrame) {
        self.check(frame.port);
        self.ledger.pass(frame.at as usize, Owner::Held, Owner::Free);
        self.free.push(frame.at);
    }

    fn flush(&mut self) -> io::Result<()> {
        self.reclaim();
        if self.queued.is_empty() {
            return Ok(());
        }
        let mut outgoing = lock(&self.outgoing);
        while let Some(last) = self.queued.iter().position(|queued| !queued.more) {
            let fits = last < outgoing.room;
            for Queued { index, len, more } in self.queued.drain(..=last) {
                if fits {
                    let empty = outgoing.returned.pop().expect("one for each buffer of room");
                    let bytes = std::mem::replace(&mut self.buffers[index as usize], empty);
                    outgoing.carried.push_back(Carried { bytes, len, more });
                    outgoing.room -= 1;
                }
                self.completed.push(index);
            }
            outgoing.lost += u64::from(!fits);
        }
        Ok(())
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn frame_size(&self) -> usize {
        self.frame_size
    }

    fn statistics(&mut self) -> PortStatistics {
        let lost = lock(&self.incoming).lost;
        PortStatistics { rx_fill_ring_empty_descs: lost, ..PortStatistics::default() }
    }

    fn frames(&self) -> FrameAccount {
        let rx = lock(&self.incoming).carried.len();
        FrameAccount {
            fill: self.ledger.receive() - rx,
            rx,
            held: self.ledger.held(),
            tx: self.queued.len(),
            completion: self.completed.len(),
            free: self.free.len(),
            total: self.buffers.len(),
        }
    }

    fn mode(&self) -> PortMode {
        PortMode::Memory
    }
}

impl Drop for MemoryPort {
    fn drop(&mut self) {
        self.ledger.check_returned();
    }
}
