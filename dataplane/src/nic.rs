//! NICs: what the application asks for, and what the kernel says about them.

mod ethtool;
mod facts;

use std::net::IpAddr;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::placement::CpuList;

pub use self::facts::NicFacts;

/// How packets are to come from a NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// The best that works: native XDP with zero copy, native XDP with a copy, generic XDP.
    #[default]
    Auto,
    /// Native XDP, frames straight from the NIC's DMA; an error where the driver cannot.
    ZeroCopy,
    /// Native XDP, the kernel copies each frame.
    Copy,
    /// Generic XDP: works on every NIC, at the price of the kernel's socket buffers.
    Skb,
}

impl Mode {
    /// The name on the command line: `auto`, `zerocopy`, `copy`, `skb`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::ZeroCopy => "zerocopy",
            Self::Copy => "copy",
            Self::Skb => "skb",
        }
    }
}

impl FromStr for Mode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Self::Auto, Self::ZeroCopy, Self::Copy, Self::Skb]
            .into_iter()
            .find(|mode| mode.name() == text)
            .ok_or_else(|| {
                Error::Configuration(format!(
                    "\"{text}\" is not a mode; it is one of auto, zerocopy, copy, skb"
                ))
            })
    }
}

/// A NIC that the engine is to use, and how.
///
/// Its text form is `IF[:queues=A-B][:cpus=A-B][:mode=MODE]`:
///
/// ```
/// let nic: mpxdp::NicConfig = "eth0:queues=0-3:cpus=2,3".parse()?;
/// assert_eq!(nic, mpxdp::NicConfig::new("eth0").queues(0..=3).cpus([2, 3]));
/// # Ok::<(), mpxdp::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NicConfig {
    pub(crate) name: String,
    pub(crate) queues: Option<Vec<u32>>,
    pub(crate) cpus: CpuList,
    pub(crate) mode: Mode,
    pub(crate) frames: Option<u32>,
    pub(crate) busy_poll: Option<u16>,
}

impl NicConfig {
    /// The interface of this name, all its receive queues, in [`Mode::Auto`].
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            queues: None,
            cpus: CpuList::default(),
            mode: Mode::Auto,
            frames: None,
            busy_poll: None,
        }
    }

    /// Only these receive queues. A packet for a listener that comes in on another queue is lost,
    /// so this is for NICs whose steering rules keep such packets on them.
    #[must_use]
    pub fn queues(mut self, queues: impl IntoIterator<Item = u32>) -> Self {
        self.queues = Some(queues.into_iter().collect());
        self
    }

    /// The CPUs of the workers that serve this NIC, one worker each; goes before the engine's
    /// [`Placement`](crate::Placement).
    #[must_use]
    pub fn cpus(mut self, cpus: impl IntoIterator<Item = usize>) -> Self {
        self.cpus = cpus.into_iter().collect();
        self
    }

    /// How packets are to come from it.
    #[must_use]
    pub const fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// How many UMEM frames each queue has, a power of two.
    #[must_use]
    pub const fn frames(mut self, frames: u32) -> Self {
        self.frames = Some(frames);
        self
    }

    /// Busy polling (`SO_PREFER_BUSY_POLL`) by the worker, with a budget of this many packets.
    #[must_use]
    pub const fn busy_poll(mut self, budget: u16) -> Self {
        self.busy_poll = Some(budget);
        self
    }

    /// The interface's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl FromStr for NicConfig {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |what: &str| {
            Error::Configuration(format!(
                "\"{text}\": {what}; write it like eth0:queues=0-3:cpus=1"
            ))
        };
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        if name.is_empty() {
            return Err(wrong("the interface is missing"));
        }
        let mut nic = Self::new(name);
        let mut keys: Vec<&str> = Vec::new();
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            if keys.contains(&key) {
                return Err(wrong(&format!("{key} is given twice")));
            }
            keys.push(key);
            match key {
                "queues" => {
                    let queues = crate::placement::parse_numbers(value)
                        .map_err(|reason| wrong(&format!("queues: {reason}")))?;
                    // parse_numbers takes nothing above 8191.
                    nic = nic.queues(queues.into_iter().map(|queue| queue as u32));
                }
                "cpus" => {
                    let cpus = crate::placement::parse_numbers(value)
                        .map_err(|reason| wrong(&format!("cpus: {reason}")))?;
                    nic = nic.cpus(cpus);
                }
                "mode" => nic.mode = value.parse()?,
                _ => return Err(wrong(&format!("\"{part}\" is not known"))),
            }
        }
        Ok(nic)
    }
}

/// A NIC made of ready-made ports, e.g. [memory ports](crate::port): for tests, and for running
/// the receive path where there is no privilege.
pub struct PortNic<P> {
    pub(crate) name: String,
    pub(crate) ports: Vec<P>,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) cpus: CpuList,
    pub(crate) mtu: u32,
}

impl<P> PortNic<P> {
    /// A NIC of this name whose receive queues are `ports`, the first being queue 0.
    pub fn new(name: impl Into<String>, ports: impl IntoIterator<Item = P>) -> Self {
        Self {
            name: name.into(),
            ports: ports.into_iter().collect(),
            addresses: Vec::new(),
            cpus: CpuList::default(),
            mtu: 1500,
        }
    }

    /// The MTU that the NIC is said to have, in octets; 1500 without this.
    #[must_use]
    pub const fn mtu(mut self, mtu: u32) -> Self {
        self.mtu = mtu;
        self
    }

    /// The addresses that the NIC is said to have.
    #[must_use]
    pub fn addresses(mut self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        self.addresses = addresses.into_iter().collect();
        self
    }

    /// The CPUs of its workers, one worker each. Without this, one worker that floats.
    #[must_use]
    pub fn cpus(mut self, cpus: impl IntoIterator<Item = usize>) -> Self {
        self.cpus = cpus.into_iter().collect();
        self
    }
}

#[cfg(test)]
mod tests;
