//! How the kernel's sender opens further subflows.
//!
//! The client has an endpoint for each further subflow, an address of its own on one of the links, and
//! connects from there to the address that the first subflow went to. So nothing depends on what a
//! receiver announces, and all receivers get the same subflows. With more subflows than links, a link
//! has several addresses.

use std::net::{IpAddr, Ipv4Addr};

use crate::error::{Error, Result};
use crate::lab::{Family, Lab, Side};

/// The most subflows of a connection: the kernel's path manager opens up to eight further ones, and
/// fewer where addresses are added meanwhile.
pub const MAX_SUBFLOWS: u32 = 8;

/// What has been set up in a lab.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// Whether the receiver's first address can be reached over every link.
    ways: bool,
    /// The number of subflows that the endpoints are for.
    subflows: Option<u32>,
}

impl Paths {
    /// Has new connections of the sender open so many subflows, the first one included, in turn over
    /// all links.
    ///
    /// # Errors
    ///
    /// If the number is out of range, or the system refuses.
    pub(super) fn set(&mut self, lab: &Lab, subflows: u32) -> Result<()> {
        if !(1..=MAX_SUBFLOWS).contains(&subflows) {
            return Err(Error::Usage(format!("--subflows {subflows}: from 1 to {MAX_SUBFLOWS}")));
        }
        if self.subflows == Some(subflows) {
            return Ok(());
        }
        self.subflows = None;
        if !self.ways {
            add_ways(lab)?;
            self.ways = true;
        }
        let most = MAX_SUBFLOWS.to_string();
        let further = (subflows - 1).to_string();
        let limits = ["ip", "mptcp", "limits", "set", "add_addr_accepted", "0", "subflow"];
        lab.run(Side::Receiver, &[&limits[..], &[&most]].concat())?;
        lab.run(Side::Sender, &["ip", "mptcp", "endpoint", "flush"])?;
        lab.run(Side::Sender, &[&limits[..], &[&further]].concat())?;
        let links = lab.spec().links;
        for id in 1..subflows {
            let (link, number) = (id % links, id / links);
            let interface = lab.interface(Side::Sender, link);
            let address = source(lab, link, number)?.to_string();
            if number > 0 {
                let cidr = format!("{address}/24");
                lab.run(Side::Sender, &["ip", "address", "replace", &cidr, "dev", &interface])?;
            }
            let id = id.to_string();
            let add = ["ip", "mptcp", "endpoint", "add", &address, "dev", &interface, "id", &id];
            lab.run(Side::Sender, &[&add[..], &["subflow"]].concat())?;
        }
        self.subflows = Some(subflows);
        Ok(())
    }
}

/// The sender's address on a link, the first or a further one.
fn source(lab: &Lab, link: u32, number: u32) -> Result<IpAddr> {
    match lab.address(Side::Sender, link, Family::V4) {
        IpAddr::V4(address) => Ok(Ipv4Addr::from(u32::from(address) + (number << 4)).into()),
        IpAddr::V6(address) => Err(Error::Failed(format!("{address} is not of IPv4"))),
    }
}

/// The network of the first link.
fn network(lab: &Lab) -> Result<String> {
    match lab.address(Side::Receiver, 0, Family::V4) {
        IpAddr::V4(address) => {
            Ok(format!("{}/24", Ipv4Addr::from(u32::from(address) & 0xffff_ff00)))
        }
        IpAddr::V6(address) => Err(Error::Failed(format!("{address} is not of IPv4"))),
    }
}

/// Makes the receiver's first address reachable over every link, by sockets that are bound to it.
fn add_ways(lab: &Lab) -> Result<()> {
    // The whole network, as the first link's own route has it: a longer prefix would win over that.
    let first = network(lab)?;
    // Answers come in on the link that the question went out on, which a strict filter of routes
    // would not have.
    for link in 0..lab.spec().links {
        for side in Side::BOTH {
            let interface = lab.interface(side, link);
            lab.sysctl(side, &format!("net.ipv4.conf.{interface}.rp_filter"), "0")?;
        }
    }
    for side in Side::BOTH {
        lab.sysctl(side, "net.ipv4.conf.all.rp_filter", "0")?;
    }
    for link in 1..lab.spec().links {
        let interface = lab.interface(Side::Sender, link);
        let via = lab.address(Side::Receiver, link, Family::V4).to_string();
        // Behind the way over the first link, so that it is only for sockets bound to this one.
        let metric = (5000 + link).to_string();
        let way = ["ip", "route", "replace", &first, "via", &via, "dev", &interface];
        lab.run(Side::Sender, &[&way[..], &["metric", &metric]].concat())?;
    }
    Ok(())
}
