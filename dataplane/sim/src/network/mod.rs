//! A network in virtual time.
//!
//! Nodes have numbered interfaces; links join two of them, or one and a switch. A link is a
//! [`Chain`] of middleboxes, so it delays, loses and rewrites frames as its description says. The
//! network moves whole Ethernet frames and knows nothing of what the nodes are: a worker of the
//! engine over ports in memory, a scripted peer, or a test that reads frames itself.
//!
//! [`Network::step`] jumps to the next event and says what it is. Nothing happens in between, nothing
//! depends on the machine's clock, and the same calls with the same seed give the same events.
//!
//! ```
//! use mpxdp_proto::time::Instant;
//! use mpxdp_sim::network::{Network, Step};
//!
//! let mut network = Network::new(1);
//! let (a, b) = (network.add_node(), network.add_node());
//! network.connect(a.interface(0), b.interface(0), &"delay=5ms".parse()?);
//! network.send(a.interface(0), vec![0; 60]);
//! let step = network.step(Instant(1_000_000_000));
//! assert_eq!(step, Step::Frame { to: b, interface: 0, frame: vec![0; 60] });
//! assert_eq!(network.now(), Instant(5_000_000));
//! # Ok::<(), mpxdp_sim::middlebox::SpecError>(())
//! ```
//!
//! [`Node`] and [`Network::run`] spare the loop where nodes follow the usual pattern.

mod node;
mod switch;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, VecDeque};

use mpxdp_proto::time::Instant;

use crate::middlebox::{Chain, ChainSpec, Direction, Middlebox, Output, Random};
use switch::Switch;

pub use node::{Node, Progress};

/// How many events a network takes before it holds something to be wrong; a transfer of a gigabyte in
/// small frames takes a few million.
const EVENT_LIMIT: u64 = 50_000_000;

/// A node of a network: the number it was added as, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(usize);

impl NodeId {
    /// The number it was added as, from 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0
    }

    /// One of its interfaces, which may have any number.
    #[must_use]
    pub const fn interface(self, number: u16) -> Place {
        Place { device: Device::Node(self), port: number }
    }
}

/// A switch of a network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SwitchId(usize);

impl SwitchId {
    /// One of its ports, which may have any number.
    #[must_use]
    pub const fn port(self, number: u16) -> Place {
        Place { device: Device::Switch(self), port: number }
    }
}

/// A link of a network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(usize);

/// Where a link can end: an interface of a node or a port of a switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    device: Device,
    port: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Device {
    Node(NodeId),
    Switch(SwitchId),
}

/// What happened next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// A frame arrived.
    Frame {
        /// At this node,
        to: NodeId,
        /// on this interface of it.
        interface: u16,
        /// The whole frame.
        frame: Vec<u8>,
    },
    /// A node's timer went off; it is no longer set.
    Timer(NodeId),
    /// Nothing until the given time, which it is now.
    Deadline,
    /// Nothing, ever: no frame is on its way and no timer is set. The time has not changed.
    Idle,
    /// The limit of events is used up: something sends without end.
    Exhausted,
}

/// What a link did in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkCounters {
    /// Frames put into it.
    pub sent: u64,
    /// Frames that came out of it.
    pub delivered: u64,
    /// Frames lost because it was down; what its middleboxes lose is not in here.
    pub cut: u64,
}

#[derive(Debug)]
struct Link {
    left: Place,
    right: Place,
    chain: Chain,
    is_up: bool,
    /// When the chain's next timeout is due, as `deadlines` has it.
    due: Option<Instant>,
    counters: [LinkCounters; 2],
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Source {
    Link(usize),
    Node(usize),
}

/// Nodes, switches and links, and what is on its way between them.
#[derive(Debug)]
pub struct Network {
    now: Instant,
    random: Random,
    /// Each node's timer.
    timers: Vec<Option<Instant>>,
    switches: Vec<Switch>,
    links: Vec<Link>,
    /// The link that ends at a place, and the direction in which that place sends.
    ends: HashMap<Place, (usize, Direction)>,
    /// Frames that have arrived.
    arrived: VecDeque<(Place, Vec<u8>)>,
    deadlines: BTreeSet<(Instant, Source)>,
    unconnected: u64,
    events: u64,
    event_limit: u64,
    scratch: Output,
}

impl Network {
    /// A network without anything in it, at time 0. `seed` is what all dice come from.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            now: Instant(0),
            random: Random::new(seed),
            timers: Vec::new(),
            switches: Vec::new(),
            links: Vec::new(),
            ends: HashMap::new(),
            arrived: VecDeque::new(),
            deadlines: BTreeSet::new(),
            unconnected: 0,
            events: 0,
            event_limit: EVENT_LIMIT,
            scratch: Output::default(),
        }
    }

    /// The time.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Adds a node.
    pub fn add_node(&mut self) -> NodeId {
        self.timers.push(None);
        NodeId(self.timers.len() - 1)
    }

    /// Adds a switch: it learns where MAC addresses are, and sends a frame to all other ports until it
    /// has learnt where its destination is. Do not build loops with them.
    pub fn add_switch(&mut self) -> SwitchId {
        self.switches.push(Switch::default());
        SwitchId(self.switches.len() - 1)
    }

    /// Joins two places by a link; the first is its left end. Each link has dice of its own.
    ///
    /// # Panics
    ///
    /// If there is a link at one of the places already, or both are the same.
    pub fn connect(&mut self, left: Place, right: Place, spec: &ChainSpec) -> LinkId {
        let seed = self.random.part(self.links.len() as u64).bits();
        self.connect_through(left, right, Chain::new(spec, seed))
    }

    /// Joins two places by a link through a chain of any middleboxes.
    ///
    /// # Panics
    ///
    /// As [`connect`](Self::connect).
    pub fn connect_through(&mut self, left: Place, right: Place, chain: Chain) -> LinkId {
        let index = self.links.len();
        for (place, direction) in [(left, Direction::Right), (right, Direction::Left)] {
            let earlier = self.ends.insert(place, (index, direction));
            assert!(earlier.is_none(), "{place:?} has a link already");
            if let Device::Switch(SwitchId(switch)) = place.device {
                self.switches[switch].add_port(place.port);
            }
        }
        let counters = Default::default();
        self.links.push(Link { left, right, chain, is_up: true, due: None, counters });
        LinkId(index)
    }

    /// Cuts a link or joins it again. What is on a link when it is cut is lost unless it is joined
    /// again before it would have arrived.
    pub fn set_link(&mut self, link: LinkId, up: bool) {
        self.links[link.0].is_up = up;
    }

    /// The middleboxes of a link.
    #[must_use]
    pub fn chain(&self, link: LinkId) -> &Chain {
        &self.links[link.0].chain
    }

    /// What a link did in a direction.
    #[must_use]
    pub fn link_counters(&self, link: LinkId, direction: Direction) -> LinkCounters {
        self.links[link.0].counters[direction.index()]
    }

    /// Frames that were sent from a place without a link.
    #[must_use]
    pub const fn unconnected(&self) -> u64 {
        self.unconnected
    }

    /// Sets how many events there may be in all; 50 million if it is not set.
    pub const fn set_event_limit(&mut self, limit: u64) {
        self.event_limit = limit;
    }

    /// The events so far: frames sent and frames and timers told.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// Sets a node's timer, or with `None` stops it. A time in the past means now.
    pub fn set_timer(&mut self, node: NodeId, at: Option<Instant>) {
        let timer = &mut self.timers[node.0];
        if *timer == at {
            return;
        }
        let source = Source::Node(node.0);
        if let Some(old) = timer.take() {
            self.deadlines.remove(&(old, source));
        }
        *timer = at;
        self.deadlines.extend(at.map(|at| (at, source)));
    }

    /// Sends a frame from an interface, now.
    pub fn send(&mut self, from: Place, frame: Vec<u8>) {
        self.events += 1;
        let Some(&(index, direction)) = self.ends.get(&from) else {
            self.unconnected += 1;
            return;
        };
        let now = self.now;
        let link = &mut self.links[index];
        let counters = &mut link.counters[direction.index()];
        counters.sent += 1;
        if link.is_up {
            link.chain.on_frame(now, direction, frame, &mut self.scratch);
            self.collect(index);
        } else {
            counters.cut += 1;
        }
    }

    /// Goes to the next event and says what it is; not beyond `until`.
    pub fn step(&mut self, until: Instant) -> Step {
        loop {
            if self.events >= self.event_limit {
                return Step::Exhausted;
            }
            if let Some((place, frame)) = self.arrived.pop_front() {
                match place.device {
                    Device::Node(to) => {
                        self.events += 1;
                        return Step::Frame { to, interface: place.port, frame };
                    }
                    Device::Switch(SwitchId(index)) => {
                        for port in self.switches[index].forward(place.port, &frame) {
                            self.send(Place { port, ..place }, frame.clone());
                        }
                        continue;
                    }
                }
            }
            let Some(&(at, source)) = self.deadlines.first() else { return Step::Idle };
            if at > until {
                self.now = self.now.max(until);
                return Step::Deadline;
            }
            self.now = self.now.max(at);
            self.deadlines.pop_first();
            match source {
                Source::Node(index) => {
                    self.timers[index] = None;
                    self.events += 1;
                    return Step::Timer(NodeId(index));
                }
                Source::Link(index) => {
                    let link = &mut self.links[index];
                    link.due = None;
                    link.chain.on_timeout(self.now, &mut self.scratch);
                    self.collect(index);
                }
            }
        }
    }

    /// Takes what a link let out, and notes when it has to be looked at again.
    fn collect(&mut self, index: usize) {
        let link = &mut self.links[index];
        while let Some((direction, frame)) = self.scratch.pop() {
            let counters = &mut link.counters[direction.index()];
            if link.is_up {
                counters.delivered += 1;
                let place = match direction {
                    Direction::Right => link.right,
                    Direction::Left => link.left,
                };
                self.arrived.push_back((place, frame));
            } else {
                counters.cut += 1;
            }
        }
        let due = link.chain.next_timeout();
        if due != link.due {
            let source = Source::Link(index);
            if let Some(old) = link.due {
                self.deadlines.remove(&(old, source));
            }
            self.deadlines.extend(due.map(|due| (due, source)));
            link.due = due;
        }
    }
}
