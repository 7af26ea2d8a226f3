//! Reads the topology from `/sys/devices/system/{cpu,node}`.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::thread;

use mpxdp::CpuList;

use super::{Cpu, Topology};
use crate::error::{Context, Error, Result};

impl Topology {
    /// This machine, as far as this process can use it.
    ///
    /// # Errors
    ///
    /// If sysfs cannot be read.
    pub fn of_this_machine() -> Result<Self> {
        let root = Path::new("/sys");
        let mask = CpuList::allowed().map_err(|error| Error::Failed(error.to_string()))?;
        let system = root.join("devices/system/cpu");
        let (online, isolated) = (online(&system)?, list(&system.join("isolated"))?);
        Self::read(root, &allowed(mask, &online, &isolated, can_run_on))
    }

    /// The machine that a sysfs tree describes, for a process that may use some of its CPUs.
    ///
    /// # Errors
    ///
    /// If the tree cannot be read or no CPU is left.
    pub fn read(root: &Path, allowed: &CpuList) -> Result<Self> {
        let system = root.join("devices/system/cpu");
        let online = online(&system)?;
        let isolated = list(&system.join("isolated"))?;
        let nodes = nodes(&root.join("devices/system/node"))?;
        let mut cpus = Vec::new();
        for &number in online.as_slice() {
            if !allowed.as_slice().contains(&number) {
                continue;
            }
            let folder = system.join(format!("cpu{number}"));
            // A system without NUMA has no nodes, which is as good as one.
            let node = nodes.iter().find(|(_, cpus)| cpus.as_slice().contains(&number));
            cpus.push(Cpu {
                number,
                node: node.map_or(0, |&(node, _)| node),
                llc: last_level_cache(&folder, number)?,
                core: core(&folder, number)?,
                isolated: isolated.as_slice().contains(&number),
            });
        }
        cpus.sort_by_key(|cpu| cpu.number);
        if cpus.is_empty() {
            return Err(Error::Failed(format!("none of the CPUs {online} may be used")));
        }
        let present = list(&system.join("present"))?;
        Ok(Self { cpus, online, present })
    }
}

/// The CPUs that this process may be pinned to. The kernel starts the first process with all CPUs but
/// those that `isolcpus` isolates, and every other one inherits that; so isolated CPUs are missing in
/// the affinity of a process that nobody restricted, which can use them all the same.
fn allowed(
    mask: CpuList,
    online: &CpuList,
    isolated: &CpuList,
    usable: impl Fn(usize) -> bool,
) -> CpuList {
    let of = |list: &CpuList, cpu: usize| list.as_slice().contains(&cpu);
    let inherited = online.as_slice().iter().all(|&cpu| of(&mask, cpu) != of(isolated, cpu));
    if !inherited {
        return mask;
    }
    let more = online.as_slice().iter().copied();
    let more = more.filter(|&cpu| !of(&mask, cpu) && of(isolated, cpu) && usable(cpu));
    mask.as_slice().iter().copied().chain(more.collect::<Vec<_>>()).collect()
}

/// Whether a thread of this process can be pinned to a CPU: tried, as cpusets forbid it too.
fn can_run_on(cpu: usize) -> bool {
    let pinned = thread::spawn(move || CpuList::from_iter([cpu]).pin_this_thread().is_ok());
    pinned.join().unwrap_or(false)
}

/// The CPUs that run.
fn online(system: &Path) -> Result<CpuList> {
    let online = list(&system.join("online"))?;
    if online.is_empty() {
        let path = system.join("online");
        return Err(Error::Failed(format!("{} names no CPU: is /sys mounted?", path.display())));
    }
    Ok(online)
}

/// A file with a list of CPUs; one that is missing or empty is an empty list.
fn list(path: &Path) -> Result<CpuList> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(CpuList::default()),
        Err(error) => return Err(Error::failed(format!("cannot read {}", path.display()), error)),
    };
    match text.trim() {
        // The kernel's words for an empty list, old and new.
        "" | "(null)" => Ok(CpuList::default()),
        text => text
            .parse()
            .map_err(|_| Error::Failed(format!("{}: {text:?} is no list", path.display()))),
    }
}

/// The NUMA nodes with their CPUs.
fn nodes(folder: &Path) -> Result<Vec<(usize, CpuList)>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(Error::failed(format!("cannot read {}", folder.display()), error));
        }
    };
    let mut nodes = Vec::new();
    for entry in entries {
        let entry = entry.context(|| format!("cannot read {}", folder.display()))?;
        let number =
            entry.file_name().to_str().and_then(|name| name.strip_prefix("node")?.parse().ok());
        if let Some(number) = number {
            nodes.push((number, list(&entry.path().join("cpulist"))?));
        }
    }
    Ok(nodes)
}

/// The core, named by its first thread: `core_id` is unique within a package only.
fn core(folder: &Path, number: usize) -> Result<usize> {
    let topology = folder.join("topology");
    let mut threads = list(&topology.join("core_cpus_list"))?;
    if threads.is_empty() {
        // The name until Linux 5.3.
        threads = list(&topology.join("thread_siblings_list"))?;
    }
    Ok(first(&threads, number))
}

/// The last-level cache, named by the first CPU that shares it. Where the kernel tells nothing about
/// caches, as on some virtual machines, the package stands for it.
fn last_level_cache(folder: &Path, number: usize) -> Result<usize> {
    let mut last = None;
    if let Ok(entries) = fs::read_dir(folder.join("cache")) {
        for entry in entries.flatten() {
            let read = |name: &str| fs::read_to_string(entry.path().join(name)).ok();
            let level = read("level").and_then(|text| text.trim().parse::<u32>().ok());
            let holds_data = read("type").is_none_or(|text| text.trim() != "Instruction");
            if let Some(level) = level.filter(|_| holds_data) {
                let sharing = list(&entry.path().join("shared_cpu_list"))?;
                if !sharing.is_empty() && last.as_ref().is_none_or(|(most, _)| level > *most) {
                    last = Some((level, sharing));
                }
            }
        }
    }
    let sharing = match last {
        Some((_, sharing)) => sharing,
        None => {
            let topology = folder.join("topology");
            let package = list(&topology.join("package_cpus_list"))?;
            // The name until Linux 5.3.
            if package.is_empty() { list(&topology.join("core_siblings_list"))? } else { package }
        }
    };
    Ok(first(&sharing, number))
}

/// The least of a list; of an empty one, the CPU that it should have named.
fn first(list: &CpuList, number: usize) -> usize {
    list.as_slice().iter().copied().min().unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(text: &str) -> CpuList {
        if text.is_empty() { CpuList::default() } else { text.parse().expect("a list") }
    }

    #[test]
    fn isolated_cpus_are_usable_by_a_process_that_nobody_restricted() {
        let allowed = |mask, isolated, usable: fn(usize) -> bool| {
            allowed(cpus(mask), &cpus("0-7"), &cpus(isolated), usable).to_string()
        };
        assert_eq!(allowed("0-3", "4-7", |_| true), "0,1,2,3,4,5,6,7");
        // A cpuset that leaves some out.
        assert_eq!(allowed("0-3", "4-7", |cpu| cpu < 6), "0,1,2,3,4,5");
        // Restricted by hand: it meant something.
        assert_eq!(allowed("0-1", "4-7", |_| true), "0,1");
        assert_eq!(allowed("0-7", "", |_| true), "0,1,2,3,4,5,6,7");
        assert_eq!(allowed("4-5", "4-7", |_| true), "4,5");
    }

    #[test]
    fn a_cpu_that_is_not_there_cannot_be_run_on() {
        assert!(!can_run_on(8000));
        let own = CpuList::allowed().expect("affinity");
        assert!(can_run_on(own.as_slice()[0]));
    }
}
