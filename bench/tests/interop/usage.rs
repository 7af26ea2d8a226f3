//! Wrong usage: one clear line, the right exit code, and nothing left behind.

use std::process::Command;

use mpxdp_bench::lab::{Family, Lab, Running, Side};
use mpxdp_ebpf::{AttachMode, Front};

use super::harness::{BENCH, Rig, finish, mpxdp};

/// Runs a command that must fail, and checks how it does.
fn assert_refused(rig: &Rig, mut command: Command, code: i32, named: &[&str]) {
    let ended = finish(Running::start("mpxdp recv", &mut command, &[]).expect("it starts"));
    let said = ended.stderr.trim_end();
    assert_eq!(ended.status.code(), Some(code), "{command:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{command:?}: not one line: {said}");
    for name in named {
        assert!(said.contains(name), "{command:?}: nothing of {name:?} in: {said}");
    }
    assert!(ended.stdout.is_empty(), "{command:?}: {:?}", String::from_utf8_lossy(&ended.stdout));
    let programs = rig.tool(Side::Receiver, &["ip", "-d", "link"]);
    assert!(!programs.contains("prog/xdp"), "{command:?}: left behind: {programs}");
    assert!(!rig.path("out").exists(), "{command:?}: an output is left behind");
}

fn refused(rig: &Rig, arguments: &[&str], code: i32, named: &[&str]) {
    let mut command = rig.mpxdp(&["recv"]);
    command.args(arguments).arg("--output").arg(rig.path("out"));
    assert_refused(rig, command, code, named);
}

#[test]
fn a_nic_or_an_address_that_is_not_there() {
    let Some(rig) = Rig::new(Lab::builder().links(2).queues(2)) else { return };
    let at = &rig.at(Family::V4).to_string();
    refused(&rig, &["--nic", "nonesuch0", "--listen", at], 2, &["nonesuch0"]);
    refused(&rig, &["--nic", "rcv0:queues=0-2", "--listen", at], 2, &["rcv0", "queue 2", "2"]);
    refused(&rig, &["--nic", "rcv0:queues=7", "--listen", at], 2, &["rcv0", "7"]);
    refused(&rig, &["--nic", "rcv0", "--listen", "192.0.2.1:5000"], 2, &["192.0.2.1", "rcv0"]);
    refused(&rig, &["--nic", "rcv0", "--listen", "[2001:db8::1]:5000"], 2, &["2001:db8::1"]);
    // The address of the other NIC.
    refused(&rig, &["--nic", "rcv0", "--listen", "10.77.1.2:5000"], 2, &["10.77.1.2"]);
    refused(&rig, &["--nic", "rcv0", "--listen", "nowhere"], 2, &["nowhere"]);
    refused(&rig, &["--listen", at], 2, &["--nic"]);

    rig.tool(Side::Receiver, &["ip", "link", "set", "rcv1", "down"]);
    refused(&rig, &["--nic", "rcv1", "--listen", "10.77.1.2:5000"], 1, &["rcv1", "down"]);
}

#[test]
fn a_port_that_a_kernel_listener_has() {
    let Some(rig) = Rig::new(Lab::builder()) else { return };
    for (kind, listen) in [
        ("kernel-tcp", rig.at(Family::V4).to_string()),
        ("kernel-mptcp", rig.at(Family::V4).to_string()),
        ("kernel-tcp", "0.0.0.0:5000".to_owned()),
    ] {
        let mut command = rig.lab.command(Side::Receiver, BENCH);
        command.args(["receiver", "--kind", kind, "--listen", &listen]);
        let mut server = Running::start("kernel server", &mut command, &[]).expect("it starts");
        server
            .wait_for("listening on", super::harness::LIMIT, &mpxdp_bench::Interrupt::never())
            .expect("it listens");
        let at = rig.at(Family::V4).to_string();
        refused(&rig, &["--nic", "rcv0", "--listen", &at], 1, &[&at]);
    }
}

#[test]
fn a_nic_that_another_xdp_program_has() {
    let Some(rig) = Rig::new(Lab::builder()) else { return };
    let front = rig
        .lab
        .within(Side::Receiver, || Front::attach_pass("rcv0", AttachMode::Native))
        .expect("the namespace")
        .expect("it attaches");
    let at = rig.at(Family::V4).to_string();
    let mut command = rig.mpxdp(&["recv", "--nic", "rcv0", "--listen", &at]);
    let ended = finish(Running::start("mpxdp recv", &mut command, &[]).expect("it starts"));
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    for named in ["rcv0", "mpxdp_front", &front.program_id().to_string()] {
        assert!(ended.stderr.contains(named), "{named}: {}", ended.stderr);
    }
    let link = rig.tool(Side::Receiver, &["ip", "-d", "link", "show", "dev", "rcv0"]);
    assert!(link.contains(&format!("id {}", front.program_id())), "it was replaced: {link}");
    drop(front);
    rig.assert_detached();
}

#[test]
fn a_mode_that_does_not_work() {
    let Some(rig) = Rig::new(Lab::builder().mtu(9000)) else { return };
    let at = &rig.at(Family::V4).to_string();
    refused(&rig, &["--nic", "rcv0", "--listen", at, "--mode", "zerocopy"], 2, &["rcv0", "zero"]);
    refused(&rig, &["--nic", "rcv0", "--listen", at, "--mode", "fast"], 2, &["fast"]);
}

#[test]
fn an_output_that_cannot_be_written() {
    let Some(rig) = Rig::new(Lab::builder()) else { return };
    let at = rig.at(Family::V4).to_string();
    let start = ["recv", "--nic", "rcv0", "--listen", &at];
    let missing = rig.path("no/such/folder/file").to_string_lossy().into_owned();
    let folder = rig.path("").to_string_lossy().into_owned();
    for (option, path) in [
        ("--output", missing.as_str()),
        ("--report", missing.as_str()),
        ("--output", "/proc/nothing"),
        ("--report", folder.trim_end_matches('/')),
        ("--output", folder.trim_end_matches('/')),
    ] {
        let command = rig.mpxdp(&[&start[..], &[option, path]].concat());
        assert_refused(&rig, command, 2, &[option, path]);
    }
}

#[test]
fn no_privilege() {
    let Some(rig) = Rig::new(Lab::builder()) else { return };
    let at = rig.at(Family::V4).to_string();
    // Root by name only: with no capability but to read what belongs to others.
    let mut command = rig.lab.command(Side::Receiver, "setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all"]).arg(mpxdp());
    command.args(["recv", "--nic", "rcv0", "--listen", &at]);
    command.arg("--output").arg(rig.path("out"));
    assert_refused(&rig, command, 1, &["CAP_NET_ADMIN"]);
}
