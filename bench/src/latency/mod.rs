//! How long a message takes from the sender to the application that reads it.
//!
//! Messages of one size are due at a fixed rate ([`schedule`]), the kernel's MPTCP or TCP sends each
//! by one write ([`sender`]), and a reader in the receiver's namespace ([`reader`]) looks at the clock
//! when it has the whole of one: an application that links mpxdp and reads its ring in place, or one
//! that reads a socket of the kernel. A message's latency begins when it was due.
//!
//! Receivers and ways of reading take turns, round by round; a round begins with messages that are
//! not measured.

pub mod clock;
pub mod histogram;
pub mod message;
pub mod reader;
mod run;
pub mod schedule;
pub mod sender;
mod table;
pub mod waits;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use reader::Reading;

use mpxdp_cli::{describe, files, say};

use self::histogram::Latencies;
use self::run::{Bench, Load, Measured, Outcome, Subject};
use self::schedule::Plan;
use crate::conclude::conclude;
use crate::document::{Document, Latency, NotRun, Percentiles, Row, Target};
use crate::environment;
use crate::error::{Context, Error, Result};
use crate::interrupt::Interrupt;
use crate::lab::Lab;
use crate::measure::Spread;
use crate::options;
use crate::progress::Progress;
use crate::trial::{Place, Receiver, order};

/// For how long messages are sent that are not measured: until caches, the congestion window and the
/// receive window are what they will be.
const WARM_UP: Duration = Duration::from_millis(300);

/// What starting and ending the processes of a measurement takes, about: for the progress only.
const START_AND_END: Duration = Duration::from_millis(300);

/// Messages a second that can be asked for. One write takes some microseconds.
pub const RATE: RangeInclusive<u32> = 1..=10_000_000;

/// Seconds of a measurement; a message has to be due in them.
pub const SECONDS: RangeInclusive<f64> = 0.0..=3600.0;

/// What every result needs to be read with.
const REMARKS: [&str; 3] = [
    "Latency begins at the moment when a message was due at the fixed rate, also if the sender was \
     held up and wrote it later, and ends when the application has all of it. So a stall shows in \
     every message that it delayed (no coordinated omission).",
    "Over veth the NIC's processing runs within the sender's write unless the placement gives it a \
     thread of its own, and AF_XDP copies each packet: that is in mpxdp's latency, and no NIC does \
     it so. The receivers named -xdp are the kernel's behind the same XDP front end.",
    "A reader that spins, or a worker that does, does so only on a CPU that no other thread of the \
     measurement needs; elsewhere the reader yields between its looks, and the worker sleeps.",
];

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// The lab's name.
    pub name: String,
    /// Messages a second, one set of measurements for each.
    pub rates: Vec<u32>,
    /// Bytes of a message, one set of measurements for each.
    pub sizes: Vec<usize>,
    /// The length of a measurement.
    pub time: Duration,
    /// How often each receiver is measured.
    pub rounds: usize,
    /// The MTUs.
    pub mtus: Vec<u32>,
    /// The receivers.
    pub receivers: Vec<Receiver>,
    /// How they wait.
    pub readings: Vec<Reading>,
    /// Where the parts run; none or `auto`: by default.
    pub placement: Option<String>,
    /// Where the document goes, if anywhere.
    pub json: Option<Target>,
    /// The folder for the distributions as `.hgrm` files, if wanted.
    pub hgrm: Option<PathBuf>,
}

impl Options {
    fn check(&self) -> Result<()> {
        let usage = |what: String| Err(Error::Usage(what));
        options::list("--rate", &self.rates)?;
        options::list("--size", &self.sizes)?;
        options::list("--mtu", &self.mtus)?;
        options::list("--receivers", self.receivers.iter().map(|one| one.name()))?;
        options::list("--reader", self.readings.iter().map(|one| one.name()))?;
        options::rounds(self.rounds)?;
        options::within("--seconds", self.time.as_secs_f64(), SECONDS)?;
        self.rates.iter().try_for_each(|&rate| options::within("--rate", rate, RATE))?;
        for &mtu in &self.mtus {
            Lab::builder().name(&self.name).mtu(mtu).check()?;
        }
        self.sizes.iter().try_for_each(|&size| sender::check_size(size))?;
        if let Some(rate) = self.rates.iter().find(|&&rate| self.plan(rate).measured == 0) {
            let seconds = self.time.as_secs_f64();
            return usage(format!("--seconds {seconds}: no message is due in it at --rate {rate}"));
        }
        Ok(())
    }

    fn plan(&self, rate: u32) -> Plan {
        let messages = |time: Duration| (time.as_secs_f64() * f64::from(rate)) as u64;
        Plan { rate, warm_up: messages(WARM_UP), measured: messages(self.time) }
    }

    fn loads(&self) -> impl Iterator<Item = Load> {
        let of_size =
            move |&size| self.rates.iter().map(move |&rate| Load { plan: self.plan(rate), size });
        self.sizes.iter().flat_map(of_size)
    }

    /// Everyone who is to be measured.
    fn subjects(&self) -> Result<Vec<Subject>> {
        let cpus = environment::cpus();
        let place = |receiver| match self.placement.as_deref().map(str::trim) {
            None | Some("auto") => waits::place_by_default(receiver, &cpus)
                .ok_or_else(|| Error::Failed("no CPU to run on".into())),
            Some(text) => Ok(Place::parse(text, &cpus)?.of(receiver)),
        };
        let mut subjects = Vec::new();
        for &receiver in &self.receivers {
            let place = place(receiver)?;
            let subject = |&reading| Subject { receiver, reading, place: place.clone() };
            subjects.extend(self.readings.iter().map(subject));
        }
        Ok(subjects)
    }
}

/// Measures, shows and writes the results.
///
/// # Errors
///
/// Wrong usage, missing privilege, or a measurement that failed.
pub fn run(options: &Options) -> Result<()> {
    options.check()?;
    let subjects = options.subjects()?;
    if let Some(json) = &options.json {
        json.check("--json")?;
    }
    if let Some(folder) = &options.hgrm {
        let usable = std::fs::create_dir_all(folder).and_then(|()| files::may_create_in(folder));
        usable.map_err(|error| {
            Error::Usage(format!("--hgrm {}: {}", folder.display(), describe(&error)))
        })?;
    }
    let interrupt = Interrupt::install()?;
    let mut document =
        Document { remarks: REMARKS.map(ToOwned::to_owned).to_vec(), ..Document::new() };
    let ended = in_labs(options, &subjects, &interrupt, &mut document);
    document.interrupted = interrupt.is_set();
    let ended = ended.and_then(|()| interrupt.check());
    conclude(&mut document, ended, |_| table::LEGEND.into(), options.json.as_ref())
}

/// Measures in one lab after the other, and shows each result when it is there.
fn in_labs(
    options: &Options,
    subjects: &[Subject],
    interrupt: &Interrupt,
    document: &mut Document,
) -> Result<()> {
    for &mtu in &options.mtus {
        let lab = Lab::builder().name(&options.name).mtu(mtu).interrupt(interrupt).up()?;
        document.environment.lab = Some(lab.spec().conditions());
        let mut bench = Bench::new(&lab, interrupt)?;
        for load in options.loads() {
            let mut measured: Vec<Rounds> = subjects.iter().map(inapplicable).collect();
            let ended = in_turns(options, &mut bench, subjects, &load, &mut measured);
            say::text(table::head(mtu, load, options.rounds, options.time.as_secs_f64()));
            let mut reported = Ok(());
            for (subject, outcome) in subjects.iter().zip(measured) {
                // What a signal came before has nothing to tell.
                if !outcome.as_ref().is_ok_and(Vec::is_empty) {
                    // That a file of one cannot be written takes none of the others along.
                    let one = report(options, &lab, subject, &load, outcome, document);
                    reported = reported.and(one);
                }
            }
            ended.and(reported)?;
        }
        lab.remove()?;
    }
    Ok(())
}

/// What came of measuring someone: the rounds, or why there are none.
type Rounds = std::result::Result<Vec<Measured>, String>;

/// Measures all subjects, round by round, each round beginning with another one. What `rounds` has of
/// them stands whatever comes after it.
fn in_turns(
    options: &Options,
    bench: &mut Bench<'_>,
    subjects: &[Subject],
    load: &Load,
    rounds: &mut [Rounds],
) -> Result<()> {
    let indices: Vec<usize> = (0..subjects.len()).collect();
    let each = WARM_UP + options.time + START_AND_END;
    let times = u32::try_from(options.rounds * subjects.len()).unwrap_or(u32::MAX);
    let progress = Progress::new(each.saturating_mul(times));
    for round in 0..options.rounds {
        for index in order(&indices, round) {
            let Ok(measured) = &mut rounds[index] else { continue };
            let subject = &subjects[index];
            let (name, reading) = (subject.receiver.name(), subject.reading.name());
            progress.says(format!("round {} of {}: {name}, {reading}", round + 1, options.rounds));
            match bench.measure(subject, load) {
                // A terminal's signal ends the receiver too, which may be noticed first.
                Err(_) if bench.is_interrupted() => return Err(Error::Interrupted),
                Err(error) => return Err(error),
                Ok(Outcome::Measured(one)) => measured.push(*one),
                Ok(Outcome::Inapplicable(why)) => rounds[index] = Err(why),
            }
            progress.did(each);
        }
    }
    Ok(())
}

/// What is known beforehand not to apply.
fn inapplicable(subject: &Subject) -> Rounds {
    if subject.receiver == Receiver::Mpxdp && subject.reading == Reading::BusyPoll {
        return Err(
            "mpxdp's reader reads no socket; a worker that spins is its busy polling".into()
        );
    }
    Ok(Vec::new())
}

/// Shows what came of a subject and puts it into the document.
fn report(
    options: &Options,
    lab: &Lab,
    subject: &Subject,
    load: &Load,
    rounds: Rounds,
    document: &mut Document,
) -> Result<()> {
    let mtu = lab.spec().mtu;
    let (receiver, reading) = (subject.receiver.name(), subject.reading.name());
    let rounds = match rounds {
        Ok(rounds) => rounds,
        Err(reason) => {
            say::line(format_args!("  {receiver:<17} {reading:<9} not measured: {reason}"));
            let Load { plan: Plan { rate, .. }, size } = load;
            let what = format!(
                "{receiver}, reader {reading}, MTU {mtu}, {rate} messages a second of {size} bytes"
            );
            document.not_run.push(NotRun { what, reason });
            return Ok(());
        }
    };
    let (latency, histogram) = summary(subject, load, &rounds)?;
    let row = Row {
        benchmark: "latency".into(),
        receiver: receiver.into(),
        mtu,
        subflows: 1,
        links: lab.spec().links,
        placement: subject.place.to_string(),
        best: false,
        mode: rounds.first().map(|round| round.mode.clone()).unwrap_or_default(),
        mptcp: rounds.iter().all(|round| round.mptcp),
        seconds: options.time.as_secs_f64(),
        warmup_seconds: WARM_UP.as_secs_f64(),
        rounds: rounds.len(),
        latency: Some(latency),
        ..Row::default()
    };
    say::text(table::line(&row));
    document.results.push(row);
    if let Some(folder) = &options.hgrm {
        let name = format!("{receiver}-{reading}-mtu{mtu}-{}x{}.hgrm", load.plan.rate, load.size);
        write_hgrm(&folder.join(name), &histogram)?;
    }
    Ok(())
}

/// All rounds of a subject together.
fn summary(subject: &Subject, load: &Load, rounds: &[Measured]) -> Result<(Latency, Latencies)> {
    let sum = |of: fn(&Measured) -> &Latencies| {
        let mut sum = histogram::empty();
        rounds.iter().try_for_each(|round| histogram::add(&mut sum, of(round))).map(|()| sum)
    };
    let (latency, transit) = (sum(|round| &round.latency)?, sum(|round| &round.transit)?);
    let lateness = sum(|round| &round.lateness)?;
    let achieved = Spread::of(rounds.iter().map(|round| round.achieved_rate));
    let result = Latency {
        reader: subject.reading,
        worker: waits::worker(&subject.place, subject.reading),
        sender: waits::sender(&subject.place),
        rate: load.plan.rate,
        achieved_rate: achieved.map_or(0.0, |spread| spread.median),
        size: load.size,
        messages: latency.len(),
        late: rounds.iter().map(|round| round.late).sum(),
        unsent: rounds.iter().map(|round| round.unsent).sum(),
        latency_ns: Percentiles::of(&latency),
        transit_ns: Percentiles::of(&transit),
        lateness_ns: Percentiles::of(&lateness),
        rounds_ns: rounds.iter().map(|round| Percentiles::of(&round.latency)).collect(),
        histogram: histogram::encode(&latency)?,
        transit_histogram: histogram::encode(&transit)?,
    };
    Ok((result, latency))
}

fn write_hgrm(path: &Path, latency: &Latencies) -> Result<()> {
    let mut text = Vec::new();
    histogram::write_hgrm(latency, &mut text)
        .and_then(|()| files::write(path, &text))
        .context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests;
