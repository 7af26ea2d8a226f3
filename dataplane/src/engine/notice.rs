//! What is told of the NICs while the engine runs.

use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// So many are kept for whoever asks.
const KEPT: usize = 64;

/// Something has become of a NIC.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Notice {
    /// The NIC, by the name that it had when the engine started.
    pub nic: String,
    /// What has become of it.
    pub change: NicChange,
}

/// What can become of a NIC.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NicChange {
    /// It was deleted, or moved to another network namespace. Its subflows were given up.
    Gone,
    /// It was set down. Its addresses are not announced any more.
    Down,
    /// It was set up.
    Up,
    /// Its link has no carrier: a cable is out, or the other end is down.
    NoCarrier,
    /// Its link has a carrier again.
    Carrier,
    /// It has another name; nothing else has changed by that.
    Renamed {
        /// The name.
        to: String,
    },
    /// It has another MTU, which connections are told of that are opened from now on. Where it is
    /// smaller, packets on others may be lost, as their peers were told of the former one.
    Mtu {
        /// The MTU, octets.
        mtu: u32,
        /// What it was.
        before: u32,
    },
    /// It has an MTU that is larger than what its queues were opened for: longer packets are lost.
    MtuTooLarge {
        /// The MTU, octets.
        mtu: u32,
        /// The largest that the queues take.
        limit: u32,
    },
    /// It has an address that it had not.
    AddressAdded(IpAddr),
    /// It has an address no more. Peers were told so, if they had been told of it.
    AddressRemoved(IpAddr),
}

impl NicChange {
    /// Whether something does not work any more.
    #[must_use]
    pub const fn is_trouble(&self) -> bool {
        match self {
            Self::Gone | Self::Down | Self::NoCarrier | Self::MtuTooLarge { .. } => true,
            Self::Mtu { mtu, before } => *mtu < *before,
            Self::Up
            | Self::Carrier
            | Self::Renamed { .. }
            | Self::AddressAdded(_)
            | Self::AddressRemoved(_) => false,
        }
    }
}

impl fmt::Display for Notice {
    /// One line: where, what, and what to do where something is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nic, change } = self;
        write!(f, "{nic}: ")?;
        match change {
            NicChange::Gone => f.write_str(
                "the interface is gone, deleted or moved; nothing comes in on it any more",
            ),
            NicChange::Down => {
                write!(f, "the interface was set down; `ip link set {nic} up` brings it back")
            }
            NicChange::Up => f.write_str("the interface is up again"),
            NicChange::NoCarrier => {
                f.write_str("the link has no carrier; see to the cable, or to its other end")
            }
            NicChange::Carrier => f.write_str("the link has a carrier again"),
            NicChange::Renamed { to } => write!(f, "the interface is now named {to}"),
            NicChange::Mtu { mtu, before } if mtu < before => write!(
                f,
                "the MTU is {mtu} now, and peers were told of {before}: packets of theirs may be \
                 lost; `ip link set {nic} mtu {before}` sets it back"
            ),
            NicChange::Mtu { mtu, .. } => write!(f, "the MTU is {mtu} now"),
            NicChange::MtuTooLarge { mtu, limit } => write!(
                f,
                "the MTU is {mtu} now, and its queues were opened for {limit}: longer packets are \
                 lost; lower it with `ip link set {nic} mtu {limit}`, or start again"
            ),
            NicChange::AddressAdded(address) => write!(f, "it has the address {address} now"),
            NicChange::AddressRemoved(address) => write!(f, "the address {address} was removed"),
        }
    }
}

/// The notices that nobody has asked for yet; of too many, the newest.
#[derive(Debug, Default)]
pub(super) struct Notices(Mutex<VecDeque<Notice>>);

impl Notices {
    pub(super) fn put(&self, notice: Notice) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(notice);
    }

    pub(super) fn take(&self) -> Vec<Notice> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_and_taken_once() {
        let notices = Notices::default();
        for mtu in 0..100 {
            notices
                .put(Notice { nic: "eth0".to_owned(), change: NicChange::Mtu { mtu, before: 0 } });
        }
        let taken = notices.take();
        assert_eq!((taken.len(), &taken[0].change), (KEPT, &NicChange::Mtu { mtu: 36, before: 0 }));
        assert_eq!(notices.take(), []);
    }

    #[test]
    fn a_notice_is_one_line_that_names_the_nic() {
        let change = NicChange::MtuTooLarge { mtu: 9000, limit: 3818 };
        let text = Notice { nic: "eth0".to_owned(), change }.to_string();
        assert!(text.starts_with("eth0: ") && text.contains("mtu 3818"), "{text}");
        assert_eq!(text.lines().count(), 1);
    }
}
