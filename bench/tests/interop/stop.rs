//! The end of `mpxdp recv` itself: nothing is left behind, whichever way it goes.

use std::thread;
use std::time::Duration;

use mpxdp_bench::lab::{Family, Lab, Running, Side};
use nix::sys::signal::Signal;

use super::harness::{BENCH, PORT, Rig, compare, finish};

/// A kernel receiver at the same address and port gets what is sent, at once.
fn assert_kernel_takes_over(rig: &Rig) {
    let mut command = rig.lab.command(Side::Receiver, BENCH);
    let at = rig.at(Family::V4).to_string();
    command.args(["receiver", "--kind", "kernel-mptcp", "--listen", &at, "--hash"]);
    let receiver = Running::start("kernel receiver", &mut command, &[]).expect("it starts");
    let sent = rig.send(Family::V4, &["--bytes", "1000000", "--hash", "--retry", "10"]);
    assert_eq!(sent.connections[0].error, None);
    let report: mpxdp_bench::traffic::receiver::Report =
        finish(receiver).json().expect("its report");
    assert_eq!(report.connections[0].sha256, sent.connections[0].sha256);
    assert!(report.connections[0].spoken.mptcp);
}

#[test]
fn sigkill_leaves_no_program_and_the_kernel_goes_on() {
    let Some(rig) = Rig::new(Lab::builder().mtu(9000).queues(2)) else { return };
    let recv = rig.recv(Family::V4, &["--output", "null"]);
    let sender = rig.sender(Family::V4, &["--seconds", "30", "--rate", "100000000"]);
    thread::sleep(Duration::from_millis(700));
    let link = rig.tool(Side::Receiver, &["ip", "-d", "link", "show", "dev", "rcv0"]);
    assert!(link.contains("prog/xdp"), "no program is attached to be left behind: {link}");
    recv.running.signal(Signal::SIGKILL).expect("it runs");
    finish(recv.running);
    rig.assert_detached();
    assert_kernel_takes_over(&rig);
    // The kernel resets the killed process's connection, which it knows nothing of; but a Linux
    // MPTCP client without a subflow waits for another one for a minute before it gives up.
    drop(sender);
}

#[test]
fn sigint_and_sigterm_end_it_cleanly_with_its_report() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let Some(rig) = Rig::new(Lab::builder()) else { return };
        // With nothing open.
        let recv = rig.recv(Family::V4, &["--output", "null"]);
        recv.running.signal(signal).expect("it runs");
        let received = recv.finish();
        received.assert_code(0);
        assert_eq!(received.report.ended, "signal");
        assert!(received.report.connections.is_empty());
        rig.assert_detached();

        // With a connection open, whose data is then incomplete.
        let path = rig.path("out");
        let recv = rig.recv(Family::V4, &["--output", &path.to_string_lossy()]);
        let sender = rig.sender(Family::V4, &["--seconds", "60", "--rate", "20000000"]);
        thread::sleep(Duration::from_millis(700));
        recv.running.signal(signal).expect("it runs");
        let received = recv.finish();
        received.assert_code(1);
        assert_eq!(received.report.ended, "signal");
        let connection = received.only();
        assert!(connection.bytes > 0 && connection.error.is_some(), "{connection:#?}");
        assert_eq!(connection.local.port(), PORT);
        assert!(!finish(sender).status.success(), "the sender must learn that it was cut short");
        if path.exists() {
            assert_eq!(compare(&path).0, None);
        }
        rig.assert_detached();
        assert_kernel_takes_over(&rig);
    }
}

#[test]
fn it_can_be_started_again_at_once() {
    let Some(rig) = Rig::new(Lab::builder().queues(4)) else { return };
    for round in 0..5 {
        let recv = rig.recv(Family::V4, &["--connections", "1"]);
        let sent = rig.send(Family::V4, &["--bytes", "100000"]);
        assert_eq!(sent.connections[0].error, None, "round {round}");
        recv.finish().assert_code(0);
    }
}
