//! AF_XDP as the kernel offers it: the socket, the memory that packets lie in, and the rings.
//!
//! All the memory here is shared with the kernel. The rings' indices are accessed as atomics, their
//! entries by copies of those that are ours between two index updates; no reference to an entry
//! exists. Packet memory is lent as slices only for what a frame token owns.

use std::ffi::{c_int, c_void};
use std::io;
use std::marker::PhantomData;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

/// A mapping that is undone when dropped.
#[derive(Debug)]
struct Mapping {
    start: NonNull<c_void>,
    len: usize,
}

impl Mapping {
    fn new(len: usize, flags: c_int, fd: c_int, offset: libc::off_t) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: no address is asked for, so the mapping replaces none.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start =
            NonNull::new(start).ok_or_else(|| io::Error::other("mmap returned address 0"))?;
        Ok(Self { start, len })
    }

    /// The address `offset` bytes into the mapping, of a `T` that must lie inside.
    fn at<T>(&self, offset: usize) -> NonNull<T> {
        let end = offset.checked_add(size_of::<T>());
        assert!(end.is_some_and(|end| end <= self.len), "offset {offset} of {} bytes", self.len);
        // SAFETY: the result lies in the mapping, as was just checked.
        let pointer = unsafe { self.start.byte_add(offset) }.cast::<T>();
        assert!(pointer.is_aligned(), "offset {offset} is not aligned");
        pointer
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours; those who hold pointers into it hold it too, and go first.
        unsafe { libc::munmap(self.start.as_ptr(), self.len) };
    }
}

/// The memory that packets lie in (the UMEM).
#[derive(Debug)]
pub(super) struct Umem {
    mapping: Mapping,
    /// Where the packet memory starts in the mapping: on a huge page's boundary.
    start: usize,
    len: usize,
}

// SAFETY: the memory belongs to no thread; access goes by the rules of `bytes` and `bytes_mut`.
unsafe impl Send for Umem {}

const HUGE_PAGE: usize = 2 << 20;

impl Umem {
    /// Packet memory of `len` bytes, on huge pages if the kernel likes: 16 MiB are 4096 small
    /// pages, more than the second-level TLB of most CPUs has entries.
    pub(super) fn new(len: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let mapping = Mapping::new(len + HUGE_PAGE, flags, -1, 0)?;
        let start = mapping.start.as_ptr().addr().next_multiple_of(HUGE_PAGE)
            - mapping.start.as_ptr().addr();
        let umem = Self { mapping, start, len };
        // A child process that wrote to its copy would have the kernel move our pages apart from
        // those the NIC uses. Huge pages are a wish. Neither can fail in a way that matters.
        for advice in [libc::MADV_DONTFORK, libc::MADV_HUGEPAGE] {
            // SAFETY: the range lies in the mapping, and neither advice changes what it holds.
            unsafe { libc::madvise(umem.pointer(0).as_ptr().cast(), len, advice) };
        }
        Ok(umem)
    }

    fn pointer(&self, at: usize) -> NonNull<u8> {
        // SAFETY: `start` is less than a huge page, by which the mapping is longer than `len`;
        // every caller passes an `at` of at most `len`.
        unsafe { self.mapping.start.cast::<u8>().byte_add(self.start + at) }
    }

    fn check(&self, at: usize, len: usize) {
        assert!(at <= self.len && len <= self.len - at, "{len} bytes at {at} of {}", self.len);
    }

    /// The bytes `at .. at + len`.
    ///
    /// # Safety
    ///
    /// Until the slice is gone nobody writes there: neither the kernel nor the holder of a slice
    /// from [`bytes_mut`](Self::bytes_mut).
    #[inline]
    pub(super) unsafe fn bytes(&self, at: usize, len: usize) -> &[u8] {
        self.check(at, len);
        // SAFETY: the range lies in the mapping, which is zeroed or written memory and lives as
        // long as `self`; the caller answers for writers.
        unsafe { std::slice::from_raw_parts(self.pointer(at).as_ptr(), len) }
    }

    /// The bytes `at .. at + len`, to be written.
    ///
    /// # Safety
    ///
    /// Until the slice is gone nobody else reads or writes there.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the caller answers for exclusive access to the range")]
    pub(super) unsafe fn bytes_mut(&self, at: usize, len: usize) -> &mut [u8] {
        self.check(at, len);
        // SAFETY: as in `bytes`; the caller answers for readers and writers.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(at).as_ptr(), len) }
    }
}

/// What a ring transports: a type of the kernel's interface that any bytes make a value of.
pub(super) trait Entry: Copy {}
impl Entry for u64 {}
impl Entry for libc::xdp_desc {}

/// The shared part of a ring.
#[derive(Debug)]
struct Ring<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    size: u32,
    _mapping: Mapping,
    _entry: PhantomData<T>,
}

// SAFETY: the mapping belongs to no thread, and a ring is reached only through its one owner.
unsafe impl<T: Entry> Send for Ring<T> {}

impl<T: Entry> Ring<T> {
    fn new(
        fd: BorrowedFd<'_>,
        size: u32,
        offsets: libc::xdp_ring_offset,
        page: libc::off_t,
    ) -> io::Result<Self> {
        let entries = offsets.desc as usize;
        let len = entries + size as usize * size_of::<T>();
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        let mapping = Mapping::new(len, flags, fd.as_raw_fd(), page)?;
        // The last entry lies inside, so all do.
        mapping.at::<T>(entries + (size as usize - 1) * size_of::<T>());
        Ok(Self {
            producer: mapping.at(offsets.producer as usize),
            consumer: mapping.at(offsets.consumer as usize),
            flags: mapping.at(offsets.flags as usize),
            entries: mapping.at(entries),
            size,
            _mapping: mapping,
            _entry: PhantomData,
        })
    }

    #[inline]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: it points into the mapping, aligned, and the kernel accesses it atomically.
        unsafe { self.producer.as_ref() }
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as for `producer`.
        unsafe { self.consumer.as_ref() }
    }

    #[inline]
    fn needs_wakeup(&self) -> bool {
        // SAFETY: as for `producer`.
        let flags = unsafe { self.flags.as_ref() };
        flags.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    #[inline]
    fn entry(&self, index: u32) -> *mut T {
        let slot = index & (self.size - 1);
        // SAFETY: sizes are powers of two, so `slot` is below `size`, and that many entries lie in
        // the mapping.
        unsafe { self.entries.add(slot as usize) }.as_ptr()
    }
}

/// A ring that we write and the kernel reads: fill, transmit.
#[derive(Debug)]
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// The index of the next entry to write; the kernel sees it after `submit`.
    next: u32,
    /// The kernel's index as last seen.
    seen: u32,
}

impl<T: Entry> Producer<T> {
    fn new(ring: Ring<T>) -> Self {
        let next = ring.producer().load(Ordering::Relaxed);
        let seen = ring.consumer().load(Ordering::Acquire);
        Self { ring, next, seen }
    }

    /// The number of entries that can be written now; looks at the kernel's index only if fewer
    /// than `wanted` were free when last seen.
    #[inline]
    pub(super) fn free(&mut self, wanted: u32) -> u32 {
        let free = self.ring.size.saturating_sub(self.next.wrapping_sub(self.seen));
        if free >= wanted {
            return free;
        }
        // Acquire: the kernel has read the entries before it gave them up.
        self.seen = self.ring.consumer().load(Ordering::Acquire);
        self.ring.size.saturating_sub(self.next.wrapping_sub(self.seen))
    }

    /// Writes the next entry; the caller has seen that one is [`free`](Self::free).
    #[inline]
    pub(super) fn write(&mut self, entry: T) {
        debug_assert!(self.next.wrapping_sub(self.seen) < self.ring.size, "the ring is full");
        // SAFETY: the slot is in the mapping, and ours until `submit` has passed it to the kernel.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
    }

    /// Shows the kernel everything written.
    #[inline]
    pub(super) fn submit(&self) {
        // Release: the entries, and the packets that they point to, are written before.
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// How many submitted entries the kernel has not taken yet.
    #[inline]
    pub(super) fn pending(&self) -> u32 {
        let submitted = self.ring.producer().load(Ordering::Relaxed);
        submitted.wrapping_sub(self.ring.consumer().load(Ordering::Acquire)).min(self.ring.size)
    }

    /// Whether the kernel wants a system call before it looks at the ring.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// A ring that the kernel writes and we read: receive, completion.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    /// The index of the next entry to read; the kernel sees it after `release`.
    next: u32,
    /// The kernel's index as last seen.
    seen: u32,
}

impl<T: Entry> Consumer<T> {
    fn new(ring: Ring<T>) -> Self {
        let next = ring.consumer().load(Ordering::Relaxed);
        let seen = ring.producer().load(Ordering::Acquire);
        Self { ring, next, seen }
    }

    /// The number of entries that can be read now; looks at the kernel's index only if fewer than
    /// `wanted` were there when last seen.
    #[inline]
    pub(super) fn available(&mut self, wanted: u32) -> u32 {
        let available = self.seen.wrapping_sub(self.next);
        if available >= wanted {
            return available;
        }
        // Acquire: the kernel wrote the entries, and the packets that they point to, before.
        self.seen = self.ring.producer().load(Ordering::Acquire);
        self.seen.wrapping_sub(self.next).min(self.ring.size)
    }

    /// The number of entries that wait now.
    pub(super) fn waiting(&self) -> u32 {
        let seen = self.ring.producer().load(Ordering::Acquire);
        seen.wrapping_sub(self.next).min(self.ring.size)
    }

    /// The entry `ahead` of the next one; the caller has seen that it is
    /// [`available`](Self::available).
    #[inline]
    pub(super) fn peek(&self, ahead: u32) -> T {
        debug_assert!(ahead < self.seen.wrapping_sub(self.next), "nothing to read");
        // SAFETY: the slot is in the mapping; the kernel wrote it, and does so again only after
        // `release`.
        unsafe { self.ring.entry(self.next.wrapping_add(ahead)).read() }
    }

    /// Gives `count` entries back to the kernel.
    #[inline]
    pub(super) fn release(&mut self, count: u32) {
        self.next = self.next.wrapping_add(count);
        // Release: what was read of them was read before.
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}

/// The four rings of a socket with memory of its own.
#[derive(Debug)]
pub(super) struct Rings {
    pub(super) fill: Producer<u64>,
    pub(super) completion: Consumer<u64>,
    pub(super) rx: Consumer<libc::xdp_desc>,
    pub(super) tx: Producer<libc::xdp_desc>,
}

/// The sizes of the rings, in entries; powers of two.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingSizes {
    pub(super) fill: u32,
    pub(super) completion: u32,
    pub(super) rx: u32,
    pub(super) tx: u32,
}

/// An AF_XDP socket.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Socket {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: a call without pointers.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Makes `umem` the memory of the socket's packets, in buffers of `frame_size` bytes. It must
    /// outlive the socket, which keeps the pages but not their mapping.
    pub(super) fn register(&self, umem: &Umem, frame_size: u32) -> io::Result<()> {
        let registration = libc::xdp_umem_reg {
            addr: umem.pointer(0).as_ptr().addr() as u64,
            len: umem.len as u64,
            chunk_size: frame_size,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        self.set(libc::SOL_XDP, libc::XDP_UMEM_REG, &registration)
    }

    /// Makes and maps the rings.
    pub(super) fn rings(&self, sizes: RingSizes) -> io::Result<Rings> {
        self.set(libc::SOL_XDP, libc::XDP_UMEM_FILL_RING, &sizes.fill)?;
        self.set(libc::SOL_XDP, libc::XDP_UMEM_COMPLETION_RING, &sizes.completion)?;
        self.set(libc::SOL_XDP, libc::XDP_RX_RING, &sizes.rx)?;
        self.set(libc::SOL_XDP, libc::XDP_TX_RING, &sizes.tx)?;
        const NOWHERE: libc::xdp_ring_offset =
            libc::xdp_ring_offset { producer: 0, consumer: 0, desc: 0, flags: 0 };
        let mut at = libc::xdp_mmap_offsets { rx: NOWHERE, tx: NOWHERE, fr: NOWHERE, cr: NOWHERE };
        self.get(libc::XDP_MMAP_OFFSETS, &mut at)?;
        let fill_page = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
        let completion_page = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
        let fd = self.fd.as_fd();
        Ok(Rings {
            fill: Producer::new(Ring::new(fd, sizes.fill, at.fr, fill_page)?),
            completion: Consumer::new(Ring::new(fd, sizes.completion, at.cr, completion_page)?),
            rx: Consumer::new(Ring::new(fd, sizes.rx, at.rx, libc::XDP_PGOFF_RX_RING)?),
            tx: Producer::new(Ring::new(fd, sizes.tx, at.tx, libc::XDP_PGOFF_TX_RING)?),
        })
    }

    pub(super) fn bind(&self, ifindex: u32, queue: u32, flags: u16) -> io::Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: ifindex,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        // SAFETY: `address` is a `sockaddr_xdp` of the length given, alive during the call.
        let result =
            unsafe { libc::bind(self.fd.as_raw_fd(), ptr::from_ref(&address).cast(), len) };
        check(result)
    }

    /// Whether the driver uses our memory itself; meaningful once bound.
    pub(super) fn is_zero_copy(&self) -> io::Result<bool> {
        let mut options = libc::xdp_options { flags: 0 };
        self.get(libc::XDP_OPTIONS, &mut options)?;
        Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    pub(super) fn statistics(&self) -> io::Result<libc::xdp_statistics> {
        let mut statistics = libc::xdp_statistics {
            rx_dropped: 0,
            rx_invalid_descs: 0,
            tx_invalid_descs: 0,
            rx_ring_full: 0,
            rx_fill_ring_empty_descs: 0,
            tx_ring_empty_descs: 0,
        };
        self.get(libc::XDP_STATISTICS, &mut statistics)?;
        Ok(statistics)
    }

    /// Sets a socket-level option.
    pub(super) fn set_socket_option(&self, name: c_int, value: c_int) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, name, &value)
    }

    /// Has the kernel look at the transmit ring.
    #[inline]
    pub(super) fn kick_transmit(&self) -> io::Result<()> {
        let fd = self.fd.as_raw_fd();
        // SAFETY: no data and no address are passed; null with length 0 says so.
        let result =
            unsafe { libc::sendto(fd, ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
        check(result as c_int)
    }

    /// Has the kernel look at the fill ring and, with busy polling, at the NIC.
    #[inline]
    pub(super) fn kick_receive(&self) -> io::Result<()> {
        let fd = self.fd.as_raw_fd();
        let (nothing, nobody, no_len) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: no buffer and no address are passed; null with length 0 says so.
        let result = unsafe { libc::recvfrom(fd, nothing, 0, libc::MSG_DONTWAIT, nobody, no_len) };
        check(result as c_int)
    }

    fn set<T: Copy>(&self, level: c_int, name: c_int, value: &T) -> io::Result<()> {
        let (fd, len) = (self.fd.as_raw_fd(), size_of::<T>() as libc::socklen_t);
        // SAFETY: `value` is readable for `len` bytes, and a plain value of the kernel's interface.
        let result = unsafe { libc::setsockopt(fd, level, name, ptr::from_ref(value).cast(), len) };
        check(result)
    }

    fn get<T: Copy>(&self, name: c_int, value: &mut T) -> io::Result<()> {
        let (fd, mut len) = (self.fd.as_raw_fd(), size_of::<T>() as libc::socklen_t);
        let place = ptr::from_mut(value).cast();
        // SAFETY: `value` is writable for `len` bytes, and integers only, so any bytes are valid.
        let result = unsafe { libc::getsockopt(fd, libc::SOL_XDP, name, place, &raw mut len) };
        check(result)?;
        // The kernel of before 5.4 has shorter forms of some answers.
        if len as usize == size_of::<T>() {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
        }
    }
}

fn check(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

// Not in the libc crate; the values of every architecture but SPARC and PA-RISC.
pub(super) const SO_BUSY_POLL: c_int = 46;
pub(super) const SO_PREFER_BUSY_POLL: c_int = 69;
pub(super) const SO_BUSY_POLL_BUDGET: c_int = 70;
