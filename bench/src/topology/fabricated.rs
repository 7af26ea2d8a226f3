//! Sysfs trees of machines that are not here.

use std::fs;
use std::path::Path;

use mpxdp::CpuList;
use tempfile::TempDir;

use super::Topology;

/// A machine to write a sysfs tree of.
pub(crate) struct Machine {
    /// The CPUs of each core; the first CPU of a core names it.
    pub(crate) cores: Vec<Vec<usize>>,
    /// The CPUs of each last-level cache; none: the kernel tells nothing about caches.
    pub(crate) caches: Vec<Vec<usize>>,
    pub(crate) packages: Vec<Vec<usize>>,
    /// The CPUs of each NUMA node; none: no NUMA.
    pub(crate) nodes: Vec<Vec<usize>>,
    pub(crate) offline: Vec<usize>,
    pub(crate) isolated: Vec<usize>,
}

impl Machine {
    /// Two sockets with `cores` cores of two threads each, numbered as on such machines: the second
    /// threads of all cores come after all first ones.
    pub(crate) fn two_socket_smt(cores: usize) -> Self {
        let all = 2 * cores;
        let socket = |socket: usize| {
            let first = socket * cores..(socket + 1) * cores;
            first.clone().chain(first.map(|cpu| cpu + all)).collect::<Vec<_>>()
        };
        let sockets = vec![socket(0), socket(1)];
        Self {
            cores: (0..all).map(|cpu| vec![cpu, cpu + all]).collect(),
            caches: sockets.clone(),
            packages: sockets.clone(),
            nodes: sockets,
            offline: Vec::new(),
            isolated: Vec::new(),
        }
    }

    /// One socket of `caches` core complexes with `cores` cores each, without SMT.
    pub(crate) fn several_caches(caches: usize, cores: usize) -> Self {
        let all = caches * cores;
        let complex = |n: usize| (n * cores..(n + 1) * cores).collect::<Vec<_>>();
        Self {
            cores: (0..all).map(|cpu| vec![cpu]).collect(),
            caches: (0..caches).map(complex).collect(),
            packages: vec![(0..all).collect()],
            nodes: vec![(0..all).collect()],
            offline: Vec::new(),
            isolated: Vec::new(),
        }
    }

    /// A small virtual machine: cores without SMT under one cache.
    pub(crate) fn small(cpus: usize) -> Self {
        Self::several_caches(1, cpus)
    }

    /// Writes the tree and reads it for a process that may use all CPUs, or some.
    pub(crate) fn topology(&self, allowed: Option<&str>) -> Topology {
        let folder = TempDir::new().expect("a folder");
        self.write(folder.path());
        let present = self.present();
        let allowed = allowed
            .map_or_else(|| present.iter().copied().collect(), |list| list.parse().expect("CPUs"));
        Topology::read(folder.path(), &allowed).expect("it can be read")
    }

    fn present(&self) -> Vec<usize> {
        let mut all: Vec<usize> = self.cores.iter().flatten().copied().collect();
        all.sort_unstable();
        all
    }

    /// Writes the tree as the kernel would: a CPU that is offline has no topology and no caches, and
    /// is in nobody's list.
    pub(crate) fn write(&self, root: &Path) {
        let system = root.join("devices/system/cpu");
        let present = self.present();
        let runs = |cpu: &usize| !self.offline.contains(cpu);
        let list = |cpus: &[usize]| {
            let cpus: CpuList = cpus.iter().copied().filter(runs).collect();
            if cpus.is_empty() { "\n".to_owned() } else { format!("{cpus}\n") }
        };
        let put = |path: &Path, text: &str| {
            fs::create_dir_all(path.parent().expect("in a folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        put(&system.join("online"), &list(&present));
        put(&system.join("isolated"), &list(&self.isolated));
        let all: CpuList = present.iter().copied().collect();
        put(&system.join("present"), &format!("{all}\n"));
        let group = |groups: &[Vec<usize>], cpu: usize| {
            groups.iter().find(|group| group.contains(&cpu)).map(|group| list(group))
        };
        for &cpu in &present {
            let folder = system.join(format!("cpu{cpu}"));
            fs::create_dir_all(&folder).expect("made");
            if !runs(&cpu) {
                continue;
            }
            let core = group(&self.cores, cpu).expect("each CPU has a core");
            put(&folder.join("topology/core_cpus_list"), &core);
            let package = group(&self.packages, cpu).expect("each CPU has a package");
            put(&folder.join("topology/package_cpus_list"), &package);
            if let Some(shared) = group(&self.caches, cpu) {
                // The first-level ones share a core, and an instruction cache is none for data.
                for (index, level, kind, sharing) in [
                    (0, 1, "Data", &core),
                    (1, 1, "Instruction", &core),
                    (2, 2, "Unified", &core),
                    (3, 3, "Unified", &shared),
                ] {
                    let cache = folder.join(format!("cache/index{index}"));
                    put(&cache.join("level"), &format!("{level}\n"));
                    put(&cache.join("type"), &format!("{kind}\n"));
                    put(&cache.join("shared_cpu_list"), sharing);
                }
            }
        }
        for (number, node) in self.nodes.iter().enumerate() {
            let folder = root.join(format!("devices/system/node/node{number}"));
            put(&folder.join("cpulist"), &list(node));
        }
    }
}
