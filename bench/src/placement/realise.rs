//! From a class of placements to CPUs of this machine.

use std::fmt;

use super::class::{Class, Shape, WorkerRelations};
use crate::topology::{Cpu, Relation, Topology};

/// CPUs for each stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seats {
    /// Where the NIC's processing runs: one CPU, or one for each link.
    pub nic: Vec<usize>,
    /// The workers; none for a receiver in the kernel.
    pub workers: Vec<usize>,
    /// The reading thread.
    pub reader: usize,
}

impl Seats {
    /// All CPUs in use, each once, in ascending order.
    #[must_use]
    pub fn cpus(&self) -> Vec<usize> {
        let all = self.nic.iter().chain(&self.workers).chain([&self.reader]);
        let mut all: Vec<usize> = all.copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// How many stages, counted once for each link, have this CPU.
    fn stages_on(&self, cpu: usize) -> usize {
        let all = self.nic.iter().chain(&self.workers).chain([&self.reader]);
        all.filter(|&&other| other == cpu).count()
    }

    /// A CPU for a sender on the same machine: one that nobody has, as far from a shared core and
    /// from the workers' caches as can be had within the node. If all are taken, the sender shares
    /// with the NIC's processing where that is alone, which is where veth runs it by itself; else
    /// with the reader where that is alone; else where there is least.
    #[must_use]
    pub fn sender(&self, topology: &Topology) -> usize {
        let used: Vec<&Cpu> = self.cpus().iter().filter_map(|&cpu| topology.cpu(cpu)).collect();
        let free = topology.cpus().iter().filter(|cpu| !used.contains(cpu));
        let best = free.min_by_key(|cpu| {
            let shares_core = used.iter().any(|other| cpu.relation(other) == Relation::Smt);
            let far = used.iter().all(|other| cpu.relation(other) == Relation::OtherNode);
            // Isolated CPUs are scarce, and meant for what is measured.
            (shares_core, far, cpu.isolated, cpu.number)
        });
        if let Some(cpu) = best {
            return cpu.number;
        }
        let alone = |cpu: usize| self.stages_on(cpu) == 1;
        let nic = (self.nic.len() == 1).then(|| self.nic[0]);
        if let Some(cpu) = nic.filter(|&cpu| alone(cpu)) {
            return cpu;
        }
        if alone(self.reader) {
            return self.reader;
        }
        let least = self.cpus().into_iter().min_by_key(|&cpu| self.stages_on(cpu));
        least.unwrap_or(self.reader)
    }
}

impl fmt::Display for Seats {
    /// As `--placement` takes it: `napi=0 worker=2,3 reader=1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |cpus: &[usize]| cpus.iter().copied().collect::<mpxdp::CpuList>();
        write!(f, "napi={}", list(&self.nic))?;
        if !self.workers.is_empty() {
            write!(f, " worker={}", list(&self.workers))?;
        }
        write!(f, " reader={}", self.reader)
    }
}

/// Finds CPUs for a class, the worker's first: those of `near`, the NIC's NUMA node, before others
/// unless the class wants the worker elsewhere; isolated ones before others for the worker; CPU 0,
/// where most interrupts and housekeeping are, last.
///
/// # Errors
///
/// What the machine lacks.
pub fn realise(
    class: &Class,
    links: u32,
    topology: &Topology,
    near: Option<usize>,
) -> Result<Seats, String> {
    let missing = missing(class, topology);
    if !missing.is_empty() {
        return Err(missing.join("; "));
    }
    let away = |cpu: &Cpu| near.is_some_and(|node| node != cpu.node);
    let mut sorted: Vec<&Cpu> = topology.cpus().iter().collect();
    // Where the worker is to be in another node than the NIC's processing, it is the one to move.
    let worker_near = class.worker.is_none_or(|worker| worker.nic != Relation::OtherNode)
        && !(class.worker.is_none() && class.nic_reader == Relation::OtherNode);
    sorted
        .sort_by_key(|cpu| (away(cpu) == worker_near, !cpu.isolated, cpu.number == 0, cpu.number));
    let mut others = sorted.clone();
    others.sort_by_key(|cpu| (away(cpu), cpu.isolated, cpu.number == 0, cpu.number));

    for worker in &sorted {
        let Some((nic, reader)) = around(class, worker, &others) else { continue };
        let first = Seats {
            nic: vec![nic.number],
            workers: class.worker.iter().map(|_| worker.number).collect(),
            reader: reader.number,
        };
        match class.shape {
            Shape::Together => return Ok(first),
            Shape::Spread => {
                if let Some(seats) = spread(class, links, first, worker, &others) {
                    return Ok(seats);
                }
            }
        }
    }
    Err(lacking(class, links, topology))
}

/// The NIC's processing and the reader around a worker; without a worker, the reader is `worker`.
fn around<'a>(
    class: &Class,
    worker: &'a Cpu,
    candidates: &[&'a Cpu],
) -> Option<(&'a Cpu, &'a Cpu)> {
    let nics = candidates.iter().copied();
    let Some(WorkerRelations { nic, reader }) = class.worker else {
        let mut nics = nics;
        return nics.find(|cpu| cpu.relation(worker) == class.nic_reader).map(|nic| (nic, worker));
    };
    let mut pairs = nics.filter(|cpu| cpu.relation(worker) == nic).filter_map(|nic| {
        let mut readers = candidates.iter().copied();
        let fits =
            |cpu: &&Cpu| cpu.relation(worker) == reader && cpu.relation(nic) == class.nic_reader;
        readers.find(fits).map(|reader| (nic, reader))
    });
    pairs.next()
}

/// Adds CPUs for the further links, each related as the first link's are, none used twice; near the
/// first worker, and on cores of their own where there are enough.
fn spread(
    class: &Class,
    links: u32,
    mut seats: Seats,
    first: &Cpu,
    candidates: &[&Cpu],
) -> Option<Seats> {
    let mut used: Vec<&Cpu> = Vec::new();
    let by_number = |number: usize| candidates.iter().copied().find(|cpu| cpu.number == number);
    used.extend(seats.cpus().into_iter().filter_map(by_number));
    for _ in 1..links {
        let mut free: Vec<&Cpu> =
            candidates.iter().copied().filter(|cpu| !used.contains(cpu)).collect();
        free.sort_by_key(|cpu| {
            let shares_core = used.iter().any(|other| cpu.relation(other) == Relation::Smt);
            (shares_core, cpu.relation(first))
        });
        let relation = class.worker.map_or(Relation::SameCpu, |worker| worker.nic);
        let (nic, worker) = free.iter().find_map(|&worker| {
            let mut nics = free.iter().copied();
            nics.find(|nic| nic.relation(worker) == relation).map(|nic| (nic, worker))
        })?;
        seats.nic.push(nic.number);
        used.push(nic);
        if class.worker.is_some() {
            seats.workers.push(worker.number);
            used.push(worker);
        }
    }
    Some(seats)
}

/// The relations of a class that no two CPUs here have.
fn missing(class: &Class, topology: &Topology) -> Vec<&'static str> {
    let mut missing: Vec<&str> =
        class.relations().into_iter().filter_map(|relation| topology.lacks(relation)).collect();
    missing.sort_unstable();
    missing.dedup();
    missing
}

/// Why there are no CPUs for a class although each of its relations is there.
fn lacking(class: &Class, links: u32, topology: &Topology) -> String {
    let each = class.worker.map_or(1, |worker| 1 + usize::from(worker.nic != Relation::SameCpu));
    let further = match class.shape {
        Shape::Together => 0,
        Shape::Spread => each * (links.saturating_sub(1) as usize),
    };
    let (needed, there) = (class.cpus() + further, topology.cpus().len());
    if needed > there {
        return format!("it needs {needed} CPUs, and {there} can be used");
    }
    format!("no {needed} usable CPUs have these relations to each other ({})", topology.counts())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::fabricated::Machine;

    /// What is found for each class of a receiver, by its name.
    fn all(
        machine: &Machine,
        with_worker: bool,
        links: u32,
    ) -> Vec<(Class, Result<Seats, String>)> {
        let topology = machine.topology(None);
        let classes = Class::all(with_worker, links);
        classes.into_iter().map(|class| (class, realise(&class, links, &topology, None))).collect()
    }

    fn found(machine: &Machine, with_worker: bool, links: u32) -> Vec<String> {
        all(machine, with_worker, links)
            .into_iter()
            .filter_map(|(class, seats)| Some(format!("{class}: {}", seats.ok()?)))
            .collect()
    }

    fn reason(machine: &Machine, name: &str) -> String {
        let all = [all(machine, true, 1), all(machine, false, 1)].concat();
        let class = all.into_iter().find(|(class, _)| class.to_string() == name);
        class.expect("a class").1.expect_err("not possible here")
    }

    #[test]
    fn two_cpus_allow_what_two_cpus_can() {
        let machine = Machine::small(2);
        assert_eq!(
            found(&machine, true, 1),
            [
                "nic+worker+reader: napi=1 worker=1 reader=1",
                "nic, worker+reader same-llc: napi=0 worker=1 reader=1",
                "nic+worker, reader same-llc: napi=1 worker=1 reader=0",
                "nic+reader, worker same-llc: napi=0 worker=1 reader=0",
            ]
        );
        assert_eq!(
            found(&machine, false, 1),
            ["nic+reader: napi=1 reader=1", "nic, reader same-llc: napi=0 reader=1"]
        );
        assert_eq!(
            found(&machine, true, 2)[2],
            "nic+worker+reader, by link: napi=1,0 worker=1,0 reader=1"
        );
    }

    #[test]
    fn every_class_is_found_or_has_a_reason_and_has_the_relations_it_says() {
        let mut odd = Machine::two_socket_smt(4);
        odd.offline = vec![8, 3];
        odd.caches = vec![vec![0, 1, 8, 9], vec![2, 3, 10, 11], (4..8).chain(12..16).collect()];
        let machines = [
            Machine::small(1),
            Machine::small(2),
            Machine::two_socket_smt(8),
            Machine::several_caches(3, 2),
            odd,
        ];
        for machine in &machines {
            let topology = machine.topology(None);
            for (with_worker, links) in [(true, 1), (true, 3), (false, 1), (false, 2)] {
                for (class, seats) in all(machine, with_worker, links) {
                    match seats {
                        Ok(seats) => assert_fits(&topology, &class, links, &seats),
                        Err(reason) => assert!(!reason.is_empty()),
                    }
                }
            }
        }
    }

    fn assert_fits(topology: &Topology, class: &Class, links: u32, seats: &Seats) {
        let relation = |one, other| topology.relation(one, other).expect("usable");
        let (nic, reader) = (seats.nic[0], seats.reader);
        assert_eq!(relation(nic, reader), class.nic_reader, "{class}: {seats}");
        let of_each = if class.shape == Shape::Spread { links as usize } else { 1 };
        assert_eq!(seats.nic.len(), of_each);
        let Some(worker) = class.worker else {
            assert!(seats.workers.is_empty());
            return;
        };
        assert_eq!(seats.workers.len(), of_each);
        assert_eq!(relation(seats.workers[0], reader), worker.reader, "{class}: {seats}");
        for (&one, &other) in seats.nic.iter().zip(&seats.workers) {
            assert_eq!(relation(one, other), worker.nic, "{class}: {seats}");
        }
        // Nobody's CPU is another link's.
        let links: Vec<_> = seats.nic.iter().zip(&seats.workers).collect();
        for (n, (nic, worker)) in links.iter().enumerate() {
            for (other_nic, other_worker) in &links[n + 1..] {
                for cpu in [other_nic, other_worker] {
                    assert!(cpu != nic && cpu != worker && **cpu != reader, "{class}: {seats}");
                }
            }
        }
    }

    #[test]
    fn a_two_socket_machine_can_do_all_but_two_caches_in_a_node_and_three_threads_in_a_core() {
        let machine = Machine::two_socket_smt(8);
        let impossible: Vec<Class> = all(&machine, true, 1)
            .into_iter()
            .filter_map(|(class, seats)| seats.is_err().then_some(class))
            .collect();
        for class in &impossible {
            let relations = class.relations();
            let three_threads = relations.iter().all(|&relation| relation == Relation::Smt);
            let three_nodes = relations.iter().all(|&relation| relation == Relation::OtherNode);
            assert!(
                three_threads || three_nodes || relations.contains(&Relation::OtherLlc),
                "{class}"
            );
        }
        assert!(reason(&machine, "nic, reader other-llc").contains("two last-level caches"));
        let text = reason(&machine, "nic, worker smt, reader smt");
        assert!(text.contains("no 3 usable CPUs"), "{text}");
    }

    #[test]
    fn what_a_small_machine_lacks_is_named() {
        let machine = Machine::small(2);
        assert!(reason(&machine, "nic, reader smt").contains("no SMT"));
        assert!(reason(&machine, "nic, reader other-node").contains("one NUMA node"));
        let text = reason(&machine, "nic, worker same-llc, reader same-llc");
        assert_eq!(text, "it needs 3 CPUs, and 2 can be used");
        let both = reason(&machine, "nic, worker smt, reader other-node");
        assert!(both.contains("no SMT") && both.contains("one NUMA node"), "{both}");
    }

    #[test]
    fn offline_siblings_are_not_waited_for() {
        // Only CPU 3 still has its sibling; starting with the first CPU would find nothing.
        let mut machine = Machine::two_socket_smt(2);
        machine.offline = vec![4, 5, 6];
        let seats = found(&machine, true, 1);
        assert!(
            seats.contains(&"nic, worker+reader smt: napi=7 worker=3 reader=3".to_owned()),
            "{seats:#?}"
        );
        assert!(
            seats.iter().any(|text| text.starts_with("nic, worker smt, reader same-llc")),
            "{seats:#?}"
        );
    }

    #[test]
    fn the_nics_node_is_for_the_nic_and_whoever_is_not_wanted_elsewhere() {
        let topology = Machine::two_socket_smt(4).topology(None);
        for class in Class::all(true, 1) {
            let Ok(seats) = realise(&class, 1, &topology, Some(1)) else { continue };
            let node = |cpu: usize| topology.cpu(cpu).expect("usable").node;
            assert_eq!(node(seats.nic[0]), 1, "{class}: {seats}");
        }
        let kernel = Class::all(false, 1);
        for class in kernel {
            let Ok(seats) = realise(&class, 1, &topology, Some(1)) else { continue };
            assert_eq!(topology.cpu(seats.nic[0]).expect("usable").node, 1, "{class}: {seats}");
        }
    }

    #[test]
    fn isolated_cpus_go_to_the_worker() {
        let mut machine = Machine::small(4);
        machine.isolated = vec![3];
        let topology = machine.topology(None);
        for class in Class::all(true, 1).into_iter().filter(|class| class.cpus() == 3) {
            if let Ok(seats) = realise(&class, 1, &topology, None) {
                assert_eq!((seats.workers[0], seats.nic[0], seats.reader), (3, 1, 2));
                assert_eq!(seats.sender(&topology), 0);
            }
        }
    }

    #[test]
    fn the_sender_has_a_cpu_of_its_own_or_shares_the_least_harmful() {
        let seats = |nic: &[usize], workers: &[usize], reader| Seats {
            nic: nic.to_vec(),
            workers: workers.to_vec(),
            reader,
        };
        let two = Machine::small(2).topology(None);
        assert_eq!(seats(&[1], &[1], 1).sender(&two), 0);
        assert_eq!(seats(&[0], &[1], 1).sender(&two), 0, "with the NIC's processing");
        assert_eq!(seats(&[1], &[1], 0).sender(&two), 0, "with the reader");
        assert_eq!(seats(&[0], &[1], 0).sender(&two), 1, "with the worker, alone");
        assert_eq!(seats(&[1, 0], &[1, 0], 1).sender(&two), 0, "where there is least");
        // Not the sibling of a CPU in use, and not another node, where there is a choice.
        let smt = Machine::two_socket_smt(2).topology(None);
        assert_eq!(seats(&[2], &[2], 2).sender(&smt), 3);
        // Nor an isolated one.
        let mut machine = Machine::small(4);
        machine.isolated = vec![0, 1, 2];
        assert_eq!(seats(&[2], &[2], 2).sender(&machine.topology(None)), 3);
        let one = Machine::small(1).topology(None);
        assert_eq!(seats(&[0], &[0], 0).sender(&one), 0);
    }

    #[test]
    fn a_large_machine_has_room_for_many_links() {
        let machine = Machine::two_socket_smt(16);
        let by_link = found(&machine, true, 8).into_iter().filter(|text| text.contains("by link"));
        assert_eq!(by_link.count(), found(&machine, true, 1).len());
    }
}
