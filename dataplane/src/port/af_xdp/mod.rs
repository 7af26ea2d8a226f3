//! An AF_XDP socket on one queue of a NIC.
//!
//! Each port has packet memory of its own: one owner, no lock, and a queue's trouble stays its own.
//! Sharing memory between the queues of a worker would let one queue's idle buffers serve another.

mod error;
mod sys;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

pub use error::AfXdpError;
use error::missing_capabilities;
use sys::{RingSizes, Rings, Socket, Umem};

use super::frames::{Ledger, Owner, next_port_id};
use super::{FrameAccount, Port, PortMode, PortStatistics, RxFrame, TxFrame};

/// How the socket is bound.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum BindMode {
    /// Zero copy where the driver can, else copy. [`Port::mode`] tells what it became.
    #[default]
    Auto,
    /// Zero copy, or an error.
    ZeroCopy,
    /// Copy, even where zero copy would work.
    Copy,
}

impl BindMode {
    /// The name on the command line: `auto`, `zerocopy` or `copy`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::ZeroCopy => "zerocopy",
            Self::Copy => "copy",
        }
    }
}

/// Busy polling: the worker's system calls drive the NIC's queue, instead of its interrupts. The
/// kernel's documentation (napi.rst) says what must be set at the interface for it to do good.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BusyPoll {
    /// SO_BUSY_POLL: how long a call may poll, in microseconds.
    pub microseconds: u32,
    /// SO_BUSY_POLL_BUDGET: how many packets a call may process, 1 ..= 65535.
    pub budget: u16,
    /// SO_PREFER_BUSY_POLL: keep the queue's interrupts off as long as polling goes on.
    pub prefer: bool,
}

impl Default for BusyPoll {
    /// What the kernel's documentation of AF_XDP suggests: 20 us, a budget of 64, preferred.
    fn default() -> Self {
        Self { microseconds: 20, budget: 64, prefer: true }
    }
}

/// What to open, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AfXdpOptions {
    /// The interface's name.
    pub interface: String,
    /// The receive queue, from 0.
    pub queue: u32,
    /// How to bind.
    pub mode: BindMode,
    /// Bytes of a buffer: 2048 or 4096. A received packet has 256 bytes less, which the kernel
    /// keeps free in front of it.
    pub frame_size: u32,
    /// Entries of the fill and the receive ring, and the number of receive buffers; a power of two.
    /// All the buffers are with the kernel but for those of the burst being processed, so it bounds
    /// how much can wait while the worker is off its CPU.
    pub receive_ring: u32,
    /// Entries of the transmit and the completion ring, and the number of transmit buffers; a power
    /// of two.
    pub transmit_ring: u32,
    /// Let the kernel say when it needs a system call, instead of making one at each flush.
    pub need_wakeup: bool,
    /// Take packets that need several buffers (Linux 6.6). Drivers that cannot do it in zero-copy
    /// mode are bound in copy mode then, so ask for it only if the MTU demands it.
    pub multi_buffer: bool,
    /// Busy polling, if wanted.
    pub busy_poll: Option<BusyPoll>,
    /// How long to try again while another socket has the queue. A socket's end is processed in the
    /// background, so right after a restart the old one is often still there.
    pub patience: Duration,
}

impl AfXdpOptions {
    /// The defaults for a queue: mode auto, 4096-byte buffers, 4096 for receiving (16 MiB) and 512
    /// for sending, need_wakeup, multi-buffer, no busy polling, three seconds of patience.
    #[must_use]
    pub fn new(interface: impl Into<String>, queue: u32) -> Self {
        Self {
            interface: interface.into(),
            queue,
            mode: BindMode::Auto,
            frame_size: 4096,
            receive_ring: 4096,
            transmit_ring: 512,
            need_wakeup: true,
            multi_buffer: true,
            busy_poll: None,
            patience: Duration::from_secs(3),
        }
    }

    /// The number of bytes of a received packet that fit one buffer.
    #[must_use]
    pub const fn receive_capacity(&self) -> u32 {
        self.frame_size.saturating_sub(PACKET_HEADROOM)
    }

    fn validate(&self) -> Result<(), AfXdpError> {
        let rule = "it must be a power of two, 64 to 65536";
        for (option, value) in
            [("receive_ring", self.receive_ring), ("transmit_ring", self.transmit_ring)]
        {
            if !value.is_power_of_two() || !(64..=1 << 16).contains(&value) {
                return Err(AfXdpError::InvalidOption { option, value: value.into(), rule });
            }
        }
        if ![2048, 4096].contains(&self.frame_size) {
            let (option, value) = ("frame_size", self.frame_size.into());
            let rule = "it must be 2048 or 4096";
            return Err(AfXdpError::InvalidOption { option, value, rule });
        }
        match self.busy_poll {
            Some(BusyPoll { budget: 0, .. }) => Err(AfXdpError::InvalidOption {
                option: "busy_poll.budget",
                value: 0,
                rule: "it must be at least 1",
            }),
            Some(BusyPoll { microseconds, .. }) if i32::try_from(microseconds).is_err() => {
                Err(AfXdpError::InvalidOption {
                    option: "busy_poll.microseconds",
                    value: microseconds.into(),
                    rule: "it must be below 2^31",
                })
            }
            _ => Ok(()),
        }
    }
}

/// XDP_PACKET_HEADROOM: what the kernel keeps free in front of a received packet.
const PACKET_HEADROOM: u32 = 256;

/// System calls in one flush at most. In copy mode one call sends no more than 32 packets, so this
/// is enough for the largest burst of acknowledgements and still bounds the time spent.
const KICKS_PER_FLUSH: u32 = 8;

/// A frame that waits for the next flush.
#[derive(Debug)]
struct Queued {
    at: u32,
    len: u32,
    more: bool,
}

/// A port that is an AF_XDP socket. Packets come once its [descriptor](Port::poll_fd) is in the
/// XSKMAP of the interface's XDP program, which is not this module's business.
///
/// The fields are dropped in order: the socket before the memory it was given.
#[derive(Debug)]
pub struct AfXdpPort {
    socket: Socket,
    rings: Rings,
    umem: Umem,
    id: u32,
    frame_size: u32,
    frame_shift: u32,
    receive_frames: u32,
    transmit_frames: u32,
    zero_copy: bool,
    busy_poll: bool,
    multi_buffer: bool,
    need_wakeup: bool,
    ledger: Ledger,
    /// Receive buffers that found no room in the fill ring: the kernel shows a received packet
    /// before it shows that the fill ring's entry is free again.
    unfilled: Vec<u64>,
    /// Transmit buffers that can be allocated, the last used on top: it is still in the cache.
    free: Vec<u32>,
    queued: VecDeque<Queued>,
    tx_kicks: u64,
    rx_kicks: u64,
    bad_descriptors: u64,
}

impl AfXdpPort {
    /// Opens an AF_XDP socket on a queue. All receive buffers are in the fill ring before it is
    /// bound: some drivers never recover from finding it empty.
    ///
    /// # Errors
    ///
    /// See [`AfXdpError`]. A mode that was named and does not work is an error.
    ///
    /// # Blocking
    ///
    /// For up to [`patience`](AfXdpOptions::patience) while the queue is taken.
    pub fn open(options: &AfXdpOptions) -> Result<Self, AfXdpError> {
        options.validate()?;
        let failed = |action| move |source| Self::failure(options, action, source);
        let ifindex = nix::net::if_::if_nametoindex(options.interface.as_str())
            .map_err(|_| AfXdpError::NoInterface { interface: options.interface.clone() })?;
        let (receive_frames, transmit_frames) = (options.receive_ring, options.transmit_ring);
        let frames = receive_frames + transmit_frames;

        let socket = Socket::new().map_err(|error| match error.raw_os_error() {
            Some(libc::EAFNOSUPPORT) => AfXdpError::NoAfXdp,
            _ => Self::failure(options, "open an AF_XDP socket", error),
        })?;
        let umem = Umem::new(Self::memory_len(options)).map_err(failed("map packet memory"))?;
        socket.register(&umem, options.frame_size).map_err(failed("register packet memory"))?;
        let mut rings = socket
            .rings(RingSizes {
                fill: options.receive_ring,
                completion: options.transmit_ring,
                rx: options.receive_ring,
                tx: options.transmit_ring,
            })
            .map_err(failed("set up the rings"))?;
        for index in 0..receive_frames.min(rings.fill.free(receive_frames)) {
            rings.fill.write(u64::from(index) * u64::from(options.frame_size));
        }
        rings.fill.submit();
        if let Some(busy_poll) = options.busy_poll {
            Self::set_busy_poll(&socket, busy_poll).map_err(failed("set up busy polling"))?;
        }
        Self::bind(&socket, ifindex, options)?;
        let zero_copy = socket.is_zero_copy().map_err(failed("ask for the socket's mode"))?;
        Ok(Self {
            socket,
            rings,
            umem,
            id: next_port_id(),
            frame_size: options.frame_size,
            frame_shift: options.frame_size.trailing_zeros(),
            receive_frames,
            transmit_frames,
            zero_copy,
            busy_poll: options.busy_poll.is_some(),
            multi_buffer: options.multi_buffer,
            need_wakeup: options.need_wakeup,
            ledger: Ledger::new(receive_frames as usize, transmit_frames as usize),
            unfilled: Vec::with_capacity(receive_frames as usize),
            free: (receive_frames..frames).rev().collect(),
            queued: VecDeque::with_capacity(transmit_frames as usize),
            tx_kicks: 0,
            rx_kicks: 0,
            bad_descriptors: 0,
        })
    }

    /// Whether packets that need several buffers are taken, rather than lost.
    pub fn takes_several_buffers(&self) -> bool {
        self.multi_buffer
    }

    /// Whether the driver itself reads and writes the buffers, as the kernel tells.
    #[must_use]
    pub const fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    const fn memory_len(options: &AfXdpOptions) -> usize {
        (options.receive_ring + options.transmit_ring) as usize * options.frame_size as usize
    }

    fn set_busy_poll(socket: &Socket, busy_poll: BusyPoll) -> io::Result<()> {
        let BusyPoll { microseconds, budget, prefer } = busy_poll;
        socket.set_socket_option(sys::SO_PREFER_BUSY_POLL, prefer.into())?;
        // Checked by `validate`.
        let microseconds = i32::try_from(microseconds).unwrap_or(i32::MAX);
        socket.set_socket_option(sys::SO_BUSY_POLL, microseconds)?;
        socket.set_socket_option(sys::SO_BUSY_POLL_BUDGET, budget.into())
    }

    /// Binds, again and again while the queue is taken and there is patience left.
    fn bind(socket: &Socket, ifindex: u32, options: &AfXdpOptions) -> Result<(), AfXdpError> {
        let mut flags = match options.mode {
            // Neither flag: the kernel tries zero copy, then copy.
            BindMode::Auto => 0,
            BindMode::ZeroCopy => libc::XDP_ZEROCOPY,
            BindMode::Copy => libc::XDP_COPY,
        };
        if options.need_wakeup {
            flags |= libc::XDP_USE_NEED_WAKEUP;
        }
        if options.multi_buffer {
            flags |= libc::XDP_USE_SG;
        }
        let (mut waited, mut pause) = (Duration::ZERO, Duration::from_millis(2));
        loop {
            let error = match socket.bind(ifindex, options.queue, flags) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if error.raw_os_error() != Some(libc::EBUSY) || waited >= options.patience {
                return Err(Self::bind_failure(options, error));
            }
            std::thread::sleep(pause);
            waited += pause;
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }

    fn bind_failure(options: &AfXdpOptions, source: io::Error) -> AfXdpError {
        let (interface, queue) = (options.interface.clone(), options.queue);
        match source.raw_os_error() {
            Some(libc::EBUSY) => AfXdpError::QueueInUse { interface, queue },
            Some(libc::EOPNOTSUPP) => {
                AfXdpError::ModeUnsupported { interface, queue, mode: options.mode }
            }
            Some(libc::ENETDOWN) => AfXdpError::InterfaceDown { interface },
            // The kernel says EINVAL for a queue that is not there and for a flag it does not know.
            Some(libc::EINVAL) if options.multi_buffer && kernel_before(6, 6) => {
                AfXdpError::MultiBufferUnsupported { interface, queue }
            }
            Some(libc::EINVAL) => AfXdpError::NoQueue { interface, queue },
            _ => Self::failure(options, "bind an AF_XDP socket", source),
        }
    }

    fn failure(options: &AfXdpOptions, action: &'static str, source: io::Error) -> AfXdpError {
        let (interface, queue) = (options.interface.clone(), options.queue);
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => AfXdpError::Permission {
                action,
                missing: missing_capabilities(&[
                    (13, "CAP_NET_RAW"),
                    (12, "CAP_NET_ADMIN"),
                    (39, "CAP_BPF"),
                ])
                .unwrap_or_else(|| {
                    "none that can be named; a security module may forbid it".into()
                }),
            },
            // The kernel says ENOBUFS where the limit is exceeded, ENOMEM where there is no memory.
            Some(libc::ENOBUFS | libc::ENOMEM) => AfXdpError::Memory {
                interface,
                queue,
                bytes: Self::memory_len(options),
                limit: memory_lock_limit(),
                source,
            },
            _ if action == "set up busy polling" => {
                AfXdpError::BusyPoll { interface, queue, source }
            }
            _ => AfXdpError::System { interface, queue, action, source },
        }
    }

    #[inline]
    fn check(&self, port: u32) {
        assert_eq!(port, self.id, "the frame is another port's");
    }

    #[inline]
    const fn index(&self, at: u32) -> usize {
        (at >> self.frame_shift) as usize
    }

    /// The descriptor's place, if it lies in one of the receive buffers.
    #[inline]
    fn received(&self, descriptor: libc::xdp_desc) -> Option<(u32, u32)> {
        let at = u32::try_from(descriptor.addr).ok()?;
        let offset = at & (self.frame_size - 1);
        let fits = at >> self.frame_shift < self.receive_frames
            && descriptor.len <= self.frame_size - offset;
        fits.then_some((at, descriptor.len))
    }

    /// How many descriptors the packet has that begins `ahead` in the receive ring; `None` if they
    /// are not all there.
    #[inline]
    fn packet(&mut self, ahead: u32) -> Option<u32> {
        for count in 1.. {
            let last = ahead + count;
            if self.rings.rx.available(last) < last {
                return None;
            }
            if self.rings.rx.peek(last - 1).options & libc::XDP_PKT_CONTD == 0 {
                return Some(count);
            }
        }
        None
    }

    /// Takes the `count` descriptors of one packet, which begin `ahead` in the receive ring. Says
    /// `false`, and drops the packet, if one of them cannot be.
    fn take(&mut self, ahead: u32, count: u32, out: &mut Vec<RxFrame>) -> bool {
        let first = out.len();
        let mut whole = true;
        for at in ahead..ahead + count {
            let descriptor = self.rings.rx.peek(at);
            let Some((at, len)) = self.received(descriptor) else {
                whole = false;
                self.bad_descriptors += 1;
                continue;
            };
            self.ledger.pass(self.index(at), Owner::Receive, Owner::Held);
            let more = descriptor.options & libc::XDP_PKT_CONTD != 0;
            out.push(RxFrame { at, len, port: self.id, more });
        }
        if !whole {
            for frame in out.drain(first..) {
                self.ledger.pass(self.index(frame.at), Owner::Held, Owner::Receive);
                self.unfilled.push(u64::from(frame.at));
            }
        }
        whole
    }

    /// Moves buffers from `unfilled` to the fill ring, as many as there is room for.
    #[inline]
    fn fill(&mut self) {
        if self.unfilled.is_empty() {
            return;
        }
        let count = self.rings.fill.free(self.unfilled.len() as u32);
        let from = self.unfilled.len().saturating_sub(count as usize);
        for at in self.unfilled.drain(from..) {
            self.rings.fill.write(at);
        }
        self.rings.fill.submit();
    }

    fn queue(&mut self, frame: TxFrame, len: usize, more: bool) {
        self.check(frame.port);
        assert!((1..=self.frame_size as usize).contains(&len), "{len} bytes in a frame");
        self.ledger.pass(self.index(frame.at), Owner::Held, Owner::Transmit);
        self.queued.push_back(Queued { at: frame.at, len: len as u32, more });
    }

    /// Takes back what was sent.
    fn reclaim(&mut self) {
        let count = self.rings.completion.available(1);
        for ahead in 0..count {
            let address = self.rings.completion.peek(ahead);
            let index = u32::try_from(address >> self.frame_shift).unwrap_or(u32::MAX);
            if (self.receive_frames..self.receive_frames + self.transmit_frames).contains(&index) {
                self.ledger.pass(index as usize, Owner::Transmit, Owner::Free);
                self.free.push(index);
            } else {
                self.bad_descriptors += 1;
            }
        }
        if count > 0 {
            self.rings.completion.release(count);
        }
    }

    /// Writes queued packets to the transmit ring, whole ones only.
    fn submit(&mut self) {
        let mut wrote = false;
        while let Some(last) = self.queued.iter().position(|queued| !queued.more) {
            let count = last as u32 + 1;
            if self.rings.tx.free(count) < count {
                break;
            }
            for Queued { at, len, more } in self.queued.drain(..=last) {
                let options = if more { libc::XDP_PKT_CONTD } else { 0 };
                self.rings.tx.write(libc::xdp_desc { addr: u64::from(at), len, options });
            }
            wrote = true;
        }
        if wrote {
            self.rings.tx.submit();
        }
    }

    fn kick_receive(&mut self) {
        self.rx_kicks += 1;
        // Whatever it says, the receive ring tells what came, and the next flush or the owner's
        // poll meets an error that lasts.
        let _ = self.socket.kick_receive();
    }
}

/// Whether the kernel is known to be older than `major.minor`.
fn kernel_before(major: u32, minor: u32) -> bool {
    let Ok(release) = std::fs::read_to_string("/proc/sys/kernel/osrelease") else {
        return false;
    };
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(a)), Some(Ok(b))) => (a, b) < (major, minor),
        _ => false,
    }
}

fn memory_lock_limit() -> String {
    use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
    match getrlimit(Resource::RLIMIT_MEMLOCK) {
        Ok((soft, _)) if soft != RLIM_INFINITY => soft.to_string(),
        Ok(_) => "unlimited".into(),
        Err(_) => "unknown".into(),
    }
}

impl Port for AfXdpPort {
    fn receive(&mut self, max: usize, out: &mut Vec<RxFrame>) -> usize {
        self.fill();
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        let mut available = self.rings.rx.available(max);
        if available == 0 {
            let wanted = self.need_wakeup && self.rings.fill.needs_wakeup();
            if !wanted && !self.busy_poll {
                return 0;
            }
            self.kick_receive();
            available = self.rings.rx.available(max);
        }
        let (mut taken, mut packets) = (0, 0);
        while taken < max.min(available) {
            // A packet of which a part is still to come waits in the ring for the next call.
            let Some(frames) = self.packet(taken) else {
                break;
            };
            packets += usize::from(self.take(taken, frames, out));
            taken += frames;
        }
        if taken > 0 {
            self.rings.rx.release(taken);
        }
        packets
    }

    #[inline]
    fn bytes<'a>(&'a self, frame: &'a RxFrame) -> &'a [u8] {
        self.check(frame.port);
        // SAFETY: the token is this port's, so the kernel gave the buffer to us and gets it back
        // only with the token; the token is borrowed for as long as the slice.
        unsafe { self.umem.bytes(frame.at as usize, frame.len as usize) }
    }

    fn recycle(&mut self, frames: impl Iterator<Item = RxFrame>) {
        for frame in frames {
            self.check(frame.port);
            self.ledger.pass(self.index(frame.at), Owner::Held, Owner::Receive);
            self.unfilled.push(u64::from(frame.at));
        }
        self.fill();
    }

    fn allocate(&mut self) -> Option<TxFrame> {
        if self.free.is_empty() {
            self.reclaim();
        }
        let index = self.free.pop()?;
        self.ledger.pass(index as usize, Owner::Free, Owner::Held);
        Some(TxFrame { at: index << self.frame_shift, port: self.id })
    }

    #[inline]
    fn bytes_mut<'a>(&'a mut self, frame: &'a mut TxFrame) -> &'a mut [u8] {
        self.check(frame.port);
        // SAFETY: the token is this port's, so the buffer is ours until it is given back; the token
        // is borrowed exclusively for as long as the slice.
        unsafe { self.umem.bytes_mut(frame.at as usize, self.frame_size as usize) }
    }

    fn transmit(&mut self, frame: TxFrame, len: usize) {
        self.queue(frame, len, false);
    }

    fn transmit_part(&mut self, frame: TxFrame, len: usize) {
        self.queue(frame, len, true);
    }

    fn release(&mut self, frame: TxFrame) {
        self.check(frame.port);
        let index = self.index(frame.at);
        self.ledger.pass(index, Owner::Held, Owner::Free);
        self.free.push(index as u32);
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.ledger.transmit() == 0 {
            return Ok(());
        }
        self.reclaim();
        self.submit();
        let mut pending = self.rings.tx.pending();
        for _ in 0..KICKS_PER_FLUSH {
            if pending == 0 || (self.need_wakeup && !self.rings.tx.needs_wakeup()) {
                break;
            }
            self.tx_kicks += 1;
            if let Err(error) = self.socket.kick_transmit() {
                match error.raw_os_error() {
                    // EAGAIN: more is left in the ring. The others pass by themselves.
                    Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::ENETDOWN) => {}
                    _ => return Err(error),
                }
            }
            let left = self.rings.tx.pending();
            if left == pending {
                break;
            }
            pending = left;
        }
        Ok(())
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn frame_size(&self) -> usize {
        self.frame_size as usize
    }

    fn statistics(&mut self) -> PortStatistics {
        let ours = PortStatistics {
            tx_kicks: self.tx_kicks,
            rx_kicks: self.rx_kicks,
            bad_descriptors: self.bad_descriptors,
            ..PortStatistics::default()
        };
        let Ok(kernel) = self.socket.statistics() else {
            return ours;
        };
        PortStatistics {
            rx_dropped: kernel.rx_dropped,
            rx_invalid_descs: kernel.rx_invalid_descs,
            tx_invalid_descs: kernel.tx_invalid_descs,
            rx_ring_full: kernel.rx_ring_full,
            rx_fill_ring_empty_descs: kernel.rx_fill_ring_empty_descs,
            tx_ring_empty_descs: kernel.tx_ring_empty_descs,
            ..ours
        }
    }

    fn frames(&self) -> FrameAccount {
        let rx = self.rings.rx.waiting() as usize;
        let completion = self.rings.completion.waiting() as usize;
        FrameAccount {
            fill: self.ledger.receive().saturating_sub(rx),
            rx,
            held: self.ledger.held(),
            tx: self.ledger.transmit().saturating_sub(completion),
            completion,
            free: self.ledger.free(),
            total: (self.receive_frames + self.transmit_frames) as usize,
        }
    }

    fn mode(&self) -> PortMode {
        if self.zero_copy { PortMode::ZeroCopy } else { PortMode::Copy }
    }
}

impl AsFd for AfXdpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for AfXdpPort {
    fn drop(&mut self) {
        self.ledger.check_returned();
    }
}
