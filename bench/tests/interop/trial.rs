//! One measurement: it is of what was asked for, and its figures agree with each other.

use std::time::Duration;

use mpxdp_bench::lab::Lab;
use mpxdp_bench::trial::{Bench, Place, Programs, Receiver, Trial};
use mpxdp_bench::{Error, Interrupt, environment};

use super::harness::{BENCH, Rig, mpxdp};

const TIME: Duration = Duration::from_millis(300);

fn programs() -> Programs {
    Programs { bench: BENCH.into(), mpxdp: Some(mpxdp().to_owned()) }
}

fn trial(receiver: Receiver, subflows: u32) -> Trial {
    let cpus = environment::cpus();
    let last = cpus.last().expect("there is one");
    let place = Place::parse(&format!("worker={last} reader={last}"), &cpus).expect("a place");
    let warmup = Duration::from_millis(200);
    Trial { receiver, place: place.of(receiver), subflows, warmup, time: TIME }
}

#[test]
fn every_receiver_gets_as_many_subflows_as_asked_for() {
    let Some(rig) = Rig::new(Lab::builder().links(2).mtu(9000)) else { return };
    let (programs, interrupt) = (programs(), Interrupt::never());
    let mut bench = Bench::new(&rig.lab, &programs, &interrupt);
    let mptcp = [Receiver::Mpxdp, Receiver::KernelMptcpXdp, Receiver::KernelMptcp];
    let cases = [2, 1, 4].into_iter().flat_map(|n| mptcp.map(|receiver| (receiver, n)));
    for (receiver, subflows) in cases.chain([(Receiver::KernelTcpXdp, 1), (Receiver::KernelTcp, 1)])
    {
        let mut measure = || {
            bench.measure(&trial(receiver, subflows)).unwrap_or_else(|error| {
                panic!("{} with {subflows}: {error}", receiver.name());
            })
        };
        let mut outcome = measure();
        // Where many others want the CPUs, both looks at them may come at the same late moment.
        for _ in 0..4 {
            if outcome.round.receiving_cores > 0.0 {
                break;
            }
            outcome = measure();
        }
        let round = &outcome.round;
        assert_eq!(outcome.mptcp, mptcp.contains(&receiver), "{outcome:#?}");
        assert!(round.bytes > 0 && round.bytes <= round.total_bytes, "{round:#?}");
        let rate = round.bytes as f64 * 8.0 / round.seconds;
        assert!((rate / round.bits_per_second - 1.0).abs() < 1e-6, "{round:#?}");
        assert!(round.seconds >= TIME.as_secs_f64() * 0.9, "{round:#?}");
        assert!(round.total_seconds >= round.seconds, "{round:#?}");
        let over_time: u64 = round.timeline.bytes.iter().sum();
        assert!(over_time <= round.total_bytes && over_time > 0, "{round:#?}");
        assert!(round.receiving_cores > 0.0, "{round:#?}");
        let by_cpu: f64 = round.cpus.iter().map(|one| one.seconds.total()).sum();
        assert!((by_cpu - round.cpu_seconds.total()).abs() < 1e-6, "{round:#?}");
        assert!(round.busy.reader.is_some_and(|busy| busy > 0.0), "{round:#?}");
        assert!(round.busy.sender.is_some_and(|busy| busy > 0.0), "{round:#?}");
        let ours = receiver == Receiver::Mpxdp;
        assert_eq!(round.busy.worker.is_some(), ours, "{round:#?}");
        assert_eq!(round.subflow_bytes.len(), if ours { subflows as usize } else { 0 });
        assert_eq!(outcome.zero_copy, ours.then_some(false), "{outcome:#?}");
    }
    let mut found = environment::Environment::default();
    bench.describe(&mut found);
    assert_eq!(found.lab.expect("it is one").congestion, "reno");
    let nics = found.nics;
    let names: Vec<_> = nics.iter().map(|nic| (nic.name.as_str(), nic.driver.as_str())).collect();
    assert_eq!(names, [("rcv0", "veth"), ("rcv1", "veth")]);
    assert!(nics.iter().all(|nic| nic.mtu == 9000), "{nics:#?}");
    rig.assert_detached();
}

#[test]
fn what_makes_no_sense_is_refused() {
    let Some(rig) = Rig::new(Lab::builder()) else { return };
    let (programs, interrupt) = (programs(), Interrupt::never());
    let mut bench = Bench::new(&rig.lab, &programs, &interrupt);
    for (receiver, subflows, named) in [
        (Receiver::KernelTcp, 2, "TCP has one subflow"),
        (Receiver::Mpxdp, 0, "--subflows 0"),
        (Receiver::KernelMptcp, 9, "--subflows 9"),
    ] {
        let error = bench.measure(&trial(receiver, subflows)).expect_err(named);
        assert!(matches!(error, Error::Usage(_)), "{error}");
        assert!(error.to_string().contains(named), "{error}");
    }
}

/// The second link is cut, so the second subflow never comes about.
#[test]
fn a_subflow_that_does_not_come_about_is_an_error() {
    let Some(rig) = Rig::new(Lab::builder().links(2)) else { return };
    let (programs, interrupt) = (programs(), Interrupt::never());
    let mut bench = Bench::new(&rig.lab, &programs, &interrupt);
    bench.measure(&trial(Receiver::KernelMptcp, 2)).expect("both links are up");
    rig.lab.set_link(1, false).expect("the link is cut");
    let error = bench.measure(&trial(Receiver::KernelMptcp, 2)).expect_err("one is missing");
    assert!(error.to_string().contains("1 subflows, not 2"), "{error}");
}
