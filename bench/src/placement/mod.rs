//! Where a receiver should run: all placements of its stages that differ, measured side by side.

pub mod bottleneck;
pub mod class;
pub mod config;
pub mod nic;
pub mod realise;
pub mod recommend;
