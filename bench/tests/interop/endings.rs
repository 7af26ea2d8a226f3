//! Connections that do not go as planned: error or full data, never wrong data, never a hang.

use std::io::Read;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use mpxdp_bench::lab::{Family, Lab, Running, Side};
use nix::sys::signal::Signal;

use super::harness::{Received, Recv, Rig, assert_pattern, compare, finish};

/// The only connection's file holds what the sender sent, as far as it goes; returns how far.
fn assert_prefix(rig: &Rig, received: &Received) -> u64 {
    let connection = received.only();
    let files: Vec<_> = std::fs::read_dir(rig.path("in"))
        .map(|folder| folder.flatten().map(|file| file.path()).collect())
        .unwrap_or_default();
    let [file] = &files[..] else { panic!("not one file: {files:?}") };
    let (differs, length) = compare(file);
    assert_eq!(differs, None, "wrong data in {file:?}");
    assert_eq!(length, connection.bytes, "{connection:#?}");
    length
}

fn recv_to_folder(rig: &Rig, more: &[&str]) -> Recv {
    let output = format!("{}/", rig.path("in").display());
    let arguments = [&["--output", &output, "--connections", "1"], more].concat();
    rig.recv(Family::V4, &arguments)
}

#[test]
fn a_killed_sender_ends_in_an_error_or_in_what_its_kernel_had() {
    for protocol in ["mptcp", "tcp"] {
        let Some(rig) = Rig::new(Lab::builder()) else { return };
        let recv = recv_to_folder(&rig, &[]);
        let arguments = ["--protocol", protocol, "--seconds", "60", "--rate", "50000000"];
        let sender = rig.sender(Family::V4, &arguments);
        thread::sleep(Duration::from_secs(1));
        sender.signal(Signal::SIGKILL).expect("it runs");
        finish(sender);
        let received = recv.finish();
        received.assert_frames_home();
        assert!(assert_prefix(&rig, &received) > 0);
        let connection = received.only();
        assert_eq!(connection.mptcp, protocol == "mptcp");
        // The kernel sends what it had taken and ends the stream; that is the end of it.
        let whole = matches!(connection.closed.as_str(), "data_fin" | "fin");
        assert_eq!(connection.error.is_none(), whole, "{connection:#?}");
        received.assert_code(i32::from(!whole));
    }
}

#[test]
fn a_sender_that_resets_is_an_error() {
    for (protocol, family) in [("mptcp", Family::V4), ("tcp", Family::V4)] {
        let Some(rig) = Rig::new(Lab::builder().mtu(9000)) else { return };
        let recv = recv_to_folder(&rig, &[]);
        let arguments = ["--protocol", protocol, "--bytes", "50000000", "--reset"];
        let sent = rig.send(family, &arguments);
        assert_eq!(sent.connections[0].error, None);
        let received = recv.finish();
        received.assert_frames_home();
        assert!(assert_prefix(&rig, &received) <= 50_000_000);
        let connection = received.only();
        assert!(matches!(connection.closed.as_str(), "reset" | "fastclose"), "{connection:#?}");
        assert!(connection.error.is_some(), "{connection:#?}");
        received.assert_code(1);
        rig.assert_detached();
    }
}

#[test]
fn a_link_that_is_down_for_three_seconds_delays_but_does_not_damage() {
    for side in Side::BOTH {
        let Some(rig) = Rig::new(Lab::builder().mtu(9000)) else { return };
        let recv = recv_to_folder(&rig, &[]);
        // Five seconds at this rate.
        let arguments = ["--bytes", "100000000", "--rate", "20000000", "--patience", "60"];
        let sender = rig.sender(Family::V4, &arguments);
        thread::sleep(Duration::from_secs(1));
        let interface = rig.lab.interface(side, 0);
        rig.tool(side, &["ip", "link", "set", &interface, "down"]);
        thread::sleep(Duration::from_secs(3));
        rig.tool(side, &["ip", "link", "set", &interface, "up"]);
        let sent = finish(sender);
        let received = recv.finish();
        received.assert_frames_home();
        let length = assert_prefix(&rig, &received);
        assert!(sent.status.success(), "{}\n{received:#?}", String::from_utf8_lossy(&sent.stdout));
        assert_eq!(length, 100_000_000, "{side:?}");
        received.only().assert_complete();
        received.assert_code(0);
    }
}

#[test]
fn a_reader_that_stops_for_five_seconds_loses_nothing() {
    for protocol in ["mptcp", "tcp"] {
        let Some(rig) = Rig::new(Lab::builder().mtu(9000)) else { return };
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let (mut command, report) =
            rig.recv_command(Family::V4, &["--output", "-", "--connections", "1"]);
        command.stdout(writer).stderr(Stdio::piped());
        let running = Running::start_with("mpxdp recv", &mut command, &[]).expect("it starts");
        // The command holds our end for writing, without which the pipe has no end.
        drop(command);
        let recv = Recv::listening(running, report);
        const SIZE: u64 = 200_000_000;
        let arguments = ["--protocol", protocol, "--bytes", &SIZE.to_string()];
        let sender = rig.sender(Family::V4, &arguments);
        let path = rig.path("read");
        let mut file = std::fs::File::create(&path).expect("a file");
        let mut first = (&mut reader).take(30_000_000);
        std::io::copy(&mut first, &mut file).expect("data");
        // Pipe, ring and window are full long before this is over; the sender has to probe.
        thread::sleep(Duration::from_secs(5));
        std::io::copy(&mut reader, &mut file).expect("the rest");
        assert_pattern(&path, SIZE);
        assert!(finish(sender).status.success());
        let received = recv.finish();
        received.assert_code(0);
        received.assert_frames_home();
        received.only().assert_complete();
    }
}
