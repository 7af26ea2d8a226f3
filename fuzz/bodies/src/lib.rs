//! What the fuzz targets do with an input.
//!
//! The functions here are plain code for a stable compiler: libFuzzer calls them through the shims
//! in `fuzz/fuzz_targets`, and `tests/corpus.rs` calls them with every input that is kept in
//! `fuzz/corpus`, as part of the ordinary tests. Each takes any bytes and panics if what it tests
//! does not hold. None starts a thread, reads a clock or draws a random number, so an input does
//! the same every time.
//!
//! docs/testing.md says how to run them and what to do with a find.
#![forbid(unsafe_code)]

mod endpoint;
mod options;
mod pcap;
mod range_set;
mod trace;

pub use endpoint::endpoint;
pub use options::options;
pub use pcap::pcap;
pub use range_set::range_set;
pub use trace::{is_traced, show};

/// A target: what it does with an input.
pub type Target = fn(&[u8]);

/// Every target, by its name, which is also that of its corpus.
pub const TARGETS: [(&str, Target); 4] =
    [("endpoint", endpoint), ("options", options), ("range_set", range_set), ("pcap", pcap)];
