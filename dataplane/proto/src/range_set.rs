//! Sets of ranges: which parts of a sequence space are there, claimed or missing.

use alloc::collections::VecDeque;
use core::ops::Range;

#[cfg(test)]
mod tests;

/// A set of `u64`, kept as sorted ranges that neither overlap nor touch.
///
/// What the protocol keeps in it has few ranges, most of the time none, and loses them at the
/// front; hence a sorted deque and not a tree. Every operation takes time in the logarithm of the
/// number of ranges, plus what an insertion or removal in the middle moves.
///
/// Whoever lets a peer decide what goes in uses [`try_insert`](Self::try_insert), which bounds the
/// memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RangeSet {
    ranges: VecDeque<Range<u64>>,
}

/// The range was not inserted: it would have been one range more than allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

impl core::fmt::Display for Full {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the set holds as many separate ranges as it may")
    }
}

impl core::error::Error for Full {}

impl RangeSet {
    /// The empty set; allocates nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { ranges: VecDeque::new() }
    }

    /// The empty set, with memory for `ranges` separate ranges.
    #[must_use]
    pub fn with_capacity(ranges: usize) -> Self {
        Self { ranges: VecDeque::with_capacity(ranges) }
    }

    /// Whether nothing is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The number of separate ranges.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The number of values in the set.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.ranges.iter().map(|r| r.end - r.start).sum()
    }

    /// The lowest range.
    #[must_use]
    pub fn first(&self) -> Option<Range<u64>> {
        self.ranges.front().cloned()
    }

    /// The highest range.
    #[must_use]
    pub fn last(&self) -> Option<Range<u64>> {
        self.ranges.back().cloned()
    }

    /// Takes the lowest range out.
    pub fn pop_first(&mut self) -> Option<Range<u64>> {
        self.ranges.pop_front()
    }

    /// Takes everything out; keeps the memory.
    pub fn clear(&mut self) {
        self.ranges.clear();
    }

    /// The ranges in ascending order.
    pub fn iter(
        &self,
    ) -> impl DoubleEndedIterator<Item = Range<u64>> + ExactSizeIterator + Clone + '_ {
        self.ranges.iter().cloned()
    }

    /// Whether `value` is in the set.
    #[must_use]
    pub fn contains(&self, value: u64) -> bool {
        self.range_of(value).is_some()
    }

    /// The range that `value` lies in.
    #[must_use]
    pub fn range_of(&self, value: u64) -> Option<Range<u64>> {
        let at = self.first_ending_after(value);
        self.ranges.get(at).filter(|r| r.start <= value).cloned()
    }

    /// Whether all of `range` is in the set; so it is if `range` is empty.
    #[must_use]
    pub fn covers(&self, range: Range<u64>) -> bool {
        self.missing(range).next().is_none()
    }

    /// Whether any part of `range` is in the set.
    #[must_use]
    pub fn overlaps(&self, range: Range<u64>) -> bool {
        self.covered(range).next().is_some()
    }

    /// Adds `range`, joining it with what it overlaps or touches. An empty range adds nothing.
    pub fn insert(&mut self, range: Range<u64>) {
        let Ok(()) = self.insert_within(range, usize::MAX) else {
            unreachable!("a deque cannot hold usize::MAX ranges")
        };
    }

    /// Adds `range` as [`insert`](Self::insert) does, unless that makes more than `limit` ranges.
    ///
    /// # Errors
    ///
    /// [`Full`] if `limit` ranges are held already and `range` joins none of them; the set is
    /// unchanged then.
    pub fn try_insert(&mut self, range: Range<u64>, limit: usize) -> Result<(), Full> {
        self.insert_within(range, limit)
    }

    /// Takes `range` out; a range around it is split in two.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let low = self.first_ending_after(range.start);
        let high = self.first_starting_from(range.end);
        if low >= high {
            return;
        }
        let left = self.ranges[low].start..range.start;
        let right = range.end..self.ranges[high - 1].end;
        // Replace ranges `low..high` by what is left of the outermost two.
        match (left.is_empty(), right.is_empty()) {
            (true, true) => drop(self.ranges.drain(low..high)),
            (false, true) => {
                self.ranges[low] = left;
                drop(self.ranges.drain(low + 1..high));
            }
            (true, false) => {
                self.ranges[high - 1] = right;
                drop(self.ranges.drain(low..high - 1));
            }
            (false, false) => {
                self.ranges[low] = left;
                if high - low == 1 {
                    self.ranges.insert(high, right);
                } else {
                    self.ranges[high - 1] = right;
                    drop(self.ranges.drain(low + 1..high - 1));
                }
            }
        }
    }

    /// Takes everything below `value` out.
    pub fn remove_before(&mut self, value: u64) {
        while let Some(first) = self.ranges.front_mut() {
            if first.end > value {
                first.start = first.start.max(value);
                return;
            }
            self.ranges.pop_front();
        }
    }

    /// The parts of `range` that are not in the set, in ascending order.
    pub fn missing(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut from = range.start;
        let mut next = self.first_ending_after(range.start);
        core::iter::from_fn(move || {
            while from < range.end {
                let Some(present) = self.ranges.get(next) else {
                    let gap = from..range.end;
                    from = range.end;
                    return Some(gap);
                };
                let gap = from..present.start.min(range.end);
                from = present.end;
                next += 1;
                if !gap.is_empty() {
                    return Some(gap);
                }
            }
            None
        })
    }

    /// The parts of `range` that are in the set, in ascending order.
    pub fn covered(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let low = self.first_ending_after(range.start);
        self.ranges
            .range(low..)
            .map(move |r| r.start.max(range.start)..r.end.min(range.end))
            .take_while(|r| !r.is_empty())
    }

    fn insert_within(&mut self, range: Range<u64>, limit: usize) -> Result<(), Full> {
        if range.is_empty() {
            return Ok(());
        }
        // Data mostly comes in at the end, so look there before searching.
        if let Some(last) = self.ranges.back_mut()
            && last.start <= range.start
            && range.start <= last.end
        {
            last.end = last.end.max(range.end);
            return Ok(());
        }
        // `low..high` are the ranges that `range` overlaps or touches.
        let low = self.ranges.partition_point(|r| r.end < range.start);
        let high = self.ranges.partition_point(|r| r.start <= range.end);
        if low == high {
            if self.ranges.len() >= limit {
                return Err(Full);
            }
            self.ranges.insert(low, range);
        } else {
            let start = self.ranges[low].start.min(range.start);
            let end = self.ranges[high - 1].end.max(range.end);
            self.ranges[low] = start..end;
            drop(self.ranges.drain(low + 1..high));
        }
        Ok(())
    }

    /// The index of the first range of which something lies at or above `value`.
    fn first_ending_after(&self, value: u64) -> usize {
        self.ranges.partition_point(|r| r.end <= value)
    }

    /// The index of the first range that starts at or above `value`.
    fn first_starting_from(&self, value: u64) -> usize {
        self.ranges.partition_point(|r| r.start < value)
    }
}

impl FromIterator<Range<u64>> for RangeSet {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Self {
        let mut set = Self::new();
        for range in ranges {
            set.insert(range);
        }
        set
    }
}
