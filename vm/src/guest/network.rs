//! The guest's network: two links, each from a NIC of the receiver's to one of the sender's, which is
//! in a namespace of its own.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use super::command::{LOOK, PATH, Running, tool};
use crate::error::{Context, Error, Result};
use crate::plan::{Family, Guest, Spread, Transfer};

/// How many links there are.
pub(crate) const LINKS: u32 = 2;

/// The sender's namespace.
pub(super) const PEER: &str = "peer";

/// The port that the receiver listens on.
const PORT: u16 = 5000;

/// How long a driver may take to find its NICs.
const PROBE: Duration = Duration::from_secs(10);

/// How long a link may take to come up; a NIC that is reset for XDP takes seconds.
const CARRIER: Duration = Duration::from_secs(20);

/// An end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Where `mpxdp` is.
    Receiver,
    /// Where the kernel's MPTCP is.
    Sender,
}

impl End {
    /// Both.
    pub(crate) const BOTH: [Self; 2] = [Self::Receiver, Self::Sender];

    /// The name of its NIC on a link.
    pub(crate) fn nic(self, link: u32) -> String {
        match self {
            Self::Receiver => format!("rcv{link}"),
            Self::Sender => format!("snd{link}"),
        }
    }
}

/// The MAC address by which host and guest know which NIC is which.
pub(crate) fn mac(end: End, link: u32) -> String {
    let end = match end {
        End::Receiver => "0a",
        End::Sender => "0b",
    };
    format!("52:54:00:00:{end}:{link:02x}")
}

/// The network, with nothing configured but names.
#[derive(Debug)]
pub(super) struct Network {
    /// The guest that it is in.
    pub(super) guest: &'static Guest,
}

/// The network as a transfer wants it, for as long as that takes.
#[derive(Debug)]
pub(super) struct Configured {
    family: Family,
    vlan: Option<u16>,
}

impl Network {
    /// Names the NICs and moves the sender's into its namespace.
    pub(super) fn set_up(guest: &'static Guest) -> Result<Self> {
        tool("ip link set lo up")?;
        tool(&format!("ip netns add {PEER}"))?;
        for link in 0..LINKS {
            for end in End::BOTH {
                let (name, mac) = (end.nic(link), mac(end, link));
                let old = nic_with(&mac)?;
                tool(&format!("ip link set dev {old} name {name}"))?;
            }
            tool(&format!("ip link set dev {} netns {PEER}", End::Sender.nic(link)))?;
        }
        if !guest.nic.is_virtio() {
            // qemu before version 8 makes IP fragments of what these NICs are to segment.
            for link in 0..LINKS {
                at_peer(&format!("ethtool -K {} tso off", End::Sender.nic(link)))?;
            }
        }
        let network = Self { guest };
        network.batch(
            End::Sender,
            "link set lo up\nmptcp limits set subflows 8 add_addr_accepted 8",
        )?;
        Ok(network)
    }

    /// Runs commands of `ip` at an end.
    fn batch(&self, end: End, lines: &str) -> Result<()> {
        fs::write("/tmp/batch", lines).context(|| "cannot write to /tmp".to_owned())?;
        let inside = match end {
            End::Receiver => String::new(),
            End::Sender => format!("-n {PEER} "),
        };
        tool(&format!("ip {inside}-batch /tmp/batch"))
            .map(|_| ())
            .map_err(|error| Error::failed(format!("{error}\n{lines}")))
    }

    /// Has everything up as the transfer wants it while `run` runs.
    pub(super) fn configured(
        &self,
        transfer: &Transfer,
        run: impl FnOnce(&Configured) -> Result<String>,
    ) -> Result<String> {
        let configured = Configured { family: transfer.family, vlan: transfer.vlan };
        let result = self.configure(transfer, &configured).and_then(|()| run(&configured));
        let reset = self.reset(transfer, &configured);
        let note = result?;
        reset?;
        Ok(note)
    }

    /// Sets how many queues the receiver's NICs use.
    pub(super) fn set_queues(&self, queues: u32) -> Result<()> {
        for link in 0..LINKS {
            let nic = End::Receiver.nic(link);
            // ethtool fails if there is nothing to change.
            let now = fs::read_dir(format!("/sys/class/net/{nic}/queues"))
                .context(|| format!("queues of {nic}"))?
                .flatten()
                .filter(|queue| queue.file_name().as_encoded_bytes().starts_with(b"rx-"))
                .count();
            if now != queues as usize {
                tool(&format!("ethtool -L {nic} combined {queues}"))?;
            }
            wait_for_carrier(&nic)?;
        }
        Ok(())
    }

    /// Brings everything up as the transfer wants it.
    fn configure(&self, transfer: &Transfer, configured: &Configured) -> Result<()> {
        let Transfer { mtu, vlan, subflows, netem, .. } = *transfer;
        for end in End::BOTH {
            let mut lines = String::new();
            for link in 0..LINKS {
                let nic = end.nic(link);
                lines += &format!("link set dev {nic} mtu {mtu} up\n");
                let device = configured.device(end, link);
                if let Some(id) = vlan {
                    lines += &format!("link add link {nic} name {device} type vlan id {id}\n");
                    lines += &format!("link set dev {device} up\n");
                }
                for address in configured.addresses(end, link, subflows) {
                    lines += &match address {
                        IpAddr::V4(address) => format!("addr add {address}/24 dev {device}\n"),
                        IpAddr::V6(address) => {
                            format!("addr add {address}/64 dev {device} nodad\n")
                        }
                    };
                }
            }
            self.batch(end, &lines)?;
        }
        for link in 0..LINKS {
            let nic = End::Receiver.nic(link);
            if vlan.is_some() && !self.guest.nic.is_virtio() {
                let strip = if transfer.strip { "on" } else { "off" };
                tool(&format!("ethtool -K {nic} rxvlan {strip}"))?;
            }
            if transfer.spread == Spread::Last {
                let others = "0 ".repeat(self.guest.queues as usize - 1);
                tool(&format!("ethtool -X {nic} weight {others}1"))?;
            }
            wait_for_carrier(&nic)?;
            if let Some(netem) = netem {
                let nic = End::Sender.nic(link);
                at_peer(&format!("tc qdisc add dev {nic} root netem {netem}"))?;
            }
        }
        Ok(())
    }

    /// Takes everything down that [`configure`](Self::configure) brought up.
    fn reset(&self, transfer: &Transfer, configured: &Configured) -> Result<()> {
        for end in End::BOTH {
            let mut lines = String::new();
            for link in 0..LINKS {
                let nic = end.nic(link);
                if configured.vlan.is_some() {
                    lines += &format!("link del dev {}\n", configured.device(end, link));
                }
                lines += &format!("addr flush dev {nic}\nlink set dev {nic} down\n");
            }
            self.batch(end, &lines)?;
        }
        for link in 0..LINKS {
            // There is one only if a transfer wanted it.
            let _ = at_peer(&format!("tc qdisc del dev {} root", End::Sender.nic(link)));
            if transfer.spread == Spread::Last {
                tool(&format!("ethtool -X {} default", End::Receiver.nic(link)))?;
            }
        }
        Ok(())
    }
}

impl Configured {
    /// The interface that has the addresses.
    fn device(&self, end: End, link: u32) -> String {
        let nic = end.nic(link);
        match self.vlan {
            Some(id) => format!("{nic}.{id}"),
            None => nic,
        }
    }

    /// The sender has one address on a link; the receiver has one for each subflow, by turns.
    fn addresses(&self, end: End, link: u32, subflows: u32) -> Vec<IpAddr> {
        let here = match end {
            End::Sender => 1,
            // Rounded up, since the first link has the first.
            End::Receiver => (subflows + LINKS - 1 - link) / LINKS,
        };
        (0..here).map(|number| self.address(end, link, number)).collect()
    }

    fn address(&self, end: End, link: u32, number: u32) -> IpAddr {
        let host = match end {
            End::Sender => 1,
            End::Receiver => 2 + number,
        };
        match self.family {
            Family::V4 => Ipv4Addr::new(10, 10, link as u8, host as u8).into(),
            Family::V6 => Ipv6Addr::new(0xfd10, 0, 0, link as u16, 0, 0, 0, host as u16).into(),
        }
    }

    /// Where the receiver listens.
    pub(super) fn target(&self) -> SocketAddr {
        (self.address(End::Receiver, 0, 0), PORT).into()
    }
}

/// Runs a tool in the sender's namespace.
pub(super) fn at_peer(line: &str) -> Result<String> {
    tool(&format!("ip netns exec {PEER} {PATH}/{line}"))
}

/// Starts a program in the sender's namespace.
pub(super) fn start_at_peer(words: &[&str]) -> Result<Running> {
    Running::start(&[&["ip", "netns", "exec", PEER], words].concat())
}

/// Waits until a NIC has a link.
pub(super) fn wait_for_carrier(nic: &str) -> Result<()> {
    let until = Instant::now() + CARRIER;
    while fs::read_to_string(format!("/sys/class/net/{nic}/carrier")).is_ok_and(|on| on != "1\n") {
        if Instant::now() >= until {
            return Err(Error::failed(format!("{nic} has no carrier")));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// The NIC with an address, which its driver may still be looking for.
fn nic_with(mac: &str) -> Result<String> {
    let until = Instant::now() + PROBE;
    loop {
        let nics = fs::read_dir("/sys/class/net").context(|| "no NICs".to_owned())?;
        let mut names = nics.flatten().map(|nic| nic.file_name().to_string_lossy().into_owned());
        let found = names.find(|name| {
            fs::read_to_string(format!("/sys/class/net/{name}/address"))
                .is_ok_and(|address| address.trim() == mac)
        });
        match found {
            Some(name) => return Ok(name),
            None if Instant::now() >= until => {
                return Err(Error::failed(format!("no NIC has the address {mac}")));
            }
            None => std::thread::sleep(LOOK),
        }
    }
}
