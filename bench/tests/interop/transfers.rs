//! Every size of file over every kind of link arrives as it was sent.

use std::fs;

use mpxdp_bench::lab::{Family, Lab, Side};
use mpxdp_bench::traffic::sender;

use super::harness::{Connection, Received, Rig, assert_pattern};

/// Nothing, a byte, a segment's worth and one less and more, 64 KiB and one less and more, a lot.
const SIZES: [u64; 9] = [0, 1, 1447, 1448, 1449, 65_535, 65_536, 65_537, 256 << 20];

/// What the client does differently, beyond the address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    Default,
    WithoutTimestamps,
    WithoutWindowScaling,
    WithChecksum,
    PlainTcp,
}

impl Client {
    const ALL: [Self; 5] = [
        Self::Default,
        Self::WithoutTimestamps,
        Self::WithoutWindowScaling,
        Self::WithChecksum,
        Self::PlainTcp,
    ];

    /// The sysctl that makes the difference, its usual value and the other one.
    const fn sysctl(self) -> Option<(&'static str, &'static str, &'static str)> {
        match self {
            Self::Default | Self::PlainTcp => None,
            Self::WithoutTimestamps => Some(("net.ipv4.tcp_timestamps", "1", "0")),
            Self::WithoutWindowScaling => Some(("net.ipv4.tcp_window_scaling", "1", "0")),
            Self::WithChecksum => Some(("net.mptcp.checksum_enabled", "0", "1")),
        }
    }

    const fn protocol(self) -> &'static str {
        if matches!(self, Self::PlainTcp) { "tcp" } else { "mptcp" }
    }
}

fn transfer_all(mtu: u32, queues: u32, vlan: Option<u16>) {
    let Some(rig) = Rig::new(Lab::builder().mtu(mtu).queues(queues).vlan(vlan)) else { return };
    for client in Client::ALL {
        if let Some((name, _, value)) = client.sysctl() {
            rig.lab.sysctl(Side::Sender, name, value).expect("the kernel takes it");
        }
        for family in [Family::V4, Family::V6] {
            transfer(&rig, client, family, queues);
        }
        if let Some((name, usual, _)) = client.sysctl() {
            rig.lab.sysctl(Side::Sender, name, usual).expect("the kernel takes it");
        }
    }
    rig.assert_detached();
}

/// All sizes, one after another, to one receiver.
fn transfer(rig: &Rig, client: Client, family: Family, queues: u32) {
    let case = format!("{client:?} over {family:?}");
    let output = format!("{}/", rig.path("in").display());
    let recv = rig.recv(family, &["--output", &output]);
    let sent = SIZES.map(|size| {
        let arguments = ["--protocol", client.protocol(), "--hash", "--bytes", &size.to_string()];
        let report = rig.send(family, &arguments);
        let [connection] = &report.connections[..] else { panic!("{case}: {report:?}") };
        assert_eq!(connection.error, None, "{case}, {size} bytes: {report:?}");
        connection.clone()
    });
    let received = recv.stop();
    received.assert_code(0);
    received.assert_nothing_left();
    assert_nics(&received, queues);
    assert_eq!(received.report.connections.len(), SIZES.len(), "{case}");
    for ((connection, sent), size) in received.report.connections.iter().zip(&sent).zip(SIZES) {
        let case = format!("{case}, {size} bytes");
        assert_eq!((connection.bytes, sent.bytes), (size, size), "{case}");
        connection.assert_complete();
        assert_spoken(client, connection, sent, &case);
        let file = connection.output.as_ref().unwrap_or_else(|| panic!("{case}: no file"));
        assert_pattern(file, size);
        assert_eq!(sent.sha256.as_deref(), Some(super::harness::pattern().hash(size).as_str()));
    }
    fs::remove_dir_all(rig.path("in")).expect("the files can be removed");
}

/// Both ends agree on what was spoken, and it is what the client's settings allow.
fn assert_spoken(client: Client, connection: &Connection, sent: &sender::Connection, case: &str) {
    assert_eq!(sent.spoken.mptcp, connection.mptcp, "{case}: {sent:?}, {connection:?}");
    match client {
        Client::Default | Client::WithoutTimestamps | Client::WithoutWindowScaling => {
            assert!(connection.mptcp, "{case}: fell back: {connection:?}");
            assert_eq!(connection.fallback, None, "{case}");
        }
        // May be refused by falling back to TCP, but then with the reason.
        Client::WithChecksum if connection.mptcp => assert!(sent.spoken.checksum, "{case}"),
        Client::WithChecksum => assert!(connection.fallback.is_some(), "{case}: no reason"),
        Client::PlainTcp => {
            assert!(!connection.mptcp, "{case}");
            assert_eq!(connection.fallback, None, "{case}: nobody asked for MPTCP");
        }
    }
}

fn assert_nics(received: &Received, queues: u32) {
    let [nic] = &received.report.nics[..] else { panic!("{:#?}", received.report.nics) };
    assert_eq!((nic.name.as_str(), nic.mode.as_str()), ("rcv0", "native"));
    assert!(!nic.zero_copy, "veth has no zero copy");
    assert_eq!(nic.queues, (0..queues).collect::<Vec<_>>());
    let packets: u64 = received.report.workers.iter().map(|worker| worker.packets).sum();
    assert!(packets > 0);
    for connection in &received.report.connections {
        let [subflow] = &connection.subflows[..] else { panic!("{connection:#?}") };
        assert!(subflow.queue < queues, "{connection:#?}");
    }
    for worker in &received.report.workers {
        for (reason, count) in &worker.drops {
            // A window that shuts may cost some; a packet misread would show under another name.
            let misread = ["checksum", "tcp_offset", "ip_", "tcp_truncated", "ethernet"];
            let bad = misread.iter().any(|name| reason.contains(name));
            assert!(!bad || *count == 0, "{count} packets dropped as {reason}");
        }
    }
}

#[test]
fn at_mtu_1500() {
    transfer_all(1500, 1, None);
}

#[test]
fn at_mtu_1500_with_4_queues() {
    transfer_all(1500, 4, None);
}

#[test]
fn at_mtu_1500_with_a_vlan() {
    transfer_all(1500, 1, Some(100));
}

#[test]
fn at_mtu_9000() {
    transfer_all(9000, 1, None);
}

#[test]
fn at_mtu_9000_with_4_queues_and_a_vlan() {
    transfer_all(9000, 4, Some(4094));
}

#[test]
fn at_mtu_65535() {
    transfer_all(65535, 1, None);
}

#[test]
fn at_mtu_65535_with_4_queues() {
    transfer_all(65535, 4, None);
}

/// A mode that is named is the one that is used, at every MTU, or it is an error.
#[test]
fn in_every_mode_that_can_be_named() {
    for mtu in [1500, 9000, 65535] {
        let Some(rig) = Rig::new(Lab::builder().mtu(mtu)) else { return };
        for (mode, xdp) in [("copy", "native"), ("skb", "generic"), ("auto", "native")] {
            let path = rig.path(mode);
            let output = path.to_string_lossy();
            let recv = rig.recv(Family::V4, &["--output", &output, "--mode", mode]);
            let sent = rig.send(Family::V4, &["--bytes", "10000000"]);
            assert_eq!(sent.connections[0].error, None, "{mode} at MTU {mtu}");
            let received = recv.finish();
            received.assert_code(0);
            received.only().assert_complete();
            assert_pattern(&path, 10_000_000);
            assert_eq!(received.report.nics[0].mode, xdp, "{mode} at MTU {mtu}");
        }
        rig.assert_detached();
    }
}
