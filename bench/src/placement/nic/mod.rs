//! Where a real NIC's receive processing runs, and putting that back.
//!
//! The processing of a queue runs on the CPU that its interrupt goes to, or, where the NIC has
//! `threaded` on, in a kernel thread named `napi/INTERFACE-ID`. A [`Hold`] moves both for NICs that
//! the user named, and no others; it never turns `threaded` on. It puts everything back when it goes,
//! and what a run that was killed could not put back, the next one does: each setting is written to a
//! journal before it is changed.

mod interrupts;
mod journal;

use std::fs;
use std::path::PathBuf;

use mpxdp::CpuList;
use mpxdp_cli::say;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

pub use interrupts::{QueueInterrupt, of_queues};
use journal::{Entry, Journal};

use crate::error::{Context, Error, Result};
use crate::owner::Owner;

/// Where the system's trees are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
    /// `/run`, for the journal.
    pub run: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { proc: "/proc".into(), sys: "/sys".into(), run: "/run".into() }
    }
}

/// One setting as it was before it was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Setting {
    /// The CPUs that an interrupt may go to.
    Interrupt { interrupt: QueueInterrupt, cpus: String },
    /// The CPUs that a kernel thread may run on. Numbers of threads are used again; names of these are
    /// not, as they have the number of a NAPI instance in them.
    Thread { pid: u32, name: String, cpus: Vec<usize> },
}

impl Setting {
    /// Puts it back. What is not there any more needs no putting back.
    fn restore(&self, roots: &Roots) -> Result<()> {
        match self {
            Self::Interrupt { interrupt, cpus } => match interrupt.affinity(roots) {
                Some(now) if now != *cpus => interrupt.set_affinity(roots, cpus),
                _ => Ok(()),
            },
            Self::Thread { pid, name, cpus } => {
                let now =
                    napi_threads(roots).into_iter().any(|thread| thread == (*pid, name.clone()));
                if now { pin(*pid, cpus) } else { Ok(()) }
            }
        }
    }

    /// Whether it is about the same thing.
    fn is_same_thing(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Interrupt { interrupt: a, .. }, Self::Interrupt { interrupt: b, .. }) => a == b,
            (Self::Thread { name: a, .. }, Self::Thread { name: b, .. }) => a == b,
            _ => false,
        }
    }
}

/// The receive processing of NICs, moved. Dropping it puts everything back.
#[derive(Debug)]
pub struct Hold {
    roots: Roots,
    entry: Entry,
    /// Where the entry is written, once something was changed.
    path: Option<PathBuf>,
}

impl Hold {
    /// Nothing moved yet; puts back what runs that were killed left behind.
    ///
    /// # Errors
    ///
    /// If that fails.
    pub fn new(roots: Roots) -> Result<Self> {
        restore_orphans(&roots)?;
        let entry = Entry { owner: Owner::current()?, before: Vec::new() };
        Ok(Self { roots, entry, path: None })
    }

    /// Moves the processing of a NIC's receive queues: the first queue's to the first CPU, and so on,
    /// from the beginning again when there are more queues than CPUs.
    ///
    /// # Errors
    ///
    /// If the NIC's interrupts cannot be found or moved, or another process has moved them.
    pub fn place(&mut self, interface: &str, cpus: &CpuList) -> Result<()> {
        let threads = self.threads(interface);
        let interrupts = match of_queues(&self.roots, interface) {
            // Where threads do the processing, it does not matter much where the interrupts go.
            Err(Error::Failed(_)) if !threads.is_empty() => Vec::new(),
            other => other?,
        };
        let mut before = Vec::new();
        for interrupt in &interrupts {
            if let Some(cpus) = interrupt.affinity(&self.roots) {
                before.push(Setting::Interrupt { interrupt: interrupt.clone(), cpus });
            }
        }
        for (pid, name) in &threads {
            before.push(Setting::Thread { pid: *pid, name: name.clone(), cpus: allowed(*pid)? });
        }
        self.write_down(interface, before)?;
        let of = |n: usize| cpus.as_slice().get(n % cpus.as_slice().len().max(1)).copied();
        for (n, interrupt) in interrupts.iter().enumerate() {
            if let Some(cpu) = of(n) {
                interrupt.move_to(&self.roots, cpu)?;
            }
        }
        for (n, (pid, _)) in threads.iter().enumerate() {
            if let Some(cpu) = of(n) {
                pin(*pid, &[cpu])?;
            }
        }
        Ok(())
    }

    /// Notes how things were, those only that are not noted yet.
    fn write_down(&mut self, interface: &str, before: Vec<Setting>) -> Result<()> {
        let journal = Journal::lock(&self.roots)?;
        for (_, other) in journal.entries()? {
            let taken = |one: &Setting| before.iter().any(|setting| setting.is_same_thing(one));
            if other.owner != self.entry.owner && other.before.iter().any(taken) {
                return Err(Error::Failed(format!(
                    "{interface}: its interrupts are being placed by {} already",
                    other.owner
                )));
            }
        }
        for setting in before {
            if !self.entry.before.iter().any(|known| known.is_same_thing(&setting)) {
                self.entry.before.push(setting);
            }
        }
        self.path = Some(journal.write(&self.entry)?);
        Ok(())
    }

    /// The NIC's processing threads, if it has `threaded` on, in the order of their queues.
    fn threads(&self, interface: &str) -> Vec<(u32, String)> {
        let file = self.roots.sys.join("class/net").join(interface).join("threaded");
        if fs::read_to_string(file).is_ok_and(|text| text.trim() != "0") {
            let prefix = format!("napi/{interface}-");
            let mut threads = napi_threads(&self.roots);
            threads.retain(|(_, name)| name.starts_with(&prefix));
            threads.sort_by_key(|(_, name)| name[prefix.len()..].parse::<u64>().ok());
            return threads;
        }
        Vec::new()
    }

    /// Puts everything back now, and says so if that fails.
    ///
    /// # Errors
    ///
    /// The first thing that could not be put back; the others are all the same.
    pub fn restore(&mut self) -> Result<()> {
        let Some(path) = self.path.take() else { return Ok(()) };
        let _journal = Journal::lock(&self.roots)?;
        restore_all(&self.roots, &self.entry)?;
        self.entry.before.clear();
        Journal::forget(&path)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Err(error) = self.restore() {
            say::line(format_args!(
                "mpxdp-bench: interrupts are not wholly where they were: {error}"
            ));
        }
    }
}

/// Whether something moves interrupts by itself, and will move them while they are measured.
#[must_use]
pub fn irqbalance_runs(roots: &Roots) -> bool {
    processes(roots).any(|(_, name)| name == "irqbalance")
}

/// Puts back what processes left behind that are gone.
fn restore_orphans(roots: &Roots) -> Result<()> {
    let journal = Journal::lock(roots)?;
    for (path, entry) in journal.entries()? {
        if !entry.owner.is_alive() {
            restore_all(roots, &entry)?;
            Journal::forget(&path)?;
        }
    }
    Ok(())
}

/// Puts back all settings of an entry, the last changed first; the first error, if there is one.
fn restore_all(roots: &Roots, entry: &Entry) -> Result<()> {
    let results = entry.before.iter().rev().map(|setting| setting.restore(roots));
    results.fold(Ok(()), Result::and)
}

/// Processes and threads of the kernel, by number and name.
fn processes(roots: &Roots) -> impl Iterator<Item = (u32, String)> + use<> {
    let entries = fs::read_dir(&roots.proc).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        Some((pid, name.trim_end().to_owned()))
    })
}

fn napi_threads(roots: &Roots) -> Vec<(u32, String)> {
    processes(roots).filter(|(_, name)| name.starts_with("napi/")).collect()
}

/// The CPUs that a thread may run on.
fn allowed(pid: u32) -> Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(pid.cast_signed()))
        .context(|| format!("cannot read the CPUs of napi thread {pid}"))?;
    Ok((0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap_or(false)).collect())
}

fn pin(pid: u32, cpus: &[usize]) -> Result<()> {
    let failed = || format!("cannot pin napi thread {pid} to CPU {cpus:?}");
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu).context(failed)?;
    }
    sched_setaffinity(Pid::from_raw(pid.cast_signed()), &set).context(failed)
}

#[cfg(test)]
pub(crate) mod fabricated;
#[cfg(test)]
mod tests;
