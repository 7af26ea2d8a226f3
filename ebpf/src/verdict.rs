//! What became of a packet, and how many met the same end.

use std::fmt;

/// Declares the verdicts in the order of `enum verdict` in `bpf/verdict.h`.
macro_rules! verdicts {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)+) => {
        /// What the steering program decided for a packet, and why.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Verdict {
            $($(#[$doc])* $variant,)+
        }

        impl Verdict {
            /// Every verdict, in the order of the program's counters.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The stable name, as reports and metrics use it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

verdicts! {
    /// Redirected: its 4-tuple is one of ours.
    Flow = "flow",
    /// Redirected: its destination is one of our listeners.
    Listener = "listener",
    /// Dropped: ours, but its receive queue has no socket. The kernel would have reset the
    /// connection.
    NoSocket = "no_socket",
    /// Passed: the destination is a multicast or broadcast MAC.
    GroupMac = "group_mac",
    /// Passed: neither IPv4 nor IPv6.
    NotIp = "not_ip",
    /// Passed: more than two VLAN tags.
    VlanDepth = "vlan_depth",
    /// Passed: a transport protocol that is not TCP.
    NotTcp = "not_tcp",
    /// Passed: an IP fragment, or a packet with an IPv6 fragment header.
    Fragment = "fragment",
    /// Passed: more IPv6 extension headers than the program follows.
    Extension = "extension",
    /// Passed: an IPv6 routing header with segments left.
    SourceRoute = "source_route",
    /// Passed: the headers or the datagram reach past the frame, or the headers past its first
    /// buffer.
    Truncated = "truncated",
    /// Passed: a version or length field that cannot be right.
    Malformed = "malformed",
    /// Passed: well-formed TCP that is not ours.
    NoMatch = "no_match",
}

impl Verdict {
    /// Whether the packet went to an `AF_XDP` socket.
    pub const fn is_redirect(self) -> bool {
        matches!(self, Self::Flow | Self::Listener)
    }

    /// Whether the packet was dropped.
    pub const fn is_drop(self) -> bool {
        matches!(self, Self::NoSocket)
    }

    /// Whether the packet went on to the kernel.
    pub const fn is_pass(self) -> bool {
        !self.is_redirect() && !self.is_drop()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

const COUNT: usize = Verdict::ALL.len();

/// Packets by verdict since the program was loaded, summed over the CPUs.
///
/// The slots are read one after another while packets go on: each is right by itself, and their
/// sum is not a moment's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters([u64; COUNT]);

impl Counters {
    pub(crate) fn try_from_slots<E>(
        mut slot: impl FnMut(u32) -> Result<u64, E>,
    ) -> Result<Self, E> {
        let mut counts = [0; COUNT];
        for (index, count) in (0..).zip(&mut counts) {
            *count = slot(index)?;
        }
        Ok(Self(counts))
    }

    /// Packets with this verdict.
    pub const fn get(&self, verdict: Verdict) -> u64 {
        self.0[verdict as usize]
    }

    /// Every verdict with its packets, zeros among them, in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = (Verdict, u64)> + '_ {
        Verdict::ALL.iter().map(|&verdict| (verdict, self.get(verdict)))
    }

    /// Packets of every verdict together.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// What was counted after `earlier` was read.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut counts = self.0;
        for (count, before) in counts.iter_mut().zip(earlier.0) {
            *count = count.saturating_sub(before);
        }
        Self(counts)
    }
}
