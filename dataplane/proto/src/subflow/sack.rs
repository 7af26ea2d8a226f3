//! Which blocks a SACK option reports (RFC 2018), and duplicates in it (RFC 2883).

use core::ops::Range;

use crate::range_set::RangeSet;
use crate::segment::{SackBlock, SackBlocks};
use crate::seq::SeqNum;

/// So many separate ranges of out-of-order payload are kept. A sender's window of 4096 segments
/// (1 Gbit/s over 40 ms) in which every eighth is lost or late still fits; one that needs more gets
/// its segments refused.
pub(super) const MAX_RANGES: usize = 512;

/// How many of the blocks last changed are remembered: as many as an option can hold.
const RECENT: usize = 4;

/// What arrived ahead of a gap, and what is to be told about it.
#[derive(Debug)]
pub(super) struct Reorder {
    /// Whether both sides agreed to use SACK.
    pub(super) sack: bool,
    /// Payload positions received beyond the next one expected.
    pub(super) held: RangeSet,
    /// A position in each of the blocks that changed last, the latest first.
    recent: [Option<u64>; RECENT],
    /// What arrived a second time since the last acknowledgement, the first such range.
    duplicate: Option<(u64, u64)>,
}

impl Reorder {
    pub(super) const fn new(sack: bool) -> Self {
        Self { sack, held: RangeSet::new(), recent: [None; RECENT], duplicate: None }
    }

    /// Whether there is nothing to report.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.held.is_empty() && self.duplicate.is_none()
    }

    /// Adds a range that arrived out of order; says whether there was room for it.
    pub(super) fn insert(&mut self, range: Range<u64>) -> bool {
        let position = range.start;
        let inserted = self.held.try_insert(range, MAX_RANGES).is_ok();
        if inserted {
            self.touch(position);
        }
        inserted
    }

    /// RFC 2018, section 4: "the first SACK block [...] MUST specify the contiguous block of data
    /// containing the segment which triggered this ACK".
    pub(super) fn touch(&mut self, position: u64) {
        let Some(block) = self.held.range_of(position) else { return };
        let mut keep = self.recent.iter().flatten().copied().filter(|p| !block.contains(p));
        let mut recent = [Some(position), None, None, None];
        for slot in &mut recent[1..] {
            *slot = keep.next();
        }
        self.recent = recent;
    }

    /// Notes that `range` had been received before.
    pub(super) fn note_duplicate(&mut self, range: Range<u64>) {
        self.duplicate.get_or_insert((range.start, range.end));
    }

    /// Takes out what is in order now that everything before `received` is there; returns the
    /// new next position expected.
    pub(super) fn absorb(&mut self, received: u64) -> u64 {
        let mut received = received;
        while let Some(first) = self.held.first().filter(|first| first.start <= received) {
            received = received.max(first.end);
            self.held.pop_first();
        }
        received
    }

    /// Up to `room` blocks for the next acknowledgement; `seq_of` turns a position into the
    /// sequence number on the wire.
    pub(super) fn blocks(&mut self, room: usize, seq_of: impl Fn(u64) -> SeqNum) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        let block =
            |range: Range<u64>| SackBlock { start: seq_of(range.start), end: seq_of(range.end) };
        // With room for one block only, what is missing matters more than what was superfluous.
        let duplicate = self.duplicate.take().filter(|_| room > 1 || self.held.is_empty());
        if let Some((start, end)) = duplicate.filter(|_| room > 0) {
            blocks.push(block(start..end));
        }
        // The duplicate may be the whole of a held block, which then follows it all the same
        // (RFC 2883, section 4.2).
        let duplicates = blocks.as_slice().len();
        let recent = self.recent.iter().flatten().filter_map(|&p| self.held.range_of(p));
        for next in recent.chain(self.held.iter()).map(block) {
            if blocks.as_slice().len() >= room {
                break;
            }
            if !blocks.as_slice()[duplicates..].contains(&next) {
                blocks.push(next);
            }
        }
        blocks
    }
}
