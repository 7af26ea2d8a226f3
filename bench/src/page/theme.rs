//! Colours that follow the reader's colour scheme.
//!
//! `plotters` writes fixed colours into its SVG. A plot is therefore drawn in marker colours, which
//! [`themed`] replaces by CSS variables; the page's style sheet gives those a value for each scheme.

use plotters::style::RGBColor;

/// The colours of a plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colour {
    /// Text and lines.
    Ink,
    /// What stands back: whiskers, frames.
    Faint,
    /// Cells of a heat map.
    Heat,
    /// One of the series.
    Series(usize),
}

/// How many series have a colour of their own; what comes after starts again.
pub(super) const SERIES: usize = 8;

impl Colour {
    /// The marker: red is 1, which no real colour of ours has.
    pub(super) const fn marker(self) -> RGBColor {
        RGBColor(1, self.number(), 0)
    }

    const fn number(self) -> u8 {
        match self {
            Self::Ink => 0,
            Self::Faint => 1,
            Self::Heat => 2,
            Self::Series(n) => 16 + (n % SERIES) as u8,
        }
    }

    /// The CSS variable that stands for it.
    pub(super) fn variable(self) -> String {
        match self {
            Self::Ink => "--ink".into(),
            Self::Faint => "--faint".into(),
            Self::Heat => "--heat".into(),
            Self::Series(n) => format!("--series-{}", n % SERIES),
        }
    }
}

/// An SVG drawn in markers, with variables in their place.
pub(super) fn themed(svg: &str) -> String {
    let all = [Colour::Ink, Colour::Faint, Colour::Heat].into_iter();
    all.chain((0..SERIES).map(Colour::Series)).fold(svg.to_owned(), |svg, colour| {
        let RGBColor(red, green, blue) = colour.marker();
        let marker = format!("\"#{red:02X}{green:02X}{blue:02X}\"");
        svg.replace(&marker, &format!("\"var({})\"", colour.variable()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_colours_share_a_marker_and_each_becomes_its_variable() {
        let all = [Colour::Ink, Colour::Faint, Colour::Heat].into_iter();
        let all: Vec<Colour> = all.chain((0..SERIES).map(Colour::Series)).collect();
        for (n, colour) in all.iter().enumerate() {
            assert!(all[..n].iter().all(|other| other.marker() != colour.marker()));
            let RGBColor(red, green, blue) = colour.marker();
            let svg = format!("<rect fill=\"#{red:02X}{green:02X}{blue:02X}\"/>");
            let wanted = format!("<rect fill=\"var({})\"/>", colour.variable());
            assert_eq!(themed(&svg), wanted);
        }
    }
}
