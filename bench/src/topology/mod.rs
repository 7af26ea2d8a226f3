//! The machine's CPUs, and how near one is to another, as sysfs has it.
//!
//! What matters to a receive path is what two CPUs share: everything (the same CPU), a core (SMT
//! siblings), the last-level cache, the memory (a NUMA node), or nothing of it. [`Relation`] is
//! that scale. It is a hierarchy by construction: where the system reports a cache that reaches over
//! two NUMA nodes (sub-NUMA clustering), the two parts count as two caches, since their memory is
//! not the same.

mod sysfs;

use std::collections::BTreeMap;
use std::fmt;

use mpxdp::CpuList;
use serde::{Deserialize, Serialize};

/// What two CPUs share, from all to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// They are one CPU.
    SameCpu,
    /// Two hardware threads of one core.
    Smt,
    /// Different cores under one last-level cache.
    SameLlc,
    /// Different last-level caches, memory of one NUMA node.
    OtherLlc,
    /// Different NUMA nodes.
    OtherNode,
}

impl Relation {
    /// All of them, the nearest first.
    pub const ALL: [Self; 5] =
        [Self::SameCpu, Self::Smt, Self::SameLlc, Self::OtherLlc, Self::OtherNode];

    /// Its name in tables and documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SameCpu => "same-cpu",
            Self::Smt => "smt",
            Self::SameLlc => "same-llc",
            Self::OtherLlc => "other-llc",
            Self::OtherNode => "other-node",
        }
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One CPU that can be used, with what it belongs to. The groups are named by their first CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Its number.
    pub number: usize,
    /// Its NUMA node.
    pub node: usize,
    /// The last-level cache.
    llc: usize,
    /// The core.
    core: usize,
    /// Whether the scheduler leaves it alone (`isolcpus`).
    pub isolated: bool,
}

impl Cpu {
    /// What it shares with another CPU.
    #[must_use]
    pub const fn relation(&self, other: &Self) -> Relation {
        if self.number == other.number {
            Relation::SameCpu
        } else if self.node != other.node {
            Relation::OtherNode
        } else if self.llc != other.llc {
            Relation::OtherLlc
        } else if self.core != other.core {
            Relation::SameLlc
        } else {
            Relation::Smt
        }
    }
}

/// The CPUs of a machine that this process can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// In ascending order, never empty.
    cpus: Vec<Cpu>,
    online: CpuList,
    present: CpuList,
}

impl Topology {
    /// The CPUs that can be used, in ascending order; never empty.
    #[must_use]
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// A CPU by its number, if it can be used.
    #[must_use]
    pub fn cpu(&self, number: usize) -> Option<&Cpu> {
        let at = self.cpus.binary_search_by_key(&number, |cpu| cpu.number).ok()?;
        self.cpus.get(at)
    }

    /// What two CPUs share, if both can be used.
    #[must_use]
    pub fn relation(&self, one: usize, other: usize) -> Option<Relation> {
        Some(self.cpu(one)?.relation(self.cpu(other)?))
    }

    /// Why a CPU cannot be used; none if it can.
    #[must_use]
    pub fn unusable(&self, number: usize) -> Option<String> {
        if self.cpu(number).is_some() {
            None
        } else if self.online.as_slice().contains(&number) {
            Some(format!("CPU {number} may not be used by this process"))
        } else if self.present.as_slice().contains(&number) {
            Some(format!("CPU {number} is offline"))
        } else {
            Some(format!("there is no CPU {number}"))
        }
    }

    /// Why no two CPUs here have this relation; none if there are two that have.
    #[must_use]
    pub fn lacks(&self, relation: Relation) -> Option<&'static str> {
        let found = self.cpus.iter().enumerate().any(|(n, one)| {
            // A CPU is related to itself too.
            self.cpus[n..].iter().any(|other| one.relation(other) == relation)
        });
        if found {
            return None;
        }
        Some(match relation {
            Relation::SameCpu => "there is no usable CPU",
            Relation::Smt => "no usable core has two threads (no SMT)",
            Relation::SameLlc => "no two usable cores share a last-level cache",
            Relation::OtherLlc => "no usable NUMA node has two last-level caches",
            Relation::OtherNode => "the usable CPUs are in one NUMA node",
        })
    }

    /// The most threads that a usable core has.
    #[must_use]
    pub fn threads_per_core(&self) -> usize {
        self.largest(|cpu| (cpu.node, cpu.llc, cpu.core))
    }

    /// The number of cores, last-level caches and NUMA nodes with a usable CPU.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let count = |key: fn(&Cpu) -> (usize, usize, usize)| self.groups(key).len();
        Counts {
            cpus: self.cpus.len(),
            cores: count(|cpu| (cpu.node, cpu.llc, cpu.core)),
            caches: count(|cpu| (cpu.node, cpu.llc, 0)),
            nodes: count(|cpu| (cpu.node, 0, 0)),
        }
    }

    fn largest(&self, key: fn(&Cpu) -> (usize, usize, usize)) -> usize {
        self.groups(key).into_values().max().unwrap_or(0)
    }

    /// How many CPUs there are of each value of a key.
    fn groups(
        &self,
        key: fn(&Cpu) -> (usize, usize, usize),
    ) -> BTreeMap<(usize, usize, usize), usize> {
        let mut groups = BTreeMap::new();
        for cpu in &self.cpus {
            *groups.entry(key(cpu)).or_insert(0) += 1;
        }
        groups
    }
}

/// The size of a machine, as far as this process can use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Hardware threads.
    pub cpus: usize,
    /// Cores.
    pub cores: usize,
    /// Last-level caches.
    pub caches: usize,
    /// NUMA nodes.
    pub nodes: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpus, cores, caches, nodes } = *self;
        let of = |n: usize, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
        let (cpus, cores) = (of(cpus, "CPU"), of(cores, "core"));
        let (caches, nodes) = (of(caches, "last-level cache"), of(nodes, "NUMA node"));
        write!(f, "{cpus}, {cores}, {caches}, {nodes}")
    }
}

#[cfg(test)]
pub(crate) mod fabricated;
#[cfg(test)]
mod tests;
