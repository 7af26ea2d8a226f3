//! Trees of a host with NICs that are not here.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::Roots;

/// A host with an Intel-like NIC `eth0` of three queues and a virtio NIC `eth1` of one.
pub(crate) struct Host {
    folder: TempDir,
}

impl Host {
    pub(crate) fn new() -> Self {
        let host = Self { folder: tempfile::tempdir().expect("a folder") };
        let pci = host.path("sys/devices/pci0000:00/0000:01:00.0");
        host.device("eth0", &pci, &[50, 51, 52, 53, 54]);
        put(&pci.join("numa_node"), "1\n");
        let virtio = host.path("sys/devices/pci0000:00/0000:00:03.0/virtio2");
        host.device("eth1", &virtio, &[]);
        for number in [37, 38, 39] {
            put(&virtio.join(format!("../msi_irqs/{number}")), "msix\n");
        }
        fs::create_dir_all(host.path("sys/class/net/veth0")).expect("made");
        for (number, cpus) in [
            (37, "0-3"),
            (38, "2"),
            (39, "0-3"),
            (50, "0-3"),
            (51, "0"),
            (52, "1"),
            (53, "2"),
            (54, "3"),
        ] {
            put(&host.path(&format!("proc/irq/{number}/smp_affinity_list")), &format!("{cpus}\n"));
        }
        let interrupts = "          CPU0  CPU1  CPU2  CPU3\n\
            \x2037:  0  0  0  0  PCI-MSIX-0000:00:03.0  0-edge  virtio2-config\n\
            \x2038:  0  0  9  0  PCI-MSIX-0000:00:03.0  1-edge  virtio2-input.0\n\
            \x2039:  0  0  9  0  PCI-MSIX-0000:00:03.0  2-edge  virtio2-output.0\n\
            \x2050:  1  0  0  0  PCI-MSIX-0000:01:00.0  0-edge  ixgbe-eth0-misc\n\
            \x2051:  1  0  0  0  PCI-MSIX-0000:01:00.0  1-edge  eth0-TxRx-0\n\
            \x2052:  0  1  0  0  PCI-MSIX-0000:01:00.0  2-edge  eth0-TxRx-1\n\
            \x2054:  0  0  0  1  PCI-MSIX-0000:01:00.0  4-edge  eth0-TxRx-10\n\
            \x2053:  0  0  1  0  PCI-MSIX-0000:01:00.0  3-edge  eth0-TxRx-2\n\
            NMI:  0  0  0  0  Non-maskable interrupts\n";
        put(&host.path("proc/interrupts"), interrupts);
        host
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    pub(crate) fn roots(&self) -> Roots {
        Roots { proc: self.path("proc"), sys: self.path("sys"), run: self.path("run") }
    }

    pub(crate) fn device(&self, interface: &str, device: &Path, interrupts: &[u32]) {
        fs::create_dir_all(device).expect("made");
        for number in interrupts {
            put(&device.join(format!("msi_irqs/{number}")), "msix\n");
        }
        let interface = self.path("sys/class/net").join(interface);
        fs::create_dir_all(&interface).expect("made");
        symlink(device, interface.join("device")).expect("linked");
    }

    pub(crate) fn affinity(&self, number: u32) -> String {
        let path = self.path(&format!("proc/irq/{number}/smp_affinity_list"));
        fs::read_to_string(path).expect("there").trim().to_owned()
    }

    pub(crate) fn affinities(&self) -> Vec<String> {
        [37, 38, 39, 50, 51, 52, 53, 54].map(|number| self.affinity(number)).to_vec()
    }

    pub(crate) fn journal_is_empty(&self) -> bool {
        let files = fs::read_dir(self.path("run/mpxdp-placement")).expect("there");
        files.flatten().all(|file| file.file_name() == "lock")
    }
}

pub(crate) fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("in a folder")).expect("made");
    fs::write(path, text).expect("written");
}
