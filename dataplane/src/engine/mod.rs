//! The engine: NICs, workers and listeners under one roof.

mod announce;
mod build;
mod config;
mod descriptors;
mod holds;
mod memory;
mod nics;
mod notice;
mod open;
mod reserve;
#[cfg(test)]
mod tests;
#[cfg(feature = "virtual-time")]
pub mod virtual_time;
mod watch;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use self::memory::Memory;
use self::nics::Nics;
use self::watch::Watch;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::listener::{Backlog, Ended, Limits, Listener};
use crate::stats::{MemoryReport, NicReport, PortReport, WorkerReport};
use crate::worker::{Command, Handle, Shared};

pub use self::announce::Announce;
pub use self::build::EngineBuilder;
pub use self::config::{Checksums, Dscp, EngineConfig, Keepalive};
pub use self::notice::{NicChange, Notice};

/// A running engine. Dropping it resets the connections that are left and gives the NICs back.
pub struct Engine {
    config: EngineConfig,
    clock: Clock,
    shared: Arc<Shared>,
    nics: Arc<Nics>,
    /// Follows what becomes of the NICs, if they are the kernel's.
    watch: Option<Watch>,
    workers: Vec<(Arc<Handle>, JoinHandle<()>)>,
    /// Why nothing can come any more: the first worker that ended by a panic, or the NICs are gone.
    failure: Arc<Mutex<Option<Ended>>>,
    memory: Arc<Memory>,
}

impl Engine {
    /// Starts collecting what an engine is made of.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::default()
    }

    /// Listens on an address of the engine's NICs; an unspecified address (`0.0.0.0`, `::`)
    /// stands for all of them of its family.
    ///
    /// # Errors
    ///
    /// [`Error::AddressNotLocal`]; [`Error::AddressInUse`] if a socket of the kernel or another
    /// listener has the port; [`Error::Configuration`] for port 0, and for a link-local address
    /// without a scope; [`Error::WorkerFailed`]. The
    /// first two also for an address that is to be [announced](EngineConfig::announce), if it was
    /// named.
    pub fn listen(&self, at: SocketAddr) -> Result<Listener> {
        self.check()?;
        // Packets do not tell a scope, so it is not part of a listener's address.
        let to = SocketAddr::new(at.ip(), at.port());
        if at.port() == 0 {
            return Err(Error::Configuration(format!("{at}: port 0 is none; name a port")));
        }
        if matches!(at, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0)
        {
            return Err(Error::Configuration(format!(
                "{at}: an address of one link needs the link's number as its scope"
            )));
        }
        self.nics.look(&self.shared, &self.handles())?;
        let listeners = &self.shared.listeners;
        if listeners.contains(to) {
            return Err(Error::AddressInUse { at });
        }
        let entrance = self.nics.entrance(at)?;
        let EngineConfig { backlog, half_open, half_open_per_source, .. } = self.config;
        let limits = Limits { backlog, half_open, half_open_per_source };
        let backlog =
            Backlog::new(entrance, limits).map_err(|e| Error::io(format!("{at}: listening"), e))?;
        if !listeners.add(to, &backlog) {
            return Err(Error::AddressInUse { at });
        }
        Ok(Listener::new(to, backlog, Arc::clone(listeners)))
    }

    fn handles(&self) -> Vec<Arc<Handle>> {
        self.workers.iter().map(|(handle, _)| Arc::clone(handle)).collect()
    }

    /// Starts to follow what becomes of the NICs.
    fn watch(&self) -> io::Result<Watch> {
        let (nics, shared) = (Arc::clone(&self.nics), Arc::clone(&self.shared));
        let (failure, workers) = (Arc::clone(&self.failure), self.handles());
        Watch::start(move || {
            if let Err(error) = nics.look(&shared, &workers) {
                tracing::warn!(%error, "looking at the NICs");
            }
            if nics.all_gone() {
                let mut first = failure.lock().unwrap_or_else(PoisonError::into_inner);
                shared.listeners.end(first.get_or_insert_with(|| nics.gone()));
            }
        })
    }

    /// What has become of the NICs since this was asked the last time; of too much, the newest.
    ///
    /// The engine follows it by itself: what a NIC that is gone has served goes on by others, peers
    /// are told of addresses that come and go, and once the last NIC is gone everything ends with
    /// [`Error::NicsGone`]. This is for people to know.
    #[must_use]
    pub fn take_notices(&self) -> Vec<Notice> {
        self.nics.notices().take()
    }

    /// Bytes of memory that the connections take now, of the
    /// [`memory_limit`](EngineConfig::memory_limit).
    #[must_use]
    pub fn memory_in_use(&self) -> usize {
        self.memory.in_use()
    }

    /// The memory of the connections, with what is kept for the next.
    #[must_use]
    pub fn memory(&self) -> MemoryReport {
        self.memory.report()
    }

    /// The NICs, and how their packets come.
    #[must_use]
    pub fn nics(&self) -> Vec<NicReport> {
        self.nics.reports()
    }

    /// The workers, and what they have done.
    #[must_use]
    pub fn workers(&self) -> Vec<WorkerReport> {
        self.workers.iter().map(|(handle, _)| handle.counters.report(handle.cpu)).collect()
    }

    /// The ports, their counters and where their frames are: the workers are asked, each for up
    /// to a second. On a machine with too much to do, one that slept has been seen to need more
    /// than a tenth of that.
    #[must_use]
    pub fn ports(&self) -> Vec<PortReport> {
        const PATIENCE: Duration = Duration::from_secs(1);

        let ask = |(handle, _): &(Arc<Handle>, JoinHandle<()>)| {
            let (to, reports) = crossbeam_channel::bounded(1);
            handle.command(Command::Report { to });
            reports
        };
        let asked: Vec<_> = self.workers.iter().map(ask).collect();
        asked
            .iter()
            .flat_map(|reports| reports.recv_timeout(PATIENCE).unwrap_or_default())
            .collect()
    }

    /// Whether all workers run, and there is a NIC.
    ///
    /// # Errors
    ///
    /// [`Error::WorkerFailed`] if one has ended by a panic; [`Error::NicsGone`].
    pub fn check(&self) -> Result<()> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.clone().map_or(Ok(()), |ended| Err(ended.into()))
    }

    /// Stops listening, lets connections end by themselves for up to `grace`, resets those that
    /// are left, and gives the NICs back.
    ///
    /// # Errors
    ///
    /// [`Error::WorkerFailed`] if a worker had ended by a panic; [`Error::NicsGone`].
    pub fn shutdown(mut self, grace: Duration) -> Result<()> {
        self.stop(grace);
        self.check()
    }

    fn stop(&mut self, grace: Duration) {
        self.watch = None;
        self.shared.listeners.end(&Ended::Stopped);
        let deadline = self.clock.now() + grace;
        for (handle, _) in &self.workers {
            handle.command(Command::Stop { deadline });
        }
        for (_, thread) in self.workers.drain(..) {
            // What a worker panicked with is in `failure`.
            let _ = thread.join();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("nics", &self.nics.names())
            .field("workers", &self.workers.len())
            .finish_non_exhaustive()
    }
}
