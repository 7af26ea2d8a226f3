//! Connections of several subflows over paths of ill repute, made by the lab's relays.

use std::fs;
use std::thread;
use std::time::Duration;

use mpxdp_bench::lab::{Family, Lab, Side};
use nix::sys::signal::Signal;

use super::harness::{Received, compare, full};
use super::net::{Done, MIB, Net, size};

/// What every link of ill repute does, besides its delay.
const BAD: &str = "loss=1%,reorder=5%:2ms,dup=1%,corrupt=0.1%";

/// What is the longest mapping: its length has 16 bits.
const MAPPING: u64 = 65535;

/// Over bad links, some slow, for long enough that a join may take a few attempts.
fn over_bad_links(
    links: u32,
    family: Family,
    subflows: u32,
    announce: &str,
    checksums: bool,
    bytes: u64,
) {
    let Some(net) = bad_links(links) else { return };
    if checksums {
        net.use_checksums();
    }
    if announce == "none" {
        net.endpoints(family, subflows);
    } else {
        net.limits(8, 8);
    }
    let recv = net.recv(family, announce);
    let sender = net.sender(family, bytes, &["--rate", "4000000"]);
    let done = net.done_but_for_time_wait(recv, sender, bytes);
    assert_eq!(done.sent.spoken.checksum, checksums);
    done.assert_subflows(subflows as usize);
    done.assert_carried(0..links);
}

/// Every other link has 40 ms, the others 1 ms.
fn bad_links(links: u32) -> Option<Net> {
    let relays: Vec<_> = (0..links)
        .map(|link| format!("{BAD},delay={}ms", if link % 2 == 0 { 1 } else { 40 }))
        .collect();
    let relays: Vec<_> = relays.iter().map(String::as_str).collect();
    Net::new(Lab::builder(), links, 1, &relays)
}

#[test]
fn two_over_bad_links_with_unequal_delays() {
    over_bad_links(2, Family::V4, 2, "none", false, size(16 * MIB));
}

#[test]
fn four_of_both_families_over_bad_links_with_unequal_delays() {
    over_bad_links(2, Family::V6, 4, "auto", false, size(16 * MIB));
}

#[test]
fn eight_over_four_bad_links_with_unequal_delays() {
    over_bad_links(4, Family::V6, 8, "none", false, size(16 * MIB));
}

#[test]
fn four_over_bad_links_with_unequal_delays_and_checksums() {
    over_bad_links(2, Family::V4, 4, "none", true, size(16 * MIB));
}

/// Over bad links too, the client's endpoints and announcements may come and go while data flows.
#[test]
fn endpoints_that_come_and_go_over_bad_links() {
    let Some(net) = bad_links(2) else { return };
    net.limits(8, 8);
    let bytes = size(24 * MIB);
    let recv = net.recv(Family::V6, "auto");
    let sender = net.sender(Family::V6, bytes, &["--rate", "4000000"]);
    // For some half of the transfer.
    let rounds = 4 * (bytes / (24 * MIB)) as u32;
    for round in 0..rounds {
        // With identifiers that Linux does not give to the endpoints of its own making.
        let (own, told) = (1 + 2 * round, 2 + 2 * round);
        for number in [own, told] {
            net.add_address(Side::Sender, 1, Family::V6, number);
        }
        thread::sleep(Duration::from_millis(400));
        net.endpoint(101, 1, net.source(1, Family::V6, own), &["subflow"]);
        net.endpoint(102, 1, net.source(1, Family::V6, told), &["signal"]);
        thread::sleep(Duration::from_millis(400));
        net.remove_endpoint(101);
        net.remove_endpoint(102);
    }
    let done = net.done_but_for_time_wait(recv, sender, bytes);
    assert!(done.connection().mptcp, "{:#?}", done.connection());
    done.assert_carried(0..2);
}

/// The first cut of a link, and those that there are besides if the transfer is a long one.
fn cuts(first: &str) -> String {
    let more = if full() { ",cut=20s:1s,cut=40s:2s,cut=80s:3s" } else { "" };
    format!("{first}{more}")
}

/// A link that is dead for a second: the other one carries what was under way on it.
#[test]
fn a_link_that_is_cut_and_restored() {
    for (cut, family, subflows) in [(0, Family::V4, 2), (1, Family::V6, 4)] {
        let cuts = cuts("delay=1ms,cut=500ms:1s");
        let mut relays = ["delay=1ms"; 2];
        relays[cut] = &cuts;
        let Some(net) = Net::new(Lab::builder(), 2, 1, &relays) else { return };
        net.endpoints(family, subflows);
        let recv = net.recv(family, "none");
        // Some three seconds, or two minutes.
        let bytes = size(24 * MIB);
        let sender = net.sender(family, bytes, &["--rate", "8000000"]);
        let done = net.done_but_for_time_wait(recv, sender, bytes);
        done.assert_subflows(subflows as usize);
        done.assert_carried(0..2);
    }
}

/// The same with loss and the rest on both links.
#[test]
fn a_bad_link_that_is_cut_and_restored() {
    let cut = cuts(&format!("{BAD},delay=40ms,cut=1s:1s"));
    let Some(net) = Net::new(Lab::builder(), 2, 1, &[&format!("{BAD},delay=1ms"), &cut]) else {
        return;
    };
    net.endpoints(Family::V4, 4);
    let recv = net.recv(Family::V4, "none");
    let bytes = size(16 * MIB);
    let sender = net.sender(Family::V4, bytes, &["--rate", "4000000"]);
    let done = net.done_but_for_time_wait(recv, sender, bytes);
    assert!(done.connection().mptcp, "{:#?}", done.connection());
    done.assert_carried(0..2);
}

/// The first path takes MPTCP from the SYN, or from every SYN/ACK of ours: it is plain TCP from the
/// start, whatever the client and we would have offered.
#[test]
fn a_first_path_that_strips_the_syn() {
    for strip in ["strip=syn", "<strip=syn", ">strip=syn"] {
        let Some(net) = Net::new(Lab::builder(), 2, 1, &[strip]) else { return };
        net.endpoints(Family::V4, 4);
        let done = net.transfer(Family::V4, "auto", 32 * MIB);
        assert_plain(&done);
        // If our SYN/ACK alone lost it, then we had agreed to MPTCP.
        let agreed = done.connection().fallback.is_some();
        assert_eq!(agreed, strip == "<strip=syn", "{strip}: {:#?}", done.connection());
    }
}

/// The first path loses MPTCP's options from the first data on. There is no other subflow yet, so the
/// connection may fall back.
#[test]
fn a_first_path_that_strips_all_data() {
    for strip in ["strip=data", ">strip=data"] {
        let Some(net) = Net::new(Lab::builder(), 2, 1, &[strip]) else { return };
        net.endpoints(Family::V4, 4);
        let done = net.transfer(Family::V4, "auto", 32 * MIB);
        assert_plain(&done);
        assert!(done.connection().fallback.is_some(), "{:#?}", done.connection());
    }
}

/// The first path loses MPTCP's options after the first data, when another subflow has joined: there is
/// no falling back any more. The subflow is reset, and the others carry everything.
#[test]
fn a_first_path_that_strips_data_after_a_join() {
    let relays = ["delay=1ms,strip=after-1024k", "delay=1ms"];
    let Some(net) = Net::new(Lab::builder(), 2, 1, &relays) else { return };
    net.endpoints(Family::V4, 2);
    let recv = net.recv(Family::V4, "none");
    let sender = net.sender(Family::V4, 16 * MIB, &["--rate", "4000000"]);
    let done = net.done(recv, sender, 16 * MIB);
    assert!(done.connection().mptcp, "{:#?}", done.connection());
    done.assert_carried(0..2);
    // What its last mapping covers needs no options.
    assert!(done.over(0) <= MIB + MAPPING, "{:#?}", done.connection());
}

/// The same without another subflow. The client goes on speaking MPTCP, so this is no plain TCP: as it gets
/// no DATA_ACK any more, it sends its data again and again as new of the subflow. Only what had its
/// mapping is given to the reader.
#[test]
fn an_only_path_that_strips_data_later() {
    for strip in [">strip=after-10k", "strip=after-20k", "strip=after-1024k"] {
        let chain = format!("delay=1ms,{strip}");
        let Some(received) = over_an_only_path(&chain, Family::V4, 16 * MIB) else { return };
        let connection = received.only();
        assert!(connection.bytes > 0 && connection.error.is_some(), "{strip}: {connection:#?}");
    }
}

/// Options are lost from the end of the client's first flight on, which is ten segments of some 1400 bytes,
/// or never come back to it. The first payload without them looks the same to us, but the client fell back
/// if it missed our DATA_ACK, and otherwise not. One that did gets its whole stream over; one that did not
/// is reset, and the reader has nothing that is no part of the stream.
#[test]
fn an_only_path_that_strips_from_the_end_of_the_first_flight_on() {
    let cases = [
        (">strip=after-14000", Family::V4, Some(false)),
        (">strip=after-14000", Family::V6, Some(false)),
        // Whether an acknowledgement of ours is earlier is a matter of luck.
        ("strip=after-14000", Family::V4, None),
        ("<strip=after-14000", Family::V6, None),
        ("<strip=after-1", Family::V4, Some(true)),
    ];
    for (strip, family, expected) in cases {
        let chain = format!("delay=2ms,{strip}");
        let Some(received) = over_an_only_path(&chain, family, MIB) else { return };
        let connection = received.only();
        let whole = connection.bytes == MIB;
        assert_eq!(connection.error.is_none(), whole, "{strip}: {connection:#?}");
        assert_eq!(whole, expected.unwrap_or(whole), "{strip}: {connection:#?}");
    }
}

/// Sends over one link with these middleboxes for two seconds, and then ends the receiver. What it wrote is
/// what was sent, from the beginning on. None if privilege is lacking.
fn over_an_only_path(chain: &str, family: Family, bytes: u64) -> Option<Received> {
    let net = Net::new(Lab::builder(), 1, 1, &[chain])?;
    net.limits(0, 0);
    let recv = net.recv(family, "none");
    // If the subflow breaks, its kernel waits for another one for a minute, and then for ever; it goes with
    // its handle.
    let _sender = net.sender(family, bytes, &["--rate", "40000000"]);
    thread::sleep(Duration::from_secs(2));
    recv.running.signal(Signal::SIGTERM).expect("it runs");
    let received = recv.finish();
    let connection = received.only();
    let files: Vec<_> = fs::read_dir(net.output()).expect("a folder").flatten().collect();
    let [file] = &files[..] else { panic!("not one file: {files:?}") };
    assert_eq!(compare(&file.path()), (None, connection.bytes), "{chain}: {connection:#?}");
    Some(received)
}

/// The second path makes of each join a plain SYN, which leads nowhere.
#[test]
fn a_second_path_that_strips_the_syn() {
    for announce in ["none", "auto"] {
        let relays = ["delay=1ms", "strip=syn"];
        let Some(net) = Net::new(Lab::builder(), 2, 1, &relays) else { return };
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
    for (strip, most) in [("strip=data", 0), ("strip=after-100k", (100 << 10) + MAPPING)] {
        let Some(net) = Net::new(Lab::builder(), 2, 1, &["delay=1ms", strip]) else { return };
        net.endpoints(Family::V4, 2);
        let done = net.transfer(Family::V4, "none", 16 * MIB);
        assert!(done.connection().mptcp, "{:#?}", done.connection());
        done.assert_carried(0..1);
        // What its last mapping covers needs no options.
        assert!(done.over(1) <= most, "{strip}: {:#?}", done.connection());
    }
}

/// A byte changed on a path with checksums on: that subflow fails, and its data comes again.
#[test]
fn a_path_that_alters_a_byte() {
    for (at, family) in [(0, Family::V4), (1, Family::V4), (1, Family::V6)] {
        let mut relays = ["delay=1ms"; 2];
        // After the joins; the first byte of the first subflow alone would make it fall back.
        relays[at] = "delay=1ms,>alter=at-1024k";
        let Some(net) = Net::new(Lab::builder(), 2, 1, &relays) else { return };
        net.use_checksums();
        net.endpoints(family, 4);
        let recv = net.recv(family, "none");
        let sender = net.sender(family, 16 * MIB, &["--rate", "8000000"]);
        let done = net.done(recv, sender, 16 * MIB);
        assert!(done.sent.spoken.checksum);
        done.assert_subflows(4);
        let altered = |nic: &str| nic == format!("rcv{at}");
        let failed = done.subflows().iter().filter(|one| altered(&one.nic) && !one.live).count();
        assert!(failed > 0, "{:#?}", done.connection());
        assert!(net.counter("MPTcpExtMPFailRx") > 0, "the client is told by MP_FAIL");
        let resets = net.counter("MPTcpExtMPRstRx");
        assert!(resets > 0, "and by a reset");
    }
}

/// It was plain TCP, at both ends and over the first link.
fn assert_plain(done: &Done) {
    let connection = done.connection();
    assert!(!connection.mptcp && !done.sent.spoken.mptcp, "{connection:#?}");
    assert_eq!(connection.subflows.len(), 1, "{connection:#?}");
    assert_eq!(done.over(1), 0);
}
