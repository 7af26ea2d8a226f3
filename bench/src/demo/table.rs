//! What a person reads.

use std::fmt::Write;

use crate::document::{Document, Row};
use crate::table;
use crate::text::wrapped;
use crate::trial::Receiver;

/// Why the kernel is shown twice.
pub(super) const WHY_TWICE: &str = "The receivers named -xdp are the kernel's behind an XDP \
    program that passes everything: the front end that mpxdp has too. Over veth it costs two more \
    copies of each packet than a driver with zero copy would, and without it the kernel gets the \
    sender's buffers by reference, which no NIC can do. So -xdp is the like-for-like comparison.";

/// How CPU time is counted.
pub(super) const HOW_CPU: &str = "cores: CPUs kept busy by the receiving side: all that \
    /proc/stat has for all CPUs, softirqs included, less the user and system time of the CPU that \
    only the sender runs on. The sender's own handling of acknowledgements is in softirqs and so \
    in every receiver's figure alike, as is anything else that the machine does meanwhile.";

/// The whole document as text.
pub(super) fn render(document: &Document) -> String {
    let mut text = String::new();
    let environment = &document.environment;
    let cpus = format!("{} CPUs", environment.cpus.len());
    text.push_str(&table::machine(environment, &cpus));
    let mut mtus: Vec<u32> = document.results.iter().map(|row| row.mtu).collect();
    mtus.dedup();
    for mtu in mtus {
        let rows: Vec<&Row> = document.results.iter().filter(|row| row.mtu == mtu).collect();
        section(&mut text, document, mtu, &rows);
    }
    if !document.exactness.is_empty() {
        let _ = writeln!(text);
    }
    for pass in &document.exactness {
        let verdict = if pass.exact { "exact" } else { "DIFFERENT" };
        let (mebibytes, hash) = (pass.bytes >> 20, pass.received.get(..16).unwrap_or(""));
        let _ = writeln!(
            text,
            "MTU {}: {mebibytes} MiB received, {verdict} (SHA-256 {hash}…)",
            pass.mtu
        );
    }
    table::invalid(&mut text, document);
    if let Some(idle) = document.idle {
        let percent = idle.cpu_fraction * 100.0;
        let _ = writeln!(text, "idle engine: {percent:.2} % of one CPU");
    }
    for remark in &document.remarks {
        let _ = writeln!(text, "\n{}", wrapped(remark, 100));
    }
    text
}

fn section(text: &mut String, document: &Document, mtu: u32, rows: &[&Row]) {
    if let Some(first) = rows.first() {
        text.push_str(&table::head(first, first.rounds));
    }
    let reference = Receiver::KernelMptcpXdp.name();
    let _ = writeln!(
        text,
        "  {:<17} {:>19} {:>7} {:>7} {:>18}  {:<30} mode",
        "receiver",
        "Gb/s",
        "cores",
        "s/GB",
        format!("× {reference}"),
        "best placement"
    );
    for row in rows {
        let ratio = document
            .ratios
            .iter()
            .find(|r| r.mtu == mtu && r.of == row.receiver && r.against == reference)
            .map_or_else(|| "".to_owned(), |r| format!("{:.2}", r.median));
        let Some(rate) = row.bits_per_second.map(table::gigabits) else { continue };
        let note =
            if row.mptcp || !row.receiver.contains("mp") { "" } else { ", FELL BACK TO TCP" };
        let _ = writeln!(
            text,
            "  {:<17} {rate:>19} {:>7} {:>7} {ratio:>18}  {:<30} {}{note}",
            row.receiver,
            table::cpu(row.receiving_cores.map(|cores| cores.median)),
            table::cpu(row.cpu_seconds_per_gigabyte),
            row.placement,
            row.mode
        );
    }
}
