//! What a person reads.

use std::fmt::Write;

use super::bottleneck::Bottleneck;
use crate::document::{Document, NotRun, Row};
use crate::table;
use crate::text::wrapped;
use crate::topology::Topology;

/// The whole document as text.
pub(super) fn render(document: &Document, topology: &Topology) -> String {
    let mut text = String::new();
    text.push_str(&table::machine(&document.environment, &topology.counts().to_string()));
    let mut sections: Vec<(u32, u32)> =
        document.results.iter().map(|row| (row.mtu, row.subflows)).collect();
    sections.sort_unstable();
    sections.dedup();
    for (mtu, subflows) in sections {
        let fits = |row: &&Row| (row.mtu, row.subflows) == (mtu, subflows);
        let rows: Vec<&Row> = document.results.iter().filter(fits).collect();
        section(&mut text, &rows);
        bottlenecks(&mut text, &rows);
        recommendations(&mut text, document, mtu, subflows);
    }
    table::invalid(&mut text, document);
    not_run(&mut text, &document.not_run);
    for remark in &document.remarks {
        let _ = writeln!(text, "\n{}", wrapped(remark, 100));
    }
    text
}

fn section(text: &mut String, rows: &[&Row]) {
    let Some(first) = rows.first() else { return };
    let most = rows.iter().map(|row| row.rounds).max().unwrap_or(0);
    text.push_str(&table::head(first, most));
    let place = rows.iter().map(|row| row.placement.len()).max().unwrap_or(0).max(9);
    let shared = rows.iter().map(|row| class(row).len()).max().unwrap_or(0).max(13);
    // Writing to a String does not fail, here and below.
    let _ = writeln!(
        text,
        "  {:<16}  {:>8}  {:<place$}  {:<shared$}  {:>19}  {:>6}  what limits",
        "receiver", "scenario", "placement", "what's shared", "Gb/s", "s/GB"
    );
    for row in rows {
        let placed = row.placed.as_ref();
        let scenario = placed.and_then(|placed| placed.scenario).map(u8::from);
        let scenario = scenario.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let rate = row.bits_per_second.map_or_else(String::new, table::gigabits);
        let cost = table::cpu(row.cpu_seconds_per_gigabyte);
        let limit = placed.and_then(|placed| placed.bottleneck.as_ref());
        let limit = limit.map_or_else(|| "unknown".to_owned(), Bottleneck::label);
        let fell_back = if row.mptcp || !row.receiver.contains("mp") { "" } else { "; NOT MPTCP" };
        let _ = writeln!(
            text,
            "  {:<16}  {scenario:>8}  {:<place$}  {:<shared$}  {rate:>19}  {cost:>6}  \
             {limit}{fell_back}",
            row.receiver,
            row.placement,
            class(row),
        );
    }
}

fn class(row: &Row) -> &str {
    row.placed.as_ref().map_or("", |placed| &placed.class)
}

/// How busy each CPU was, for those who want to know how near the others were.
fn bottlenecks(text: &mut String, rows: &[&Row]) {
    for row in rows {
        if let Some(found) = row.placed.as_ref().and_then(|placed| placed.bottleneck.as_ref()) {
            let _ = writeln!(text, "    {}, {}: {}", row.receiver, row.placement, found.loads());
        }
    }
}

fn recommendations(text: &mut String, document: &Document, mtu: u32, subflows: u32) {
    let fits = document.recommendations.iter().filter(|r| (r.mtu, r.subflows) == (mtu, subflows));
    for recommended in fits {
        let _ = writeln!(
            text,
            "  -> {}: {}: {:.2} Gb/s, {:.2} CPU seconds a GB: {}",
            recommended.receiver,
            recommended.placement,
            recommended.bits_per_second.median / 1e9,
            recommended.cpu_seconds_per_gigabyte,
            recommended.reason
        );
    }
}

/// As many are listed in full; of more, what they have in common is left out.
const IN_FULL: usize = 3;

/// Everything that was not measured, by its reason. The document has each by itself.
fn not_run(text: &mut String, not_run: &[NotRun]) {
    let mut reasons: Vec<&str> = Vec::new();
    for NotRun { reason, .. } in not_run {
        if !reasons.contains(&reason.as_str()) {
            reasons.push(reason);
        }
    }
    if !reasons.is_empty() {
        let _ = writeln!(text, "\nNot measured:");
    }
    for reason in reasons {
        let all: Vec<&str> = not_run
            .iter()
            .filter(|not| not.reason == reason)
            .map(|not| not.what.as_str())
            .collect();
        let mut shown: Vec<&str> = Vec::new();
        for what in &all {
            let what = if all.len() > IN_FULL { placement(what) } else { *what };
            if !shown.contains(&what) {
                shown.push(what);
            }
        }
        let _ = writeln!(text, "  {reason} ({}):", all.len());
        for line in wrapped(&shown.join(" | "), 96).lines() {
            let _ = writeln!(text, "    {line}");
        }
    }
}

/// The placement of `mpxdp, MTU 1500, 1 subflow, nic+worker, reader smt, by link`, whether by link or
/// not; all of it, if there is none in it.
fn placement(what: &str) -> &str {
    let third = what.match_indices(", ").nth(2).map(|(at, text)| at + text.len());
    let placement = third.map_or(what, |at| &what[at..]);
    placement.strip_suffix(", by link").unwrap_or(placement)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn not(what: &str, reason: &str) -> NotRun {
        NotRun { what: what.into(), reason: reason.into() }
    }

    #[test]
    fn what_was_not_measured_is_listed_by_its_reason() {
        let all = [
            not("mpxdp, MTU 1500, 1 subflow, nic, worker+reader smt", "no SMT"),
            not("mpxdp, MTU 1500, 2 subflows, nic, worker+reader smt", "no SMT"),
            not("kernel-tcp, MTU 1500, 2 subflows", "TCP has one subflow"),
            not("mpxdp, MTU 1500, 2 subflows, nic, worker+reader smt, by link", "no SMT"),
            not("kernel-mptcp, MTU 1500, 1 subflow, nic, reader smt", "no SMT"),
        ];
        let mut text = String::new();
        not_run(&mut text, &all);
        assert_eq!(
            text,
            "\nNot measured:\n  no SMT (4):\n    nic, worker+reader smt | nic, reader smt\n  \
             TCP has one subflow (1):\n    kernel-tcp, MTU 1500, 2 subflows\n"
        );
        let mut text = String::new();
        not_run(&mut text, &[]);
        assert_eq!(text, "");
    }
}
