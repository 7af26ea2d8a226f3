//! Two documents side by side: what changed by more than the rounds scatter.

use maud::{Markup, html};

use super::Named;
use super::groups::{conditions, count};
use super::pipeline::case_name;
use super::plot::short;
use crate::document::{Latency, Percentiles, Row};
use crate::measure::Spread;

/// What the figures of two results say about each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// All rounds of the second are above all of the first.
    Above,
    /// All rounds of the second are below all of the first.
    Below,
    /// They overlap.
    Same,
}

impl Verdict {
    fn of(base: Spread, other: Spread) -> Self {
        if other.min > base.max {
            Self::Above
        } else if other.max < base.min {
            Self::Below
        } else {
            Self::Same
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Above => "more",
            Self::Below => "less",
            Self::Same => "rounds overlap",
        }
    }
}

/// One quantity of a result that can be compared.
struct Quantity {
    what: String,
    value: Spread,
}

/// The comparable quantities of a result.
fn quantities(row: &Row) -> Vec<Quantity> {
    let mut all = Vec::new();
    if let Some(pipeline) = &row.pipeline {
        // Its rate is the same figure, turned over.
        let value = pipeline.total_nanoseconds_per_packet;
        return vec![Quantity { what: "ns/packet".into(), value }];
    }
    if let Some(latency) = &row.latency {
        let percentile = |what: &str, of: fn(&Percentiles) -> u64| {
            let rounds = latency.rounds_ns.iter().map(|ns| of(ns) as f64 / 1000.0);
            Spread::of(rounds).map(|value| Quantity { what: what.into(), value })
        };
        all.extend(percentile("p50 µs", |ns| ns.p50));
        all.extend(percentile("p99 µs", |ns| ns.p99));
        all.extend(percentile("p99.9 µs", |ns| ns.p99_9));
    }
    if let Some(rate) = row.bits_per_second {
        let value = Spread { median: rate.median / 1e9, min: rate.min / 1e9, max: rate.max / 1e9 };
        all.push(Quantity { what: "Gb/s".into(), value });
    }
    let cpu = row.measurements.iter().filter_map(|round| Some(round.cpu_per_gigabyte()?.total()));
    if let Some(value) = Spread::of(cpu) {
        all.push(Quantity { what: "CPU s/GB".into(), value });
    }
    all
}

/// What two results must share to be compared.
fn key(row: &Row) -> String {
    // A receiver at its best is compared at its best, wherever that was.
    let place = if row.best { "best" } else { &row.placement };
    format!("{} {} {place}", row.benchmark, name(row))
}

/// What a result is called: the receiver, and all that it was measured under.
fn name(row: &Row) -> String {
    if let Some(pipeline) = &row.pipeline {
        return format!("{}, {}", row.receiver, case_name(&pipeline.case));
    }
    let link = format!("{}, {}", row.receiver, conditions(row));
    let Some(Latency { reader, rate, size, .. }) = &row.latency else { return link };
    format!("{link}, {rate} messages/s of {size} B, reader: {}", reader.name())
}

/// The section that compares `other` with `base`.
pub(super) fn section(base: &Named, other: &Named) -> Markup {
    let rows: Vec<(&Row, &Row)> = base
        .document
        .results
        .iter()
        .filter_map(|row| {
            let key_of = key(row);
            Some((row, other.document.results.iter().find(|other| key(other) == key_of)?))
        })
        .collect();
    let unmatched = alone(&base.document.results, &other.document.results)
        + alone(&other.document.results, &base.document.results);
    html! {
        h2 { (other.name) " compared with " (base.name) }
        @if rows.is_empty() {
            p.warn { "The two have no result in common: the same benchmark, receiver, MTU, subflows, links and placement." }
        } @else {
            p.quiet {
                "Medians, with the least and the greatest round. “More” and “less” stand only where no "
                "round of one lies among those of the other."
            }
            div.scroll { table {
                thead { tr {
                    th.name { "Result" } th { "" } th { (base.name) } th { (other.name) } th { "Ratio" } th.name { "Verdict" }
                } }
                tbody { @for (row, against) in &rows { (lines(row, against)) } }
            } }
        }
        @if unmatched > 0 {
            p.quiet { (count(unmatched as u32, "result")) " of the two documents have no counterpart." }
        }
    }
}

/// How many of some results have no counterpart among others. Several may have the same one.
fn alone(some: &[Row], others: &[Row]) -> usize {
    some.iter().filter(|row| others.iter().all(|other| key(other) != key(row))).count()
}

fn lines(base: &Row, other: &Row) -> Markup {
    let others = quantities(other);
    html! {
        @for Quantity { what, value } in quantities(base) {
            @if let Some(second) = others.iter().find(|second| second.what == what) {
                tr {
                    td.name { (name(base)) }
                    td { (what) }
                    td { (spread(value)) }
                    td { (spread(second.value)) }
                    td { @if value.median > 0.0 { (short(second.value.median / value.median)) } }
                    td.name { (Verdict::of(value, second.value).words()) }
                }
            }
        }
    }
}

/// `19.5 (18.6 to 20.1)`.
pub(super) fn spread(Spread { median, min, max }: Spread) -> String {
    format!("{} ({} to {})", short(median), short(min), short(max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_that_are_there_several_times_have_their_counterpart() {
        let row = |mtu| Row { receiver: "mpxdp".into(), mtu, ..Row::default() };
        let (three, one) = ([row(1500), row(1500), row(1500)], [row(1500)]);
        assert_eq!((alone(&three, &one), alone(&one, &three)), (0, 0));
        assert_eq!(alone(&[row(1500), row(9000)], &three), 1);
        let named = |name: &str, rows: &[Row]| {
            let document = crate::document::Document {
                results: rows.to_vec(),
                ..crate::document::Document::new()
            };
            Named { name: name.into(), document }
        };
        let text = section(&named("a", &three), &named("b", &one)).into_string();
        assert!(!text.contains("counterpart"), "{text}");
    }

    #[test]
    fn more_and_less_need_rounds_that_do_not_overlap() {
        let spread = |min, max| Spread { median: f64::midpoint(min, max), min, max };
        assert_eq!(Verdict::of(spread(1.0, 2.0), spread(2.1, 3.0)), Verdict::Above);
        assert_eq!(Verdict::of(spread(2.1, 3.0), spread(1.0, 2.0)), Verdict::Below);
        assert_eq!(Verdict::of(spread(1.0, 2.0), spread(2.0, 3.0)), Verdict::Same);
    }
}
