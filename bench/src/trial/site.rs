//! Where it is measured: in a lab, or between two hosts.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::process::Command;

use crate::error::{Error, Result};
use crate::lab::{Family, Lab, Side};
use crate::options;

/// The port that receivers in a lab listen on.
const PORT: u16 = 5000;

/// This host as a receiver, and a sender on another one, that `mpxdp-bench sender --serve` is. Nothing
/// is set up on either of them: programs are attached to the NICs while a receiver runs, and nothing
/// else is touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    /// The NICs to receive on.
    pub nics: Vec<String>,
    /// The address that receivers listen on, and that the sender connects to.
    pub listen: SocketAddr,
    /// The sender's control address.
    pub sender: SocketAddr,
}

impl Hosts {
    /// Fails unless all the NICs are there.
    ///
    /// # Errors
    ///
    /// The first that is not: wrong usage.
    pub fn check(&self) -> Result<()> {
        options::list("--nic", &self.nics)?;
        if self.listen.ip().is_unspecified() {
            return Err(Error::Usage(format!(
                "--listen {}: the sender connects to it, so name an address",
                self.listen
            )));
        }
        for nic in &self.nics {
            if nix::net::if_::if_nametoindex(nic.as_str()).is_err() {
                return Err(Error::Usage(format!(
                    "--nic {nic}: no such interface; `ip link` lists them"
                )));
            }
        }
        Ok(())
    }

    /// The MTU of the NICs in bytes, the least if they differ; 0 if it cannot be told.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        let read = |nic: &String| {
            let text = std::fs::read_to_string(format!("/sys/class/net/{nic}/mtu")).ok()?;
            text.trim().parse().ok()
        };
        self.nics.iter().filter_map(read).min().unwrap_or(0)
    }
}

/// Where it is measured.
#[derive(Clone, Copy, Debug)]
pub(super) enum Site<'a> {
    Lab(&'a Lab),
    Hosts(&'a Hosts),
}

impl Site<'_> {
    /// The lab, if it is one.
    pub(super) const fn lab(&self) -> Option<&Lab> {
        match self {
            Self::Lab(lab) => Some(lab),
            Self::Hosts(_) => None,
        }
    }

    /// The receiver's interfaces.
    pub(super) fn interfaces(&self) -> Vec<String> {
        match self {
            Self::Lab(lab) => {
                let links = 0..lab.spec().links;
                links.map(|link| lab.interface(Side::Receiver, link)).collect()
            }
            Self::Hosts(hosts) => hosts.nics.clone(),
        }
    }

    /// A command that will run on the receiver's side.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        match self {
            Self::Lab(lab) => lab.command(Side::Receiver, program),
            Self::Hosts(_) => Command::new(program),
        }
    }

    /// Runs a closure on the receiver's side.
    pub(super) fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        match self {
            Self::Lab(lab) => lab.within(Side::Receiver, work),
            Self::Hosts(_) => Ok(work()),
        }
    }

    /// Where receivers listen.
    pub(super) fn listen(&self) -> SocketAddr {
        match self {
            Self::Lab(lab) => (lab.address(Side::Receiver, 0, Family::V4), PORT).into(),
            Self::Hosts(hosts) => hosts.listen,
        }
    }
}
