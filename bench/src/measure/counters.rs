//! What the kernel counts in a network namespace, and what of it was lost.

use std::collections::BTreeMap;
use std::fs;

use crate::error::{Context, Result};

/// Counters of one network namespace, by name: `Tcp:InErrs`, `TcpExt:TCPRcvQDrop`,
/// `MPTcpExt:MPJoinAckRx`, and of interfaces `rcv0:rx_dropped` and the like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    protocols: BTreeMap<String, u64>,
    /// What interfaces lost.
    interfaces: BTreeMap<String, u64>,
    /// What interfaces received, by their names.
    packets: BTreeMap<String, u64>,
}

impl Counters {
    /// Reads the counters of the namespace that the calling thread is in.
    ///
    /// # Errors
    ///
    /// If `/proc` cannot be read.
    pub fn read() -> Result<Self> {
        // Not /proc/net, which is the main thread's.
        let read = |file: &str| {
            let path = format!("/proc/thread-self/net/{file}");
            fs::read_to_string(&path).context(|| format!("cannot read {path}"))
        };
        let mut protocols = parse_protocols(&read("snmp")?);
        protocols.extend(parse_protocols(&read("netstat")?));
        let (interfaces, packets) = parse_interfaces(&read("dev")?);
        Ok(Self { protocols, interfaces, packets })
    }

    /// Packets that some interfaces received until a later moment.
    #[must_use]
    pub fn packets_until(&self, later: &Self, interfaces: &[String]) -> u64 {
        let of = |counters: &Self, name| counters.packets.get(name).copied().unwrap_or(0);
        interfaces.iter().map(|name| of(later, name).saturating_sub(of(self, name))).sum()
    }

    /// These, and what another namespace's interfaces lost.
    #[must_use]
    pub fn and_losses_of(mut self, other: Self) -> Self {
        self.interfaces.extend(other.interfaces);
        self
    }

    /// By how much a protocol's counter grew until a later moment; 0 if the kernel has none such.
    #[must_use]
    pub fn grown(&self, name: &str, later: &Self) -> u64 {
        let of = |counters: &Self| counters.protocols.get(name).copied().unwrap_or(0);
        of(later).saturating_sub(of(self))
    }

    /// What was lost until a later moment, by name: the counters of interfaces, and those of protocols
    /// whose names say that they count drops or errors. Only what is not 0.
    #[must_use]
    pub fn lost_until(&self, later: &Self) -> BTreeMap<String, u64> {
        let lost = later.protocols.keys().filter(|name| counts_losses(name));
        let protocols = lost.map(|name| (name.clone(), self.grown(name, later)));
        let interfaces = later.interfaces.iter().map(|(name, &after)| {
            let before = self.interfaces.get(name).copied().unwrap_or(0);
            (name.clone(), after.saturating_sub(before))
        });
        protocols.chain(interfaces).filter(|&(_, count)| count > 0).collect()
    }
}

fn counts_losses(name: &str) -> bool {
    let (_, name) = name.split_once(':').unwrap_or(("", name));
    ["Drop", "Pruned", "Discards"].iter().any(|part| name.contains(part))
        || ["InErrs", "InCsumErrors"].contains(&name)
}

/// Pairs of lines, one with names and one with values, each after the protocol's name.
fn parse_protocols(text: &str) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    let lines: Vec<&str> = text.lines().collect();
    for pair in lines.chunks_exact(2) {
        let (names, values) = (pair[0].split_ascii_whitespace(), pair[1].split_ascii_whitespace());
        let mut both = names.zip(values);
        let Some((protocol, _)) = both.next() else { continue };
        for (name, value) in both {
            // Values that are no counter are negative.
            if let Ok(value) = value.parse() {
                all.insert(format!("{protocol}{name}"), value);
            }
        }
    }
    all
}

/// A line for each interface: eight columns of receiving, eight of sending.
fn parse_interfaces(text: &str) -> (BTreeMap<String, u64>, BTreeMap<String, u64>) {
    let (mut all, mut packets) = (BTreeMap::new(), BTreeMap::new());
    for line in text.lines() {
        let Some((name, columns)) = line.split_once(':') else { continue };
        let columns: Vec<u64> =
            columns.split_ascii_whitespace().map_while(|column| column.parse().ok()).collect();
        let of = [("rx_errors", 2), ("rx_dropped", 3), ("tx_errors", 10), ("tx_dropped", 11)];
        for (what, column) in of {
            if let Some(&value) = columns.get(column) {
                all.insert(format!("{}:{what}", name.trim()), value);
            }
        }
        if let Some(&received) = columns.get(1) {
            packets.insert(name.trim().to_owned(), received);
        }
    }
    (all, packets)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "Tcp: RtoMin MaxConn InSegs InErrs InCsumErrors\nTcp: 200 -1 7 2 1\n\
        TcpExt: TCPRcvQDrop OfoPruned DelayedACKs\nTcpExt: 5 0 9\n";
    const AFTER: &str = "Tcp: RtoMin MaxConn InSegs InErrs InCsumErrors\nTcp: 200 -1 9 2 4\n\
        TcpExt: TCPRcvQDrop OfoPruned DelayedACKs\nTcpExt: 6 0 19\n";

    fn counters(protocols: &str, dropped: u64) -> Counters {
        let interfaces = format!(
            "Inter-|   Receive\n face |bytes packets errs drop\n  \
            rcv0: 1 2 3 {dropped} 5 6 7 8 9 10 11 12 13 14 15 16\n"
        );
        let (interfaces, packets) = parse_interfaces(&interfaces);
        Counters { protocols: parse_protocols(protocols), interfaces, packets }
    }

    #[test]
    fn received_packets_are_of_the_interfaces_asked_for() {
        let (before, after) = (counters("", 0), counters("", 0));
        let after = Counters { packets: [("rcv0".into(), 12), ("lo".into(), 9)].into(), ..after };
        assert_eq!(before.packets_until(&after, &["rcv0".to_owned()]), 10);
    }

    #[test]
    fn interfaces_have_four_of_them() {
        let expected = [("rx_errors", 3), ("rx_dropped", 4), ("tx_errors", 11), ("tx_dropped", 12)];
        let expected = expected.map(|(name, n)| (format!("rcv0:{name}"), n)).into();
        assert_eq!(counters("", 4).interfaces, expected);
    }

    #[test]
    fn only_losses_that_occurred_are_told() {
        let (before, after) = (counters(BEFORE, 4), counters(AFTER, 6));
        let expected = [("Tcp:InCsumErrors", 3), ("TcpExt:TCPRcvQDrop", 1), ("rcv0:rx_dropped", 2)];
        let expected = expected.map(|(name, n)| (name.to_owned(), n)).into();
        assert_eq!(before.lost_until(&after), expected);
        assert_eq!(before.grown("TcpExt:DelayedACKs", &after), 10);
        assert_eq!(before.grown("MPTcpExt:MPJoinAckRx", &after), 0);
    }

    #[test]
    fn this_namespace_has_counters() {
        let counters = Counters::read().expect("/proc");
        assert!(counters.protocols.contains_key("Tcp:InErrs"), "{counters:?}");
        assert!(counters.interfaces.contains_key("lo:rx_dropped"), "{counters:?}");
    }
}
