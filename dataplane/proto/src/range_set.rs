//! Sets of ranges.
