//! What happens to the receiver's own links while it runs: addresses that go and come, NICs that are
//! set down, renamed and deleted.

use std::fs;
use std::thread;
use std::time::Duration;

use mpxdp_bench::Interrupt;
use mpxdp_bench::lab::{Family, Lab, Running, Side};
use mpxdp_bench::traffic::sender;

use super::harness::{LIMIT, Recv, Rig, assert_pattern, finish};

const MIB: u64 = 1 << 20;

/// A receiver on two links that announces its addresses, and a client that follows announcements.
fn begin(links: u32) -> Option<(Rig, Recv)> {
    let rig = Rig::new(Lab::builder().links(links))?;
    let limits = ["ip", "mptcp", "limits", "set", "subflow", "8", "add_addr_accepted", "8"];
    rig.tool(Side::Sender, &limits);
    let report = rig.path("report.json");
    let mut command = rig.mpxdp(&["recv", "--connections", "1"]);
    for link in 0..links {
        command.arg("--nic").arg(format!("rcv{link}"));
    }
    command.args(["--listen", &rig.at(Family::V4).to_string()]);
    command.arg("--output").arg(rig.path("out")).arg("--report").arg(&report);
    let running = Running::start("mpxdp recv", &mut command, &[]).expect("it starts");
    Some((rig, Recv::listening(running, report)))
}

/// A transfer that takes a second for each 8 MiB.
fn send(rig: &Rig, mib: u64) -> Running {
    let bytes = (mib * MIB).to_string();
    rig.sender(Family::V4, &["--bytes", &bytes, "--rate", "8388608", "--patience", "60"])
}

/// How many subflows the client has now, by the kernel's sockets.
fn subflows(rig: &Rig) -> usize {
    let sockets = rig.tool(Side::Sender, &["ss", "-Htn", "state", "established"]);
    sockets.lines().filter(|line| line.contains(":5000")).count()
}

/// Waits until the client has so many subflows.
fn wait_for_subflows(rig: &Rig, count: usize) {
    for _ in 0..400 {
        if subflows(rig) == count {
            return;
        }
        thread::sleep(Duration::from_millis(25));
    }
    panic!("{} subflows, not {count}", subflows(rig));
}

/// A counter of the client's kernel.
fn counter(rig: &Rig, name: &str) -> u64 {
    let text = rig.tool(Side::Sender, &["nstat", "-asz", name]);
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(1).map_or(0, |n| n.parse().expect("a number"))
}

/// Waits for a line of the receiver's.
fn wait_for(recv: &mut Recv, words: &str) {
    let found = recv.running.wait_for(words, LIMIT, &Interrupt::never());
    found.unwrap_or_else(|error| panic!("\"{words}\": {error}"));
}

/// All arrived, on however many subflows.
fn assert_whole(rig: &Rig, recv: Recv, sender: Running, mib: u64) -> serde_json::Value {
    let sent: sender::Report = finish(sender).json().expect("the sender's report");
    assert_eq!(sent.connections[0].error, None);
    let received = recv.finish();
    received.assert_code(0);
    received.only().assert_complete();
    assert_pattern(&rig.path("out"), mib * MIB);
    let text = fs::read(rig.path("report.json")).expect("the report");
    serde_json::from_slice(&text).expect("the report is JSON")
}

#[test]
fn an_address_that_is_removed_is_withdrawn_and_announced_when_it_comes_back() {
    let Some((rig, mut recv)) = begin(2) else { return };
    let sender = send(&rig, 40);
    wait_for_subflows(&rig, 2);
    let address = rig.lab.address(Side::Receiver, 1, Family::V4);
    let prefixed = format!("{address}/24");
    rig.tool(Side::Receiver, &["ip", "address", "del", &prefixed, "dev", "rcv1"]);
    wait_for(&mut recv, &format!("rcv1: the address {address} was removed"));
    wait_for_subflows(&rig, 1);
    // More than once, if this took a second.
    assert!(counter(&rig, "MPTcpExtRmAddr") > 0, "the client was told");
    rig.tool(Side::Receiver, &["ip", "address", "add", &prefixed, "dev", "rcv1"]);
    wait_for(&mut recv, &format!("rcv1: it has the address {address} now"));
    wait_for_subflows(&rig, 2);
    let report = assert_whole(&rig, recv, sender, 40);
    assert_eq!(report["nics"][1]["state"], "up");
    assert_eq!(report["nics"][1]["changes"], 2);
    assert_eq!(report["nics"][0]["changes"], 0);
}

#[test]
fn a_deleted_nic_is_told_of_and_the_transfer_goes_on_by_the_other() {
    let Some((rig, mut recv)) = begin(2) else { return };
    let sender = send(&rig, 24);
    wait_for_subflows(&rig, 2);
    rig.tool(Side::Receiver, &["ip", "link", "set", "rcv0", "mtu", "1600"]);
    wait_for(&mut recv, "rcv0: the MTU is 1600 now");
    rig.tool(Side::Receiver, &["ip", "link", "delete", "rcv1"]);
    wait_for(&mut recv, "rcv1: the interface is gone");
    let report = assert_whole(&rig, recv, sender, 24);
    assert_eq!(report["nics"][1]["state"], "gone");
    assert_eq!(report["nics"][0]["state"], "up");
    assert_eq!(report["nics"][0]["mtu"], 1600);
    let subflows = report["connections"][0]["subflows"].as_array().expect("a list");
    let by = |nic: &str| subflows.iter().filter(|subflow| subflow["nic"] == nic).count();
    assert!(by("rcv0") > 0 && by("rcv1") > 0, "{subflows:#?}");
}

#[test]
fn a_worker_whose_nic_is_gone_sleeps() {
    let Some((rig, mut recv)) = begin(2) else { return };
    rig.tool(Side::Receiver, &["ip", "link", "set", "rcv0", "mtu", "1400"]);
    wait_for(&mut recv, "rcv0: the MTU is 1400 now, and peers were told of 1500");
    rig.tool(Side::Receiver, &["ip", "link", "delete", "rcv1"]);
    wait_for(&mut recv, "rcv1: the interface is gone");
    let before = cpu_time(recv.running.pid());
    thread::sleep(Duration::from_secs(1));
    let used = cpu_time(recv.running.pid()) - before;
    // A worker whose sleep always ends at once uses all of a CPU, or its share of it.
    assert!(used < Duration::from_millis(100), "{used:?} in a second without a packet");
    recv.stop().assert_code(0);
}

/// The CPU time that a process has used.
fn cpu_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let (_, fields) = stat.rsplit_once(')').expect("the name is in brackets");
    // After the name and the state: utime and stime are fields 14 and 15, in ticks of 10 ms.
    let ticks =
        fields.split_whitespace().skip(11).take(2).map(|n| n.parse::<u64>().expect("a number"));
    Duration::from_millis(10 * ticks.sum::<u64>())
}

#[test]
fn the_last_nics_end_is_the_runs_end() {
    let Some((rig, mut recv)) = begin(1) else { return };
    let sender = send(&rig, 400);
    wait_for_subflows(&rig, 1);
    rig.tool(Side::Receiver, &["ip", "link", "set", "rcv0", "down"]);
    wait_for(&mut recv, "rcv0: the interface was set down");
    rig.tool(Side::Receiver, &["ip", "link", "set", "rcv0", "name", "lan0"]);
    wait_for(&mut recv, "rcv0: the interface is now named lan0");
    rig.tool(Side::Receiver, &["ip", "link", "set", "lan0", "up"]);
    wait_for(&mut recv, "rcv0: the interface is up again");
    rig.tool(Side::Receiver, &["ip", "link", "delete", "lan0"]);
    let received = recv.finish();
    received.assert_code(1);
    let said = &received.ended.stderr;
    assert!(said.contains("rcv0: gone, and with it the last NIC"), "{said}");
    assert_eq!(received.report.ended, "error");
    assert!(received.only().error.is_some());
    drop(sender);
}
