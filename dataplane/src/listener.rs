//! Listeners: where connections come in.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::stream::Stream;

/// Accepts connections at one address and port. Dropping it stops listening; connections that
/// were not yet accepted are reset.
///
/// Its descriptor is readable while a connection waits to be accepted.
#[derive(Debug)]
pub struct Listener {
    wake: OwnedFd,
    at: SocketAddr,
}

impl Listener {
    /// Waits for the next connection.
    ///
    /// # Errors
    ///
    /// [`Error::Stopped`] after the engine was shut down, [`Error::WorkerFailed`].
    pub fn accept(&self) -> Result<Stream> {
        Err(Error::Stopped)
    }

    /// The next connection, if one waits already.
    ///
    /// # Errors
    ///
    /// As [`accept`](Self::accept).
    pub fn try_accept(&self) -> Result<Option<Stream>> {
        Err(Error::Stopped)
    }

    /// Waits for the next connection for up to `timeout`.
    ///
    /// # Errors
    ///
    /// As [`accept`](Self::accept).
    pub fn accept_timeout(&self, _timeout: Duration) -> Result<Option<Stream>> {
        Err(Error::Stopped)
    }

    /// Where it listens.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.at
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
