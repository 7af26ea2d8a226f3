//! The document that every benchmark writes with `--json`.
//!
//! Field names are stable. Rates are in bits a second of payload, times in seconds.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::error::{Context, Error, Result};
use crate::measure::Spread;

/// The whole document.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Document {
    /// Where it was measured.
    pub environment: Environment,
    /// One for each receiver, MTU and number of subflows.
    pub results: Vec<Row>,
    /// Receivers against each other.
    pub ratios: Vec<Ratio>,
    /// Whether the bytes were right.
    pub exactness: Vec<Exactness>,
    /// What an engine without traffic costs.
    pub idle: Option<Idle>,
    /// What a reader of the figures should know.
    pub remarks: Vec<String>,
}

/// One receiver, measured several times.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The benchmark, `demo` for instance.
    pub benchmark: String,
    /// `mpxdp`, `kernel-mptcp`, `kernel-tcp`, `kernel-mptcp-xdp` or `kernel-tcp-xdp`.
    pub receiver: String,
    /// Bytes of the link's MTU.
    pub mtu: u32,
    /// Subflows of the connection.
    pub subflows: u32,
    /// Links of the lab.
    pub links: u32,
    /// Where the NIC's processing, the worker and the reader ran: the best of those tried.
    pub placement: String,
    /// How the packets came in.
    pub mode: String,
    /// Whether the connection spoke MPTCP in every round.
    pub mptcp: bool,
    /// Seconds of a round.
    pub seconds: f64,
    /// The number of rounds.
    pub rounds: usize,
    /// Payload, as the sender saw it taken: from connected until the receiver had closed.
    pub bits_per_second: Spread,
    /// CPUs kept busy by the receiving side, softirqs included.
    pub receiving_cores: Spread,
    /// CPU seconds of the receiving side for 10^9 bytes: the median.
    pub cpu_seconds_per_gigabyte: f64,
    /// Every round's rate, in order.
    pub rates: Vec<f64>,
    /// All placements that were tried beforehand, with their rates.
    pub tried: Vec<Tried>,
}

/// A placement that was tried.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tried {
    /// Where the NIC's processing, the worker and the reader ran.
    pub placement: String,
    /// Its rate.
    pub bits_per_second: f64,
}

/// One receiver against another, in each round and over all of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Bytes of the link's MTU.
    pub mtu: u32,
    /// Subflows of the connection.
    pub subflows: u32,
    /// `best`: each receiver had its best placement.
    pub placement: String,
    /// Whose rate.
    pub of: String,
    /// Divided by whose rate.
    pub against: String,
    /// The median of the rounds' ratios.
    pub median: f64,
    /// The least of them.
    pub min: f64,
    /// The greatest of them.
    pub max: f64,
}

/// One transfer that was compared byte for byte, by SHA-256.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Exactness {
    /// Bytes of the link's MTU.
    pub mtu: u32,
    /// Bytes sent.
    pub bytes: u64,
    /// SHA-256 of what was sent.
    pub sent: String,
    /// SHA-256 of the file that was received.
    pub received: String,
    /// Whether they are the same.
    pub exact: bool,
}

/// What an engine costs that listens but has no traffic.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Idle {
    /// How long it was watched.
    pub seconds: f64,
    /// The share of one CPU that its process used.
    pub cpu_fraction: f64,
}

impl Row {
    /// This receiver's rate against another's, round by round.
    #[must_use]
    pub fn against(&self, other: &Self) -> Option<Ratio> {
        let pairs = self.rates.iter().zip(&other.rates).filter(|&(_, &against)| against > 0.0);
        let Spread { median, min, max } = Spread::of(pairs.map(|(of, against)| of / against))?;
        Some(Ratio {
            mtu: self.mtu,
            subflows: self.subflows,
            placement: "best".into(),
            of: self.receiver.clone(),
            against: other.receiver.clone(),
            median,
            min,
            max,
        })
    }
}

/// Where a document goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard output, `-`.
    Stdout,
    /// A file.
    File(PathBuf),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "" => Err("it is empty; write FILE or -".into()),
            "-" => Ok(Self::Stdout),
            path => Ok(Self::File(path.into())),
        }
    }
}

impl Target {
    /// Opens it, before the work that the document is about: a file that cannot be written is better
    /// found first.
    ///
    /// # Errors
    ///
    /// If it cannot be written: wrong usage.
    pub fn open(&self) -> Result<Box<dyn Write>> {
        match self {
            Self::Stdout => Ok(Box::new(io::stdout())),
            Self::File(path) => match File::create(path) {
                Ok(file) => Ok(Box::new(file)),
                Err(error) => Err(Error::Usage(format!("--json {}: {error}", path.display()))),
            },
        }
    }
}

/// Writes a document.
///
/// # Errors
///
/// If that fails.
pub fn write(document: &impl Serialize, to: &mut dyn Write) -> Result<()> {
    let mut text = serde_json::to_string_pretty(document)
        .map_err(|error| Error::failed("cannot write the document", error))?;
    text.push('\n');
    to.write_all(text.as_bytes()).and_then(|()| to.flush()).context(|| "cannot write the document")
}
