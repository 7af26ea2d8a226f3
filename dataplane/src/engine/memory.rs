//! The memory that the connections of an engine may take together.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::receive::Budget;

/// A budget with a limit.
#[derive(Debug)]
pub(super) struct Memory {
    limit: usize,
    in_use: AtomicUsize,
}

impl Memory {
    pub(super) const fn new(limit: usize) -> Self {
        Self { limit, in_use: AtomicUsize::new(0) }
    }

    /// Bytes that are taken.
    pub(super) fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }
}

impl Budget for Memory {
    fn reserve(&self, bytes: usize) -> bool {
        let within = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= self.limit);
        // Nothing else is published by this number.
        self.in_use.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
    }

    fn release(&self, bytes: usize) {
        self.in_use.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }
}
