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
    /// Its CPUs. The load is taken to be spread over them evenly.
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
}

/// What limits the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// A stage, which has a CPU all but for itself.
    Stage(Stage),
    /// A CPU that stages share.
    SharedCpu(usize),
    /// No CPU is full: the window, the links, wake-ups, or other processes.
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
    /// Finds it; none without loads.
    #[must_use]
    pub fn find(loads: &[Load]) -> Option<Self> {
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
                CpuLoad { cpu, busy: shares.iter().map(|share| share.busy).sum(), shares }
            })
            .collect();
        cpus.sort_by(|a, b| b.busy.total_cmp(&a.busy));
        let fullest = cpus.first()?;
        let limit = match fullest.shares.first() {
            _ if fullest.busy < FULL => Limit::NoCpu,
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
            Limit::SharedCpu(cpu) => {
                let load = self.cpus.iter().find(|load| load.cpu == cpu);
                let shares = load.map_or(&[][..], |load| &load.shares);
                let stages: Vec<&str> = shares.iter().map(|share| share.stage.name()).collect();
                format!("CPU {cpu}: {}", stages.join("+"))
            }
        }
    }
}

impl fmt::Display for Bottleneck {
    /// The label, and all CPUs with their stages: `worker; CPU 1 98 % (worker 97, reader 1), CPU 0 62 %
    /// (NIC processing)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label())?;
        for (n, CpuLoad { cpu, busy, shares }) in self.cpus.iter().enumerate() {
            let separator = if n == 0 { ";" } else { "," };
            write!(f, "{separator} CPU {cpu} {:.0} % (", busy * 100.0)?;
            for (n, share) in shares.iter().enumerate() {
                let separator = if n == 0 { "" } else { ", " };
                write!(f, "{separator}{}", share.stage.name())?;
                if shares.len() > 1 {
                    write!(f, " {:.0}", share.busy * 100.0)?;
                }
            }
            f.write_str(")")?;
        }
        Ok(())
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
            let found = Bottleneck::find(&loads).expect("there are loads");
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
        let found = Bottleneck::find(&loads).expect("there are loads");
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
        assert_eq!(Bottleneck::find(&loads).map(|b| b.limit), Some(Limit::Stage(Stage::Worker)));
    }

    #[test]
    fn if_no_cpu_is_full_no_stage_is_blamed() {
        let loads = [load(Stage::Sender, &[0], 0.7), load(Stage::Worker, &[1], 0.89)];
        let found = Bottleneck::find(&loads).expect("there are loads");
        assert_eq!(found.limit, Limit::NoCpu);
        assert_eq!(found.cpus[0].cpu, 1);
        assert_eq!(Bottleneck::find(&[]), None);
    }

    #[test]
    fn a_stage_on_several_cpus_fills_each_by_its_part() {
        let loads = [
            load(Stage::Worker, &[2, 3], 1.4),
            load(Stage::NicProcessing, &[2, 3], 0.5),
            load(Stage::Reader, &[1], 0.2),
        ];
        let found = Bottleneck::find(&loads).expect("there are loads");
        assert_eq!(found.limit, Limit::SharedCpu(2));
        assert!((found.cpus[0].busy - 0.95).abs() < 1e-9);
        assert!((found.cpus[1].busy - 0.95).abs() < 1e-9);
    }
}
