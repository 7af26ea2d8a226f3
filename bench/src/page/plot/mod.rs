//! The plots of the page, each from plain numbers to an SVG.

mod across;
mod bars;
mod heat;
mod lines;
mod stacks;

pub(super) use bars::{Bar, bars};
pub(super) use heat::{Cell, heat};
pub(super) use lines::{Axis, Line, lines};
pub(super) use stacks::{Stack, stacks};

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::theme::{Colour, themed};
use crate::error::{Error, Result};

/// Width of every plot, in CSS pixels.
const WIDTH: u32 = 760;
/// Size of the text.
const TEXT: f64 = 13.0;
/// Width of a character at that size, generously.
const CHARACTER: f64 = 7.2;

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = std::result::Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Draws into a string.
fn svg(height: u32, draw: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        draw(&area)
            .and_then(|()| area.present())
            .map_err(|error| Error::Failed(format!("cannot draw a plot: {error}")))?;
    }
    Ok(themed(&text))
}

fn text(colour: Colour, across: HPos, down: VPos) -> TextStyle<'static> {
    let font: FontDesc<'static> = ("sans-serif", TEXT).into();
    TextStyle { font, color: colour.marker().to_backend_color(), pos: Pos::new(across, down) }
}

/// The space that the longest of some labels takes.
fn room<'a>(labels: impl IntoIterator<Item = &'a str>) -> u32 {
    let most = labels.into_iter().map(|label| label.chars().count()).max().unwrap_or(0);
    (most as f64 * CHARACTER) as u32 + 14
}

/// A number with three digits that count.
pub(super) fn short(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude >= 100.0 || value == 0.0 => format!("{value:.0}"),
        magnitude if magnitude >= 10.0 => format!("{value:.1}"),
        magnitude if magnitude >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A label of an axis: no more digits than it needs.
fn tick(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_count_and_ticks_no_more_than_needed() {
        assert_eq!(
            [0.0, 0.1234, 1.234, 19.46, 1234.5].map(short),
            ["0", "0.123", "1.23", "19.5", "1234"]
        );
        assert_eq!([0.0, 0.5, 20.0, 0.1 + 0.2].map(tick), ["0", "0.5", "20", "0.3"]);
    }
}
