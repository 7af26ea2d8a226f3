//! Middleboxes between two interfaces: what [`mpxdp_sim::middlebox`] does in virtual time, done to
//! frames as they come.
//!
//! The relay takes every frame that arrives at either interface and sends what its chain lets out at
//! the other one. It knows nothing of addresses, so the two ends see each other as if they were
//! joined by a cable.

mod report;
mod socket;

use std::time::{Duration, Instant as Clock};

use mpxdp_proto::time::Instant;
use mpxdp_sim::middlebox::{Chain, ChainSpec, Direction, Middlebox, Output};
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

pub use report::{BoxReport, Report, SideReport};
pub(crate) use socket::PacketSocket;

use crate::error::{Context, Error, Result};
use crate::interrupt::Interrupt;

/// What the command says on standard error, with more behind it, once it relays.
pub const READY: &str = "relaying";

/// How long a signal may go unnoticed while nothing happens.
const GLANCE: Duration = Duration::from_millis(100);

/// What a relay is made with.
#[derive(Clone, Debug)]
pub struct Options {
    /// The interface on the left.
    pub left: String,
    /// The interface on the right.
    pub right: String,
    /// What stands between them.
    pub chain: ChainSpec,
    /// What the chain's dice come from.
    pub seed: u64,
}

/// A relay that is ready; what arrives from now on is not lost.
#[derive(Debug)]
pub struct Relay {
    /// The interface where frames that go right come in, then the one where those that go left do.
    sockets: [PacketSocket; 2],
    chain: Chain,
    /// What is to be sent at the interface of the same place.
    outgoing: [Vec<Vec<u8>>; 2],
    report: Report,
}

impl Relay {
    /// Opens both interfaces.
    ///
    /// # Errors
    ///
    /// If both are the same interface (wrong usage), one does not exist, or privilege (CAP_NET_RAW,
    /// CAP_NET_ADMIN) is missing.
    pub fn open(options: &Options) -> Result<Self> {
        let [left, right] = [&options.left, &options.right];
        // An interface may have other names.
        let number = |name: &String| if_nametoindex(name.as_str()).ok();
        if left == right || number(left).is_some_and(|left| Some(left) == number(right)) {
            return Err(Error::Usage(format!(
                "--left {left}, --right {right}: that is one interface, and what comes in there would \
                 go out there again"
            )));
        }
        Ok(Self {
            sockets: [PacketSocket::open(&options.left)?, PacketSocket::open(&options.right)?],
            chain: Chain::new(&options.chain, options.seed),
            outgoing: Default::default(),
            report: Report::default(),
        })
    }

    /// Relays until a signal arrives; then says what it did. Frames that are held at that moment are
    /// lost.
    ///
    /// # Errors
    ///
    /// If a socket fails. A link that is down is no failure: it may come up again.
    pub fn run(mut self, interrupt: &Interrupt) -> Result<Report> {
        // The default slack of 50 us is longer than a frame takes at 1 Gbit/s.
        nix::sys::prctl::set_timerslack(1).context(|| "cannot set the timer slack")?;
        let start = Clock::now();
        let mut out = Output::default();
        while !interrupt.is_set() {
            let now = since(start);
            // What was due before goes before what arrives now.
            if self.chain.next_timeout().is_some_and(|due| due <= now) {
                self.chain.on_timeout(now, &mut out);
            }
            let arrived = self.take(now, &mut out)?;
            self.send(&mut out)?;
            if arrived == 0 {
                self.wait(since(start))?;
            }
        }
        self.report.seconds = start.elapsed().as_secs_f64();
        self.report.boxes = self.chain.counters().map(BoxReport::from).collect();
        Ok(self.report)
    }

    /// Passes a burst from each side through the chain.
    fn take(&mut self, now: Instant, out: &mut Output) -> Result<usize> {
        let Self { sockets, chain, report, .. } = self;
        let mut sum = 0;
        let sides = sockets.iter_mut().zip(report.sides_mut()).zip(Direction::BOTH);
        for ((socket, side), direction) in sides {
            let received = socket.receive(|arrived| {
                side.received += 1;
                side.received_bytes += arrived.frame.len() as u64;
                side.incomplete += u64::from(!arrived.is_complete);
                chain.on_frame(now, direction, arrived.frame, out);
            });
            sum += received.context(|| format!("cannot receive on {}", socket.interface()))?;
        }
        Ok(sum)
    }

    /// Sends what came out of the chain.
    fn send(&mut self, out: &mut Output) -> Result<()> {
        while let Some((direction, frame)) = out.pop() {
            // What goes right leaves on the right.
            let side = match direction {
                Direction::Right => 1,
                Direction::Left => 0,
            };
            self.outgoing[side].push(frame);
        }
        let Self { sockets, outgoing, report, .. } = self;
        for ((socket, frames), side) in
            sockets.iter().zip(outgoing).zip(report.sides_mut()).filter(|((_, f), _)| !f.is_empty())
        {
            let taken =
                socket.send(frames).context(|| format!("cannot send on {}", socket.interface()))?;
            side.sent += taken as u64;
            side.refused += (frames.len() - taken) as u64;
            frames.clear();
        }
        Ok(())
    }

    /// Waits until a frame arrives or something is due.
    fn wait(&self, now: Instant) -> Result<()> {
        let due = self.chain.next_timeout().map(|due| due.saturating_since(now));
        let limit = due.map_or(GLANCE, |due| due.min(GLANCE));
        let mut fds =
            self.sockets.each_ref().map(|socket| PollFd::new(socket.fd(), PollFlags::POLLIN));
        match ppoll(&mut fds, Some(TimeSpec::from_duration(limit)), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error).context(|| "cannot wait for frames"),
        }
    }
}

fn since(start: Clock) -> Instant {
    Instant(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
}
