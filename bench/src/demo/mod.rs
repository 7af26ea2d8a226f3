//! Side by side.
