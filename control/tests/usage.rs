//! Wrong usage of the command: one clear line, the exit code that belongs to it, and nothing left
//! behind. None of these needs a privilege.

use std::fs;
use std::process::{Command, Output};

fn mpxdp(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mpxdp")).args(arguments).output().expect("the binary runs")
}

/// Runs it and expects a failure with this exit code and one line that has these words.
fn refused(arguments: &[&str], code: i32, words: &[&str]) {
    let output = mpxdp(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
    assert!(stderr.starts_with("mpxdp: "), "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "{arguments:?}: \"{word}\" is not in: {stderr}");
    }
    assert_eq!(output.stdout, b"", "{arguments:?}");
}

/// `recv` with a NIC that is certainly not there, so that nothing is ever attached.
fn recv_refused(arguments: &[&str], code: i32, words: &[&str]) {
    let given = ["recv", "--nic", "no-such-nic0", "--listen", "10.0.0.2:5000"];
    refused(&[&given[..], arguments].concat(), code, words);
}

#[test]
fn an_unknown_nic_is_named() {
    recv_refused(&[], 2, &["no-such-nic0", "no such interface", "ip -br link"]);
}

#[test]
fn wrong_arguments_are_named() {
    recv_refused(&["--frobnicate"], 2, &["--frobnicate", "--help"]);
    recv_refused(&["--mode", "turbo"], 2, &["turbo", "zerocopy"]);
    recv_refused(&["--placement", "everywhere"], 2, &["everywhere", "reader"]);
    recv_refused(&["--connections", "0"], 2, &["--connections", "name 1 or more"]);
    recv_refused(&["--checksums", "maybe"], 2, &["--checksums", "auto, on, off"]);
    recv_refused(&["--announce", "none", "10.1.0.2"], 2, &["--announce", "stand alone"]);
    recv_refused(&["--output", "f", "--connections", "2"], 2, &["--connections", "/"]);
    recv_refused(&["--output", "-", "--report", "-"], 2, &["--report"]);
    recv_refused(&["--placement", "reader=4095"], 2, &["4095", "may not use"]);
    refused(&["recv"], 2, &["--nic", "--listen"]);
    refused(&["recv", "--nic", "eth0", "--listen", "eth0:80"], 2, &["eth0:80", "10.0.0.2:5000"]);
    refused(&["recv", "--nic", "e:f", "--listen", "10.0.0.2:80"], 2, &["e:f", "queues"]);
    refused(&["revc"], 2, &["revc"]);
}

#[test]
fn what_is_wrong_in_a_file_of_options_is_named_with_its_line() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("recv.toml");
    let given = path.to_str().unwrap();
    let recv = ["recv", "--config", given];
    refused(&recv, 2, &[given, "No such file"]);
    fs::write(&path, "listen = \"10.0.0.2:5000\"\nplacment = \"auto\"\n").unwrap();
    refused(&recv, 2, &[&format!("{given}:2: "), "placment", "placement"]);
    fs::write(&path, "listen = \"10.0.0.2:5000\"\n").unwrap();
    refused(&recv, 2, &[given, "nic is missing", "--nic"]);
    fs::write(&path, "nic = \"no-such-nic0\"\nlisten = \"10.0.0.2:5000\"\n").unwrap();
    refused(&recv, 2, &["no-such-nic0", "no such interface"]);
    refused(&[&recv[..], &["--nic", "no-such-nic1"]].concat(), 2, &["no-such-nic1"]);
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let temp = tempfile::tempdir().unwrap();
    let missing = temp.path().join("missing/file");
    let missing = missing.to_str().unwrap();
    recv_refused(&["--output", missing], 2, &["--output", missing, "No such file"]);
    recv_refused(&["--report", missing], 2, &["--report", missing, "No such file"]);
    recv_refused(&["--output", &format!("{missing}/")], 2, &["--output", missing]);
    let directory = temp.path().to_str().unwrap();
    recv_refused(&["--output", directory], 2, &["is a directory", "end it with /"]);
    recv_refused(&["--report", directory], 2, &["Is a directory"]);
}

#[test]
fn a_refusal_leaves_nothing_behind() {
    let temp = tempfile::tempdir().unwrap();
    let old = temp.path().join("old");
    fs::write(&old, "kept").unwrap();
    let path = |name: &str| temp.path().join(name).to_str().unwrap().to_owned();
    let report = path("report.json");
    for output in [path("new"), path("dir/"), path("old")] {
        recv_refused(&["--output", &output, "--report", &report], 2, &["no such interface"]);
    }
    let names: Vec<_> =
        fs::read_dir(temp.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["old"]);
    assert_eq!(fs::read(old).unwrap(), b"kept");
}

#[test]
fn the_version_and_the_help_go_to_standard_output() {
    let version = mpxdp(&["--version"]);
    assert!(version.status.success());
    assert_eq!(
        String::from_utf8(version.stdout).unwrap(),
        format!("mpxdp {}\n", env!("CARGO_PKG_VERSION"))
    );
    let help = mpxdp(&["recv", "--help"]);
    assert!(help.status.success());
    let help = String::from_utf8(help.stdout).unwrap();
    for option in [
        "--nic",
        "--listen",
        "--announce",
        "--output",
        "--connections",
        "--mode",
        "--placement",
        "--checksums",
        "--hop-limit",
        "--dscp",
        "--config",
        "--report",
        "Exit codes",
    ] {
        assert!(help.contains(option), "{option} is not in the help");
    }
}

/// Nothing can be written to it: its reader is gone.
fn broken_pipe() -> std::process::Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

#[test]
fn nobody_at_standard_error_or_output_is_no_reason_to_panic() {
    for (arguments, code) in [
        (&["recv", "--nic", "no-such-nic0", "--listen", "10.0.0.2:5000"][..], 2),
        (&["recv", "--frobnicate"], 2),
        (&[], 2),
        (&["--help"], 1),
        (&["--version"], 1),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mpxdp"));
        command.args(arguments).env("RUST_LOG", "trace");
        command.stdout(broken_pipe()).stderr(broken_pipe());
        let status = command.status().expect("the binary runs");
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}
