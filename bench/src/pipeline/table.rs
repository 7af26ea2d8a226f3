//! The result for people.

use std::fmt::Write as _;

use crate::document::{Document, NotRun, Pipeline, Row};

/// The whole document for people.
#[must_use]
pub fn summary(document: &Document) -> String {
    let Document { environment, results, remarks, not_run, .. } = document;
    let first = results.first().and_then(|row| Some((row.rounds, row.pipeline.as_ref()?)));
    let Some((rounds, Pipeline { clock, .. })) = first else { return String::new() };
    let mut text = format!(
        "{}, {} CPUs, kernel {}\nnanoseconds a packet on one core; clock: {} at {:.2} GHz, {:.1} ns a \
         mark, subtracted; {} rounds, medians\n\n{}",
        environment.cpu_model,
        environment.cpus.len(),
        environment.kernel.split(' ').nth(1).unwrap_or("?"),
        clock.source,
        clock.ticks_per_second / 1e9,
        clock.mark_nanoseconds,
        rounds,
        table(results),
    );
    for remark in remarks {
        let _ = write!(text, "\nnote: {remark}");
    }
    for NotRun { what, reason } in not_run {
        let _ = write!(text, "\nnot measured: {what}: {reason}");
    }
    text
}

/// The rows as a table, in nanoseconds for a packet.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    let head = ["payload", "subfl", "conns", "late%", "total", "expl", "Mpkt/s", "Gbit/s"];
    for name in head {
        let _ = write!(text, "{name:>8}");
    }
    if let Some(first) = rows.iter().find_map(|row| row.pipeline.as_ref()) {
        for (name, _) in first.nanoseconds_per_packet.named() {
            let _ = write!(text, "{name:>0$}", width(name));
        }
    }
    for name in ["memcpy", "cksum", "cksum+cp", "smoltcp"] {
        let _ = write!(text, "{name:>9}");
    }
    text.push('\n');
    for row in rows {
        let Some(pipeline) = &row.pipeline else { continue };
        let Pipeline { case, total_nanoseconds_per_packet: total, limits, .. } = pipeline;
        let mark = if pipeline.explained { "" } else { "!" };
        let noise = if row.noisy { "~" } else { "" };
        let _ = write!(
            text,
            "{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8.2}{:>8.2}",
            case.payload,
            case.subflows,
            case.connections,
            case.reorder_percent,
            format!("{noise}{:.1}", total.median),
            format!("{mark}{:.2}", pipeline.explained_fraction),
            pipeline.packets_per_second / 1e6,
            pipeline.packets_per_second * f64::from(case.payload) * 8.0 / 1e9,
        );
        for (name, time) in pipeline.nanoseconds_per_packet.named() {
            let _ = write!(text, "{time:>0$.1}", width(name));
        }
        for time in [limits.memcpy, limits.checksum, limits.checksum_copy] {
            let _ = write!(text, "{time:>9.1}");
        }
        match limits.smoltcp {
            Some(time) => writeln!(text, "{time:>9.1}"),
            None => writeln!(text, "{:>9}", "-"),
        }
        .expect("a string takes everything");
    }
    text
}

/// The width of a stage's column.
fn width(name: &str) -> usize {
    name.len().max(7) + 2
}
