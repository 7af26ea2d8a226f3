//! Measure.
