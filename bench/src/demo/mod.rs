//! The receivers side by side: `mpxdp recv`, and the kernel's MPTCP and TCP as they are and behind
//! the same XDP front end.
//!
//! Why the kernel twice. Over veth, AF_XDP costs what no driver with zero copy would: for every
//! packet the kernel allocates a page, copies the packet into it, runs the XDP program and copies
//! it again into the UMEM. The kernel's own receiver is spared all that, and even gets the sender's
//! buffers by reference, which no NIC can do. Behind an XDP program that passes everything, the
//! kernel pays for the same front end; that is the comparison that says something about the
//! receivers themselves.

mod checks;
mod memory;
mod plot;
mod table;

use std::io::{IsTerminal, Write};
use std::time::Duration;

use crate::conclude::conclude;
use crate::document::{Document, Ratio, Round, Row, Target, Tried};
use crate::environment;
use crate::error::{Context, Error, Result};
use crate::interrupt::Interrupt;
use crate::lab::{self, Builder, Conditions, Lab};
use crate::options;
use crate::trial::{Bench, Outcome, Place, Programs, Receiver, Trial, order, places};

/// What the demo is to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The lab's name.
    pub name: String,
    /// The length of a measurement.
    pub time: Duration,
    /// How often each receiver is measured at its best placement.
    pub rounds: usize,
    /// The MTUs.
    pub mtus: Vec<u32>,
    /// The receivers.
    pub receivers: Vec<Receiver>,
    /// What the lab has besides.
    pub conditions: Conditions,
    /// Where the document goes, if anywhere.
    pub json: Option<Target>,
    /// Where the result is drawn, as SVG, if anywhere.
    pub plot: Option<Target>,
    /// Show the receive path without the privileges that a lab needs.
    pub unprivileged: bool,
}

impl Options {
    /// The lab of an MTU.
    fn lab(&self, mtu: u32) -> Builder {
        Lab::builder().name(&self.name).mtu(mtu).conditions(&self.conditions)
    }

    /// Fails unless all of it makes sense, so that nothing is found out in the middle of the run.
    fn check(&self) -> Result<()> {
        options::list("--mtu", &self.mtus)?;
        options::list("--receivers", self.receivers.iter().map(|one| one.name()))?;
        options::rounds(self.rounds)?;
        options::seconds(self.time)?;
        for &mtu in &self.mtus {
            self.lab(mtu).check()?;
        }
        if let Some(json) = &self.json {
            json.check("--json")?;
        }
        if let Some(plot) = &self.plot {
            plot.check("--plot")?;
            self.json.iter().try_for_each(|json| json.check_apart("--json", plot, "--plot"))?;
        }
        Ok(())
    }
}

/// How long a placement is tried for, at most.
const TRIAL: Duration = Duration::from_millis(700);

/// How much of a connection's beginning is left out, as a part of the measured time, and at most. The
/// windows have opened by then.
const WARMUP: (u32, Duration) = (4, Duration::from_millis(250));

/// Runs the demo. True if all bytes were right.
///
/// # Errors
///
/// If something is missing or a transfer failed.
pub fn run(options: &Options) -> Result<bool> {
    options.check()?;
    let mut document = Document::new();
    let missing = if options.unprivileged {
        Some("asked for".to_owned())
    } else {
        lab::privilege().err().map(|error| error.to_string())
    };
    let interrupt = Interrupt::install()?;
    let ended = match missing {
        Some(why) => memory::run(options, &why, &interrupt, &mut document),
        None => in_labs(options, &interrupt, &mut document),
    };
    progress("");
    document.ratios = ratios(&document.results);
    // A terminal's signal ends the processes of a measurement too, which may be noticed first.
    let ended = interrupt.check().and(ended);
    let ended = conclude(&mut document, ended, table::render, options.json.as_ref());
    if let Some(to) = options.plot.as_ref().filter(|_| !document.results.is_empty()) {
        to.write("--plot", plot::draw(&document)?.as_bytes())?;
    }
    ended?;
    Ok(document.exactness.iter().all(|pass| pass.exact))
}

/// The demo over veth.
fn in_labs(options: &Options, interrupt: &Interrupt, document: &mut Document) -> Result<()> {
    let programs = Programs::find()?;
    document.remarks = vec![table::WHY_TWICE.into(), table::HOW_CPU.into()];
    let with_mpxdp = options.receivers.contains(&Receiver::Mpxdp);
    let folder = tempfile::tempdir().context(|| "cannot make a folder for the exactness pass")?;
    for &mtu in &options.mtus {
        let lab = options.lab(mtu).interrupt(interrupt).up()?;
        let mut bench = Bench::new(&lab, &programs, interrupt);
        if with_mpxdp {
            progress(&format!("MTU {mtu}: are the bytes right?"));
            document.exactness.push(checks::exactness(&mut bench, folder.path())?);
            if document.idle.is_none()
                && let Some(place) = places(Receiver::Mpxdp, &environment::cpus()).first()
            {
                progress("what does an idle engine cost?");
                document.idle = Some(checks::idle(&bench, place)?);
            }
        }
        bench.describe(&mut document.environment);
        side_by_side(options, &mut bench, document)?;
        lab.remove()?;
    }
    Ok(())
}

/// All receivers at one MTU. What was measured of them is in the document, whatever comes then.
fn side_by_side(options: &Options, bench: &mut Bench<'_>, document: &mut Document) -> Result<()> {
    let cpus = environment::cpus();
    let mtu = bench.mtu();
    let mut best = Vec::new();
    let mut rows = Vec::new();
    for &receiver in &options.receivers {
        progress(&format!("MTU {mtu}: where does {} run best?", receiver.name()));
        let mut trials = Vec::new();
        for place in places(receiver, &cpus) {
            let trial = trial(receiver, &place, TRIAL.min(options.time));
            let rate = bench.measure(&trial)?.round.bits_per_second;
            trials.push((place, rate));
        }
        let tried = trials
            .iter()
            .map(|(place, rate)| Tried { placement: place.to_string(), bits_per_second: *rate });
        let tried = tried.collect();
        let fastest = trials.into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b));
        let (place, _) = fastest.ok_or_else(|| Error::Failed("no CPU to run on".into()))?;
        let trial = trial(receiver, &place, options.time);
        rows.push(Row { tried, ..row(bench, &trial) });
        best.push((rows.len() - 1, trial));
    }
    let mut measured: Vec<Vec<Outcome>> = best.iter().map(|_| Vec::new()).collect();
    let mut turns = (0..options.rounds)
        .flat_map(|round| order(&best, round).into_iter().map(move |next| (round, next)));
    let ended = turns.try_for_each(|(round, (index, trial))| {
        let (round, of) = (round + 1, options.rounds);
        progress(&format!("MTU {mtu}: round {round} of {of}, {}", trial.receiver.name()));
        measured[index].push(bench.measure(&trial)?);
        Ok(())
    });
    let rows = rows.into_iter().zip(measured).filter(|(_, outcomes)| !outcomes.is_empty());
    document.results.extend(rows.map(|(row, outcomes)| filled(row, outcomes)));
    ended
}

fn trial(receiver: Receiver, place: &Place, time: Duration) -> Trial {
    let (part, most) = WARMUP;
    Trial { receiver, place: place.clone(), subflows: 1, warmup: most.min(time / part), time }
}

/// A row without its measurements.
fn row(bench: &Bench<'_>, trial: &Trial) -> Row {
    Row {
        benchmark: "demo".into(),
        receiver: trial.receiver.name().into(),
        mtu: bench.mtu(),
        subflows: trial.subflows,
        links: bench.links(),
        placement: trial.place.to_string(),
        best: true,
        seconds: trial.time.as_secs_f64(),
        warmup_seconds: trial.warmup.as_secs_f64(),
        ..Row::default()
    }
}

fn filled(row: Row, outcomes: Vec<Outcome>) -> Row {
    let row = Row {
        mode: outcomes.first().map(|outcome| outcome.mode.clone()).unwrap_or_default(),
        zero_copy: outcomes.first().and_then(|outcome| outcome.zero_copy),
        mptcp: outcomes.iter().all(|outcome| outcome.mptcp),
        ..row
    };
    let rounds: Vec<Round> = outcomes.into_iter().map(|outcome| outcome.round).collect();
    row.with_rounds(rounds)
}

/// mpxdp against each other receiver, and each against the kernel's MPTCP behind the front end.
fn ratios(rows: &[Row]) -> Vec<Ratio> {
    let reference = Receiver::KernelMptcpXdp.name();
    let pairs = rows.iter().flat_map(|of| rows.iter().map(move |against| (of, against)));
    pairs
        .filter(|(of, against)| of.mtu == against.mtu && of.receiver != against.receiver)
        .filter(|(of, against)| {
            of.receiver == Receiver::Mpxdp.name() || against.receiver == reference
        })
        .filter_map(|(of, against)| of.against(against, "best"))
        .collect()
}

/// Shows what is being done, where somebody watches.
fn progress(text: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        // Nothing depends on it being shown.
        let _ = write!(stderr, "\r\x1b[2K{text}");
        let _ = stderr.flush();
    } else if !text.is_empty() && std::env::var_os("MPXDP_BENCH_PROGRESS").is_some() {
        let _ = writeln!(stderr, "{text}");
    }
}
