//! What a relay did.

use std::fmt;

use mpxdp_sim::middlebox::Counters;
use serde::{Deserialize, Serialize};

/// What a relay did until it ended. Field names are stable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// How long it ran.
    pub seconds: f64,
    /// The interface on the left.
    pub left: SideReport,
    /// The interface on the right.
    pub right: SideReport,
    /// The middleboxes, the leftmost first.
    pub boxes: Vec<BoxReport>,
}

/// What went through one interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SideReport {
    /// Frames that arrived.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Those of them whose checksums were left to a NIC: offloads are on where they must be off.
    pub incomplete: u64,
    /// Frames that were sent.
    pub sent: u64,
    /// Frames that the kernel did not take.
    pub refused: u64,
}

/// What one middlebox did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoxReport {
    /// Its description.
    #[serde(rename = "box")]
    pub description: String,
    /// Frames it lost.
    pub dropped: u64,
    /// Frames it made.
    pub added: u64,
    /// Frames it changed, held back or merged into another.
    pub changed: u64,
}

impl Report {
    /// The left and the right interface.
    pub(super) fn sides_mut(&mut self) -> [&mut SideReport; 2] {
        [&mut self.left, &mut self.right]
    }
}

impl From<(&str, Counters)> for BoxReport {
    fn from((description, counters): (&str, Counters)) -> Self {
        let Counters { dropped, added, changed } = counters;
        Self { description: description.to_owned(), dropped, added, changed }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, side) in [("left", self.left), ("right", self.right)] {
            let SideReport { received, incomplete, sent, refused, .. } = side;
            writeln!(f, "{name}: {received} frames received, {sent} sent, {refused} refused")?;
            if incomplete > 0 {
                writeln!(f, "{name}: {incomplete} without checksums: turn tx offloads off there")?;
            }
        }
        for BoxReport { description, dropped, added, changed } in &self.boxes {
            writeln!(f, "{description}: {dropped} lost, {added} added, {changed} changed")?;
        }
        Ok(())
    }
}
