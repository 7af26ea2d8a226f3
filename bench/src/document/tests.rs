//! The document as a whole: it reads back what it wrote, and `docs/benchmark-json.md` describes all of
//! it and nothing else.
//!
//! A new field belongs in [`full`], which does not build without it, and in the description.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::*;
use crate::environment::{Build, Cache, Nic, Topology};
use crate::latency::Reading;
use crate::measure::Spread;
use crate::pipeline::{Case, STAGE_NAMES, STAGES};
use crate::placement::bottleneck::{Bottleneck, Load, Stage};
use crate::placement::class::Scenario;
use crate::placement::recommend::Why;
use crate::topology::Relation;

/// The description of every field.
const DESCRIPTION: &str = include_str!("../../../docs/benchmark-json.md");

/// Objects that come up in many places are described once, under a heading of their own.
const SHAPES: [(&str, &[&str]); 4] = [
    ("spread", &["max", "median", "min"]),
    ("cpu seconds", &["irq", "softirq", "system", "user"]),
    ("percentiles", &["max", "p50", "p90", "p99", "p99_9", "p99_99"]),
    ("stages", &STAGE_NAMES),
];

/// Objects whose names are not fixed.
const NAMED_BY_CONTENT: [&str; 1] = ["results[].measurements[].drops"];

fn spread() -> Spread {
    Spread { median: 2.0, min: 1.0, max: 3.0 }
}

fn cpu_seconds() -> CpuSeconds {
    CpuSeconds { user: 0.25, system: 0.5, softirq: 0.125, irq: 0.0 }
}

/// A document in which no field is left out.
fn full() -> Document {
    Document {
        schema: SCHEMA,
        environment: environment(),
        interrupted: false,
        results: vec![row()],
        ratios: vec![Ratio {
            mtu: 1500,
            subflows: 2,
            placement: "napi=sender worker=1 reader=1".into(),
            of: "mpxdp".into(),
            against: "mpxdp".into(),
            against_subflows: Some(1),
            median: 2.0,
            min: 1.0,
            max: 3.0,
            noisy: true,
        }],
        front_ends: vec![FrontEndRow {
            front_end: "xdp-drop".into(),
            mtu: 1500,
            placement: "napi=sender worker=1 reader=1".into(),
            seconds: 0.7,
            rounds: 5,
            packets_per_second: spread(),
            nanoseconds_per_packet: spread(),
            nanoseconds_per_byte: 0.5,
        }],
        not_run: vec![NotRun { what: "kernel-tcp, 2 subflows".into(), reason: "TCP".into() }],
        recommendations: vec![
            recommendation(Why::LeastCpu { of: 2, saving: 0.25 }),
            recommendation(Why::Fastest { margin: 0.5 }),
        ],
        exactness: vec![Exactness {
            mtu: 1500,
            bytes: 1,
            sent: "ab".into(),
            received: "ab".into(),
            exact: true,
        }],
        idle: Some(Idle { seconds: 2.0, cpu_fraction: 0.001 }),
        remarks: vec!["remark".into()],
    }
}

fn recommendation(why: Why) -> Recommendation {
    Recommendation {
        receiver: "mpxdp".into(),
        mtu: 1500,
        subflows: 2,
        placement: "napi=1 worker=1 reader=1".into(),
        bits_per_second: spread(),
        cpu_seconds_per_gigabyte: 0.5,
        why,
        reason: why.to_string(),
    }
}

fn placed() -> Placed {
    let load = |stage, cpu, busy| Load { stage, cpus: vec![cpu], busy };
    let loads = [load(Stage::Worker, 1, 0.95), load(Stage::NicProcessing, 2, 0.5)];
    Placed {
        class: "nic, worker+reader same-llc".into(),
        scenario: Some(Scenario::SeveralApart),
        nic_reader: Relation::SameLlc,
        nic_worker: Some(Relation::SameLlc),
        worker_reader: Some(Relation::SameCpu),
        sender_cpu: Some(0),
        bottleneck: Bottleneck::find(&loads, &[(1, 0.96)]),
    }
}

fn environment() -> Environment {
    Environment {
        version: "0.1.0".into(),
        build: Build { rustc: "rustc 1.95.0".into(), revision: "unknown".into() },
        optimised: true,
        date: "2026-01-01T00:00:00Z".into(),
        arguments: vec!["mpxdp-bench".into()],
        kernel: "Linux".into(),
        command_line: "quiet".into(),
        cpu_model: "CPU".into(),
        cpus: vec![0, 1],
        topology: Topology {
            online: "0-1".into(),
            cores: 1,
            siblings: vec!["0-1".into()],
            last_level_caches: vec![Cache { level: 3, size: "1K".into(), cpus: "0-1".into() }],
            numa_nodes: vec!["0-1".into()],
        },
        hypervisor: false,
        governor: Some("performance".into()),
        turbo: Some(true),
        smt: Some("on".into()),
        mitigations: vec!["spectre_v1: Mitigation".into()],
        memory_kib: 1,
        load: "0.00".into(),
        nics: vec![Nic {
            name: "rcv0".into(),
            driver: "veth".into(),
            firmware: Some("1.0".into()),
            mtu: 1500,
            speed_megabits: Some(10_000),
            numa_node: Some(0),
            receive_queues: 1,
            transmit_queues: 1,
            receive_ring: Some(1024),
            transmit_ring: Some(1024),
            offloads: vec!["generic-receive-offload".into()],
            threaded: true,
            gro_flush_timeout: 0,
            napi_defer_hard_irqs: 0,
        }],
        lab: Some(crate::lab::Conditions { congestion: "reno".into(), sender_cpu: Some(0) }),
    }
}

fn row() -> Row {
    Row {
        benchmark: "throughput".into(),
        receiver: "mpxdp".into(),
        mtu: 1500,
        subflows: 1,
        links: 1,
        placement: "napi=sender worker=1 reader=1".into(),
        best: true,
        mode: "AF_XDP, native, copy".into(),
        zero_copy: Some(false),
        mptcp: true,
        seconds: 2.0,
        warmup_seconds: 0.5,
        rounds: 1,
        bits_per_second: Some(spread()),
        receiving_cores: Some(spread()),
        cpu_seconds_per_gigabyte: Some(1.0),
        cpu_seconds_per_gigabyte_by_kind: Some(cpu_seconds()),
        nanoseconds_per_packet: Some(1500.0),
        above_front_end: Some(AboveFrontEnd {
            front_end: "xdp-recycle".into(),
            nanoseconds_per_packet: 500.0,
            nanoseconds_per_byte: 0.25,
        }),
        noisy: true,
        noisy_reason: Some("noise".into()),
        measurements: vec![Round {
            seconds: 2.0,
            bytes: 2,
            bits_per_second: 8.0,
            total_bytes: 3,
            total_seconds: 2.5,
            receiving_cores: 1.0,
            cpu_span_seconds: Some(2.0),
            cpu_invalid: true,
            cpu_seconds: cpu_seconds(),
            cpus: vec![OneCpu { cpu: 1, seconds: cpu_seconds() }],
            busy: Busy {
                nic_processing: Some(0.5),
                worker: Some(0.5),
                worker_at_work: Some(0.25),
                reader: Some(0.5),
                sender: Some(0.5),
            },
            context_switches: ContextSwitches { voluntary: 1, involuntary: 2 },
            retransmissions: Retransmissions { tcp: 1, mptcp: 2 },
            drops: BTreeMap::from([("rcv0:rx_dropped".into(), 1)]),
            packets: 2,
            subflow_bytes: vec![3],
            timeline: Timeline { interval_seconds: 0.1, bytes: vec![1, 2] },
        }],
        tried: vec![Tried { placement: "napi=1 reader=1".into(), bits_per_second: 7.0 }],
        latency: Some(latency()),
        pipeline: Some(pipeline()),
        placed: Some(placed()),
    }
}

fn latency() -> Latency {
    let percentiles = Percentiles { p50: 1, p90: 2, p99: 3, p99_9: 4, p99_99: 5, max: 6 };
    Latency {
        reader: Reading::Sleep,
        worker: Some(Reading::Spin),
        sender: Reading::Spin,
        rate: 1000,
        achieved_rate: 999.0,
        size: 256,
        messages: 10,
        late: 1,
        unsent: 0,
        latency_ns: percentiles,
        transit_ns: percentiles,
        lateness_ns: percentiles,
        rounds_ns: vec![percentiles],
        histogram: "x".into(),
        transit_histogram: "y".into(),
    }
}

fn pipeline() -> Pipeline {
    let stages = Stages::new([1.0; STAGES]);
    Pipeline {
        case: Case {
            payload: 1448,
            subflows: 1,
            connections: 1,
            reorder_percent: 0.0,
            ring_bytes: 1 << 20,
        },
        packet_bytes: 1542,
        buffers_per_packet: 1,
        packets: 1000,
        disturbed_packets: 10,
        total_nanoseconds_per_packet: spread(),
        nanoseconds_per_packet: stages,
        total_cycles_per_packet: Some(spread()),
        cycles_per_packet: Some(stages),
        explained_fraction: 1.0,
        explained: true,
        packets_per_second: 1e6,
        limits: Limits { memcpy: 1.0, checksum: 2.0, checksum_copy: 3.0, smoltcp: Some(4.0) },
        clock: Clock { source: "tsc".into(), ticks_per_second: 2e9, mark_nanoseconds: 10.0 },
    }
}

/// The paths of all fields of a value, `[]` standing for any member of a list.
fn paths(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            let names: Vec<&str> = fields.keys().map(String::as_str).collect();
            let shaped = SHAPES.iter().any(|(_, shape)| {
                names.iter().copied().collect::<BTreeSet<_>>() == shape.iter().copied().collect()
            });
            if shaped || NAMED_BY_CONTENT.contains(&at) {
                return;
            }
            for (name, value) in fields {
                let path = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                found.insert(path.clone());
                paths(value, &path, found);
            }
        }
        Value::Array(members) => {
            for member in members {
                paths(member, &format!("{at}[]"), found);
            }
        }
        _ => {}
    }
}

/// The fields that a part of the description has rows for.
fn described(text: &str) -> BTreeSet<String> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned())).collect()
}

/// The description without the shapes, and each shape's part.
fn parts() -> (&'static str, BTreeMap<&'static str, &'static str>) {
    let (fields, shapes) = DESCRIPTION.split_once("\n## Shapes\n").expect("a heading `Shapes`");
    let shapes = shapes.split("\n### ").skip(1);
    (fields, shapes.map(|part| part.split_once('\n').expect("a heading and more")).collect())
}

#[test]
fn every_field_is_described_and_nothing_else() {
    let value = serde_json::to_value(full()).expect("JSON");
    let mut found = BTreeSet::new();
    paths(&value, "", &mut found);
    let (fields, shapes) = parts();
    let described_fields = described(fields);
    let missing: Vec<_> = found.difference(&described_fields).collect();
    let gone: Vec<_> = described_fields.difference(&found).collect();
    assert!(missing.is_empty(), "not in docs/benchmark-json.md: {missing:#?}");
    assert!(gone.is_empty(), "in docs/benchmark-json.md, but there is no such field: {gone:#?}");
    for (name, names) in SHAPES {
        let names: BTreeSet<String> = names.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(shapes.get(name).map(|part| described(part)), Some(names), "{name}");
    }
}

#[test]
fn a_field_that_nobody_described_would_be_found() {
    let mut value = serde_json::to_value(full()).expect("JSON");
    value["results"][0]["measurements"][0]["busy"]["new"] = 1.into();
    let mut found = BTreeSet::new();
    paths(&value, "", &mut found);
    let (fields, _) = parts();
    let new: Vec<_> = found.difference(&described(fields)).cloned().collect();
    assert_eq!(new, ["results[].measurements[].busy.new"]);
}

#[test]
fn a_document_reads_back_as_it_was_written() {
    for document in [full(), Document::new()] {
        let mut text = Vec::new();
        write(&document, &mut text).expect("memory");
        assert_eq!(Document::read(&text[..]).expect("a document"), document);
    }
}

#[test]
fn fields_that_do_not_apply_may_be_missing() {
    let text = r#"{"schema": 1, "results": [{"benchmark": "x", "receiver": "mpxdp", "mtu": 1500,
        "subflows": 1, "links": 1, "placement": "auto"}], "environment": ENVIRONMENT}"#;
    let environment = serde_json::to_string(&environment()).expect("JSON");
    let document = Document::read(text.replace("ENVIRONMENT", &environment).as_bytes());
    let document = document.expect("a document");
    assert_eq!(document.results[0].bits_per_second, None);
    assert!(document.not_run.is_empty() && document.front_ends.is_empty());
}

#[test]
fn a_newer_schema_is_refused() {
    let document = Document { schema: SCHEMA + 1, ..Document::new() };
    let mut text = Vec::new();
    write(&document, &mut text).expect("memory");
    let error = Document::read(&text[..]).expect_err("newer");
    assert!(error.to_string().contains("newer"), "{error}");
}

#[test]
fn what_is_no_document_is_refused() {
    let text = serde_json::to_string(&full()).expect("JSON");
    for (text, named) in [
        ("{}".to_owned(), "`schema`"),
        ("x".to_owned(), "line 1"),
        ("\"schema\"".to_owned(), "`schema`"),
        (r#"{"schema": 1}"#.to_owned(), "environment"),
        (text.replacen(r#""schema":1"#, r#""schema":0"#, 1), "no schema 0"),
        (text.replacen(r#""schema":1"#, r#""schema":-1"#, 1), "`schema`"),
        (text.replacen(r#""median":2.0"#, r#""median":1e300"#, 1), "is 1e+300"),
        (text.replacen(r#""median":2.0"#, r#""median":1e999"#, 1), "out of range"),
        (text.replacen(r#""total_bytes":3"#, r#""total_bytes":9e18"#, 1), "total_bytes is 9"),
        (text.replacen(r#""median":2.0"#, r#""median":0.5"#, 1), "contradict"),
        (text.replacen(r#""min":1.0"#, r#""min":-1.0"#, 1), "contradict"),
        (text.replacen(r#""median":2.0"#, r#""median":1e-300"#, 1), "is 1e-300"),
        (text.replacen(r#""receiving_cores":1.0"#, r#""receiving_cores":-1.0"#, 1), "less than"),
        (text.replacen(r#""copy":"#, r#""copy":-1e3,"x":"#, 1), "less than no time"),
        (text.replacen(r#""interval_seconds":0.1"#, r#""interval_seconds":0.0"#, 1), "timeline"),
    ] {
        let error = Document::read(text.as_bytes()).expect_err(named).to_string();
        assert!(error.contains(named), "{named}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn what_never_ends_is_no_document() {
    let error = Document::read(std::io::repeat(0)).expect_err("endless");
    assert!(error.to_string().contains("larger than 64 MiB"), "{error}");
}

#[test]
fn a_byte_order_mark_is_passed_over() {
    let mut text = b"\xef\xbb\xbf".to_vec();
    write(&full(), &mut text).expect("memory");
    assert_eq!(Document::read(&text[..]).expect("a document"), full());
}

#[test]
fn the_names_that_others_rely_on() {
    let value = serde_json::to_value(full()).expect("JSON");
    assert!(value["environment"].is_object());
    for name in ["benchmark", "receiver", "mtu", "subflows", "links", "placement"] {
        assert!(!value["results"][0][name].is_null(), "{name}");
    }
    for name in ["mtu", "subflows", "placement", "of", "against", "median", "min", "max"] {
        assert!(!value["ratios"][0][name].is_null(), "{name}");
    }
    for name in ["median", "min", "max"] {
        assert!(value["results"][0]["bits_per_second"][name].is_number(), "{name}");
    }
}
