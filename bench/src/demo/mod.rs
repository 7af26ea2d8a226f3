//! The receivers side by side: `mpxdp recv`, and the kernel's MPTCP and TCP as they are and behind
//! the same XDP front end.
//!
//! Why the kernel twice. Over veth, AF_XDP costs what no driver with zero copy would: for every
//! packet the kernel allocates a page, copies the packet into it, runs the XDP program and copies
//! it again into the UMEM. The kernel's own receiver is spared all that, and even gets the sender's
//! buffers by reference, which no NIC can do. Behind an XDP program that passes everything, the
//! kernel pays for the same front end; that is the comparison that says something about the
//! receivers themselves.

mod memory;
mod plan;
mod plot;
mod run;
mod table;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

pub use plan::{Place, Receiver, order, places};
pub use run::{Bench, Measured, Programs};

use crate::environment::{self, Environment};
use crate::error::{Context, Error, Result};
use crate::interrupt::Interrupt;
use crate::lab::{self, Lab};
use crate::measure::Spread;
use crate::report::{self, Document, Row, Target, Tried};

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
    /// Where the document goes, if anywhere.
    pub json: Option<Target>,
    /// Where the result is drawn, as SVG, if anywhere.
    pub plot: Option<PathBuf>,
    /// Show the receive path without the privileges that a lab needs.
    pub unprivileged: bool,
}

/// How long a placement is tried for, at most.
const TRIAL: Duration = Duration::from_millis(700);

/// Runs the demo. True if all bytes were right.
///
/// # Errors
///
/// If something is missing or a transfer failed.
pub fn run(options: &Options) -> Result<bool> {
    if options.rounds == 0 || options.mtus.is_empty() || options.receivers.is_empty() {
        return Err(Error::Usage("--rounds, --mtu and --receivers must not be empty".into()));
    }
    let mut json = options.json.as_ref().map(Target::open).transpose()?;
    let missing = if options.unprivileged {
        Some("asked for".to_owned())
    } else {
        lab::privilege().err().map(|error| error.to_string())
    };
    let document = match missing {
        Some(why) => memory::run(options, &why)?,
        None => in_lab(options)?,
    };
    let exact = document.exactness.iter().all(|pass| pass.exact);
    eprint!("{}", table::render(&document));
    if let Some(json) = &mut json {
        report::write(&document, json)?;
    }
    if let Some(path) = &options.plot {
        plot::draw(&document, path)?;
    }
    Ok(exact)
}

/// The demo over veth.
fn in_lab(options: &Options) -> Result<Document> {
    let interrupt = Interrupt::install()?;
    let programs = Programs::find()?;
    let mut document = Document {
        environment: Environment::of_this_machine(),
        results: Vec::new(),
        ratios: Vec::new(),
        exactness: Vec::new(),
        idle: None,
        remarks: vec![table::WHY_TWICE.into(), table::HOW_CPU.into()],
    };
    let with_mpxdp = options.receivers.contains(&Receiver::Mpxdp);
    let folder = tempfile::tempdir().context(|| "cannot make a folder for the exactness pass")?;
    for &mtu in &options.mtus {
        let lab = Lab::builder().name(&options.name).mtu(mtu).interrupt(&interrupt).up()?;
        let mut bench = Bench::new(&lab, &programs, &interrupt);
        if with_mpxdp {
            progress(&format!("MTU {mtu}: are the bytes right?"));
            document.exactness.push(bench.exactness(folder.path())?);
            if document.idle.is_none()
                && let Some(&place) = places(Receiver::Mpxdp, &environment::cpus()).first()
            {
                progress("what does an idle engine cost?");
                document.idle = Some(bench.idle(place)?);
            }
        }
        document.results.extend(side_by_side(options, &mut bench)?);
        lab.remove()?;
    }
    progress("");
    document.ratios = ratios(&document.results);
    Ok(document)
}

/// All receivers at one MTU.
fn side_by_side(options: &Options, bench: &mut Bench<'_>) -> Result<Vec<Row>> {
    let cpus = environment::cpus();
    let mtu = bench.lab.spec().mtu;
    let mut best = Vec::new();
    let mut tried = Vec::new();
    for &receiver in &options.receivers {
        progress(&format!("MTU {mtu}: where does {} run best?", receiver.name()));
        let mut trials = Vec::new();
        for place in places(receiver, &cpus) {
            let measured = bench.measure(receiver, place, TRIAL.min(options.time))?;
            trials.push((place, measured.bits_per_second));
        }
        let fastest = trials.iter().max_by(|(_, a), (_, b)| a.total_cmp(b));
        let &(place, _) = fastest.ok_or_else(|| Error::Failed("no CPU to run on".into()))?;
        best.push((receiver, place));
        tried.push(trials);
    }
    let mut rounds: Vec<Vec<Measured>> = best.iter().map(|_| Vec::new()).collect();
    let indices: Vec<usize> = (0..best.len()).collect();
    for round in 0..options.rounds {
        for index in order(&indices, round) {
            let (receiver, place) = best[index];
            let (round, of) = (round + 1, options.rounds);
            progress(&format!("MTU {mtu}: round {round} of {of}, {}", receiver.name()));
            rounds[index].push(bench.measure(receiver, place, options.time)?);
        }
    }
    let rows = best.iter().zip(rounds).zip(tried);
    rows.map(|((&(receiver, place), measured), trials)| {
        row(options, bench.lab, receiver, place, &measured, &trials)
    })
    .collect()
}

fn row(
    options: &Options,
    lab: &Lab,
    receiver: Receiver,
    place: Place,
    measured: &[Measured],
    trials: &[(Place, f64)],
) -> Result<Row> {
    let spread = |of: fn(&Measured) -> f64| {
        Spread::of(measured.iter().map(of)).ok_or_else(|| Error::Failed("no rounds".into()))
    };
    let per_gigabyte =
        spread(|m| if m.bytes > 0 { m.cost.seconds / (m.bytes as f64 / 1e9) } else { 0.0 })?;
    Ok(Row {
        benchmark: "demo".into(),
        receiver: receiver.name().into(),
        mtu: lab.spec().mtu,
        subflows: 1,
        links: lab.spec().links,
        placement: place.to_string(),
        mode: measured.first().map(|m| m.mode.clone()).unwrap_or_default(),
        mptcp: measured.iter().all(|m| m.mptcp),
        seconds: options.time.as_secs_f64(),
        rounds: measured.len(),
        bits_per_second: spread(|m| m.bits_per_second)?,
        receiving_cores: spread(|m| m.cost.cores)?,
        cpu_seconds_per_gigabyte: per_gigabyte.median,
        rates: measured.iter().map(|m| m.bits_per_second).collect(),
        tried: trials
            .iter()
            .map(|(place, rate)| Tried { placement: place.to_string(), bits_per_second: *rate })
            .collect(),
    })
}

/// mpxdp against each other receiver, and each against the kernel's MPTCP behind the front end.
fn ratios(rows: &[Row]) -> Vec<report::Ratio> {
    let reference = Receiver::KernelMptcpXdp.name();
    let pairs = rows.iter().flat_map(|of| rows.iter().map(move |against| (of, against)));
    pairs
        .filter(|(of, against)| of.mtu == against.mtu && of.receiver != against.receiver)
        .filter(|(of, against)| {
            of.receiver == Receiver::Mpxdp.name() || against.receiver == reference
        })
        .filter_map(|(of, against)| of.against(against))
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
