//! What a result must say about the interfaces it came over.

use std::collections::BTreeMap;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// An interface, as `ethtool` and `/sys` show it. What the driver does not tell is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// Its name.
    pub name: String,
    /// The driver, `veth` in the lab.
    pub driver: String,
    /// The driver's version and the firmware's, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// Bytes of its MTU.
    pub mtu: u32,
    /// Speed in megabits a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_megabits: Option<u32>,
    /// The NUMA node it is on, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// Receive queues.
    pub receive_queues: u32,
    /// Transmit queues.
    pub transmit_queues: u32,
    /// Descriptors of a receive ring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_ring: Option<u32>,
    /// Descriptors of a transmit ring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transmit_ring: Option<u32>,
    /// The offloads that are on, by ethtool's names.
    pub offloads: Vec<String>,
    /// Whether its receive processing runs in threads of the kernel.
    pub threaded: bool,
    /// Nanoseconds after which GRO gives on what it holds.
    pub gro_flush_timeout: u64,
    /// How often interrupts stay off after an empty poll.
    pub napi_defer_hard_irqs: u64,
}

/// What is asked of `/sys/class/net/INTERFACE`, and of its queues.
const SCRIPT: &str = r#"cd "/sys/class/net/$1" || exit 1
for file in mtu speed device/numa_node threaded gro_flush_timeout napi_defer_hard_irqs; do
    value=$(cat "$file" 2>/dev/null) && echo "$file=$value"
done
set -- queues/rx-*; echo "rx=$#"
set -- queues/tx-*; echo "tx=$#""#;

impl Nic {
    /// Looks at an interface. `command` makes commands that run in its namespace, with a `/sys` that
    /// shows it.
    #[must_use]
    pub fn read(name: &str, command: impl Fn(&str) -> Command) -> Self {
        let run = |program: &str, arguments: &[&str]| {
            let output = command(program).args(arguments).output();
            output.map_or_else(
                |_| String::new(),
                |output| String::from_utf8_lossy(&output.stdout).into_owned(),
            )
        };
        let sys = run("sh", &["-c", SCRIPT, "sh", name]);
        let sys: BTreeMap<&str, &str> =
            sys.lines().filter_map(|line| line.split_once('=')).collect();
        let number = |key: &str| sys.get(key).and_then(|text| text.trim().parse::<u64>().ok());
        let small = |key: &str| number(key).and_then(|number| u32::try_from(number).ok());
        let driver = run("ethtool", &["-i", name]);
        let rings = run("ethtool", &["-g", name]);
        Self {
            name: name.to_owned(),
            driver: field(&driver, "driver").unwrap_or_default(),
            firmware: field(&driver, "firmware-version"),
            mtu: small("mtu").unwrap_or(0),
            speed_megabits: small("speed"),
            numa_node: small("device/numa_node"),
            receive_queues: small("rx").unwrap_or(0),
            transmit_queues: small("tx").unwrap_or(0),
            receive_ring: current_ring(&rings, "RX"),
            transmit_ring: current_ring(&rings, "TX"),
            offloads: offloads(&run("ethtool", &["-k", name])),
            threaded: number("threaded").unwrap_or(0) > 0,
            gro_flush_timeout: number("gro_flush_timeout").unwrap_or(0),
            napi_defer_hard_irqs: number("napi_defer_hard_irqs").unwrap_or(0),
        }
    }
}

/// The value of a line `name: value`; none if it is empty.
fn field(text: &str, name: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.trim();
    (!value.is_empty() && value != "N/A").then(|| value.to_owned())
}

/// `ethtool -g` tells the most first, then what is set.
fn current_ring(text: &str, name: &str) -> Option<u32> {
    let (_, current) = text.split_once("Current hardware settings:")?;
    field(current, name)?.parse().ok()
}

fn offloads(text: &str) -> Vec<String> {
    let on = text.lines().filter_map(|line| {
        let (name, value) = line.trim().split_once(':')?;
        (value.trim() == "on" || value.trim().starts_with("on ")).then(|| name.to_owned())
    });
    on.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ethtools_words_are_understood() {
        let text = "driver: veth\nversion: 1.0\nfirmware-version: \n";
        assert_eq!(field(text, "driver").as_deref(), Some("veth"));
        assert_eq!(field(text, "firmware-version"), None);
        let text = "Pre-set maximums:\nRX:\t\t8192\nCurrent hardware settings:\nRX:\t\t1024\n\
            RX Mini:\tn/a\nTX:\t\t512\n";
        assert_eq!((current_ring(text, "RX"), current_ring(text, "TX")), (Some(1024), Some(512)));
        assert_eq!(current_ring("", "RX"), None);
        let text = "Features for x:\nrx-checksumming: on\n\ttx-gso: off\n\tgro: on [fixed]\n";
        assert_eq!(offloads(text), ["rx-checksumming", "gro"]);
    }

    #[test]
    fn the_loopback_interface_has_an_mtu() {
        let nic = Nic::read("lo", |program| Command::new(program));
        assert!(nic.mtu > 0, "{nic:?}");
        assert_eq!(nic.receive_queues, 1, "{nic:?}");
    }

    #[test]
    fn an_interface_that_is_not_there_has_nothing() {
        let expected = Nic { name: "nonesuch0".into(), ..Nic::default() };
        assert_eq!(Nic::read("nonesuch0", |program| Command::new(program)), expected);
    }
}
