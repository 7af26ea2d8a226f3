//! A heat map: a row for each placement, a column for each receiver.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::{Colour, WIDTH, room, short, svg, text};
use crate::error::Result;

/// What was measured at one row and column.
#[derive(Clone, Copy, Debug)]
pub(in crate::page) struct Cell {
    /// The number that is shown.
    pub(in crate::page) value: f64,
    /// From 0, pale, to 1, full.
    pub(in crate::page) heat: f64,
}

const ROW: u32 = 34;
/// Three lines of text.
const HEAD: u32 = 56;

/// Draws `cells[row][column]`; `None` was not measured.
pub(in crate::page) fn heat(
    rows: &[String],
    columns: &[String],
    cells: &[Vec<Option<Cell>>],
) -> Result<String> {
    let left = room(rows.iter().map(String::as_str)).min(WIDTH / 2) as i32;
    let width = (WIDTH as i32 - left - 8) / columns.len().max(1) as i32;
    svg(HEAD + rows.len() as u32 * ROW + 6, |area| {
        let centre = |column: usize| left + width * column as i32 + width / 2;
        let style = text(Colour::Ink, HPos::Center, VPos::Center);
        for (column, name) in columns.iter().enumerate() {
            // A name of several parts takes a line for each.
            let lines: Vec<&str> = name.lines().collect();
            for (line, part) in lines.iter().enumerate() {
                let y = HEAD as i32 - 10 - 16 * (lines.len() - 1 - line) as i32;
                area.draw(&Text::new((*part).to_owned(), (centre(column), y), style.clone()))?;
            }
        }
        for (row, name) in rows.iter().enumerate() {
            let top = HEAD as i32 + (row as u32 * ROW) as i32;
            let middle = top + ROW as i32 / 2;
            let at_left = text(Colour::Ink, HPos::Right, VPos::Center);
            area.draw(&Text::new(name.clone(), (left - 8, middle), at_left))?;
            for (column, cell) in cells[row].iter().enumerate() {
                let x = left + width * column as i32;
                let corners = [(x + 1, top + 1), (x + width - 1, top + ROW as i32 - 1)];
                let Some(Cell { value, heat }) = *cell else {
                    let frame = Colour::Faint.marker().mix(0.5).stroke_width(1);
                    area.draw(&Rectangle::new(corners, frame))?;
                    continue;
                };
                let fill = Colour::Heat.marker().mix(0.08 + 0.92 * heat.clamp(0.0, 1.0));
                area.draw(&Rectangle::new(corners, fill.filled()))?;
                area.draw(&Text::new(short(value), (centre(column), middle), style.clone()))?;
            }
        }
        Ok(())
    })
}
