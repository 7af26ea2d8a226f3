//! The plots of the page, each from plain numbers to an SVG.

mod across;
mod bars;
mod heat;
mod lines;
mod stacks;

pub(super) use bars::{Bar, bars};
pub(super) use heat::{Cell, HeatMap, heat};
pub(super) use lines::{Axis, Line, lines};
pub(super) use stacks::{Stack, stacks};

use std::borrow::Cow;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::theme::{Colour, themed};
use crate::error::{Error, Result};

/// Width of a plot, in CSS pixels; a heat map may need more.
const WIDTH: u32 = 760;
/// Size of the text.
const TEXT: f64 = 13.0;
/// Width of a character at that size, generously.
const CHARACTER: f64 = 7.2;
/// What is beside a label.
const PADDING: u32 = 14;

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = std::result::Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Draws into a string.
fn svg((width, height): (u32, u32), draw: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (width, height)).into_drawing_area();
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

/// A label that takes no more space than that, in `room`'s reckoning: what is too long loses its middle,
/// as what tells it from others is mostly at its ends.
fn fitted(label: &str, space: u32) -> Cow<'_, str> {
    let most = (f64::from(space.saturating_sub(PADDING)) / CHARACTER) as usize;
    let length = label.chars().count();
    if length <= most {
        return Cow::Borrowed(label);
    }
    let (head, tail) = (most.saturating_sub(1).div_ceil(2), most.saturating_sub(1) / 2);
    let ends = label.chars().take(head).chain(['…']).chain(label.chars().skip(length - tail));
    Cow::Owned(ends.collect())
}

/// The space that the longest of some labels takes.
fn room<'a>(labels: impl IntoIterator<Item = &'a str>) -> u32 {
    let most = labels.into_iter().map(|label| label.chars().count()).max().unwrap_or(0);
    (most as f64 * CHARACTER).ceil() as u32 + PADDING
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
    fn what_is_too_long_for_its_space_keeps_its_ends() {
        let space = room(["0123456789"]);
        for length in 1..60 {
            let label = "x".repeat(length);
            assert_eq!(fitted(&label, room([label.as_str()])), label);
        }
        assert_eq!(fitted("0123456789x", space), "01234…789x");
        assert_eq!(fitted("äöü", room(["ä"])), "…");
        assert_eq!(fitted("x", 0), "…");
    }

    #[test]
    fn numbers_have_three_digits_that_count_and_ticks_no_more_than_needed() {
        assert_eq!(
            [0.0, 0.1234, 1.234, 19.46, 1234.5].map(short),
            ["0", "0.123", "1.23", "19.5", "1234"]
        );
        assert_eq!([0.0, 0.5, 20.0, 0.1 + 0.2].map(tick), ["0", "0.5", "20", "0.3"]);
    }
}
