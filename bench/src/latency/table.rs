//! What a person reads.

use std::fmt::Write;

use super::Reading;
use super::run::Load;
use crate::document::{Percentiles, Row};

/// What stands under the tables.
pub(super) const LEGEND: &str = "
Times are from when a message was due, late or not, until the application had all of it.
achieved: messages a second that were sent. late: written more than 20 us after they were due.
Over veth the NIC's processing runs in the sender's write, and AF_XDP copies: docs/benchmarking.md.
";

/// The head of a table.
pub(super) fn head(mtu: u32, load: Load, rounds: usize, seconds: f64) -> String {
    let (rate, size) = (load.plan.rate, load.size);
    let mut text = format!(
        "\nMTU {mtu}, {rate} messages a second of {size} bytes, {rounds} x {seconds} s; latency in \
         microseconds\n"
    );
    // Writing to a String does not fail, here and below.
    let _ = writeln!(
        text,
        "  {:<17} {:<9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>7}  placement",
        "receiver", "reader", "p50", "p90", "p99", "p99.9", "p99.99", "max", "achieved", "late"
    );
    text
}

/// A line of a table; nothing for a row without latency.
pub(super) fn line(row: &Row) -> String {
    let Some(latency) = &row.latency else { return String::new() };
    let Percentiles { p50, p90, p99, p99_9, p99_99, max } = latency.latency_ns;
    let mut text = format!("  {:<17} {:<9}", row.receiver, latency.reader.name());
    for nanoseconds in [p50, p90, p99, p99_9, p99_99, max] {
        let _ = write!(text, " {:>8}", micro(nanoseconds));
    }
    let late = share(latency.late, latency.messages);
    let _ = write!(text, " {:>9.0} {late:>7}  {}", latency.achieved_rate, row.placement);
    match latency.worker {
        Some(Reading::Spin) => text.push_str(", worker spins"),
        Some(_) => text.push_str(", worker sleeps"),
        None => {}
    }
    if row.receiver.contains("mp") && !row.mptcp {
        text.push_str("; FELL BACK TO TCP");
    }
    if latency.unsent > 0 {
        let _ = write!(text, "; OVERLOADED, {} not sent", latency.unsent);
    } else if latency.achieved_rate < KEPT_UP * f64::from(latency.rate) {
        text.push_str("; OVERLOADED");
    }
    text.push('\n');
    text
}

/// The part of the offered rate below which a receiver is said not to have kept up: a stall near the
/// end of a round takes less than this from it.
const KEPT_UP: f64 = 0.95;

/// Microseconds, with as many digits as mean something.
fn micro(nanoseconds: u64) -> String {
    let micro = nanoseconds as f64 / 1000.0;
    if micro < 1000.0 { format!("{micro:.1}") } else { format!("{micro:.0}") }
}

fn share(part: u64, of: u64) -> String {
    if part == 0 || of == 0 {
        return "0 %".into();
    }
    format!("{:.2} %", part as f64 * 100.0 / of as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Latency;
    use crate::latency::schedule::Plan;

    fn latency() -> Latency {
        Latency {
            reader: Reading::Spin,
            worker: Some(Reading::Sleep),
            sender: Reading::Spin,
            rate: 1000,
            achieved_rate: 999.6,
            size: 64,
            messages: 3000,
            late: 6,
            unsent: 0,
            latency_ns: Percentiles { p50: 12_345, max: 45_678_901, ..Percentiles::default() },
            transit_ns: Percentiles::default(),
            lateness_ns: Percentiles::default(),
            rounds_ns: Vec::new(),
            histogram: String::new(),
            transit_histogram: String::new(),
        }
    }

    fn row(latency: Latency) -> Row {
        Row {
            receiver: "mpxdp".into(),
            placement: "napi=sender worker=1 reader=1".into(),
            mptcp: true,
            latency: Some(latency),
            ..Row::default()
        }
    }

    #[test]
    fn a_line_stands_under_its_head() {
        let line = line(&row(latency()));
        let plan = Plan { rate: 1000, warm_up: 0, measured: 1000 };
        let head = head(1500, Load { plan, size: 64 }, 3, 1.0);
        let names = head.lines().last().expect("two lines");
        let expected =
            [("p50", "12.3"), ("max", "45679"), ("achieved", "1000"), ("late", "0.20 %")];
        for (name, value) in expected {
            let end = |text: &str, what: &str| text.find(what).map(|at| at + what.len());
            assert_eq!(end(names, name), end(&line, value), "{name}\n{names}\n{line}");
        }
        assert!(line.ends_with("reader=1, worker sleeps\n"), "{line}");
    }

    #[test]
    fn who_could_not_keep_up_or_fell_back_is_named() {
        let slow = line(&row(Latency { achieved_rate: 900.0, ..latency() }));
        assert!(slow.contains("OVERLOADED"), "{slow}");
        let stuck = line(&row(Latency { unsent: 17, ..latency() }));
        assert!(stuck.contains("17 not sent"), "{stuck}");
        let plain = line(&Row { mptcp: false, ..row(latency()) });
        assert!(plain.contains("FELL BACK"), "{plain}");
        assert_eq!(line(&Row::default()), "");
    }
}
