//! Which stage limits the rate.
//!
//! Every stage that has work runs, so the one that limits is never out of it: its CPU is full. How
//! busy a stage was is the CPU time of its threads (NIC processing in softirqs: the softirq time of
//! its CPU), as a fraction of one CPU; a worker that spins without work counts as idle. Where stages
//! share a CPU, it is the CPU that limits, and the shares say who would gain from leaving it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// From where on a CPU counts as full. A thread that is never out of work has close to all of its
/// CPU; what is missing then is other processes, the hypervisor's share, and the kernel's booking of
/// softirqs by whole clock ticks.
pub const FULL: f64 = 0.9;

/// From which part of a CPU's load on a stage counts as the only one there.
const ALONE: f64 = 0.9;

/// A stage on the way from the sender's buffer to the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The sending process; not a stage of the receiver, but it can be the limit.
    Sender,
    /// The NIC's receive processing: a napi thread, or softirqs.
    NicProcessing,
    /// mpxdp's worker.
    Worker,
    /// The reading thread. In a kernel receiver it copies, and does protocol work too.
    Reader,
}

impl Stage {
    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::NicProcessing => "NIC processing",
            Self::Worker => "worker",
            Self::Reader => "reader",
        }
    }
}

/// How busy a stage was, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// The stage.
    pub stage: Stage,
    /// Its CPUs. The load is taken to be spread over them evenly. None: it is on another host, on a CPU
    /// of its own.
    pub cpus: Vec<usize>,
    /// CPUs kept busy.
    pub busy: f64,
}

/// What a stage takes of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The stage.
    pub stage: Stage,
    /// The fraction of the CPU's time.
    pub busy: f64,
}

/// How busy the stages keep a CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuLoad {
    /// The CPU.
    pub cpu: usize,
    /// The fraction of its time that the stages took, at most 1 but for errors of measurement.
    pub busy: f64,
    /// Of which stages, the largest first.
    pub shares: Vec<Share>,
    /// The fraction of its time that anything took, if that is known: other processes, and what the
    /// kernel did for nobody in particular.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
}

/// What limits the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// A stage, which has a CPU all but for itself.
    Stage(Stage),
    /// A CPU that stages share.
    SharedCpu(usize),
    /// A CPU that other processes, or the kernel, keep full more than the stages do.
    OthersOnCpu(usize),
    /// No CPU is full: the window, the links, or wake-ups.
    NoCpu,
}

/// What limits the rate, and the figures that say so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bottleneck {
    /// What limits.
    pub limit: Limit,
    /// All CPUs that the stages run on, the fullest first.
    pub cpus: Vec<CpuLoad>,
}

impl Bottleneck {
    /// Finds it; none without loads. `totals` is how busy CPUs were with anything, for those of which
    /// that is known.
    #[must_use]
    pub fn find(loads: &[Load], totals: &[(usize, f64)]) -> Option<Self> {
        let mut by_cpu: BTreeMap<usize, Vec<Share>> = BTreeMap::new();
        for Load { stage, cpus, busy } in loads {
            for cpu in cpus {
                let busy = busy / cpus.len() as f64;
                by_cpu.entry(*cpu).or_default().push(Share { stage: *stage, busy });
            }
        }
        let mut cpus: Vec<CpuLoad> = by_cpu
            .into_iter()
            .map(|(cpu, mut shares)| {
                shares.sort_by(|a, b| b.busy.total_cmp(&a.busy));
                let total = totals.iter().find(|(other, _)| *other == cpu);
                CpuLoad {
                    cpu,
                    busy: shares.iter().map(|share| share.busy).sum(),
                    shares,
                    total: total.map(|&(_, busy)| busy),
                }
            })
            .collect();
        cpus.sort_by(|a, b| b.busy.total_cmp(&a.busy));
        let fullest = cpus.first()?;
        let elsewhere = loads.iter().filter(|load| load.cpus.is_empty());
        let elsewhere = elsewhere.max_by(|a, b| a.busy.total_cmp(&b.busy));
        let full_of_others = cpus.iter().find(|load| load.total.is_some_and(|busy| busy >= FULL));
        let limit = match fullest.shares.first() {
            _ if elsewhere.is_some_and(|load| load.busy >= FULL.max(fullest.busy)) => {
                Limit::Stage(elsewhere?.stage)
            }
            _ if fullest.busy < FULL => {
                full_of_others.map_or(Limit::NoCpu, |load| Limit::OthersOnCpu(load.cpu))
            }
            Some(share) if share.busy >= ALONE * fullest.busy => Limit::Stage(share.stage),
            _ => Limit::SharedCpu(fullest.cpu),
        };
        Some(Self { limit, cpus })
    }

    /// In a word or two, for a table: `worker`, `CPU 1: NIC processing+worker`.
    #[must_use]
    pub fn label(&self) -> String {
        match self.limit {
            Limit::Stage(stage) => stage.name().to_owned(),
            Limit::NoCpu => "no CPU is full".to_owned(),
            Limit::OthersOnCpu(cpu) => format!("CPU {cpu}: others"),
            Limit::SharedCpu(cpu) => {
                let load = self.cpus.iter().find(|load| load.cpu == cpu);
                let shares = load.map_or(&[][..], |load| &load.shares);
                let stages: Vec<&str> = shares.iter().map(|share| share.stage.name()).collect();
                format!("CPU {cpu}: {}", stages.join("+"))
            }
        }
    }

    /// All CPUs with their stages: `CPU 1 98 % (worker 97, reader 1), CPU 0 62 % (NIC processing)`.
    #[must_use]
    pub fn loads(&self) -> String {
        let cpu = |CpuLoad { cpu, busy, shares, total }: &CpuLoad| {
            let alone = shares.len() == 1;
            let share = |Share { stage, busy }: &Share| match alone {
                true => stage.name().to_owned(),
                false => format!("{} {}", stage.name(), percent(*busy)),
            };
            let shares: Vec<String> = shares.iter().map(share).collect();
            let total = total.filter(|total| *total >= FULL && *busy < FULL);
            let total =
                total.map_or_else(String::new, |all| format!(" of {} in all", percent(all)));
            format!("CPU {cpu} {} %{total} ({})", percent(*busy), shares.join(", "))
        };
        let cpus: Vec<String> = self.cpus.iter().map(cpu).collect();
        cpus.join(", ")
    }
}

/// Whole per cents.
fn percent(fraction: f64) -> u32 {
    // What is counted in ticks may come out a little below zero.
    (fraction * 100.0).round().clamp(0.0, 1e6) as u32
}

impl fmt::Display for Bottleneck {
    /// The label, and how busy all CPUs were.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.label(), self.loads())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(stage: Stage, cpus: &[usize], busy: f64) -> Load {
        Load { stage, cpus: cpus.to_vec(), busy }
    }

    #[test]
    fn the_stage_on_the_full_cpu_limits() {
        for (stage, busy) in [
            (Stage::Sender, [0.98, 0.5, 0.6, 0.1]),
            (Stage::NicProcessing, [0.5, 0.97, 0.6, 0.1]),
            (Stage::Worker, [0.7, 0.5, 0.99, 0.1]),
            (Stage::Reader, [0.7, 0.5, 0.6, 0.93]),
        ] {
            let stages = [Stage::Sender, Stage::NicProcessing, Stage::Worker, Stage::Reader];
            let loads: Vec<Load> = stages
                .into_iter()
                .zip(busy)
                .enumerate()
                .map(|(cpu, (stage, busy))| load(stage, &[cpu], busy))
                .collect();
            let found = Bottleneck::find(&loads, &[]).expect("there are loads");
            assert_eq!(found.limit, Limit::Stage(stage));
            assert_eq!(found.label(), stage.name());
        }
    }

    #[test]
    fn a_cpu_that_stages_share_limits_as_a_whole() {
        let loads = [
            load(Stage::Sender, &[0], 0.7),
            load(Stage::NicProcessing, &[1], 0.4),
            load(Stage::Worker, &[1], 0.5),
            load(Stage::Reader, &[1], 0.08),
        ];
        let found = Bottleneck::find(&loads, &[]).expect("there are loads");
        assert_eq!(found.limit, Limit::SharedCpu(1));
        assert_eq!(
            found.to_string(),
            "CPU 1: worker+NIC processing+reader; CPU 1 98 % (worker 50, NIC processing 40, reader \
             8), CPU 0 70 % (sender)"
        );
    }

    #[test]
    fn a_stage_that_shares_its_cpu_with_next_to_nothing_limits_by_itself() {
        let loads = [load(Stage::Worker, &[1], 0.96), load(Stage::Reader, &[1], 0.03)];
        assert_eq!(
            Bottleneck::find(&loads, &[]).map(|b| b.limit),
            Some(Limit::Stage(Stage::Worker))
        );
    }

    #[test]
    fn if_no_cpu_is_full_no_stage_is_blamed() {
        let loads = [load(Stage::Sender, &[0], 0.7), load(Stage::Worker, &[1], 0.89)];
        let found = Bottleneck::find(&loads, &[]).expect("there are loads");
        assert_eq!(found.limit, Limit::NoCpu);
        assert_eq!(found.cpus[0].cpu, 1);
        assert_eq!(Bottleneck::find(&[], &[]), None);
    }

    #[test]
    fn a_stage_on_several_cpus_fills_each_by_its_part() {
        let loads = [
            load(Stage::Worker, &[2, 3], 1.4),
            load(Stage::NicProcessing, &[2, 3], 0.5),
            load(Stage::Reader, &[1], 0.2),
        ];
        let found = Bottleneck::find(&loads, &[]).expect("there are loads");
        assert_eq!(found.limit, Limit::SharedCpu(2));
        assert!((found.cpus[0].busy - 0.95).abs() < 1e-9);
        assert!((found.cpus[1].busy - 0.95).abs() < 1e-9);
    }

    #[test]
    fn a_cpu_that_others_fill_is_none_of_the_stages_fault() {
        let loads = [load(Stage::Sender, &[0], 0.3), load(Stage::Worker, &[1], 0.5)];
        let found = Bottleneck::find(&loads, &[(1, 0.99)]).expect("there are loads");
        assert_eq!(found.limit, Limit::OthersOnCpu(1));
        assert_eq!(
            found.to_string(),
            "CPU 1: others; CPU 1 50 % of 99 in all (worker), CPU 0 30 % (sender)"
        );
        // Where a stage fills its CPU, that limits, whoever else is busy elsewhere.
        let loads = [load(Stage::Sender, &[0], 0.3), load(Stage::Worker, &[1], 0.95)];
        let found = Bottleneck::find(&loads, &[(1, 0.99), (0, 0.99)]).expect("there are loads");
        assert_eq!(found.limit, Limit::Stage(Stage::Worker));
        let found = Bottleneck::find(&loads[..1], &[(0, 0.4)]).expect("there are loads");
        assert_eq!(found.limit, Limit::NoCpu);
    }

    #[test]
    fn a_sender_on_another_host_limits_if_it_is_the_fullest() {
        let remote = |busy| load(Stage::Sender, &[], busy);
        let find = |sender, worker| {
            Bottleneck::find(&[remote(sender), load(Stage::Worker, &[1], worker)], &[])
        };
        let limit = |sender, worker| find(sender, worker).map(|found| found.limit);
        assert_eq!(limit(0.97, 0.6), Some(Limit::Stage(Stage::Sender)));
        assert_eq!(limit(0.93, 0.97), Some(Limit::Stage(Stage::Worker)));
        assert_eq!(limit(0.7, 0.6), Some(Limit::NoCpu));
        assert_eq!(find(0.97, 0.6).map(|found| found.cpus.len()), Some(1));
    }
}
