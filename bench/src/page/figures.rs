//! Rates, costs and placements of transfers.

use maud::{Markup, PreEscaped, html};

use super::compare::spread;
use super::groups::{Group, conditions, count, group, label, receivers, series};
use super::plot::{Axis, Bar, Cell, HeatMap, Line, bars, heat, lines, short};
use super::theme::Colour;
use crate::document::{Ratio, Row};
use crate::error::Result;
use crate::measure::Spread;

/// Rates and costs of transfers.
pub(super) fn throughput(rows: &[&Row]) -> Result<Markup> {
    let groups = group(rows, conditions);
    let parts: Vec<Markup> = groups.iter().map(transfers).collect::<Result<_>>()?;
    Ok(html! { @for part in &parts { (part) } })
}

fn transfers(group: &Group<'_>) -> Result<Markup> {
    let giga = |Spread { median, min, max }: Spread| Spread {
        median: median / 1e9,
        min: min / 1e9,
        max: max / 1e9,
    };
    let rate = bars_of(group, |row| row.bits_per_second.map(giga));
    let cpu = bars_of(group, |row| {
        Spread::of(
            row.measurements.iter().filter_map(|round| Some(round.cpu_per_gigabyte()?.total())),
        )
    });
    let time = over_time(group);
    Ok(html! {
        h3 { (group.title) }
        @if !rate.is_empty() {
            figure { (PreEscaped(bars(&rate, "Gb/s of payload: median, least and greatest round")?)) }
        }
        @if !cpu.is_empty() {
            figure { (PreEscaped(bars(&cpu, "CPU seconds of the receiving side for a gigabyte")?)) }
        }
        @if !time.is_empty() {
            figure {
                (legend(receivers(group.rows.iter().copied())))
                (PreEscaped(lines(&time, Axis::Time, "seconds since the data began", "Gb/s")?))
            }
        }
        (table(group))
    })
}

fn bars_of(group: &Group<'_>, value: impl Fn(&Row) -> Option<Spread>) -> Vec<Bar> {
    let bar = |row: &&Row| {
        let value = value(row)?;
        Some(Bar { label: label(row, group), series: series(&row.receiver), value })
    };
    group.rows.iter().filter_map(bar).collect()
}

/// Every round's throughput over time; the first round of each receiver stands out.
fn over_time(group: &Group<'_>) -> Vec<Line> {
    let best = group.rows.iter().filter(|row| row.best || group.rows.len() <= 5);
    let rounds = best.flat_map(|row| row.measurements.iter().enumerate().map(move |r| (row, r)));
    rounds
        .filter(|(_, (_, round))| round.timeline.bytes.len() > 2)
        .map(|(row, (n, round))| {
            let interval = round.timeline.interval_seconds;
            // The last interval may be shorter than the others; its rate would be wrong.
            let whole = &round.timeline.bytes[..round.timeline.bytes.len() - 1];
            let point = |(n, &bytes): (usize, &u64)| {
                ((n as f64 + 0.5) * interval, bytes as f64 * 8.0 / interval / 1e9)
            };
            let points = whole.iter().enumerate().map(point).collect();
            Line { series: series(&row.receiver), pale: n > 0, points }
        })
        .collect()
}

/// Which colour is whose.
pub(super) fn legend(entries: impl IntoIterator<Item = (usize, String)>) -> Markup {
    html! {
        ul.key { @for (series, name) in entries {
            @let colour = format!("background: var({})", Colour::Series(series).variable());
            li { span style=(colour) {} (name) }
        } }
    }
}

fn table(group: &Group<'_>) -> Markup {
    html! {
        div.scroll { table {
            thead { tr {
                th.name { "Receiver" } th.name { "Placement" } th { "Gb/s" } th { "CPUs busy" } th { "CPU s/GB" }
                th { "Sent again" } th { "Dropped" } th.name { "Packets came by" }
            } }
            tbody { @for row in &group.rows { tr {
                td.name { (row.receiver) @if row.noisy { " " span.warn title=(row.noisy_reason.as_deref().unwrap_or("")) { "noisy" } } }
                td.name { (row.placement) }
                td { @if let Some(rate) = row.bits_per_second {
                    (spread(Spread { median: rate.median / 1e9, min: rate.min / 1e9, max: rate.max / 1e9 }))
                } }
                td { @if let Some(cores) = row.receiving_cores { (short(cores.median)) } }
                td { @if let Some(cpu) = row.cpu_seconds_per_gigabyte { (short(cpu)) } }
                td { (sum(row.measurements.iter().map(|round| round.retransmissions.tcp))) }
                td { (sum(row.measurements.iter().flat_map(|round| round.drops.values().copied()))) }
                td.name { (row.mode) }
            } } }
        } }
    }
}

/// As much as there is, at most as much as can be told.
fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// The heat map of placements.
pub(super) fn placement(rows: &[&Row]) -> Result<Markup> {
    let groups = group(rows, |row| {
        // The kernel's receivers have no worker, so mpxdp's placements are none of theirs.
        let whose = if row.placement.contains("worker=") { "mpxdp" } else { "the kernel" };
        format!("Placements of {whose}, MTU {}, {}", row.mtu, count(row.links, "link"))
    });
    let parts: Vec<Markup> = groups.iter().map(map).collect::<Result<_>>()?;
    Ok(html! { @for part in &parts { (part) } })
}

fn map(group: &Group<'_>) -> Result<Markup> {
    // Columns are narrow: what the kernel's receivers have in common gets a line of its own.
    let column = |row: &Row| {
        let name = row.receiver.replacen("kernel-", "kernel\n", 1);
        format!("{name}\n{}", count(row.subflows, "subflow"))
    };
    let mut columns: Vec<String> = Vec::new();
    let mut places: Vec<String> = Vec::new();
    for row in &group.rows {
        if !columns.contains(&column(row)) {
            columns.push(column(row));
        }
        if !places.contains(&row.placement) {
            places.push(row.placement.clone());
        }
    }
    let rate = |row: &Row| row.bits_per_second.map(|rate| rate.median / 1e9);
    let best = group.rows.iter().filter_map(|row| rate(row)).fold(0.0, f64::max);
    let cell = |place: &String, name: &String| {
        let mut rows = group.rows.iter();
        let row = rows.find(|row| row.placement == *place && column(row) == *name)?;
        let value = rate(row)?;
        Some(Cell { value, heat: if best > 0.0 { value / best } else { 0.0 } })
    };
    let cells: Vec<Vec<Option<Cell>>> =
        places.iter().map(|place| columns.iter().map(|name| cell(place, name)).collect()).collect();
    let HeatMap { svg, wide } = heat(&places, &columns, &cells)?;
    Ok(html! {
        h3 { (group.title) }
        p.quiet { "Gb/s, the median of the rounds; an empty frame was not measured." }
        @match wide {
            None => figure { (PreEscaped(svg)) },
            // What does not fit is moved to, not made small.
            Some(width) => figure.scroll { div style=(format!("width: {width}px")) { (PreEscaped(svg)) } },
        }
        (table(group))
    })
}

/// Receivers against each other.
pub(super) fn ratios(ratios: &[Ratio]) -> Markup {
    html! {
        @if !ratios.is_empty() {
            h3 { "Ratios, taken round by round" }
            div.scroll { table {
                thead { tr {
                    th.name { "Rate of" } th.name { "against" } th { "MTU" } th { "Subflows" } th.name { "Placement" }
                    th { "Median (least to greatest)" }
                } }
                tbody { @for ratio in ratios { tr {
                    td.name { (ratio.of) }
                    td.name {
                        (ratio.against)
                        @if let Some(subflows) = ratio.against_subflows {
                            " with " (count(subflows, "subflow"))
                        }
                    }
                    td { (ratio.mtu) }
                    td { (ratio.subflows) }
                    td.name { (ratio.placement) }
                    td {
                        (spread(Spread { median: ratio.median, min: ratio.min, max: ratio.max }))
                        @if ratio.noisy { " " span.warn { "noisy" } }
                    }
                } } }
            } }
        }
    }
}
