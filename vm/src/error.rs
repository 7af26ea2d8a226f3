//! What went wrong, in one line.

use std::fmt;
use std::io;

/// Why a guest, or a part of it, did not come about.
#[derive(Debug)]
pub(crate) enum Error {
    /// Something that this machine cannot have: a package, a new enough qemu, a privilege. What
    /// needs it is reported as not run.
    Missing(String),
    /// A command line that makes no sense.
    Usage(String),
    /// Anything else.
    Failed(String),
}

/// What most functions here return.
pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A failure, described.
    pub(crate) fn failed(what: impl Into<String>) -> Self {
        Self::Failed(what.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(what) | Self::Usage(what) | Self::Failed(what) => f.write_str(what),
        }
    }
}

/// Says what was being done when a call failed.
pub(crate) trait Context<T> {
    /// `what` is only made if it failed.
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error::Failed(format!("{}: {error}", what())))
    }
}

impl<T> Context<T> for nix::Result<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(io::Error::from).context(what)
    }
}

impl<T> Context<T> for serde_json::Result<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(io::Error::from).context(what)
    }
}
