//! What is being done and how long it will still take, where somebody watches.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on a terminal's standard error; with `MPXDP_BENCH_PROGRESS` in the environment, a line for
/// each step where it is no terminal; else nothing.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    lines: bool,
}

/// Milliseconds are precise enough, and a bar counts in whole numbers.
fn units(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Progress {
    /// A bar for work that is expected to take so long in all.
    pub(crate) fn new(expected: Duration) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let target =
            if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(units(expected)), target);
        let style = ProgressStyle::with_template("{bar:24} {percent:>3} % · {eta} left · {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        if terminal {
            bar.enable_steady_tick(Duration::from_millis(500));
        }
        let lines = !terminal && std::env::var_os("MPXDP_BENCH_PROGRESS").is_some();
        Self { bar, lines }
    }

    /// Says what is done now.
    pub(crate) fn says(&self, what: impl Into<String>) {
        let what = what.into();
        if self.lines {
            // Nothing depends on it being shown.
            let _ = writeln!(std::io::stderr(), "{what}");
        }
        self.bar.set_message(what);
    }

    /// A step is done that was expected to take so long.
    pub(crate) fn did(&self, expected: Duration) {
        self.bar.inc(units(expected));
    }

    /// It will take so much longer than was expected.
    pub(crate) fn more(&self, expected: Duration) {
        self.bar.inc_length(units(expected));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
