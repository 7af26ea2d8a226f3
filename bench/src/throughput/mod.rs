//! `mpxdp-bench throughput`: how fast each receiver is, and what that costs, by MTU, number of
//! subflows and placement.
//!
//! All receivers and numbers of subflows of one MTU take turns, so that whatever the machine does
//! meanwhile meets them alike; each round begins with another one. Without `--placement` each receiver
//! is first tried at some places and then measured at its best one (`placement` is `best` in the
//! ratios); the kernel's receivers are measured at mpxdp's best place too, where that is another one,
//! so that like is compared with like.
//!
//! [Front ends](crate::trial::FrontEnd) are measured as well, at mpxdp's best place, so that what a
//! receiver costs beyond its front end can be told: for mpxdp beyond the AF_XDP socket with a reader
//! that does nothing, for the kernel's receivers behind an XDP program beyond a program that drops.
//! The latter looks into packets, which the program before the kernel's receivers does not; that errs
//! in the kernel's favour.
//!
//! Between two [`Hosts`] the same is measured on NICs as they are, without the front ends.
//!
//! What cannot be measured is in `not_run`, with the reason, and so is what failed; the rest goes on.
//! SIGINT, SIGTERM and SIGHUP end the run, and what was measured by then is written.

mod above;
mod plan;
mod run;
mod table;

use std::time::Duration;

pub use plan::DEFAULT_WARMUP;

use crate::conclude::conclude;
use crate::document::{Document, Target};
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::lab::{self, Builder, Conditions, Lab};
use crate::options;
use crate::trial::{Hosts, Programs, Receiver};

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// The lab's name.
    pub name: String,
    /// The MTUs of the links.
    pub mtus: Vec<u32>,
    /// The numbers of subflows.
    pub subflows: Vec<u32>,
    /// The number of links.
    pub links: u32,
    /// What the lab has besides.
    pub conditions: Conditions,
    /// The length of a measurement.
    pub time: Duration,
    /// What of a connection's beginning is left out.
    pub warmup: Duration,
    /// How often each is measured.
    pub rounds: usize,
    /// Where everything runs, as [`Place::parse`](crate::trial::Place::parse) takes it; none: at the
    /// best of some places.
    pub placement: Option<String>,
    /// The receivers.
    pub receivers: Vec<Receiver>,
    /// Whether to measure what the front ends cost by themselves; not between hosts.
    pub front_end: bool,
    /// Measure between two hosts instead of in a lab; the lab's name, links and MTUs say nothing then.
    pub hosts: Option<Hosts>,
    /// Where the document goes, if anywhere.
    pub json: Option<Target>,
}

impl Options {
    /// The lab of an MTU.
    fn lab(&self, mtu: u32) -> Builder {
        let builder = Lab::builder().name(&self.name).links(self.links).mtu(mtu);
        builder.conditions(&self.conditions)
    }

    /// Fails unless all of it makes sense, so that nothing is found out in the middle of the run.
    fn check(&self) -> Result<()> {
        options::rounds(self.rounds)?;
        options::seconds(self.time)?;
        options::within("--warmup", self.warmup.as_secs_f64(), options::WARMUP)?;
        options::list("--mtu", &self.mtus)?;
        options::list("--receivers", self.receivers.iter().map(|one| one.name()))?;
        options::subflows(&self.subflows)?;
        if let Some(hosts) = &self.hosts {
            return hosts.check();
        }
        for &mtu in &self.mtus {
            self.lab(mtu).check()?;
        }
        Ok(())
    }
}

/// Measures, shows the table on standard error and writes the document. True if everything that could
/// be measured was.
///
/// # Errors
///
/// Wrong usage, or something that is missing: nothing was measured then.
pub fn run(options: &Options) -> Result<bool> {
    options.check()?;
    let plan = plan::Plan::new(options)?;
    if let Some(json) = &options.json {
        json.check("--json")?;
    }
    if options.hosts.is_none() {
        lab::privilege()?;
    }
    let programs = Programs::find()?;
    if options.receivers.contains(&Receiver::Mpxdp) {
        programs.mpxdp()?;
    }
    let interrupt = Interrupt::install()?;
    let mut document = Document::new();
    document.remarks = table::REMARKS.map(str::to_owned).to_vec();
    let complete = run::run(&plan, &programs, &interrupt, &mut document);
    conclude(&mut document, complete, table::render, options.json.as_ref())
}
