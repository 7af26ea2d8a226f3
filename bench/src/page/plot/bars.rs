//! Bars that lie, one below the other: names stay readable however many there are.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::{Colour, Drawn, WIDTH, room, short, svg, text, tick};
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
const BELOW: u32 = 46;

/// Draws bars from zero; `unit` names the axis.
pub(in crate::page) fn bars(bars: &[Bar], unit: &str) -> Result<String> {
    let height = bars.len() as u32 * ROW + BELOW + 8;
    let left = room(bars.iter().map(|bar| bar.label.as_str())).min(WIDTH / 2);
    let most = bars.iter().map(|bar| bar.value.max).fold(0.0, f64::max);
    let most = if most > 0.0 { most } else { 1.0 };
    svg(height, |area| {
        // Beyond the longest whisker there is room for its number.
        let mut chart = ChartBuilder::on(area)
            .margin_top(4)
            .margin_right(8)
            .set_label_area_size(LabelAreaPosition::Left, left)
            .set_label_area_size(LabelAreaPosition::Bottom, BELOW)
            .build_cartesian_2d(0.0..most * 1.16, bars.len() as f64..0.0)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .axis_style(Colour::Ink.marker())
            .bold_line_style(Colour::Faint.marker().mix(0.4))
            .light_line_style(TRANSPARENT)
            .x_labels(8)
            .x_label_formatter(&|value| tick(*value))
            .x_desc(unit)
            .label_style(text(Colour::Ink, HPos::Center, VPos::Top))
            .axis_desc_style(text(Colour::Ink, HPos::Center, VPos::Top))
            .draw()?;
        for (row, bar) in bars.iter().enumerate() {
            let top = row as f64;
            let Spread { median, min, max } = bar.value;
            let fill = Colour::Series(bar.series).marker().filled();
            let corners = [(0.0, top + 0.18), (median, top + 0.82)];
            chart.draw_series([Rectangle::new(corners, fill)])?;
            let line = Colour::Ink.marker().stroke_width(1);
            let middle = top + 0.5;
            let strokes = [
                [(min, middle), (max, middle)],
                [(min, top + 0.36), (min, top + 0.64)],
                [(max, top + 0.36), (max, top + 0.64)],
            ];
            chart.draw_series(strokes.map(|stroke| PathElement::new(stroke, line)))?;
            let (x, y) = chart.backend_coord(&(max.max(median), middle));
            write(area, &short(median), (x + 7, y), HPos::Left)?;
            let (x, y) = chart.backend_coord(&(0.0, middle));
            write(area, &bar.label, (x - 8, y), HPos::Right)?;
        }
        Ok(())
    })
}

fn write(area: &super::Area<'_>, what: &str, at: (i32, i32), across: HPos) -> Drawn {
    area.draw(&Text::new(what.to_owned(), at, text(Colour::Ink, across, VPos::Center)))
}
