//! How long single messages took.

use maud::{Markup, PreEscaped, html};

use super::figures::legend;
use super::groups::{Group, count, group, receivers, series};
use super::plot::{Axis, Line, lines, short};
use crate::document::{Latency, Row};
use crate::error::Result;
use crate::latency::{Reading, histogram};

/// The percentiles of each rate and size: a plot for the readers of each kind, and a table.
pub(super) fn section(rows: &[&Row]) -> Result<Markup> {
    let groups = group(rows, |row| {
        let latency = row.latency.as_ref();
        let (rate, size) = latency.map_or((0, 0), |latency| (latency.rate, latency.size));
        let link = format!("MTU {}, {}", row.mtu, count(row.subflows, "subflow"));
        format!("Latency at {rate} messages a second of {size} bytes, {link}")
    });
    let parts: Vec<Markup> = groups.iter().map(messages).collect::<Result<_>>()?;
    Ok(html! { @for part in &parts { (part) } })
}

fn messages(group: &Group<'_>) -> Result<Markup> {
    let all: Vec<(&Row, &Latency)> =
        group.rows.iter().filter_map(|row| Some((*row, row.latency.as_ref()?))).collect();
    let kinds = [Reading::Sleep, Reading::Spin, Reading::BusyPoll];
    let plots: Vec<Markup> = kinds
        .into_iter()
        .filter(|kind| all.iter().any(|(_, latency)| latency.reader == *kind))
        .map(|kind| {
            let of_kind: Vec<_> = all.iter().filter(|(_, l)| l.reader == kind).copied().collect();
            plot(kind, &of_kind)
        })
        .collect::<Result<_>>()?;
    Ok(html! {
        h3 { (group.title) }
        p.quiet {
            "From the moment when a message was due until the application had all of it. The time that "
            "a message waited for a sender held up before is in it."
        }
        @for plot in &plots { (plot) }
        (table(&all))
    })
}

fn plot(kind: Reading, rows: &[(&Row, &Latency)]) -> Result<Markup> {
    let line = |(row, latency): &(&Row, &Latency)| -> Result<Line> {
        let histogram = histogram::decode(&latency.histogram)?;
        // What stands for 100 % lies nowhere on a logarithmic axis.
        let points = histogram
            .iter_quantiles(5)
            .filter(|step| step.quantile_iterated_to() < 1.0)
            .map(|step| {
                let across = 1.0 / (1.0 - step.quantile_iterated_to());
                (across, (step.value_iterated_to() as f64 / 1000.0).max(0.001))
            })
            .collect();
        let pale = latency.worker == Some(Reading::Sleep);
        Ok(Line { series: series(&row.receiver), pale, points })
    };
    let drawn: Vec<Line> = rows.iter().map(line).collect::<Result<_>>()?;
    let pale = drawn.iter().any(|line| line.pale);
    Ok(html! {
        figure {
            figcaption { "Reader: " (kind.name()) @if pale { "; pale: mpxdp's worker sleeps too" } }
            (legend(receivers(rows.iter().map(|(row, _)| *row))))
            (PreEscaped(lines(&drawn, Axis::Percentiles, "percentile of the messages", "latency")?))
        }
    })
}

fn table(rows: &[(&Row, &Latency)]) -> Markup {
    let micro = |nanoseconds: u64| short(nanoseconds as f64 / 1000.0);
    html! {
        div.scroll { table {
            thead { tr {
                th.name { "Receiver" } th.name { "Reader" } th.name { "Worker" } th { "Sent/s" } th { "Late" }
                th { "p50 µs" } th { "p90" } th { "p99" } th { "p99.9" } th { "p99.99" } th { "max" }
            } }
            tbody { @for (row, latency) in rows { @let ns = latency.latency_ns; tr {
                td.name { (row.receiver) }
                td.name { (latency.reader.name()) }
                td.name { (latency.worker.map_or("", Reading::name)) }
                td { (format!("{:.0}", latency.achieved_rate)) }
                td { (latency.late) }
                @for value in [ns.p50, ns.p90, ns.p99, ns.p99_9, ns.p99_99, ns.max] { td { (micro(value)) } }
            } } }
        } }
    }
}
