//! Memory that is mapped twice, back to back.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use nix::unistd::ftruncate;

use super::spare::{self, Pages};

/// `capacity` bytes of memory, at `base` and once more at `base + capacity`.
///
/// The byte of stream offset `n` is the one at `n % capacity`; any `capacity` consecutive bytes of
/// the stream are consecutive in the address space.
///
/// Bytes are shared between threads through raw pointers only; `&[u8]` is made of those that nobody
/// writes while it lives ([`bytes`](Self::bytes)). The compiler does not know that two addresses
/// mean one byte. That is sound because it never matters within one thread's view between two
/// synchronisations: a byte is written through one address by the holder of its claim, and read by
/// others only after the commit has been published, which orders the memory as a whole.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    capacity: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is unmapped once, by `drop`.
unsafe impl Send for Mapping {}
// SAFETY: all access to the bytes goes through the unsafe methods, whose callers rule out that a
// byte is written while another thread uses it.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `capacity` bytes, a power of two and a multiple of the page size, or takes a spare
    /// mapping. What the bytes hold is not said.
    pub(super) fn new(capacity: usize) -> io::Result<Self> {
        debug_assert!(capacity.is_power_of_two());
        if let Some(spare) = Self::spare(capacity) {
            return Ok(spare);
        }
        let (Some(once), Some(twice)) =
            (NonZeroUsize::new(capacity), capacity.checked_mul(2).and_then(NonZeroUsize::new))
        else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let file = memfd_create("mpxdp-ring", MFdFlags::MFD_CLOEXEC)?;
        ftruncate(&file, i64::try_from(capacity).map_err(io::Error::other)?)?;

        // SAFETY: a new mapping at an address that the kernel chooses touches no other.
        let reserved =
            unsafe { mmap_anonymous(None, twice, ProtFlags::PROT_NONE, MapFlags::MAP_PRIVATE) }?;
        let base = reserved.cast();
        let mapped =
            map_over(base, 0, once, &file).and_then(|()| map_over(base, capacity, once, &file));
        if let Err(error) = mapped {
            // SAFETY: the region is the one reserved above, and nobody knows of it.
            unsafe { munmap(reserved, 2 * capacity) }?;
            return Err(error);
        }
        Ok(Self { base, capacity })
    }

    /// A spare mapping of that capacity, which was in use before.
    pub(super) fn spare(capacity: usize) -> Option<Self> {
        spare::take(capacity).map(|Pages { base, capacity }| Self { base, capacity })
    }

    /// Has the kernel find and map all pages now. It is no matter if it cannot: they come when they
    /// are used.
    pub(super) fn populate(&self) {
        // SAFETY: this changes no byte, and the region is that of the mapping.
        let _ = unsafe {
            madvise(self.base.cast(), 2 * self.capacity, MmapAdvise::MADV_POPULATE_WRITE)
        };
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Copies `bytes` to stream offset `at`.
    ///
    /// # Safety
    ///
    /// `bytes` is no longer than the capacity, and while this runs no other thread accesses the
    /// bytes written, by whichever address.
    pub(super) unsafe fn write(&self, at: u64, bytes: &[u8]) {
        debug_assert!(bytes.len() <= self.capacity);
        // SAFETY: the place is below the capacity and the length at most the capacity, so all of it
        // lies in the two mappings. `bytes` does not overlap it: the caller says that nobody else
        // accesses the target, and `bytes` is borrowed. Stores are ordinary ones: the reader is
        // soon to want them from the cache.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.place(at), bytes.len()) }
    }

    /// The `length` bytes from stream offset `at`.
    ///
    /// # Safety
    ///
    /// `length` is at most the capacity, and while the slice lives nobody writes its bytes, by
    /// whichever address.
    pub(super) unsafe fn bytes(&self, at: u64, length: usize) -> &[u8] {
        debug_assert!(length <= self.capacity);
        // SAFETY: within the two mappings, as in `write`; all bytes of a mapping are initialised;
        // the caller says that nobody writes them.
        unsafe { std::slice::from_raw_parts(self.place(at), length) }
    }

    fn place(&self, at: u64) -> *mut u8 {
        // The mask keeps the place below the capacity, so the cast loses nothing.
        let place = (at & (self.capacity as u64 - 1)) as usize;
        // SAFETY: `place` is within the first of the two mappings.
        unsafe { self.base.as_ptr().add(place) }
    }
}

/// Maps `file` at `at` bytes into the reservation at `base`.
fn map_over(base: NonNull<u8>, at: usize, length: NonZeroUsize, file: impl AsFd) -> io::Result<()> {
    let address = base.addr().checked_add(at);
    // SAFETY: MAP_FIXED replaces a part of the reservation that the caller has made, and into which
    // nobody has a pointer yet.
    unsafe {
        mmap(
            address,
            length,
            ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
            MapFlags::MAP_SHARED | MapFlags::MAP_FIXED,
            file,
            0,
        )
    }?;
    Ok(())
}

impl Drop for Mapping {
    fn drop(&mut self) {
        spare::keep(Pages { base: self.base, capacity: self.capacity }).into_iter().for_each(unmap);
    }
}

/// Gives pages that were spare back to the kernel.
fn unmap(pages: Pages) {
    // SAFETY: pages that are spare have no user, and whoever has them is the only one.
    let unmapped = unsafe { munmap(pages.base.cast(), 2 * pages.capacity) };
    debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
}

/// Gives the mappings up that have been spare for the longest; `false` if there are none.
pub(super) fn give_up_spare() -> bool {
    spare::pop().map(unmap).is_some()
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn both_halves_are_the_same_bytes() {
        let mapping = Mapping::new(4096).unwrap();
        let pattern: Vec<u8> = (0..4096_u32).map(|n| (n % 251) as u8).collect();
        // SAFETY: one thread, and no slice of it lives.
        unsafe { mapping.write(3 * 4096 + 2500, &pattern) };
        // SAFETY: nothing is written any more.
        let seen = unsafe { mapping.bytes(2500, 4096) };
        assert_eq!(seen, pattern);
        // SAFETY: as above.
        let wrapped = unsafe { mapping.bytes(0, 2500) };
        assert_eq!(wrapped, &pattern[1596..]);
    }

    #[test]
    fn memory_is_given_back() {
        let mapped = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            maps.lines().filter(|line| line.contains("memfd:mpxdp-ring")).count()
        };
        // Two lines each. Of these only some are kept; other tests map and unmap meanwhile.
        let many: Vec<_> = (0..4000).map(|_| Mapping::new(32 << 10).unwrap()).collect();
        assert!(mapped() >= 8000);
        drop(many);
        assert!(mapped() < 4000, "{} are left", mapped());
    }

    #[test]
    fn a_spare_mapping_is_used_again() {
        // Other tests may be so busy that it is no longer kept, but not each time.
        let again = (0..100).any(|_| {
            let mapping = Mapping::new(8 << 10).unwrap();
            let base = mapping.base;
            drop(mapping);
            Mapping::new(8 << 10).unwrap().base == base
        });
        assert!(again);
        let one = Mapping::new(8 << 10).unwrap();
        let another = Mapping::new(8 << 10).unwrap();
        assert_ne!(one.base, another.base);
    }

    #[test]
    fn a_size_that_cannot_be_is_an_error() {
        assert!(Mapping::new(1 << 63).is_err());
        assert!(Mapping::new(1 << 46).is_err());
    }
}
