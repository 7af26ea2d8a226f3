//! Bars that lie, one below the other: names stay readable however many there are.

use plotters::prelude::*;

use super::Colour;
use super::across::{Drawn, across};
use crate::error::Result;
use crate::measure::Spread;

/// One measured thing.
#[derive(Clone, Debug)]
pub(in crate::page) struct Bar {
    /// Its name, at the left.
    pub(in crate::page) label: String,
    /// Which series it belongs to.
    pub(in crate::page) series: usize,
    /// The bar's length and its whisker.
    pub(in crate::page) value: Spread,
}

const ROW: u32 = 30;

/// Draws bars from zero; `unit` names the axis.
pub(in crate::page) fn bars(bars: &[Bar], unit: &str) -> Result<String> {
    let labels: Vec<&str> = bars.iter().map(|bar| bar.label.as_str()).collect();
    let most = bars.iter().map(|bar| bar.value.max).fold(0.0, f64::max);
    // Beyond the longest whisker there is room for its number.
    across(&labels, ROW, most, 0.16, unit, |chart, row| {
        let (top, bar) = (row as f64, &bars[row]);
        let Spread { median, min, max } = bar.value;
        let fill = Colour::Series(bar.series).marker().filled();
        chart.draw_series([Rectangle::new([(0.0, top + 0.18), (median, top + 0.82)], fill)])?;
        let line = Colour::Ink.marker().stroke_width(1);
        let middle = top + 0.5;
        let strokes = [
            [(min, middle), (max, middle)],
            [(min, top + 0.36), (min, top + 0.64)],
            [(max, top + 0.36), (max, top + 0.64)],
        ];
        chart.draw_series(strokes.map(|stroke| PathElement::new(stroke, line)))?;
        Ok(Drawn { end: max.max(median), number: median })
    })
}
