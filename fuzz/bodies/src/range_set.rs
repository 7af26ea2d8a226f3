//! `RangeSet` against a bit for each number.

use std::ops::Range;

use arbitrary::{Arbitrary, Unstructured};
use mpxdp_proto::range_set::RangeSet;

/// Numbers of the model: few, so that ranges meet often.
const SPACE: usize = 192;

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Op {
    Insert(Span),
    TryInsert(Span, u8),
    Remove(Span),
    RemoveBefore(u8),
    PopFirst,
    Clear,
    Ask(Span),
}

#[derive(Clone, Copy, Debug, Arbitrary)]
struct Span {
    start: u8,
    len: u8,
}

/// The set under test, and what it should be.
struct Pair {
    set: RangeSet,
    model: [bool; SPACE],
    /// The number that bit 0 stands for.
    base: u64,
}

/// Applies operations to a set and to its model, and compares them after each.
pub fn range_set(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let at_the_end = input.arbitrary().unwrap_or(false);
    // The last number of all cannot be in a set, since ranges exclude their end.
    let base = if at_the_end { u64::MAX - SPACE as u64 } else { 0 };
    let mut pair = Pair { set: RangeSet::new(), model: [false; SPACE], base };
    while !input.is_empty() {
        let Ok(op) = input.arbitrary() else { break };
        pair.apply(op);
    }
}

impl Pair {
    fn apply(&mut self, op: Op) {
        match op {
            Op::Insert(span) => {
                self.set.insert(self.range(span));
                self.mark(span, true);
            }
            Op::TryInsert(span, limit) => {
                let before = self.model;
                let count = self.set.len();
                self.mark(span, true);
                // Only a range that joins no other needs room.
                let full = self.runs().len() > count && count >= usize::from(limit);
                if full {
                    self.model = before;
                }
                let inserted = self.set.try_insert(self.range(span), limit.into());
                assert_eq!(inserted.is_err(), full, "{op:?}");
            }
            Op::Remove(span) => {
                self.set.remove(self.range(span));
                self.mark(span, false);
            }
            Op::RemoveBefore(end) => {
                let end = usize::from(end).min(SPACE);
                self.set.remove_before(self.base + end as u64);
                self.model[..end].fill(false);
            }
            Op::PopFirst => {
                let first = self.runs().first().cloned();
                assert_eq!(self.set.pop_first(), first.clone());
                if let Some(Range { start, end }) = first {
                    let (start, end) = (start - self.base, end - self.base);
                    self.model[start as usize..end as usize].fill(false);
                }
            }
            Op::Clear => {
                self.set.clear();
                self.model.fill(false);
            }
            Op::Ask(span) => self.ask(span),
        }
        let runs = self.runs();
        assert_eq!(self.set.iter().collect::<Vec<_>>(), runs, "{op:?}");
        assert_eq!(self.set.len(), runs.len());
        assert_eq!(self.set.is_empty(), runs.is_empty());
        assert_eq!(self.set.first(), runs.first().cloned());
        assert_eq!(self.set.last(), runs.last().cloned());
        assert_eq!(self.set.count(), self.model.iter().filter(|&&there| there).count() as u64);
    }

    /// Compares what the set says of a range.
    fn ask(&self, span: Span) {
        let (range, bits) = (self.range(span), bits(span));
        let value = range.start;
        let (set, base) = (&self.set, self.base);
        let there = |want: bool| {
            let inside = |n: &usize| bits.contains(n) && self.model[*n] == want;
            runs(base, (0..SPACE).filter(inside))
        };
        assert_eq!(set.covered(range.clone()).collect::<Vec<_>>(), there(true));
        assert_eq!(set.missing(range.clone()).collect::<Vec<_>>(), there(false));
        assert_eq!(set.covers(range.clone()), there(false).is_empty());
        assert_eq!(set.overlaps(range), !there(true).is_empty());
        let around = self.runs().into_iter().find(|run| run.contains(&value));
        assert_eq!(set.contains(value), around.is_some());
        assert_eq!(set.range_of(value), around);
    }

    fn range(&self, span: Span) -> Range<u64> {
        let Range { start, end } = bits(span);
        self.base + start as u64..self.base + end as u64
    }

    fn mark(&mut self, span: Span, there: bool) {
        self.model[bits(span)].fill(there);
    }

    /// The maximal runs of consecutive numbers.
    fn runs(&self) -> Vec<Range<u64>> {
        runs(self.base, (0..SPACE).filter(|n| self.model[*n]))
    }
}

/// A span's part of the model; it may be empty.
fn bits(Span { start, len }: Span) -> Range<usize> {
    let start = usize::from(start).min(SPACE);
    start..(start + usize::from(len)).min(SPACE)
}

fn runs(base: u64, ascending: impl Iterator<Item = usize>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for number in ascending.map(|n| base + n as u64) {
        match runs.last_mut() {
            Some(last) if last.end == number => last.end += 1,
            _ => runs.push(number..number + 1),
        }
    }
    runs
}
