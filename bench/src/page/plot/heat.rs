//! A heat map: a row for each placement, a column for each receiver.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::{Colour, WIDTH, fitted, room, short, svg, text};
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

/// The least width of a column, for a number in it.
const COLUMN: u32 = 48;

/// What was drawn.
#[derive(Clone, Debug)]
pub(in crate::page) struct HeatMap {
    /// The picture.
    pub(in crate::page) svg: String,
    /// Its width, where it is more than that of other plots: its columns' names need the space.
    pub(in crate::page) wide: Option<u32>,
}

/// Draws `cells[row][column]`; `None` was not measured.
pub(in crate::page) fn heat(
    rows: &[String],
    columns: &[String],
    cells: &[Vec<Option<Cell>>],
) -> Result<HeatMap> {
    let space = room(rows.iter().map(String::as_str)).min(WIDTH / 2);
    let count = columns.len().max(1) as u32;
    let column = room(columns.iter().flat_map(|name| name.lines())).clamp(COLUMN, WIDTH / 2);
    let all = WIDTH.max(space + count * column + 8);
    let (left, width) = (space as i32, ((all - space - 8) / count) as i32);
    let height = HEAD + rows.len() as u32 * ROW + 6;
    let svg = svg((all, height), |area| {
        let centre = |column: usize| left + width * column as i32 + width / 2;
        let style = text(Colour::Ink, HPos::Center, VPos::Center);
        for (column, name) in columns.iter().enumerate() {
            // A name of several parts takes a line for each.
            let lines: Vec<&str> = name.lines().collect();
            for (line, part) in lines.iter().enumerate() {
                let y = HEAD as i32 - 10 - 16 * (lines.len() - 1 - line) as i32;
                let part = fitted(part, width as u32).into_owned();
                area.draw(&Text::new(part, (centre(column), y), style.clone()))?;
            }
        }
        for (row, name) in rows.iter().enumerate() {
            let top = HEAD as i32 + (row as u32 * ROW) as i32;
            let middle = top + ROW as i32 / 2;
            let at_left = text(Colour::Ink, HPos::Right, VPos::Center);
            let name = fitted(name, space).into_owned();
            area.draw(&Text::new(name, (left - 8, middle), at_left))?;
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
    })?;
    Ok(HeatMap { svg, wide: (all > WIDTH).then_some(all) })
}
