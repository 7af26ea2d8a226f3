//! Bars of parts, one after the other.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::{Colour, WIDTH, room, short, svg, text, tick};
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
const BELOW: u32 = 46;

/// Draws bars from zero; `unit` names the axis.
pub(in crate::page) fn stacks(stacks: &[Stack], unit: &str) -> Result<String> {
    let left = room(stacks.iter().map(|stack| stack.label.as_str())).min(WIDTH / 2);
    let sum = |stack: &Stack| stack.parts.iter().sum::<f64>();
    let most = stacks.iter().map(sum).fold(0.0, f64::max);
    let most = if most > 0.0 { most } else { 1.0 };
    svg(stacks.len() as u32 * ROW + BELOW + 8, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin_top(4)
            .margin_right(8)
            .set_label_area_size(LabelAreaPosition::Left, left)
            .set_label_area_size(LabelAreaPosition::Bottom, BELOW)
            .build_cartesian_2d(0.0..most * 1.1, stacks.len() as f64..0.0)?;
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
        for (row, stack) in stacks.iter().enumerate() {
            let top = row as f64;
            let mut from = 0.0;
            for (part, length) in stack.parts.iter().enumerate() {
                let corners = [(from, top + 0.16), (from + length, top + 0.84)];
                let fill = Colour::Series(part).marker().filled();
                chart.draw_series([Rectangle::new(corners, fill)])?;
                from += length;
            }
            let (x, y) = chart.backend_coord(&(from, top + 0.5));
            let style = |across| text(Colour::Ink, across, VPos::Center);
            area.draw(&Text::new(short(from), (x + 7, y), style(HPos::Left)))?;
            let (x, y) = chart.backend_coord(&(0.0, top + 0.5));
            area.draw(&Text::new(stack.label.clone(), (x - 8, y), style(HPos::Right)))?;
        }
        Ok(())
    })
}
