//! The interrupts of a NIC's receive queues.

use std::fs;
use std::path::{Path, PathBuf};

use mpxdp::CpuList;
use serde::{Deserialize, Serialize};

use super::Roots;
use crate::error::{Context, Error, Result};

/// The interrupt of a receive queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueInterrupt {
    /// Its number.
    pub number: u32,
    /// What the driver calls it. A number may be given to another device later; a name tells.
    pub name: String,
}

/// The interrupts of a NIC's receive queues, in the order of the queues.
///
/// sysfs tells which interrupts a device has, but not what for; `/proc/interrupts` has the names that
/// its driver gave them. There is no rule for those, only habits: they end in the queue's number, and
/// those that are not for receiving say so (`tx`, `output`, `async`, `config`).
///
/// # Errors
///
/// If there is no such NIC, it is no hardware, or none of its interrupts looks like a queue's.
pub fn of_queues(roots: &Roots, interface: &str) -> Result<Vec<QueueInterrupt>> {
    let folder = roots.sys.join("class/net").join(interface);
    if interface.is_empty() || interface.contains('/') || !folder.exists() {
        return Err(Error::Usage(format!("--nic {interface:?}: there is no such interface")));
    }
    let names = names(roots)?;
    let mut found: Vec<(u32, QueueInterrupt)> = device_interrupts(&folder)
        .into_iter()
        .filter_map(|number| {
            let name = names.iter().find(|(other, _)| *other == number)?.1.clone();
            Some((receive_queue(&name)?, QueueInterrupt { number, name }))
        })
        .collect();
    if found.is_empty() {
        return Err(Error::Failed(format!(
            "{interface}: no interrupts of receive queues are to be found, so its processing cannot be \
             placed (is it a virtual interface?)"
        )));
    }
    found.sort_by_key(|(queue, interrupt)| (*queue, interrupt.number));
    Ok(found.into_iter().map(|(_, interrupt)| interrupt).collect())
}

/// The numbers of a device's interrupts. A virtio NIC is a device on a PCI device, which has them.
fn device_interrupts(interface: &Path) -> Vec<u32> {
    let device = interface.join("device");
    let own = numbers(&device.join("msi_irqs"));
    if own.is_empty() && is_virtio(&device) {
        // Canonical: `device` is a link, and `..` of a link is its target's parent.
        return fs::canonicalize(&device)
            .map(|path| numbers(&path.join("../msi_irqs")))
            .unwrap_or_default();
    }
    own
}

fn is_virtio(device: &Path) -> bool {
    fs::canonicalize(device).is_ok_and(|path| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with("virtio"))
    })
}

fn numbers(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// All interrupts with a number, and what their drivers call them.
fn names(roots: &Roots) -> Result<Vec<(u32, String)>> {
    let path = roots.proc.join("interrupts");
    let text = fs::read_to_string(&path).context(|| format!("cannot read {}", path.display()))?;
    Ok(parse_names(&text))
}

/// The name is the last word of a line; those that share a line are parted by `, `.
fn parse_names(text: &str) -> Vec<(u32, String)> {
    let line = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        Some((number.trim().parse().ok()?, rest.split_ascii_whitespace().last()?.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

/// The receive queue that an interrupt of this name is for; none if it is for something else.
fn receive_queue(name: &str) -> Option<u32> {
    /// What interrupts of NICs are for that are not for packets.
    const OTHER: [&str; 10] =
        ["async", "config", "control", "misc", "mgmnt", "mgmt", "admin", "event", "other", "ctrl"];
    // mlx5_comp0@pci:0000:3b:00.0
    let name = name.split_once('@').map_or(name, |(name, _)| name).to_ascii_lowercase();
    let sends_only = (name.contains("tx") || name.contains("output"))
        && !(name.contains("rx") || name.contains("tx-rx") || name.contains("input"));
    if sends_only || OTHER.iter().any(|word| name.contains(word)) {
        return None;
    }
    let digits = name.chars().rev().take_while(char::is_ascii_digit).count();
    // The number of an interface by itself, `eth0`, is none of a queue.
    let (text, number) = name.split_at(name.len() - digits);
    let separated = text.ends_with(['-', '.', '_', ':']);
    let word = ["comp", "blk", "rx", "txrx", "rxtx", "input", "queue", "q"];
    if separated || word.iter().any(|word| text.ends_with(word)) {
        number.parse().ok()
    } else {
        None
    }
}

/// The file with the CPUs that an interrupt may go to.
fn file(roots: &Roots, number: u32) -> PathBuf {
    roots.proc.join(format!("irq/{number}/smp_affinity_list"))
}

impl QueueInterrupt {
    /// The CPUs that it may go to, as the kernel writes them; none if it is gone, or its number is
    /// another device's by now.
    pub(super) fn affinity(&self, roots: &Roots) -> Option<String> {
        let names = names(roots).ok()?;
        names.iter().find(|(number, name)| (*number, name) == (self.number, &self.name))?;
        let text = fs::read_to_string(file(roots, self.number)).ok()?;
        Some(text.trim().to_owned())
    }

    /// Lets it go to these CPUs only.
    ///
    /// # Errors
    ///
    /// If the kernel refuses, as it does for interrupts whose affinity it manages itself.
    pub(super) fn set_affinity(&self, roots: &Roots, cpus: &str) -> Result<()> {
        let Self { number, name } = self;
        fs::write(file(roots, *number), cpus)
            .context(|| format!("cannot move interrupt {number} ({name}) to CPU {cpus}"))
    }

    /// The same, for one CPU.
    pub(super) fn move_to(&self, roots: &Roots, cpu: usize) -> Result<()> {
        self.set_affinity(roots, &CpuList::from_iter([cpu]).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_receive_queues_are_told_from_others() {
        for (name, queue) in [
            ("eth0-TxRx-3", Some(3)),
            ("ice-ens1f0-TxRx-11", Some(11)),
            ("i40e-eth2-TxRx-0", Some(0)),
            ("mlx5_comp7@pci:0000:3b:00.0", Some(7)),
            ("mlx5_async0@pci:0000:3b:00.0", None),
            ("virtio2-input.1", Some(1)),
            ("virtio2-output.1", None),
            ("virtio2-config", None),
            ("ens5-Tx-Rx-4", Some(4)),
            ("ena-mgmnt@pci:0000:00:05.0", None),
            ("eth0-rx-2", Some(2)),
            ("eth0-tx-2", None),
            ("eth0", None),
            ("gve-ntfy-blk3@pci:0000:00:04.0", Some(3)),
            ("i40e-0000:01:00.0:misc", None),
            ("bnxt_en-eth0-2", Some(2)),
            ("", None),
            ("12", None),
        ] {
            assert_eq!(receive_queue(name), queue, "{name}");
        }
    }

    #[test]
    fn proc_interrupts_is_read_by_its_last_column() {
        let text = "           CPU0       CPU1       \n\
            \x2038:          0      13063 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0\n\
            LOC:     106361     107963   Local timer interrupts\n\
            ERR:          0\n";
        assert_eq!(parse_names(text), [(38, "virtio2-input.0".to_owned())]);
    }
}
