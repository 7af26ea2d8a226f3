//! Where a receiver runs, and what it costs.

pub mod counters;
pub mod cpu;
pub mod napi;
mod statistics;
pub mod tasks;

pub use statistics::Spread;
