//! Several boxes in a row.

use std::collections::VecDeque;
use std::fmt;

use mpxdp_proto::time::Instant;

use super::alter::Alter;
use super::coalesce::Coalesce;
use super::delay::{Delay, Reorder};
use super::filter::{Cut, Filter};
use super::impair::{Harm, Impair};
use super::mtu::Mtu;
use super::nat::Nat;
use super::rate::Rate;
use super::sequence::Sequence;
use super::split::Split;
use super::strip::Strip;
use super::{ChainSpec, Counters, Direction, Item, Kind, Middlebox, Output, Place, Random};

/// Middleboxes in a row; itself one.
///
/// What goes right passes them from the first to the last, what goes left from the last to the first.
#[derive(Default)]
pub struct Chain {
    links: Vec<Link>,
    /// Frames on their way from box to box: where they go in, and in which direction.
    moving: VecDeque<(usize, Direction, Vec<u8>)>,
    /// What one box let out.
    scratch: Output,
}

struct Link {
    label: String,
    /// The direction outside of which frames pass by.
    only: Option<Direction>,
    middlebox: Box<dyn Middlebox>,
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.counters()).finish()
    }
}

impl Chain {
    /// The chain that a description describes. What it does to the same frames at the same times is
    /// the same for the same `seed`; each box has dice of its own, for each direction.
    #[must_use]
    pub fn new(spec: &ChainSpec, seed: u64) -> Self {
        let random = Random::new(seed);
        let mut chain = Self::default();
        for (at, item) in spec.items.iter().enumerate() {
            let (only, middlebox) = build(item, &random.part(at as u64));
            chain.links.push(Link { label: item.to_string(), only, middlebox });
        }
        chain
    }

    /// Adds a box at the right end. `label` names it in [`counters`](Self::counters).
    pub fn push(&mut self, label: impl Into<String>, middlebox: Box<dyn Middlebox>) {
        self.links.push(Link { label: label.into(), only: None, middlebox });
    }

    /// The boxes, the leftmost first: how each is described, and what it did.
    pub fn counters(&self) -> impl Iterator<Item = (&str, Counters)> {
        self.links.iter().map(|link| (link.label.as_str(), link.middlebox.counters()))
    }

    /// Moves what box `at` let out to the boxes next to it.
    fn collect(&mut self, at: usize) {
        while let Some((direction, frame)) = self.scratch.pop() {
            self.moving.push_back((next(at, direction), direction, frame));
        }
    }

    /// Moves frames until they are held, lost or out.
    fn settle(&mut self, now: Instant, out: &mut Output) {
        while let Some((at, direction, frame)) = self.moving.pop_front() {
            match self.links.get_mut(at) {
                None => out.push(direction, frame),
                Some(link) if link.only.is_some_and(|only| only != direction) => {
                    self.moving.push_back((next(at, direction), direction, frame));
                }
                Some(link) => {
                    link.middlebox.on_frame(now, direction, frame, &mut self.scratch);
                    self.collect(at);
                }
            }
        }
    }
}

/// Where a frame goes from box `at`; to the left of the first box there is none, as to the right of
/// the last.
const fn next(at: usize, direction: Direction) -> usize {
    match direction {
        Direction::Right => at + 1,
        Direction::Left => at.wrapping_sub(1),
    }
}

impl Middlebox for Chain {
    fn on_frame(&mut self, now: Instant, direction: Direction, frame: Vec<u8>, out: &mut Output) {
        let first = match direction {
            Direction::Right => 0,
            Direction::Left => self.links.len().wrapping_sub(1),
        };
        self.moving.push_back((first, direction, frame));
        self.settle(now, out);
    }

    fn on_timeout(&mut self, now: Instant, out: &mut Output) {
        // What one box lets out may be due at once in the next, to either side.
        while let Some(at) = self
            .links
            .iter()
            .position(|link| link.middlebox.next_timeout().is_some_and(|due| due <= now))
        {
            self.links[at].middlebox.on_timeout(now, &mut self.scratch);
            self.collect(at);
            self.settle(now, out);
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.links.iter().filter_map(|link| link.middlebox.next_timeout()).min()
    }

    /// The sum over all boxes.
    fn counters(&self) -> Counters {
        self.counters().fold(Counters::default(), |sum, (_, one)| Counters {
            dropped: sum.dropped + one.dropped,
            added: sum.added + one.added,
            changed: sum.changed + one.changed,
        })
    }
}

/// The box for an item, and the direction outside of which frames need not see it.
fn build(item: &Item, random: &Random) -> (Option<Direction>, Box<dyn Middlebox>) {
    let Item { only, kind } = item;
    let middlebox: Box<dyn Middlebox> = match *kind {
        Kind::Loss(probability) => Box::new(Impair::new(Harm::Lose, probability, random)),
        Kind::Duplicate(probability) => Box::new(Impair::new(Harm::Duplicate, probability, random)),
        Kind::Corrupt(probability) => Box::new(Impair::new(Harm::Corrupt, probability, random)),
        Kind::Reorder { probability, by } => Box::new(Reorder::new(probability, by, random)),
        Kind::Delay { by, jitter } => Box::new(Delay::new(by, jitter, random)),
        Kind::Rate { rate, queue } => Box::new(Rate::new(rate, queue)),
        Kind::Strip { place, ref what, padding } => {
            let strip = Box::new(Strip::new(place, what.clone(), padding, *only));
            // What passes counts, whichever way.
            let counts = matches!(place, Place::After(_));
            return (only.filter(|_| !counts), strip);
        }
        // Both directions belong together in these.
        Kind::Sequence => return (None, Box::new(Sequence::new(*only, random))),
        Kind::Nat { address } => {
            let outward = only.unwrap_or(Direction::Right);
            return (None, Box::new(Nat::new(outward, address, random)));
        }
        Kind::Split { size, first_only } => Box::new(Split::new(size, first_only)),
        Kind::Coalesce { size, patience, first_only } => {
            Box::new(Coalesce::new(size, patience, first_only))
        }
        Kind::Drop(traffic) => Box::new(Filter::new(traffic)),
        Kind::Cut { after, length } => Box::new(Cut::new(after, length)),
        Kind::Alter(what) => Box::new(Alter::new(what, random)),
        Kind::Mtu { mtu, icmp } => Box::new(Mtu::new(mtu, icmp)),
    };
    (*only, middlebox)
}
