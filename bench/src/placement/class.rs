//! Placements up to the topology's symmetry.
//!
//! On a machine with a hundred CPUs there are a million ways to place three stages, of which nearly
//! all are alike: what matters is what the stages' CPUs share. A [`Class`] says that and nothing
//! else, so it is the same on every machine; `realise` finds CPUs for it, or says what the machine
//! lacks.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::topology::Relation;

/// Placements that are the same up to which CPUs they name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Class {
    /// Whether links share CPUs or have their own.
    pub shape: Shape,
    /// What the NIC's processing and the reader share.
    pub nic_reader: Relation,
    /// What mpxdp's worker shares with the others; none for a receiver in the kernel, which has no
    /// worker.
    pub worker: Option<WorkerRelations>,
}

/// What a worker shares with the stages around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkerRelations {
    /// With the NIC's processing.
    pub nic: Relation,
    /// With the reader.
    pub reader: Relation,
}

/// Whether links share CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// All NIC processing on one CPU, and one worker.
    Together,
    /// Each link has a CPU for its NIC processing, and a worker. The reader stands to those of the
    /// first link as the class says: with several subflows, "softirqs running on multiple CPUs, one
    /// of them also hosting the user-space process".
    Spread,
}

/// The scenarios of the 2021 message that the benchmark's first table is about: one or several
/// subflows, NIC processing and reader on the same CPU or on different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
pub enum Scenario {
    /// One subflow, one CPU.
    OneTogether,
    /// Several subflows, one CPU.
    SeveralTogether,
    /// One subflow, different CPUs.
    OneApart,
    /// Several subflows, different CPUs.
    SeveralApart,
}

impl From<Scenario> for u8 {
    fn from(scenario: Scenario) -> Self {
        match scenario {
            Scenario::OneTogether => 1,
            Scenario::SeveralTogether => 2,
            Scenario::OneApart => 3,
            Scenario::SeveralApart => 4,
        }
    }
}

impl TryFrom<u8> for Scenario {
    type Error = String;

    fn try_from(number: u8) -> Result<Self, String> {
        match number {
            1 => Ok(Self::OneTogether),
            2 => Ok(Self::SeveralTogether),
            3 => Ok(Self::OneApart),
            4 => Ok(Self::SeveralApart),
            _ => Err(format!("scenario {number}: they are 1 to 4")),
        }
    }
}

impl Class {
    /// All classes of a receiver, those of the scenarios first and then by how likely they are to be
    /// good: near before far, few CPUs before many. With one link there is nothing to spread.
    #[must_use]
    pub fn all(with_worker: bool, links: u32) -> Vec<Self> {
        let shapes =
            if links > 1 { &[Shape::Together, Shape::Spread][..] } else { &[Shape::Together] };
        let mut all = Vec::new();
        for &shape in shapes {
            for nic_reader in Relation::ALL {
                if !with_worker {
                    all.push(Self { shape, nic_reader, worker: None });
                    continue;
                }
                for nic in Relation::ALL {
                    for reader in Relation::ALL {
                        if is_triangle(nic, reader, nic_reader) {
                            let worker = Some(WorkerRelations { nic, reader });
                            all.push(Self { shape, nic_reader, worker });
                        }
                    }
                }
            }
        }
        all.sort_by_key(Self::order);
        all
    }

    /// The stages' relations, each pair once.
    pub(super) fn relations(&self) -> Vec<Relation> {
        let worker = self.worker.map(|worker| [worker.nic, worker.reader]);
        worker.into_iter().flatten().chain([self.nic_reader]).collect()
    }

    /// How many CPUs the stages of one link need.
    pub(super) fn cpus(&self) -> usize {
        let apart = |relation| usize::from(relation != Relation::SameCpu);
        match self.worker {
            None => 1 + apart(self.nic_reader),
            Some(WorkerRelations { nic, reader }) => {
                // The pairs that are on one CPU: all three, one, or none.
                let pairs = apart(nic) + apart(reader) + apart(self.nic_reader);
                [1, 1, 2, 3][pairs]
            }
        }
    }

    /// Its scenario at a number of subflows, if it is one: everything on one CPU, or the NIC's
    /// processing apart from all that the user-space process does, at whatever distance.
    #[must_use]
    pub fn scenario(&self, subflows: u32) -> Option<Scenario> {
        self.is_scenario().then_some(match (subflows > 1, self.nic_reader == Relation::SameCpu) {
            (false, true) => Scenario::OneTogether,
            (true, true) => Scenario::SeveralTogether,
            (false, false) => Scenario::OneApart,
            (true, false) => Scenario::SeveralApart,
        })
    }

    fn is_scenario(&self) -> bool {
        self.worker.is_none_or(|worker| worker.reader == Relation::SameCpu)
    }

    fn order(&self) -> impl Ord + use<> {
        // An SMT sibling is nearer than a core, but takes from the other's speed.
        let rank = |relation: Relation| match relation {
            Relation::SameCpu => 0,
            Relation::SameLlc => 1,
            Relation::Smt => 2,
            Relation::OtherLlc => 3,
            Relation::OtherNode => 4,
        };
        let ranks: Vec<u32> = self.relations().into_iter().map(rank).collect();
        let (farthest, sum) = (ranks.iter().copied().max(), ranks.iter().sum::<u32>());
        let near = farthest.is_some_and(|farthest| farthest <= rank(Relation::SameLlc));
        let first = match (near && self.is_scenario(), self.shape) {
            (true, Shape::Together) => 0,
            (true, Shape::Spread) => 1,
            (false, _) => 2,
        };
        (first, farthest, self.shape, !self.is_scenario(), self.cpus(), sum, ranks)
    }
}

/// Whether three CPUs can have these relations: of the three, the two farthest are equal.
fn is_triangle(a: Relation, b: Relation, c: Relation) -> bool {
    let mut sides = [a, b, c];
    sides.sort_unstable();
    sides[1] == sides[2]
}

impl fmt::Display for Class {
    /// Stages on one CPU are joined by `+`; for the others follows what each pair shares:
    /// `nic+worker, reader same-llc`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SAME: Relation = Relation::SameCpu;
        match (self.nic_reader, self.worker) {
            (SAME, None) => f.write_str("nic+reader")?,
            (far, None) => write!(f, "nic, reader {far}")?,
            (SAME, Some(WorkerRelations { nic: SAME, .. })) => f.write_str("nic+worker+reader")?,
            (SAME, Some(WorkerRelations { nic, .. })) => write!(f, "nic+reader, worker {nic}")?,
            (far, Some(WorkerRelations { nic: SAME, .. })) => {
                write!(f, "nic+worker, reader {far}")?;
            }
            (far, Some(WorkerRelations { reader: SAME, .. })) => {
                write!(f, "nic, worker+reader {far}")?;
            }
            (far, Some(WorkerRelations { nic, reader })) => {
                write!(f, "nic, worker {nic}, reader {far}")?;
                if reader != far.max(nic) {
                    write!(f, " ({reader} of worker)")?;
                }
            }
        }
        match self.shape {
            Shape::Together => Ok(()),
            Shape::Spread => f.write_str(", by link"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn there_are_as_many_classes_as_hierarchies_of_three() {
        // All alike: 5. Two far and one nearer: three positions, and 0 to 3 nearer relations.
        assert_eq!(Class::all(true, 1).len(), 5 + 3 * (1 + 2 + 3 + 4));
        assert_eq!(Class::all(false, 1).len(), 5);
        assert_eq!(Class::all(true, 2).len(), 70);
        assert_eq!(Class::all(false, 2).len(), 10);
    }

    #[test]
    fn every_class_has_its_own_name() {
        for with_worker in [false, true] {
            let all = Class::all(with_worker, 2);
            let names: HashSet<String> = all.iter().map(ToString::to_string).collect();
            assert_eq!(names.len(), all.len());
        }
    }

    #[test]
    fn names_say_who_shares_a_cpu_and_what_the_others_share() {
        let names: Vec<String> = Class::all(true, 1).iter().map(ToString::to_string).collect();
        assert_eq!(names[0], "nic+worker+reader");
        assert_eq!(names[1], "nic, worker+reader same-llc");
        for name in [
            "nic+worker, reader smt",
            "nic+reader, worker other-node",
            "nic, worker same-llc, reader same-llc",
            "nic, worker same-llc, reader same-llc (smt of worker)",
            "nic, worker smt, reader other-llc",
            "nic, worker other-node, reader same-llc",
        ] {
            assert!(names.iter().any(|other| other == name), "{name}: {names:#?}");
        }
        let kernel: Vec<String> = Class::all(false, 2).iter().map(ToString::to_string).collect();
        assert_eq!(
            kernel[..4],
            [
                "nic+reader",
                "nic, reader same-llc",
                "nic+reader, by link",
                "nic, reader same-llc, by link"
            ]
        );
    }

    #[test]
    fn the_scenarios_come_first() {
        for (with_worker, links, count) in
            [(true, 1, 2), (false, 1, 2), (true, 3, 4), (false, 3, 4)]
        {
            let all = Class::all(with_worker, links);
            for subflows in [1, 4] {
                let scenarios: Vec<_> = all.iter().map(|class| class.scenario(subflows)).collect();
                assert!(scenarios[..count].iter().all(Option::is_some));
            }
        }
        let numbers = |subflows| {
            let all = Class::all(true, 1);
            let scenarios = all.iter().filter_map(|class| class.scenario(subflows));
            scenarios.map(u8::from).collect::<Vec<_>>()
        };
        // The farther forms of the second come later.
        assert_eq!(numbers(1), [1, 3, 3, 3, 3]);
        assert_eq!(numbers(2), [2, 4, 4, 4, 4]);
    }

    #[test]
    fn a_class_knows_how_many_cpus_it_needs() {
        let of = |name: &str| {
            let all = [Class::all(true, 1), Class::all(false, 1)].concat();
            all.iter().find(|class| class.to_string() == name).map(Class::cpus)
        };
        assert_eq!(of("nic+worker+reader"), Some(1));
        assert_eq!(of("nic+worker, reader smt"), Some(2));
        assert_eq!(of("nic, worker same-llc, reader same-llc"), Some(3));
        assert_eq!(of("nic+reader"), Some(1));
        assert_eq!(of("nic, reader other-node"), Some(2));
    }
}
