//! How the CPUs lie: threads of a core, shared caches, memory nodes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// How the CPUs of the machine lie. Lists of CPUs are in the kernel's notation, `0-3,8`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// CPUs that are online.
    pub online: String,
    /// The number of cores; with simultaneous multithreading fewer than CPUs.
    pub cores: usize,
    /// CPUs that share a core, a list for each core; empty if no core has more than one.
    #[serde(default)]
    pub siblings: Vec<String>,
    /// The last-level caches.
    #[serde(default)]
    pub last_level_caches: Vec<Cache>,
    /// CPUs of each memory node.
    #[serde(default)]
    pub numa_nodes: Vec<String>,
}

/// A cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cache {
    /// Its level.
    pub level: u32,
    /// Its size, as the kernel writes it: `32768K`.
    pub size: String,
    /// The CPUs that share it.
    pub cpus: String,
}

impl Topology {
    /// Of this machine.
    #[must_use]
    pub fn of_this_machine() -> Self {
        Self::under(Path::new("/sys/devices/system"))
    }

    fn under(system: &Path) -> Self {
        let read = |path: &Path| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let numbered = |folder: &Path, prefix: &str| {
            let names = fs::read_dir(folder).into_iter().flatten().flatten();
            let mut numbers: Vec<usize> = names
                .filter_map(|entry| entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok())
                .collect();
            numbers.sort_unstable();
            numbers
        };
        let cpus = system.join("cpu");
        let mut cores = BTreeSet::new();
        let mut caches = BTreeSet::new();
        for number in numbered(&cpus, "cpu") {
            let cpu = cpus.join(format!("cpu{number}"));
            // A CPU that is offline has no topology.
            let Some(core) = read(&cpu.join("topology/thread_siblings_list")) else { continue };
            cores.insert(core);
            let cache = cpu.join("cache");
            let all = numbered(&cache, "index").into_iter().filter_map(|index| {
                let cache = cache.join(format!("index{index}"));
                Some(Cache {
                    level: read(&cache.join("level"))?.parse().ok()?,
                    size: read(&cache.join("size"))?,
                    cpus: read(&cache.join("shared_cpu_list"))?,
                })
            });
            caches.extend(all.max_by_key(|cache| cache.level));
        }
        let nodes = system.join("node");
        let node = |number| read(&nodes.join(format!("node{number}/cpulist")));
        Self {
            online: read(&cpus.join("online")).unwrap_or_default(),
            cores: cores.len(),
            siblings: cores.into_iter().filter(|core| core.contains([',', '-'])).collect(),
            last_level_caches: caches.into_iter().collect(),
            numa_nodes: numbered(&nodes, "node").into_iter().filter_map(node).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_caches_and_nodes_are_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("has one")).expect("a folder");
            fs::write(path, text).expect("a file");
        };
        write("cpu/online", "0-3\n");
        for cpu in 0..4 {
            let (core, half) = (cpu % 2, format!("{}-{}", cpu / 2 * 2, cpu / 2 * 2 + 1));
            write(
                &format!("cpu/cpu{cpu}/topology/thread_siblings_list"),
                &format!("{core},{}\n", core + 2),
            );
            for (index, level, cpus) in [(0, "1\n", "0\n"), (3, "3\n", half.as_str())] {
                let cache = format!("cpu/cpu{cpu}/cache/index{index}");
                write(&format!("{cache}/level"), level);
                write(&format!("{cache}/size"), "32K\n");
                write(&format!("{cache}/shared_cpu_list"), cpus);
            }
        }
        write("cpu/cpu4/online", "0\n");
        write("node/node0/cpulist", "0-3\n");
        let topology = Topology::under(folder.path());
        let cache = |cpus: &str| Cache { level: 3, size: "32K".into(), cpus: cpus.into() };
        let expected = Topology {
            online: "0-3".into(),
            cores: 2,
            siblings: vec!["0,2".into(), "1,3".into()],
            last_level_caches: vec![cache("0-1"), cache("2-3")],
            numa_nodes: vec!["0-3".into()],
        };
        assert_eq!(topology, expected);
    }

    #[test]
    fn a_machine_that_tells_nothing_has_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(Topology::under(folder.path()), Topology::default());
    }
}
