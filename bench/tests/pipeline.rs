//! The command `mpxdp-bench pipeline`, as it is called.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::io::Read as _;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn pipeline(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mpxdp-bench"));
    command.arg("pipeline").args(arguments).output().unwrap()
}

#[test]
fn it_writes_a_document_and_a_table() {
    let small = ["--payload", "1448", "--subflows", "1,2", "--connections", "1", "--reorder", "0"];
    let mut arguments = small.to_vec();
    arguments.extend(["--packets", "500", "--rounds", "1", "--json", "-"]);
    let output = pipeline(&arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    for word in ["total", "parse", "cksum+cp", "smoltcp"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let results = document["results"].as_array().unwrap();
    assert_eq!(results.len(), 2);
    for row in results {
        assert_eq!(row["benchmark"], "pipeline");
        let found = &row["pipeline"];
        assert_eq!(found["case"]["payload"], 1448);
        assert_eq!(found["packet_bytes"], 94 + 1448);
        for number in [
            &found["nanoseconds_per_packet"]["parse"],
            &found["total_nanoseconds_per_packet"]["median"],
            &found["limits"]["checksum_copy"],
            &found["explained_fraction"],
            &row["bits_per_second"]["median"],
        ] {
            assert!(number.as_f64().unwrap() > 0.0, "{row}");
        }
    }
    let smoltcp = |at: usize| &results[at]["pipeline"]["limits"]["smoltcp"];
    assert!(smoltcp(0).as_f64().unwrap() > 0.0);
    assert!(smoltcp(1).is_null());
}

#[test]
fn a_signal_in_the_middle_of_a_case_keeps_those_before_it() {
    // Of a key, and of a terminal that closes.
    for signal in [Signal::SIGINT, Signal::SIGHUP] {
        keeps_what_was_before(signal);
    }
}

fn keeps_what_was_before(signal: Signal) {
    let (code, document) =
        signalled(Command::new(env!("CARGO_BIN_EXE_mpxdp-bench")), "1000", signal);
    assert_eq!(code, Some(1));
    assert_eq!(document["interrupted"], true);
    let results = document["results"].as_array().unwrap().len();
    assert!((1..3).contains(&results), "{results}");
}

#[test]
fn who_shall_not_hear_of_the_terminal_does_not() {
    let mut command = Command::new("sh");
    // What nohup does.
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_mpxdp-bench")]);
    let (code, document) = signalled(command, "100", Signal::SIGHUP);
    assert_eq!(code, Some(0));
    assert_eq!(document["interrupted"], false);
    assert_eq!(document["results"].as_array().unwrap().len(), 3);
}

/// Sends a signal after the first of three cases; gives the exit code and the document.
fn signalled(
    mut command: Command,
    rounds: &str,
    signal: Signal,
) -> (Option<i32>, serde_json::Value) {
    command.args(["pipeline", "--payload", "64,128,256", "--subflows", "1", "--connections", "1"]);
    command.args(["--reorder", "0", "--packets", "1", "--rounds", rounds, "--json", "-"]);
    let mut running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = running.stderr.take().unwrap();
    let (mut said, mut byte) = (String::new(), [0]);
    while !said.ends_with("case 1 of 3") {
        stderr.read_exact(&mut byte).unwrap();
        said.push(char::from(byte[0]));
    }
    kill(Pid::from_raw(running.id().cast_signed()), signal).unwrap();
    let rest = std::thread::spawn(move || stderr.read_to_string(&mut String::new()));
    let output = running.wait_with_output().unwrap();
    rest.join().unwrap().unwrap();
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn what_cannot_be_is_wrong_usage() {
    for (arguments, named) in [
        (&["--payload", "9000"][..], "--payload 9000"),
        (&["--payload", "many"], "--payload"),
        (&["--subflows", "9"], "--subflows 9"),
        (&["--connections", "60000"], "--connections 60000"),
        (&["--connections", "2", "--subflows", "2"], "--connections and --subflows"),
        (&["--reorder", "80"], "--reorder 80"),
        (&["--seconds", "0"], "--seconds"),
        (&["--packets", "5", "--seconds", "1"], "--packets"),
        (&["--rounds", "0"], "--rounds"),
        (&["--cpu", "99999"], "--cpu 99999"),
        (&["--json", "/no/such/folder/file"], "/no/such/folder/file"),
    ] {
        let output = pipeline(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(named), "{arguments:?}: nothing of {named} in: {said}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}
