//! Histograms of latencies: what is shown of them, how documents carry them, and files to plot.

use std::io::{self, Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

use crate::document::Percentiles;
use crate::error::{Error, Result};

/// Nanoseconds, each kept to one part in a thousand.
pub type Latencies = Histogram<u64>;

/// The largest latency that is told apart from larger ones, in nanoseconds: longer than any
/// measurement.
const HIGHEST: u64 = 100_000_000_000;

/// Steps of a plot's percentiles between each halving of what is left to 100 %: what the HdrHistogram
/// family of tools writes.
const TICKS_PER_HALF: u32 = 5;

/// A histogram of nothing yet.
#[must_use]
pub fn empty() -> Latencies {
    Latencies::new_with_bounds(1, HIGHEST, 3).expect("constant bounds that are allowed")
}

impl Percentiles {
    /// Of a histogram; zeros if it is empty.
    #[must_use]
    pub fn of(histogram: &Latencies) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile);
        Self {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            max: histogram.max(),
        }
    }
}

/// A histogram as text: HdrHistogram's V2 encoding, compressed, in base64. The tools of that family
/// read it.
///
/// # Errors
///
/// None that a histogram of [`empty`] can give.
pub fn encode(histogram: &Latencies) -> Result<String> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(histogram, &mut bytes)
        .map_err(|error| Error::failed("cannot write a histogram", error))?;
    Ok(STANDARD.encode(bytes))
}

/// The histogram that [`encode`] made a text of.
///
/// # Errors
///
/// If it is no such text, or one that has more than a histogram of [`empty`]'s shape can hold: its
/// numbers say how much memory is taken before any of it is found wrong.
pub fn decode(text: &str) -> Result<Latencies> {
    /// Cookie and length, before what is deflated and before the counts in it.
    const HEADER: usize = 8;
    /// The digits that [`empty`] keeps.
    const DIGITS: u32 = 3;
    let none = |why: &dyn std::fmt::Display| Error::failed("no histogram", why);
    let bytes = STANDARD.decode(text).map_err(|error| none(&error))?;
    let deflated = bytes.get(HEADER..).ok_or_else(|| none(&"it is too short"))?;
    // A count takes nine bytes at most, and the header forty.
    let longest = empty().distinct_values() * 9 + 40;
    let mut plain = Vec::new();
    let inflate = ZlibDecoder::new(deflated).take(longest as u64 + 1).read_to_end(&mut plain);
    inflate.map_err(|error| none(&error))?;
    let (length, digits, highest) = sizes(&plain).ok_or_else(|| none(&"it is too short"))?;
    let left = plain.len().saturating_sub(40);
    if plain.len() > longest || length as usize > left || digits > DIGITS || highest > HIGHEST {
        return Err(none(&"it is larger than one of a measurement"));
    }
    Deserializer::new()
        .deserialize(&mut io::Cursor::new(plain))
        .map_err(|error| none(&format_args!("{error:?}")))
}

/// The length of the counts, the digits that are kept and the highest value of a plain histogram.
fn sizes(plain: &[u8]) -> Option<(u32, u32, u64)> {
    let word = |at: usize| Some(u32::from_be_bytes(plain.get(at..at + 4)?.try_into().ok()?));
    let highest = plain.get(24..32)?.try_into().ok()?;
    Some((word(4)?, word(12)?, u64::from_be_bytes(highest)))
}

/// Adds one histogram to another.
///
/// # Errors
///
/// If `more` is of another shape and holds what `to` cannot.
pub fn add(to: &mut Latencies, more: &Latencies) -> Result<()> {
    to.add(more).map_err(|error| Error::failed("cannot add histograms", error))
}

/// Writes a histogram as `.hgrm`, the percentile table that HdrHistogram's plotters read, with values
/// in microseconds.
///
/// # Errors
///
/// If writing fails.
pub fn write_hgrm(histogram: &Latencies, to: &mut dyn Write) -> io::Result<()> {
    let micro = |nanoseconds: f64| nanoseconds / 1000.0;
    writeln!(
        to,
        "{:>12} {:>14} {:>10} {:>14}\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    )?;
    let mut total = 0;
    for step in histogram.iter_quantiles(TICKS_PER_HALF) {
        total += step.count_since_last_iteration();
        let quantile = step.quantile_iterated_to();
        let value = micro(step.value_iterated_to() as f64);
        write!(to, "{value:>12.3} {quantile:>14.12} {total:>10}")?;
        // The last line, of 100 %, has no fourth column.
        if quantile < 1.0 {
            write!(to, " {:>14.2}", 1.0 / (1.0 - quantile))?;
        }
        writeln!(to)?;
    }
    let (mean, deviation) = (micro(histogram.mean()), micro(histogram.stdev()));
    writeln!(to, "#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]")?;
    let (max, count) = (micro(histogram.max() as f64), histogram.len());
    writeln!(to, "#[Max     = {max:>12.3}, Total count    = {count:>12}]")?;
    let (buckets, sub_buckets) = (histogram.buckets(), histogram.distinct_values());
    writeln!(to, "#[Buckets = {buckets:>12}, SubBuckets     = {sub_buckets:>12}]")
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::ZlibEncoder;
    use hdrhistogram::serialization::V2Serializer;

    use super::*;

    /// 1 us to 10 ms, evenly.
    fn even() -> Latencies {
        let mut histogram = empty();
        (1..=10_000).for_each(|micro| histogram.saturating_record(micro * 1000));
        histogram
    }

    #[test]
    fn percentiles_are_those_of_the_values() {
        let percentiles = Percentiles::of(&even());
        let wanted = [5_000, 9_000, 9_900, 9_990, 9_999, 10_000].map(|micro: u64| micro * 1000);
        let Percentiles { p50, p90, p99, p99_9, p99_99, max } = percentiles;
        for (got, wanted) in [p50, p90, p99, p99_9, p99_99, max].into_iter().zip(wanted) {
            assert!(got.abs_diff(wanted) <= wanted / 1000, "{percentiles:?}, not {wanted}");
        }
        assert_eq!(Percentiles::of(&empty()), Percentiles::default());
    }

    #[test]
    fn nothing_is_too_long_to_be_counted() {
        let mut histogram = empty();
        histogram.saturating_record(u64::MAX);
        histogram.saturating_record(0);
        assert_eq!(histogram.len(), 2);
        assert!(histogram.max() >= HIGHEST);
    }

    #[test]
    fn a_histogram_survives_being_text() {
        for histogram in [empty(), even()] {
            let text = encode(&histogram).expect("it is one of ours");
            assert_eq!(decode(&text).expect("what was written"), histogram);
        }
        // An even spread over 10,000 values is the least compressible that a run gives.
        assert!(encode(&even()).expect("it is one of ours").len() < 4_000);
        assert!(decode("").is_err() && decode("AAAA").is_err());
        assert!(decode("no base64").is_err());
    }

    #[test]
    fn a_histogram_takes_no_more_memory_than_one_of_a_measurement() {
        // What claims four gigabytes of counts, six digits, or a value of a century is told before any
        // of it is taken; the same with nothing wrong in it is read.
        let made = |at: usize, word: u32| {
            let mut plain = Vec::new();
            V2Serializer::new().serialize(&even(), &mut plain).expect("memory");
            plain[at..at + 4].copy_from_slice(&word.to_be_bytes());
            let mut deflated = ZlibEncoder::new(Vec::new(), Compression::fast());
            deflated.write_all(&plain).expect("memory");
            let deflated = deflated.finish().expect("memory");
            let mut bytes = 0x1c84_9304_u32.to_be_bytes().to_vec();
            bytes.extend((deflated.len() as u32).to_be_bytes());
            bytes.extend(deflated);
            decode(&STANDARD.encode(bytes))
        };
        assert_eq!(made(8, 0).expect("nothing was changed"), even());
        for (at, word) in [(4, u32::MAX), (4, 1 << 20), (12, 5), (24, 1 << 30)] {
            let error = made(at, word).expect_err("too large").to_string();
            assert!(error.contains("larger than"), "{at}: {error}");
        }
    }

    #[test]
    fn added_histograms_count_together() {
        let mut sum = even();
        add(&mut sum, &even()).expect("the same shape");
        assert_eq!(sum.len(), 20_000);
        assert_eq!(Percentiles::of(&sum), Percentiles::of(&even()));
    }

    #[test]
    fn plot_files_have_the_form_that_plotters_read() {
        let mut bytes = Vec::new();
        write_hgrm(&even(), &mut bytes).expect("memory");
        let text = String::from_utf8(bytes).expect("ASCII");
        let mut lines = text.lines();
        let names: Vec<&str> = lines.next().unwrap().split_ascii_whitespace().collect();
        assert_eq!(names, ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]);
        assert_eq!(lines.next(), Some(""));
        let (table, comments): (Vec<&str>, Vec<&str>) = lines.partition(|l| !l.starts_with('#'));
        assert!(
            comments[1].contains("Max     =    10002.431, Total count    =        10000"),
            "{comments:?}"
        );
        let rows: Vec<Vec<f64>> = table
            .iter()
            .map(|line| line.split_ascii_whitespace().map(|n| n.parse().unwrap()).collect())
            .collect();
        assert!(rows.len() > 40, "{}", rows.len());
        assert!(rows.is_sorted_by(|a, b| a[0] <= b[0] && a[1] <= b[1] && a[2] <= b[2]));
        let (last, others) = rows.split_last().unwrap();
        assert_eq!((last.len(), last[1], last[2]), (3, 1.0, 10_000.0));
        for row in others {
            assert!((row[3] - 1.0 / (1.0 - row[1])).abs() <= 0.006 * row[3], "{row:?}");
        }
        // A tenth of the messages took 1 ms or less.
        let tenth = others.iter().find(|row| (row[1] - 0.1).abs() < 1e-9).unwrap();
        assert!((tenth[0] - 1000.0).abs() < 1.1 && (tenth[2] - 1000.0).abs() < 2.0, "{tenth:?}");
    }
}
