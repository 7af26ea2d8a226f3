//! One receiver against another.

use serde::{Deserialize, Serialize};

/// One receiver against another, in each round and over all of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Bytes of the link's MTU.
    pub mtu: u32,
    /// Subflows of the connection.
    pub subflows: u32,
    /// `best`: each receiver had its best placement; else the placement that both had.
    pub placement: String,
    /// Whose rate.
    pub of: String,
    /// Divided by whose rate.
    pub against: String,
    /// Subflows of that one, if they are not as many: several are compared with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against_subflows: Option<u32>,
    /// The median of the rounds' ratios.
    pub median: f64,
    /// The least of them.
    pub min: f64,
    /// The greatest of them.
    pub max: f64,
    /// Whether the rounds of either differ so much that the median says little.
    #[serde(default)]
    pub noisy: bool,
}
