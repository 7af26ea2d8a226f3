//! What a person reads.

use std::fmt::Write;

use crate::document::{CpuSeconds, Document, Row};
use crate::table;
use crate::text::{count, wrapped};
use crate::trial::Receiver;

/// What a reader of the figures should know.
pub(super) const REMARKS: [&str; 3] = [
    "Receivers named -xdp are the kernel's behind an XDP program that passes everything. Over veth \
     mpxdp's front end costs two more copies of each packet than a driver with zero copy would, and \
     without it the kernel gets the sender's buffers by reference, which no NIC can do: -xdp is the \
     like-for-like comparison.",
    "CPU seconds are those of the receiving side: all that /proc/stat has for all CPUs, softirqs \
     included, less the user and system time of the CPU that only the sender runs on. The sender's \
     handling of acknowledgements is in softirqs and so in every receiver's figure alike, as is \
     whatever else the machine does meanwhile.",
    "A rate is what the sender's kernel took in the measured seconds, after the warm-up; the \
     receiver has confirmed every byte in the end. That a sender's CPU is busy all the time means \
     that the sender was the limit.",
];

/// The whole document as text.
pub(super) fn render(document: &Document) -> String {
    let mut text = String::new();
    let environment = &document.environment;
    let cpus = format!("{} CPUs", environment.cpus.len());
    text.push_str(&table::machine(environment, &cpus));
    let mut seen = Vec::new();
    for row in &document.results {
        if !seen.contains(&(row.mtu, row.subflows)) {
            seen.push((row.mtu, row.subflows));
            section(&mut text, document, row);
        }
    }
    costs(&mut text, document);
    for row in document.results.iter().filter(|row| row.noisy) {
        let why = row.noisy_reason.as_deref().unwrap_or_default();
        let Row { receiver, mtu, subflows, placement, .. } = row;
        let subflows = count(*subflows, "subflow");
        // Writing to a String does not fail, here and below.
        let _ = writeln!(text, "\nNOISY: {receiver}, MTU {mtu}, {subflows}, {placement}: {why}");
    }
    table::invalid(&mut text, document);
    for not in &document.not_run {
        let _ = writeln!(text, "\nnot run: {}: {}", not.what, not.reason);
    }
    if document.interrupted {
        let _ = writeln!(text, "\nINTERRUPTED: this is what had been measured by then");
    }
    for remark in &document.remarks {
        let _ = writeln!(text, "\n{}", wrapped(remark, 100));
    }
    text
}

/// All receivers under the conditions of the first of them.
fn section(text: &mut String, document: &Document, first: &Row) {
    text.push_str(&table::head(first, first.rounds));
    let _ = writeln!(
        text,
        "  {:<17} {:>26} {:>6} {:>27} {:>8} {:>8} {:>9} {:>6} {:>6}  placement",
        "receiver",
        "Gb/s",
        "cores",
        "s/GB: user+sys+softirq",
        "retrans",
        "drops",
        "switches",
        "× best",
        "× like"
    );
    let same = |row: &&Row| row.mtu == first.mtu && row.subflows == first.subflows;
    for row in document.results.iter().filter(same) {
        line(text, document, row);
    }
}

/// CPU time for a packet: the front ends, and every receiver's and what of that is above its own.
fn costs(text: &mut String, document: &Document) {
    if document.front_ends.is_empty() {
        return;
    }
    let _ = writeln!(text, "\nCPU time of the receiving side, in ns for a packet and for a byte");
    let _ = writeln!(
        text,
        "  {:>6} {:<17} {:>9} {:>8} {:>22} {:>8}  placement",
        "MTU", "", "packet", "byte", "above: packet", "byte"
    );
    for one in &document.front_ends {
        let (packet, byte) = (one.nanoseconds_per_packet.median, one.nanoseconds_per_byte);
        let _ = writeln!(
            text,
            "  {:>6} {:<17} {packet:>9.0} {byte:>8.3} {:>22} {:>8}  {}",
            one.mtu, one.front_end, "", "", one.placement
        );
    }
    for row in document.results.iter().filter(|row| row.subflows == 1) {
        let (Some(packet), Some(byte)) = (row.nanoseconds_per_packet, row.cpu_seconds_per_gigabyte)
        else {
            continue;
        };
        let above = row.above_front_end.as_ref().map_or_else(
            || format!("{:>22} {:>8}", "", ""),
            |above| {
                let packet = format!("{}: {:.0}", above.front_end, above.nanoseconds_per_packet);
                format!("{packet:>22} {:>8.3}", above.nanoseconds_per_byte)
            },
        );
        let _ = writeln!(
            text,
            "  {:>6} {:<17} {packet:>9.0} {byte:>8.3} {above}  {}",
            row.mtu, row.receiver, row.placement
        );
    }
}

fn line(text: &mut String, document: &Document, row: &Row) {
    let reference = Receiver::KernelMptcpXdp.name();
    let ratio = |placement: &str| {
        let ratio = document.ratios.iter().find(|ratio| {
            (ratio.mtu, ratio.subflows) == (row.mtu, row.subflows)
                && ratio.against_subflows.is_none()
                && (ratio.of.as_str(), ratio.against.as_str()) == (&row.receiver, reference)
                && ratio.placement == placement
        });
        ratio.map_or_else(String::new, |ratio| format!("{:.2}", ratio.median))
    };
    let best = if row.best { ratio("best") } else { String::new() };
    let like = ratio(&row.placement);
    let sum = |of: fn(&crate::document::Round) -> u64| row.measurements.iter().map(of).sum::<u64>();
    let note = if row.best { "" } else { "  (mpxdp's)" };
    let _ = writeln!(
        text,
        "  {:<17} {:>26} {:>6} {:>27} {:>8} {:>8} {:>9} {best:>6} {like:>6}  {}{note}",
        row.receiver,
        rate(row),
        table::cpu(row.receiving_cores.map(|cores| cores.median)),
        cost(row),
        sum(|round| round.retransmissions.tcp),
        sum(|round| round.drops.values().sum()),
        sum(|round| round.context_switches.voluntary + round.context_switches.involuntary),
        row.placement,
    );
}

/// A median that stands alone only if the rounds agree.
fn rate(row: &Row) -> String {
    let Some(rate) = row.bits_per_second else { return String::new() };
    if row.noisy {
        return format!("NOISY ({:.2}–{:.2})", rate.min / 1e9, rate.max / 1e9);
    }
    table::gigabits(rate)
}

fn cost(row: &Row) -> String {
    let Some(total) = row.cpu_seconds_per_gigabyte else { return String::new() };
    let kinds = row.cpu_seconds_per_gigabyte_by_kind.unwrap_or_default();
    let CpuSeconds { user, system, softirq, .. } = kinds;
    format!("{total:.2}: {user:.2}+{system:.2}+{softirq:.2}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Round;

    #[test]
    fn a_noisy_row_shows_no_median() {
        let round = |rate: f64| Round { bits_per_second: rate, ..Round::default() };
        let row = Row { receiver: "mpxdp".into(), mtu: 1500, subflows: 1, ..Row::default() };
        let mut document = Document::new();
        document.results.push(row.clone().with_rounds(vec![round(1e9), round(5e9)]));
        let text = render(&document);
        assert!(text.contains("NOISY (1.00–5.00)"), "{text}");
        assert!(text.contains("differ by 133 %"), "{text}");
        assert!(!text.contains("3.00 ("), "{text}");
        document.results = vec![row.with_rounds(vec![round(3e9)])];
        assert!(render(&document).contains("3.00 (3.00–3.00)"));
    }
}
