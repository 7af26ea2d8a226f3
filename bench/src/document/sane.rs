//! Whether what was read can be what a benchmark measured.
//!
//! Documents are read from anywhere, and may be damaged or made by hand. Whoever draws one relies on
//! numbers that are of this world.

use serde_json::Value;

use super::{CpuSeconds, Document, Round, Row};
use crate::measure::Spread;

/// No figure of a benchmark is greater: it is a petabyte, a petabit a second, or eleven days in
/// nanoseconds.
const MOST: f64 = 1e15;

/// No figure of a benchmark but zero is nearer to it, not even what is left of the difference of two
/// equal ones. So the quotient of any two is a number that can be drawn.
const LEAST: f64 = 1e-100;

/// The first number that is no figure of a benchmark: where it is, and what it is.
pub(super) fn monstrous(value: &Value) -> Option<String> {
    let below = |at: String, value: &Value| {
        let found = monstrous(value)?;
        // A name of its own begins after a dot, an index or the value itself goes on.
        let dot = if found.starts_with(['[', ' ']) || at.is_empty() { "" } else { "." };
        Some(format!("{at}{dot}{found}"))
    };
    match value {
        Value::Number(number) => {
            // Zero, or between the two.
            let fits = number
                .as_f64()
                .is_some_and(|number| number == 0.0 || (LEAST..=MOST).contains(&number.abs()));
            (!fits).then(|| {
                format!(" is {number}: figures of a benchmark are from {LEAST:e} to {MOST:e}")
            })
        }
        Value::Array(members) => {
            members.iter().enumerate().find_map(|(n, member)| below(format!("[{n}]"), member))
        }
        Value::Object(fields) => fields.iter().find_map(|(name, value)| below(name.clone(), value)),
        Value::Null | Value::Bool(_) | Value::String(_) => None,
    }
}

/// The first figure that contradicts itself, and how.
pub(super) fn contradiction(document: &Document) -> Option<String> {
    let rows = document.results.iter().enumerate();
    let of_rows = rows.filter_map(|(n, row)| Some(format!("results[{n}].{}", in_row(row)?))).next();
    let ratios = document.ratios.iter().enumerate().filter_map(|(n, ratio)| {
        let spread = Spread { median: ratio.median, min: ratio.min, max: ratio.max };
        (!is_spread(spread)).then(|| format!("ratios[{n}]: least, median and greatest contradict"))
    });
    of_rows.or_else(|| ratios.into_iter().next())
}

fn in_row(row: &Row) -> Option<String> {
    for (name, spread) in
        [("bits_per_second", row.bits_per_second), ("receiving_cores", row.receiving_cores)]
    {
        if spread.is_some_and(|spread| !is_spread(spread)) {
            return Some(format!("{name}: least, median and greatest contradict each other"));
        }
    }
    if let Some(pipeline) = &row.pipeline {
        if !is_spread(pipeline.total_nanoseconds_per_packet) {
            return Some("pipeline: least, median and greatest contradict each other".into());
        }
        let mut stages = pipeline.nanoseconds_per_packet.named();
        if let Some((stage, _)) = stages.find(|(_, time)| *time < 0.0) {
            return Some(format!("pipeline: {stage} takes less than no time"));
        }
    }
    let of_rounds = row.measurements.iter().enumerate();
    of_rounds.filter_map(|(n, round)| Some(format!("measurements[{n}]{}", in_round(round)?))).next()
}

fn in_round(round: &Round) -> Option<String> {
    let CpuSeconds { user, system, softirq, irq } = round.cpu_seconds;
    if [round.bits_per_second, round.receiving_cores, user, system, softirq, irq]
        .iter()
        .any(|figure| *figure < 0.0)
    {
        return Some(": its rate or its CPU time is less than nothing".into());
    }
    let timeline = &round.timeline;
    (!timeline.bytes.is_empty() && timeline.interval_seconds <= 0.0)
        .then(|| ".timeline: its intervals have no length".into())
}

/// Whether it is one of values that are not negative.
fn is_spread(Spread { median, min, max }: Spread) -> bool {
    0.0 <= min && min <= median && median <= max
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_named_by_its_place() {
        for (text, place) in [
            (r#"{"a": [{"b": 1}, {"b": {"c": 1e300}}]}"#, "a[1].b.c is 1e+300"),
            (r#"{"a": 18446744073709551615}"#, "a is 18446744073709551615"),
            (r#"{"a": [[-2e15]]}"#, "a[0][0] is -2"),
            (r#"{"a": -1e-300}"#, "a is -1e-300"),
        ] {
            let value: Value = serde_json::from_str(text).expect("JSON");
            let found = monstrous(&value).expect(text);
            assert!(found.starts_with(place), "{text}: {found}");
        }
        let value: Value =
            serde_json::from_str(r#"{"a": [1e15, -1e15, 0, -0.0, 1e-30, "1e300"]}"#).expect("JSON");
        assert_eq!(monstrous(&value), None);
    }
}
