//! What came of it, in words and as a table.

use std::fmt::Write as _;
use std::time::Duration;

use crate::plan::{Guest, Row};
use crate::wire::Verdict;

/// What became of a guest.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It ran.
    Ran {
        /// The release of its kernel.
        kernel: String,
        /// What became of its checks.
        verdicts: Vec<(Verdict, Duration)>,
    },
    /// This machine lacks something that it needs.
    NotRun(String),
    /// It never came up.
    Dead(String),
}

/// All guests.
#[derive(Debug, Default)]
pub(super) struct Summary {
    guests: Vec<(&'static Guest, Outcome, Duration)>,
}

/// How many checks ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    passed: usize,
    failed: usize,
    not_run: usize,
}

/// Prints a line about a check that ended.
pub(super) fn print(guest: &Guest, index: usize, verdict: &Verdict, took: Duration) {
    let (word, details) = match verdict {
        Verdict::Passed(note) => ("ok", note),
        Verdict::Failed(why) => ("FAILED", why),
        Verdict::NotRun(why) => ("not run", why),
    };
    let (row, what) = match guest.checks.get(index) {
        Some(check) => (check.row().to_string(), check.to_string()),
        None => (String::new(), "the guest".to_owned()),
    };
    let seconds = took.as_secs_f64();
    println!("  {word:7} {row:6} {what} ({seconds:.1} s){}", indented(details));
}

fn indented(text: &str) -> String {
    text.lines().fold(String::new(), |mut all, line| {
        let _ = write!(all, "\n              {line}");
        all
    })
}

impl Summary {
    /// Adds a guest.
    pub(super) fn add(&mut self, guest: &'static Guest, outcome: Outcome, took: Duration) {
        match &outcome {
            Outcome::Ran { .. } => {}
            Outcome::NotRun(why) => println!("\n{guest}\n  not run: {why}"),
            Outcome::Dead(why) => println!("  FAILED: {why}"),
        }
        self.guests.push((guest, outcome, took));
    }

    /// The validation matrix, and the count of everything on its last line.
    pub(super) fn table(&self, accelerator: &str) -> String {
        let mut lines = vec![cells("guest", "kernel", Row::ALL.map(|row| row.to_string()), "s")];
        let mut total = Count::default();
        for (guest, outcome, took) in &self.guests {
            let kernel = match outcome {
                Outcome::Ran { kernel, .. } => kernel.as_str(),
                Outcome::NotRun(_) | Outcome::Dead(_) => "-",
            };
            let counts = Row::ALL.map(|row| count(guest, outcome, row));
            for count in counts {
                total.passed += count.passed;
                total.failed += count.failed;
                total.not_run += count.not_run;
            }
            let seconds = took.as_secs().to_string();
            lines.push(cells(guest.name, kernel, counts.map(|count| count.to_string()), &seconds));
        }
        let ran = |(_, outcome, _): &(_, Outcome, _)| matches!(outcome, Outcome::Ran { .. });
        if self.guests.iter().any(ran) {
            lines.push(format!("\nGuests ran on {accelerator}."));
        }
        let Count { passed, failed, not_run } = total;
        lines.push(format!("{passed} passed, {failed} failed, {not_run} skipped"));
        lines.join("\n")
    }

    /// Whether everything passed, or was not run and need not be.
    pub(super) fn is_good(&self, allow_missing: bool) -> bool {
        self.guests.iter().all(|(guest, outcome, _)| {
            Row::ALL
                .map(|row| count(guest, outcome, row))
                .iter()
                .all(|count| count.failed == 0 && (allow_missing || count.not_run == 0))
        })
    }
}

fn cells(guest: &str, kernel: &str, rows: [String; 3], seconds: &str) -> String {
    let [normal, debug, btf] = rows;
    format!("{guest:24} {kernel:28} {normal:18} {debug:18} {btf:18} {seconds:>4}")
}

/// The checks of a row. One that the guest did not come to has failed.
fn count(guest: &Guest, outcome: &Outcome, row: Row) -> Count {
    let mut count = Count::default();
    for (index, _) in guest.checks.iter().enumerate().filter(|(_, check)| check.row() == row) {
        match outcome {
            Outcome::NotRun(_) => count.not_run += 1,
            Outcome::Dead(_) => count.failed += 1,
            Outcome::Ran { verdicts, .. } => match verdicts.get(index) {
                Some((Verdict::Passed(_), _)) => count.passed += 1,
                Some((Verdict::NotRun(_), _)) => count.not_run += 1,
                Some((Verdict::Failed(_), _)) | None => count.failed += 1,
            },
        }
    }
    count
}

impl std::fmt::Display for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { passed, failed, not_run } = *self;
        let parts = [(passed, "passed"), (failed, "FAILED"), (not_run, "not run")];
        let shown = parts.iter().filter(|(number, _)| *number > 0);
        let words: Vec<_> = shown.map(|(number, word)| format!("{number} {word}")).collect();
        f.pad(if words.is_empty() { "-".to_owned() } else { words.join(", ") }.as_str())
    }
}
