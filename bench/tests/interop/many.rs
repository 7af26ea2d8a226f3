//! Many connections, one after another and at once.

use mpxdp_bench::lab::{Family, Lab};
use mpxdp_bench::traffic::sender;

use super::harness::{Received, Rig, assert_pattern, finish};
use super::net::Net;

fn check(received: &Received, count: usize, size: u64) {
    received.assert_code(0);
    received.assert_nothing_left();
    assert_eq!(received.report.connections.len(), count);
    for connection in &received.report.connections {
        assert_eq!(connection.bytes, size, "{connection:#?}");
        connection.assert_complete();
    }
}

#[test]
fn five_hundred_connections_one_after_another() {
    let Some(rig) = Rig::new(Lab::builder().queues(2)) else { return };
    for protocol in ["mptcp", "tcp"] {
        let recv = rig.recv(Family::V4, &[]);
        let arguments = ["--protocol", protocol, "--connections", "500", "--bytes", "20000"];
        let sent = rig.send(Family::V4, &arguments);
        let failed: Vec<_> = sent.connections.iter().filter(|c| c.error.is_some()).collect();
        assert!(failed.is_empty(), "{failed:#?}");
        let received = recv.stop();
        check(&received, 500, 20_000);
        assert!(received.report.connections.iter().all(|c| c.mptcp == (protocol == "mptcp")));
    }
    rig.assert_detached();
}

#[test]
fn fifty_connections_at_once() {
    let Some(rig) = Rig::new(Lab::builder().queues(4).mtu(9000)) else { return };
    let output = format!("{}/", rig.path("in").display());
    for family in [Family::V4, Family::V6] {
        let recv = rig.recv(family, &["--output", &output]);
        // Slow enough that all of them are open at the same time.
        let arguments = ["--connections", "50", "--parallel", "50"];
        let content = ["--bytes", "1000000", "--rate", "1000000", "--write-size", "10000"];
        let sent = rig.send(family, &[arguments.as_slice(), &content].concat());
        let failed: Vec<_> = sent.connections.iter().filter(|c| c.error.is_some()).collect();
        assert!(failed.is_empty(), "{failed:#?}");
        let received = recv.stop();
        check(&received, 50, 1_000_000);
        for connection in &received.report.connections {
            assert!(connection.mptcp);
            assert_pattern(connection.output.as_ref().expect("a file"), 1_000_000);
        }
    }
}

/// 800 subflows of 200 clients, which all are there at the same time.
#[test]
fn two_hundred_connections_of_four_subflows_at_once() {
    const SIZE: u64 = 1_000_000;
    let Some(net) = Net::new(Lab::builder(), 2, 2, &[]) else { return };
    net.endpoints(Family::V4, 4);
    let output = format!("{}/", net.output().display());
    let arguments = ["--announce", "none", "--output", &output];
    let recv = net.recv_with(Family::V4, &arguments);
    let sender = net.rig.sender(
        Family::V4,
        &[
            "--connections",
            "200",
            "--parallel",
            "200",
            "--bytes",
            &SIZE.to_string(),
            "--rate",
            "150000",
            "--write-size",
            "10000",
            "--patience",
            "60",
        ],
    );
    let sent: sender::Report = finish(sender).json().expect("the sender's report");
    let received = recv.stop();
    let failed: Vec<_> = sent.connections.iter().filter(|c| c.error.is_some()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    check(&received, 200, SIZE);
    received.assert_owned();
    for connection in &received.report.connections {
        assert_eq!((connection.mptcp, connection.subflows.len()), (true, 4), "{connection:#?}");
        assert_pattern(connection.output.as_ref().expect("a file"), SIZE);
    }
}
