//! The workers of an engine without its threads and its clock: for fuzzing and simulation.
//!
//! [`Engine`](crate::Engine) starts a thread for each worker, reads a clock and draws random
//! numbers, so no two runs of it are alike. [`Workers`] are the same workers, ports, listeners and
//! streams, and nothing of them is replaced; but a worker does something only when it is given its
//! [`turn`](Workers::turn), at a time of the caller's choosing, and keys and nonces follow from a
//! seed. One thing is left that a thread does: the memory for a ring that grows. Where
//! [`receive_initial`](EngineConfig::receive_initial) is the
//! [`receive_limit`](EngineConfig::receive_limit), none grows.
//!
//! It is behind the feature `virtual-time`, since an engine with foreseeable keys is nothing to run
//! on a network.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use mpxdp_proto::segment::AddressId;
use mpxdp_proto::time::Instant;

use super::EngineConfig;
use super::memory::Memory;
use crate::connection::Announced;
use crate::listener::{Backlog, Entrance, Limits, Listener};
use crate::port::{FrameAccount, Port};
use crate::stats::WorkerReport;
use crate::worker::{Attached, Entropy, Handle, PortFacts, Shared, Worker};

/// The workers of an engine, taking turns.
pub struct Workers<P: Port> {
    config: EngineConfig,
    shared: Arc<Shared>,
    memory: Arc<Memory>,
    workers: Vec<(Worker<P>, Arc<Handle>)>,
}

impl<P: Port> Workers<P> {
    /// A worker for each of `ports`, which are its ports, on NICs with an MTU of `mtu` octets.
    ///
    /// # Errors
    ///
    /// No descriptor is left.
    pub fn new(
        config: EngineConfig,
        seed: u64,
        mtu: u32,
        ports: impl IntoIterator<Item = Vec<P>>,
    ) -> io::Result<Self> {
        let memory = Arc::new(Memory::new(config.memory_limit));
        let ring = config.ring(Arc::clone(&memory));
        let entropy = Entropy::seeded(seed);
        let shared = Arc::new(Shared::new(config.protocol(), ring, config.joins(), entropy)?);
        let mut workers = Vec::new();
        for (index, ports) in ports.into_iter().enumerate() {
            let attached = ports.into_iter().zip(0..).map(|(port, queue)| Attached {
                port,
                facts: PortFacts { nic: format!("nic{index}").into(), queue, mtu, gone: false },
            });
            workers.push(Worker::new(index, None, attached.collect(), Arc::clone(&shared))?);
        }
        shared.introduce(workers.iter().map(|(_, handle)| Arc::clone(handle)).collect());
        Ok(Self { config, shared, memory, workers })
    }

    /// Listens at `at`, telling peers of the addresses `announced`, of which the first 255 count.
    ///
    /// # Errors
    ///
    /// No descriptor is left, or there is a listener at that address
    /// ([`AddrInUse`](io::ErrorKind::AddrInUse)).
    pub fn listen(&self, at: SocketAddr, announced: &[SocketAddr]) -> io::Result<Listener> {
        let EngineConfig { backlog, half_open, half_open_per_source, .. } = self.config;
        let limits = Limits { backlog, half_open, half_open_per_source };
        let local = std::iter::once(&at).chain(announced).map(SocketAddr::ip).collect();
        let announced =
            announced.iter().zip(1..=255).map(|(at, id)| Announced { id: AddressId(id), at: *at });
        let entrance = Arc::new(Entrance::default());
        entrance.set(local, announced.collect());
        let backlog = Backlog::new(entrance, limits)?;
        if !self.shared.listeners.add(at, &backlog) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        Ok(Listener::new(at, backlog, Arc::clone(&self.shared.listeners)))
    }

    /// Lets a worker do what there is to do at `now`; says whether there was anything. The time
    /// must not go back.
    ///
    /// # Panics
    ///
    /// If there is no such worker.
    pub fn turn(&mut self, worker: usize, now: Instant) -> bool {
        self.workers[worker].0.turn(now).busy
    }

    /// When the next turn is due although no packet comes in.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.workers.iter().filter_map(|(worker, _)| worker.next_due()).min()
    }

    /// The number of workers.
    #[must_use]
    pub fn count(&self) -> usize {
        self.workers.len()
    }

    /// What a worker has done.
    ///
    /// # Panics
    ///
    /// If there is no such worker.
    #[must_use]
    pub fn report(&self, worker: usize) -> WorkerReport {
        let (worker, handle) = &self.workers[worker];
        worker.publish_tables();
        handle.counters.report(None)
    }

    /// Where the frames of all ports are.
    pub fn frames(&self) -> impl Iterator<Item = FrameAccount> + '_ {
        self.workers.iter().flat_map(|(worker, _)| worker.frames())
    }

    /// Bytes of memory that the connections take, of the
    /// [`memory_limit`](EngineConfig::memory_limit).
    #[must_use]
    pub fn memory_in_use(&self) -> usize {
        self.memory.in_use()
    }

    /// How many tokens name a connection, or a handshake that may lead to one.
    #[must_use]
    pub fn tokens_in_use(&self) -> usize {
        self.shared.tokens.len()
    }
}

impl<P: Port> std::fmt::Debug for Workers<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers").field("count", &self.count()).finish_non_exhaustive()
    }
}
