//! The memory that the connections of an engine may take together.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::receive::{Budget, give_up_spare_memory, spare_memory};
use crate::stats::MemoryReport;

/// A budget with a limit.
#[derive(Debug)]
pub(super) struct Memory {
    limit: usize,
    in_use: AtomicUsize,
    peak: AtomicUsize,
}

impl Memory {
    pub(super) const fn new(limit: usize) -> Self {
        Self { limit, in_use: AtomicUsize::new(0), peak: AtomicUsize::new(0) }
    }

    /// Bytes that are taken.
    pub(super) fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }

    pub(super) fn report(&self) -> MemoryReport {
        let spare = spare_memory();
        let (limit, in_use) = (self.limit, self.in_use());
        // What was being made for a ring that is gone became spare without having been asked for.
        let now = in_use + spare;
        let peak = self.peak.fetch_max(now, Ordering::Relaxed).max(now);
        MemoryReport { limit, in_use, spare, peak }
    }

    /// Takes `bytes` if they fit beside `spare` bytes; says how many are taken then.
    fn take(&self, bytes: usize, spare: usize) -> Option<usize> {
        let sum = |used: usize| used.checked_add(bytes);
        let fits = |sum: &usize| sum.checked_add(spare).is_some_and(|all| all <= self.limit);
        // Nothing else is published by this number.
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let before = self.in_use.fetch_update(set, fetch, |used| sum(used).filter(fits));
        before.ok().map(|before| before + bytes)
    }
}

impl Budget for Memory {
    fn reserve(&self, bytes: usize) -> bool {
        loop {
            let spare = spare_memory();
            if let Some(taken) = self.take(bytes, spare) {
                self.peak.fetch_max(taken + spare, Ordering::Relaxed);
                return true;
            }
            // Nothing that is given up would help what does not fit alone.
            if spare == 0 || self.in_use().saturating_add(bytes) > self.limit {
                return false;
            }
            // If there is none any more, a ring has taken it.
            give_up_spare_memory();
        }
    }

    fn release(&self, bytes: usize) {
        self.in_use.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::receive::{RingConfig, ring};

    #[test]
    fn what_is_reserved_stays_within_the_limit() {
        let memory = Memory::new(100);
        assert!(memory.reserve(60));
        assert!(!memory.reserve(41));
        assert!(memory.reserve(40));
        assert!(!memory.reserve(usize::MAX));
        memory.release(60);
        assert_eq!(memory.in_use(), 40);
        assert!(memory.reserve(1));
        assert!(memory.report().peak >= 100);
    }

    #[test]
    fn spare_memory_counts_and_is_given_up_before_anything_is_refused() {
        const MIB: usize = 1 << 20;
        let memory = Arc::new(Memory::new(2 * MIB));
        let budget = Arc::clone(&memory) as Arc<dyn Budget>;
        drop(ring(RingConfig { initial: MIB, limit: MIB, budget }).unwrap());
        // Other tests of this process keep and take some too.
        assert_eq!(memory.report().in_use, 0);
        assert!(memory.reserve(2 * MIB));
        assert!(!memory.reserve(1));
        let MemoryReport { limit, in_use, peak, .. } = memory.report();
        assert_eq!((limit, in_use), (2 * MIB, 2 * MIB));
        assert!(peak <= limit, "with what was spare it was {peak}");
    }
}
