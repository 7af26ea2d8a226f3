//! Bars of parts, one after the other.

use plotters::prelude::*;

use super::Colour;
use super::across::{Drawn, across};
use crate::error::Result;

/// One bar.
#[derive(Clone, Debug)]
pub(in crate::page) struct Stack {
    /// Its name, at the left.
    pub(in crate::page) label: String,
    /// The parts' lengths; each takes the colour of its number.
    pub(in crate::page) parts: Vec<f64>,
}

const ROW: u32 = 26;

/// Draws bars from zero; `unit` names the axis.
pub(in crate::page) fn stacks(stacks: &[Stack], unit: &str) -> Result<String> {
    let labels: Vec<&str> = stacks.iter().map(|stack| stack.label.as_str()).collect();
    let sum = |stack: &Stack| stack.parts.iter().sum::<f64>();
    let most = stacks.iter().map(sum).fold(0.0, f64::max);
    across(&labels, ROW, most, 0.1, unit, |chart, row| {
        let top = row as f64;
        let mut from = 0.0;
        for (part, length) in stacks[row].parts.iter().enumerate() {
            let corners = [(from, top + 0.16), (from + length, top + 0.84)];
            let fill = Colour::Series(part).marker().filled();
            chart.draw_series([Rectangle::new(corners, fill)])?;
            from += length;
        }
        Ok(Drawn { end: from, number: from })
    })
}
