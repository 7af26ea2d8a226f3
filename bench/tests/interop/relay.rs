//! The lab's relays: what stands on a link does what its description says, to the kernel's traffic.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use mpxdp_bench::lab::{Builder, Family, Lab, Running, Side};
use mpxdp_bench::relay::Report;
use mpxdp_bench::traffic::{receiver, sender};
use mpxdp_bench::{Interrupt, relay};
use nix::sys::signal::Signal;

use super::harness::{BENCH, LIMIT, finish, lab_name, privileged};

/// A lab with relays; none if privilege is lacking.
fn lab(builder: Builder, relays: &[&str]) -> Option<Lab> {
    if !privileged() {
        return None;
    }
    let builder = (0..).zip(relays).fold(builder, |builder, (link, chain)| {
        builder.relay(link, &chain.parse().unwrap_or_else(|error| panic!("{error}")))
    });
    Some(builder.relay_program(BENCH).name(lab_name()).up().expect("the lab comes up"))
}

fn ping(lab: &Lab, address: IpAddr, count: u32) -> String {
    let (address, count) = (address.to_string(), count.to_string());
    lab.run(Side::Sender, &["ping", "-c", &count, "-i", "0.05", "-W", "5", &address])
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Sends so many bytes from the kernel to the kernel over link 0, exact or a failure.
fn transfer(lab: &Lab, family: Family, protocol: &str, bytes: u64) -> Transfer {
    let at = SocketAddr::new(lab.address(Side::Receiver, 0, family), 5000).to_string();
    let mut command = lab.command(Side::Receiver, BENCH);
    command.args(["receiver", "--kind", &format!("kernel-{protocol}"), "--hash", "--listen", &at]);
    let mut receiver = Running::start("receiver", &mut command, &[]).expect("it starts");
    receiver.wait_for("listening on", LIMIT, &Interrupt::never()).expect("it listens");
    let mut command = lab.command(Side::Sender, BENCH);
    command.args(["sender", "--connect", &at, "--protocol", protocol, "--hash"]);
    command.args(["--patience", "100", "--bytes", &bytes.to_string()]);
    let sender = Running::start("sender", &mut command, &[]).expect("it starts");
    let sent: sender::Report = finish(sender).json().expect("the sender's report");
    let received: receiver::Report = finish(receiver).json().expect("the receiver's report");
    let (sent, received) = (&sent.connections[0], &received.connections[0]);
    assert_eq!((&sent.error, &received.error), (&None, &None));
    assert_eq!(received.bytes, bytes);
    assert!(sent.sha256.is_some());
    assert_eq!(sent.sha256, received.sha256, "what arrives is what was sent");
    Transfer { mptcp: [sent.spoken.mptcp, received.spoken.mptcp], seconds: sent.seconds }
}

/// A transfer that went well.
#[derive(Debug)]
struct Transfer {
    /// Whether the sender and the receiver spoke MPTCP.
    mptcp: [bool; 2],
    seconds: f64,
}

/// What a relay's only box did, or one of several.
fn counts(report: &Report, description: &str) -> [u64; 3] {
    let found = report.boxes.iter().find(|one| one.description == description);
    let one = found.unwrap_or_else(|| panic!("no {description}: {report:?}"));
    [one.dropped, one.added, one.changed]
}

/// Fails if frames came without checksums or could not be sent.
fn assert_clean(report: &Report) {
    for side in [report.left, report.right] {
        assert_eq!((side.incomplete, side.refused), (0, 0), "{report:?}");
        assert!(side.received > 0 && side.sent > 0, "{report:?}");
    }
}

#[test]
fn a_delay_is_seen_on_its_link_only_and_in_both_families() {
    let Some(mut lab) = lab(Lab::builder().links(3), &["delay=30ms", ""]) else { return };
    for family in [Family::V4, Family::V6] {
        for (link, at_least) in [(0, 60.0), (1, 0.0), (2, 0.0)] {
            let said = ping(&lab, lab.address(Side::Receiver, link, family), 5);
            // "rtt min/avg/max/mdev = 60.1/..."
            let times = said.rsplit_once("= ").expect("a summary").1;
            let least: f64 =
                times.split('/').next().and_then(|text| text.parse().ok()).expect("ms");
            assert!((at_least..at_least + 25.0).contains(&least), "link {link}: {said}");
        }
    }
    for link in [0, 1] {
        assert_clean(&lab.end_relay(link).expect("it ends and reports"));
    }
    lab.end_relay(1).expect_err("it has ended already");
    lab.end_relay(2).expect_err("there is none");
}

#[test]
fn mptcp_survives_a_bad_link() {
    let bad = "loss=1%,reorder=5%:2ms,dup=1%,corrupt=0.1%,delay=1ms";
    let Some(mut lab) = lab(Lab::builder(), &[bad]) else { return };
    for (family, protocol) in [(Family::V4, "mptcp"), (Family::V6, "mptcp"), (Family::V4, "tcp")] {
        let done = transfer(&lab, family, protocol, 10_000_000);
        assert_eq!(done.mptcp, [protocol == "mptcp"; 2]);
    }
    let report = lab.end_relay(0).expect("it ends and reports");
    assert_clean(&report);
    assert!(counts(&report, "loss=1%")[0] > 50, "{report:?}");
    assert!(counts(&report, "reorder=5%:2ms")[2] > 250, "{report:?}");
    assert!(counts(&report, "dup=1%")[1] > 50, "{report:?}");
    assert!(counts(&report, "corrupt=0.1%")[2] > 2, "{report:?}");
}

#[test]
fn frames_of_every_size_and_with_tags_pass() {
    for (mtu, vlan) in [(1500, Some(77)), (9000, None), (65535, None)] {
        let builder = Lab::builder().mtu(mtu).vlan(vlan).queues(2);
        let Some(mut lab) = lab(builder, &["isn,nat"]) else { return };
        for family in [Family::V4, Family::V6] {
            let done = transfer(&lab, family, "mptcp", 5_000_000);
            assert_eq!(done.mptcp, [true; 2], "MTU {mtu}");
        }
        let report = lab.end_relay(0).expect("it ends and reports");
        assert_clean(&report);
        let longest = report.left.received_bytes / report.left.received;
        assert!(longest > 1000, "long frames pass: {report:?}");
    }
}

#[test]
fn a_middlebox_that_strips_the_syn_makes_the_kernel_fall_back() {
    let Some(mut lab) = lab(Lab::builder(), &["strip=syn"]) else { return };
    let done = transfer(&lab, Family::V4, "mptcp", 1_000_000);
    assert_eq!(done.mptcp, [false; 2]);
    let report = lab.end_relay(0).expect("it ends and reports");
    assert!(counts(&report, "strip=syn")[2] >= 1, "{report:?}");
}

#[test]
fn segments_can_be_cut_and_merged_on_the_way() {
    let Some(mut lab) = lab(Lab::builder(), &["split=500,coalesce=1400"]) else { return };
    let done = transfer(&lab, Family::V4, "mptcp", 2_000_000);
    assert_eq!(done.mptcp, [true; 2]);
    let report = lab.end_relay(0).expect("it ends and reports");
    assert_clean(&report);
    assert!(counts(&report, "split=500")[1] > 1000, "{report:?}");
    assert!(counts(&report, "coalesce=1400")[2] > 1000, "{report:?}");
}

#[test]
fn a_rate_is_kept_to() {
    let Some(mut lab) = lab(Lab::builder(), &["rate=50Mbit"]) else { return };
    let done = transfer(&lab, Family::V4, "tcp", 10_000_000);
    // 80 Mbit of payload, and 4 % headers.
    assert!((1.6..6.0).contains(&done.seconds), "{done:?}");
    assert_clean(&lab.end_relay(0).expect("it ends and reports"));
}

#[test]
fn what_a_lab_with_relays_made_goes_with_it() {
    let Some(lab) = lab(Lab::builder(), &["delay=1ms"]) else { return };
    let name = lab.spec().name.clone();
    let middle = format!("/run/netns/{name}-mid");
    assert!(Path::new(&middle).exists());
    let files = || {
        let folder = fs::read_dir("/run/mpxdp-lab").expect("the labs' folder");
        let names = folder.flatten().map(|file| file.file_name());
        names.filter(|file| file.to_string_lossy().starts_with(&name)).count()
    };
    assert!(files() > 1);
    lab.remove().expect("the lab goes");
    assert!(!Path::new(&middle).exists());
    assert_eq!(files(), 0);
}

#[test]
fn a_kept_lab_keeps_its_relays_and_gives_way_to_no_others() {
    if !privileged() {
        return;
    }
    let name = lab_name();
    let up = |relay: &str| {
        let output = Command::new(BENCH)
            .args(["lab", "up", "--name", &name, "--relay", relay])
            .output()
            .expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let index = || {
        let namespace = format!("{name}-mid");
        let show = ["-n", &namespace, "-o", "link", "show", "tosnd0"];
        let output = Command::new("ip").args(show).output().expect("ip runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let removed_on_drop = Named(&name);
    assert_eq!(up("0=delay=5ms").0, Some(0));
    let first = index();
    assert_eq!(up("0=delay=5.0ms").0, Some(0));
    assert_eq!(index(), first, "the same again changes nothing");
    ping(&Lab::open(&name).expect("it is up"), "10.77.0.2".parse().expect("an address"), 1);
    let (code, stderr) = up("0=delay=6ms");
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("another shape"), "{stderr}");
    assert_eq!(index(), first);
    drop(removed_on_drop);
    for (wrong, said) in [
        ("1=delay=5ms", "--relay 1"),
        ("0=delay", "a time"),
        ("x=delay=5ms", "no number"),
        ("nothing", "LINK=CHAIN"),
    ] {
        let (code, stderr) = up(wrong);
        assert_eq!(code, Some(2), "{wrong}: {stderr}");
        assert!(stderr.contains(said), "{wrong}: {stderr}");
    }
}

/// Removes a kept lab whatever happens.
struct Named<'a>(&'a str);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        // Failing here would hide what failed before.
        let _ = Lab::down(self.0);
    }
}

#[test]
fn a_relay_ends_on_a_signal_with_its_report() {
    let Some(lab) = lab(Lab::builder(), &[]) else { return };
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        // Both ends at one interface are of no use, but can be opened.
        let mut command = lab.command(Side::Sender, BENCH);
        command.args(["relay", "--left", "snd0", "--right", "lo", "--chain", "delay=1s"]);
        command.args(["--json", "-"]);
        let mut running = Running::start("relay", &mut command, &[]).expect("it starts");
        running.wait_for(relay::READY, LIMIT, &Interrupt::never()).expect("it relays");
        let asked = Instant::now();
        running.signal(signal).expect("it runs");
        let ended = finish(running).success().expect("exit code 0");
        assert!(asked.elapsed() < Duration::from_secs(5));
        let report: Report = ended.json().expect("a report");
        assert_eq!(report.boxes[0].description, "delay=1s");
    }
    let mut command = lab.command(Side::Sender, BENCH);
    command.args(["relay", "--left", "snd0", "--right", "nothing0"]);
    let ended = finish(Running::start("relay", &mut command, &[]).expect("it starts"));
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("nothing0"), "{}", ended.stderr);
}
