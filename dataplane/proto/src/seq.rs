//! Sequence numbers, and the stream offsets that they become as early as possible.

use core::ops::{Add, AddAssign, Sub};

/// A TCP sequence number (RFC 9293, section 3.4): a point on a circle of 2^32.
///
/// There is no total order on a circle, so there is no `Ord`; [`before`](Self::before) and
/// [`after`](Self::after) compare two points that lie less than 2^31 apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SeqNum(pub u32);

impl SeqNum {
    /// Whether `self` comes strictly before `other`.
    #[must_use]
    pub const fn before(self, other: Self) -> bool {
        self.distance_from(other) < 0
    }

    /// Whether `self` comes strictly after `other`.
    #[must_use]
    pub const fn after(self, other: Self) -> bool {
        self.distance_from(other) > 0
    }

    /// The signed distance from `origin` to `self`, in -2^31 ..= 2^31 - 1.
    #[must_use]
    pub const fn distance_from(self, origin: Self) -> i32 {
        self.0.wrapping_sub(origin.0) as i32
    }
}

impl Add<u32> for SeqNum {
    type Output = Self;
    fn add(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n))
    }
}

impl AddAssign<u32> for SeqNum {
    fn add_assign(&mut self, n: u32) {
        *self = *self + n;
    }
}

impl Sub<u32> for SeqNum {
    type Output = Self;
    fn sub(self, n: u32) -> Self {
        Self(self.0.wrapping_sub(n))
    }
}

/// An MPTCP data sequence number (RFC 8684, section 3.3): a point on a circle of 2^64.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct DataSeq(pub u64);

impl DataSeq {
    /// The low 32 bits, as the short form of a DSS option carries them.
    #[must_use]
    pub const fn low(self) -> u32 {
        self.0 as u32
    }

    /// The data sequence number nearest to `self` whose low 32 bits are `low`
    /// (RFC 8684, section 3.3.1: 32-bit numbers are extended by the receiver).
    #[must_use]
    pub const fn nearest(self, low: u32) -> Self {
        let ahead = low.wrapping_sub(self.0 as u32) as i32;
        Self(self.0.wrapping_add(ahead as i64 as u64))
    }

    /// The signed distance from `origin` to `self`, in bytes.
    #[must_use]
    pub const fn distance_from(self, origin: Self) -> i64 {
        self.0.wrapping_sub(origin.0) as i64
    }
}

impl Add<u64> for DataSeq {
    type Output = Self;
    fn add(self, n: u64) -> Self {
        Self(self.0.wrapping_add(n))
    }
}

impl Sub<u64> for DataSeq {
    type Output = Self;
    fn sub(self, n: u64) -> Self {
        Self(self.0.wrapping_sub(n))
    }
}

/// A byte's place in a connection's stream: 0 is the first byte the application is given.
///
/// It has 64 bits and never wraps, so unlike the numbers on the wire it is totally ordered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StreamOffset(pub u64);

impl StreamOffset {
    /// The first byte of the stream.
    pub const ZERO: Self = Self(0);
}

impl Add<u64> for StreamOffset {
    type Output = Self;
    fn add(self, n: u64) -> Self {
        Self(self.0 + n)
    }
}

impl Sub for StreamOffset {
    type Output = u64;
    /// The number of bytes from `origin` up to `self`; `origin` must not lie after `self`.
    fn sub(self, origin: Self) -> u64 {
        self.0 - origin.0
    }
}
