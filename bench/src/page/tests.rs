use super::*;
use crate::document::{
    Clock, Latency, Limits, NotRun, Percentiles, Pipeline, Round, Row, Stages, Timeline,
};
use crate::latency::{Reading, histogram};
use crate::measure::Spread;
use crate::pipeline::Case;

fn row(benchmark: &str, receiver: &str, placement: &str, gigabits: f64) -> Row {
    let round = |factor: f64| Round {
        seconds: 1.0,
        bytes: (gigabits * factor * 1e9 / 8.0) as u64,
        bits_per_second: gigabits * factor * 1e9,
        receiving_cores: 1.0,
        timeline: Timeline { interval_seconds: 0.1, bytes: vec![1 << 28; 10] },
        ..Round::default()
    };
    let row = Row {
        benchmark: benchmark.into(),
        receiver: receiver.into(),
        mtu: 9000,
        subflows: 1,
        links: 1,
        placement: placement.into(),
        ..Row::default()
    };
    row.with_rounds([1.0, 0.95, 1.05].map(round).into())
}

fn named(name: &str, results: Vec<Row>) -> Named {
    let mut document = Document::new();
    document.environment.optimised = true;
    document.results = results;
    Named { name: name.into(), document }
}

fn page(documents: &[Named], compare: bool) -> String {
    render(documents, compare).expect("a page")
}

#[test]
fn a_page_has_a_plot_for_each_kind_of_figure_and_loads_nothing() {
    let results = vec![
        row("throughput", "mpxdp", "napi=0 worker=1 reader=1", 19.5),
        row("throughput", "kernel-mptcp-xdp", "napi=0 reader=1", 18.5),
        row("placement", "mpxdp", "napi=0 worker=1 reader=1", 19.5),
        row("placement", "mpxdp", "napi=0 worker=0 reader=1", 9.5),
    ];
    let page = page(&[named("one.json", results)], false);
    // Rate, CPU and time of the transfers, and the heat map.
    assert_eq!(page.matches("<svg").count(), 4, "{page}");
    assert!(page.contains("kernel-mptcp-xdp") && page.contains("MTU 9000, 1 subflow, 1 link"));
    // A page that loads something has an address or a source in it; the SVG name space is none.
    let without = page.replace("http://www.w3.org/2000/svg", "");
    for word in ["http://", "https://", "src=", "@import", "<script", "url("] {
        assert!(!without.contains(word), "{word}");
    }
}

#[test]
fn no_colour_of_a_plot_is_fixed() {
    let page = page(&[named("one.json", vec![row("throughput", "mpxdp", "auto", 19.5)])], false);
    let plots = page.split("<svg").skip(1).map(|part| part.split("</svg>").next().expect("a part"));
    for plot in plots {
        assert!(!plot.contains("\"#"), "{plot}");
        assert!(plot.contains("var(--ink)"));
    }
}

#[test]
fn names_from_a_document_are_text_whatever_they_hold() {
    let mut named = named("<b>&.json", vec![row("throughput", "<script>x", "\"><svg", 1.0)]);
    named.document.not_run.push(NotRun { what: "<i>".into(), reason: "</ul>".into() });
    let page = page(&[named], false);
    assert!(!page.contains("<script>") && !page.contains("<b>") && !page.contains("<i>"));
    assert!(page.contains("&lt;script&gt;x"));
}

#[test]
fn nothing_from_a_document_does_anything_unseen() {
    let hostile = "a\u{1b}[31m\u{202e}b\u{9b}\u{7}\r";
    let mut named = named(hostile, vec![row("throughput", hostile, hostile, 1.0)]);
    named.document.remarks.push(hostile.into());
    let page = page(&[named], false);
    let unseen = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!page.contains(unseen));
    assert!(page.contains("a\\u{1b}[31m\\u{202e}b"));
}

#[test]
fn a_heat_map_of_many_columns_has_the_space_that_their_names_take() {
    let subflows = |subflows| Row {
        subflows,
        ..row("placement", "kernel-mptcp-xdp", "napi=0,1,2,3 reader=4", 1.0)
    };
    let few = page(&[named("one.json", vec![subflows(1)])], false);
    assert!(few.contains("<svg width=\"760\"") && !few.contains("style=\"width:"), "{few}");
    let many = page(&[named("one.json", (1..=20).map(subflows).collect())], false);
    let width = many.split("<svg width=\"").nth(1).and_then(|rest| rest.split('"').next());
    let width: u32 = width.expect("a map").parse().expect("a number");
    assert!(width > 20 * "20 subflows".len() as u32 * 6, "{width}");
    assert!(many.contains(&format!("style=\"width: {width}px\"")));
}

#[test]
fn what_is_missing_or_doubtful_is_said() {
    let mut named = named("one.json", Vec::new());
    named.document.interrupted = true;
    named.document.environment.optimised = false;
    named
        .document
        .not_run
        .push(NotRun { what: "worker on node 1".into(), reason: "one node".into() });
    let page = page(&[named], false);
    for words in ["interrupted", "no results", "mean nothing", "worker on node 1: one node"] {
        assert!(page.contains(words), "{words}");
    }
}

#[test]
fn two_documents_are_compared_row_by_row() {
    let base = named(
        "a.json",
        vec![
            row("throughput", "mpxdp", "auto", 10.0),
            row("throughput", "kernel-tcp", "auto", 10.0),
        ],
    );
    let other = named("b.json", vec![row("throughput", "mpxdp", "auto", 15.0)]);
    let page = page(&[base, other], true);
    assert!(page.contains("b.json compared with a.json"));
    assert!(page.contains(">1.50<") && page.contains(">more<"), "{page}");
    assert!(page.contains("1 result of the two documents"));
}

#[test]
fn what_differs_in_more_than_the_link_is_not_compared() {
    let cases = |nanoseconds: f64| {
        let late = |reorder_percent| {
            let mut pipeline = pipeline(1.0);
            pipeline.case.reorder_percent = reorder_percent;
            pipeline.total_nanoseconds_per_packet = Spread {
                median: nanoseconds + reorder_percent,
                min: nanoseconds,
                max: nanoseconds + 2.0 * reorder_percent,
            };
            Row { pipeline: Some(pipeline), best: true, ..row("pipeline", "mpxdp", "", 1.0) }
        };
        vec![late(0.0), late(50.0)]
    };
    let compared = page(&[named("a.json", cases(100.0)), named("b.json", cases(350.0))], true);
    // Each with its own: 350 by 100, and 400 by 150.
    assert!(compared.contains(">3.50<") && compared.contains(">2.67<"), "{compared}");
    let rows = vec![
        latency(Reading::Sleep, Reading::Sleep),
        latency(Reading::Spin, Reading::Spin),
        Row { placement: "elsewhere".into(), ..latency(Reading::Spin, Reading::Spin) },
    ];
    let compared = page(&[named("a.json", rows.clone()), named("b.json", rows[1..].into())], true);
    assert!(compared.contains("10000 messages/s of 64 B, reader: spin"), "{compared}");
    assert!(compared.contains("p99.9 µs") && !compared.contains("B, reader: sleep"));
    assert!(compared.contains("1 result of the two documents"));
}

fn latency(reader: Reading, worker: Reading) -> Row {
    let mut all = histogram::empty();
    (1..=10_000).for_each(|n| all.record(n * 100).expect("in range"));
    let latency_ns = Percentiles::of(&all);
    let text = histogram::encode(&all).expect("a text");
    Row {
        latency: Some(Latency {
            reader,
            worker: Some(worker),
            sender: Reading::Spin,
            rate: 10_000,
            achieved_rate: 9_999.5,
            size: 64,
            messages: 10_000,
            late: 3,
            unsent: 0,
            latency_ns,
            transit_ns: latency_ns,
            lateness_ns: Percentiles::default(),
            rounds_ns: vec![latency_ns],
            histogram: text.clone(),
            transit_histogram: text,
        }),
        ..row("latency", "mpxdp", "auto", 0.1)
    }
}

#[test]
fn latency_has_a_plot_for_each_way_to_wait_and_its_percentiles_in_a_table() {
    let rows = vec![
        latency(Reading::Sleep, Reading::Spin),
        latency(Reading::Sleep, Reading::Sleep),
        latency(Reading::Spin, Reading::Spin),
    ];
    let page = page(&[named("one.json", rows)], false);
    assert_eq!(page.matches("<svg").count(), 2);
    assert!(page.contains("10000 messages a second of 64 bytes"));
    // 5000 steps of 100 ns, in microseconds.
    assert!(page.contains(">500<"), "{page}");
    assert!(page.contains("99.9 %") && page.contains("pale"));
}

#[test]
fn a_latency_histogram_that_is_none_is_an_error() {
    let mut row = latency(Reading::Sleep, Reading::Spin);
    row.latency.as_mut().expect("latency").histogram = "no histogram".into();
    assert!(render(&[named("one.json", vec![row])], false).is_err());
}

fn pipeline(explained_fraction: f64) -> Pipeline {
    Pipeline {
        disturbed_packets: 0,
        case: Case {
            payload: 1448,
            subflows: 2,
            connections: 1,
            reorder_percent: 5.0,
            ring_bytes: 1 << 20,
        },
        packet_bytes: 1514,
        buffers_per_packet: 1,
        packets: 1000,
        total_nanoseconds_per_packet: Spread { median: 200.0, min: 190.0, max: 210.0 },
        nanoseconds_per_packet: Stages::new([20.0; 11]),
        total_cycles_per_packet: None,
        cycles_per_packet: None,
        explained_fraction,
        explained: Pipeline::is_explained(explained_fraction),
        packets_per_second: 5e6,
        limits: Limits { memcpy: 30.0, checksum: 40.0, checksum_copy: 60.0, smoltcp: None },
        clock: Clock { source: "tsc".into(), ticks_per_second: 2e9, mark_nanoseconds: 9.0 },
    }
}

#[test]
fn the_pipeline_has_a_bar_for_each_case_and_says_what_is_not_explained() {
    let row =
        |fraction| Row { pipeline: Some(pipeline(fraction)), ..row("pipeline", "mpxdp", "", 1.0) };
    let good = page(&[named("one.json", vec![row(1.0)])], false);
    assert!(good.contains("1448 B, 2 subflows, 5 % late") && good.contains("57.9"), "{good}");
    assert!(!good.contains("not within"));
    assert!(page(&[named("one.json", vec![row(1.3)])], false).contains("not within 10 %"));
}

#[test]
fn files_that_cannot_be_read_and_comparisons_of_one_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let to = Target::File(path("page.html"));
    let missing = run(&[path("none.json")], false, &to).expect_err("no file");
    assert!(matches!(&missing, Error::Usage(text) if text.contains("none.json")), "{missing}");
    std::fs::write(path("text.json"), "{}").expect("a file");
    let other = run(&[path("text.json")], false, &to).expect_err("no document");
    assert!(other.to_string().contains("text.json"), "{other}");
    let alone = run(&[path("text.json")], true, &to).expect_err("one");
    assert_eq!(alone.exit_code(), 2);
    assert!(!path("page.html").exists());
}

#[test]
fn a_page_is_written_where_it_shall_go_and_documents_keep_their_names_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = ["a", "b"].map(|name| {
        let inner = folder.path().join(name);
        std::fs::create_dir(&inner).expect("a folder");
        let file = inner.join("run.json");
        let document = named("", vec![row("throughput", "mpxdp", "auto", 1.0)]).document;
        let mut text = File::create(&file).expect("a file");
        crate::document::write(&document, &mut text).expect("a document");
        file
    });
    let page = folder.path().join("page.html");
    run(&files, true, &Target::File(page.clone())).expect("a page");
    let text = std::fs::read_to_string(page).expect("text");
    assert!(text.contains("a/run.json") && text.contains("b/run.json compared with"));
}
