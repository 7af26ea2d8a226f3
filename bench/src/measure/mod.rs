//! Where a receiver runs, and what it costs.

pub mod cpu;
pub mod napi;
mod statistics;

pub use statistics::Spread;
