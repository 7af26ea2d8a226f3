//! What is needed of the report of `mpxdp recv`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::error::{Error, Result};

/// The report.
#[derive(Debug, Deserialize)]
pub(crate) struct RecvReport {
    connections: Vec<Connection>,
    nics: Vec<Nic>,
    ports: Vec<Port>,
    workers: Vec<Worker>,
    /// From listening to the end.
    seconds: f64,
}

#[derive(Debug, Deserialize)]
struct Connection {
    bytes: u64,
    closed: String,
    error: Option<String>,
    subflows: Vec<Subflow>,
}

#[derive(Debug, Deserialize)]
struct Subflow {
    bytes: u64,
}

#[derive(Debug, Deserialize)]
struct Nic {
    name: String,
    mode: String,
    zero_copy: bool,
    counters: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
struct Port {
    nic: String,
    queue: u32,
    statistics: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
struct Worker {
    busy_fraction: f64,
    drops: BTreeMap<String, u64>,
}

impl RecvReport {
    /// Fails unless the one connection had all the bytes.
    pub(crate) fn check(&self, bytes: u64) -> Result<()> {
        match &self.connections[..] {
            [Connection { bytes: got, error: None, .. }] if *got == bytes => Ok(()),
            [Connection { bytes: got, error, closed, .. }] => Err(Error::Failed(format!(
                "mpxdp recv: {got} of {bytes} bytes, closed by {closed}, error {error:?}"
            ))),
            others => {
                Err(Error::Failed(format!("mpxdp recv: {} connections, not one", others.len())))
            }
        }
    }

    /// How the packets came in.
    pub(crate) fn mode(&self) -> String {
        self.nics.first().map_or_else(String::new, |nic| {
            let copy = if self.zero_copy() { "zero copy" } else { "copy" };
            format!("AF_XDP, {}, {copy}", nic.mode)
        })
    }

    /// The seconds in which the workers had something to do, all of them together.
    pub(crate) fn seconds_at_work(&self) -> f64 {
        self.workers.iter().map(|worker| worker.busy_fraction * self.seconds).sum()
    }

    /// Whether none was copied in the kernel.
    pub(crate) fn zero_copy(&self) -> bool {
        !self.nics.is_empty() && self.nics.iter().all(|nic| nic.zero_copy)
    }

    /// The bytes of each subflow of the connections.
    pub(crate) fn subflow_bytes(&self) -> Vec<u64> {
        let subflows = self.connections.iter().flat_map(|connection| &connection.subflows);
        subflows.map(|subflow| subflow.bytes).collect()
    }

    /// What was dropped, by where and why.
    pub(crate) fn drops(&self) -> BTreeMap<String, u64> {
        let mut drops = BTreeMap::new();
        let mut add = |place: String, count: u64| {
            if count > 0 {
                *drops.entry(place).or_default() += count;
            }
        };
        for nic in &self.nics {
            // The other verdicts pass a packet on, to a socket or to the kernel.
            let lost = nic.counters.get("no_socket").copied().unwrap_or(0);
            add(format!("{}:no_socket", nic.name), lost);
        }
        for port in &self.ports {
            // Kicks, and that the kernel found nothing more to send, lose no packet.
            let harmless = |name: &str| name.ends_with("_kicks") || name == "tx_ring_empty_descs";
            for (name, &count) in port.statistics.iter().filter(|(name, _)| !harmless(name)) {
                add(format!("{}/{}:{name}", port.nic, port.queue), count);
            }
        }
        for (reason, &count) in self.workers.iter().flat_map(|worker| &worker.drops) {
            add(format!("worker:{reason}"), count);
        }
        drops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> RecvReport {
        let text = r#"{
            "connections": [{"bytes": 7, "closed": "data_fin", "error": null,
                "subflows": [{"bytes": 4}, {"bytes": 3}]}],
            "nics": [{"name": "a", "mode": "native", "zero_copy": true,
                "counters": {"flow": 9, "no_socket": 2}}],
            "ports": [{"nic": "a", "queue": 1,
                "statistics": {"rx_dropped": 5, "rx_ring_full": 0, "tx_kicks": 3,
                    "tx_ring_empty_descs": 7}}],
            "workers": [{"busy_fraction": 0.5, "drops": {"bad_checksum": 1}},
                {"busy_fraction": 0.25, "drops": {"bad_checksum": 2}}],
            "seconds": 2.0
        }"#;
        serde_json::from_str(text).expect("a report")
    }

    #[test]
    fn drops_have_their_place_and_reason() {
        let expected = [("a/1:rx_dropped", 5), ("a:no_socket", 2), ("worker:bad_checksum", 3)];
        assert_eq!(report().drops(), expected.map(|(name, n)| (name.to_owned(), n)).into());
    }

    #[test]
    fn missing_bytes_are_an_error() {
        assert!(report().check(7).is_ok());
        let error = report().check(8).expect_err("one is missing");
        assert!(error.to_string().contains("7 of 8 bytes"), "{error}");
        assert_eq!(report().mode(), "AF_XDP, native, zero copy");
        assert_eq!(report().subflow_bytes(), [4, 3]);
        assert_eq!(report().seconds_at_work(), 1.5);
    }
}
