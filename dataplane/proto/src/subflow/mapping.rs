//! What a subflow knows of the mapping from its sequence space to the stream (RFC 8684, 3.3.1).
//!
//! Positions are payload octets of the subflow, 0 being the first after the SYN, in 64 bits. A
//! mapping is kept as a range of positions and the difference to the stream. "A mapping is fixed":
//! two announcements for the same position agree exactly if their differences do, so overlapping
//! and touching announcements with the same difference are one entry. A sender with one subflow
//! therefore never makes more entries than there are gaps in what arrived.

use alloc::collections::VecDeque;

/// So many entries beyond the one in use are kept; a peer that reorders within more gaps than
/// that has segments refused, which it then has to send again. A kernel that spreads its data over
/// subflows changes the difference every 64 KiB or so, and a window is 16 MiB: 256 would do.
pub(super) const LIMIT: usize = 512;

/// Positions `start..end` lie at `position + shift` in the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Stream offset minus position, modulo 2^64.
    pub(super) shift: u64,
}

impl Mapping {
    fn touches(&self, other: &Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Both ranges as one; they touch and agree.
    fn join(&self, other: &Self) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end), shift: self.shift }
    }
}

/// Why an announcement was not recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// It contradicts an earlier one.
    Conflict,
    /// There is no room for it.
    Full,
}

/// The mappings announced and not yet used up.
#[derive(Debug, Default)]
pub(super) struct Mappings {
    /// The mapping of the next position expected. It ends at or before that position if the
    /// mapping of the next one is not known.
    current: Mapping,
    /// Later ones, in ascending order, apart from each other and from `current`, or different.
    ahead: VecDeque<Mapping>,
}

impl Mappings {
    /// Whether `new` says nothing beyond `current`, or extends it and nothing else is known.
    /// This is all that an in-order sender ever needs.
    #[inline]
    pub(super) fn agrees(&self, new: &Mapping) -> bool {
        new.shift == self.current.shift
            && new.start <= self.current.end
            && (new.end <= self.current.end || self.ahead.is_empty())
    }

    /// Records a `new` that [`agrees`](Self::agrees).
    #[inline]
    pub(super) fn extend_current(&mut self, new: &Mapping) {
        self.current.end = self.current.end.max(new.end);
    }

    /// Whether an announcement that begins at `position` is the next one: nothing is known of
    /// that position, nor of any later one.
    #[inline]
    pub(super) fn next_is(&self, position: u64) -> bool {
        self.current.end <= position && self.ahead.is_empty()
    }

    /// Starts `current` anew where [`next_is`](Self::next_is) holds.
    #[inline]
    pub(super) fn replace_current(&mut self, new: Mapping) {
        self.current = new;
    }

    /// Records an announcement; `received` is the next position expected, and what the
    /// announcement says of earlier ones does not matter any more.
    pub(super) fn announce(&mut self, new: Mapping, received: u64) -> Result<(), Refused> {
        let mut new = Mapping { start: new.start.max(received), ..new };
        if new.start >= new.end {
            return Ok(());
        }
        if self.agrees(&new) {
            self.extend_current(&new);
            return Ok(());
        }
        let current_used_up = self.current.end <= received;
        let conflict = |known: &Mapping| known.overlaps(&new) && known.shift != new.shift;
        // Those that overlap or touch the announcement.
        let low = self.ahead.partition_point(|known| known.end < new.start);
        let high = self.ahead.partition_point(|known| known.start <= new.end);
        if (!current_used_up && conflict(&self.current))
            || self.ahead.range(low..high).any(conflict)
        {
            return Err(Refused::Conflict);
        }
        let joins = |known: &Mapping, new: &Mapping| known.shift == new.shift && known.touches(new);
        let to_current = joins(&self.current, &new) || (current_used_up && new.start == received);
        // Where none contradicts, all agree but those that only touch, at either end.
        let differs = |known: &Mapping| known.shift != new.shift;
        let before = |known: &&Mapping| differs(known) && known.end == new.start;
        let behind = |known: &&Mapping| differs(known) && known.start == new.end;
        let low = low + self.ahead.range(low..high).take_while(before).count();
        let high = high - self.ahead.range(low..high).rev().take_while(behind).count();
        if low == high && !to_current && self.ahead.len() >= LIMIT {
            return Err(Refused::Full);
        }
        new = self.ahead.drain(low..high).fold(new, |new, known| new.join(&known));
        if !to_current {
            self.ahead.insert(low, new);
        } else if joins(&self.current, &new) {
            self.current = self.current.join(&new);
        } else {
            self.current = new;
        }
        Ok(())
    }

    /// The shift that holds at `position`, and the position up to which it is known to hold.
    #[inline]
    pub(super) fn find(&self, position: u64) -> Option<(u64, u64)> {
        if position < self.current.end {
            return (position >= self.current.start)
                .then_some((self.current.shift, self.current.end));
        }
        let at = self.ahead.partition_point(|known| known.end <= position);
        let known = self.ahead.get(at).filter(|known| known.start <= position)?;
        Some((known.shift, known.end))
    }

    /// Forgets what lies before `received`, the next position expected.
    #[inline]
    pub(super) fn advance(&mut self, received: u64) {
        while self.current.end <= received
            && let Some(next) = self.ahead.pop_front_if(|next| next.start <= received)
        {
            self.current = next;
        }
    }

    /// Whether, by all mappings in use, the subflow's payload is the stream itself. That is so as
    /// long as the connection has one subflow and nothing was sent a second time with another
    /// mapping; afterwards it is never so again.
    pub(super) fn is_identity(&self) -> bool {
        self.current.shift == 0 && self.ahead.iter().all(|known| known.shift == 0)
    }
}
