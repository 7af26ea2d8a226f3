//! `mpxdp-bench placement`: short sweeps in a lab, for what they write and leave, not for their figures.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use mpxdp_bench::Interrupt;
use mpxdp_bench::document::{Document, Row};
use mpxdp_bench::lab::{Family, Lab, Running, Side};
use nix::sys::signal::Signal;

use super::harness::{BENCH, LIMIT, Rig, lab_name, mpxdp, privileged};

fn placement(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(BENCH);
    command.arg("placement").args(arguments);
    // A lab has a name; NICs have one already.
    if !arguments.contains(&"--nic") {
        command.args(["--name", name]);
    }
    command
}

fn run(name: &str, arguments: &[&str]) -> Output {
    // It runs `mpxdp` from its own folder.
    mpxdp();
    placement(name, arguments).output().expect("it runs")
}

fn document(output: &Output) -> Document {
    let said = String::from_utf8_lossy(&output.stderr);
    Document::read(&output.stdout[..]).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// The threads of the kernel that process what arrives on receivers' ends of a link, in any lab.
fn napi_threads(link: u32) -> BTreeSet<u32> {
    let prefix = format!("napi/rcv{link}-");
    let processes = fs::read_dir("/proc").expect("proc").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with(&prefix))
    })
    .collect()
}

fn namespaces(name: &str) -> Vec<String> {
    let all = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = all.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|other| other.starts_with(name)).collect()
}

/// Fails if the sweep of that name left anything.
fn assert_nothing_left(name: &str) {
    assert!(namespaces(name).is_empty(), "{:?}", namespaces(name));
    assert!(!Path::new("/run/mpxdp-lab").join(format!("{name}.json")).exists());
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "it never came to this: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_sweep_measures_the_scenarios_and_lists_what_it_does_not() {
    if !privileged() {
        return;
    }
    let name = lab_name();
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("mpxdp.toml");
    fs::write(&config, "# Found on the bench.\nplacement = \"auto\" # by hand\n").expect("written");
    let path = config.to_string_lossy();
    let receivers = "mpxdp,kernel-mptcp,kernel-tcp-xdp";
    let output = run(
        &name,
        &["--receivers", receivers, "--seconds", "0.1", "--rounds", "1", "--limit", "2"]
            .into_iter()
            .chain(["--json", "-", "--write-config", &path])
            .collect::<Vec<_>>(),
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_nothing_left(&name);

    let document = document(&output);
    assert!(!document.interrupted);
    for row in &document.results {
        assert_well_formed(row);
    }
    let scenarios = |receiver: &str| {
        let rows = document.results.iter().filter(|row| row.receiver == receiver);
        rows.filter_map(|row| row.placed.as_ref()?.scenario).map(u8::from).collect::<Vec<_>>()
    };
    let one_cpu = mpxdp_bench::environment::cpus().len() == 1;
    let wanted: &[u8] = if one_cpu { &[1, 2] } else { &[1, 3, 2, 4] };
    assert_eq!(scenarios("mpxdp"), wanted, "{said}");
    assert_eq!(scenarios("kernel-mptcp"), wanted, "{said}");
    assert_eq!(scenarios("kernel-tcp-xdp"), wanted[..wanted.len() / 2], "{said}");
    let tcp = |not: &&mpxdp_bench::document::NotRun| not.what.contains("kernel-tcp-xdp");
    let reasons: Vec<_> = document.not_run.iter().filter(tcp).map(|not| &not.reason).collect();
    assert!(reasons.contains(&&"TCP has one subflow".to_owned()), "{reasons:?}");
    // Every placement that there is, on whatever machine: those of one link have 35 and 5 forms, of
    // two twice as many.
    let all = document.results.len() + document.not_run.len();
    assert_eq!(all, (35 + 70) + (5 + 10) + (5 + 1), "{said}");
    let rows = document.results.iter().filter(|row| has_cpu(row));
    let groups: BTreeSet<_> = rows.map(|row| (row.receiver.as_str(), row.subflows)).collect();
    assert_eq!(document.recommendations.len(), groups.len(), "{groups:?}");
    for recommended in &document.recommendations {
        assert!(said.contains(&recommended.reason), "{said}");
    }

    let text = fs::read_to_string(&config).expect("there");
    assert!(
        text.starts_with("# Found on the bench.\nplacement = \"worker=")
            || text.starts_with("# Found on the bench.\nplacement = \"napi="),
        "{text}"
    );
    assert!(text.ends_with("# by hand\n"), "{text}");
    assert_accepted(&config);
}

/// Whether there are CPU figures: a machine with far too much to do may have read them too late, and
/// says so.
fn has_cpu(row: &Row) -> bool {
    row.measurements.iter().any(|round| !round.cpu_invalid)
}

fn assert_well_formed(row: &Row) {
    let placed = row.placed.as_ref().expect("a placement");
    assert_eq!((row.benchmark.as_str(), row.mtu, row.rounds), ("placement", 1500, 1), "{row:#?}");
    assert!(row.bits_per_second.is_some_and(|rate| rate.median > 0.0), "{row:#?}");
    assert!(row.measurements[0].bytes > 0, "{row:#?}");
    assert_eq!(placed.nic_worker.is_some(), row.receiver == "mpxdp", "{row:#?}");
    assert_eq!(row.placement.contains("worker="), row.receiver == "mpxdp", "{row:#?}");
    let Some(found) = placed.bottleneck.as_ref() else {
        assert!(!has_cpu(row), "{row:#?}");
        return;
    };
    let shares = found.cpus.iter().flat_map(|load| &load.shares);
    let stages: BTreeSet<_> = shares.map(|share| share.stage.name()).collect();
    let mut wanted = BTreeSet::from(["NIC processing", "reader", "sender"]);
    if row.receiver == "mpxdp" {
        wanted.insert("worker");
        let at_work = row.measurements[0].busy.worker_at_work;
        assert!(at_work.is_some_and(|busy| busy > 0.0), "{row:#?}");
    }
    assert_eq!(stages, wanted, "{row:#?}");
}

/// Fails unless `mpxdp recv` takes the configuration: it gets as far as listening.
fn assert_accepted(config: &Path) {
    let rig = Rig::new(Lab::builder()).expect("privileged");
    let at = rig.at(Family::V4).to_string();
    let mut command = rig.mpxdp(&["recv", "--nic", "rcv0", "--listen", &at, "--config"]);
    let mut recv = Running::start("mpxdp recv", command.arg(config), &[]).expect("it starts");
    recv.wait_for("listening on", LIMIT, &Interrupt::never()).unwrap_or_else(|e| panic!("{e}"));
    recv.signal(Signal::SIGTERM).expect("it runs");
    recv.wait(LIMIT, &Interrupt::never())
        .and_then(mpxdp_bench::lab::Ended::success)
        .expect("it ends");
}

/// A link that no other test's lab has, so that threads of its interface are ours.
const OUR_LINK: u32 = 6;

/// A sweep after its first round, with NIC processing in threads of its own.
fn in_the_middle(name: &str) -> Running {
    mpxdp();
    let links = (OUR_LINK + 1).to_string();
    let mut command = placement(name, &["--receivers", "kernel-tcp", "--subflows", "1"]);
    command.args(["--placement", "napi=0 reader=0", "--links", &links, "--json", "-"]);
    command.args(["--seconds", "0.2", "--rounds", "500"]).env("MPXDP_BENCH_PROGRESS", "1");
    let mut running = Running::start("placement", &mut command, &[]).expect("it starts");
    running.wait_for("round 2", LIMIT, &Interrupt::never()).unwrap_or_else(|e| panic!("{e}"));
    wait_until("its threads are there", || !napi_threads(OUR_LINK).is_empty());
    running
}

/// One after the other, as they look at the same threads.
#[test]
fn a_sweep_that_is_interrupted_or_killed_leaves_all_as_it_was() {
    if !privileged() {
        return;
    }
    let name = lab_name();
    let running = in_the_middle(&name);
    running.signal(Signal::SIGINT).expect("it runs");
    let ended = running.wait(LIMIT, &Interrupt::never()).expect("it ends");
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.ends_with("interrupted\n"), "{}", ended.stderr);
    assert_nothing_left(&name);
    wait_until("its threads go", || napi_threads(OUR_LINK).is_empty());
    let document: Document = ended.json().expect("a document all the same");
    assert!(document.interrupted);
    let [row] = &document.results[..] else { panic!("one row: {document:#?}") };
    assert!((1..500).contains(&row.rounds), "{row:#?}");
    let [not] = &document.not_run[..] else { panic!("one reason: {document:#?}") };
    assert_eq!(not.reason, "interrupted");

    let running = in_the_middle(&name);
    running.signal(Signal::SIGKILL).expect("it runs");
    running.wait(LIMIT, &Interrupt::never()).expect("it ends");
    assert_eq!(namespaces(&name).len(), 2, "SIGKILL leaves no time to clean up");
    let next = lab_name();
    let arguments = ["--receivers", "kernel-tcp", "--subflows", "1", "--seconds", "0.1"];
    let output = run(&next, &[&arguments[..], &["--rounds", "1", "--limit", "1"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_nothing_left(&next);
    assert_nothing_left(&name);
    wait_until("its threads go", || napi_threads(OUR_LINK).is_empty());
}

/// The CPUs of a kernel thread, as the kernel writes them.
fn cpus_of(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.expect("a list").trim().to_owned()
}

/// An interface whose processing is in threads stands for a NIC here: the lab has no hardware.
#[test]
fn processing_that_is_held_is_put_back_after_a_signal_and_after_a_kill() {
    let Some(rig) = Rig::new(Lab::builder()) else { return };
    let others: BTreeSet<u32> = napi_threads(0);
    rig.lab.interface_setting(Side::Receiver, "rcv0/threaded", "1").expect("set");
    // Threads of other labs come and go; ours is the one that the command pins.
    let ours = |cpu: &str| {
        let new = napi_threads(0).into_iter().filter(|pid| !others.contains(pid));
        new.filter(|&pid| cpus_of(pid) == cpu).collect::<Vec<_>>()
    };
    let last = mpxdp_bench::environment::cpus().last().copied().expect("a CPU").to_string();
    let text = format!("napi={last} worker={last}");
    let start = || {
        let mut command = rig.lab.command(Side::Receiver, BENCH);
        command.args(["placement", "--nic", "rcv0", "--placement", &text]);
        let mut running = Running::start("placement", &mut command, &[]).expect("it starts");
        running
            .wait_for("until SIGINT", LIMIT, &Interrupt::never())
            .unwrap_or_else(|error| panic!("{error}"));
        assert!(!ours(&last).is_empty(), "nothing was pinned");
        running
    };
    let held = start();
    let pinned = ours(&last);
    held.signal(Signal::SIGINT).expect("it runs");
    let ended = held.wait(LIMIT, &Interrupt::never()).expect("it ends");
    assert!(ended.status.success(), "{}", ended.stderr);
    assert!(ended.stderr.contains("where it was"), "{}", ended.stderr);
    let several = mpxdp_bench::environment::cpus().len() > 1;
    let back = |pinned: &[u32]| pinned.iter().any(|&pid| cpus_of(pid) != last) || !several;
    assert!(back(&pinned), "{last}");

    let held = start();
    let pinned = ours(&last);
    held.signal(Signal::SIGKILL).expect("it runs");
    held.wait(LIMIT, &Interrupt::never()).expect("it ends");
    assert!(pinned.iter().any(|&pid| cpus_of(pid) == last), "SIGKILL leaves no time");
    let arguments = ["--receivers", "kernel-tcp", "--subflows", "1", "--seconds", "0.1"];
    let next = lab_name();
    let output = run(&next, &[&arguments[..], &["--rounds", "1", "--limit", "1"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(back(&pinned), "{last}");
}

/// As between two hosts, with an interface whose processing is in threads for a NIC.
#[test]
fn a_sweep_from_a_sender_on_another_host() {
    let Some(rig) = Rig::new(Lab::builder().mtu(9000)) else { return };
    mpxdp();
    rig.lab.interface_setting(Side::Receiver, "rcv0/threaded", "1").expect("set");
    let serve = "10.77.0.1:4999";
    let mut command = rig.lab.command(Side::Sender, BENCH);
    let mut sender = Running::start("sender", command.args(["sender", "--serve", serve]), &[])
        .expect("it starts");
    sender.wait_for("serving at", LIMIT, &Interrupt::never()).expect("it serves");
    let mut command = rig.lab.command(Side::Receiver, BENCH);
    command.args(["placement", "--nic", "rcv0", "--listen", "10.77.0.2:5000", "--sender", serve]);
    command.args(["--receivers", "mpxdp,kernel-tcp", "--subflows", "1", "--limit", "1"]);
    command.args(["--seconds", "0.2", "--rounds", "1", "--json", "-"]);
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let document = document(&output);
    let [mpxdp, kernel] = &document.results[..] else { panic!("two rows: {said}") };
    for row in [mpxdp, kernel] {
        assert_eq!((row.mtu, row.links), (9000, 1), "{row:#?}");
        assert!(row.placement.starts_with("napi="), "{row:#?}");
        let placed = row.placed.as_ref().expect("a placement");
        assert_eq!(placed.sender_cpu, None, "it is on no CPU of ours");
        let shares = placed.bottleneck.iter().flat_map(|found| &found.cpus);
        assert!(shares.flat_map(|load| &load.shares).all(|share| share.stage.name() != "sender"));
    }
    sender.signal(Signal::SIGTERM).expect("it runs");
    sender.wait(LIMIT, &Interrupt::never()).expect("it ends");
    rig.assert_detached();
}

#[test]
fn wrong_usage_is_one_line_before_anything_is_made() {
    for (arguments, named) in [
        (&["--rounds", "0"][..], "--rounds"),
        (&["--limit", "0"], "--limit"),
        (&["--subflows", "9"], "--subflows 9"),
        (&["--placement", "worker=7999"], "7999"),
        (&["--placement", "wrk=1"], "wrk"),
        (&["--receivers", "kernel-tcp", "--write-config", "/tmp/x"], "--write-config"),
        (&["--write-config", "/no/such/folder/x.toml"], "/no/such/folder"),
        (&["--json", "/no/such/folder/x.json"], "/no/such/folder"),
        (&["--nic", "no-such-nic"], "no-such-nic"),
        (&["--nic", "lo", "--placement", "worker=0"], "napi=CPUS"),
        (&["--nic", "lo", "--json", "-"], "--nic"),
    ] {
        let name = lab_name();
        let output = placement(&name, arguments).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert_eq!(said.trim().lines().count(), 1, "{arguments:?}: {said}");
        assert!(said.contains(named), "{arguments:?}: {said}");
        assert!(namespaces(&name).is_empty());
    }
}
