//! Where frames come from and go to: one queue of one NIC, or something that behaves like it.
//!
//! [`AfXdpPort`] is an AF_XDP socket, [`MemoryPort`] is one end of a cable in memory, and
//! [`ReplayPort`] reads a capture file. A worker is generic over [`Port`] and owns its ports; no
//! port is shared between threads.
//!
//! # Frames
//!
//! A port owns a fixed number of buffers of one size. Each is at any moment in exactly one place,
//! which [`FrameAccount`] counts:
//!
//! ```text
//!           recycle                receive
//!   held ------------> fill -> rx ----------> held            (RxFrame)
//!
//!           allocate          transmit      (sent)
//!   free ------------> held -----------> tx -------> completion -> free     (TxFrame)
//!                        \__ release __________________________/
//! ```
//!
//! What the worker holds it holds as a token, [`RxFrame`] or [`TxFrame`]. A token cannot be copied
//! and is the only way to the buffer's bytes, so a buffer that the kernel or a peer may write has
//! no reference into it. A token that is dropped instead of given back is a buffer lost until the
//! port closes: [`FrameAccount::held`] then exceeds what the worker holds, and debug builds panic
//! when the port is dropped.
//!
//! A packet larger than a buffer takes several, in order; [`RxFrame::more`] is set on all but its
//! last.

mod af_xdp;
mod frames;
mod memory;
mod packets;
mod replay;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::BorrowedFd;

pub use af_xdp::{AfXdpError, AfXdpOptions, AfXdpPort, BindMode, BusyPoll};
pub use memory::{MemoryOptions, MemoryPort};
pub use packets::{receive_packets, send_packet};
pub use replay::{ReplayError, ReplayPort};

/// A received buffer that its holder owns, to be given back with [`Port::recycle`].
#[derive(Debug)]
#[must_use = "a frame that is not recycled is lost to its port"]
pub struct RxFrame {
    /// Where the packet's bytes begin in the port's memory.
    at: u32,
    len: u32,
    port: u32,
    more: bool,
}

impl RxFrame {
    /// The number of bytes that this buffer holds of the packet.
    #[must_use]
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "nothing is done differently if it is 0")]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the packet goes on in the frame that follows.
    #[must_use]
    #[inline]
    pub const fn more(&self) -> bool {
        self.more
    }
}

/// A buffer to be filled and sent, to be given back with [`Port::transmit`] or [`Port::release`].
#[derive(Debug)]
#[must_use = "a frame that is neither transmitted nor released is lost to its port"]
pub struct TxFrame {
    at: u32,
    port: u32,
}

/// Where a port's buffers are. The six places add up to [`total`](Self::total) at any moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameAccount {
    /// With the NIC (or what stands for it), waiting for packets.
    pub fill: usize,
    /// Received, not yet taken by [`Port::receive`].
    pub rx: usize,
    /// In the worker's hands: every [`RxFrame`] and [`TxFrame`] that exists, or was dropped.
    pub held: usize,
    /// Queued for sending and not yet sent.
    pub tx: usize,
    /// Sent and not yet reclaimed.
    pub completion: usize,
    /// Ready for [`Port::allocate`].
    pub free: usize,
    /// All buffers of the port.
    pub total: usize,
}

impl FrameAccount {
    /// Whether no buffer is missing and none counted twice.
    #[must_use]
    pub const fn is_conserved(&self) -> bool {
        self.fill + self.rx + self.held + self.tx + self.completion + self.free == self.total
    }
}

/// Counters of a port since it was opened. The first six are the kernel's own, named as in
/// `struct xdp_statistics`; a port without a kernel counts what corresponds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortStatistics {
    /// Packets dropped on receive for a reason that none of the others names.
    pub rx_dropped: u64,
    /// Packets dropped because of an invalid fill ring descriptor.
    pub rx_invalid_descs: u64,
    /// Packets not sent because of an invalid descriptor.
    pub tx_invalid_descs: u64,
    /// Packets dropped because the receive ring was full.
    pub rx_ring_full: u64,
    /// Packets for which no buffer was in the fill ring.
    pub rx_fill_ring_empty_descs: u64,
    /// Times that the kernel looked for something to send and found nothing.
    pub tx_ring_empty_descs: u64,
    /// System calls that told the kernel to send.
    pub tx_kicks: u64,
    /// System calls that told the kernel to receive (need_wakeup or busy polling).
    pub rx_kicks: u64,
    /// Buffers that came back with an address or length outside of the port's memory. They are
    /// not given to anybody; anything but 0 is a defect of the driver.
    pub bad_descriptors: u64,
}

/// What moves the frames of a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PortMode {
    /// AF_XDP, and the NIC reads and writes the buffers itself.
    ZeroCopy,
    /// AF_XDP, and the kernel copies between its buffers and ours.
    Copy,
    /// A cable in memory.
    Memory,
    /// A capture file.
    Replay,
}

impl PortMode {
    /// The name that reports use: `zerocopy`, `copy`, `memory` or `replay`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ZeroCopy => "zerocopy",
            Self::Copy => "copy",
            Self::Memory => "memory",
            Self::Replay => "replay",
        }
    }
}

/// One queue of a NIC, or something that behaves like it.
///
/// A worker owns its ports, each call is made by the thread that owns the port, and none blocks.
///
/// # Panics
///
/// Every method that takes a token panics on one of another port: a frame is worth something only
/// to the port it came from.
pub trait Port: Send {
    /// Takes received packets, pushes their frames on `out` in order of arrival, and says how many
    /// packets they are.
    ///
    /// About `max` frames are taken at most. A packet's frames all come in one call, so the last
    /// packet may exceed `max`; the last frame of `out` never has [`RxFrame::more`] set.
    fn receive(&mut self, max: usize, out: &mut Vec<RxFrame>) -> usize;

    /// The bytes of a received frame.
    fn bytes<'a>(&'a self, frame: &'a RxFrame) -> &'a [u8];

    /// Gives received frames back, to receive into them again. In batches it costs least.
    fn recycle(&mut self, frames: impl Iterator<Item = RxFrame>);

    /// Takes a buffer to send from. `None`: all are queued or in flight; after
    /// [`flush`](Self::flush) some may come back.
    fn allocate(&mut self) -> Option<TxFrame>;

    /// The bytes of a frame to be sent, [`frame_size`](Self::frame_size) of them, of any content.
    fn bytes_mut<'a>(&'a mut self, frame: &'a mut TxFrame) -> &'a mut [u8];

    /// Queues the first `len` bytes of `frame`: a packet of their own, or the end of one begun with
    /// [`transmit_part`](Self::transmit_part). It goes out with the next [`flush`](Self::flush).
    ///
    /// # Panics
    ///
    /// If `len` is 0 or exceeds [`frame_size`](Self::frame_size).
    fn transmit(&mut self, frame: TxFrame, len: usize);

    /// Queues the first `len` bytes of `frame`, as part of a packet that the next
    /// [`transmit`](Self::transmit) or [`transmit_part`](Self::transmit_part) continues.
    ///
    /// # Panics
    ///
    /// As [`transmit`](Self::transmit).
    fn transmit_part(&mut self, frame: TxFrame, len: usize);

    /// Gives back a frame that is not to be sent.
    fn release(&mut self, frame: TxFrame);

    /// Sends what is queued, with at most a few system calls, and reclaims what was sent.
    /// Cheap if there is nothing to do; meant to be called once a burst.
    ///
    /// # Errors
    ///
    /// What the operating system says, except for conditions that pass by themselves (a full
    /// device queue, a link that is down): then the frames stay queued for the next flush.
    fn flush(&mut self) -> io::Result<()>;

    /// The descriptor that is readable when a packet waits; `None` if the port has none and must be
    /// asked again and again.
    fn poll_fd(&self) -> Option<BorrowedFd<'_>>;

    /// The number of bytes that a frame to be sent can hold.
    fn frame_size(&self) -> usize;

    /// Counters since the port was opened. A system call, so not for every burst.
    fn statistics(&mut self) -> PortStatistics;

    /// Where the buffers are now.
    fn frames(&self) -> FrameAccount;

    /// What moves the frames, as found out and not as asked for.
    fn mode(&self) -> PortMode;
}
