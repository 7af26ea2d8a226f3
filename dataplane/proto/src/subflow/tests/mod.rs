//! Packet traces.
