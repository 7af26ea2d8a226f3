//! The demo's result as a picture: a bar for each receiver at each MTU, with the spread of rounds.

use plotters::prelude::*;

use crate::document::{Document, Row};
use crate::error::{Error, Result};
use crate::trial::Receiver;

/// Width and height, in pixels.
const SIZE: (u32, u32) = (760, 380);
/// A group of bars is as wide as so many bars; what is more than the receivers is the gap.
const GAP: usize = 1;

/// mpxdp stands out; MPTCP and TCP of the kernel are pairs, paler without the XDP front end.
const fn colour(receiver: Receiver) -> RGBColor {
    match receiver {
        Receiver::Mpxdp => RGBColor(0xd5, 0x5e, 0x00),
        Receiver::KernelMptcpXdp => RGBColor(0x00, 0x72, 0xb2),
        Receiver::KernelMptcp => RGBColor(0x8c, 0xc0, 0xe0),
        Receiver::KernelTcpXdp => RGBColor(0x55, 0x55, 0x55),
        Receiver::KernelTcp => RGBColor(0xb0, 0xb0, 0xb0),
    }
}

/// `document` as the text of an SVG picture.
///
/// # Errors
///
/// If it cannot be drawn.
pub(super) fn draw(document: &Document) -> Result<String> {
    let mut text = String::new();
    draw_on(document, &SVGBackend::with_string(&mut text, SIZE).into_drawing_area())
        .map_err(|error| Error::failed("cannot draw the result", error))?;
    Ok(text)
}

type Drawn<B> = std::result::Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

fn draw_on<B: DrawingBackend>(
    document: &Document,
    area: &DrawingArea<B, plotters::coord::Shift>,
) -> Drawn<B> {
    let mut mtus: Vec<u32> = document.results.iter().map(|row| row.mtu).collect();
    mtus.dedup();
    let receivers: Vec<Receiver> = Receiver::ALL
        .into_iter()
        .filter(|receiver| document.results.iter().any(|row| row.receiver == receiver.name()))
        .collect();
    let rates = document.results.iter().filter_map(|row| row.bits_per_second);
    let top = rates.map(|spread| gigabits(spread.max));
    let top = top.fold(1.0, f64::max) * 1.08;
    let group = receivers.len() + GAP;
    let width = (mtus.len() * group) as f64;

    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .caption("One stream from the kernel's MPTCP over veth", ("sans-serif", 18))
        .x_label_area_size(28)
        .y_label_area_size(48)
        .build_cartesian_2d(0.0..width, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .light_line_style(TRANSPARENT)
        .y_desc("Gb/s: median, least and greatest round")
        .y_label_formatter(&|value| format!("{value:.0}"))
        .label_style(("sans-serif", 13))
        .draw()?;
    for (index, &receiver) in receivers.iter().enumerate() {
        let fill = colour(receiver).filled();
        let bars = mtus.iter().enumerate().filter_map(|(place, &mtu)| {
            let rate = row_of(document, receiver, mtu)?.bits_per_second?;
            let left = (place * group + index) as f64 + GAP as f64 / 2.0;
            Some((left, rate))
        });
        let bars: Vec<_> = bars.collect();
        chart
            .draw_series(bars.iter().map(|(left, rate)| {
                let height = gigabits(rate.median);
                Rectangle::new([(left + 0.06, 0.0), (left + 0.94, height)], fill)
            }))?
            .label(receiver.name())
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], fill));
        chart.draw_series(bars.iter().map(|(left, spread)| {
            let x = left + 0.5;
            PathElement::new([(x, gigabits(spread.min)), (x, gigabits(spread.max))], BLACK)
        }))?;
    }
    let style = ("sans-serif", 14).into_font().into_text_style(area);
    for (place, mtu) in mtus.iter().enumerate() {
        let middle = (place * group) as f64 + group as f64 / 2.0;
        let (x, y) = chart.backend_coord(&(middle, 0.0));
        let at = (x - 32, y + 8);
        area.draw(&Text::new(format!("MTU {mtu}"), at, style.clone()))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.9))
        .label_font(("sans-serif", 13))
        .draw()?;
    area.present()
}

fn row_of(document: &Document, receiver: Receiver, mtu: u32) -> Option<&Row> {
    document.results.iter().find(|row| row.receiver == receiver.name() && row.mtu == mtu)
}

fn gigabits(bits: f64) -> f64 {
    bits / 1e9
}
