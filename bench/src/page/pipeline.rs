//! What the data plane costs by itself.

use maud::{Markup, PreEscaped, html};

use super::figures::legend;
use super::groups::count;
use super::plot::{Stack, short, stacks};
use crate::document::{Pipeline, Row, Stages};
use crate::error::Result;
use crate::pipeline::Case;

/// Stages that are drawn as one part, since there are not as many colours, and what it is called.
/// Every other stage is a part by itself.
const TOGETHER: [(&str, [&str; 2]); 3] = [
    ("port", ["receive", "recycle"]),
    ("claim and commit", ["claim", "commit"]),
    ("acknowledge and rest", ["acknowledge", "rest"]),
];

/// `1448 B, 2 subflows, 5 % reordered`.
pub(super) fn case_name(case: &Case) -> String {
    let mut text = format!("{} B, {}", case.payload, count(case.subflows, "subflow"));
    if case.connections > 1 {
        text += &format!(", {}", count(case.connections, "connection"));
    }
    if case.reorder_percent > 0.0 {
        text += &format!(", {} % late", case.reorder_percent);
    }
    text
}

/// The parts of a bar, with their names.
fn parts(stages: &Stages) -> Vec<(&'static str, f64)> {
    let mut parts: Vec<(&str, f64)> = Vec::new();
    for (stage, time) in stages.named() {
        let together = TOGETHER.iter().find(|(_, stages)| stages.contains(&stage));
        let part = together.map_or(stage, |&(part, _)| part);
        match parts.iter_mut().find(|(known, _)| *known == part) {
            Some((_, all)) => *all += time,
            None => parts.push((part, time)),
        }
    }
    parts
}

/// The stages of each case as one bar, and beside them what the machine could do.
pub(super) fn section(rows: &[&Row]) -> Result<Markup> {
    let cases: Vec<(&Row, &Pipeline)> =
        rows.iter().filter_map(|row| Some((*row, row.pipeline.as_ref()?))).collect();
    let Some((_, first)) = cases.first() else {
        return Ok(html! {});
    };
    let stack = |(_, case): &(&Row, &Pipeline)| Stack {
        label: case_name(&case.case),
        parts: parts(&case.nanoseconds_per_packet).into_iter().map(|(_, time)| time).collect(),
    };
    let drawn: Vec<Stack> = cases.iter().map(stack).collect();
    let names = parts(&first.nanoseconds_per_packet).into_iter().enumerate();
    let names = names.map(|(n, (name, _))| (n, name.to_owned()));
    Ok(html! {
        h3 { "The data plane by itself, over ports in memory" }
        figure {
            (legend(names))
            (PreEscaped(stacks(&drawn, "nanoseconds for a packet, by stage")?))
        }
        (table(&cases))
    })
}

fn table(cases: &[(&Row, &Pipeline)]) -> Markup {
    html! {
        div.scroll { table {
            thead { tr {
                th.name { "Packets" } th { "ns/packet" } th { "Gb/s" } th { "explained" }
                th { "memcpy" } th { "checksum" } th { "both" } th { "smoltcp" }
            } }
            tbody { @for (row, case) in cases { @let total = case.total_nanoseconds_per_packet; tr {
                td.name { (case_name(&case.case)) @if row.noisy { " " span.warn title=(row.noisy_reason.as_deref().unwrap_or("")) { "noisy" } } }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{STAGE_NAMES, STAGES};

    #[test]
    fn every_stage_is_drawn_once_and_the_parts_name_stages_that_there_are() {
        let stages = Stages::new(std::array::from_fn(|at| f64::from(1 << at)));
        let parts = parts(&stages);
        assert_eq!(parts.len(), STAGES - TOGETHER.len());
        assert_eq!(parts.iter().map(|(_, time)| time).sum::<f64>(), stages.sum());
        for (_, stages) in TOGETHER {
            assert!(stages.iter().all(|stage| STAGE_NAMES.contains(stage)), "{stages:?}");
        }
    }
}
