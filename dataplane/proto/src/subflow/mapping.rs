//! What a subflow knows of the mapping from its sequence space to the stream (RFC 8684, 3.3.1).
//!
//! Positions are payload octets of the subflow, 0 being the first after the SYN, in 64 bits. A
//! mapping is kept as a range of positions and the difference to the stream. "A mapping is fixed":
//! two announcements for the same position agree exactly if their differences do, so overlapping
//! and touching announcements with the same difference are one entry. A sender with one subflow
//! therefore never makes more entries than there are gaps in what arrived.

use alloc::vec::Vec;

/// So many entries beyond the one in use are kept; a peer that reorders within more gaps than
/// that has segments refused, which it then has to send again.
pub(super) const LIMIT: usize = 64;

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
    ahead: Vec<Mapping>,
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
        if (!current_used_up && conflict(&self.current)) || self.ahead.iter().any(conflict) {
            return Err(Refused::Conflict);
        }
        let joins = |known: &Mapping, new: &Mapping| known.shift == new.shift && known.touches(new);
        let to_current = joins(&self.current, &new) || (current_used_up && new.start == received);
        let full = self.ahead.len() >= LIMIT;
        if full && !to_current && !self.ahead.iter().any(|known| joins(known, &new)) {
            return Err(Refused::Full);
        }
        let mut at = 0;
        while let Some(known) = self.ahead.get(at) {
            if joins(known, &new) {
                new = new.join(&self.ahead.remove(at));
            } else {
                at += 1;
            }
        }
        if !to_current {
            let at = self.ahead.partition_point(|known| known.start < new.start);
            self.ahead.insert(at, new);
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
            && self.ahead.first().is_some_and(|next| next.start <= received)
        {
            self.current = self.ahead.remove(0);
        }
    }

    /// Whether, by all mappings in use, the subflow's payload is the stream itself. That is so as
    /// long as the connection has one subflow and nothing was sent a second time with another
    /// mapping; afterwards it is never so again.
    pub(super) fn is_identity(&self) -> bool {
        self.current.shift == 0 && self.ahead.iter().all(|known| known.shift == 0)
    }
}
