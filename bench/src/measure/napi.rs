//! Where a link's receive processing runs.
//!
//! veth processes what arrives on the CPU that sent it. With `threaded` on, kernel threads named
//! `napi/INTERFACE-ID` do it, one for each queue, and those can be pinned.

use std::collections::BTreeSet;
use std::fs;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::error::{Context, Error, Result};
use crate::lab::{Lab, Side};

/// The placement of the receive processing of the receiver's end of a link.
#[derive(Debug, Default)]
pub struct Processing {
    /// The names of the threads that are ours: interfaces of other labs may have the same name, but
    /// the number behind it is the kernel's for one queue of one interface.
    names: BTreeSet<String>,
}

impl Processing {
    /// Puts the receive processing on a CPU, or (none) lets it run on the CPU that sends. Returns
    /// the threads that do it, none in the latter case.
    ///
    /// # Errors
    ///
    /// If the kernel cannot run it in threads.
    pub fn place(&mut self, lab: &Lab, link: u32, cpu: Option<usize>) -> Result<Vec<u32>> {
        let interface = lab.interface(Side::Receiver, link);
        let setting = format!("{interface}/threaded");
        let Some(cpu) = cpu else {
            lab.interface_setting(Side::Receiver, &setting, "0")?;
            return Ok(Vec::new());
        };
        let threads = lab.alone(|| {
            let before = threads(&interface);
            lab.interface_setting(Side::Receiver, &setting, "1")?;
            let after = threads(&interface);
            let appeared = after.iter().filter(|(_, name)| !before.iter().any(|(_, n)| n == name));
            self.names.extend(appeared.map(|(_, name)| name.clone()));
            Ok(after)
        })?;
        let ours = threads.into_iter().filter(|(_, name)| self.names.contains(name));
        let ours: Vec<u32> = ours.map(|(pid, _)| pid).collect();
        if ours.is_empty() {
            return Err(Error::Failed(format!(
                "the kernel made no napi thread for {interface}: does it have GRO or XDP on?"
            )));
        }
        let mut set = CpuSet::new();
        set.set(cpu).context(|| format!("no CPU {cpu}"))?;
        for &pid in &ours {
            sched_setaffinity(Pid::from_raw(pid.cast_signed()), &set)
                .context(|| format!("cannot pin napi thread {pid} to CPU {cpu}"))?;
        }
        Ok(ours)
    }
}

/// The threads that process what arrives on interfaces of that name, in all namespaces.
fn threads(interface: &str) -> Vec<(u32, String)> {
    let prefix = format!("napi/{interface}-");
    let Ok(folder) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        let name = name.trim_end();
        name.starts_with(&prefix).then(|| (pid, name.to_owned()))
    })
    .collect()
}
