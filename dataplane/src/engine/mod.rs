//! The engine: NICs, workers and listeners under one roof.

mod announce;
mod build;
mod config;
mod descriptors;
mod holds;
mod memory;
mod open;
mod reserve;
#[cfg(test)]
mod tests;
#[cfg(feature = "virtual-time")]
pub mod virtual_time;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use self::announce::AddressIds;
use self::holds::Holds;
use self::memory::Memory;
use crate::clock::Clock;
use crate::connection::Announced;
use crate::error::{Error, Result};
use crate::listener::{Backlog, Ended, Entrance, Limits, Listener};
use crate::nic::NicFacts;
use crate::stats::{NicReport, PortReport, WorkerReport};
use crate::worker::{Command, Handle, Shared};

pub use self::announce::Announce;
pub use self::build::EngineBuilder;
pub use self::config::{Checksums, EngineConfig, Keepalive};

/// A running engine. Dropping it resets the connections that are left and gives the NICs back.
pub struct Engine {
    config: EngineConfig,
    clock: Clock,
    shared: Arc<Shared>,
    nics: Vec<Nic>,
    workers: Vec<(Arc<Handle>, JoinHandle<()>)>,
    /// The first worker that ended by a panic.
    failure: Arc<Mutex<Option<Ended>>>,
    holds: Arc<Holds>,
    memory: Arc<Memory>,
    address_ids: AddressIds,
}

struct Nic {
    report: NicReport,
    /// Its addresses when the engine started.
    addresses: Vec<IpAddr>,
    /// Its steering program, by its place among all.
    program: Option<usize>,
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
        let local = self.local_addresses()?;
        self.check_local(at.ip(), &local)?;
        let listeners = &self.shared.listeners;
        if listeners.contains(to) {
            return Err(Error::AddressInUse { at });
        }
        let entrance = self.entrance(at, &local)?;
        let EngineConfig { backlog, half_open, half_open_per_source, .. } = self.config;
        let limits = Limits { backlog, half_open, half_open_per_source };
        let backlog =
            Backlog::new(entrance, limits).map_err(|e| Error::io(format!("{at}: listening"), e))?;
        if !listeners.add(to, &backlog) {
            return Err(Error::AddressInUse { at });
        }
        Ok(Listener::new(to, backlog, Arc::clone(listeners)))
    }

    /// The addresses of all NICs; tells the steering programs of those that came since the start.
    fn local_addresses(&self) -> Result<Vec<IpAddr>> {
        let mut local = Vec::new();
        for nic in &self.nics {
            let Some(program) = nic.program else {
                local.extend(&nic.addresses);
                continue;
            };
            let facts = NicFacts::read(&nic.report.name)?;
            holds::lock(&self.holds.programs()[program]).set_local_addresses(&facts.addresses)?;
            local.extend(facts.addresses);
        }
        Ok(local)
    }

    fn check_local(&self, address: IpAddr, local: &[IpAddr]) -> Result<()> {
        if address.is_unspecified() || local.contains(&address) {
            return Ok(());
        }
        let names: Vec<&str> = self.nics.iter().map(|nic| nic.report.name.as_str()).collect();
        Err(Error::AddressNotLocal { address, nics: names.join(", ") })
    }

    /// Holds the listener's address, and those that are announced to its peers.
    fn entrance(&self, at: SocketAddr, local: &[IpAddr]) -> Result<Entrance> {
        let mut holds = vec![self.holds.hold(at)?];
        let (addresses, chosen) = match &self.config.announce {
            Announce::None => return Ok(Entrance::new(holds, Vec::new())),
            Announce::Auto => {
                let of_use = local.iter().filter(|address| announce::is_of_use(address));
                (of_use.map(|address| (*address, None)).collect(), false)
            }
            Announce::Addresses(addresses) => (addresses.clone(), true),
        };
        let mut announced: Vec<Announced> = Vec::new();
        for (address, port) in addresses {
            self.check_local(address, local)?;
            let to = SocketAddr::new(address, port.unwrap_or_else(|| at.port()));
            if to == at || announced.iter().any(|known| known.at == to) {
                continue;
            }
            let Some(id) = self.address_ids.of(address, port) else { break };
            if !announce::is_covered(at, to) {
                match self.holds.hold(to) {
                    Ok(hold) => holds.push(hold),
                    Err(e) if chosen => return Err(e),
                    // Somebody else has the port at that address.
                    Err(e) => {
                        tracing::warn!("{to}: not announced to peers: {e}");
                        continue;
                    }
                }
            }
            announced.push(Announced { id, at: to });
        }
        Ok(Entrance::new(holds, announced))
    }

    /// Bytes of memory that the connections take now, of the
    /// [`memory_limit`](EngineConfig::memory_limit).
    #[must_use]
    pub fn memory_in_use(&self) -> usize {
        self.memory.in_use()
    }

    /// The NICs, and how their packets come.
    #[must_use]
    pub fn nics(&self) -> Vec<NicReport> {
        let report = |nic: &Nic| {
            let mut report = nic.report.clone();
            if let Some(program) = nic.program
                && let Ok(counters) = holds::lock(&self.holds.programs()[program]).counters()
            {
                report.counters = counters.iter().map(|(verdict, n)| (verdict.name(), n)).collect();
            }
            report
        };
        self.nics.iter().map(report).collect()
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

    /// Whether all workers run.
    ///
    /// # Errors
    ///
    /// [`Error::WorkerFailed`] if one has ended by a panic.
    pub fn check(&self) -> Result<()> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.clone().map_or(Ok(()), |ended| Err(ended.into()))
    }

    /// Stops listening, lets connections end by themselves for up to `grace`, resets those that
    /// are left, and gives the NICs back.
    ///
    /// # Errors
    ///
    /// [`Error::WorkerFailed`] if a worker had ended by a panic.
    pub fn shutdown(mut self, grace: Duration) -> Result<()> {
        self.stop(grace);
        self.check()
    }

    fn stop(&mut self, grace: Duration) {
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
        let nics: Vec<&str> = self.nics.iter().map(|nic| nic.report.name.as_str()).collect();
        f.debug_struct("Engine")
            .field("nics", &nics)
            .field("workers", &self.workers.len())
            .finish_non_exhaustive()
    }
}
