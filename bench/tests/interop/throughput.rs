//! `mpxdp-bench throughput`: its document, its messages, and what it leaves behind.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use mpxdp_bench::document::{Document, Row};
use mpxdp_bench::lab::{Lab, Running, Side};
use mpxdp_bench::{Interrupt, environment};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::harness::{BENCH, LIMIT, Rig, lab_name, mpxdp, privileged};

/// A name for its lab, which is removed in the end whatever happens.
struct Named(String);

impl Named {
    fn new() -> Self {
        Self(lab_name())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        // It looks for `mpxdp` beside itself.
        mpxdp();
        let mut command = Command::new(BENCH);
        command.args(["throughput", "--name", &self.0]).args(arguments);
        command
    }

    fn assert_gone(&self) {
        for side in ["snd", "rcv", "mid"] {
            let namespace = format!("{}-{side}", self.0);
            assert!(!Path::new("/run/netns").join(&namespace).exists(), "{namespace} is left");
        }
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        // Failing here would hide what failed before.
        let _ = Lab::down(&self.0);
    }
}

/// Whether there are CPU figures: a machine with far too much to do may have read them too late in
/// every round, and says so.
fn has_cpu(row: &Row) -> bool {
    row.measurements.iter().any(|round| !round.cpu_invalid)
}

/// Whether it failed because a receiver of the kernel's took too long, and for nothing else.
fn kernel_stood_still(output: &Output) -> bool {
    if output.status.code() != Some(1) {
        return false;
    }
    let not_run = document(&output.stdout).not_run;
    not_run.iter().any(|one| one.reason.contains("did not end within"))
        && not_run.iter().all(|one| one.what.starts_with("kernel-"))
}

fn document(stdout: &[u8]) -> Document {
    Document::read(stdout).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn one_and_two_subflows_at_the_same_place() {
    if !privileged() {
        return;
    }
    let named = Named::new();
    let cpus = environment::cpus();
    let cpu = cpus.last().expect("there is one");
    let placement = format!("worker={cpu} reader={cpu}");
    let run = || {
        named
            .command(&["--seconds", "0.3", "--rounds", "2", "--mtu", "9000", "--links", "2"])
            .args(["--subflows", "1,2", "--placement", &placement, "--json", "-"])
            .output()
            .expect("it runs")
    };
    // Between two kernels, a transfer of two subflows to a busy CPU stands still for longer than the
    // benchmark waits now and then. It says so, rightly, and that is not what is looked at here.
    let output = (0..3).map(|_| run()).find(|output| !kernel_stood_still(output));
    let output = output.expect("one of three");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    named.assert_gone();
    let document = document(&output.stdout);
    assert!(!document.interrupted);
    let nics = &document.environment.nics;
    assert_eq!(nics.iter().map(|nic| nic.name.as_str()).collect::<Vec<_>>(), ["rcv0", "rcv1"]);
    // Five receivers with one, those that speak MPTCP with two.
    assert_eq!(document.results.len(), 5 + 3, "{said}");
    assert_eq!(document.not_run.len(), 2);
    for row in &document.results {
        assert_eq!((row.benchmark.as_str(), row.mtu, row.links), ("throughput", 9000, 2));
        assert!(row.best && row.placement.contains(&format!("reader={cpu}")), "{row:#?}");
        assert_eq!((row.rounds, row.measurements.len()), (2, 2), "{row:#?}");
        let rate = row.bits_per_second.expect("rounds");
        assert!(rate.min > 0.0 && rate.min <= rate.median && rate.median <= rate.max, "{row:#?}");
        assert_eq!(row.cpu_seconds_per_gigabyte.is_some_and(|cost| cost > 0.0), has_cpu(row));
        assert_eq!(row.noisy, row.noisy_reason.is_some());
        assert_eq!(row.mptcp, !row.receiver.contains("tcp") || row.receiver.contains("mptcp"));
        if row.receiver == "mpxdp" {
            let subflows = row.subflows as usize;
            assert!(row.measurements.iter().all(|round| round.subflow_bytes.len() == subflows));
        }
    }
    let of_ours = document.ratios.iter().filter(|ratio| ratio.of == "mpxdp");
    let several = of_ours.clone().filter(|ratio| ratio.against == "mpxdp").collect::<Vec<_>>();
    assert_eq!(several.len(), 1, "{:#?}", document.ratios);
    assert_eq!((several[0].subflows, several[0].against_subflows), (2, Some(1)));
    assert_eq!(document.front_ends.len(), 2, "{said}");
    for front_end in &document.front_ends {
        assert!(front_end.packets_per_second.min > 0.0, "{front_end:#?}");
        assert!(front_end.nanoseconds_per_packet.min > 0.0, "{front_end:#?}");
    }
    for row in &document.results {
        let has = row.receiver == "mpxdp" || row.receiver.ends_with("-xdp");
        assert_eq!(row.above_front_end.is_some(), has && has_cpu(row), "{row:#?}");
        assert_eq!(row.nanoseconds_per_packet.is_some_and(|cost| cost > 0.0), has_cpu(row));
    }
    // Against four with one subflow and two with two, best with best and like with like.
    assert_eq!(of_ours.count() - 1, 2 * (4 + 2), "{:#?}", document.ratios);
    assert!(document.ratios.iter().all(|ratio| ratio.min <= ratio.median), "{document:#?}");
}

/// The lab's namespaces stand for two hosts.
#[test]
fn from_a_sender_on_another_host() {
    let Some(rig) = Rig::new(Lab::builder().mtu(9000)) else { return };
    mpxdp();
    let serve = "10.77.0.1:4999";
    let mut command = rig.lab.command(Side::Sender, BENCH);
    command.args(["sender", "--serve", serve]);
    let mut sender = Running::start("sender", &mut command, &[]).expect("it starts");
    sender.wait_for("serving at", LIMIT, &Interrupt::never()).expect("it serves");
    let before = rig.tool(Side::Receiver, &["ip", "-d", "link", "show", "dev", "rcv0"]);

    let throughput = |arguments: &[&str]| {
        let mut command = rig.lab.command(Side::Receiver, BENCH);
        command.args(["throughput", "--listen", "10.77.0.2:5000"]).args(arguments);
        command.output().expect("it runs")
    };
    let cpus = environment::cpus();
    let cpu = cpus.last().expect("there is one");
    let placement = format!("worker={cpu} reader={cpu}");
    let hosts = ["--nic", "rcv0", "--sender", serve, "--placement", &placement];
    let short = ["--seconds", "0.2", "--rounds", "1", "--json", "-"];
    let output = throughput(&[&hosts[..], &short].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let document = document(&output.stdout);
    let receivers: Vec<_> = document.results.iter().map(|row| row.receiver.as_str()).collect();
    let expected = ["mpxdp", "kernel-mptcp-xdp", "kernel-tcp-xdp", "kernel-mptcp", "kernel-tcp"];
    assert_eq!(receivers, expected, "{said}");
    for row in &document.results {
        assert_eq!((row.mtu, row.links), (9000, 1));
        assert!(row.bits_per_second.is_some_and(|rate| rate.min > 0.0), "{row:#?}");
        let worker = if row.receiver == "mpxdp" { &*placement } else { &placement[9..] };
        assert_eq!(row.placement, worker);
    }
    assert_eq!(before, rig.tool(Side::Receiver, &["ip", "-d", "link", "show", "dev", "rcv0"]));

    // More subflows than the hosts are set up for are not passed over.
    let output = throughput(
        &[&hosts[..], &short, &["--subflows", "2", "--receivers", "kernel-mptcp"]].concat(),
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("1 subflows, not 2"), "{said}");

    for (arguments, code, named) in [
        (&["--nic", "nonesuch0", "--sender", serve][..], 2, "nonesuch0"),
        (&["--nic", "rcv0", "--sender", serve, "--mtu", "1500"], 2, "--mtu"),
        (&["--nic", "rcv0", "--sender", serve, "--placement", "napi=0 worker=0"], 2, "napi=0"),
        (&["--nic", "rcv0", "--sender", "nowhere"], 2, "nowhere"),
        (&["--nic", "rcv0", "--sender", "10.77.0.1:4998"], 1, "sender --serve"),
        (&["--sender", serve], 2, "--nic"),
    ] {
        let output =
            throughput(&[arguments, &["--receivers", "kernel-tcp", "--rounds", "1"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(named), "{arguments:?}: nothing of {named:?} in: {said}");
    }
    sender.signal(Signal::SIGTERM).expect("it runs");
    let ended = sender.wait(LIMIT, &Interrupt::never()).expect("it ends");
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    rig.assert_detached();
}

#[test]
fn a_signal_keeps_what_was_measured() {
    if !privileged() {
        return;
    }
    let named = Named::new();
    let mut command = named.command(&["--seconds", "0.2", "--rounds", "1000", "--mtu", "1500"]);
    command.args(["--receivers", "kernel-tcp", "--json", "-"]);
    let cpu = environment::cpus()[0];
    command.args(["--placement", &format!("reader={cpu}")]).env("MPXDP_BENCH_PROGRESS", "1");
    // As a terminal does it: to the processes of the measurement, too.
    command.process_group(0);
    let mut running = Running::start("throughput", &mut command, &[]).expect("it starts");
    running.wait_for("round 2 of", LIMIT, &Interrupt::never()).expect("a round passes");
    killpg(Pid::from_raw(running.pid().cast_signed()), Signal::SIGINT).expect("it runs");
    let ended = running.wait(Duration::from_secs(60), &Interrupt::never()).expect("it ends");
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("INTERRUPTED"), "{}", ended.stderr);
    named.assert_gone();
    let document = document(&ended.stdout);
    assert!(document.interrupted);
    assert!(document.not_run.is_empty(), "{:#?}", document.not_run);
    assert_eq!(document.results.len(), 1);
    assert!(!document.results[0].measurements.is_empty());
}

/// A run of one round of the kernel's TCP at one place, which has its lab to itself.
fn one_round(named: &Named, json: &Path, more: &[&str]) -> Running {
    let cpu = environment::cpus()[0];
    let mut command = named.command(&["--seconds", "1", "--rounds", "1", "--mtu", "1500"]);
    command.args(["--receivers", "kernel-tcp", "--placement", &format!("reader={cpu}")]);
    command.args(["--no-front-end", "--json"]).arg(json).args(more);
    Running::start("throughput", &mut command, &[]).expect("it starts")
}

/// Waits until the sender of a measurement runs.
fn wait_for_sender(running: &Running) {
    let children = format!("/proc/{0}/task/{0}/children", running.pid());
    let is_sender = |pid: &str| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = line.split(|&byte| byte == 0).collect::<Vec<_>>();
        words.first().is_some_and(|word| word.ends_with(b"mpxdp-bench"))
            && words.contains(&&b"sender"[..])
    };
    let deadline = Instant::now() + LIMIT;
    while !fs::read_to_string(&children).unwrap_or_default().split_whitespace().any(is_sender) {
        assert!(Instant::now() < deadline, "no sender was started");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn cpu_time_that_was_read_too_late_is_marked_and_left_out() {
    if !privileged() {
        return;
    }
    let (named, folder) = (Named::new(), tempfile::tempdir().expect("a folder"));
    let json = folder.path().join("out.json");
    let reno = ["--congestion", "reno"];
    let running = one_round(&named, &json, &reno);
    wait_for_sender(&running);
    // Longer than warm-up and measurement, both of whose ends are noticed afterwards.
    running.signal(Signal::SIGSTOP).expect("it runs");
    thread::sleep(Duration::from_secs(4));
    running.signal(Signal::SIGCONT).expect("it is there");
    let ended = running.wait(LIMIT, &Interrupt::never()).expect("it ends");
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("CPU TIME NOT VALID in 1 of 1 rounds"), "{}", ended.stderr);
    let document = document(&fs::read(&json).expect("a document"));
    let row = &document.results[0];
    let round = &row.measurements[0];
    assert!(round.cpu_invalid && round.cpu_span_seconds.is_some(), "{round:#?}");
    assert!(row.bits_per_second.is_some_and(|rate| rate.min > 0.0), "{row:#?}");
    assert_eq!((row.receiving_cores, row.cpu_seconds_per_gigabyte), (None, None));
    let lab = document.environment.lab.expect("it was one");
    assert_eq!((lab.congestion.as_str(), lab.sender_cpu), ("reno", None));
}

#[test]
fn a_lab_that_cannot_be_removed_costs_no_document() {
    if !privileged() {
        return;
    }
    let (named, folder) = (Named::new(), tempfile::tempdir().expect("a folder"));
    let json = folder.path().join("out.json");
    fs::write(&json, "a former run's").expect("written");
    let cpu = environment::cpus()[0];
    let running = one_round(&named, &json, &["--sender-cpu", &cpu.to_string()]);
    wait_for_sender(&running);
    assert_eq!(fs::read_to_string(&json).expect("there"), "a former run's");
    let entry = format!("/run/mpxdp-lab/{}.json", named.0);
    let before = fs::read(&entry).expect("the lab is written down");
    fs::write(&entry, "damaged").expect("written");
    let ended = running.wait(LIMIT, &Interrupt::never()).expect("it ends");
    fs::write(&entry, before).expect("mended, so that the lab can go");
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("is damaged"), "{}", ended.stderr);
    let document = document(&fs::read(&json).expect("a document"));
    assert_eq!(document.results.len(), 1);
    assert!(document.not_run[0].reason.contains("is damaged"), "{:#?}", document.not_run);
    assert_eq!(document.environment.lab.and_then(|lab| lab.sender_cpu), Some(cpu));
    assert!(Lab::down(&named.0).expect("it goes now"));
    named.assert_gone();
}

/// Fails unless it ends with that code and one line that names something; no lab was made then.
fn assert_refused(mut command: Command, code: i32, named: &str) {
    let output: Output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{command:?}: {said}");
    assert!(said.contains(named), "{command:?}: nothing of {named:?} in: {said}");
    assert!(output.stdout.is_empty(), "{command:?}");
}

#[test]
fn wrong_usage_is_found_before_anything_is_done() {
    let lab = Named::new();
    for (arguments, named) in [
        (&["--frobnicate"][..], "--frobnicate"),
        (&["--mtu", "100"], "--mtu 100"),
        (&["--mtu", "1500,70000"], "--mtu 70000"),
        (&["--subflows", "9"], "--subflows 9"),
        (&["--subflows", "1,0"], "--subflows 0"),
        (&["--links", "65"], "--links 65"),
        (&["--rounds", "0"], "--rounds 0"),
        (&["--seconds", "0"], "--seconds"),
        (&["--seconds", "x"], "--seconds"),
        (&["--placement", "worker=8191"], "no CPU 8191"),
        (&["--placement", "nowhere"], "nowhere"),
        (&["--receivers", "kernel-udp"], "kernel-udp"),
        (&["--json", "/no/such/folder/file"], "/no/such/folder/file"),
        (&["--json", ""], "--json"),
    ] {
        assert_refused(lab.command(arguments), 2, named);
    }
    lab.assert_gone();
}

#[test]
fn missing_privilege_is_named() {
    if !privileged() {
        return;
    }
    let lab = Named::new();
    let mut command = Command::new("setpriv");
    // Root by name only, with no capability.
    command.args(["--bounding-set=-all", "--inh-caps=-all", BENCH, "throughput"]);
    command.args(["--name", &lab.0]);
    assert_refused(command, 1, "CAP_NET_ADMIN");
    lab.assert_gone();
    assert!(!fs::exists(format!("/run/mpxdp-lab/{}.json", lab.0)).expect("it can be asked"));
}
