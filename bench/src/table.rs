//! What the tables of several benchmarks have in common.

use std::fmt::Write;

use crate::document::{Document, Row};
use crate::environment::Environment;
use crate::measure::Spread;
use crate::text::count;

/// The machine, in a line: `cpus` tells how many CPUs it has.
pub(crate) fn machine(environment: &Environment, cpus: &str) -> String {
    let Environment { kernel, cpu_model, optimised, .. } = environment;
    let built = if *optimised { "" } else { "; BUILT WITHOUT OPTIMISATION" };
    format!("{kernel}; {cpu_model}; {cpus}{built}\n")
}

/// The head of a table, the conditions of its rows: those of the first, with so many rounds.
pub(crate) fn head(first: &Row, rounds: usize) -> String {
    format!(
        "\nMTU {}, {} over {}; median (least–greatest) of {rounds} rounds of {} s\n",
        first.mtu,
        count(first.subflows, "subflow"),
        count(first.links, "link"),
        first.seconds
    )
}

/// Rates in Gb/s.
pub(crate) fn gigabits(Spread { median, min, max }: Spread) -> String {
    let giga = |rate: f64| rate / 1e9;
    format!("{:.2} ({:.2}–{:.2})", giga(median), giga(min), giga(max))
}

/// CPUs or CPU seconds; a dash where no round had valid figures.
pub(crate) fn cpu(figure: Option<f64>) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.2}"))
}

/// A line for each row that has rounds without valid CPU figures.
pub(crate) fn invalid(text: &mut String, document: &Document) {
    for row in &document.results {
        let invalid = row.measurements.iter().filter(|round| round.cpu_invalid).count();
        if invalid == 0 {
            continue;
        }
        let Row { receiver, mtu, subflows, placement, rounds, .. } = row;
        let subflows = count(*subflows, "subflow");
        // Writing to a String does not fail.
        let _ = writeln!(
            text,
            "\nCPU TIME NOT VALID in {invalid} of {rounds} rounds, which are not in its figures: \
             {receiver}, MTU {mtu}, {subflows}, {placement}: it could not be read at the right moment"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Round;

    #[test]
    fn what_has_no_valid_cpu_time_is_named_and_has_no_figure() {
        let round = |cpu_invalid| Round { cpu_invalid, ..Round::default() };
        let row = Row { receiver: "mpxdp".into(), mtu: 1500, subflows: 2, ..Row::default() };
        let mut document = Document::new();
        document.results = vec![
            row.clone().with_rounds(vec![round(true), round(false)]),
            row.with_rounds(vec![round(false)]),
        ];
        let mut text = String::new();
        invalid(&mut text, &document);
        assert!(text.contains("1 of 2 rounds") && text.contains("mpxdp, MTU 1500, 2 subflows"));
        assert_eq!(text.matches("NOT VALID").count(), 1, "{text}");
        assert_eq!((cpu(None), cpu(Some(1.0))), ("-".to_owned(), "1.00".to_owned()));
    }
}
