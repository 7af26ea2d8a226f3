//! The host's part: gets what is needed, boots the guests, tells what came of it.

mod apt;
mod archive;
mod boot;
mod emulator;
mod kernel;
mod network;
mod programs;
mod summary;
mod tool;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};

use crate::error::{Context, Error, Result};
use crate::plan::{GUESTS, Guest};
use crate::wire::Verdict;
use archive::Archive;
use boot::{Boot, Logs};
use emulator::{Accelerator, Emulator};
use kernel::Image;
use programs::Programs;
use summary::{Outcome, Summary};

/// Tests of mpxdp in guests.
#[derive(Parser)]
#[command(name = "mpxdp-vm", version)]
struct Cli {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Subcommand)]
enum Subcommands {
    /// Boot guests and run the checks in them.
    Test(TestArguments),
    /// Become a command, in a network of its own with --taps. Used by `test`.
    #[command(name = network::SUBCOMMAND, hide = true)]
    InNetwork {
        #[arg(long)]
        taps: bool,
        #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
}

#[derive(Args)]
struct TestArguments {
    /// Only guests whose names contain one of these.
    guests: Vec<String>,
    /// Say what there is, and run nothing.
    #[arg(long)]
    list: bool,
    /// Succeed although something could not be run because this machine lacks it.
    #[arg(long)]
    allow_missing: bool,
    /// Where packages, images and logs are kept.
    #[arg(long, value_name = "FOLDER", default_value = "target/vm")]
    cache: PathBuf,
}

/// The host's entry point.
pub(crate) fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Subcommands::Test(arguments) => test(&arguments),
        Subcommands::InNetwork { taps, command } => {
            network::enter(taps, &command).map(|never| match never {})
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mpxdp-vm: {error}");
            if matches!(error, Error::Usage(_)) { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// Runs the guests that were asked for; says whether all went well.
fn test(arguments: &TestArguments) -> Result<bool> {
    let asked = |guest: &Guest| {
        arguments.guests.is_empty() || arguments.guests.iter().any(|name| guest.name.contains(name))
    };
    let guests: Vec<&Guest> = GUESTS.iter().filter(|guest| asked(guest)).collect();
    if guests.is_empty() {
        let names = arguments.guests.join(", ");
        return Err(Error::Usage(format!("{names}: no guest has such a name; --list shows all")));
    }
    if arguments.list {
        for guest in guests {
            println!("{guest}");
            for check in guest.checks {
                println!("    {:6}  {check}", check.row());
            }
        }
        return Ok(true);
    }
    fs::create_dir_all(&arguments.cache)
        .context(|| format!("cannot make {}", arguments.cache.display()))?;
    let cache = fs::canonicalize(&arguments.cache).context(|| "cache".to_owned())?;
    eprintln!("vm-test: building");
    let programs = Programs::build(&guests)?;
    let accelerator = Accelerator::probe(&cache);
    let mut runner = Runner { cache, programs, accelerator, initramfs: BTreeMap::new() };
    let mut summary = Summary::default();
    for guest in guests {
        let begun = Instant::now();
        let outcome = match runner.run(guest) {
            Ok(outcome) => outcome,
            Err(Error::Missing(why)) => Outcome::NotRun(why),
            Err(Error::Failed(why) | Error::Usage(why)) => Outcome::Dead(why),
        };
        summary.add(guest, outcome, begun.elapsed());
    }
    let Runner { accelerator, .. } = runner;
    println!("\n{}", summary.table(accelerator.name()));
    Ok(summary.is_good(arguments.allow_missing))
}

struct Runner {
    cache: PathBuf,
    programs: Programs,
    accelerator: Accelerator,
    /// By kernel and driver.
    initramfs: BTreeMap<(String, &'static str), PathBuf>,
}

impl Runner {
    fn run(&mut self, guest: &'static Guest) -> Result<Outcome> {
        let emulator = Emulator::get(&self.cache, guest.nic.needs_qemu())?;
        let image = Image::get(&self.cache, guest.kernel, guest.nic)?;
        let initramfs = self.initramfs(guest, &image)?;
        let logs = Logs::new(&self.cache.join("logs"), guest)?;
        println!("\n{guest}, {} with qemu {}", image.release, emulator.version);
        let told = |index: usize, verdict: &Verdict, took: Duration| {
            summary::print(guest, index, verdict, took);
        };
        loop {
            let files = (image.vmlinuz.as_path(), initramfs.as_path());
            match boot::run(guest, &emulator, self.accelerator, files, &logs, told)? {
                Boot::Ran { kernel, verdicts } => return Ok(Outcome::Ran { kernel, verdicts }),
                Boot::Dead(why) if self.accelerator == Accelerator::Kvm => {
                    eprintln!("vm-test: KVM is there and does not work ({why}); emulating instead");
                    Accelerator::remember_failure(&self.cache)?;
                    self.accelerator = Accelerator::Tcg;
                }
                Boot::Dead(why) => return Err(Error::Failed(why)),
            }
        }
    }

    fn initramfs(&mut self, guest: &Guest, image: &Image) -> Result<PathBuf> {
        let key = (image.release.clone(), guest.nic.driver());
        if let Some(path) = self.initramfs.get(&key) {
            return Ok(path.clone());
        }
        let mut archive = Archive::new();
        for folder in ["proc", "sys", "tmp", "run", "etc", "modules"] {
            archive.folder(folder);
        }
        // The order of the names is the order of loading.
        for (number, (name, module)) in image.modules(guest.nic)?.into_iter().enumerate() {
            archive.file(&format!("modules/{number:02}-{name}.ko"), &module);
        }
        self.programs.pack(&mut archive)?;
        let path = self.cache.join(format!("{}-{}.cpio", key.0, key.1));
        write(&path, &archive.finish())?;
        self.initramfs.insert(key, path.clone());
        Ok(path)
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).context(|| format!("cannot write {}", path.display()))
}
