//! A worker without a thread: its owner takes the turns, and says what time it is.
//!
//! It is the worker of an [`Engine`](crate::Engine), the same code in the same order, for benchmarks
//! that want to know where its time goes and for simulations in virtual time. Listeners and streams
//! are the usual ones; since nothing happens between two turns, nobody should wait on them. Several
//! workers that share connections, with keys from a seed, are in `virtual_time`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use mpxdp_proto::time::Instant;

use crate::engine::EngineConfig;
use crate::error::{Error, Result};
use crate::listener::{Backlog, Limits, Listener};
use crate::port::Port;
use crate::receive::{RingConfig, Unlimited};
use crate::stats::WorkerReport;
use crate::worker::{Attached, Entropy, Handle, PortFacts, Shared, Worker};

pub use crate::worker::{Probe, Stage};

/// A worker with one port.
pub struct SteppedWorker<P: Port> {
    worker: Worker<P>,
    handle: Arc<Handle>,
    shared: Arc<Shared>,
    limits: Limits,
}

/// What came of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// How many packets it took from the port.
    pub packets: usize,
    /// Whether there was anything to do.
    pub busy: bool,
}

impl<P: Port> SteppedWorker<P> {
    /// A worker of the port of a NIC with this MTU. Of `config` the placement, the announcements and
    /// the limit of memory have no meaning here.
    ///
    /// # Errors
    ///
    /// The system has no random numbers or descriptors left.
    pub fn new(port: P, mtu: u32, config: &EngineConfig) -> Result<Self> {
        let EngineConfig { receive_initial: initial, receive_limit: limit, .. } = *config;
        let ring = RingConfig { initial, limit, budget: Arc::new(Unlimited) };
        let failed = |e: io::Error| Error::io("making a worker", e);
        let shared = Shared::new(config.protocol(), ring, config.joins(), Entropy::System)
            .map_err(failed)?;
        let shared = Arc::new(shared);
        let facts = PortFacts { nic: "stepped".into(), queue: 0, mtu, gone: false };
        let ports = vec![Attached { port, facts }];
        let (worker, handle) = Worker::new(0, None, ports, Arc::clone(&shared)).map_err(failed)?;
        shared.introduce(vec![Arc::clone(&handle)]);
        let EngineConfig { backlog, half_open, half_open_per_source, .. } = *config;
        Ok(Self {
            worker,
            handle,
            shared,
            limits: Limits { backlog, half_open, half_open_per_source },
        })
    }

    /// Listens at `at`, whichever addresses the NIC has.
    ///
    /// # Errors
    ///
    /// [`Error::AddressInUse`] if there is a listener already, or no descriptor is left.
    pub fn listen(&self, at: SocketAddr) -> Result<Listener> {
        let backlog = Backlog::new(Arc::default(), self.limits)
            .map_err(|e| Error::io(format!("{at}: listening"), e))?;
        if !self.shared.listeners.add(at, &backlog) {
            return Err(Error::AddressInUse { at });
        }
        Ok(Listener::new(at, backlog, Arc::clone(&self.shared.listeners)))
    }

    /// Takes a burst from the port, and does everything else that is due at `now`, which never goes
    /// back.
    #[inline]
    pub fn turn(&mut self, now: Instant) -> Turn {
        self.turn_watched(now, ())
    }

    /// The same; `probe` is told of the [`Stage`]s of the turn.
    #[inline]
    pub fn turn_watched(&mut self, now: Instant, probe: impl Probe) -> Turn {
        let progress = self.worker.turn_watched(now, probe);
        Turn { packets: progress.packets, busy: progress.busy }
    }

    /// What the worker has counted.
    #[must_use]
    pub fn report(&self) -> WorkerReport {
        self.handle.counters.report(None)
    }
}
