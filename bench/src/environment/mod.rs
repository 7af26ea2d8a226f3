//! What a result must say about the machine it was measured on.

mod build;
mod date;
mod nic;
mod topology;

use std::fs;

use serde::{Deserialize, Serialize};

pub use build::Build;
pub use nic::Nic;
pub use topology::{Cache, Topology};

use crate::lab::Conditions;

/// The machine, as far as it matters to a rate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// The version of mpxdp.
    pub version: String,
    /// What the program was built with and from.
    #[serde(default)]
    pub build: Build,
    /// Whether it was built with optimisation.
    pub optimised: bool,
    /// When the benchmark began, in UTC, as RFC 3339 writes it.
    #[serde(default)]
    pub date: String,
    /// The command and its arguments.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// The kernel's name, release, version and machine, as `uname -srvm` prints them.
    pub kernel: String,
    /// The kernel's command line.
    pub command_line: String,
    /// The first CPU's model.
    pub cpu_model: String,
    /// The CPUs that this process may run on.
    pub cpus: Vec<usize>,
    /// How the CPUs of the machine lie.
    #[serde(default)]
    pub topology: Topology,
    /// Whether the machine is itself virtual, as far as the CPU tells.
    pub hypervisor: bool,
    /// The frequency governor of the first CPU, if there is one.
    pub governor: Option<String>,
    /// Whether the CPUs may go beyond their nominal frequency, if the kernel tells.
    #[serde(default)]
    pub turbo: Option<bool>,
    /// Whether simultaneous multithreading is on, if the kernel tells.
    pub smt: Option<String>,
    /// What the kernel does against each vulnerability of the CPU that affects it.
    pub mitigations: Vec<String>,
    /// Memory in KiB.
    pub memory_kib: u64,
    /// Processes that ran or wanted to over the last minute, when the benchmark began.
    pub load: String,
    /// The receiver's interfaces, once they are there.
    #[serde(default)]
    pub nics: Vec<Nic>,
    /// What the lab had besides its shape; none where it was measured in no lab.
    #[serde(default)]
    pub lab: Option<Conditions>,
}

impl Environment {
    /// This machine.
    #[must_use]
    pub fn of_this_machine() -> Self {
        let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = read("/proc/meminfo").unwrap_or_default();
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            build: Build::of_this_program(),
            optimised: !cfg!(debug_assertions),
            date: date::now(),
            arguments: std::env::args_os()
                .map(|argument| argument.to_string_lossy().into_owned())
                .collect(),
            kernel: uname(),
            command_line: read("/proc/cmdline").unwrap_or_default(),
            cpu_model: field("model name").unwrap_or_default(),
            cpus: cpus(),
            topology: Topology::of_this_machine(),
            hypervisor: field("flags").is_some_and(|flags| {
                flags.split_ascii_whitespace().any(|flag| flag == "hypervisor")
            }),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            turbo: turbo(),
            smt: read("/sys/devices/system/cpu/smt/control"),
            mitigations: mitigations(),
            memory_kib: memory
                .lines()
                .find_map(|line| line.strip_prefix("MemTotal:"))
                .and_then(|text| text.trim().trim_end_matches(" kB").parse().ok())
                .unwrap_or(0),
            load: read("/proc/loadavg")
                .and_then(|text| text.split(' ').next().map(ToOwned::to_owned))
                .unwrap_or_default(),
            nics: Vec::new(),
            lab: None,
        }
    }
}

/// The CPUs that this process may run on, in ascending order; never empty.
#[must_use]
pub fn cpus() -> Vec<usize> {
    let allowed = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0));
    let cpus: Vec<usize> = allowed.map_or_else(
        |_| Vec::new(),
        |set| {
            (0..nix::sched::CpuSet::count())
                .filter(|&cpu| set.is_set(cpu).unwrap_or(false))
                .collect()
        },
    );
    if cpus.is_empty() { vec![0] } else { cpus }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn uname() -> String {
    nix::sys::utsname::uname().map_or_else(
        |_| String::new(),
        |name| {
            [name.sysname(), name.release(), name.version(), name.machine()]
                .map(|part| part.to_string_lossy().into_owned())
                .join(" ")
        },
    )
}

/// One driver says that it is off, all others that it is on.
fn turbo() -> Option<bool> {
    let off = read("/sys/devices/system/cpu/intel_pstate/no_turbo").map(|text| text == "0");
    off.or_else(|| read("/sys/devices/system/cpu/cpufreq/boost").map(|text| text == "1"))
}

fn mitigations() -> Vec<String> {
    let Ok(folder) = fs::read_dir("/sys/devices/system/cpu/vulnerabilities") else {
        return Vec::new();
    };
    let mut all: Vec<String> = folder
        .flatten()
        .filter_map(|file| {
            let text = fs::read_to_string(file.path()).ok()?;
            let text = text.trim();
            (text != "Not affected")
                .then(|| format!("{}: {text}", file.file_name().to_string_lossy()))
        })
        .collect();
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_cpus_and_memory() {
        let machine = Environment::of_this_machine();
        assert!(machine.kernel.starts_with("Linux "), "{}", machine.kernel);
        assert!(!machine.cpus.is_empty());
        assert!(machine.cpus.is_sorted());
        assert!(machine.memory_kib > 0);
        assert!(!machine.arguments.is_empty());
    }
}
