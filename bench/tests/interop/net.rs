//! A rig of several links, each a NIC with a worker of its own as far as there are CPUs for it, and a
//! client of the kernel that makes several subflows.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZero;
use std::ops::Range;
use std::path::PathBuf;
use std::thread;

use mpxdp_bench::lab::{Builder, Ended, Family, Running, Side};
use mpxdp_bench::traffic::sender;

use super::harness::{
    Connection, PORT, Received, Recv, Rig, Subflow, assert_pattern, finish, full, pattern,
};

pub(crate) const MIB: u64 = 1 << 20;

/// Bytes a second at which a sender leaves the kernel's path manager time to work: it is in no hurry
/// while the sender is busy.
pub(crate) const EASY: &[&str] = &["--rate", "80000000"];

/// The size of a transfer that is `usual` in every run of the tests, or 1 GiB with
/// `MPXDP_FULL_TRANSFERS=1`.
pub(crate) fn size(usual: u64) -> u64 {
    if full() { 1024 * MIB } else { usual }
}

/// A rig of several links.
pub(crate) struct Net {
    pub(crate) rig: Rig,
    links: u32,
    queues: u32,
}

/// A transfer that went well.
pub(crate) struct Done {
    pub(crate) received: Received,
    pub(crate) sent: sender::Connection,
}

impl Net {
    /// None if privilege is lacking. Relays are described link by link, "" is none.
    pub(crate) fn new(builder: Builder, links: u32, queues: u32, relays: &[&str]) -> Option<Self> {
        let used = (0..).zip(relays).filter(|(_, chain)| !chain.is_empty());
        let builder = used.fold(builder.links(links).queues(queues), |builder, (link, chain)| {
            builder.relay(link, &chain.parse().unwrap_or_else(|error| panic!("{error}")))
        });
        let net = Self { rig: Rig::new(builder)?, links, queues };
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

    /// Runs a tool at the client; returns what it wrote.
    pub(crate) fn client(&self, arguments: &[&str]) -> String {
        self.rig.tool(Side::Sender, arguments)
    }

    /// A counter of the client's kernel, such as `MPTcpExtMPTCPRetrans`.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        // "name value rate", below a heading; one that was never counted is shown with -z only.
        let said = self.client(&["nstat", "-asz", name]);
        let line = said.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split_whitespace().nth(1));
        value.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no {name}: {said}"))
    }

    /// The client asks for checksums of the data.
    pub(crate) fn use_checksums(&self) {
        let set = self.rig.lab.sysctl(Side::Sender, "net.mptcp.checksum_enabled", "1");
        set.expect("the kernel takes it");
    }

    /// How many further subflows the client opens, and whether it follows announcements.
    pub(crate) fn limits(&self, subflows: u32, accepted: u32) {
        let (subflows, accepted) = (subflows.to_string(), accepted.to_string());
        let set = ["ip", "mptcp", "limits", "set", "subflow", &subflows];
        self.client(&[&set[..], &["add_addr_accepted", &accepted]].concat());
    }

    /// An address of an end of a link, the first or a further one.
    pub(crate) fn address(&self, side: Side, link: u32, family: Family, number: u32) -> IpAddr {
        match self.rig.lab.address(side, link, family) {
            address if number == 0 => address,
            IpAddr::V4(address) => IpAddr::V4((u32::from(address) + (number << 4)).into()),
            IpAddr::V6(address) => {
                IpAddr::V6((u128::from(address) + (u128::from(number) << 4)).into())
            }
        }
    }

    /// The client's address on a link, the first or a further one.
    pub(crate) fn source(&self, link: u32, family: Family, number: u32) -> IpAddr {
        self.address(Side::Sender, link, family, number)
    }

    /// The receiver's address on a link.
    pub(crate) fn target(&self, link: u32, family: Family) -> SocketAddr {
        (self.rig.lab.address(Side::Receiver, link, family), PORT).into()
    }

    /// Gives an end of a link a further address, which the kernel chooses for nothing by itself.
    pub(crate) fn add_address(&self, side: Side, link: u32, family: Family, number: u32) {
        let interface = self.rig.lab.interface(side, link);
        let address = self.address(side, link, family, number);
        let (address, how) = match family {
            Family::V4 => (format!("{address}/24"), &[][..]),
            Family::V6 => (format!("{address}/64"), &["nodad", "preferred_lft", "0"][..]),
        };
        let add = ["ip", "address", "add", &address, "dev", &interface];
        self.rig.tool(side, &[&add[..], how].concat());
    }

    /// Adds an endpoint of the client; existing connections use it at once.
    pub(crate) fn endpoint(&self, id: u32, link: u32, address: IpAddr, flags: &[&str]) {
        let (id, address) = (id.to_string(), address.to_string());
        let interface = self.rig.lab.interface(Side::Sender, link);
        let add = ["ip", "mptcp", "endpoint", "add", &address, "dev", &interface, "id", &id];
        self.client(&[&add[..], flags].concat());
    }

    /// Removes an endpoint of the client, and its subflows.
    pub(crate) fn remove_endpoint(&self, id: u32) {
        self.client(&["ip", "mptcp", "endpoint", "delete", "id", &id.to_string()]);
    }

    /// Endpoints for so many subflows in all, the first one included.
    pub(crate) fn endpoints(&self, family: Family, subflows: u32) {
        self.limits(8, 0);
        for id in 1..subflows {
            let (link, number) = (id % self.links, id / self.links);
            if number > 0 {
                self.add_address(Side::Sender, link, family, number);
            }
            self.endpoint(id, link, self.source(link, family, number), &["subflow"]);
        }
    }

    /// Starts `mpxdp recv` on all links, writing to files.
    pub(crate) fn recv(&self, family: Family, announce: &str) -> Recv {
        let output = format!("{}/", self.output().display());
        self.recv_with(family, &["--announce", announce, "--connections", "9", "--output", &output])
    }

    /// Starts `mpxdp recv` on all links.
    pub(crate) fn recv_with(&self, family: Family, arguments: &[&str]) -> Recv {
        let report = self.rig.path("report.json");
        let mut command = self.rig.mpxdp(&["recv"]);
        for link in 0..self.links {
            command.arg("--nic").arg(self.nic(link));
        }
        command.args(["--listen", &self.rig.at(family).to_string()]);
        command.arg("--report").arg(&report).args(arguments);
        Recv::listening(Running::start("mpxdp recv", &mut command, &[]).expect("it starts"), report)
    }

    /// A link's NIC and the CPUs of its workers. With one queue a NIC has one worker, and they take
    /// turns; with several each of its queues has one, as far as there are CPUs.
    pub(crate) fn nic(&self, link: u32) -> String {
        let cpus = thread::available_parallelism().map_or(1, NonZero::get).min(2);
        if self.queues == 1 {
            format!("rcv{link}:cpus={}", link as usize % cpus)
        } else {
            format!("rcv{link}:cpus=0-{}", cpus - 1)
        }
    }

    pub(crate) fn output(&self) -> PathBuf {
        self.rig.path("in")
    }

    pub(crate) fn sender(&self, family: Family, bytes: u64, more: &[&str]) -> Running {
        let bytes = bytes.to_string();
        let arguments = ["--hash", "--patience", "60", "--bytes", &bytes];
        self.rig.sender(family, &[&arguments[..], more].concat())
    }

    /// One transfer, from beginning to end.
    pub(crate) fn transfer(&self, family: Family, announce: &str, bytes: u64) -> Done {
        let recv = self.recv(family, announce);
        let sender = self.sender(family, bytes, EASY);
        self.done(recv, sender, bytes)
    }

    /// Waits for the end; what arrived is what was sent, and nothing is left of it.
    pub(crate) fn done(&self, recv: Recv, sender: Running, bytes: u64) -> Done {
        let done = self.done_but_for_time_wait(recv, sender, bytes);
        done.received.assert_nothing_left();
        done
    }

    /// [`done`](Self::done), but that as many subflows as there were may be in TIME-WAIT. They are
    /// where a path delays or loses the peer's FIN for longer than it is waited for: then ours goes
    /// out, the two may cross, and whoever ends in TIME-WAIT stays so for a minute, by design.
    pub(crate) fn done_but_for_time_wait(&self, recv: Recv, sender: Running, bytes: u64) -> Done {
        let ended = finish(sender);
        self.check(&ended, recv.stop(), bytes)
    }

    /// [`done`](Self::done) with a receiver that ends by itself after its only connection, which it
    /// does while that still says farewell.
    pub(crate) fn done_by_itself(&self, recv: Recv, sender: Running, bytes: u64) -> Done {
        let ended = finish(sender);
        self.check(&ended, recv.finish(), bytes)
    }

    fn check(&self, ended: &Ended, received: Received, bytes: u64) -> Done {
        let sent: sender::Report = ended.json().expect("the sender's report");
        let [sent] = &sent.connections[..] else { panic!("{sent:#?}") };
        let connection = received.only();
        assert_eq!(sent.error, None, "{connection:#?}");
        assert_eq!((sent.bytes, connection.bytes), (bytes, bytes), "{connection:#?}");
        connection.assert_complete();
        assert_eq!(sent.spoken.mptcp, connection.mptcp, "{sent:?}, {connection:#?}");
        // Byte by byte; so its SHA-256 is that of what was sent, which the sender has computed.
        let file = connection.output.as_ref().expect("a file");
        assert_pattern(file, bytes);
        assert_eq!(sent.sha256.as_deref(), Some(pattern().hash(bytes).as_str()));
        fs::remove_dir_all(self.output()).expect("the file can be removed");
        received.assert_code(0);
        received.assert_frames_home();
        received.assert_owned();
        if received.report.ended == "signal" {
            let workers = &received.report.workers;
            assert!(workers.iter().all(|worker| worker.tables.subflows == 0), "{workers:#?}");
            let waiting: usize = workers.iter().map(|worker| worker.tables.time_wait).sum();
            assert!(waiting <= connection.subflows.len(), "{workers:#?}");
        }
        Done { sent: sent.clone(), received }
    }
}

impl Done {
    pub(crate) fn connection(&self) -> &Connection {
        self.received.only()
    }

    pub(crate) fn subflows(&self) -> &[Subflow] {
        &self.connection().subflows
    }

    /// Bytes that came in over a link.
    pub(crate) fn over(&self, link: u32) -> u64 {
        let name = format!("rcv{link}");
        self.subflows().iter().filter(|one| one.nic == name).map(|one| one.bytes).sum()
    }

    /// It was MPTCP to its end, by so many subflows.
    pub(crate) fn assert_subflows(&self, count: usize) {
        let connection = self.connection();
        assert!(connection.mptcp, "{connection:#?}");
        assert_eq!(connection.fallback, None, "{connection:#?}");
        assert_eq!(connection.subflows.len(), count, "{connection:#?}");
    }

    /// All of these links carried data.
    pub(crate) fn assert_carried(&self, links: Range<u32>) {
        for link in links {
            assert!(self.over(link) > 0, "nothing came over link {link}: {:#?}", self.connection());
        }
    }
}

impl Received {
    /// The worker of each subflow is the one that its queue belongs to.
    pub(crate) fn assert_owned(&self) {
        let report = &self.report;
        for subflow in report.connections.iter().flat_map(|connection| &connection.subflows) {
            let port = report
                .ports
                .iter()
                .find(|port| (&port.nic, port.queue) == (&subflow.nic, subflow.queue))
                .unwrap_or_else(|| panic!("no such port: {subflow:?}"));
            assert_eq!(subflow.worker, port.worker, "{subflow:?}");
        }
    }
}
