//! What is to be measured: every receiver at every placement that differs, and why others are not.

use mpxdp::CpuList;

use super::class::{Class, Scenario, Shape, WorkerRelations};
use super::realise::{Seats, realise};
use crate::document::NotRun;
use crate::error::{Error, Result};
use crate::topology::{Relation, Topology};
use crate::traffic::socket::Protocol;
use crate::trial::{Place, Receiver};

/// One thing to measure, several times.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Who receives.
    pub receiver: Receiver,
    /// Subflows of the connection.
    pub subflows: u32,
    /// On which CPUs.
    pub place: Place,
    /// What these share.
    pub class: Class,
}

impl Item {
    /// The scenario of the first table that it is, if it is one.
    #[must_use]
    pub fn scenario(&self) -> Option<Scenario> {
        self.class.scenario(self.subflows)
    }

    /// What it is, for a list of those that were not measured.
    #[must_use]
    pub fn describe(&self, mtu: u32) -> String {
        format!("{}, {}", conditions(self.receiver, mtu, self.subflows), self.place)
    }
}

/// A receiver and what it is measured under.
#[must_use]
pub fn conditions(receiver: Receiver, mtu: u32, subflows: u32) -> String {
    let plural = if subflows == 1 { "" } else { "s" };
    format!("{}, MTU {mtu}, {subflows} subflow{plural}", receiver.name())
}

/// What to make a plan from.
#[derive(Clone, Debug)]
pub struct Wishes<'a> {
    /// The receivers.
    pub receivers: &'a [Receiver],
    /// The numbers of subflows.
    pub subflows: &'a [u32],
    /// Links between sender and receiver.
    pub links: u32,
    /// How many placements of a receiver at a number of subflows, at most.
    pub limit: usize,
    /// Only these placements, if there are any.
    pub only: &'a [String],
    /// Where the sender is.
    pub sender: SenderAt,
}

/// Where the sender is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderAt {
    /// On this machine, in a lab: it has a CPU here.
    Here,
    /// On another host, and the NIC at a NUMA node of this one, if that is known.
    Elsewhere {
        /// The NUMA node.
        nic_node: Option<usize>,
    },
}

/// The placements of one MTU.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// What is to be measured.
    pub items: Vec<Item>,
    /// What is not.
    pub not_run: Vec<NotRun>,
}

impl Plan {
    /// Plans for a lab on this machine.
    ///
    /// # Errors
    ///
    /// A placement that was asked for and cannot be had: wrong usage.
    pub fn new(wishes: &Wishes<'_>, mtu: u32, topology: &Topology) -> Result<Self> {
        let mut plan = Self::default();
        for &subflows in wishes.subflows {
            for &receiver in wishes.receivers {
                let what = conditions(receiver, mtu, subflows);
                if subflows > 1 && receiver.protocol() == Protocol::Tcp {
                    let reason = "TCP has one subflow".into();
                    plan.not_run.push(NotRun { what, reason });
                } else if wishes.only.is_empty() {
                    plan.add_classes(wishes, receiver, subflows, mtu, topology);
                } else {
                    for text in wishes.only {
                        let item = named(text, receiver, subflows, wishes.sender, topology)?;
                        // Texts may differ in nothing that this receiver has.
                        if !plan.items.contains(&item) {
                            plan.items.push(item);
                        }
                    }
                }
            }
        }
        Ok(plan)
    }

    fn add_classes(
        &mut self,
        wishes: &Wishes<'_>,
        receiver: Receiver,
        subflows: u32,
        mtu: u32,
        topology: &Topology,
    ) {
        let with_worker = receiver == Receiver::Mpxdp;
        // With one subflow only one link carries anything.
        let links = wishes.links.min(subflows);
        let what = conditions(receiver, mtu, subflows);
        let mut count = 0;
        for class in Class::all(with_worker, links) {
            let near = match wishes.sender {
                SenderAt::Here => None,
                SenderAt::Elsewhere { nic_node } => nic_node,
            };
            let reason = match realise(&class, links, topology, near) {
                Ok(_) if count == wishes.limit => format!("beyond --limit {}", wishes.limit),
                Ok(seats) => {
                    count += 1;
                    let place = match wishes.sender {
                        SenderAt::Here => in_lab(&seats, topology),
                        SenderAt::Elsewhere { .. } => on_host(&seats),
                    };
                    self.items.push(Item { receiver, subflows, place, class });
                    continue;
                }
                Err(reason) => reason,
            };
            self.not_run.push(NotRun { what: format!("{what}, {class}"), reason });
        }
    }
}

/// A placement with a sender on the same machine. Where that has to share its CPU with the NIC's
/// processing, the processing runs in its context, as veth does by itself.
fn in_lab(seats: &Seats, topology: &Topology) -> Place {
    let sender = seats.sender(topology);
    let list = |cpus: &[usize]| cpus.iter().copied().collect::<CpuList>();
    Place {
        sender,
        napi: (seats.nic != [sender]).then(|| list(&seats.nic)),
        workers: list(&seats.workers),
        reader: seats.reader,
    }
}

/// A placement for a sender on another host, whose own CPU says nothing here.
fn on_host(seats: &Seats) -> Place {
    let list = |cpus: &[usize]| cpus.iter().copied().collect::<CpuList>();
    Place {
        sender: seats.reader,
        napi: Some(list(&seats.nic)),
        workers: list(&seats.workers),
        reader: seats.reader,
    }
}

/// A placement that the user wrote.
fn named(
    text: &str,
    receiver: Receiver,
    subflows: u32,
    sender: SenderAt,
    topology: &Topology,
) -> Result<Item> {
    let cpus: Vec<usize> = topology.cpus().iter().map(|cpu| cpu.number).collect();
    let place = Place::parse(text, &cpus)?.of(receiver);
    let elsewhere = sender != SenderAt::Here;
    if elsewhere && (place.napi.is_none() || text.contains("sender")) {
        return Err(Error::Usage(format!(
            "--placement {text:?}: with a sender on another host it has to say on which CPUs NIC \
             processing is to run, and nothing of the sender: \"napi=0 worker=1 reader=1\""
        )));
    }
    let nic = place.napi.as_ref().and_then(|cpus| cpus.as_slice().first().copied());
    let nic = nic.unwrap_or(place.sender);
    let relation = |one: usize, other: usize| {
        let why = || topology.unusable(one).or_else(|| topology.unusable(other));
        topology.relation(one, other).ok_or_else(|| {
            Error::Usage(format!("--placement {text:?}: {}", why().unwrap_or_default()))
        })
    };
    let worker = place.workers.as_slice().first().copied();
    let worker = worker
        .map(|worker| {
            let (nic, reader) = (relation(nic, worker)?, relation(worker, place.reader)?);
            Ok(WorkerRelations { nic, reader })
        })
        .transpose()?;
    let several = |list: &CpuList| list.as_slice().len() > 1;
    let spread = place.napi.as_ref().is_some_and(several) || several(&place.workers);
    let shape = if spread { Shape::Spread } else { Shape::Together };
    let nic_reader = relation(nic, place.reader)?;
    Ok(Item { receiver, subflows, place, class: Class { shape, nic_reader, worker } })
}

/// The relations by name, for a document.
#[must_use]
pub fn relations(class: &Class) -> (Relation, Option<Relation>, Option<Relation>) {
    (class.nic_reader, class.worker.map(|w| w.nic), class.worker.map(|w| w.reader))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::fabricated::Machine;

    fn wishes<'a>(receivers: &'a [Receiver], subflows: &'a [u32]) -> Wishes<'a> {
        Wishes { receivers, subflows, links: 2, limit: 100, only: &[], sender: SenderAt::Here }
    }

    fn texts(plan: &Plan) -> Vec<String> {
        plan.items.iter().map(|item| item.describe(1500)).collect()
    }

    #[test]
    fn the_four_scenarios_come_first_for_every_receiver() {
        let topology = Machine::small(2).topology(None);
        let receivers = [Receiver::Mpxdp, Receiver::KernelMptcp];
        let plan = Plan::new(&Wishes { limit: 2, ..wishes(&receivers, &[1, 4]) }, 1500, &topology);
        let plan = plan.expect("a plan");
        let scenarios: Vec<_> =
            plan.items.iter().map(|item| item.scenario().map(u8::from)).collect();
        assert_eq!(scenarios, [1, 3, 1, 3, 2, 4, 2, 4].map(Some));
        assert_eq!(
            texts(&plan)[..4],
            [
                "mpxdp, MTU 1500, 1 subflow, napi=1 worker=1 reader=1",
                "mpxdp, MTU 1500, 1 subflow, napi=sender worker=1 reader=1",
                "kernel-mptcp, MTU 1500, 1 subflow, napi=1 reader=1",
                "kernel-mptcp, MTU 1500, 1 subflow, napi=sender reader=1",
            ]
        );
    }

    #[test]
    fn nothing_is_dropped_without_a_reason() {
        let topology = Machine::small(2).topology(None);
        for (receivers, subflows, classes) in [
            (&[Receiver::Mpxdp][..], &[1][..], 35),
            (&[Receiver::Mpxdp], &[2], 70),
            (&[Receiver::KernelMptcp], &[1, 2], 5 + 10),
            // One line says it for all of them.
            (&[Receiver::KernelTcp], &[1, 2], 5 + 1),
        ] {
            for limit in [0, 1, 100] {
                let wishes = Wishes { limit, ..wishes(receivers, subflows) };
                let plan = Plan::new(&wishes, 1500, &topology).expect("a plan");
                assert_eq!(plan.items.len() + plan.not_run.len(), classes);
                assert!(plan.not_run.iter().all(|not| !not.reason.is_empty()));
            }
        }
        let wishes = Wishes { limit: 1, ..wishes(&[Receiver::Mpxdp], &[1]) };
        let plan = Plan::new(&wishes, 1500, &topology).expect("a plan");
        let beyond = NotRun {
            what: "mpxdp, MTU 1500, 1 subflow, nic+worker, reader same-llc".into(),
            reason: "beyond --limit 1".into(),
        };
        assert!(plan.not_run.contains(&beyond), "{:#?}", plan.not_run);
    }

    /// Whether a placement leaves something to the sender's CPU that a NIC would not have there.
    fn shares_with_sender(place: &Place) -> bool {
        let here = |list: &CpuList| list.as_slice().contains(&place.sender);
        place.napi.as_ref().is_none_or(here) || here(&place.workers) || place.reader == place.sender
    }

    #[test]
    fn on_a_large_machine_the_sender_is_by_itself() {
        let topology = Machine::two_socket_smt(8).topology(None);
        let plan = Plan::new(&wishes(&Receiver::ALL, &[1, 2]), 1500, &topology).expect("a plan");
        assert!(plan.items.len() > 80);
        for item in &plan.items {
            assert!(!shares_with_sender(&item.place), "{item:?}");
        }
    }

    #[test]
    fn placements_by_name_are_the_only_ones() {
        let topology = Machine::two_socket_smt(2).topology(None);
        let only = ["napi=1 worker=5 reader=2".to_owned(), "napi=1 worker=1 reader=2".to_owned()];
        let receivers = [Receiver::Mpxdp, Receiver::KernelTcp];
        let plan = Plan::new(&Wishes { only: &only, ..wishes(&receivers, &[1]) }, 1500, &topology);
        let plan = plan.expect("a plan");
        assert_eq!(
            texts(&plan),
            [
                "mpxdp, MTU 1500, 1 subflow, napi=1 worker=5 reader=2",
                "mpxdp, MTU 1500, 1 subflow, napi=1 worker=1 reader=2",
                "kernel-tcp, MTU 1500, 1 subflow, napi=1 reader=2",
            ]
        );
        let classes: Vec<String> = plan.items.iter().map(|item| item.class.to_string()).collect();
        assert_eq!(
            classes,
            [
                "nic, worker smt, reader other-node",
                "nic+worker, reader other-node",
                "nic, reader other-node",
            ]
        );
        assert!(plan.not_run.is_empty());
    }

    #[test]
    fn a_scenario_by_name_is_seen_to_be_one() {
        let topology = Machine::small(2).topology(None);
        let item =
            |text| named(text, Receiver::Mpxdp, 2, SenderAt::Here, &topology).expect("a placement");
        let scenario = |text| item(text).scenario().map(u8::from);
        assert_eq!(scenario("napi=1 worker=1 reader=1"), Some(2));
        assert_eq!(scenario("napi=sender worker=1 reader=1"), Some(4));
        assert_eq!(scenario("napi=1 worker=1 reader=0"), None);
        assert_eq!(item("napi=0,1 worker=0,1 reader=1").class.shape, Shape::Spread);
    }

    #[test]
    fn with_a_sender_elsewhere_all_cpus_are_the_receivers() {
        let topology = Machine::two_socket_smt(2).topology(None);
        let sender = SenderAt::Elsewhere { nic_node: Some(1) };
        let wishes = Wishes { sender, limit: 2, ..wishes(&[Receiver::Mpxdp], &[1]) };
        let plan = Plan::new(&wishes, 9000, &topology).expect("a plan");
        assert_eq!(
            texts(&plan),
            [
                "mpxdp, MTU 1500, 1 subflow, napi=2 worker=2 reader=2",
                "mpxdp, MTU 1500, 1 subflow, napi=3 worker=2 reader=2",
            ]
        );
        for text in ["worker=1", "napi=sender worker=1", "sender=0 napi=1 worker=1"] {
            let error = named(text, Receiver::Mpxdp, 1, sender, &topology).expect_err(text);
            assert_eq!(error.exit_code(), 2, "{error}");
        }
    }
}
