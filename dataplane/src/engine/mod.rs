//! The engine: NICs, workers and listeners under one roof.

use std::net::SocketAddr;
use std::time::Duration;

use mpxdp_proto::time::Instant;

use crate::error::{Error, Result};
use crate::listener::Listener;
use crate::nic::{NicConfig, PortNic};
use crate::placement::Placement;
use crate::stats::{NicReport, WorkerReport};

/// What can be set for a whole engine.
#[derive(Clone, PartialEq, Debug)]
pub struct EngineConfig {
    /// Where the workers run.
    pub placement: Placement,
    /// How long a worker looks for more packets before it sleeps.
    pub spin: Duration,
    /// The size of a connection's receive ring at its start, in bytes.
    pub receive_initial: usize,
    /// The size up to which a connection's receive ring grows, in bytes.
    pub receive_limit: usize,
    /// How many connections wait for [`Listener::accept`] at most, for each listener.
    pub backlog: usize,
    /// How many subflows are half open at most, for each listener.
    pub half_open: usize,
    /// Whether MPTCP is negotiated; without it every connection is plain TCP.
    pub mptcp: bool,
    /// How long a subflow stays in TIME_WAIT (RFC 9293: twice the maximum segment lifetime).
    pub time_wait: Duration,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            placement: Placement::default(),
            spin: Duration::from_micros(50),
            receive_initial: 256 << 10,
            receive_limit: 16 << 20,
            backlog: 1024,
            half_open: 1024,
            mptcp: true,
            time_wait: Duration::from_secs(60),
        }
    }
}

/// Collects what an [`Engine`] is made of.
#[derive(Default)]
#[must_use = "an engine starts by `start`"]
pub struct EngineBuilder {
    config: EngineConfig,
    nics: Vec<NicConfig>,
}

impl EngineBuilder {
    /// Adds a NIC.
    pub fn nic(mut self, nic: NicConfig) -> Self {
        self.nics.push(nic);
        self
    }

    /// Adds a NIC made of ready-made ports.
    pub fn ports<P: Send + 'static>(self, _nic: PortNic<P>) -> Self {
        self
    }

    /// Sets the engine's configuration.
    pub fn config(mut self, config: EngineConfig) -> Self {
        self.config = config;
        self
    }

    /// Opens the ports, attaches the steering programs and starts the workers.
    ///
    /// # Errors
    ///
    /// See [`Error`]; whatever had been set up is undone.
    pub fn start(self) -> Result<Engine> {
        Err(Error::Stopped)
    }
}

/// A running engine. Dropping it resets the connections that are left and gives the NICs back.
#[derive(Debug)]
pub struct Engine {
    _private: (),
}

impl Engine {
    /// Starts collecting what an engine is made of.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::default()
    }

    /// Listens on an address of the engine's NICs; an unspecified address (`0.0.0.0`, `::`)
    /// stands for all of them.
    ///
    /// # Errors
    ///
    /// [`Error::AddressNotLocal`], [`Error::AddressInUse`], [`Error::Privilege`] for a port below
    /// 1024, [`Error::Stopped`].
    pub fn listen(&self, _at: SocketAddr) -> Result<Listener> {
        Err(Error::Stopped)
    }

    /// The NICs, and how their packets come.
    #[must_use]
    pub fn nics(&self) -> Vec<NicReport> {
        Vec::new()
    }

    /// The workers, and what they have done.
    #[must_use]
    pub fn workers(&self) -> Vec<WorkerReport> {
        Vec::new()
    }

    /// Whether all workers run.
    ///
    /// # Errors
    ///
    /// [`Error::WorkerFailed`] if one has ended by a panic.
    pub fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Stops listening, lets connections that are closing finish for up to `grace`, resets those
    /// that are left, and gives the NICs back.
    ///
    /// # Errors
    ///
    /// [`Error::WorkerFailed`] if a worker had ended by a panic.
    pub fn shutdown(self, _grace: Duration) -> Result<()> {
        Ok(())
    }
}

const _: fn(&crate::clock::Clock) -> Instant = crate::clock::Clock::now;
