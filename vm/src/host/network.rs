//! What joins a guest's NICs outside of it: a hub inside qemu or, for several queues, bridged taps in
//! a network namespace that ends with qemu.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::Signal;

use super::tool;
use crate::error::{Context, Error, Result};
use crate::guest::network::{End, LINKS, mac};
use crate::plan::{Guest, Nic};

/// The name of the subcommand that [`enter`]s a network.
pub(super) const SUBCOMMAND: &str = "in-network";

/// qemu's arguments for a guest's NICs.
pub(super) fn arguments(guest: &Guest) -> Vec<String> {
    let mut arguments = Vec::new();
    // Every second slot: igb's virtual functions take up two, sixteen further on.
    let mut slots = (2..).step_by(2);
    for link in 0..LINKS {
        for (end, slot) in End::BOTH.into_iter().zip(slots.by_ref()) {
            let id = end.nic(link);
            let queues = guest.queues;
            let back_end = if has_taps(guest) {
                format!("tap,id={id},ifname={id},script=no,downscript=no,queues={queues}")
            } else {
                format!("hubport,id={id},hubid={link}")
            };
            let device = match guest.nic {
                Nic::Virtio => "virtio-net-pci",
                Nic::VirtioIommu => "virtio-net-pci,iommu_platform=on,disable-legacy=on",
                Nic::Igb => "igb",
                Nic::E1000e => "e1000e",
                Nic::Vmxnet3 => "vmxnet3",
            };
            // An interrupt for each queue's directions, one for changes of the link, one for the
            // control queue.
            let several = match guest.nic {
                nic if nic.is_virtio() && queues > 1 => {
                    format!(",mq=on,vectors={}", 2 * queues + 2)
                }
                _ => String::new(),
            };
            let mac = mac(end, link);
            arguments.extend(["-netdev".to_owned(), back_end]);
            arguments.extend([
                "-device".to_owned(),
                format!("{device},netdev={id},mac={mac},addr={slot:x},romfile={several}"),
            ]);
        }
    }
    arguments
}

/// Whether the guest's NICs need taps.
pub(super) const fn has_taps(guest: &Guest) -> bool {
    guest.queues > 1 && guest.nic.is_virtio()
}

/// Becomes qemu, in a network namespace of its own if the guest needs taps. All that is made here
/// ends with this process.
///
/// Without root, a user namespace gives the privilege, where users may have one.
pub(super) fn enter(taps: bool, command: &[String]) -> Result<std::convert::Infallible> {
    let [program, arguments @ ..] = command else {
        return Err(Error::failed("no command"));
    };
    // Nobody would end qemu if its parent were gone.
    prctl::set_pdeathsig(Signal::SIGKILL).context(|| "cannot follow the parent".to_owned())?;
    if taps {
        make_taps()?;
    }
    Err(Command::new(program).args(arguments).exec()).context(|| format!("cannot run {program}"))
}

fn make_taps() -> Result<()> {
    let failed = || "no network namespace for taps (root, or a user namespace)".to_owned();
    let (user, group) = (nix::unistd::geteuid(), nix::unistd::getegid());
    if user.is_root() {
        unshare(CloneFlags::CLONE_NEWNET).context(failed)?;
    } else {
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET).context(failed)?;
        for (file, text) in [
            ("setgroups", "deny".to_owned()),
            ("uid_map", format!("0 {user} 1")),
            ("gid_map", format!("0 {group} 1")),
        ] {
            std::fs::write(format!("/proc/self/{file}"), text).context(failed)?;
        }
    }
    for link in 0..LINKS {
        let bridge = format!("br{link}");
        // Frames of any size are to pass; what is too long for a guest's NIC is its own affair.
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        for end in End::BOTH {
            let tap = end.nic(link);
            ip(&["tuntap", "add", "dev", &tap, "mode", "tap", "multi_queue", "vnet_hdr"])?;
            ip(&["link", "set", "dev", &tap, "mtu", "9216", "master", &bridge, "up"])?;
        }
        ip(&["link", "set", "dev", &bridge, "mtu", "9216", "up"])?;
    }
    Ok(())
}

fn ip(arguments: &[&str]) -> Result<()> {
    tool::run(Command::new("ip").args(arguments)).map(|_| ())
}
