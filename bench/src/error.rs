//! What can go wrong in the lab and the benchmarks.

use std::fmt::Display;
use std::io;

use mpxdp_cli::describe;

/// The result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// One line for the user: what failed, where, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Wrong usage: nothing was tried.
    #[error("{0}")]
    Usage(String),
    /// A tool, a privilege or a feature of the kernel is missing; nothing was changed.
    #[error("{0}")]
    Missing(String),
    /// It was tried and failed.
    #[error("{0}")]
    Failed(String),
    /// SIGINT, SIGTERM or SIGHUP asked us to stop.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// A failure at run time, `what` being tried when `why` happened.
    pub fn failed(what: impl Display, why: impl Display) -> Self {
        Self::Failed(format!("{what}: {why}"))
    }

    /// The exit code of a command that ends with this error: 2 for wrong usage, else 1.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Missing(_) | Self::Failed(_) | Self::Interrupted => 1,
        }
    }
}

/// Says what was being done when an operation of the system failed.
pub(crate) trait Context<T> {
    /// Turns the error into one that starts with what `what` returns.
    fn context<D: Display>(self, what: impl FnOnce() -> D) -> Result<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn context<D: Display>(self, what: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|error| Error::failed(what(), describe(&error)))
    }
}

impl<T> Context<T> for nix::Result<T> {
    fn context<D: Display>(self, what: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|errno| Error::failed(what(), errno.desc()))
    }
}
