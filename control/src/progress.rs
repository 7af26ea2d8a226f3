//! What people see on stderr: lines, and on a terminal a live line below them.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use mpxdp_cli::say;

use crate::units;

/// How often the live line changes.
pub(crate) const INTERVAL: Duration = Duration::from_millis(250);

/// The rate shown is that of this last span.
const WINDOW: Duration = Duration::from_secs(2);

/// Writes lines to stderr and keeps the live line up to date.
#[derive(Debug)]
pub(crate) struct Progress {
    /// The live line, if stderr is a terminal.
    bar: Option<ProgressBar>,
    recent: Recent,
}

impl Progress {
    /// With a live line if stderr is a terminal.
    pub(crate) fn new() -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let target = ProgressDrawTarget::stderr_with_hz(8);
            let style = ProgressStyle::with_template("{spinner} {wide_msg}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner());
            ProgressBar::with_draw_target(None, target).with_style(style)
        });
        Self { bar, recent: Recent::default() }
    }

    /// Whether there is a live line to keep up to date.
    pub(crate) const fn is_live(&self) -> bool {
        self.bar.is_some()
    }

    /// Writes a line. Nobody reading stderr is no reason to stop.
    pub(crate) fn line(&self, text: impl fmt::Display) {
        let write = || say::line(format_args!("mpxdp: {text}"));
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Changes the live line: bytes received so far, connections that are open, the subflows that
    /// there are, and connections that ended.
    pub(crate) fn update(
        &mut self,
        now: Instant,
        bytes: u64,
        open: u64,
        subflows: u64,
        ended: u64,
    ) {
        let Some(bar) = &self.bar else { return };
        let rate = self.recent.rate(now, bytes);
        bar.set_message(format!(
            "{}  {}  {} open by {}, {ended} ended",
            units::rate(rate),
            units::bytes(bytes),
            units::count(open, "connection"),
            units::count(subflows, "subflow"),
        ));
        bar.tick();
    }

    /// Takes the live line away.
    pub(crate) fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// The byte counts of the last moments.
#[derive(Debug, Default)]
struct Recent(VecDeque<(Instant, u64)>);

impl Recent {
    /// Takes a count in and gives the rate of late, in bits a second.
    fn rate(&mut self, now: Instant, bytes: u64) -> f64 {
        self.0.push_back((now, bytes));
        // Keep one sample that is older than the window, so that the window is always covered.
        while self.0.get(1).is_some_and(|&(at, _)| now.duration_since(at) >= WINDOW) {
            self.0.pop_front();
        }
        let Some(&(first, then)) = self.0.front() else { return 0.0 };
        units::bits_per_second(bytes.saturating_sub(then), now.duration_since(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_two_seconds() {
        let start = Instant::now();
        let mut recent = Recent::default();
        let at = |quarters: u32| start + INTERVAL * quarters;
        assert!(recent.rate(at(0), 0) < 1.0);
        // A megabyte a quarter of a second is 32 Mbit/s.
        for n in 1..=20 {
            let rate = recent.rate(at(n), u64::from(n) * 1_000_000);
            assert!((rate - 32e6).abs() < 1.0, "{n}: {rate}");
        }
        // Two seconds of silence and it is zero.
        for n in 21..=27 {
            assert!(recent.rate(at(n), 20_000_000) > 1.0, "{n}");
        }
        assert!(recent.rate(at(28), 20_000_000) < 1.0);
        assert!(recent.0.len() <= 10);
    }
}
