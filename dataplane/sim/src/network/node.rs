//! Nodes that drive themselves, and the loop around them.

use std::cell::RefCell;

use mpxdp_proto::time::Instant;

use super::{Network, NodeId, Step};
use crate::Sender;

/// Something with interfaces that takes frames and yields frames.
///
/// Its owner passes it frames and the time, and after each of that sends what it yields until it
/// yields nothing more.
pub trait Node {
    /// Takes a frame that arrived on an interface.
    fn on_frame(&mut self, now: Instant, interface: u16, frame: &[u8]);

    /// Does what is due at `now`.
    fn on_timeout(&mut self, now: Instant);

    /// When [`on_timeout`](Self::on_timeout) is due.
    fn next_timeout(&self) -> Option<Instant>;

    /// The next frame to send, and the interface to send it from.
    fn poll_frame(&mut self, now: Instant) -> Option<(u16, Vec<u8>)>;
}

thread_local! {
    /// Room for a frame that a node writes: longer than that of any IP packet. To make it anew for
    /// each question whether there is a frame would take longer than most answers.
    static ROOM: RefCell<Box<[u8]>> = RefCell::new(vec![0; 65_600].into_boxed_slice());
}

/// A sender has one interface, number 0.
impl Node for Sender {
    fn on_frame(&mut self, now: Instant, _: u16, frame: &[u8]) {
        Self::on_frame(self, now, frame);
    }

    fn on_timeout(&mut self, now: Instant) {
        Self::on_timeout(self, now);
    }

    fn next_timeout(&self) -> Option<Instant> {
        Self::next_timeout(self)
    }

    fn poll_frame(&mut self, now: Instant) -> Option<(u16, Vec<u8>)> {
        ROOM.with_borrow_mut(|room| {
            let length = Self::poll_frame(self, now, room)?;
            Some((0, room[..length].to_vec()))
        })
    }
}

/// How the network's loop goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// An event was dealt with.
    Went,
    /// Nothing until the given time, which it is now.
    Deadline,
    /// Nothing, ever.
    Idle,
    /// The limit of events is used up.
    Exhausted,
}

impl Network {
    /// Sends what the nodes have to send now, and sets their timers. `nodes[i]` is the node that was
    /// added as number `i`.
    ///
    /// # Panics
    ///
    /// If there are more `nodes` than were added.
    pub fn settle(&mut self, nodes: &mut [&mut dyn Node]) {
        for (index, node) in nodes.iter_mut().enumerate() {
            self.settle_one(NodeId(index), *node);
        }
    }

    fn settle_one(&mut self, id: NodeId, node: &mut dyn Node) {
        while self.events() < self.event_limit
            && let Some((interface, frame)) = node.poll_frame(self.now())
        {
            self.send(id.interface(interface), frame);
        }
        self.set_timer(id, node.next_timeout());
    }

    /// Goes to the next event, not beyond `until`, and lets the node that it concerns deal with it.
    /// Call [`settle`](Self::settle) first, and again when something else was done with a node.
    ///
    /// # Panics
    ///
    /// If a node that an event concerns is not among `nodes`.
    pub fn turn(&mut self, nodes: &mut [&mut dyn Node], until: Instant) -> Progress {
        let step = self.step(until);
        let now = self.now();
        let id = match step {
            Step::Frame { to, interface, frame } => {
                nodes[to.index()].on_frame(now, interface, &frame);
                to
            }
            Step::Timer(id) => {
                nodes[id.index()].on_timeout(now);
                id
            }
            Step::Deadline => return Progress::Deadline,
            Step::Idle => return Progress::Idle,
            Step::Exhausted => return Progress::Exhausted,
        };
        self.settle_one(id, nodes[id.index()]);
        Progress::Went
    }

    /// Settles the nodes and takes turns until there is nothing more until `until`; says why it
    /// ended, which is never [`Progress::Went`].
    ///
    /// # Panics
    ///
    /// As [`settle`](Self::settle) and [`turn`](Self::turn).
    pub fn run(&mut self, nodes: &mut [&mut dyn Node], until: Instant) -> Progress {
        self.settle(nodes);
        loop {
            match self.turn(nodes, until) {
                Progress::Went => {}
                ended => return ended,
            }
        }
    }
}
