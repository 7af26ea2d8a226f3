//! Where a receiver should run: all placements of its stages that differ, measured side by side.
//!
//! [`class`] enumerates placements by what their stages share, and [`realise`] finds CPUs for them;
//! [`plan`] puts together what is to be measured, the four scenarios of the first table before all
//! others. Rounds are interleaved. [`analysis`] and [`bottleneck`] say what limited each, and
//! [`recommend`] which to take; [`config`] writes that to the service's configuration.
//!
//! In the lab, NIC processing is placed by `threaded` NAPI of the lab's own interfaces, which go with
//! it. For real NICs that the user names, [`nic`] moves interrupts and puts them back, and [`host`]
//! lists the placements and holds one. With a sender on another host the sweep runs over them too.

pub mod analysis;
pub mod bottleneck;
pub mod class;
pub mod config;
pub mod host;
pub mod nic;
pub mod plan;
pub mod realise;
pub mod recommend;
mod sweep;
mod table;

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use mpxdp_cli::say;

use self::config::ConfigFile;
use self::nic::{Hold, Roots, irqbalance_runs};
use crate::conclude::conclude;
use crate::document::{Document, Target};
use crate::error::{Context, Error, Result};
use crate::interrupt::Interrupt;
use crate::lab::{self, Lab};
use crate::options;
use crate::topology::Topology;
use crate::trial::{Hosts, Programs, Receiver};

/// What the benchmark is to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The lab's name.
    pub name: String,
    /// Who receives.
    pub receivers: Vec<Receiver>,
    /// The MTUs.
    pub mtus: Vec<u32>,
    /// The numbers of subflows.
    pub subflows: Vec<u32>,
    /// Links of the lab; none: two if there is more than one subflow.
    pub links: Option<u32>,
    /// The length of a measurement.
    pub time: Duration,
    /// How often each placement is measured.
    pub rounds: usize,
    /// How many placements of a receiver at a number of subflows, at most.
    pub limit: usize,
    /// Only these placements, if there are any.
    pub placements: Vec<String>,
    /// Real NICs without a sender: instead of measuring, list the placements for them, or hold the one
    /// that is given until a signal comes.
    pub nics: Vec<String>,
    /// Measure between two hosts instead of in a lab; the lab's name, links and MTUs say nothing then.
    pub hosts: Option<Hosts>,
    /// Where the document goes, if anywhere.
    pub json: Option<Target>,
    /// The configuration that the recommended placement of mpxdp goes into, if any.
    pub write_config: Option<PathBuf>,
}

impl Options {
    /// Links of the lab, or between the hosts.
    fn links(&self) -> u32 {
        if let Some(hosts) = &self.hosts {
            return u32::try_from(hosts.nics.len()).unwrap_or(u32::MAX);
        }
        let several = self.subflows.iter().any(|&subflows| subflows > 1);
        self.links.unwrap_or(if several { 2 } else { 1 })
    }

    fn check(&self) -> Result<()> {
        let usage = |text: &str| Err(Error::Usage(text.into()));
        options::rounds(self.rounds)?;
        options::seconds(self.time)?;
        if self.placements.is_empty() {
            options::within("--limit", self.limit, options::LIMIT)?;
        } else {
            options::list("--placement", &self.placements)?;
        }
        options::list("--mtu", &self.mtus)?;
        options::list("--receivers", self.receivers.iter().map(|one| one.name()))?;
        options::subflows(&self.subflows)?;
        if self.hosts.is_none() && self.nics.is_empty() {
            for &mtu in &self.mtus {
                Lab::builder().name(&self.name).links(self.links()).mtu(mtu).check()?;
            }
        }
        if let Some(hosts) = &self.hosts {
            hosts.check()?;
        }
        if !self.nics.is_empty() {
            options::list("--nic", &self.nics)?;
            if self.json.is_some() || self.write_config.is_some() {
                return usage("--nic: nothing is measured, so there is nothing to write to a file");
            }
            if self.placements.len() > 1 {
                return usage("--nic: one --placement can be held at a time");
            }
        }
        if let (Some(json), Some(config)) = (&self.json, &self.write_config) {
            let config = Target::File(config.clone());
            json.check_apart("--json", &config, "--write-config")?;
        }
        if self.write_config.is_some() && !self.receivers.contains(&Receiver::Mpxdp) {
            return usage(
                "--write-config: it is mpxdp's configuration, and mpxdp is not among the --receivers",
            );
        }
        Ok(())
    }
}

/// Runs the benchmark. True if everything that was planned was measured.
///
/// # Errors
///
/// Wrong usage, something that is missing, or if nothing could be measured.
pub fn run(options: &Options) -> Result<bool> {
    options.check()?;
    let topology = Topology::of_this_machine()?;
    if !options.nics.is_empty() {
        return real_nics(options, &topology).map(|()| true);
    }
    let plans = sweep::plans(options, &topology)?;
    let config = options.write_config.as_deref().map(ConfigFile::open).transpose()?;
    if let Some(json) = &options.json {
        json.check("--json")?;
    }
    lab::privilege()?;
    if options.hosts.is_some() && irqbalance_runs(&Roots::default()) {
        say::line(format_args!("mpxdp-bench: {}", host::IRQBALANCE));
    }
    // What a run that was killed has moved on real NICs is put back by whatever run is next.
    drop(Hold::new(Roots::default())?);
    let interrupt = Interrupt::install()?;
    let programs = Programs::find()?;

    let mut document = Document { remarks: remarks(options), ..Document::new() };
    let complete = sweep::run(options, &plans, &programs, &interrupt, &mut document);
    document.recommendations = sweep::recommendations(&document.results);
    let table = |document: &Document| table::render(document, &topology);
    let complete = conclude(&mut document, complete, table, options.json.as_ref())?;
    if let Some(config) = config {
        write_config(config, &document)?;
    }
    if document.interrupted { Err(Error::Interrupted) } else { Ok(complete) }
}

/// Lists the placements for real NICs, or holds one.
fn real_nics(options: &Options, topology: &Topology) -> Result<()> {
    let Options { nics, placements, .. } = options;
    let Some(placement) = placements.first() else {
        let text = host::describe(nics, &Roots::default(), topology)?;
        return io::stdout().write_all(text.as_bytes()).context(|| "cannot write the placements");
    };
    lab::privilege()?;
    let interrupt = Interrupt::install()?;
    host::hold(nics, placement, Roots::default(), topology, &interrupt)
}

/// Puts mpxdp's placement into the configuration, and says which it is.
fn write_config(config: ConfigFile, document: &Document) -> Result<()> {
    if document.interrupted {
        say::line(format_args!(
            "mpxdp-bench: {}: left alone, as the run was interrupted",
            config.path().display()
        ));
        return Ok(());
    }
    let Some(placement) = sweep::for_config(&document.results) else {
        return Err(Error::Failed(format!(
            "{}: left alone, as no placement of mpxdp was measured under all conditions",
            config.path().display()
        )));
    };
    let path = config.path().to_owned();
    config.write(&placement)?;
    say::line(format_args!("{}: placement = \"{placement}\"", path.display()));
    Ok(())
}

fn remarks(options: &Options) -> Vec<String> {
    let processing = if options.hosts.is_some() {
        "NIC processing is where the interrupts of the NIC's receive queues were moved to (napi=CPUS), \
         as softirq time of those CPUs. Threads of NAPI (threaded) are moved too, but their time is \
         not counted as NIC processing."
    } else {
        "NIC processing is that of the lab's interfaces, in kernel threads that are pinned (napi=CPU), \
         or in the sender's context, as veth does by itself (napi=sender). Where there are too few \
         CPUs, the sender shares one with the receiver, which a NIC would not."
    };
    let limits = "What limits: the stage whose CPU is full (90 % and more), by the median over the \
         rounds. CPU time is that of the threads; NIC processing without threads is the softirq time \
         of its CPU, which the kernel may count by clock ticks. A worker that spins counts as idle.";
    vec![processing.into(), limits.into()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options {
            name: "x".into(),
            receivers: vec![Receiver::Mpxdp],
            mtus: vec![1500],
            subflows: vec![1],
            links: None,
            time: Duration::from_secs(1),
            rounds: 1,
            limit: 1,
            placements: Vec::new(),
            nics: Vec::new(),
            hosts: None,
            json: None,
            write_config: None,
        }
    }

    #[test]
    fn several_subflows_have_two_links_unless_told_otherwise() {
        assert_eq!(options().links(), 1);
        assert_eq!(Options { subflows: vec![1, 4], ..options() }.links(), 2);
        assert_eq!(Options { links: Some(3), ..options() }.links(), 3);
    }

    #[test]
    fn what_makes_no_sense_is_wrong_usage() {
        assert!(options().check().is_ok());
        for (options, named) in [
            (Options { rounds: 0, ..options() }, "--rounds"),
            (Options { limit: 0, ..options() }, "--limit"),
            (Options { mtus: Vec::new(), ..options() }, "--mtu"),
            (Options { subflows: vec![0], ..options() }, "--subflows 0"),
            (Options { subflows: vec![9], ..options() }, "--subflows 9"),
            (
                Options { nics: vec!["eth0".into()], json: Some(Target::Stdout), ..options() },
                "--nic",
            ),
            (
                Options {
                    nics: vec!["eth0".into()],
                    placements: vec!["napi=0".into(), "napi=1".into()],
                    ..options()
                },
                "--nic",
            ),
            (
                Options {
                    receivers: vec![Receiver::KernelTcp],
                    write_config: Some("x".into()),
                    ..options()
                },
                "--write-config",
            ),
        ] {
            let error = options.check().expect_err(named);
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(named), "{error}");
        }
    }
}
