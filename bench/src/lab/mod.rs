//! Two network namespaces joined by veth pairs: a network of one's own.
//!
//! `mpxdp-snd` holds the sender's end of each link (`snd0`, `snd1`, …), `mpxdp-rcv` the receiver's
//! (`rcv0`, `rcv1`, …). Link `i` has the IPv4 networks `10.77.i.0/24` and the IPv6 networks
//! `fd77:0:0:i::/64`; the sender is `.1`, the receiver `.2`. No interface is made in the host's own
//! namespace, and no setting of it is touched.
//!
//! The sender's ends compute checksums and cut segments in software (`ethtool -K … tx off`): over
//! veth, an XDP program would otherwise see frames whose checksum nobody filled in.
//!
//! A link may have a relay with middleboxes ([`Builder::relay`]), in a third namespace `mpxdp-mid`.
//!
//! A lab that a process made with [`Builder::up`] goes away with the [`Lab`], and a lab whose
//! process was killed goes away with the next one that starts. [`Lab::keep`] leaves it in place, as
//! `mpxdp-bench lab up` does, until [`Lab::down`]. A lab that a process uses is nobody else's to
//! replace or remove, and a kept one is replaced by none of another shape.

mod journal;
mod process;
mod relays;
mod setup;
mod spec;
mod teardown;
mod tool;
mod vlan;

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;

pub use process::{Ended, Running};
pub use spec::{Builder, Conditions, Spec};
pub use tool::privilege;

use mpxdp_cli::say;

use crate::error::{Context, Error, Result};
use crate::interrupt::Interrupt;
use crate::relay::Report;

/// An end of the links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Where the Linux kernel's own MPTCP sends from.
    Sender,
    /// Where the receiver under test runs.
    Receiver,
}

impl Side {
    /// Both, the sender first.
    pub const BOTH: [Self; 2] = [Self::Sender, Self::Receiver];

    /// What names of namespaces and interfaces are made with: `snd` or `rcv`.
    #[must_use]
    pub const fn tag(self) -> &'static str {
        match self {
            Self::Sender => "snd",
            Self::Receiver => "rcv",
        }
    }

    /// The last part of its addresses.
    const fn host(self) -> u8 {
        match self {
            Self::Sender => 1,
            Self::Receiver => 2,
        }
    }
}

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// A lab that is up. Dropping it removes it, unless [`Lab::keep`] was called.
#[derive(Debug)]
pub struct Lab {
    spec: Spec,
    /// Those that this process started.
    relays: Vec<relays::Relay>,
    removed_on_drop: bool,
}

impl Lab {
    /// What a lab can be made with.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The lab of that name, made earlier and kept.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn open(name: &str) -> Result<Self> {
        let entry = journal::read(name)?.ok_or_else(|| {
            Error::Failed(format!("lab {name:?} is not up: run `mpxdp-bench lab up` first"))
        })?;
        Ok(Self { spec: entry.spec, relays: Vec::new(), removed_on_drop: false })
    }

    /// Removes all there is of the lab of that name: the processes in its namespaces, the
    /// namespaces, and the interfaces with them. True if there was anything.
    ///
    /// # Errors
    ///
    /// If privilege is missing, another process uses the lab, or the system refuses.
    pub fn down(name: &str) -> Result<bool> {
        spec::check_name(name)?;
        tool::require_privilege()?;
        let lock = journal::lock(&Interrupt::never())?;
        let entry = journal::read(name)?;
        if let Some(user) = entry.as_ref().and_then(journal::Entry::user)
            && user.pid() != std::process::id()
        {
            return Err(Error::Failed(format!(
                "lab {name:?} is in use by {user}: end that, and the lab goes with it"
            )));
        }
        teardown::remove(&lock, name)
    }

    /// Leaves the lab in place when this handle goes.
    pub fn keep(&mut self) {
        self.removed_on_drop = false;
        // The journal says "kept" already when `up` was told so; an error changes nothing here.
        let _ = journal::write(&journal::Entry::kept(self.spec.clone()));
    }

    /// What it was made with.
    #[must_use]
    pub const fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The name of a side's namespace.
    #[must_use]
    pub fn namespace(&self, side: Side) -> String {
        self.spec.namespace(side)
    }

    /// The name of a side's end of a link.
    #[must_use]
    pub fn interface(&self, side: Side, link: u32) -> String {
        format!("{}{link}", side.tag())
    }

    /// The address of a side on a link.
    #[must_use]
    pub fn address(&self, side: Side, link: u32, family: Family) -> IpAddr {
        address(side, link, family)
    }

    /// A command that will run in a side's namespace, with a `/sys` that shows that namespace.
    #[must_use]
    pub fn command(&self, side: Side, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(side)]).arg(program);
        command
    }

    /// Runs a tool in a side's namespace to its end and returns what it printed.
    ///
    /// # Errors
    ///
    /// If it cannot be run or does not exit with 0; the message has its last line of output.
    pub fn run(&self, side: Side, arguments: &[&str]) -> Result<String> {
        tool::run_in(&self.namespace(side), arguments)
    }

    /// Sets a sysctl of a side's namespace, `net.ipv4.tcp_timestamps` for instance.
    ///
    /// # Errors
    ///
    /// If the kernel does not know it or refuses the value.
    pub fn sysctl(&self, side: Side, name: &str, value: &str) -> Result<()> {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        self.within(side, || fs::write(&path, value))?
            .context(|| format!("cannot set {name}={value} in {}", self.namespace(side)))
    }

    /// Writes a file of `/sys/class/net` as a side's namespace has it, `rcv0/threaded` for instance.
    ///
    /// # Errors
    ///
    /// If there is no such file or the kernel refuses the value.
    pub fn interface_setting(&self, side: Side, file: &str, value: &str) -> Result<()> {
        let script = format!("printf %s '{value}' > '/sys/class/net/{file}'");
        self.run(side, &["sh", "-c", &script]).map(|_| ())
    }

    /// Runs a closure on a thread of its own that is in a side's namespace. `/sys` still shows the
    /// host's there.
    ///
    /// # Errors
    ///
    /// If the namespace cannot be entered.
    pub fn within<T: Send>(&self, side: Side, work: impl FnOnce() -> T + Send) -> Result<T> {
        tool::within(&self.namespace(side), work)
    }

    /// Runs a closure while no other process makes or removes a lab.
    ///
    /// # Errors
    ///
    /// What the closure returns, or if the lock cannot be had.
    pub fn alone<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let _lock = journal::lock(&Interrupt::never())?;
        work()
    }

    /// Cuts a link (or joins it again) at the sender's end, as pulling the cable would.
    ///
    /// # Errors
    ///
    /// If the link does not exist.
    pub fn set_link(&self, link: u32, up: bool) -> Result<()> {
        let interface = self.interface(Side::Sender, link);
        let state = if up { "up" } else { "down" };
        self.run(Side::Sender, &["ip", "link", "set", &interface, state])?;
        if up {
            // The kernel removes IPv6 addresses with the link.
            setup::add_addresses(&self.spec, Side::Sender, link)?;
        }
        Ok(())
    }

    /// Ends the relay of a link, which carries nothing from then on, and says what the relay did. The
    /// lab must have been made by this process.
    ///
    /// # Errors
    ///
    /// If the link has no relay that this process started, or the relay failed.
    pub fn end_relay(&mut self, link: u32) -> Result<Report> {
        let found = self.relays.iter().position(|relay| relay.link == link);
        let at = found.ok_or_else(|| Error::Failed(format!("link {link} has no relay of ours")))?;
        self.relays.remove(at).end()
    }

    /// Removes the lab now, and says so if that fails.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn remove(mut self) -> Result<()> {
        self.removed_on_drop = false;
        self.take_down()
    }

    fn take_down(&mut self) -> Result<()> {
        let result = Self::down(&self.spec.name).map(|_| ());
        // They are dead by now, but only we can say that nobody asks how they ended.
        self.relays.iter_mut().for_each(relays::Relay::kill);
        result
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.removed_on_drop
            && let Err(error) = self.take_down()
        {
            say::line(format_args!(
                "mpxdp-bench: lab {:?} is not wholly removed: {error}",
                self.spec.name
            ));
        }
    }
}

/// The address of a side on a link.
fn address(side: Side, link: u32, family: Family) -> IpAddr {
    match family {
        Family::V4 => {
            let [.., third] = link.to_be_bytes();
            IpAddr::V4(Ipv4Addr::new(10, 77, third, side.host()))
        }
        Family::V6 => {
            let network = (link & 0xffff) as u16;
            IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, network, 0, 0, 0, side.host().into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_differ_by_side_link_and_family() {
        let mut seen = std::collections::HashSet::new();
        for side in Side::BOTH {
            for link in 0..*crate::options::LINKS.end() {
                for family in [Family::V4, Family::V6] {
                    assert!(seen.insert(address(side, link, family)));
                }
            }
        }
        assert_eq!(address(Side::Receiver, 3, Family::V4).to_string(), "10.77.3.2");
        assert_eq!(address(Side::Sender, 3, Family::V6).to_string(), "fd77:0:0:3::1");
    }
}
