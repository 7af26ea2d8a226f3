//! Interrupts of NICs that are not here, by their trees.

use std::fs;

use super::fabricated::{Host, put};
use super::*;

fn hold(host: &Host) -> Hold {
    Hold::new(host.roots()).expect("nothing in the way")
}

fn cpus(list: &str) -> CpuList {
    list.parse().expect("a list")
}

/// The journal of a process that is gone says that it is another's: as if that had been killed.
fn kill(mut held: Hold) {
    let path = held.path.take().expect("something was changed");
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
    let mut held = hold(&host);
    held.place("eth0", &cpus("3,1")).expect("moved");
    assert_eq!([51, 52, 53, 54].map(|n| host.affinity(n)), ["3", "1", "3", "1"]);
    assert_eq!(host.affinity(50), "0-3", "no queue's");
    assert!(!host.journal_is_empty());
    // A second placement does not take the first for what was before.
    held.place("eth0", &cpus("2")).expect("moved");
    held.place("eth1", &cpus("1")).expect("moved");
    assert_eq!(host.affinity(51), "2");
    assert_eq!(host.affinity(38), "1");
    drop(held);
    assert_eq!(host.affinities(), before);
    assert!(host.journal_is_empty());
}

#[test]
fn what_a_killed_run_moved_is_put_back_by_the_next_one() {
    let host = Host::new();
    let before = host.affinities();
    let mut held = hold(&host);
    held.place("eth0", &cpus("2")).expect("moved");
    kill(held);
    assert_ne!(host.affinities(), before);
    let next = hold(&host);
    assert_eq!(host.affinities(), before);
    assert!(host.journal_is_empty());
    drop(next);
}

#[test]
fn an_interrupt_that_is_another_devices_by_now_is_left_alone() {
    let host = Host::new();
    let mut held = hold(&host);
    held.place("eth1", &cpus("1")).expect("moved");
    kill(held);
    let interrupts = fs::read_to_string(host.path("proc/interrupts")).expect("there");
    put(&host.path("proc/interrupts"), &interrupts.replace("virtio2-input.0", "nvme0q1"));
    drop(hold(&host));
    assert_eq!(host.affinity(38), "1");
    assert!(host.journal_is_empty());
}

#[test]
fn a_run_does_not_move_what_another_one_has_moved() {
    let host = Host::new();
    let mut held = hold(&host);
    held.place("eth0", &cpus("2")).expect("moved");
    // Our parent lives, and is not us.
    let parent = std::os::unix::process::parent_id();
    let stat = fs::read_to_string(format!("/proc/{parent}/stat")).expect("it lives");
    let started: u64 = stat
        .rsplit_once(')')
        .and_then(|(_, fields)| fields.split_ascii_whitespace().nth(19)?.parse().ok())
        .expect("a start time");
    let path = held.path.take().expect("something was changed");
    let mut entry: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&path).expect("the journal")).expect("JSON");
    entry["owner"] = serde_json::json!({ "pid": parent, "started": started });
    fs::write(&path, entry.to_string()).expect("written");

    let mut second = hold(&host);
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
    let mut held = hold(&host);
    let error = held.place("eth0", &cpus("3")).expect_err("refused");
    assert!(error.to_string().contains("eth0-TxRx-2"), "{error}");
    drop(held);
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
    let mut held = hold(&host);
    held.place("veth0", &CpuList::from_iter([last])).expect("pinned");
    assert_eq!(allowed(pid).expect("it runs"), [last]);
    kill(held);
    drop(hold(&host));
    assert_eq!(allowed(pid).expect("it runs"), before);
    assert!(host.journal_is_empty());
    // One that is gone by then is no matter.
    let mut held = hold(&host);
    held.place("veth0", &CpuList::from_iter([last])).expect("pinned");
    child.0.kill().expect("it runs");
    fs::remove_dir_all(host.path(&format!("proc/{pid}"))).expect("removed");
    held.restore().expect("nothing to put back");
}

/// A process that ends with the test, also when that fails.
struct Ending(std::process::Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
