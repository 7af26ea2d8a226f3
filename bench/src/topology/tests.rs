//! Machines of all kinds, by their sysfs trees.

use super::fabricated::Machine;
use super::{Counts, Relation, Topology};

fn relation(topology: &Topology, one: usize, other: usize) -> Relation {
    topology.relation(one, other).expect("both are usable")
}

#[test]
fn a_two_socket_machine_with_smt_has_all_relations_but_other_caches_in_a_node() {
    let topology = Machine::two_socket_smt(16).topology(None);
    assert_eq!(topology.counts(), Counts { cpus: 64, cores: 32, caches: 2, nodes: 2 });
    assert_eq!(topology.threads_per_core(), 2);
    for (one, other, expected) in [
        (3, 3, Relation::SameCpu),
        (3, 35, Relation::Smt),
        (3, 4, Relation::SameLlc),
        (3, 36, Relation::SameLlc),
        (3, 16, Relation::OtherNode),
        (3, 51, Relation::OtherNode),
    ] {
        assert_eq!(relation(&topology, one, other), expected, "{one} {other}");
        assert_eq!(relation(&topology, other, one), expected, "{other} {one}");
    }
    let lacking: Vec<_> =
        Relation::ALL.into_iter().filter(|&relation| topology.lacks(relation).is_some()).collect();
    assert_eq!(lacking, [Relation::OtherLlc]);
}

#[test]
fn a_machine_with_several_caches_in_a_node_tells_them_apart() {
    let topology = Machine::several_caches(4, 8).topology(None);
    assert_eq!(topology.counts(), Counts { cpus: 32, cores: 32, caches: 4, nodes: 1 });
    assert_eq!(relation(&topology, 0, 7), Relation::SameLlc);
    assert_eq!(relation(&topology, 0, 8), Relation::OtherLlc);
    assert!(topology.lacks(Relation::Smt).is_some());
    assert!(topology.lacks(Relation::OtherNode).is_some());
    assert!(topology.lacks(Relation::OtherLlc).is_none());
}

#[test]
fn a_cache_across_two_nodes_counts_as_two() {
    let mut machine = Machine::small(8);
    machine.nodes = vec![(0..4).collect(), (4..8).collect()];
    let topology = machine.topology(None);
    assert_eq!(relation(&topology, 0, 1), Relation::SameLlc);
    assert_eq!(relation(&topology, 0, 4), Relation::OtherNode);
    assert_eq!(topology.counts().caches, 2);
}

#[test]
fn two_cpus_of_a_virtual_machine() {
    let topology = Machine::small(2).topology(None);
    assert_eq!(relation(&topology, 0, 1), Relation::SameLlc);
    assert_eq!(topology.counts().to_string(), "2 CPUs, 2 cores, 1 last-level cache, 1 NUMA node");
}

#[test]
fn a_machine_that_tells_nothing_about_caches_and_nodes_is_taken_by_its_packages() {
    let mut machine = Machine::small(4);
    machine.caches.clear();
    machine.nodes.clear();
    machine.packages = vec![vec![0, 1], vec![2, 3]];
    let topology = machine.topology(None);
    assert_eq!(relation(&topology, 0, 1), Relation::SameLlc);
    assert_eq!(relation(&topology, 0, 2), Relation::OtherLlc);
}

#[test]
fn offline_and_forbidden_cpus_are_left_out_and_named() {
    let mut machine = Machine::two_socket_smt(2);
    machine.offline = vec![4, 5];
    let topology = machine.topology(Some("0-6"));
    let numbers: Vec<usize> = topology.cpus().iter().map(|cpu| cpu.number).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 6]);
    // CPU 4 was the sibling of CPU 0.
    assert_eq!(topology.unusable(0), None);
    assert_eq!(topology.unusable(4).as_deref(), Some("CPU 4 is offline"));
    assert_eq!(topology.unusable(7).as_deref(), Some("CPU 7 may not be used by this process"));
    assert_eq!(topology.unusable(8).as_deref(), Some("there is no CPU 8"));
    assert_eq!(topology.relation(0, 4), None);
    assert_eq!(relation(&topology, 2, 6), Relation::Smt);
    assert_eq!(topology.counts().cores, 4);
}

#[test]
fn isolated_cpus_are_marked() {
    let mut machine = Machine::small(4);
    machine.isolated = vec![2, 3];
    let topology = machine.topology(None);
    let isolated: Vec<bool> = topology.cpus().iter().map(|cpu| cpu.isolated).collect();
    assert_eq!(isolated, [false, false, true, true]);
}

#[test]
fn a_process_without_a_cpu_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    Machine::small(2).write(folder.path());
    let error = Topology::read(folder.path(), &"7".parse().expect("a list")).expect_err("none");
    assert!(error.to_string().contains("0,1"), "{error}");
    let nothing = tempfile::tempdir().expect("a folder");
    assert!(Topology::read(nothing.path(), &"0".parse().expect("a list")).is_err());
}

#[test]
fn this_machine_can_be_read() {
    let topology = Topology::of_this_machine().expect("sysfs");
    let own = crate::environment::cpus();
    assert!(own.iter().all(|&cpu| topology.cpu(cpu).is_some()), "{topology:?}");
    for one in topology.cpus() {
        assert_eq!(one.relation(one), Relation::SameCpu);
    }
}

/// Whatever the machine, two of three CPUs are as far from the third: what classes are made from.
#[test]
fn relations_are_a_hierarchy() {
    let mut odd = Machine::two_socket_smt(3);
    odd.offline = vec![7, 2];
    odd.caches = vec![vec![0, 1, 2, 3, 6, 7, 8, 9], vec![4, 5, 10, 11]];
    for machine in [odd, Machine::several_caches(3, 2), Machine::small(3)] {
        let topology = machine.topology(None);
        for a in topology.cpus() {
            for b in topology.cpus() {
                for c in topology.cpus() {
                    let far = a.relation(b).max(b.relation(c));
                    assert!(a.relation(c) <= far, "{a:?} {b:?} {c:?}");
                }
            }
        }
    }
}
