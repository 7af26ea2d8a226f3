//! Floods from the network: those who are served go on being served, and it costs no memory.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use mpxdp_bench::lab::{Family, Lab, Side};
use mpxdp_bench::traffic::sender;
use mpxdp_proto::segment::{
    AddressId, Flags, MpCapable, MpCapableBody, MpJoin, Options, Segment, Token, WindowScale,
};
use mpxdp_proto::seq::SeqNum;
use mpxdp_proto::wire::{IpFields, LinkHeader, MacAddress, emit_frame};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, socket,
};

use super::harness::{Received, Rig, assert_pattern, finish, pattern};
use super::net::MIB;

/// Packets of a flood.
const FLOOD: u32 = 100_000;

/// So many come at once, and then none for a millisecond.
const BATCH: u32 = 200;

/// What a flood may make of the receiver's memory: its tables have limits, the largest of them of 1024
/// half-open subflows.
const GROWTH: u64 = 16 * MIB;

/// Number `n` scattered over 32 bits, each in another place.
const fn scattered(n: u32) -> u32 {
    n.wrapping_mul(0x9e37_79b1)
}

/// A SYN of its own source for each number.
fn syn(n: u32, to: SocketAddr, options: Options) -> Vec<u8> {
    let [_, a, b, c] = (scattered(n) & 0xff_ffff).to_be_bytes();
    let from = SocketAddr::new([11, a, b, c].into(), (scattered(n) >> 16) as u16 | 1);
    let link = LinkHeader::new(MacAddress([2; 6]), MacAddress([2; 6]));
    let seq = SeqNum(scattered(n ^ 0x5555));
    let segment = Segment { seq, flags: Flags::SYN, window: 1000, options, ..Segment::default() };
    let mut frame = vec![0; 200];
    let ip = IpFields::default();
    let len = emit_frame(&mut frame, &link, from, to, ip, &segment, &[]).expect("it fits");
    // The kernel puts its own Ethernet header in front.
    frame[14..len].to_vec()
}

fn basic() -> Options {
    Options {
        mss: Some(1460),
        window_scale: Some(WindowScale::new(7)),
        sack_permitted: true,
        ..Options::default()
    }
}

/// Every other client offers MPTCP.
fn opening(n: u32, to: SocketAddr) -> Vec<u8> {
    let mut options = basic();
    options.mptcp.capable = n.is_multiple_of(2).then_some(MpCapable {
        version: 1,
        checksum_required: false,
        extensibility: false,
        no_join_to_initial_address: false,
        algorithms: 1,
        body: MpCapableBody::Syn,
    });
    syn(n, to, options)
}

/// A join of a connection that there is not.
fn joining(n: u32, to: SocketAddr) -> Vec<u8> {
    let mut options = basic();
    options.mptcp.join = Some(MpJoin::Syn {
        backup: false,
        address_id: AddressId(1),
        token: Token(scattered(n ^ 0xaaaa)),
        nonce: scattered(n),
    });
    syn(n, to, options)
}

/// Sends all packets of a flood from the client's namespace.
fn flood(rig: &Rig, packet: fn(u32, SocketAddr) -> Vec<u8>) {
    let to = rig.at(Family::V4);
    let IpAddr::V4(address) = to.ip() else { panic!("{to} is of the other family") };
    let sent = rig.lab.within(Side::Sender, || {
        let flags = SockFlag::SOCK_CLOEXEC;
        let raw = socket(AddressFamily::Inet, SockType::Raw, flags, SockProtocol::Raw)
            .expect("root may have a raw socket");
        let [a, b, c, d] = Ipv4Addr::octets(&address);
        let target = SockaddrIn::new(a, b, c, d, 0);
        for batch in 0..FLOOD / BATCH {
            for n in batch * BATCH..(batch + 1) * BATCH {
                let packet = packet(n, to);
                let fd = std::os::fd::AsRawFd::as_raw_fd(&raw);
                sendto(fd, &packet, &target, MsgFlags::empty()).expect("it is sent");
            }
            thread::sleep(Duration::from_millis(1));
        }
    });
    sent.expect("the namespace is there");
}

/// Bytes of memory that a process has, or had at most.
fn memory(pid: u32, line: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let value = status.lines().find_map(|text| text.strip_prefix(line)).expect("there is one");
    let kilobytes: u64 =
        value.trim_start_matches(':').trim().trim_end_matches(" kB").parse().expect("a number");
    kilobytes << 10
}

/// A flood while a connection is under way and others come.
fn during(packet: fn(u32, SocketAddr) -> Vec<u8>) -> Option<Received> {
    const OLD: u64 = 40 * MIB;
    const NEW: u64 = 100_000;
    let rig = Rig::new(Lab::builder())?;
    // So that our answers to all the others are not lost on the way, but go to nobody.
    let output = format!("{}/", rig.path("in").display());
    let recv = rig.recv(Family::V4, &["--output", &output]);
    let old = ["--hash", "--patience", "60", "--rate", "10000000", "--bytes", &OLD.to_string()];
    let old = rig.sender(Family::V4, &old);
    thread::sleep(Duration::from_millis(300));
    let before = memory(recv.running.pid(), "VmRSS");
    let new: Vec<sender::Report> = thread::scope(|scope| {
        let flood = scope.spawn(|| flood(&rig, packet));
        let mut new = Vec::new();
        while new.is_empty() || !flood.is_finished() {
            let protocol = if new.len() % 2 == 0 { "mptcp" } else { "tcp" };
            let arguments =
                ["--protocol", protocol, "--bytes", &NEW.to_string(), "--patience", "60"];
            new.push(rig.send(Family::V4, &arguments));
        }
        new
    });
    let most = memory(recv.running.pid(), "VmHWM");
    let sent: sender::Report = finish(old).json().expect("the sender's report");
    assert_eq!(sent.connections[0].error, None);
    assert_eq!(sent.connections[0].sha256.as_deref(), Some(pattern().hash(OLD).as_str()));
    let received = recv.stop();
    received.assert_code(0);
    let connections = &received.report.connections;
    assert_eq!(connections.len(), 1 + new.len());
    // A ring of 256 KiB each, if none was given back yet, and that of the first one, which may grow.
    let rings = (new.len() as u64 + 1) * (MIB / 4) + 16 * MIB;
    assert!(most <= before + GROWTH + rings, "from {before} to {most} bytes of memory");
    // What counts as the connections' memory stays within its limit, and is that of the rings: nothing
    // was taken for half-open connections.
    let memory = &received.report.memory;
    assert!(memory.peak <= memory.limit && memory.peak <= rings, "{memory:?}");
    assert!(memory.peak > 0 && memory.in_use == 0 && memory.spare <= memory.peak, "{memory:?}");
    for connection in connections {
        connection.assert_complete();
        let file = connection.output.as_ref().expect("a file");
        assert_pattern(file, if connection.bytes == NEW { NEW } else { OLD });
    }
    for report in &new {
        assert_eq!(report.connections[0].error, None);
    }
    let tables = &received.report.workers[0].tables;
    assert!(tables.half_open <= 1024 && tables.subflows <= 1024, "{tables:?}");
    assert_eq!((tables.time_wait, tables.frames_held), (0, 0));
    Some(received)
}

/// What the only worker counted by a name.
fn counted(received: &Received, name: &str) -> u64 {
    received.report.workers[0].drops.get(name).copied().unwrap_or(0)
}

#[test]
fn a_hundred_thousand_syns() {
    let Some(received) = during(opening) else { return };
    let cookies = counted(&received, "half_open_full");
    let drops = &received.report.workers[0].drops;
    // Of the rest, 1024 are half open, and some may be lost where the NIC's ring is full.
    assert!(cookies > u64::from(FLOOD) * 8 / 10, "{drops:?}");
}

#[test]
fn a_hundred_thousand_joins_with_random_tokens() {
    let Some(received) = during(joining) else { return };
    let refused = counted(&received, "join_unknown_token");
    let drops = &received.report.workers[0].drops;
    assert!(refused > u64::from(FLOOD) * 8 / 10, "{drops:?}");
    assert!(counted(&received, "reset_rate_limited") > 0, "{drops:?}");
}
