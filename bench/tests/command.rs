//! The command `mpxdp-bench` as it is called wrongly: one line, the right exit code, and nothing lost.
//! None of these needs a privilege.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mpxdp-bench")).args(arguments).output().unwrap()
}

/// Runs it and expects wrong usage, told in one line that has these words.
fn refused(arguments: &[&str], words: &[&str]) {
    let output = bench(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
    assert!(said.starts_with("mpxdp-bench: "), "{said}");
    for word in words {
        assert!(said.contains(word), "{arguments:?}: \"{word}\" is not in: {said}");
    }
    assert!(output.stdout.is_empty(), "{arguments:?}");
}

/// Nothing can be written to it: its reader is gone.
fn broken_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn nobody_at_standard_error_or_output_is_no_reason_to_panic() {
    for (arguments, code) in [
        (&["throughput", "--mtu", "3"][..], 2),
        (&["report", "/no/such/file"], 2),
        (&["sender", "--frobnicate"], 2),
        (&[], 2),
        (&["--help"], 1),
        (&["placement", "--nic", "lo"], 1),
        (
            &[
                "pipeline",
                "--payload",
                "64",
                "--subflows",
                "1",
                "--connections",
                "1",
                "--reorder",
                "0",
                "--packets",
                "1",
                "--rounds",
                "1",
                "--json",
                "-",
            ],
            1,
        ),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mpxdp-bench"));
        command.args(arguments).stdout(broken_pipe()).stderr(broken_pipe());
        assert_eq!(command.status().unwrap().code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn what_is_wrong_with_the_command_line_is_one_line() {
    refused(&["frobnicate"], &["frobnicate", "--help"]);
    refused(&["demo", "--receivers", "nobody"], &["nobody", "kernel-tcp"]);
    refused(&["demo", "--mtu", "many"], &["--mtu", "many"]);
    refused(&["sender", "--connect", "here"], &["--connect", "here"]);
    refused(&["sender"], &["--connect"]);
    refused(&["throughput", "--nic", "eth0"], &["--listen"]);
}

#[test]
fn lists_have_nothing_twice() {
    refused(&["demo", "--mtu", "1500,1500"], &["--mtu", "1500", "twice"]);
    refused(&["demo", "--receivers", "mpxdp,mpxdp"], &["--receivers", "mpxdp", "twice"]);
    refused(&["throughput", "--subflows", "1,2,1"], &["--subflows", "twice"]);
    refused(&["placement", "--placement", "worker=0", "--placement", "worker=0"], &["twice"]);
    refused(&["placement", "--nic", "lo", "--nic", "lo"], &["--nic", "lo", "twice"]);
    refused(&["lab", "up", "--relay", "0=loss=1%", "--relay", "0=dup=1%"], &["link 0", "twice"]);
    refused(&["throughput", "--placement", "worker=0 worker=0"], &["worker", "twice"]);
    refused(&["pipeline", "--payload", "64,64"], &["--payload", "64", "twice"]);
    refused(&["latency", "--rate", "5,5"], &["--rate", "twice"]);
    refused(&["latency", "--reader", "spin,spin"], &["--reader", "spin", "twice"]);
    refused(&["latency", "--size", "64,64"], &["--size", "twice"]);
}

#[test]
fn values_out_of_range_are_told_with_the_range() {
    for benchmark in ["demo", "throughput", "placement"] {
        refused(&[benchmark, "--seconds", "0"], &["--seconds", "0.1", "3600"]);
        refused(&[benchmark, "--seconds", "3601"], &["--seconds", "3600"]);
    }
    for benchmark in ["demo", "throughput", "placement", "latency"] {
        refused(&[benchmark, "--rounds", "0"], &["--rounds 0", "1 to 1000"]);
        refused(&[benchmark, "--mtu", "3"], &["--mtu 3", "1280", "65535"]);
    }
    refused(&["latency", "--seconds", "0"], &["--seconds 0"]);
    refused(&["placement", "--limit", "0"], &["--limit 0", "1"]);
    let sender = |option: &str, value: &str, words: &[&str]| {
        refused(&["sender", "--connect", "127.0.0.1:9", "--bytes", "1", option, value], words);
    };
    sender("--connections", "0", &["--connections"]);
    sender("--parallel", "0", &["--parallel"]);
    sender("--rate", "0", &["--rate"]);
    sender("--subflows", "0", &["--subflows"]);
    sender("--write-size", "0", &["--write-size", "262144"]);
    let receiver = ["receiver", "--kind", "kernel-tcp", "--listen", "127.0.0.1:0"];
    refused(&[&receiver[..], &["--connections", "0"]].concat(), &["--connections"]);
}

#[test]
fn a_file_is_as_it_was_until_there_is_something_to_put_there() {
    let folder = tempfile::tempdir().unwrap();
    let old = folder.path().join("old.json");
    fs::write(&old, "a former run's").unwrap();
    let old = old.to_str().unwrap();
    let nowhere = folder.path().join("no/such/file");
    let nowhere = nowhere.to_str().unwrap();
    refused(&["latency", "--mtu", "3", "--json", old], &["--mtu"]);
    refused(&["placement", "--mtu", "3", "--json", old], &["--mtu"]);
    refused(&["demo", "--json", old, "--plot", nowhere], &["--plot", nowhere]);
    refused(&["demo", "--json", old, "--plot", old], &["--json", "--plot", old]);
    refused(&["demo", "--json", "-", "--plot", "-"], &["--json", "--plot", "standard output"]);
    refused(&["placement", "--json", old, "--write-config", old], &["--json", "--write-config"]);
    refused(&["throughput", "--json", nowhere], &["--json", nowhere]);
    refused(&["report", old, "-o", old], &["--output", old]);
    assert_eq!(bench(&["report", old, "-o", nowhere]).status.code(), Some(2));
    assert_eq!(names(folder.path()), ["old.json"]);
    assert_eq!(fs::read_to_string(old).unwrap(), "a former run's");
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_sender_that_fails_says_why() {
    // A port that was free a moment ago, and that nobody listens on.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let to = free.to_string();
    let output = bench(&[
        "sender",
        "--connect",
        &to,
        "--protocol",
        "tcp",
        "--bytes",
        "1",
        "--connections",
        "3",
    ]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    for word in ["mpxdp-bench: ", &to, "3 of 3 connections", "refused"] {
        assert!(said.contains(word), "\"{word}\" is not in: {said}");
    }
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["connections"].as_array().unwrap().len(), 3);
}
