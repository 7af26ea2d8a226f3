//! Making a lab.

use std::path::Path;

use super::spec::{self, Spec};
use super::tool::{run, run_in, within};
use super::{Family, Side, address, relays, teardown, vlan};
use crate::error::{Context, Error, Result};
use crate::interrupt::Interrupt;

/// Refuses to touch a namespace that no lab made.
pub(super) fn refuse_foreign(spec: &Spec) -> Result<()> {
    for namespace in spec.namespaces() {
        if exists(&namespace) {
            return Err(Error::Failed(format!(
                "namespace {namespace} exists but is no lab's: choose another --name, or remove it \
                 with `ip netns del {namespace}`"
            )));
        }
    }
    Ok(())
}

/// Whether there is still any namespace of a lab.
pub(super) fn any_is_there(spec: &Spec) -> bool {
    spec.namespaces().iter().any(|namespace| exists(namespace))
}

fn exists(namespace: &str) -> bool {
    Path::new("/run/netns").join(namespace).exists()
}

/// Whether all interfaces of the lab are there and up, and all relays run.
pub(super) fn is_up(spec: &Spec) -> bool {
    let relays_run = spec.relays.is_empty()
        || teardown::processes_in(&spec::middle_namespace(&spec.name)).len() >= spec.relays.len();
    relays_run
        && Side::BOTH.iter().all(|&side| {
            let namespace = spec.namespace(side);
            exists(&namespace)
                && (0..spec.links).all(|link| {
                    let interface = format!("{}{link}", side.tag());
                    run(&["ip", "-n", &namespace, "-o", "link", "show", "dev", &interface, "up"])
                        .is_ok_and(|line| line.contains(&format!("mtu {} ", spec.mtu)))
                })
        })
}

/// Makes the namespaces and all links.
pub(super) fn make(spec: &Spec, interrupt: &Interrupt) -> Result<()> {
    for side in Side::BOTH {
        interrupt.check()?;
        let namespace = spec.namespace(side);
        run(&["ip", "netns", "add", &namespace])?;
        run(&["ip", "-n", &namespace, "link", "set", "lo", "up"])?;
        // Duplicate address detection would keep IPv6 addresses unusable for the first second.
        let applied = within(&namespace, || {
            ["all", "default"].into_iter().try_for_each(|scope| {
                std::fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/accept_dad"), "0")
            })
        })?;
        applied.context(|| format!("cannot turn off IPv6 DAD in {namespace}"))?;
        let applied = within(&namespace, || {
            std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", &spec.congestion)
        })?;
        applied.context(|| {
            format!("cannot choose congestion control {} in {namespace}", spec.congestion)
        })?;
    }
    if !spec.relays.is_empty() {
        relays::make_namespace(spec)?;
    }
    for link in 0..spec.links {
        interrupt.check()?;
        if spec.relays.contains_key(&link) {
            add_relayed_link(spec, link)?;
        } else {
            add_link(spec, link)?;
        }
        for side in Side::BOTH {
            interrupt.check()?;
            configure_end(spec, side, link)?;
        }
    }
    Ok(())
}

/// Makes a veth pair, each end directly in its namespace.
fn add_link(spec: &Spec, link: u32) -> Result<()> {
    let [sender, receiver] = Side::BOTH.map(|side| end(spec, side, link));
    add_pair(spec, &sender, &receiver)
}

/// Makes two veth pairs with the relay's namespace in the middle.
fn add_relayed_link(spec: &Spec, link: u32) -> Result<()> {
    for side in Side::BOTH {
        let interface = relays::middle(side, link);
        let middle = End { namespace: spec::middle_namespace(&spec.name), interface };
        add_pair(spec, &end(spec, side, link), &middle)?;
        relays::configure_end(spec, &middle.interface)?;
    }
    Ok(())
}

/// An end of a veth pair.
struct End {
    namespace: String,
    interface: String,
}

fn end(spec: &Spec, side: Side, link: u32) -> End {
    End { namespace: spec.namespace(side), interface: format!("{}{link}", side.tag()) }
}

fn add_pair(spec: &Spec, one: &End, other: &End) -> Result<()> {
    let (mtu, queues) = (spec.mtu.to_string(), spec.queues.to_string());
    let shape = ["mtu", &mtu, "numrxqueues", &queues, "numtxqueues", &queues];
    let mut command = vec!["ip", "link", "add", "name", &one.interface, "netns", &one.namespace];
    command.extend(shape);
    command.extend(["type", "veth", "peer", "name", &other.interface, "netns", &other.namespace]);
    command.extend(shape);
    run(&command).map(|_| ())
}

fn configure_end(spec: &Spec, side: Side, link: u32) -> Result<()> {
    let namespace = spec.namespace(side);
    let interface = format!("{}{link}", side.tag());
    match side {
        Side::Sender => {
            run_in(&namespace, &["ethtool", "-K", &interface, "tx", "off"])?;
            if let Some(cpu) = spec.sender_cpu {
                process_on(&namespace, &interface, cpu)?;
            }
        }
        Side::Receiver => {
            let gro = if spec.gro { "on" } else { "off" };
            run_in(&namespace, &["ethtool", "-K", &interface, "gro", gro])?;
            if spec.relays.contains_key(&link) {
                // The relay's packet socket would see its answers before their checksums are made.
                run_in(&namespace, &["ethtool", "-K", &interface, "tx", "off"])?;
            }
        }
    }
    if spec.vlan.is_some() {
        // A tag that travels beside the frame, as veth's offload has it, is invisible to XDP.
        run_in(&namespace, &["ethtool", "-K", &interface, "txvlan", "off", "rxvlan", "off"])?;
    }
    run(&["ip", "-n", &namespace, "link", "set", &interface, "up"])?;
    if let Some(id) = spec.vlan {
        vlan::add(&namespace, &interface, id)?;
    }
    add_addresses(spec, side, link)
}

/// Has a CPU process what comes in on an interface, whichever CPU it came in on (RPS).
fn process_on(namespace: &str, interface: &str, cpu: usize) -> Result<()> {
    let mask = cpu_mask(cpu);
    let script = format!(
        "for queue in /sys/class/net/{interface}/queues/rx-*; do printf %s {mask} > $queue/rps_cpus \
         || exit; done"
    );
    run_in(namespace, &["sh", "-c", &script]).map(|_| ())
}

/// A CPU as the kernel's masks have it: words of 32 bits in hexadecimal, the highest first.
fn cpu_mask(cpu: usize) -> String {
    let lower = ",00000000".repeat(cpu / 32);
    format!("{:x}{lower}", 1_u32 << (cpu % 32))
}

/// Gives a side's end of a link its addresses; those it has are left alone.
pub(super) fn add_addresses(spec: &Spec, side: Side, link: u32) -> Result<()> {
    let namespace = spec.namespace(side);
    let interface = format!("{}{link}", side.tag());
    let holder =
        spec.vlan.map_or_else(|| interface.clone(), |id| vlan::holder(&namespace, &interface, id));
    for (family, prefix) in [(Family::V4, 24), (Family::V6, 64)] {
        let cidr = format!("{}/{prefix}", address(side, link, family));
        run(&["ip", "-n", &namespace, "addr", "replace", &cidr, "dev", &holder])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_words_with_the_highest_first() {
        assert_eq!([0, 5, 31].map(cpu_mask), ["1", "20", "80000000"]);
        assert_eq!([32, 70].map(cpu_mask), ["1,00000000", "40,00000000,00000000"]);
    }
}
