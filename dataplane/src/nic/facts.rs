//! What the kernel says about an interface: sysfs and the address list.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::ethtool;
use crate::error::{Error, Result};

/// VLANs may be stacked twice, as the steering program takes two tags at most.
const VLAN_DEPTH: usize = 2;

/// What the kernel says about an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NicFacts {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Whether it is administratively up.
    pub up: bool,
    /// Whether its link has a carrier; false while it is down.
    pub carrier: bool,
    /// Its MTU in octets.
    pub mtu: u32,
    /// Its driver, if it is a device that has one; virtual interfaces mostly have none.
    pub driver: Option<String>,
    /// How many receive queues are in use.
    pub receive_queues: u32,
    /// The VLAN interfaces on it, those on them included.
    pub vlans: Vec<String>,
    /// Whether the device takes VLAN tags out of received frames before an XDP program sees them.
    pub strips_vlan_tags: bool,
    /// Its addresses, and those of the VLAN interfaces on it.
    pub addresses: Vec<IpAddr>,
}

impl NicFacts {
    /// Reads what the kernel says about the interface `name`, in this network namespace.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchNic`], or what the kernel said.
    pub fn read(name: &str) -> Result<Self> {
        // A name that could climb out of the directory is no interface's.
        if name.is_empty() || name == "." || name == ".." || name.contains('/') {
            return Err(Error::NoSuchNic { nic: name.to_owned() });
        }
        let index = nix::net::if_::if_nametoindex(name).map_err(|errno| match errno {
            Errno::ENODEV => Error::NoSuchNic { nic: name.to_owned() },
            errno => {
                // It takes a socket, and glibc hides that none was to be had.
                let why = fs::File::open("/dev/null").err().unwrap_or_else(|| errno.into());
                Error::io(format!("{name}: looking for the interface"), why)
            }
        })?;
        let directory = Path::new("/sys/class/net").join(name);
        let seen: Option<u32> = read_number(&directory.join("ifindex")).ok();
        if seen != Some(index) {
            return Err(Error::Configuration(format!(
                "{name}: /sys does not show this network namespace; enter it with `ip netns exec`, \
                 which mounts the right one"
            )));
        }
        let failed = |e| Error::io(format!("{name}: reading the interface's properties"), e);
        let flags = read_text(&directory.join("flags")).map_err(failed)?;
        let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16).unwrap_or(0);
        let vlans = vlans_on(name);
        let driver = driver(&directory);
        // An interface without a device has no say in it: there the tag is where its sender put it.
        let strips_vlan_tags = driver.is_some() && ethtool::strips_vlan_tags(name).unwrap_or(false);
        Ok(Self {
            name: name.to_owned(),
            index,
            up: flags & libc::IFF_UP as u32 != 0,
            // The kernel refuses to say it of an interface that is down.
            carrier: read_number(&directory.join("carrier")).is_ok_and(|carrier| carrier == 1),
            mtu: read_number(&directory.join("mtu")).map_err(failed)?,
            driver,
            strips_vlan_tags,
            receive_queues: receive_queues(&directory).map_err(failed)?,
            addresses: addresses_of(name, &vlans)?,
            vlans,
        })
    }
}

impl NicFacts {
    /// Whether `scope` of an IPv6 address means this interface, or a VLAN on it.
    #[must_use]
    pub fn is_scope(&self, scope: u32) -> bool {
        let index = |name: &String| nix::net::if_::if_nametoindex(name.as_str()).ok();
        self.index == scope || self.vlans.iter().any(|vlan| index(vlan) == Some(scope))
    }
}

fn read_text(path: &Path) -> io::Result<String> {
    Ok(fs::read_to_string(path)?.trim().to_owned())
}

fn read_number(path: &Path) -> io::Result<u32> {
    read_text(path)?.parse().map_err(io::Error::other)
}

fn driver(directory: &Path) -> Option<String> {
    let link: PathBuf = fs::read_link(directory.join("device/driver")).ok()?;
    Some(link.file_name()?.to_str()?.to_owned())
}

/// The kernel shows the receive queues that are in use, not those that could be.
fn receive_queues(directory: &Path) -> io::Result<u32> {
    let mut queues = 0;
    for entry in fs::read_dir(directory.join("queues"))? {
        queues += u32::from(entry?.file_name().as_encoded_bytes().starts_with(b"rx-"));
    }
    Ok(queues)
}

/// The VLAN interfaces on `nic`, and those on them.
fn vlans_on(nic: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut level = vec![nic.to_owned()];
    for _ in 0..VLAN_DEPTH {
        let uppers = level.iter().flat_map(|lower| uppers(lower));
        level = uppers.filter(|name| is_vlan(name) && !found.contains(name)).collect();
        found.extend_from_slice(&level);
    }
    found
}

/// The interfaces that are stacked directly on `lower`.
fn uppers(lower: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(Path::new("/sys/class/net").join(lower)) else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    names.filter_map(|name| Some(name.to_str()?.strip_prefix("upper_")?.to_owned())).collect()
}

fn is_vlan(name: &str) -> bool {
    fs::read_to_string(Path::new("/sys/class/net").join(name).join("uevent"))
        .is_ok_and(|text| text.lines().any(|line| line == "DEVTYPE=vlan"))
}

fn addresses_of(nic: &str, vlans: &[String]) -> Result<Vec<IpAddr>> {
    let all = nix::ifaddrs::getifaddrs()
        .map_err(|e| Error::io("reading the addresses of the interfaces", e.into()))?;
    let ours =
        all.filter(|entry| entry.interface_name == nic || vlans.contains(&entry.interface_name));
    Ok(ours
        .filter_map(|entry| {
            let address = entry.address?;
            if let Some(v4) = address.as_sockaddr_in() {
                return Some(IpAddr::V4(v4.ip()));
            }
            address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip()))
        })
        .collect())
}
