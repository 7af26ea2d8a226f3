//! Rows from top to bottom, each drawn from zero to the right: what plots of bars have in common.

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::{Colour, WIDTH, fitted, room, short, svg, text, tick};
use crate::error::Result;

pub(super) type Chart<'a, 'b> =
    ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Failure = DrawingAreaErrorKind<std::io::Error>;

/// Where a row that was drawn ends, and the number that stands there.
pub(super) struct Drawn {
    pub(super) end: f64,
    pub(super) number: f64,
}

const BELOW: u32 = 46;

/// The least that the axis spans. Anything measured is more.
const LEAST: f64 = 1e-6;

/// Draws a row of `height` pixels for each label; row `n` is `draw`n between `n` and `n + 1` down and 0
/// and `most` across. `beyond` is the space that numbers take, as a part of the width; `unit` names the
/// axis.
pub(super) fn across(
    labels: &[&str],
    height: u32,
    most: f64,
    beyond: f64,
    unit: &str,
    draw: impl Fn(&mut Chart<'_, '_>, usize) -> std::result::Result<Drawn, Failure>,
) -> Result<String> {
    let left = room(labels.iter().copied()).min(WIDTH / 2);
    let most = if most > LEAST { most } else { 1.0 };
    svg((WIDTH, labels.len() as u32 * height + BELOW + 8), |area| {
        let mut chart = ChartBuilder::on(area)
            .margin_top(4)
            .margin_right(8)
            .set_label_area_size(LabelAreaPosition::Left, left)
            .set_label_area_size(LabelAreaPosition::Bottom, BELOW)
            .build_cartesian_2d(0.0..most * (1.0 + beyond), labels.len() as f64..0.0)?;
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
        let write = |what: &str, at: (i32, i32), across: HPos| {
            let style = text(Colour::Ink, across, VPos::Center);
            area.draw(&Text::new(what.to_owned(), at, style))
        };
        for (row, label) in labels.iter().enumerate() {
            let Drawn { end, number } = draw(&mut chart, row)?;
            let middle = row as f64 + 0.5;
            let (x, y) = chart.backend_coord(&(end, middle));
            write(&short(number), (x + 7, y), HPos::Left)?;
            let (x, y) = chart.backend_coord(&(0.0, middle));
            write(&fitted(label, left), (x - 8, y), HPos::Right)?;
        }
        Ok(())
    })
}
