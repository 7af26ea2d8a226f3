//! Listeners: where connections come in.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use mpxdp_proto::time::Instant as WorkerTime;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::connection::Announced;
use crate::error::{Error, Result};
use crate::stream::Stream;

/// Why a listener gives no more connections.
#[derive(Clone, Debug)]
pub(crate) enum Ended {
    /// The engine was shut down.
    Stopped,
    /// A worker has ended by a panic.
    Failed {
        /// The worker's number.
        worker: usize,
        /// The panic's message.
        message: String,
    },
    /// The last NIC is gone.
    NoNic {
        /// The NICs that there were.
        nics: String,
    },
}

impl From<Ended> for Error {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Stopped => Self::Stopped,
            Ended::NoNic { nics } => Self::NicsGone { nics },
            Ended::Failed { worker, message } => Self::WorkerFailed { worker, message },
        }
    }
}

/// Keeps an address and port ours: the steering program's entry and the kernel's reservation.
///
/// The listener's [`Entrance`] has it, and so does each flow and connection that came in there. If
/// it went with the listener, the kernel would get the packets of the connections that are left,
/// and reset them.
pub(crate) struct Hold {
    at: SocketAddr,
    release: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Hold {
    /// Holds `at`; `release` runs at the end.
    pub(crate) fn new(at: SocketAddr, release: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { at, release: Some(Box::new(release)) }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            release();
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hold").field(&self.at).finish()
    }
}

/// Where the connections of a listener come in, and subflows that join them: it outlives the
/// listener as long as any of them lives.
#[derive(Debug, Default)]
pub(crate) struct Entrance {
    /// Of the listener's address, and of those that are or were announced.
    holds: Mutex<Vec<Arc<Hold>>>,
    addresses: RwLock<Addresses>,
}

/// What the peers of a listener can use, as far as that can change.
#[derive(Debug, Default)]
struct Addresses {
    /// All addresses of the NICs; `None` if that is not followed, and any may be.
    local: Option<Vec<IpAddr>>,
    /// The further addresses and ports that peers are told of.
    announced: Vec<Announced>,
}

impl Entrance {
    /// An entrance that is kept steered to us by `holds`.
    pub(crate) fn new(holds: Vec<Arc<Hold>>) -> Self {
        Self { holds: Mutex::new(holds), addresses: RwLock::default() }
    }

    /// Keeps what `hold` holds, too.
    pub(crate) fn keep(&self, hold: Arc<Hold>) {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner).push(hold);
    }

    /// Whether it holds `at`.
    pub(crate) fn holds(&self, at: SocketAddr) -> bool {
        let holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        holds.iter().any(|hold| hold.at == at)
    }

    /// Says which addresses the NICs have now, and which peers are to be told of.
    pub(crate) fn set(&self, local: Vec<IpAddr>, announced: Vec<Announced>) {
        let mut addresses = self.addresses.write().unwrap_or_else(PoisonError::into_inner);
        *addresses = Addresses { local: Some(local), announced };
    }

    /// The further addresses and ports that peers are told of.
    pub(crate) fn announced(&self) -> Vec<Announced> {
        self.addresses.read().unwrap_or_else(PoisonError::into_inner).announced.clone()
    }

    /// Whether a NIC has this address.
    pub(crate) fn is_local(&self, address: IpAddr) -> bool {
        let addresses = self.addresses.read().unwrap_or_else(PoisonError::into_inner);
        addresses.local.as_ref().is_none_or(|local| local.contains(&address))
    }
}

/// What workers see of a listener.
#[derive(Debug)]
pub(crate) struct Backlog {
    /// Where its connections come in.
    pub(crate) entrance: Arc<Entrance>,
    pub(crate) limits: Limits,
    half_open: AtomicUsize,
    /// When a SYN was last answered by a cookie, in the workers' time; 0 is never.
    cookie_sent: AtomicU64,
    queue: Mutex<Queue>,
    /// Readable while the queue is not empty, or for ever once it has ended.
    readable: EventFd,
}

/// How much may wait at a listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Connections that nobody has accepted yet.
    pub(crate) backlog: usize,
    /// Subflows whose handshake is under way.
    pub(crate) half_open: usize,
    /// Those of one source.
    pub(crate) half_open_per_source: usize,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Stream>,
    ended: Option<Ended>,
}

/// A place among the half-open subflows of a listener, until it is dropped.
#[derive(Debug)]
pub(crate) struct HalfOpen(Arc<Backlog>);

impl HalfOpen {
    /// The listener's backlog.
    pub(crate) const fn backlog(&self) -> &Arc<Backlog> {
        &self.0
    }
}

impl Drop for HalfOpen {
    fn drop(&mut self) {
        self.0.half_open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why there is no place for another half-open subflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Full {
    /// Too many handshakes are under way.
    HalfOpen,
    /// Too many connections wait to be accepted.
    Backlog,
}

impl Backlog {
    /// An empty backlog.
    ///
    /// # Errors
    ///
    /// No descriptor is left.
    pub(crate) fn new(entrance: Arc<Entrance>, limits: Limits) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            entrance,
            limits,
            half_open: AtomicUsize::new(0),
            cookie_sent: AtomicU64::new(0),
            queue: Mutex::default(),
            readable: EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?,
        }))
    }

    /// Takes a place for a subflow whose handshake begins.
    ///
    /// # Errors
    ///
    /// There is none.
    pub(crate) fn begin(self: &Arc<Self>) -> std::result::Result<HalfOpen, Full> {
        if !self.has_room() {
            return Err(Full::Backlog);
        }
        let limit = self.limits.half_open;
        self.half_open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < limit).then_some(n + 1))
            .map_err(|_| Full::HalfOpen)?;
        Ok(HalfOpen(Arc::clone(self)))
    }

    /// Whether another connection may wait to be accepted.
    pub(crate) fn has_room(&self) -> bool {
        self.lock().waiting.len() < self.limits.backlog
    }

    /// A SYN was answered by a cookie.
    pub(crate) fn cookie_sent(&self, now: WorkerTime) {
        self.cookie_sent.store(now.0, Ordering::Relaxed);
    }

    /// Whether a cookie may come back: otherwise nobody can open a connection by a guess.
    pub(crate) fn expects_cookies(&self, now: WorkerTime) -> bool {
        /// A cookie of ours is good for two slots of 64 seconds at most.
        const LIFETIME: Duration = Duration::from_secs(128);

        let sent = WorkerTime(self.cookie_sent.load(Ordering::Relaxed));
        now.saturating_since(sent) <= LIFETIME
    }

    /// Puts an established connection into the queue, or gives it back: the queue is full, or the
    /// listener is gone.
    pub(crate) fn push(&self, stream: Stream) -> Option<Stream> {
        let mut queue = self.lock();
        if queue.ended.is_some() || queue.waiting.len() >= self.limits.backlog {
            return Some(stream);
        }
        queue.waiting.push_back(stream);
        if queue.waiting.len() == 1 {
            self.ring();
        }
        None
    }

    fn pop(&self) -> Result<Option<Stream>> {
        let mut queue = self.lock();
        let Some(stream) = queue.waiting.pop_front() else {
            return queue.ended.clone().map_or(Ok(None), |ended| Err(ended.into()));
        };
        if queue.waiting.is_empty() && queue.ended.is_none() {
            // It fails only if the counter is 0 already, which is what is wanted.
            let _ = self.readable.read();
        }
        Ok(Some(stream))
    }

    /// No connection is to come any more; those that wait are still given.
    pub(crate) fn end(&self, ended: Ended) {
        let mut queue = self.lock();
        queue.ended.get_or_insert(ended);
        self.ring();
    }

    fn ring(&self) {
        // It fails only if the counter is full, and then the descriptor is readable anyway.
        let _ = self.readable.write(1);
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // The queue is consistent between any two statements that could panic.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The listeners of an engine, as all its workers see them.
#[derive(Debug, Default)]
pub(crate) struct Directory(RwLock<HashMap<SocketAddr, Arc<Backlog>>>);

impl Directory {
    /// The listener that a SYN to `to` is for: one at that address goes before one at any.
    pub(crate) fn find(&self, to: SocketAddr) -> Option<Arc<Backlog>> {
        let any = match to.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let listeners = self.0.read().unwrap_or_else(PoisonError::into_inner);
        listeners.get(&to).or_else(|| listeners.get(&SocketAddr::new(any, to.port()))).cloned()
    }

    /// Adds a listener; says whether there was none at the address.
    pub(crate) fn add(&self, at: SocketAddr, backlog: &Arc<Backlog>) -> bool {
        let mut listeners = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let vacant = !listeners.contains_key(&at);
        if vacant {
            listeners.insert(at, Arc::clone(backlog));
        }
        vacant
    }

    /// Whether there is a listener at exactly this address.
    pub(crate) fn contains(&self, at: SocketAddr) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains_key(&at)
    }

    fn remove(&self, at: SocketAddr, backlog: &Arc<Backlog>) {
        let mut listeners = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if listeners.get(&at).is_some_and(|there| Arc::ptr_eq(there, backlog)) {
            listeners.remove(&at);
        }
    }

    /// Ends all listeners.
    pub(crate) fn end(&self, ended: &Ended) {
        let mut listeners = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for (_, backlog) in listeners.drain() {
            backlog.end(ended.clone());
        }
    }
}

/// Accepts connections at one address and port. Dropping it stops listening; connections that
/// were not yet accepted are reset, those that were go on.
///
/// Its descriptor is readable while a connection waits to be accepted, and once the engine has
/// ended.
pub struct Listener {
    at: SocketAddr,
    backlog: Arc<Backlog>,
    directory: Arc<Directory>,
}

impl Listener {
    pub(crate) const fn new(
        at: SocketAddr,
        backlog: Arc<Backlog>,
        directory: Arc<Directory>,
    ) -> Self {
        Self { at, backlog, directory }
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    ///
    /// [`Error::Stopped`] after the engine was shut down, [`Error::WorkerFailed`],
    /// [`Error::NicsGone`].
    pub fn accept(&self) -> Result<Stream> {
        loop {
            if let Some(stream) = self.try_accept()? {
                return Ok(stream);
            }
            self.wait(PollTimeout::NONE)?;
        }
    }

    /// The next connection, if one waits already.
    ///
    /// # Errors
    ///
    /// As [`accept`](Self::accept).
    pub fn try_accept(&self) -> Result<Option<Stream>> {
        self.backlog.pop()
    }

    /// Waits for the next connection for up to `timeout`.
    ///
    /// # Errors
    ///
    /// As [`accept`](Self::accept).
    pub fn accept_timeout(&self, timeout: Duration) -> Result<Option<Stream>> {
        let start = Instant::now();
        loop {
            if let Some(stream) = self.try_accept()? {
                return Ok(Some(stream));
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            self.wait(poll_timeout(left))?;
        }
    }

    fn wait(&self, timeout: PollTimeout) -> Result<()> {
        let mut on = [PollFd::new(self.backlog.readable.as_fd(), PollFlags::POLLIN)];
        match nix::poll::poll(&mut on, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(e) => Err(Error::io(format!("{}: waiting for a connection", self.at), e.into())),
        }
    }

    /// Where it listens.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.at
    }
}

/// At least a millisecond, rounded up, so that nothing wakes early and spins.
pub(crate) fn poll_timeout(time: Duration) -> PollTimeout {
    let millis = time.as_nanos().div_ceil(1_000_000);
    PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.backlog.readable.as_fd()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.directory.remove(self.at, &self.backlog);
        let waiting = {
            let mut queue = self.backlog.lock();
            queue.ended.get_or_insert(Ended::Stopped);
            std::mem::take(&mut queue.waiting)
        };
        drop(waiting);
    }
}
