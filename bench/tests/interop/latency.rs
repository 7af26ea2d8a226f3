//! `mpxdp-bench latency` in the lab: every receiver and way of reading gives a row that makes sense,
//! and nothing is left behind.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use mpxdp_bench::Interrupt;
use mpxdp_bench::document::{Document, Latency, Percentiles, Row};
use mpxdp_bench::lab::{Family, Lab, Running, Side};
use mpxdp_bench::latency::histogram;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::harness::{BENCH, LIMIT, Rig, finish, lab_name, privileged};

/// Runs `mpxdp-bench latency` in a lab of its own, which must be gone afterwards.
fn latency(arguments: &[&str]) -> Output {
    let name = lab_name();
    let output = Command::new(BENCH)
        .args(["latency", "--name", &name])
        .args(arguments)
        .output()
        .expect("it runs");
    for side in Side::BOTH {
        let namespace = Path::new("/run/netns").join(format!("{name}-{}", side.tag()));
        assert!(!namespace.exists(), "{namespace:?} is left behind");
    }
    output
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn ascending(percentiles: &Percentiles) -> bool {
    let Percentiles { p50, p90, p99, p99_9, p99_99, max } = *percentiles;
    p50 > 0 && [p50, p90, p99, p99_9, p99_99, max].is_sorted()
}

fn check(row: &Row, messages: u64) {
    let latency = row.latency.as_ref().unwrap_or_else(|| panic!("no latency: {row:#?}"));
    let Latency { latency_ns, transit_ns, lateness_ns, .. } = latency;
    assert!(ascending(latency_ns) && ascending(transit_ns), "{row:#?}");
    // A message is not with the reader before it was written, nor written before it was due.
    assert!(transit_ns.max <= latency_ns.max && transit_ns.p50 <= latency_ns.p50, "{row:#?}");
    assert!(lateness_ns.max <= latency_ns.max, "{row:#?}");
    assert_eq!((latency.messages, latency.unsent), (messages, 0), "{row:#?}");
    assert_eq!(latency.rounds_ns.len(), row.rounds);
    let whole = histogram::decode(&latency.histogram).expect("a histogram");
    assert_eq!(whole.len(), messages);
    assert_eq!(Percentiles::of(&whole), *latency_ns);
    assert_eq!(row.mptcp, row.receiver.contains("mp"), "{row:#?}");
    assert_eq!(latency.worker.is_some(), row.receiver == "mpxdp", "{row:#?}");
}

#[test]
fn every_receiver_gives_a_row_for_every_way_of_reading() {
    if !privileged() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let plots = folder.path().join("plots");
    let plots_text = plots.to_string_lossy().into_owned();
    let output = latency(&[
        "--rate=2000",
        "--size=64",
        "--seconds=0.2",
        "--rounds=1",
        "--reader=sleep,spin,busy-poll",
        "--json=-",
        "--hgrm",
        &plots_text,
    ]);
    assert!(output.status.success(), "{}", said(&output));
    let document = Document::read(&output.stdout[..]).expect("a document");
    for row in &document.results {
        check(row, 400);
    }
    let name = |row: &Row| {
        let latency = row.latency.as_ref().expect("checked");
        format!("{}-{}", row.receiver, latency.reader.name())
    };
    let rows: BTreeMap<String, &Row> =
        document.results.iter().map(|row| (name(row), row)).collect();
    for receiver in ["mpxdp", "kernel-mptcp", "kernel-tcp", "kernel-mptcp-xdp", "kernel-tcp-xdp"] {
        for reader in ["sleep", "spin"] {
            let name = format!("{receiver}-{reader}");
            assert!(rows.contains_key(&name), "no row of {name}");
            let plot = plots.join(format!("{name}-mtu1500-2000x64.hgrm"));
            let text = fs::read_to_string(&plot).unwrap_or_else(|e| panic!("{plot:?}: {e}"));
            assert!(text.contains("#[Max") && text.contains("Total count    =          400"));
        }
    }
    // Busy polling is a row or a reason.
    let reasons = document.not_run.iter().filter(|one| one.what.contains("busy-poll"));
    assert_eq!(rows.len() + reasons.count(), 15, "{:#?}", document.not_run);
    assert!(!rows.contains_key("mpxdp-busy-poll"));
    let text = said(&output);
    for part in ["p99.99", "kernel-mptcp-xdp", "not measured: ", "application had all of it"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_distribution_that_cannot_be_written_takes_no_results_along() {
    if !privileged() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    // Nothing can be written over a folder.
    let taken = folder.path().join("kernel-tcp-sleep-mtu1500-1000x64.hgrm");
    fs::create_dir(&taken).expect("made");
    let output = latency(&[
        "--rate=1000",
        "--size=64",
        "--seconds=0.1",
        "--rounds=1",
        "--receivers=kernel-tcp,kernel-mptcp",
        "--reader=sleep",
        "--json=-",
        "--hgrm",
        &folder.path().to_string_lossy(),
    ]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let document = Document::read(&output.stdout[..]).expect("a document");
    assert_eq!(document.results.len(), 2);
    assert!(document.not_run[0].reason.contains(&*taken.to_string_lossy()), "{document:?}");
    assert!(folder.path().join("kernel-mptcp-sleep-mtu1500-1000x64.hgrm").is_file());
}

#[test]
fn rates_and_sizes_are_all_measured_in_every_round() {
    if !privileged() {
        return;
    }
    let output = latency(&[
        "--rate=1000,3000",
        "--size=24,20000",
        "--mtu=9000",
        "--seconds=0.1",
        "--rounds=2",
        "--receivers=mpxdp",
        "--reader=spin",
        "--placement=worker=0 reader=0",
        "--json=-",
    ]);
    assert!(output.status.success(), "{}", said(&output));
    let document = Document::read(&output.stdout[..]).expect("a document");
    let mut seen = Vec::new();
    for row in &document.results {
        let latency = row.latency.as_ref().expect("a row of latency");
        check(row, 2 * u64::from(latency.rate / 10));
        assert_eq!(row.placement, "napi=sender worker=0 reader=0");
        seen.push((row.mtu, latency.size, latency.rate));
    }
    let expected = [(24, 1000), (24, 3000), (20_000, 1000), (20_000, 3000)];
    assert_eq!(seen, expected.map(|(size, rate)| (9000, size, rate)));
}

#[test]
fn wrong_usage_is_one_line_and_makes_no_lab() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let below_a_file = format!("{}/plots", file.path().display());
    for (arguments, named) in [
        (&["--rate=0"][..], "--rate 0"),
        (&["--size=8"], "--size 8"),
        (&["--rounds=0"], "--rounds"),
        (&["--placement=worker=9999"], "--placement"),
        (&["--seconds=0.00001"], "--seconds"),
        (&["--json=/nonesuch/file"], "--json"),
        (&["--hgrm", &below_a_file], "--hgrm"),
    ] {
        let output = latency(arguments);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{arguments:?}: {text}");
        assert!(text.contains(named), "{arguments:?}: {text}");
        assert!(output.stdout.is_empty());
    }
    // Those that the parser itself refuses.
    for arguments in [["--reader", "fast"], ["--receivers", "none"], ["--rate", "x"]] {
        assert_eq!(latency(&arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_sender_of_something_else_is_refused_by_the_reader() {
    let Some(rig) = Rig::new(Lab::builder()) else { return };
    let at = rig.at(Family::V4).to_string();
    let mut command = rig.lab.command(Side::Receiver, BENCH);
    command.args(["latency-reader", "--receiver=mpxdp", "--nic=rcv0", "--reading=sleep"]);
    command.args(["--size=64", "--listen", &at]);
    let mut reader = Running::start("reader", &mut command, &[]).expect("it starts");
    reader.wait_for("listening on", LIMIT, &Interrupt::never()).expect("it listens");
    let sender = rig.sender(Family::V4, &["--bytes=1000"]);
    let reader = finish(reader);
    finish(sender);
    assert_eq!(reader.status.code(), Some(1));
    assert!(reader.stderr.contains("no sender of this benchmark"), "{}", reader.stderr);
    rig.assert_detached();
}

#[test]
fn a_signal_keeps_what_was_measured() {
    if !privileged() {
        return;
    }
    let name = lab_name();
    let mut command = Command::new(BENCH);
    command.args(["latency", "--name", &name, "--seconds", "0.2", "--rounds", "1000"]);
    command.args(["--receivers", "kernel-tcp", "--reader", "sleep", "--json", "-"]);
    // As a terminal does it: to the processes of the measurement, too.
    command.env("MPXDP_BENCH_PROGRESS", "1").process_group(0);
    let mut running = Running::start("latency", &mut command, &[]).expect("it starts");
    running.wait_for("round 2 of", LIMIT, &Interrupt::never()).expect("a round passes");
    killpg(Pid::from_raw(running.pid().cast_signed()), Signal::SIGINT).expect("it runs");
    let ended = running.wait(Duration::from_secs(60), &Interrupt::never()).expect("it ends");
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("interrupted"), "{}", ended.stderr);
    assert!(!Path::new("/run/netns").join(format!("{name}-snd")).exists());
    let document: Document = serde_json::from_slice(&ended.stdout).expect("a document");
    assert!(document.interrupted);
    assert_eq!(document.results.len(), 1);
    assert!(document.results[0].rounds > 0);
}
