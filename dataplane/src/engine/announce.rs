//! The addresses that peers are told of, so that they can open further subflows to them.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use mpxdp_proto::segment::AddressId;

/// Which addresses peers are told of by ADD_ADDR (RFC 8684, section 3.4.1), besides the one that
/// they connect to. Subflows join at the latter and at those announced, and nowhere else.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Announce {
    /// All addresses of the engine's NICs and of the VLANs on them, of both families, at the
    /// listener's port, as they come and go; without those that only one link or machine knows.
    #[default]
    Auto,
    /// None.
    None,
    /// These, at the listener's port or at another. They have to be addresses of the NICs when a
    /// listener begins; while one is gone it is not announced.
    Addresses(Vec<(IpAddr, Option<u16>)>),
}

/// Whether peers elsewhere can use an address.
pub(super) fn is_of_use(address: &IpAddr) -> bool {
    let local = match address {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some(),
    };
    !(local || address.is_loopback() || address.is_multicast() || address.is_unspecified())
}

/// Whether a listener at `listener` gets the packets to `address` anyway.
pub(super) fn is_covered(listener: SocketAddr, address: SocketAddr) -> bool {
    listener.ip().is_unspecified()
        && listener.is_ipv4() == address.is_ipv4()
        && listener.port() == address.port()
}

/// The identifiers of our addresses, the same for all connections. 0 stands for the address of a
/// connection's first subflow.
#[derive(Debug, Default)]
pub(super) struct AddressIds(Mutex<Vec<(IpAddr, Option<u16>)>>);

impl AddressIds {
    /// The identifier of an address, at the listener's port or at another. `None`: there are no
    /// more than 255.
    pub(super) fn of(&self, address: IpAddr, port: Option<u16>) -> Option<AddressId> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.iter().position(|known| *known == (address, port));
        let index = found.unwrap_or(known.len());
        let id = u8::try_from(index + 1).ok()?;
        if found.is_none() {
            known.push((address, port));
        }
        Some(AddressId(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_its_identifier_and_0_is_never_given() {
        let ids = AddressIds::default();
        let address = |n: u32| IpAddr::V4((0x0a00_0000 + n).into());
        for round in 0..2 {
            for n in 0..255 {
                let id = ids.of(address(n), None);
                assert_eq!(id, Some(AddressId(n as u8 + 1)), "round {round}");
            }
        }
        assert_eq!(ids.of(address(1), Some(7)), None, "all are given");
    }

    #[test]
    fn addresses_of_one_link_or_machine_are_of_no_use_elsewhere() {
        for (address, of_use) in [
            ("10.0.0.2", true),
            ("2001:db8::2", true),
            ("fd00::2", true),
            ("127.0.0.1", false),
            ("169.254.1.1", false),
            ("224.0.0.1", false),
            ("0.0.0.0", false),
            ("::1", false),
            ("fe80::1", false),
            ("ff02::1", false),
            ("::ffff:10.0.0.2", false),
        ] {
            assert_eq!(is_of_use(&address.parse().unwrap()), of_use, "{address}");
        }
    }

    #[test]
    fn a_wildcard_covers_its_family_at_its_port() {
        let covered = |listener: &str, address: &str| {
            is_covered(listener.parse().unwrap(), address.parse().unwrap())
        };
        assert!(covered("0.0.0.0:1", "10.0.0.1:1"));
        assert!(covered("[::]:1", "[fd00::1]:1"));
        assert!(!covered("0.0.0.0:1", "10.0.0.1:2"));
        assert!(!covered("0.0.0.0:1", "[fd00::1]:1"));
        assert!(!covered("10.0.0.2:1", "10.0.0.1:1"));
    }
}
