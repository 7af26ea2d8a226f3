//! Real NICs: what they could be placed like, and holding one such placement while the user measures.
//!
//! Nothing is measured here; that takes a sender on another host.

use std::fmt::Write as _;
use std::fs;
use std::thread;
use std::time::Duration;

use mpxdp::Placement;
use mpxdp_cli::say;

use super::class::Class;
use super::nic::{Hold, QueueInterrupt, Roots, irqbalance_runs, of_queues};
use super::realise::realise;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::topology::Topology;

/// What to say if it runs.
pub(super) const IRQBALANCE: &str = "irqbalance runs and may move the interrupts away again: stop it \
    meanwhile (systemctl stop irqbalance)";

/// How often to look for a signal.
const PAUSE: Duration = Duration::from_millis(50);

/// The NICs, where their processing runs now, and all placements for them; nothing is changed.
///
/// # Errors
///
/// If there is no such NIC or the machine cannot be read.
pub fn describe(nics: &[String], roots: &Roots, topology: &Topology) -> Result<String> {
    let mut text = format!("{}\n", topology.counts());
    let mut node = None;
    for nic in nics {
        let at = numa_node(roots, nic);
        node = node.or(at);
        let at = at.map_or_else(String::new, |node| format!(", NUMA node {node}"));
        // Writing to a String does not fail, here and below.
        let _ = writeln!(text, "{nic}{at}:");
        for QueueInterrupt { number, name } in of_queues(roots, nic)? {
            let path = roots.proc.join(format!("irq/{number}/smp_affinity_list"));
            let cpus = fs::read_to_string(path).unwrap_or_default();
            let _ = writeln!(text, "  interrupt {number} ({name}): CPU {}", cpus.trim());
        }
    }
    let links = u32::try_from(nics.len()).unwrap_or(u32::MAX);
    let _ = writeln!(text, "\nPlacements for mpxdp:");
    let mut impossible: Vec<(String, Vec<String>)> = Vec::new();
    for class in Class::all(true, links) {
        match realise(&class, links, topology, node) {
            Ok(seats) => {
                let _ = writeln!(text, "  {:<40}  {class}", seats.to_string());
            }
            Err(reason) => match impossible.iter_mut().find(|(other, _)| *other == reason) {
                Some((_, classes)) => classes.push(class.to_string()),
                None => impossible.push((reason, vec![class.to_string()])),
            },
        }
    }
    if !impossible.is_empty() {
        let _ = writeln!(text, "\nNot possible here:");
    }
    for (reason, classes) in impossible {
        let _ = writeln!(text, "  {reason}: {}", classes.join(" | "));
    }
    Ok(text)
}

/// Moves the NICs' processing to where a placement has it, until a signal comes.
///
/// # Errors
///
/// A placement without `napi` or with CPUs that cannot be used: wrong usage. If the processing cannot
/// be moved, or not be put back.
pub fn hold(
    nics: &[String],
    placement: &str,
    roots: Roots,
    topology: &Topology,
    interrupt: &Interrupt,
) -> Result<()> {
    let wrong =
        |why: &dyn std::fmt::Display| Error::Usage(format!("--placement {placement:?}: {why}"));
    let parsed: Placement = placement.parse().map_err(|error| wrong(&error))?;
    if parsed.napi.is_empty() {
        return Err(wrong(&"with --nic it has to say where NIC processing is to run: napi=CPUS"));
    }
    if let Some(why) = parsed.napi.as_slice().iter().find_map(|&cpu| topology.unusable(cpu)) {
        return Err(wrong(&why));
    }
    if irqbalance_runs(&roots) {
        say::line(format_args!("mpxdp-bench: {IRQBALANCE}"));
    }
    let mut held = Hold::new(roots)?;
    for nic in nics {
        held.place(nic, &parsed.napi)?;
    }
    say::line(format_args!(
        "{}: processing on CPU {}, until SIGINT or SIGTERM; in the meantime: mpxdp recv --placement \
         \"{parsed}\" ...",
        nics.join(", "),
        parsed.napi
    ));
    while !interrupt.is_set() {
        thread::sleep(PAUSE);
    }
    held.restore()?;
    say::line(format_args!("{}: processing is where it was", nics.join(", ")));
    Ok(())
}

/// The NUMA node that a NIC is attached to, if the machine tells.
#[must_use]
pub fn numa_node(roots: &Roots, nic: &str) -> Option<usize> {
    let device = roots.sys.join("class/net").join(nic).join("device");
    // A virtio NIC is a device on a PCI device, which has it.
    let device = fs::canonicalize(device).ok()?;
    let own = fs::read_to_string(device.join("numa_node"));
    let text = own.or_else(|_| fs::read_to_string(device.join("../numa_node"))).ok()?;
    // -1 is: nowhere in particular.
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::nic::fabricated::Host;
    use super::*;
    use crate::topology::fabricated::Machine;

    #[test]
    fn nics_are_described_with_their_interrupts_and_placements() {
        let host = Host::new();
        let topology = Machine::two_socket_smt(2).topology(None);
        let text = describe(&["eth0".into()], &host.roots(), &topology).expect("described");
        for line in [
            "8 CPUs, 4 cores, 2 last-level caches, 2 NUMA nodes",
            "eth0, NUMA node 1:",
            "  interrupt 52 (eth0-TxRx-1): CPU 1",
            // On the NIC's node.
            "  napi=2 worker=2 reader=2                  nic+worker+reader",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
        assert!(text.contains("no usable NUMA node has two last-level caches: "), "{text}");
        assert_eq!(host.affinities(), Host::new().affinities());
        assert!(describe(&["eth7".into()], &host.roots(), &topology).is_err());
    }

    #[test]
    fn a_placement_is_held_until_a_signal_and_put_back() {
        let host = Host::new();
        let before = host.affinities();
        let topology = Machine::small(4).topology(None);
        let interrupt = Interrupt::never();
        let (roots, stop) = (host.roots(), interrupt.clone());
        thread::scope(|scope| {
            let holder = scope.spawn(|| {
                hold(&["eth0".into()], "napi=3 worker=2 reader=1", roots, &topology, &interrupt)
            });
            let deadline = std::time::Instant::now() + Duration::from_secs(60);
            while host.affinity(54) != "3" || host.affinity(51) != "3" {
                assert!(std::time::Instant::now() < deadline && !holder.is_finished());
                thread::sleep(Duration::from_millis(5));
            }
            stop.set();
            holder.join().expect("no panic").expect("held");
        });
        assert_eq!(host.affinities(), before);
        assert!(host.journal_is_empty());
    }

    #[test]
    fn what_cannot_be_held_is_wrong_usage() {
        let host = Host::new();
        let topology = Machine::small(2).topology(None);
        for (placement, named) in
            [("worker=1", "napi=CPUS"), ("napi=7", "no CPU 7"), ("napi=x", "\"x\""), ("x", "\"x\"")]
        {
            let nics = ["eth0".to_owned()];
            let error = hold(&nics, placement, host.roots(), &topology, &Interrupt::never());
            let error = error.expect_err(placement);
            assert_eq!(error.exit_code(), 2, "{error}");
            assert!(error.to_string().contains(named), "{error}");
        }
    }
}
