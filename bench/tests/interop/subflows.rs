//! Connections of several subflows over several clean links: what the kernel's path manager opens,
//! because of its own endpoints or because we announce addresses.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use mpxdp_bench::lab::{Family, Lab, Side};

use super::net::{Done, MIB, Net, size};

/// What a case sends if not more is asked for, see [`size`].
const USUAL: u64 = 96 * MIB;

/// Who opens the further subflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opened {
    /// The client's own endpoints, towards the address it connected to.
    ByEndpoints,
    /// The client, towards all the addresses that we announce by ourselves.
    ByAnnouncement,
}

/// What the connection's addresses are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Addresses {
    V4,
    V6,
    /// Of a client's IPv6 socket, which takes IPv4 subflows too.
    Mixed,
}

impl Addresses {
    /// What the client connects by.
    fn first(self) -> Family {
        if self == Self::V4 { Family::V4 } else { Family::V6 }
    }

    fn families(self) -> &'static [Family] {
        match self {
            Self::V4 => &[Family::V4],
            Self::V6 => &[Family::V6],
            Self::Mixed => &[Family::V4, Family::V6],
        }
    }
}

/// A transfer over clean links.
#[derive(Clone, Copy, Debug)]
struct Case {
    links: u32,
    queues: u32,
    mtu: u32,
    subflows: u32,
    opened: Opened,
    addresses: Addresses,
    bytes: u64,
}

impl Case {
    fn by_endpoints(links: u32, subflows: u32) -> Self {
        let (opened, addresses) = (Opened::ByEndpoints, Addresses::V4);
        Self { links, queues: 1, mtu: 1500, subflows, opened, addresses, bytes: size(USUAL) }
    }

    fn by_announcement(links: u32, subflows: u32) -> Self {
        Self { opened: Opened::ByAnnouncement, ..Self::by_endpoints(links, subflows) }
    }

    fn over(self, addresses: Addresses) -> Self {
        // With another MTU too, for the sake of variety.
        Self { addresses, mtu: if addresses == Addresses::V6 { 9000 } else { 1500 }, ..self }
    }

    fn queues(self, queues: u32) -> Self {
        Self { queues, ..self }
    }

    /// Always of the size that others have with `MPXDP_FULL_TRANSFERS=1` only.
    fn full(self) -> Self {
        Self { bytes: 1024 * MIB, ..self }
    }

    /// Runs it; every link, and every worker where each has a link of its own, must have taken part.
    fn run(self) {
        println!("{self:?}");
        let Self { links, queues, mtu, subflows, opened, addresses, bytes } = self;
        let Some(net) = Net::new(Lab::builder().mtu(mtu), links, queues, &[]) else { return };
        let announce = match opened {
            Opened::ByEndpoints => {
                assert_ne!(addresses, Addresses::Mixed, "endpoints join where the first one went");
                net.endpoints(addresses.first(), subflows);
                "none"
            }
            Opened::ByAnnouncement => {
                net.limits(8, 8);
                // A client by IPv4 leaves our IPv6 addresses alone, one by IPv6 takes all there are.
                if addresses == Addresses::V6 {
                    for link in 0..links {
                        net.rig.tool(
                            Side::Receiver,
                            &[
                                "ip",
                                "-4",
                                "address",
                                "flush",
                                "dev",
                                &net.rig.lab.interface(Side::Receiver, link),
                            ],
                        );
                    }
                }
                let families = addresses.families();
                for number in 1..subflows / (links * families.len() as u32) {
                    for link in 0..links {
                        for &family in families {
                            net.add_address(Side::Receiver, link, family, number);
                        }
                    }
                }
                "auto"
            }
        };
        let done = net.transfer(addresses.first(), announce, bytes);
        done.assert_subflows(subflows as usize);
        done.assert_carried(0..links.min(subflows));
        self.assert_targets(&net, &done);
        if queues == 1 {
            let workers: BTreeSet<_> = done.subflows().iter().map(|one| one.worker).collect();
            assert_eq!(workers.len(), done.received.report.workers.len(), "every worker had one");
        }
        let ports = done.received.report.ports.len();
        assert_eq!(ports as u32, links * queues, "every queue has its socket");
    }

    /// The subflows came to where they were to come.
    fn assert_targets(self, net: &Net, done: &Done) {
        let mut expected = Vec::new();
        match self.opened {
            Opened::ByEndpoints => {
                let at = net.target(0, self.addresses.first());
                expected.resize(self.subflows as usize, at);
            }
            Opened::ByAnnouncement => {
                let families = self.addresses.families();
                for number in 0..self.subflows / (self.links * families.len() as u32) {
                    for link in 0..self.links {
                        for &family in families {
                            let address = net.address(Side::Receiver, link, family, number);
                            expected.push((address, net.target(link, family).port()).into());
                        }
                    }
                }
            }
        }
        let mut found: Vec<_> = done.subflows().iter().map(|subflow| subflow.local).collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{:#?}", done.connection());
    }
}

#[test]
fn two_by_the_clients_endpoints_over_two_links() {
    Case::by_endpoints(2, 2).run();
    Case::by_endpoints(2, 2).over(Addresses::V6).run();
}

#[test]
fn four_by_the_clients_endpoints_over_two_links() {
    Case::by_endpoints(2, 4).full().run();
    Case::by_endpoints(2, 4).over(Addresses::V6).run();
}

#[test]
fn eight_by_the_clients_endpoints_over_two_links() {
    Case::by_endpoints(2, 8).run();
    Case::by_endpoints(2, 8).over(Addresses::V6).run();
}

#[test]
fn two_by_the_clients_endpoints_over_four_links() {
    Case::by_endpoints(4, 2).over(Addresses::V6).run();
    Case::by_endpoints(4, 2).run();
}

#[test]
fn four_by_the_clients_endpoints_over_four_links() {
    Case::by_endpoints(4, 4).run();
    Case::by_endpoints(4, 4).over(Addresses::V6).run();
}

#[test]
fn eight_by_the_clients_endpoints_over_four_links() {
    Case::by_endpoints(4, 8).over(Addresses::V6).full().run();
    Case::by_endpoints(4, 8).run();
}

#[test]
fn two_because_we_announce_over_two_links() {
    Case::by_announcement(2, 2).run();
    Case::by_announcement(2, 2).over(Addresses::V6).run();
}

#[test]
fn four_because_we_announce_over_two_links() {
    Case::by_announcement(2, 4).run();
    Case::by_announcement(2, 4).over(Addresses::V6).run();
    Case::by_announcement(2, 4).over(Addresses::Mixed).run();
}

#[test]
fn eight_because_we_announce_over_two_links() {
    Case::by_announcement(2, 8).over(Addresses::V6).run();
    Case::by_announcement(2, 8).over(Addresses::Mixed).run();
    Case::by_announcement(2, 8).run();
}

#[test]
fn four_because_we_announce_over_four_links() {
    Case::by_announcement(4, 4).run();
    Case::by_announcement(4, 4).over(Addresses::V6).run();
}

#[test]
fn eight_because_we_announce_over_four_links() {
    Case::by_announcement(4, 8).over(Addresses::Mixed).full().run();
    Case::by_announcement(4, 8).run();
    Case::by_announcement(4, 8).over(Addresses::V6).run();
}

/// Each NIC has several queues, on one worker each as far as there are CPUs: whichever queue the
/// packets of a subflow come in by, it belongs to a worker that has such a queue.
#[test]
fn with_several_queues_a_nic() {
    Case::by_endpoints(2, 8).queues(4).run();
    Case::by_endpoints(4, 8).queues(2).over(Addresses::V6).run();
    Case::by_announcement(2, 4).queues(2).over(Addresses::Mixed).run();
    Case::by_announcement(4, 8).queues(4).over(Addresses::Mixed).run();
}

/// A client that does not follow announcements stays with its only subflow.
#[test]
fn announcements_that_the_client_does_not_follow() {
    let Some(net) = Net::new(Lab::builder(), 2, 1, &[]) else { return };
    net.limits(8, 0);
    let done = net.transfer(Family::V4, "auto", 32 * MIB);
    done.assert_subflows(1);
    assert_eq!(done.over(1), 0);
}

/// The client announces an address of its own, which means that we might open a subflow there. We
/// echo that and open none; the client's other endpoints do what they would do without.
#[test]
fn announcements_of_the_client() {
    for family in [Family::V4, Family::V6] {
        for others in [1, 2] {
            let Some(net) = Net::new(Lab::builder(), 2, 1, &[]) else { return };
            net.endpoints(family, others);
            net.add_address(Side::Sender, 1, family, 5);
            net.endpoint(9, 1, net.source(1, family, 5), &["signal"]);
            let done = net.transfer(family, "auto", 64 * MIB);
            done.assert_subflows(others as usize);
            done.assert_carried(0..others);
            assert_eq!(net.counter("MPTcpExtAddAddrTx"), 1, "it is announced once");
            assert_eq!(net.counter("MPTcpExtEchoAdd"), 1, "and echoed once");
            assert_eq!(net.counter("MPTcpExtMPJoinSynRx"), 0, "we open nothing");
        }
    }
}

#[test]
fn checksums_are_kept_over_all_subflows() {
    for (family, announce) in
        [(Family::V4, "none"), (Family::V4, "auto"), (Family::V6, "none"), (Family::V6, "auto")]
    {
        let Some(net) = Net::new(Lab::builder(), 2, 1, &[]) else { return };
        net.use_checksums();
        if announce == "none" {
            net.endpoints(family, 4);
        } else {
            net.limits(8, 8);
        }
        let done = net.transfer(family, announce, 64 * MIB);
        assert!(done.sent.spoken.checksum, "{:?}", done.sent);
        let v4_only = announce == "auto" && family == Family::V4;
        done.assert_subflows(if v4_only { 2 } else { 4 });
        done.assert_carried(0..2);
        assert_eq!(net.counter("MPTcpExtDataCsumErr"), 0);
    }
}

/// Endpoints come and go while data flows, that of the first subflow included.
#[test]
fn endpoints_added_and_removed_on_the_way() {
    for family in [Family::V4, Family::V6] {
        let Some(net) = Net::new(Lab::builder(), 4, 1, &[]) else { return };
        net.limits(8, 0);
        let recv = net.recv(family, "none");
        // Twice as long as what follows takes on an idle machine.
        let bytes = size(128 * MIB);
        let rounds = 2 * bytes / (128 * MIB);
        let sender = net.sender(family, bytes, &["--rate", "24000000"]);
        let pause = || thread::sleep(Duration::from_millis(200));
        for _ in 0..rounds {
            for link in 1..4 {
                pause();
                net.endpoint(link, link, net.source(link, family, 0), &["subflow"]);
            }
            for link in 1..4 {
                pause();
                net.remove_endpoint(link);
            }
        }
        net.endpoint(1, 1, net.source(1, family, 0), &["subflow"]);
        pause();
        let first = net.source(0, family, 0).to_string();
        net.client(&["ip", "mptcp", "endpoint", "delete", "id", "0", &first]);
        let done = net.done(recv, sender, bytes);
        done.assert_subflows(2 + 3 * rounds as usize);
        done.assert_carried(0..4);
        let (last, before) = done.subflows().split_last().expect("the last");
        assert_eq!(last.nic, "rcv1");
        assert!(before.iter().all(|subflow| !subflow.live), "{:#?}", done.connection());
    }
}

/// `--connections 1` closes the listener as soon as that one is there; what the client opens later
/// joins it all the same, at the first address and at those that were announced.
#[test]
fn joins_after_the_listener_was_closed() {
    for (family, announce) in [(Family::V4, "none"), (Family::V6, "auto")] {
        let Some(net) = Net::new(Lab::builder(), 2, 1, &[]) else { return };
        net.limits(8, 0);
        let output = format!("{}/", net.output().display());
        let arguments = ["--announce", announce, "--connections", "1", "--output", &output];
        let recv = net.recv_with(family, &arguments);
        let sender = net.sender(family, 64 * MIB, &["--rate", "40000000"]);
        thread::sleep(Duration::from_millis(500));
        // Whoever comes now finds nobody.
        let late = net.rig.send(family, &["--bytes", "1000", "--patience", "1"]);
        assert!(late.connections[0].error.is_some(), "{late:#?}");
        let before = net.counter("MPTcpExtMPJoinSynAckRx");
        net.endpoint(1, 1, net.source(1, family, 0), &["subflow"]);
        let done = net.done_by_itself(recv, sender, 64 * MIB);
        assert_eq!(net.counter("MPTcpExtMPJoinSynAckRx"), before + 1);
        done.assert_subflows(2);
        done.assert_carried(0..2);
    }
}
