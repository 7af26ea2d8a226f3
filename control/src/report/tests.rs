use std::os::unix::fs::PermissionsExt as _;

use mpxdp::port::PortMode;
use mpxdp::{MemoryReport, TableSizes};

use super::*;
use crate::failure::Kind;

fn example() -> Report {
    let local = "10.0.0.2:5000".parse().unwrap();
    let remote = "10.0.0.1:40112".parse().unwrap();
    let subflow = SubflowStatistics {
        local,
        remote,
        nic: "eth0".to_owned(),
        queue: 3,
        worker: 1,
        live: false,
        backup: true,
        bytes: 1_250_000,
        segments: 140,
        out_of_order: 2,
        duplicate_bytes: 1448,
        retransmitted_bytes: 1,
    };
    let complete = Connection {
        number: 1,
        local,
        remote,
        bytes: 1_250_000,
        seconds: seconds(Duration::from_millis(1)),
        bits_per_second: rate(1_250_000, Duration::from_millis(1)),
        mptcp: true,
        fallback: None,
        checksums: false,
        closed: "data_fin",
        error: None,
        output: Some("in/0001-10.0.0.1-40112.bin".to_owned()),
        subflows: vec![subflow.into()],
    };
    let broken = Connection {
        number: 2,
        mptcp: false,
        fallback: Some("no_mp_capable"),
        closed: "reset",
        error: Some("connection reset by the peer".to_owned()),
        output: None,
        subflows: Vec::new(),
        ..complete.clone()
    };
    Report {
        command: "recv",
        version: "0.1.0",
        environment: Environment {
            kernel: "6.18.0".to_owned(),
            architecture: "x86_64",
            cpu_model: Some("Some CPU".to_owned()),
            cpus: 2,
        },
        listen: local,
        mode: "auto",
        placement: "worker=1 reader=0".to_owned(),
        seconds: 1.5,
        ended: Ended::Connections,
        error: None,
        connections: vec![complete, broken],
        nics: vec![
            NicReport {
                name: "eth0".to_owned(),
                mode: "native",
                mode_reason: Some("the driver has no zero copy".to_owned()),
                zero_copy: false,
                queues: vec![0, 1, 2, 3],
                mtu: 9000,
                state: mpxdp::NicState::Up,
                changes: 2,
                program_id: 7,
                counters: vec![("redirected", 140), ("passed", 5)],
            }
            .into(),
        ],
        ports: vec![
            PortReport {
                nic: "eth0".to_owned(),
                queue: 3,
                worker: 0,
                mode: PortMode::Copy,
                statistics: PortStatistics { rx_kicks: 9, ..PortStatistics::default() },
                frames: FrameAccount {
                    fill: 2048,
                    rx: 0,
                    held: 0,
                    tx: 0,
                    completion: 0,
                    free: 2048,
                    total: 4096,
                },
            }
            .into(),
        ],
        workers: vec![
            WorkerReport {
                cpu: Some(1),
                busy_fraction: 0.123_456,
                packets: 145,
                bytes: 1_260_000,
                sent: 71,
                bursts: 60,
                handed_over: 0,
                opened_by_cookie: 0,
                drops: vec![("tcp_checksum", 1)],
                tables: TableSizes::default(),
            }
            .into(),
        ],
        memory: MemoryReport { limit: 1 << 30, in_use: 0, spare: 1 << 20, peak: 2 << 20 }.into(),
    }
}

#[test]
fn the_documents_names_are_stable() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&example()).unwrap());
}

/// The keys of a document, each with the keys above it, the elements of lists sharing one name.
fn keys(value: &serde_json::Value, above: &str, into: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(map) => {
            for (key, value) in map {
                let key = format!("{above}{key}");
                // What is below these is named by the engine.
                if !["drops", "counters", "statistics"].iter().any(|open| key.ends_with(open)) {
                    keys(value, &format!("{key}."), into);
                }
                into.push(key);
            }
        }
        serde_json::Value::Array(list) => {
            for value in list {
                keys(value, &format!("{}[].", above.trim_end_matches('.')), into);
            }
        }
        _ => {}
    }
}

#[test]
fn every_field_is_documented_and_nothing_else_is() {
    let mut present = Vec::new();
    keys(&serde_json::to_value(example()).unwrap(), "", &mut present);
    present.sort();
    present.dedup();
    // The documentation's tables have the field in backquotes at the start of a row.
    let mut documented: Vec<_> = include_str!("../../REPORT.md")
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next().map(str::to_owned))
        .collect();
    documented.sort();
    assert_eq!(documented, present);
}

#[test]
fn a_report_replaces_the_former_one_as_a_whole() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("report.json");
    fs::write(&path, "x".repeat(100_000)).unwrap();
    let spec = ReportSpec::File(path.clone());
    spec.check().unwrap();
    spec.write(&example()).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["connections"][0]["bits_per_second"], 1e10);
    assert!(text.ends_with("}\n"));
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn a_check_creates_nothing() {
    let temp = tempfile::tempdir().unwrap();
    ReportSpec::File(temp.path().join("report.json")).check().unwrap();
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
    ReportSpec::File("/dev/null".into()).check().unwrap();
}

#[test]
fn places_that_cannot_be_written_are_wrong_usage() {
    let temp = tempfile::tempdir().unwrap();
    for path in [temp.path().to_owned(), temp.path().join("missing/report.json")] {
        let failure = ReportSpec::File(path).check().unwrap_err();
        assert_eq!(failure.kind(), Kind::Usage);
        assert!(failure.to_string().starts_with("--report "), "{failure}");
    }
    if !nix::unistd::geteuid().is_root() {
        let closed = temp.path().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
        assert!(ReportSpec::File(closed.join("report.json")).check().is_err());
    }
}

#[test]
fn a_full_disk_is_a_failure_of_the_run() {
    let failure = ReportSpec::File("/dev/full".into()).write(&example()).unwrap_err();
    assert_eq!(failure.kind(), Kind::Runtime);
    assert!(failure.to_string().contains("No space left on device"), "{failure}");
}
