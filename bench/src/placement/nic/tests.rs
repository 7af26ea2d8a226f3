//! Interrupts of NICs that are not here, by their trees.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;

use super::*;

/// A host with an Intel-like NIC `eth0` of three queues and a virtio NIC `eth1` of one.
struct Host {
    folder: TempDir,
}

impl Host {
    fn new() -> Self {
        let host = Self { folder: tempfile::tempdir().expect("a folder") };
        let pci = host.path("sys/devices/pci0000:00/0000:01:00.0");
        host.device("eth0", &pci, &[50, 51, 52, 53, 54]);
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

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn roots(&self) -> Roots {
        Roots { proc: self.path("proc"), sys: self.path("sys"), run: self.path("run") }
    }

    fn device(&self, interface: &str, device: &Path, interrupts: &[u32]) {
        fs::create_dir_all(device).expect("made");
        for number in interrupts {
            put(&device.join(format!("msi_irqs/{number}")), "msix\n");
        }
        let interface = self.path("sys/class/net").join(interface);
        fs::create_dir_all(&interface).expect("made");
        symlink(device, interface.join("device")).expect("linked");
    }

    fn affinity(&self, number: u32) -> String {
        let path = self.path(&format!("proc/irq/{number}/smp_affinity_list"));
        fs::read_to_string(path).expect("there").trim().to_owned()
    }

    fn affinities(&self) -> Vec<String> {
        [37, 38, 39, 50, 51, 52, 53, 54].map(|number| self.affinity(number)).to_vec()
    }

    fn journal_is_empty(&self) -> bool {
        let files = fs::read_dir(self.path("run/mpxdp-placement")).expect("there");
        files.flatten().all(|file| file.file_name() == "lock")
    }

    fn hold(&self) -> Hold {
        Hold::new(self.roots()).expect("nothing in the way")
    }
}

fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("in a folder")).expect("made");
    fs::write(path, text).expect("written");
}

fn cpus(list: &str) -> CpuList {
    list.parse().expect("a list")
}

/// The journal of a process that is gone says that it is another's: as if that had been killed.
fn kill(mut hold: Hold) {
    let path = hold.path.take().expect("something was changed");
    let text = fs::read_to_string(&path).expect("the journal");
    let mut entry: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    entry["owner"]["started"] = 1.into();
    fs::write(path, entry.to_string()).expect("written");
}

#[test]
fn the_interrupts_of_receive_queues_are_found_in_their_order() {
    let host = Host::new();
    let numbers = |interface| {
        let found = of_queues(&host.roots(), interface).expect("found");
        found.into_iter().map(|interrupt| interrupt.number).collect::<Vec<_>>()
    };
    assert_eq!(numbers("eth0"), [51, 52, 53, 54]);
    assert_eq!(numbers("eth1"), [38]);
}

#[test]
fn interfaces_without_interrupts_are_refused() {
    let host = Host::new();
    let error = of_queues(&host.roots(), "veth0").expect_err("no hardware");
    assert!(error.to_string().contains("virtual"), "{error}");
    for name in ["eth9", "", "../net/eth0"] {
        let error = of_queues(&host.roots(), name).expect_err("no interface");
        assert_eq!(error.exit_code(), 2, "{error}");
    }
}

#[test]
fn queues_are_dealt_to_the_cpus_and_put_back() {
    let host = Host::new();
    let before = host.affinities();
    let mut hold = host.hold();
    hold.place("eth0", &cpus("3,1")).expect("moved");
    assert_eq!([51, 52, 53, 54].map(|n| host.affinity(n)), ["3", "1", "3", "1"]);
    assert_eq!(host.affinity(50), "0-3", "no queue's");
    assert!(!host.journal_is_empty());
    // A second placement does not take the first for what was before.
    hold.place("eth0", &cpus("2")).expect("moved");
    hold.place("eth1", &cpus("1")).expect("moved");
    assert_eq!(host.affinity(51), "2");
    assert_eq!(host.affinity(38), "1");
    drop(hold);
    assert_eq!(host.affinities(), before);
    assert!(host.journal_is_empty());
}

#[test]
fn what_a_killed_run_moved_is_put_back_by_the_next_one() {
    let host = Host::new();
    let before = host.affinities();
    let mut hold = host.hold();
    hold.place("eth0", &cpus("2")).expect("moved");
    kill(hold);
    assert_ne!(host.affinities(), before);
    let next = host.hold();
    assert_eq!(host.affinities(), before);
    assert!(host.journal_is_empty());
    drop(next);
}

#[test]
fn an_interrupt_that_is_another_devices_by_now_is_left_alone() {
    let host = Host::new();
    let mut hold = host.hold();
    hold.place("eth1", &cpus("1")).expect("moved");
    kill(hold);
    let interrupts = fs::read_to_string(host.path("proc/interrupts")).expect("there");
    put(&host.path("proc/interrupts"), &interrupts.replace("virtio2-input.0", "nvme0q1"));
    drop(host.hold());
    assert_eq!(host.affinity(38), "1");
    assert!(host.journal_is_empty());
}

#[test]
fn a_run_does_not_move_what_another_one_has_moved() {
    let host = Host::new();
    let mut hold = host.hold();
    hold.place("eth0", &cpus("2")).expect("moved");
    // Our parent lives, and is not us.
    let parent = std::os::unix::process::parent_id();
    let stat = fs::read_to_string(format!("/proc/{parent}/stat")).expect("it lives");
    let started: u64 = stat
        .rsplit_once(')')
        .and_then(|(_, fields)| fields.split_ascii_whitespace().nth(19)?.parse().ok())
        .expect("a start time");
    let path = hold.path.take().expect("something was changed");
    let mut entry: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&path).expect("the journal")).expect("JSON");
    entry["owner"] = serde_json::json!({ "pid": parent, "started": started });
    fs::write(&path, entry.to_string()).expect("written");

    let mut second = host.hold();
    assert_eq!(host.affinity(51), "2", "its owner lives");
    let error = second.place("eth0", &cpus("1")).expect_err("another's");
    assert!(error.to_string().contains(&parent.to_string()), "{error}");
    second.place("eth1", &cpus("1")).expect("nobody's");
    drop(second);
    assert_eq!(host.affinity(51), "2");
    assert_eq!(host.affinity(38), "2");
}

#[test]
fn a_damaged_journal_is_an_error_that_names_it() {
    let host = Host::new();
    put(&host.path("run/mpxdp-placement/77.json"), "{");
    let error = Hold::new(host.roots()).expect_err("damaged");
    assert!(error.to_string().contains("77.json"), "{error}");
}

#[test]
fn a_refusal_of_the_kernel_names_the_interrupt_and_undoes_the_rest() {
    let host = Host::new();
    let before = host.affinity(51);
    fs::remove_file(host.path("proc/irq/53/smp_affinity_list")).expect("removed");
    fs::create_dir(host.path("proc/irq/53/smp_affinity_list")).expect("made");
    let mut hold = host.hold();
    let error = hold.place("eth0", &cpus("3")).expect_err("refused");
    assert!(error.to_string().contains("eth0-TxRx-2"), "{error}");
    drop(hold);
    assert_eq!(host.affinity(51), before);
}

#[test]
fn irqbalance_is_seen() {
    let host = Host::new();
    assert!(!irqbalance_runs(&host.roots()));
    put(&host.path("proc/812/comm"), "irqbalance\n");
    assert!(irqbalance_runs(&host.roots()));
}

#[test]
fn processing_threads_are_pinned_and_put_back() {
    let host = Host::new();
    // A process that stands for the kernel's thread: its affinity can be set like that one's.
    let child = std::process::Command::new("sleep").arg("600").spawn().expect("it starts");
    let mut child = Ending(child);
    let pid = child.0.id();
    put(&host.path(&format!("proc/{pid}/comm")), "napi/veth0-8193\n");
    put(&host.path("sys/class/net/veth0/threaded"), "1\n");
    let before = allowed(pid).expect("it runs");
    let last = *before.last().expect("a CPU");
    let mut hold = host.hold();
    hold.place("veth0", &CpuList::from_iter([last])).expect("pinned");
    assert_eq!(allowed(pid).expect("it runs"), [last]);
    kill(hold);
    drop(host.hold());
    assert_eq!(allowed(pid).expect("it runs"), before);
    assert!(host.journal_is_empty());
    // One that is gone by then is no matter.
    let mut hold = host.hold();
    hold.place("veth0", &CpuList::from_iter([last])).expect("pinned");
    child.0.kill().expect("it runs");
    fs::remove_dir_all(host.path(&format!("proc/{pid}"))).expect("removed");
    hold.restore().expect("nothing to put back");
}

/// A process that ends with the test, also when that fails.
struct Ending(std::process::Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
