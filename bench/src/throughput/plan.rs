//! What is measured, in which conditions, and what is not.

use std::time::Duration;

use mpxdp::CpuList;

use super::Options;
use crate::document::NotRun;
use crate::environment;
use crate::error::{Error, Result};
use crate::traffic::socket::Protocol;
use crate::trial::{Place, Receiver, Trial, places};

/// The warm-up if none is asked for: half of the measured time and at most this. The kernel's windows
/// and mpxdp's have grown to what they become within some hundred milliseconds over veth.
pub const DEFAULT_WARMUP: Duration = Duration::from_millis(500);

/// What a placement is tried for, at most.
const TRIAL: Duration = Duration::from_millis(700);

/// What starting and ending the processes of a measurement takes, about.
const OVERHEAD: Duration = Duration::from_millis(600);

/// The whole of it.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) options: &'a Options,
    /// Where everything runs, if that was asked for.
    pub(super) placement: Option<Place>,
    cpus: Vec<usize>,
}

/// A receiver with a number of subflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) receiver: Receiver,
    pub(super) subflows: u32,
}

impl<'a> Plan<'a> {
    /// What the options ask for on this machine.
    ///
    /// # Errors
    ///
    /// If the placement is none: wrong usage.
    pub(super) fn new(options: &'a Options) -> Result<Self> {
        let cpus = environment::cpus();
        let placement = options.placement.as_deref();
        let placement = placement.map(|text| Place::parse(text, &cpus)).transpose()?;
        if let Some(text) = options.placement.as_deref().filter(|_| options.hosts.is_some())
            && ["napi=", "sender="].iter().any(|key| text.contains(key))
        {
            return Err(Error::Usage(format!(
                "--placement {text:?}: between hosts it has worker and reader only; where the NIC's \
                 processing and the sender run is up to who sets the hosts up"
            )));
        }
        Ok(Self { options, placement, cpus })
    }

    /// The cases of each MTU.
    pub(super) fn cases(&self) -> Vec<Case> {
        self.all().filter(|case| case.why_not().is_none()).collect()
    }

    fn all(&self) -> impl Iterator<Item = Case> + '_ {
        let subflows = self.options.subflows.iter();
        subflows.flat_map(|&subflows| {
            self.options.receivers.iter().map(move |&receiver| Case { receiver, subflows })
        })
    }

    /// What makes no sense, with the reason.
    pub(super) fn not_run(&self) -> Vec<NotRun> {
        let not = self.all().filter_map(|case| {
            let reason = case.why_not()?.to_owned();
            Some(NotRun { what: case.to_string(), reason })
        });
        not.collect()
    }

    /// The places at which a case is tried; only one if that was asked for.
    pub(super) fn places(&self, case: Case) -> Vec<Place> {
        match &self.placement {
            Some(place) => vec![place.of(case.receiver)],
            None if self.options.hosts.is_some() => self.places_of_host(case.receiver),
            None => places(case.receiver, &self.cpus),
        }
    }

    /// Worker and reader on one CPU, and on two.
    fn places_of_host(&self, receiver: Receiver) -> Vec<Place> {
        let mut places: Vec<Place> = Vec::new();
        for (worker, reader) in [(0, 0), (1, 1), (0, 1)] {
            let (Some(&worker), Some(&reader)) = (self.cpus.get(worker), self.cpus.get(reader))
            else {
                continue;
            };
            let workers = CpuList::from_iter([worker]);
            let place = Place { sender: worker, napi: None, workers, reader }.of(receiver);
            if !places.iter().any(|other| other.to_string() == place.to_string()) {
                places.push(place);
            }
        }
        places
    }

    /// A place as text. Between hosts nothing is said of the NIC's processing.
    pub(super) fn text(&self, place: &Place) -> String {
        let text = place.to_string();
        match text.strip_prefix("napi=sender ") {
            Some(rest) if self.options.hosts.is_some() => rest.to_owned(),
            _ => text,
        }
    }

    /// How many networks are measured: MTUs of the lab, or the one between the hosts.
    fn networks(&self) -> u32 {
        let count = if self.options.hosts.is_some() { 1 } else { self.options.mtus.len() };
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// How long a round of the front ends is expected to take; zero if they are not measured.
    pub(super) fn front_ends(&self) -> Duration {
        let both = 2 * (self.options.time.min(TRIAL) + OVERHEAD);
        if self.with_front_ends() { both } else { Duration::ZERO }
    }

    /// The length of a measurement of a front end.
    pub(super) fn front_end_time(&self) -> Duration {
        self.options.time.min(TRIAL)
    }

    /// Whether the front ends are measured.
    pub(super) fn with_front_ends(&self) -> bool {
        self.options.front_end && self.options.hosts.is_none()
    }

    /// A measurement of a case at a place.
    pub(super) fn trial(&self, case: Case, place: &Place) -> Trial {
        Trial {
            receiver: case.receiver,
            place: place.clone(),
            subflows: case.subflows,
            warmup: self.options.warmup,
            time: self.options.time,
        }
    }

    /// A shorter one, to find out which place is best.
    pub(super) fn short_trial(&self, case: Case, place: &Place) -> Trial {
        let trial = self.trial(case, place);
        Trial { time: trial.time.min(TRIAL), warmup: trial.warmup.min(TRIAL / 2), ..trial }
    }

    /// How long all is expected to take, if no place is added for the sake of likeness.
    pub(super) fn expected(&self) -> Duration {
        let mut time = Duration::ZERO;
        for case in self.cases() {
            let places = self.places(case);
            if let [first, _, ..] = &places[..] {
                let short = expected(&self.short_trial(case, first));
                time += short * u32::try_from(places.len()).unwrap_or(u32::MAX);
            }
            if let Some(first) = places.first() {
                time += self.all_rounds(&self.trial(case, first));
            }
        }
        time += self.front_ends() * u32::try_from(self.options.rounds).unwrap_or(u32::MAX);
        time * self.networks()
    }

    /// How long all rounds of a trial are expected to take.
    pub(super) fn all_rounds(&self, trial: &Trial) -> Duration {
        expected(trial) * u32::try_from(self.options.rounds).unwrap_or(u32::MAX)
    }
}

/// How long a measurement is expected to take.
pub(super) fn expected(trial: &Trial) -> Duration {
    trial.warmup + trial.time + OVERHEAD
}

impl Case {
    fn why_not(self) -> Option<&'static str> {
        (self.receiver.protocol() == Protocol::Tcp && self.subflows > 1)
            .then_some("a TCP connection has no subflows but itself")
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plural = if self.subflows == 1 { "" } else { "s" };
        write!(f, "{}, {} subflow{plural}", self.receiver.name(), self.subflows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options {
            name: "x".into(),
            mtus: vec![1500, 9000],
            subflows: vec![1, 2],
            links: 2,
            conditions: crate::lab::Conditions::default(),
            time: Duration::from_secs(2),
            warmup: DEFAULT_WARMUP,
            rounds: 3,
            placement: None,
            receivers: Receiver::ALL.to_vec(),
            front_end: false,
            hosts: None,
            json: None,
        }
    }

    #[test]
    fn tcp_with_several_subflows_is_not_run_and_says_why() {
        let options = options();
        let plan = Plan::new(&options).expect("a plan");
        assert_eq!(plan.cases().len(), 5 + 3);
        let not = plan.not_run();
        assert_eq!(not.len(), 2);
        assert_eq!(not[0].what, "kernel-tcp-xdp, 2 subflows");
        assert!(not[0].reason.contains("TCP"), "{not:?}");
    }

    #[test]
    fn a_placement_that_is_asked_for_is_the_only_one() {
        let cpu = environment::cpus()[0];
        let options = Options {
            placement: Some(format!("worker={cpu} reader={cpu}")),
            receivers: vec![Receiver::Mpxdp],
            subflows: vec![1],
            mtus: vec![1500],
            ..options()
        };
        let plan = Plan::new(&options).expect("a plan");
        let case = plan.cases()[0];
        assert_eq!(plan.places(case).len(), 1);
        // 3 rounds of 0.5 + 2 + 0.6 seconds, and nothing is tried before.
        assert_eq!(plan.expected(), Duration::from_millis(9300));
    }

    #[test]
    fn a_short_trial_is_no_longer_than_a_whole_one() {
        let options = Options { time: Duration::from_millis(300), ..options() };
        let plan = Plan::new(&options).expect("a plan");
        let case = plan.cases()[0];
        let place = &plan.places(case)[0];
        assert_eq!(plan.short_trial(case, place).time, options.time);
    }
}
