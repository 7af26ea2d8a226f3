//! The engine: NICs, workers and listeners under one roof.

mod build;
mod config;
mod holds;
mod open;
mod reserve;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use self::holds::Holds;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::listener::{Backlog, Ended, Limits, Listener};
use crate::nic::NicFacts;
use crate::stats::{NicReport, PortReport, WorkerReport};
use crate::worker::{Command, Handle, Shared};

pub use self::build::EngineBuilder;
pub use self::config::EngineConfig;

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
    /// listener has the port; [`Error::Configuration`] for port 0; [`Error::WorkerFailed`].
    pub fn listen(&self, at: SocketAddr) -> Result<Listener> {
        self.check()?;
        // Packets do not tell a scope, so it is not part of a listener's address.
        let to = SocketAddr::new(at.ip(), at.port());
        if at.port() == 0 {
            return Err(Error::Configuration(format!("{at}: port 0 is none; name a port")));
        }
        self.check_local(at.ip())?;
        let listeners = &self.shared.listeners;
        if listeners.contains(to) {
            return Err(Error::AddressInUse { at });
        }
        let hold = self.holds.hold(at)?;
        let EngineConfig { backlog, half_open, .. } = self.config;
        let backlog = Backlog::new(hold, Limits { backlog, half_open })
            .map_err(|e| Error::io(format!("{at}: listening"), e))?;
        if !listeners.add(to, &backlog) {
            return Err(Error::AddressInUse { at });
        }
        Ok(Listener::new(to, backlog, Arc::clone(listeners)))
    }

    /// Checks that `address` is one of ours, and tells the steering programs of addresses that
    /// came since the start.
    fn check_local(&self, address: IpAddr) -> Result<()> {
        let mut local = address.is_unspecified();
        for nic in &self.nics {
            let Some(program) = nic.program else {
                local |= nic.addresses.contains(&address);
                continue;
            };
            let facts = NicFacts::read(&nic.report.name)?;
            local |= facts.addresses.contains(&address);
            holds::lock(&self.holds.programs()[program]).set_local_addresses(&facts.addresses)?;
        }
        let names = self.nics.iter().map(|nic| nic.report.name.as_str());
        if local {
            Ok(())
        } else {
            let nics = names.collect::<Vec<_>>().join(", ");
            Err(Error::AddressNotLocal { address, nics })
        }
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
    /// to a tenth of a second.
    #[must_use]
    pub fn ports(&self) -> Vec<PortReport> {
        const PATIENCE: Duration = Duration::from_millis(100);

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
