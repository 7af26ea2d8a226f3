//! What is measured: the cases, and for how long.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::peer::MAX_CONNECTIONS;
use crate::{Error, Result, options};

/// The most octets of payload: with 80 octets of headers, those of a packet of 9028. 8948 are a
/// packet of 9000 with timestamps and no mapping, which is what plain TCP sends.
const MAX_PAYLOAD: u32 = 8960;

/// Octets of payload of a packet.
pub const PAYLOAD: RangeInclusive<u32> = 1..=MAX_PAYLOAD;
/// Connections at once.
pub const CONNECTIONS: RangeInclusive<u32> = 1..=MAX_CONNECTIONS;
/// Of 100 packets, so many may be late.
pub const REORDER: RangeInclusive<f64> = 0.0..=50.0;
/// Seconds of a measurement; 0 are none.
pub const SECONDS: RangeInclusive<f64> = 0.0..=60.0;

/// From so many connections on a ring has [`SMALL_RING`] bytes.
const MANY: u32 = 64;
/// The ring of one of many connections: the smallest that there is.
const SMALL_RING: usize = 256 << 10;
/// The ring of one of few: a burst and the packets that are late fit.
const LARGE_RING: usize = 1 << 20;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Octets of payload of a packet.
    pub payloads: Vec<u32>,
    /// Subflows of a connection.
    pub subflows: Vec<u32>,
    /// Connections; several have one subflow each.
    pub connections: Vec<u32>,
    /// Of 100 packets, so many are late.
    pub reorder: Vec<f64>,
    /// How much each measurement takes.
    pub amount: Amount,
    /// How often each is repeated.
    pub rounds: usize,
    /// The CPU to run on.
    pub cpu: Option<usize>,
}

/// How much a measurement takes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Amount {
    /// So much time, of what is measured; making the packets takes some times as long.
    Time(Duration),
    /// So many packets, rounded up to whole blocks.
    Packets(u64),
}

/// One case.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Case {
    /// Octets of payload of a packet.
    pub payload: u32,
    /// Subflows of each connection; packets take them in turn.
    pub subflows: u32,
    /// Connections; packets take them in turn.
    pub connections: u32,
    /// Of 100 packets, so many come 1 to 16 packets of their connection late.
    pub reorder_percent: f64,
    /// Bytes of each connection's receive ring.
    pub ring_bytes: usize,
}

impl Default for Plan {
    /// Small, usual and large packets; one and eight subflows; one and ten thousand connections;
    /// in order and with 5 % late.
    fn default() -> Self {
        Self {
            payloads: vec![64, 1448, 8948],
            subflows: vec![1, 8],
            connections: vec![1, 10_000],
            reorder: vec![0.0, 5.0],
            amount: Amount::Time(Duration::from_millis(100)),
            rounds: 5,
            cpu: None,
        }
    }
}

impl Plan {
    /// All cases, in the order of a table: several connections have one subflow each.
    ///
    /// # Errors
    ///
    /// A value that cannot be.
    pub fn cases(&self) -> Result<Vec<Case>> {
        let Self { payloads, subflows, connections, reorder, amount, rounds, .. } = self;
        check("--payload", payloads, &PAYLOAD)?;
        options::subflows(subflows)?;
        check("--connections", connections, &CONNECTIONS)?;
        check("--reorder", reorder, &REORDER)?;
        options::rounds(*rounds)?;
        match *amount {
            Amount::Packets(0) => {
                return Err(Error::Usage("--packets 0: measure at least one".into()));
            }
            Amount::Time(time) if time.is_zero() => {
                return Err(Error::Usage("--seconds 0: more than 0".into()));
            }
            Amount::Time(time) => options::within("--seconds", time.as_secs_f64(), SECONDS)?,
            Amount::Packets(_) => {}
        }
        let mut cases = Vec::new();
        for &payload in payloads {
            for &connections in connections {
                for &subflows in subflows {
                    if connections > 1 && subflows > 1 {
                        continue;
                    }
                    for &reorder_percent in reorder {
                        let ring_bytes = if connections >= MANY { SMALL_RING } else { LARGE_RING };
                        cases.push(Case {
                            payload,
                            subflows,
                            connections,
                            reorder_percent,
                            ring_bytes,
                        });
                    }
                }
            }
        }
        if cases.is_empty() {
            return Err(Error::Usage(
                "--connections and --subflows: several connections have one subflow each; add 1 to \
                 one of them"
                    .into(),
            ));
        }
        Ok(cases)
    }
}

/// Values that are possible, each once.
fn check<T: Copy + PartialOrd + Display>(
    option: &str,
    values: &[T],
    range: &RangeInclusive<T>,
) -> Result<()> {
    options::list(option, values)?;
    values.iter().try_for_each(|&value| options::within(option, value, range.clone()))
}

impl Case {
    /// Bytes of memory that measuring it takes, but for a few MiB: its rings.
    #[must_use]
    pub const fn memory(&self) -> u64 {
        self.ring_bytes as u64 * self.connections as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_has_both_ends_of_every_axis() {
        let cases = Plan::default().cases().expect("it is possible");
        assert_eq!(cases.len(), 3 * (2 * 2 + 2));
        assert!(cases.iter().all(|case| case.connections == 1 || case.subflows == 1));
    }

    #[test]
    fn what_cannot_be_is_named_with_its_option() {
        let plan = Plan::default;
        for (plan, named) in [
            (Plan { payloads: vec![0], ..plan() }, "--payload 0"),
            (Plan { payloads: vec![64, 9000], ..plan() }, "--payload 9000"),
            (Plan { subflows: vec![9], ..plan() }, "--subflows 9"),
            (Plan { connections: vec![0], ..plan() }, "--connections 0"),
            (Plan { connections: Vec::new(), ..plan() }, "--connections"),
            (Plan { reorder: vec![f64::NAN], ..plan() }, "--reorder NaN"),
            (Plan { rounds: 0, ..plan() }, "--rounds"),
            (Plan { amount: Amount::Packets(0), ..plan() }, "--packets"),
            (Plan { amount: Amount::Time(Duration::ZERO), ..plan() }, "--seconds"),
            (Plan { connections: vec![7], subflows: vec![8], ..plan() }, "--connections"),
        ] {
            let error = plan.cases().expect_err("it cannot be").to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
