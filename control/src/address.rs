//! Addresses on the command line.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::str::FromStr;

/// Where to listen: `ADDR:PORT`, `[ADDR6]:PORT`, or a wildcard address for every local address.
///
/// # Errors
///
/// One line that says how to write it.
pub(crate) fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let refused = || {
        Err(format!(
            "\"{text}\" is not an address and port; write it like 10.0.0.2:5000, \
             [2001:db8::2]:5000, [fe80::2%eth0]:5000 or 0.0.0.0:5000"
        ))
    };
    let Ok(at) = text.parse::<SocketAddr>().or_else(|_| parse_zoned(text).ok_or(())) else {
        return refused();
    };
    if at.port() == 0 {
        return Err(format!("\"{text}\": port 0 cannot be listened on; name one from 1 to 65535"));
    }
    if at.ip().is_multicast() || at.ip() == IpAddr::from([255, 255, 255, 255]) {
        return Err(format!("\"{text}\" is not a unicast address; name one of this machine's"));
    }
    if let SocketAddr::V6(v6) = at
        && v6.ip().is_unicast_link_local()
        && v6.scope_id() == 0
    {
        return Err(format!(
            "\"{text}\" is an address of one link; say which, like [{}%eth0]:{}, with a NIC that \
             there is",
            v6.ip(),
            v6.port()
        ));
    }
    if matches!(at.ip(), IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some()) {
        return Err(format!("\"{text}\" is an IPv4 address; write it like 10.0.0.2:5000"));
    }
    Ok(at)
}

/// `[ADDR6%IF]:PORT`; 0 stands for an interface that there is not.
fn parse_zoned(text: &str) -> Option<SocketAddr> {
    let (inside, port) = text.strip_prefix('[')?.split_once("]:")?;
    let (ip, zone) = inside.split_once('%')?;
    let ip: Ipv6Addr = ip.parse().ok()?;
    // Only such an address has a use for it.
    if !ip.is_unicast_link_local() {
        return None;
    }
    let scope = nix::net::if_::if_nametoindex(zone).unwrap_or(0);
    Some(SocketAddrV6::new(ip, port.parse().ok()?, 0, scope).into())
}

/// One value of `--announce`: which further addresses the peer is told of (RFC 8684, section
/// 3.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Announce {
    /// Whatever makes sense.
    Auto,
    /// None.
    None,
    /// This one, on the listener's port unless it names another.
    Address(IpAddr, Option<u16>),
}

impl FromStr for Announce {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bracketed = || {
            let inner = text.strip_prefix('[')?.strip_suffix(']')?;
            inner.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
        };
        match text {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            _ => text
                .parse()
                .ok()
                .or_else(bracketed)
                .map(|ip| Self::Address(ip, None))
                .or_else(|| {
                    let at: SocketAddr = text.parse().ok()?;
                    (at.port() != 0).then(|| Self::Address(at.ip(), Some(at.port())))
                })
                .ok_or_else(|| {
                    format!(
                        "\"{text}\" cannot be announced; write auto, none, or addresses like \
                         10.1.0.2, 10.1.0.2:5000 or [2001:db8::2]:5000"
                    )
                }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_addresses_of_both_families_and_wildcards_are_read() {
        for (text, ip, port) in [
            ("10.0.0.2:5000", "10.0.0.2", 5000),
            ("[2001:db8::2]:65535", "2001:db8::2", 65535),
            ("0.0.0.0:1", "0.0.0.0", 1),
            ("[::]:443", "::", 443),
        ] {
            let at = parse_listen(text).expect(text);
            assert_eq!((at.ip(), at.port()), (ip.parse::<IpAddr>().unwrap(), port), "{text}");
        }
    }

    #[test]
    fn an_address_of_one_link_takes_the_link_by_name_or_number() {
        for text in ["[fe80::1%lo]:80", "[fe80::1%1]:80"] {
            let SocketAddr::V6(at) = parse_listen(text).unwrap() else { panic!("{text}") };
            assert_eq!((at.scope_id(), at.port()), (1, 80), "{text}");
        }
        for text in ["[fe80::1]:80", "[fe80::1%no-such-nic0]:80"] {
            let error = parse_listen(text).unwrap_err();
            assert!(error.contains("[fe80::1%eth0]:80"), "{error}");
        }
    }

    #[test]
    fn listen_addresses_that_cannot_work_are_refused() {
        for text in [
            "[2001:db8::2%lo]:80",
            "",
            "10.0.0.2",
            ":5000",
            "localhost:80",
            "2001:db8::2:5000x",
            "10.0.0.2:0",
            "10.0.0.2:65536",
            "224.0.0.1:80",
            "[ff02::1]:80",
            "255.255.255.255:80",
            "[::ffff:10.0.0.2]:80",
        ] {
            assert!(parse_listen(text).is_err(), "{text}");
        }
    }

    #[test]
    fn announcements_are_read() {
        let v4 = IpAddr::from([10, 1, 0, 2]);
        let v6: IpAddr = "2001:db8::2".parse().unwrap();
        for (text, expected) in [
            ("auto", Announce::Auto),
            ("none", Announce::None),
            ("10.1.0.2", Announce::Address(v4, None)),
            ("10.1.0.2:5001", Announce::Address(v4, Some(5001))),
            ("2001:db8::2", Announce::Address(v6, None)),
            ("[2001:db8::2]", Announce::Address(v6, None)),
            ("[2001:db8::2]:5001", Announce::Address(v6, Some(5001))),
        ] {
            assert_eq!(text.parse::<Announce>().expect(text), expected, "{text}");
        }
        for text in ["", "all", "10.1.0", "10.1.0.2:0", "[10.1.0.2]", "10.1.0.2:x"] {
            assert!(text.parse::<Announce>().is_err(), "{text}");
        }
    }
}
