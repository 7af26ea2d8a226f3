//! What the data plane costs by itself.

use maud::{Markup, PreEscaped, html};

use super::figures::legend;
use super::groups::count;
use super::plot::{Stack, short, stacks};
use crate::document::{Pipeline, Row, Stages};
use crate::error::Result;
use crate::pipeline::Case;

/// What is drawn as one part: stages that belong together, so that each has a colour of its own.
const PARTS: [&str; 8] = [
    "port",
    "parse",
    "checksum",
    "subflow",
    "claim and commit",
    "copy",
    "acknowledge and rest",
    "read",
];

/// `1448 B, 2 subflows, 5 % reordered`.
fn label(case: &Case) -> String {
    let mut text = format!("{} B, {}", case.payload, count(case.subflows, "subflow"));
    if case.connections > 1 {
        text += &format!(", {}", count(case.connections, "connection"));
    }
    if case.reorder_percent > 0.0 {
        text += &format!(", {} % late", case.reorder_percent);
    }
    text
}

fn parts(stages: &Stages) -> [f64; PARTS.len()] {
    let Stages {
        receive,
        parse,
        checksum,
        subflow,
        claim,
        copy,
        commit,
        recycle,
        acknowledge,
        rest,
        read,
    } = *stages;
    [receive + recycle, parse, checksum, subflow, claim + commit, copy, acknowledge + rest, read]
}

/// The stages of each case as one bar, and beside them what the machine could do.
pub(super) fn section(rows: &[&Row]) -> Result<Markup> {
    let cases: Vec<&Pipeline> = rows.iter().filter_map(|row| row.pipeline.as_ref()).collect();
    if cases.is_empty() {
        return Ok(html! {});
    }
    let stack = |case: &&Pipeline| Stack {
        label: label(&case.case),
        parts: parts(&case.nanoseconds_per_packet).to_vec(),
    };
    let drawn: Vec<Stack> = cases.iter().map(stack).collect();
    let names = PARTS.iter().enumerate().map(|(n, name)| (n, (*name).to_owned()));
    Ok(html! {
        h3 { "The data plane by itself, over ports in memory" }
        figure {
            (legend(names))
            (PreEscaped(stacks(&drawn, "nanoseconds for a packet, by stage")?))
        }
        (table(&cases))
    })
}

fn table(cases: &[&Pipeline]) -> Markup {
    html! {
        div.scroll { table {
            thead { tr {
                th.name { "Packets" } th { "ns/packet" } th { "Gb/s" } th { "explained" }
                th { "memcpy" } th { "checksum" } th { "both" } th { "smoltcp" }
            } }
            tbody { @for case in cases { @let total = case.total_nanoseconds_per_packet; tr {
                td.name { (label(&case.case)) }
                td { (super::compare::spread(total)) }
                td { (short(f64::from(case.case.payload) * 8.0 / total.median)) }
                td {
                    (format!("{:.0} %", case.explained_fraction * 100.0))
                    @if !case.explained { " " span.warn { "not within 10 %" } }
                }
                td { (short(case.limits.memcpy)) }
                td { (short(case.limits.checksum)) }
                td { (short(case.limits.checksum_copy)) }
                td { @if let Some(smoltcp) = case.limits.smoltcp { (short(smoltcp)) } }
            } } }
        } }
        p.quiet {
            "“Both”: one pass that verifies the checksum and copies into a ring, the least for a receiver "
            "that does both once. Nanoseconds for a packet, like those of memcpy, checksum and smoltcp."
        }
    }
}
