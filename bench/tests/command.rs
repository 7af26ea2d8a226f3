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
    refused(&["relay", "--left", "lo", "--right", "lo"], &["--left lo", "--right lo", "one"]);
}

#[test]
fn a_tool_that_is_not_in_the_path_is_named_with_where_it_may_be() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_mpxdp-bench"));
    let output = command.args(["lab", "up"]).env("PATH", folder.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    // Without privilege that is what is said.
    let words =
        if said.contains("CAP_") { "run as root" } else { "`ip`: install the package iproute2" };
    assert!(said.contains(words), "{said}");
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
fn what_is_below_zero_or_no_number_is_told_with_the_range_too() {
    for value in ["-1", "-0.5", "nan", "-inf", "much"] {
        for (benchmark, range) in [
            ("demo", "from 0.1 to 3600"),
            ("throughput", "from 0.1 to 3600"),
            ("placement", "from 0.1 to 3600"),
            ("latency", "from 0 to 3600"),
            ("pipeline", "from 0 to 60"),
        ] {
            let named = format!("--seconds {value}: ");
            // What begins like an option and is no number is one to clap.
            let argument = format!("--seconds={value}");
            refused(&[benchmark, &argument], &[&named, range]);
        }
    }
    refused(&["throughput", "--seconds", "-1"], &["--seconds -1: ", "from 0.1 to 3600"]);
    refused(&["throughput", "--warmup", "-1"], &["--warmup -1: ", "from 0 to 60"]);
    refused(&["demo", "--rounds", "-1"], &["--rounds -1: ", "from 1 to 1000"]);
    refused(&["demo", "--rounds", "1.5"], &["--rounds 1.5: ", "from 1 to 1000"]);
    refused(&["demo", "--mtu", "-1,1500"], &["--mtu -1: ", "from 1280 to 65535"]);
    refused(&["demo", "--sender-cpu", "-1"], &["--sender-cpu -1: ", "0 or more"]);
    refused(&["lab", "up", "--links", "-1"], &["--links -1: ", "from 1 to 64"]);
    refused(&["placement", "--limit", "-1"], &["--limit -1: ", "from 1 to 1000"]);
    refused(&["latency", "--rate", "-1"], &["--rate -1: ", "from 1 to 10000000"]);
    refused(&["pipeline", "--connections", "-1"], &["--connections -1: ", "from 1 to 50000"]);
    refused(&["pipeline", "--reorder", "-1,0"], &["--reorder -1: ", "from 0 to 50"]);
    let sender = ["sender", "--connect", "127.0.0.1:9"];
    let to_send = |more: &[&str], words: &[&str]| refused(&[&sender[..], more].concat(), words);
    to_send(&["--bytes", "1", "--connections", "-1"], &["--connections -1: ", "1 or more"]);
    to_send(&["--bytes", "1M"], &["--bytes 1M: ", "without a unit"]);
    to_send(&["--bytes", "-1"], &["--bytes -1: ", "without a unit"]);
}

#[test]
fn nothing_that_controls_a_terminal_reaches_it() {
    let folder = tempfile::tempdir().unwrap();
    let damaged = folder.path().join("\u{1b}[31mred.json");
    let text = r#"{"schema": 1, "\u001b[31m\u202efield": 1e300}"#;
    fs::write(&damaged, text).unwrap();
    // What the parser refuses by itself it may leave out.
    for (arguments, shown) in [
        (&["report", damaged.to_str().unwrap()][..], "u{1b}"),
        (&["throughput", "--placement", "\u{1b}[31m=1"], "u{1b}"),
        (&["demo", "--json", "/no/such/\u{1b}[2J"], "u{1b}"),
        (&["demo", "--receivers", "\u{1b}]0;title\u{7}x"], "--receivers"),
        (&["\u{9b}31m\u{202e}"], "31m"),
    ] {
        let output = bench(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        let controls = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!said.contains(controls), "{arguments:?}: {said:?}");
        assert!(said.contains(shown), "{arguments:?}: {said}");
    }
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
