//! The lab itself: it comes up as asked, is left alone when it is up already, and goes wholly.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use mpxdp_bench::Interrupt;
use mpxdp_bench::lab::{Family, Lab, Running, Side};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::harness::{BENCH, LIMIT, Rig, lab_name, privileged};

/// The command `mpxdp-bench lab` with a name, which removes that lab in the end.
struct Named(String);

impl Named {
    fn new() -> Self {
        Self(lab_name())
    }

    fn run(&self, command: &str, arguments: &[&str]) -> Output {
        let mut process = Command::new(BENCH);
        process.args(["lab", command, "--name", &self.0]).args(arguments);
        process.output().expect("it runs")
    }

    fn ok(&self, command: &str, arguments: &[&str]) -> String {
        let output = self.run(command, arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "lab {command} {arguments:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn namespaces(&self) -> Vec<bool> {
        let exists = |side: Side| Path::new("/run/netns").join(self.name(side)).exists();
        Side::BOTH.map(exists).to_vec()
    }

    fn name(&self, side: Side) -> String {
        format!("{}-{}", self.0, side.tag())
    }
}

/// Takes a lab down in the end.
struct Down<'a>(&'a Named);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        let _ = Lab::down(&self.0.0);
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        // Failing here would hide what failed before.
        let _ = Lab::down(&self.0);
    }
}

#[test]
fn up_and_down_can_be_repeated() {
    if !privileged() {
        return;
    }
    let lab = Named::new();
    lab.ok("up", &["--links", "2", "--queues", "3", "--mtu", "9000"]);
    let index = lab.ok("exec", &["rcv", "cat", "/sys/class/net/rcv1/ifindex"]);
    lab.ok("up", &["--links", "2", "--queues", "3", "--mtu", "9000"]);
    assert_eq!(index, lab.ok("exec", &["rcv", "cat", "/sys/class/net/rcv1/ifindex"]));
    for address in ["10.77.1.1", "fd77:0:0:1::1"] {
        lab.ok("exec", &["rcv", "ping", "-c", "1", "-W", "5", address]);
    }
    let queues = lab.ok("exec", &["rcv", "ls", "/sys/class/net/rcv0/queues"]);
    assert_eq!(queues.split_whitespace().collect::<Vec<_>>().len(), 6, "{queues}");
    assert_eq!(lab.ok("exec", &["snd", "cat", "/sys/class/net/snd0/mtu"]).trim(), "9000");

    let output = lab.run("up", &["--mtu", "1500"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("another shape") && said.contains("lab down --name"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(index, lab.ok("exec", &["rcv", "cat", "/sys/class/net/rcv1/ifindex"]));
    // Nor is it a benchmark's to take.
    let mut throughput = Command::new(BENCH);
    throughput.args(["demo", "--name", &lab.0, "--mtu", "1500", "--receivers", "kernel-tcp"]);
    let output = throughput.output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("another shape"), "{said}");
    assert_eq!(index, lab.ok("exec", &["rcv", "cat", "/sys/class/net/rcv1/ifindex"]));

    lab.ok("down", &[]);
    lab.ok("up", &["--mtu", "1500"]);
    assert_eq!(lab.ok("exec", &["snd", "cat", "/sys/class/net/snd0/mtu"]).trim(), "1500");
    assert!(!lab.run("exec", &["rcv", "ip", "link", "show", "rcv1"]).status.success());

    lab.ok("down", &[]);
    assert_eq!(lab.namespaces(), [false, false]);
    lab.ok("down", &[]);
    let output = lab.run("exec", &["rcv", "true"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not up"));
}

#[test]
fn both_sides_have_the_congestion_control_that_was_asked_for() {
    const SETTING: [&str; 2] = ["cat", "/proc/sys/net/ipv4/tcp_congestion_control"];
    if !privileged() {
        return;
    }
    let lab = Named::new();
    let allowed = fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
    let allowed = allowed.expect("every kernel has it");
    // Most hosts allow one besides.
    let other = allowed.split_ascii_whitespace().find(|name| *name != "reno").unwrap_or("reno");
    for (arguments, wanted) in [(&[][..], "reno"), (&["--congestion", other], other)] {
        lab.ok("up", arguments);
        // Before the next one has another shape.
        let _down = Down(&lab);
        for side in ["snd", "rcv"] {
            let set = lab.ok("exec", &[&[side][..], &SETTING].concat());
            assert_eq!(set.trim(), wanted, "{side}");
        }
    }
    let output = lab.run("up", &["--congestion", "nonesuch"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("nonesuch"));
}

#[test]
fn what_the_sender_receives_can_be_given_a_cpu() {
    if !privileged() {
        return;
    }
    let lab = Named::new();
    let cpu = *mpxdp_bench::environment::cpus().last().expect("there is one");
    lab.ok("up", &["--queues", "2", "--sender-cpu", &cpu.to_string()]);
    for (side, queue) in [("snd", 0), ("snd", 1), ("rcv", 0)] {
        let file = format!("/sys/class/net/{side}0/queues/rx-{queue}/rps_cpus");
        let mask = lab.ok("exec", &[side, "cat", &file]);
        let low = mask.trim().rsplit(',').nth(cpu / 32).expect("as many words as CPUs need");
        let set = u32::from_str_radix(low, 16).expect("hexadecimal");
        let expected = if side == "snd" { 1 << (cpu % 32) } else { 0 };
        assert_eq!(set, expected, "{side}, queue {queue}: {mask}");
    }
    lab.ok("exec", &["rcv", "ping", "-c", "1", "-W", "5", "10.77.0.1"]);
}

#[test]
fn down_ends_the_processes_in_the_lab() {
    let Some(Rig { lab, .. }) = Rig::new(Lab::builder()) else { return };
    let mut sleeper = lab.command(Side::Sender, "sleep");
    let running = Running::start("sleep", sleeper.arg("600"), &[]).expect("it starts");
    // Until then it is `ip`, which is on its way into the namespace.
    let comm = format!("/proc/{}/comm", running.pid());
    wait_until(|| fs::read_to_string(&comm).is_ok_and(|name| name.trim() == "sleep"));
    lab.remove().expect("the lab goes");
    let ended = running.wait(Duration::from_secs(10), &Interrupt::never()).expect("it ends");
    assert_eq!(ended.status.signal(), Some(Signal::SIGKILL as i32));
}

#[test]
fn a_namespace_that_no_lab_made_is_left_alone() {
    if !privileged() {
        return;
    }
    let lab = Named::new();
    let foreign = lab.name(Side::Receiver);
    let netns = |command: &str| Command::new("ip").args(["netns", command, &foreign]).status();
    assert!(netns("add").expect("ip runs").success());
    let output = lab.run("up", &[]);
    let there = lab.namespaces();
    assert!(netns("del").expect("ip runs").success());
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains(&foreign));
    assert_eq!(there, [false, true]);
}

#[test]
fn the_lab_of_a_killed_process_goes_with_the_next_one() {
    if !privileged() {
        return;
    }
    // The demo makes a lab that belongs to it.
    let lab = Named::new();
    let mut command = Command::new(BENCH);
    command.args(["demo", "--name", &lab.0, "--mtu", "1500", "--seconds", "60"]);
    command.args(["--receivers", "kernel-tcp"]);
    let demo = Running::start("demo", &mut command, &[]).expect("it starts");
    wait_until(|| lab.namespaces() == [true, true]);
    demo.signal(Signal::SIGKILL).expect("it runs");
    demo.wait(LIMIT, &Interrupt::never()).expect("it ends");
    assert_eq!(lab.namespaces(), [true, true], "SIGKILL leaves no time to clean up");

    let other = Lab::builder().name(lab_name()).up().expect("another lab comes up");
    assert_eq!(lab.namespaces(), [false, false]);
    drop(other);
}

#[test]
fn a_lab_that_a_process_uses_is_nobody_elses() {
    if !privileged() {
        return;
    }
    let used = Lab::builder().name(lab_name()).up().expect("the lab comes up");
    let name = &used.spec().name;
    let index = || {
        let path = ["cat", "/sys/class/net/rcv0/ifindex"];
        used.run(Side::Receiver, &path).expect("the interface is there")
    };
    let before = index();
    let user = format!("in use by process {}", std::process::id());
    for arguments in [
        &["lab", "up"][..],
        &["lab", "up", "--mtu", "9000"],
        &["lab", "down"],
        &["demo", "--mtu", "1500", "--receivers", "kernel-tcp"],
        &["throughput", "--mtu", "1500", "--receivers", "kernel-tcp"],
        &["placement", "--receivers", "kernel-tcp", "--subflows", "1"],
        &["latency", "--receivers", "kernel-tcp", "--reader", "sleep"],
    ] {
        let output = Command::new(BENCH).args(arguments).args(["--name", name]).output();
        let output = output.expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains(name) && said.contains(&user), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
        assert_eq!(index(), before, "{arguments:?}");
    }
    assert!(Lab::builder().name(name).up().is_err(), "nor another handle's of the same process");
    assert_eq!(index(), before);
}

#[test]
fn a_lab_half_made_by_a_killed_process_goes() {
    if !privileged() {
        return;
    }
    // Long enough in the making to be caught at it.
    for (signal, code) in [(Signal::SIGKILL, None), (Signal::SIGTERM, Some(1))] {
        let lab = Named::new();
        let mut command = Command::new(BENCH);
        command.args(["lab", "up", "--name", &lab.0, "--links", "64"]);
        let up = Running::start("lab up", &mut command, &[]).expect("it starts");
        wait_until(|| lab.namespaces() == [true, true]);
        up.signal(signal).expect("it runs");
        let ended = up.wait(LIMIT, &Interrupt::never()).expect("it ends");
        assert_eq!(ended.status.code(), code, "{}", ended.stderr);
        if signal == Signal::SIGKILL {
            // A tool that it had started may still be at work.
            wait_until(|| lab.run("down", &[]).status.success());
        }
        assert_eq!(lab.namespaces(), [false, false]);
    }
}

#[test]
fn a_signal_to_the_demo_removes_its_lab_and_ends_its_processes() {
    if !privileged() {
        return;
    }
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let lab = Named::new();
        let mut command = Command::new(BENCH);
        command.args(["demo", "--name", &lab.0, "--mtu", "1500", "--seconds", "60"]);
        command.args(["--receivers", "kernel-tcp"]);
        let demo = Running::start("demo", &mut command, &[]).expect("it starts");
        let children = format!("/proc/{0}/task/{0}/children", demo.pid());
        let mut seen = String::new();
        wait_until(|| {
            seen = fs::read_to_string(&children).unwrap_or_default();
            seen.split_whitespace().count() == 2
        });
        demo.signal(signal).expect("it runs");
        let ended = demo.wait(LIMIT, &Interrupt::never()).expect("it ends");
        assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
        assert!(ended.stderr.contains("interrupted"), "{}", ended.stderr);
        assert_eq!(lab.namespaces(), [false, false]);
        for pid in seen.split_whitespace() {
            let pid = Pid::from_raw(pid.parse().expect("a number"));
            assert!(kill(pid, None).is_err(), "process {pid} is left over");
        }
    }
}

/// Each end drops what comes without the tag, so an answer means that both ends tagged.
#[test]
fn tagged_links_carry_both_families() {
    let Some(rig) = Rig::new(Lab::builder().vlan(Some(77))) else { return };
    for family in [Family::V4, Family::V6] {
        let address = rig.address(family).to_string();
        rig.tool(Side::Sender, &["ping", "-c", "1", "-W", "5", &address]);
    }
}

/// Waits until something holds; it not doing so in time is a failure.
fn wait_until(mut holds: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + LIMIT;
    while !holds() {
        assert!(std::time::Instant::now() < deadline, "it never held");
        std::thread::sleep(Duration::from_millis(5));
    }
}
