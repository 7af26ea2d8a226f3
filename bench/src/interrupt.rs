//! SIGINT, SIGTERM and SIGHUP as a flag, so that every exit path runs the destructors that clean up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mpxdp_cli::signals;

use crate::error::{Context, Error, Result};

/// Set once one of [`signals::to_stop_for`] arrived. Cheap to clone; all clones show the same.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// One that no signal sets.
    #[must_use]
    pub fn never() -> Self {
        Self::default()
    }

    /// Catches SIGINT, SIGTERM and, unless it is ignored, SIGHUP from now on. The second one of them no
    /// longer kills the process: the clean-up must not be cut short.
    ///
    /// # Errors
    ///
    /// If the handler cannot be installed.
    pub fn install() -> Result<Self> {
        let flag = Self::default();
        for signal in signals::to_stop_for() {
            signal_hook::flag::register(signal, Arc::clone(&flag.0))
                .context(|| format!("cannot catch signal {signal}"))?;
        }
        Ok(flag)
    }

    /// As if a signal had arrived.
    #[cfg(test)]
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether a signal arrived.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error once a signal arrived; to be called between the steps of anything that takes long.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`].
    pub fn check(&self) -> Result<()> {
        if self.is_set() { Err(Error::Interrupted) } else { Ok(()) }
    }
}
