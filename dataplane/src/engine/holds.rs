//! The addresses that are ours: each is in the steering programs and reserved at the kernel, as
//! long as a listener or a flow holds it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use mpxdp_ebpf::Steering;

use super::reserve::reserve;
use crate::error::Result;
use crate::listener::Hold;

/// The steering programs of an engine.
pub(super) type Programs = Vec<Mutex<Steering>>;

/// The addresses that are ours.
pub(super) struct Holds {
    programs: Programs,
    held: Mutex<HashMap<SocketAddr, Held>>,
}

struct Held {
    hold: Weak<Hold>,
    /// Tells this hold from an earlier one of the same address.
    number: u64,
    _reservation: OwnedFd,
}

impl Holds {
    pub(super) fn new(programs: Programs) -> Arc<Self> {
        Arc::new(Self { programs, held: Mutex::default() })
    }

    pub(super) const fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Holds `at`, or shares in the hold that there is.
    ///
    /// # Errors
    ///
    /// The kernel or a steering program refuses the address.
    pub(super) fn hold(self: &Arc<Self>, at: SocketAddr) -> Result<Arc<Hold>> {
        if self.programs.is_empty() {
            // Ports without a kernel behind them.
            return Ok(Arc::new(Hold::new(at, || {})));
        }
        let mut held = self.lock();
        match held.entry(at) {
            Entry::Occupied(mut entry) => {
                if let Some(hold) = entry.get().hold.upgrade() {
                    return Ok(hold);
                }
                // The last hold has just ended and not yet been cleared away: this takes it over.
                let number = entry.get().number + 1;
                let hold = self.make(at, number);
                entry.get_mut().number = number;
                entry.get_mut().hold = Arc::downgrade(&hold);
                Ok(hold)
            }
            Entry::Vacant(entry) => {
                let reservation = reserve(at)?;
                for (n, program) in self.programs.iter().enumerate() {
                    if let Err(e) = lock(program).listen(at) {
                        self.unlisten(at, n);
                        return Err(e.into());
                    }
                }
                let hold = self.make(at, 0);
                let weak = Arc::downgrade(&hold);
                entry.insert(Held { hold: weak, number: 0, _reservation: reservation });
                Ok(hold)
            }
        }
    }

    fn make(self: &Arc<Self>, at: SocketAddr, number: u64) -> Arc<Hold> {
        let holds = Arc::clone(self);
        Arc::new(Hold::new(at, move || holds.release(at, number)))
    }

    fn release(&self, at: SocketAddr, number: u64) {
        let mut held = self.lock();
        if let Entry::Occupied(entry) = held.entry(at)
            && entry.get().number == number
        {
            self.unlisten(at, self.programs.len());
            entry.remove();
        }
    }

    /// Takes `at` out of the first `n` programs.
    fn unlisten(&self, at: SocketAddr, n: usize) {
        for program in &self.programs[..n] {
            if let Err(e) = lock(program).unlisten(at) {
                tracing::warn!("{at}: still steered to a listener that has gone: {e}");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The program's tables are consistent between any two calls.
pub(super) fn lock(program: &Mutex<Steering>) -> MutexGuard<'_, Steering> {
    program.lock().unwrap_or_else(PoisonError::into_inner)
}
