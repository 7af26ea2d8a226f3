//! What a guest tells the host over its second serial line: one JSON document a line.

use serde::{Deserialize, Serialize};

/// A line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// The guest is up.
    Ready {
        /// The release of its kernel.
        kernel: String,
    },
    /// A check begins.
    Start {
        /// Its place in the guest's list.
        check: usize,
    },
    /// A check ended.
    Done {
        /// Its place in the guest's list.
        check: usize,
        /// How.
        verdict: Verdict,
    },
    /// All checks ended; the guest powers off.
    End,
    /// The guest cannot go on.
    Fatal {
        /// Why.
        why: String,
    },
}

/// How a check ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// As it should. The note says what was seen, where that is worth a word.
    Passed(String),
    /// Otherwise.
    Failed(String),
    /// It could not be run.
    NotRun(String),
}
