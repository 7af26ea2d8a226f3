//! Lines over time or over percentiles.

use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::{Colour, Drawn, WIDTH, svg, text, tick};
use crate::error::Result;

/// One line.
#[derive(Clone, Debug)]
pub(in crate::page) struct Line {
    /// Which series it belongs to.
    pub(in crate::page) series: usize,
    /// Whether it is drawn pale: one of several of the same series.
    pub(in crate::page) pale: bool,
    /// From left to right.
    pub(in crate::page) points: Vec<(f64, f64)>,
}

/// What the axes mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::page) enum Axis {
    /// Seconds, and a rate from zero.
    Time,
    /// `1 / (1 - percentile)` and a duration, both logarithmic.
    Percentiles,
}

const HEIGHT: u32 = 320;

/// Draws lines; `x` and `y` name the axes.
pub(in crate::page) fn lines(lines: &[Line], axis: Axis, x: &str, y: &str) -> Result<String> {
    let points = || lines.iter().flat_map(|line| line.points.iter().copied());
    let most = |of: fn((f64, f64)) -> f64| points().map(of).fold(0.0, f64::max);
    let (right, top) = (most(|p| p.0), most(|p| p.1));
    svg((WIDTH, HEIGHT), |area| {
        let mut builder = ChartBuilder::on(area);
        builder
            .margin(10)
            .margin_right(30)
            .set_label_area_size(LabelAreaPosition::Left, 76)
            .set_label_area_size(LabelAreaPosition::Bottom, 46);
        match axis {
            Axis::Time => {
                let (across, up) = (0.0..right.max(0.1), 0.0..(top * 1.06).max(0.1));
                let chart = builder.build_cartesian_2d(across, up)?;
                draw(chart, lines, (x, y), [&|value| tick(*value), &|value| tick(*value)])
            }
            Axis::Percentiles => {
                let least = points().map(|p| p.1).filter(|y| *y > 0.0);
                let least = least.fold(f64::INFINITY, f64::min).min(top.max(1.0));
                // Full decades, so that the axis has labels even if all lies in one.
                let floor = 10f64.powf(least.log10().floor());
                let ceiling = 10f64.powf((top.max(least) * 1.0001).log10().ceil());
                let across = (1.0..right.max(10.0)).log_scale();
                let chart = builder.build_cartesian_2d(across, (floor..ceiling).log_scale())?;
                draw(chart, lines, (x, y), [&|value| percentile(*value), &|value| duration(*value)])
            }
        }
    })
}

type Label<'a> = &'a dyn Fn(&f64) -> String;

/// The mesh with its labels, and the lines on it.
fn draw<X, Y>(
    mut chart: ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, Y>>,
    lines: &[Line],
    (x, y): (&str, &str),
    [across, up]: [Label<'_>; 2],
) -> Drawn
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .axis_style(Colour::Ink.marker())
        .bold_line_style(Colour::Faint.marker().mix(0.4))
        .light_line_style(TRANSPARENT)
        .x_labels(8)
        .y_labels(7)
        .x_label_formatter(&across)
        .y_label_formatter(&up)
        .x_desc(x)
        .y_desc(y)
        .label_style(text(Colour::Ink, HPos::Center, VPos::Top))
        .axis_desc_style(text(Colour::Ink, HPos::Center, VPos::Top))
        .draw()?;
    for line in lines {
        let opacity = if line.pale { 0.35 } else { 1.0 };
        let style = Colour::Series(line.series).marker().mix(opacity).stroke_width(2);
        chart.draw_series(LineSeries::new(line.points.iter().copied(), style))?;
    }
    Ok(())
}

/// The percentile at `1 / (1 - percentile)`.
fn percentile(value: f64) -> String {
    let percent = 100.0 - 100.0 / value;
    let digits = (value.log10().round() as usize).saturating_sub(2);
    format!("{percent:.digits$} %")
}

/// Microseconds with a fitting unit.
fn duration(microseconds: f64) -> String {
    match microseconds {
        us if us >= 1e6 => format!("{} s", us / 1e6),
        us if us >= 1e3 => format!("{} ms", us / 1e3),
        us => format!("{us} µs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_percentiles_have_the_nines_that_they_need() {
        let labels = [1.0, 10.0, 100.0, 1000.0, 1e4].map(percentile);
        assert_eq!(labels, ["0 %", "90 %", "99 %", "99.9 %", "99.99 %"]);
    }

    #[test]
    fn durations_take_the_unit_that_fits() {
        assert_eq!([0.1, 10.0, 1000.0, 1e6].map(duration), ["0.1 µs", "10 µs", "1 ms", "1 s"]);
    }
}
