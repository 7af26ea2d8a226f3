//! The document that every benchmark writes with `--json`, and that `report` reads.
//!
//! [`Document`] is the whole, [`Row`] one line of its `results`: a receiver under one set of
//! conditions, with a [`Round`] for each time that it was measured; [`Ratio`] sets two rows against
//! each other. Field names are stable; a change of their meaning raises [`SCHEMA`], a new field does
//! not. Rates are in bits a second of payload, times in seconds, sizes in bytes; a gigabyte is 10^9
//! bytes.
//!
//! `docs/benchmark-json.md` describes every field; a test holds it to that.
//!
//! Fields that do not apply are left out of the JSON text and are `None` or empty when it is read, so
//! that documents of other benchmarks and of earlier versions can be read by the same types. A row
//! is made from those fields that apply: `Row { benchmark: "...".into(), ..Row::default() }`.

mod front_end;
mod latency;
mod pipeline;
mod placed;
mod ratio;
mod row;
mod sane;
mod target;

use std::io::{Read, Write};

use serde::{Deserialize, Serialize};

pub use front_end::FrontEndRow;
pub use latency::{Latency, Percentiles};
pub use pipeline::{Clock, Limits, Pipeline, Stages};
pub use placed::{Placed, Recommendation};
pub use ratio::Ratio;
pub use row::{
    AboveFrontEnd, Busy, ContextSwitches, CpuSeconds, NOISY_SPREAD, OneCpu, Retransmissions, Round,
    Row, Timeline, Tried,
};
pub use target::Target;

use crate::environment::Environment;
use crate::error::{Context, Error, Result};

/// The number that [`Document::schema`] has.
pub const SCHEMA: u32 = 1;

/// The whole document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// Raised when a field's meaning changes: [`SCHEMA`].
    pub schema: u32,
    /// Where it was measured.
    pub environment: Environment,
    /// Whether a signal ended the run: what had been measured by then is in the document.
    #[serde(default)]
    pub interrupted: bool,
    /// One for each receiver, MTU, number of subflows and placement.
    pub results: Vec<Row>,
    /// Receivers against each other.
    #[serde(default)]
    pub ratios: Vec<Ratio>,
    /// What the front ends cost by themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub front_ends: Vec<FrontEndRow>,
    /// What was asked for and not measured, and why.
    #[serde(default)]
    pub not_run: Vec<NotRun>,
    /// Which placement to take, of the benchmark that compares placements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recommendations: Vec<Recommendation>,
    /// Whether the bytes were right.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exactness: Vec<Exactness>,
    /// What an engine without traffic costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Idle>,
    /// What a reader of the figures should know.
    #[serde(default)]
    pub remarks: Vec<String>,
}

/// Something that was asked for and not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotRun {
    /// What: the receiver and its conditions, for instance `kernel-tcp, MTU 1500, 2 subflows`.
    pub what: String,
    /// Why not.
    pub reason: String,
}

/// One transfer that was compared byte for byte, by SHA-256.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Idle {
    /// How long it was watched.
    pub seconds: f64,
    /// The share of one CPU that its process used.
    pub cpu_fraction: f64,
}

impl Document {
    /// An empty one about this machine.
    #[must_use]
    pub fn new() -> Self {
        Self {
            schema: SCHEMA,
            environment: Environment::of_this_machine(),
            interrupted: false,
            results: Vec::new(),
            ratios: Vec::new(),
            front_ends: Vec::new(),
            not_run: Vec::new(),
            recommendations: Vec::new(),
            exactness: Vec::new(),
            idle: None,
            remarks: Vec::new(),
        }
    }

    /// Reads one; a byte order mark before it is none of it.
    ///
    /// # Errors
    ///
    /// If it cannot be read, is larger than 64 MiB, is no such document, has another schema, or has
    /// figures that no benchmark measures.
    pub fn read(from: impl Read) -> Result<Self> {
        /// Some hundred times a large one.
        const LARGEST: usize = 64 << 20;
        /// What some editors put before a text.
        const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
        let none = |why: &dyn std::fmt::Display| {
            Error::Failed(format!("not a document of a benchmark: {why}"))
        };
        let mut text = Vec::new();
        let most = LARGEST as u64 + 1;
        from.take(most).read_to_end(&mut text).context(|| "cannot read the document")?;
        if text.len() > LARGEST {
            return Err(none(&"it is larger than 64 MiB"));
        }
        let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&text);
        let value: serde_json::Value = serde_json::from_slice(text).map_err(|why| none(&why))?;
        let schema = value.get("schema").and_then(serde_json::Value::as_u64);
        match schema.ok_or_else(|| none(&"it has no `schema`, which is a number"))? {
            schema if schema == u64::from(SCHEMA) => {}
            schema if schema > u64::from(SCHEMA) => {
                return Err(Error::Failed(format!(
                    "the document has schema {schema}, which is newer than {SCHEMA}: use the version \
                     of mpxdp-bench that wrote it"
                )));
            }
            schema => return Err(none(&format!("there is no schema {schema}; {SCHEMA} is"))),
        }
        if let Some(found) = sane::monstrous(&value) {
            return Err(Error::Failed(found));
        }
        // From the text, for the sake of errors that have a line.
        let document: Self = serde_json::from_slice(text).map_err(|why| none(&why))?;
        match sane::contradiction(&document) {
            Some(found) => Err(Error::Failed(found)),
            None => Ok(document),
        }
    }
}

impl Default for Document {
    fn default() -> Self {
        Self::new()
    }
}

/// Writes a document, or a smaller report, as JSON text.
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

#[cfg(test)]
mod tests;
