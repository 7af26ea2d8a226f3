//! Middleboxes: what stands between two hosts and does something to the frames that pass.
//!
//! A [`Middlebox`] is given whole Ethernet frames and the time, and says what comes out; it knows
//! no clock and no socket. So the same box stands in the virtual-time [`network`](crate::network)
//! and in a live relay between two interfaces. A [`Chain`] is several of them in a row, and a
//! [`ChainSpec`] describes one as text:
//!
//! ```
//! use mpxdp_sim::middlebox::{Chain, ChainSpec};
//!
//! let spec: ChainSpec = "delay=40ms,rate=1Gbit,>loss=1%,strip=syn".parse()?;
//! assert_eq!(spec.to_string(), "delay=40ms,rate=1Gbit,>loss=1%,strip=syn");
//! let chain = Chain::new(&spec, 7);
//! # Ok::<(), mpxdp_sim::middlebox::SpecError>(())
//! ```
//!
//! A chain stands between a left and a right side. What goes right passes the boxes in the order of
//! the text, what goes left passes them in the opposite order.
//!
//! # The text form
//!
//! Items are separated by commas. `>` before an item makes it act on frames that go right only, `<`
//! on frames that go left only. Parts in brackets may be left out.
//!
//! | item | what it does |
//! |---|---|
//! | `loss=P` | loses a frame with probability P |
//! | `dup=P` | sends a frame twice, the copy right behind |
//! | `corrupt=P` | flips one bit of an IP packet; no checksum is corrected |
//! | `reorder=P[:TIME]` | holds a frame back for TIME (1 ms), so that later ones overtake it |
//! | `delay=TIME[:JITTER]` | delays every frame by TIME and up to JITTER more; the order is kept |
//! | `rate=RATE[:BYTES]` | passes so many bits a second; what does not fit a queue of BYTES (1M) is lost |
//! | `strip=WHERE[:WHAT][:shrink]` | removes TCP options: see below |
//! | `isn` | shifts the sequence numbers of each connection, in both directions |
//! | `nat[=ADDR]` | translates the port, and the address to ADDR, of connections from the left |
//! | `split=N[:first]` | cuts segments of more than N bytes of payload |
//! | `coalesce=N[:TIME][:first]` | merges segments to up to N bytes, waiting up to TIME (1 ms) |
//! | `drop=WHAT` | loses `data` (an ACK-only path), `acks`, `syn`, `join`, `fin`, `rst` or `all` |
//! | `cut=TIME:LENGTH` | loses everything from TIME after the first TCP segment on, for LENGTH |
//! | `alter=P` | changes a byte of payload with probability P for a segment, and corrects the TCP checksum |
//! | `alter=at-N` | changes byte N (from 0) of each TCP stream whenever it passes, likewise |
//! | `mtu=N[:icmp]` | loses IP packets longer than N bytes; with `icmp` the sender is told |
//!
//! P is a percentage (`0.1%`), TIME has a unit (`ns`, `us`, `ms`, `s`), RATE too (`bit`, `kbit`,
//! `Mbit`, `Gbit`, decimal), and so may sizes (`k`, `M`, `G`, binary).
//!
//! `strip` removes options from segments with SYN (`syn`), from segments with payload (`data`), from
//! all segments (`all`), or from all segments of a connection once N bytes of payload have passed,
//! whichever way (`after-N`). WHAT is `mptcp` if not given, or any of `mss`, `wscale`, `sackok`,
//! `sack`, `ts`, `mptcp`, `kind-N`, or of MPTCP alone `capable`, `join`, `dss`, `add_addr`,
//! `remove_addr`, `prio`, `fail`, `fastclose`, `reset`, `subtype-N`; several are joined with `+`. What
//! is removed becomes NOPs; with `shrink` the header gets shorter.
//!
//! `split` copies the options to every part; with `first` the MPTCP options stay on the first part
//! only. `coalesce` merges segments with the same MPTCP options; with `first` it merges whatever
//! follows and keeps the options of the first, so that mappings get lost.
//!
//! `nat` and `isn` need to see both directions. With `<`, `nat` translates connections from the
//! right instead, and `>isn` or `<isn` shifts only the numbers of one direction.

mod alter;
mod chain;
mod coalesce;
mod delay;
mod filter;
mod flows;
mod impair;
mod mtu;
mod nat;
mod packet;
mod random;
mod rate;
mod sequence;
mod spec;
mod split;
mod strip;
#[cfg(test)]
mod tests;
mod units;

use std::collections::VecDeque;

use mpxdp_proto::time::Instant;

pub use chain::Chain;
pub use packet::Padding;
pub use random::Random;
pub use spec::{Alteration, ChainSpec, Item, Kind, OptionName, Place, SpecError, Traffic};
pub use units::{BitRate, Probability};

/// The way a frame goes through a middlebox.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// From the left side to the right side.
    Right,
    /// From the right side to the left side.
    Left,
}

impl Direction {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Right, Self::Left];

    /// The other one.
    #[must_use]
    pub const fn reverse(self) -> Self {
        match self {
            Self::Right => Self::Left,
            Self::Left => Self::Right,
        }
    }

    /// 0 for right, 1 for left.
    pub(crate) const fn index(self) -> usize {
        match self {
            Self::Right => 0,
            Self::Left => 1,
        }
    }
}

/// What a middlebox lets out, first in, first out.
#[derive(Debug, Default)]
pub struct Output {
    frames: VecDeque<(Direction, Vec<u8>)>,
}

impl Output {
    /// Lets a frame out in a direction.
    pub fn push(&mut self, direction: Direction, frame: Vec<u8>) {
        self.frames.push_back((direction, frame));
    }

    /// The next frame and the way it goes.
    pub fn pop(&mut self) -> Option<(Direction, Vec<u8>)> {
        self.frames.pop_front()
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The number of frames that are left.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames.len()
    }
}

/// What a middlebox did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Frames it lost.
    pub dropped: u64,
    /// Frames it made: copies, parts, messages of its own.
    pub added: u64,
    /// Frames it changed, held back or merged into another.
    pub changed: u64,
}

/// Something that frames pass through.
///
/// Its owner passes it frames and the time, and calls [`on_timeout`](Self::on_timeout) when
/// [`next_timeout`](Self::next_timeout) says so. It never gets a time earlier than before.
pub trait Middlebox: Send {
    /// Takes a frame that goes in `direction`, whole, from its Ethernet header on. What comes out at
    /// once is pushed to `out`.
    fn on_frame(&mut self, now: Instant, direction: Direction, frame: Vec<u8>, out: &mut Output);

    /// Lets out what is due at `now`. Afterwards nothing is due until later than `now`.
    fn on_timeout(&mut self, now: Instant, out: &mut Output) {
        let _ = (now, out);
    }

    /// When [`on_timeout`](Self::on_timeout) is due.
    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    /// What it did so far.
    fn counters(&self) -> Counters;
}
