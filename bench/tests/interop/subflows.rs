//! Connections of several subflows over several links, each link a NIC with a worker of its own: what
//! the kernel's path manager opens, and what happens to the links meanwhile.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZero;
use std::ops::Range;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use mpxdp_bench::lab::{Builder, Family, Lab, Running, Side};
use mpxdp_bench::traffic::sender;

use super::harness::{
    Connection, PORT, Received, Recv, Rig, Subflow, assert_pattern, finish, pattern,
};

/// What every link of ill repute does, besides its delay.
const BAD: &str = "loss=1%,reorder=5%:2ms,dup=1%,corrupt=0.1%";

const MIB: u64 = 1 << 20;

/// A rig of several links, the receiver's on as many workers as there are CPUs for.
struct Net {
    rig: Rig,
    links: u32,
}

/// Who opens the further subflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opened {
    /// The client's own endpoints, towards the address it connected to.
    ByEndpoints,
    /// The client, towards the addresses that we announce.
    ByAnnouncement,
}

/// A transfer that went well.
struct Done {
    received: Received,
    sent: sender::Connection,
}

impl Net {
    /// None if privilege is lacking. Relays are described link by link, "" is none.
    fn new(builder: Builder, links: u32, relays: &[&str]) -> Option<Self> {
        let used = (0..).zip(relays).filter(|(_, chain)| !chain.is_empty());
        let builder = used.fold(builder.links(links), |builder, (link, chain)| {
            builder.relay(link, &chain.parse().unwrap_or_else(|error| panic!("{error}")))
        });
        let net = Self { rig: Rig::new(builder)?, links };
        net.add_ways();
        Some(net)
    }

    /// The receiver's first address can be reached over every link, by sockets that are bound to it.
    fn add_ways(&self) {
        for link in 1..self.links {
            let interface = self.rig.lab.interface(Side::Sender, link);
            for (to, family) in [("10.77.0.0/24", Family::V4), ("fd77::/64", Family::V6)] {
                let via = self.rig.lab.address(Side::Receiver, link, family).to_string();
                let metric = (5000 + link).to_string();
                let way = ["ip", "route", "add", to, "via", &via, "dev", &interface];
                self.client(&[&way[..], &["metric", &metric]].concat());
            }
        }
    }

    /// Runs a tool at the client.
    fn client(&self, arguments: &[&str]) {
        self.rig.tool(Side::Sender, arguments);
    }

    /// The client asks for checksums of the data.
    fn use_checksums(&self) {
        let set = self.rig.lab.sysctl(Side::Sender, "net.mptcp.checksum_enabled", "1");
        set.expect("the kernel takes it");
    }

    /// How many further subflows the client opens, and whether it follows announcements.
    fn limits(&self, subflows: u32, accepted: u32) {
        let (subflows, accepted) = (subflows.to_string(), accepted.to_string());
        let set = ["ip", "mptcp", "limits", "set", "subflow", &subflows];
        self.client(&[&set[..], &["add_addr_accepted", &accepted]].concat());
    }

    /// The client's address on a link, the first or a further one.
    fn source(&self, link: u32, family: Family, number: u32) -> IpAddr {
        match self.rig.lab.address(Side::Sender, link, family) {
            address if number == 0 => address,
            IpAddr::V4(address) => IpAddr::V4((u32::from(address) + (number << 4)).into()),
            IpAddr::V6(address) => {
                IpAddr::V6((u128::from(address) + (u128::from(number) << 4)).into())
            }
        }
    }

    /// Gives the client a further address on a link, which it chooses for nothing by itself.
    fn add_source(&self, link: u32, family: Family, number: u32) {
        let interface = self.rig.lab.interface(Side::Sender, link);
        let address = self.source(link, family, number);
        match family {
            Family::V4 => {
                self.client(&["ip", "address", "add", &format!("{address}/24"), "dev", &interface]);
            }
            Family::V6 => {
                let add = ["ip", "address", "add", &format!("{address}/64"), "dev", &interface];
                self.client(&[&add[..], &["nodad", "preferred_lft", "0"]].concat());
            }
        }
    }

    /// Adds an endpoint of the client; existing connections use it at once.
    fn endpoint(&self, id: u32, link: u32, address: IpAddr, flags: &[&str]) {
        let (id, address) = (id.to_string(), address.to_string());
        let interface = self.rig.lab.interface(Side::Sender, link);
        let add = ["ip", "mptcp", "endpoint", "add", &address, "dev", &interface, "id", &id];
        self.client(&[&add[..], flags].concat());
    }

    /// Removes an endpoint of the client, and its subflows.
    fn remove_endpoint(&self, id: u32) {
        self.client(&["ip", "mptcp", "endpoint", "delete", "id", &id.to_string()]);
    }

    /// Endpoints for so many subflows in all, the first one included.
    fn endpoints(&self, family: Family, subflows: u32) {
        self.limits(8, 0);
        for id in 1..subflows {
            let (link, number) = (id % self.links, id / self.links);
            if number > 0 {
                self.add_source(link, family, number);
            }
            self.endpoint(id, link, self.source(link, family, number), &["subflow"]);
        }
    }

    /// Starts `mpxdp recv` on all links, writing to a file.
    fn recv(&self, family: Family, announce: &str) -> Recv {
        let report = self.rig.path("report.json");
        let cpus = thread::available_parallelism().map_or(1, NonZero::get).min(2);
        let mut command = self.rig.mpxdp(&["recv", "--announce", announce]);
        for link in 0..self.links {
            command.arg("--nic").arg(format!("rcv{link}:cpus={}", link as usize % cpus));
        }
        command.args(["--listen", &self.rig.at(family).to_string(), "--connections", "9"]);
        command.arg("--output").arg(format!("{}/", self.output().display()));
        command.arg("--report").arg(&report);
        Recv::listening(Running::start("mpxdp recv", &mut command, &[]).expect("it starts"), report)
    }

    fn output(&self) -> PathBuf {
        self.rig.path("in")
    }

    fn sender(&self, family: Family, bytes: u64, more: &[&str]) -> Running {
        let bytes = bytes.to_string();
        let arguments = ["--hash", "--patience", "60", "--bytes", &bytes];
        self.rig.sender(family, &[&arguments[..], more].concat())
    }

    /// One transfer, from beginning to end, slow enough for the kernel's path manager, which is in no
    /// hurry while the sender is busy.
    fn transfer(&self, family: Family, announce: &str, bytes: u64) -> Done {
        let recv = self.recv(family, announce);
        let sender = self.sender(family, bytes, &["--rate", "80000000"]);
        self.done(recv, sender, bytes)
    }

    /// Waits for the end; what arrived is what was sent, and nothing is left of it.
    fn done(&self, recv: Recv, sender: Running, bytes: u64) -> Done {
        let ended = finish(sender);
        let received = recv.stop();
        let sent: sender::Report = ended.json().expect("the sender's report");
        let [sent] = &sent.connections[..] else { panic!("{sent:#?}") };
        let connection = received.only();
        assert_eq!(sent.error, None, "{connection:#?}");
        assert_eq!((sent.bytes, connection.bytes), (bytes, bytes), "{connection:#?}");
        connection.assert_complete();
        assert_eq!(sent.spoken.mptcp, connection.mptcp, "{sent:?}, {connection:#?}");
        let file = connection.output.as_ref().expect("a file");
        assert_pattern(file, bytes);
        assert_eq!(sent.sha256.as_deref(), Some(pattern().hash(bytes).as_str()));
        fs::remove_dir_all(self.output()).expect("the file can be removed");
        received.assert_code(0);
        assert_nothing_left(&received);
        assert_owned(&received);
        Done { sent: sent.clone(), received }
    }

    /// The receiver's address on a link.
    fn target(&self, link: u32, family: Family) -> SocketAddr {
        (self.rig.lab.address(Side::Receiver, link, family), PORT).into()
    }
}

impl Done {
    fn connection(&self) -> &Connection {
        self.received.only()
    }

    fn subflows(&self) -> &[Subflow] {
        &self.connection().subflows
    }

    /// Bytes that came in over a link.
    fn over(&self, link: u32) -> u64 {
        let name = format!("rcv{link}");
        self.subflows().iter().filter(|one| one.nic == name).map(|one| one.bytes).sum()
    }

    /// It was MPTCP to its end, by so many subflows.
    fn assert_subflows(&self, count: usize) {
        let connection = self.connection();
        assert!(connection.mptcp, "{connection:#?}");
        assert_eq!(connection.fallback, None, "{connection:#?}");
        assert_eq!(connection.subflows.len(), count, "{connection:#?}");
    }

    /// All of these links carried data.
    fn assert_carried(&self, links: Range<u32>) {
        for link in links {
            assert!(self.over(link) > 0, "nothing came over link {link}: {:#?}", self.connection());
        }
    }
}

/// No frame and no live subflow is left. Where the FINs of both ends cross, as they may on any subflow
/// once the connection's end is acknowledged on another, ours is in TIME_WAIT.
fn assert_nothing_left(received: &Received) {
    received.assert_frames_home();
    let workers = &received.report.workers;
    assert!(workers.iter().all(|worker| worker.tables.subflows == 0), "{workers:#?}");
    let waiting: usize = workers.iter().map(|worker| worker.tables.time_wait).sum();
    assert!(waiting <= received.only().subflows.len(), "{workers:#?}");
}

/// The worker of each subflow is the one that its queue belongs to.
fn assert_owned(received: &Received) {
    let report = &received.report;
    for subflow in report.connections.iter().flat_map(|connection| &connection.subflows) {
        let port = report
            .ports
            .iter()
            .find(|port| (&port.nic, port.queue) == (&subflow.nic, subflow.queue))
            .unwrap_or_else(|| panic!("no such port: {subflow:?}"));
        assert_eq!(subflow.worker, port.worker, "{subflow:?}");
    }
}

/// A clean transfer by so many subflows over so many links.
fn spread(links: u32, subflows: u32, opened: Opened) {
    for (family, mtu) in [(Family::V4, 1500), (Family::V6, 9000)] {
        let Some(net) = Net::new(Lab::builder().mtu(mtu), links, &[]) else { return };
        let announce = match opened {
            Opened::ByEndpoints => {
                net.endpoints(family, subflows);
                "none".to_owned()
            }
            Opened::ByAnnouncement => {
                net.limits(8, 8);
                let further = (1..links).map(|link| net.target(link, family).ip().to_string());
                further.collect::<Vec<_>>().join(",")
            }
        };
        let done = net.transfer(family, &announce, 128 * MIB);
        done.assert_subflows(subflows as usize);
        done.assert_carried(0..links);
        for subflow in done.subflows() {
            let link = if opened == Opened::ByEndpoints {
                0
            } else {
                subflow.nic[3..].parse().expect("rcvN")
            };
            assert_eq!(subflow.local, net.target(link, family));
        }
        let workers: BTreeSet<_> = done.subflows().iter().map(|subflow| subflow.worker).collect();
        assert_eq!(workers.len(), done.received.report.workers.len(), "every worker had one");
    }
}

#[test]
fn two_by_the_clients_endpoints_over_two_links() {
    spread(2, 2, Opened::ByEndpoints);
}

#[test]
fn four_by_the_clients_endpoints_over_two_links() {
    spread(2, 4, Opened::ByEndpoints);
}

#[test]
fn eight_by_the_clients_endpoints_over_two_links() {
    spread(2, 8, Opened::ByEndpoints);
}

#[test]
fn four_by_the_clients_endpoints_over_four_links() {
    spread(4, 4, Opened::ByEndpoints);
}

#[test]
fn eight_by_the_clients_endpoints_over_four_links() {
    spread(4, 8, Opened::ByEndpoints);
}

#[test]
fn two_because_we_announce_over_two_links() {
    spread(2, 2, Opened::ByAnnouncement);
}

#[test]
fn four_because_we_announce_over_four_links() {
    spread(4, 4, Opened::ByAnnouncement);
}

/// An IPv6 socket of the kernel takes IPv4 subflows too, so each link carries one of either family.
#[test]
fn both_families_in_one_connection_because_we_announce_all() {
    for links in [2, 4] {
        let Some(net) = Net::new(Lab::builder(), links, &[]) else { return };
        net.limits(8, 8);
        let done = net.transfer(Family::V6, "auto", 128 * MIB);
        done.assert_subflows(2 * links as usize);
        done.assert_carried(0..links);
        for link in 0..links {
            for family in [Family::V4, Family::V6] {
                let at = net.target(link, family);
                let found = done.subflows().iter().filter(|subflow| subflow.local == at);
                assert_eq!(found.count(), 1, "{at}: {:#?}", done.connection());
            }
        }
    }
}

/// A client that does not follow announcements stays with its only subflow.
#[test]
fn announcements_that_the_client_does_not_follow() {
    let Some(net) = Net::new(Lab::builder(), 2, &[]) else { return };
    net.limits(8, 0);
    let done = net.transfer(Family::V4, "auto", 64 * MIB);
    done.assert_subflows(1);
    assert_eq!(done.over(1), 0);
}

#[test]
fn checksums_are_kept_over_all_subflows() {
    for (family, announce) in [(Family::V4, "none"), (Family::V6, "auto")] {
        let Some(net) = Net::new(Lab::builder(), 2, &[]) else { return };
        net.use_checksums();
        if announce == "none" {
            net.endpoints(family, 4);
        } else {
            net.limits(8, 8);
        }
        let done = net.transfer(family, announce, 64 * MIB);
        assert!(done.sent.spoken.checksum, "{:?}", done.sent);
        done.assert_subflows(4);
        done.assert_carried(0..2);
    }
}

/// Over bad links, some slow, for long enough that a join may take a few attempts.
fn over_bad_links(links: u32, family: Family, subflows: u32, announce: &str, checksums: bool) {
    let relays: Vec<_> = (0..links)
        .map(|link| format!("{BAD},delay={}ms", if link % 2 == 0 { 1 } else { 40 }))
        .collect();
    let relays: Vec<_> = relays.iter().map(String::as_str).collect();
    let Some(net) = Net::new(Lab::builder(), links, &relays) else { return };
    if checksums {
        net.use_checksums();
    }
    if announce == "none" {
        net.endpoints(family, subflows);
    } else {
        net.limits(8, 8);
    }
    let recv = net.recv(family, announce);
    let sender = net.sender(family, 16 * MIB, &["--rate", "4000000"]);
    let done = net.done(recv, sender, 16 * MIB);
    assert_eq!(done.sent.spoken.checksum, checksums);
    done.assert_subflows(subflows as usize);
    done.assert_carried(0..links);
}

#[test]
fn two_over_bad_links_with_unequal_delays() {
    over_bad_links(2, Family::V4, 2, "none", false);
}

#[test]
fn four_of_both_families_over_bad_links_with_unequal_delays() {
    over_bad_links(2, Family::V6, 4, "auto", false);
}

#[test]
fn eight_over_four_bad_links_with_unequal_delays() {
    over_bad_links(4, Family::V6, 8, "none", false);
}

#[test]
fn four_over_bad_links_with_unequal_delays_and_checksums() {
    over_bad_links(2, Family::V4, 4, "none", true);
}

/// A link that is dead for a second: the other one carries what was under way on it.
#[test]
fn a_link_that_is_cut_and_restored() {
    for cut in [0, 1] {
        let mut relays = ["delay=1ms"; 2];
        relays[cut] = "delay=1ms,cut=500ms:1s";
        let Some(net) = Net::new(Lab::builder(), 2, &relays) else { return };
        net.endpoints(Family::V4, 2);
        let recv = net.recv(Family::V4, "none");
        // Some three seconds.
        let sender = net.sender(Family::V4, 24 * MIB, &["--rate", "8000000"]);
        let done = net.done(recv, sender, 24 * MIB);
        done.assert_subflows(2);
        done.assert_carried(0..2);
    }
}

/// The second path makes of each join a plain SYN, which leads nowhere.
#[test]
fn a_second_path_that_strips_the_syn() {
    for announce in ["none", "auto"] {
        let Some(net) = Net::new(Lab::builder(), 2, &["delay=1ms", "strip=syn"]) else { return };
        if announce == "none" {
            net.endpoints(Family::V4, 2);
        } else {
            net.limits(8, 8);
        }
        let done = net.transfer(Family::V4, announce, 16 * MIB);
        done.assert_subflows(1);
        assert_eq!(done.over(1), 0);
    }
}

/// The second path joins, and then loses the mappings: its subflow goes, its data comes again.
#[test]
fn a_second_path_that_strips_data() {
    for strip in ["strip=data", "strip=after-100k"] {
        let Some(net) = Net::new(Lab::builder(), 2, &["delay=1ms", strip]) else { return };
        net.endpoints(Family::V4, 2);
        let done = net.transfer(Family::V4, "none", 16 * MIB);
        assert!(done.connection().mptcp, "{:#?}", done.connection());
        done.assert_carried(0..1);
        assert!(done.over(1) < MIB, "{strip}: {:#?}", done.connection());
    }
}

/// A byte changed on the second path with checksums on: that subflow fails, its data comes again.
#[test]
fn a_second_path_that_alters_a_byte() {
    let Some(net) = Net::new(Lab::builder(), 2, &["delay=1ms", ">alter=at-100k"]) else { return };
    net.use_checksums();
    net.endpoints(Family::V4, 2);
    let done = net.transfer(Family::V4, "none", 16 * MIB);
    assert!(done.sent.spoken.checksum);
    assert!(done.connection().mptcp, "{:#?}", done.connection());
    let altered = done.subflows().iter().find(|subflow| subflow.nic == "rcv1");
    assert!(altered.is_some_and(|subflow| !subflow.live), "{:#?}", done.connection());
}

/// Endpoints come and go while data flows, that of the first subflow included.
#[test]
fn endpoints_added_and_removed_on_the_way() {
    for family in [Family::V4, Family::V6] {
        let Some(net) = Net::new(Lab::builder(), 4, &[]) else { return };
        net.limits(8, 0);
        let recv = net.recv(family, "none");
        let sender = net.sender(family, 128 * MIB, &["--rate", "40000000"]);
        let pause = || thread::sleep(Duration::from_millis(200));
        for _ in 0..2 {
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
        let done = net.done(recv, sender, 128 * MIB);
        done.assert_subflows(8);
        done.assert_carried(0..4);
        let (last, before) = done.subflows().split_last().expect("eight");
        assert_eq!(last.nic, "rcv1");
        assert!(before.iter().all(|subflow| !subflow.live), "{:#?}", done.connection());
    }
}
