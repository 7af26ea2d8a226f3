//! What the workers of an engine share, for rare occasions: SYNs, and packets of no flow.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use mpxdp_proto::config::Config;
use mpxdp_proto::connection::LocalKey;
use mpxdp_proto::crypto::IsnSecret;
use mpxdp_proto::segment::{Key, Token};
use mpxdp_proto::subflow::{CookieSecret, RefusalReason};

use super::entropy::Entropy;
use super::flows::{FlowHash, FlowKey};
use super::handle::Handle;
use super::sources::Sources;
use crate::connection::{Connection, Joining};
use crate::listener::Directory;
use crate::receive::RingConfig;

/// What further subflows of connections are allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JoinLimits {
    /// Subflows of one connection.
    pub(crate) subflows: usize,
    /// Joins of all connections whose handshake is under way.
    pub(crate) pending: usize,
    /// How long a connection waits for another subflow when its last has ended.
    pub(crate) close_timeout: Duration,
}

/// What the workers of an engine share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// How the protocol is spoken.
    pub(crate) protocol: Arc<Config>,
    /// How large receive rings are.
    pub(crate) ring: RingConfig,
    /// What further subflows are allowed.
    pub(super) joins: JoinLimits,
    /// Who listens.
    pub(crate) listeners: Arc<Directory>,
    /// Initial sequence numbers and timestamp offsets.
    pub(super) secret: IsnSecret,
    /// SYN cookies, and the keys of connections that are opened by them.
    pub(super) cookies: CookieSecret,
    /// How many handshakes each source has under way.
    pub(super) sources: Arc<Sources>,
    /// The tokens of all connections.
    pub(crate) tokens: Arc<Tokens>,
    /// How many joins are under way.
    joining: Arc<AtomicUsize>,
    /// Which worker owns which flow.
    pub(super) owners: Owners,
    /// The key of the flow tables.
    hash: FlowHash,
    /// Where keys and nonces come from.
    pub(super) entropy: Entropy,
}

impl Shared {
    /// For workers that speak `protocol`.
    ///
    /// # Errors
    ///
    /// The system has no random numbers.
    pub(crate) fn new(
        protocol: Config,
        ring: RingConfig,
        joins: JoinLimits,
        entropy: Entropy,
    ) -> io::Result<Self> {
        Ok(Self {
            protocol: Arc::new(protocol),
            ring,
            joins,
            listeners: Arc::default(),
            secret: IsnSecret::new(entropy.draw()?),
            cookies: CookieSecret::new(entropy.draw()?),
            sources: Arc::new(Sources::new(FlowHash::new(entropy.draw()?))),
            tokens: Arc::default(),
            joining: Arc::default(),
            owners: Owners::default(),
            hash: FlowHash::new(entropy.draw()?),
            entropy,
        })
    }

    /// Takes a place for a subflow that joins `connection`.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub(super) fn begin_join(
        &self,
        connection: &Arc<Connection>,
    ) -> Result<PendingJoin, RefusalReason> {
        let JoinLimits { subflows, pending, .. } = self.joins;
        let room = |n: usize| (n < pending).then_some(n + 1);
        self.joining
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, room)
            .map_err(|_| RefusalReason::JoinResources)?;
        let among_all = PendingJoinOfAll(Arc::clone(&self.joining));
        let of_connection = connection.begin_join(subflows).ok_or(RefusalReason::JoinTooMany)?;
        Ok(PendingJoin { _of_connection: of_connection, _among_all: among_all })
    }

    /// The hash of the flow tables.
    pub(super) fn flow_hash(&self) -> FlowHash {
        self.hash.clone()
    }

    /// All connections that speak MPTCP and live.
    pub(crate) fn connections(&self) -> Vec<Arc<Connection>> {
        self.tokens.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Names the workers, once they are all there.
    pub(crate) fn introduce(&self, workers: Vec<Arc<Handle>>) {
        let _ = self.owners.workers.set(workers);
    }
}

/// A place for a join whose handshake is under way, until it is dropped.
#[derive(Debug)]
pub(super) struct PendingJoin {
    _of_connection: Joining,
    _among_all: PendingJoinOfAll,
}

#[derive(Debug)]
struct PendingJoinOfAll(Arc<AtomicUsize>);

impl Drop for PendingJoinOfAll {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Which worker owns which flow. It is asked about packets of no flow of the worker's own, and
/// only where there are several workers.
#[derive(Debug, Default)]
pub(super) struct Owners {
    workers: OnceLock<Vec<Arc<Handle>>>,
    flows: RwLock<HashMap<FlowKey, usize>>,
}

impl Owners {
    fn several(&self) -> Option<&[Arc<Handle>]> {
        self.workers.get().map(Vec::as_slice).filter(|workers| workers.len() > 1)
    }

    /// The other worker that owns the flow, if one does.
    pub(super) fn other(&self, key: &FlowKey, me: usize) -> Option<&Handle> {
        let workers = self.several()?;
        let owner = *self.flows.read().unwrap_or_else(PoisonError::into_inner).get(key)?;
        workers.get(owner).filter(|_| owner != me).map(|worker| &**worker)
    }

    /// Enters a flow; says whether no other worker has it.
    pub(super) fn enter(&self, key: FlowKey, me: usize) -> bool {
        if self.several().is_none() {
            return true;
        }
        match self.flows.write().unwrap_or_else(PoisonError::into_inner).entry(key) {
            Entry::Occupied(entry) => *entry.get() == me,
            Entry::Vacant(entry) => {
                entry.insert(me);
                true
            }
        }
    }

    /// Removes a flow.
    pub(super) fn leave(&self, key: &FlowKey) {
        if self.several().is_some() {
            self.flows.write().unwrap_or_else(PoisonError::into_inner).remove(key);
        }
    }
}

/// The tokens in use, each of which names one connection (RFC 8684, section 3.1), or a handshake
/// that may lead to one. This is the one look-up by which a worker comes to a connection of
/// another; it is made for SYNs that join, and never for other packets.
#[derive(Debug, Default)]
pub(crate) struct Tokens(Mutex<HashMap<u32, Weak<Connection>>>);

impl Tokens {
    /// The connection that `token` names.
    pub(super) fn find(&self, token: Token) -> Option<Arc<Connection>> {
        self.lock().get(&token.0)?.upgrade()
    }

    /// Whether nobody uses `token`.
    pub(super) fn is_free(&self, token: Token) -> bool {
        !self.lock().contains_key(&token.0)
    }

    /// Takes `token` into use, unless somebody uses it.
    pub(super) fn enter(self: &Arc<Self>, token: Token) -> Option<TokenInUse> {
        match self.lock().entry(token.0) {
            Entry::Occupied(_) => None,
            Entry::Vacant(entry) => {
                entry.insert(Weak::new());
                Some(TokenInUse { token, tokens: Arc::clone(self) })
            }
        }
    }

    fn give_back(&self, token: Token) {
        self.lock().remove(&token.0);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Weak<Connection>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many are in use.
    #[cfg(any(test, feature = "virtual-time"))]
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }
}

/// A token in use, until it is dropped.
#[derive(Debug)]
pub(crate) struct TokenInUse {
    token: Token,
    tokens: Arc<Tokens>,
}

impl TokenInUse {
    /// From now on it names `connection`.
    pub(crate) fn names(&self, connection: &Arc<Connection>) {
        self.tokens.lock().insert(self.token.0, Arc::downgrade(connection));
    }
}

impl Drop for TokenInUse {
    fn drop(&mut self) {
        self.tokens.give_back(self.token);
    }
}

/// Draws keys, many with one system call.
#[derive(Debug, Default)]
pub(super) struct KeySource {
    pool: Vec<[u8; 8]>,
}

impl KeySource {
    /// Keys drawn at once: 512 bytes, of which `getrandom` never gives less than asked.
    const POOL: usize = 64;
    /// Attempts to find a key whose token is free, after which plain TCP has to do.
    const ATTEMPTS: usize = 4;

    /// A key whose token nobody uses. `None`: there is none to be had.
    pub(super) fn draw(
        &mut self,
        entropy: &Entropy,
        tokens: &Arc<Tokens>,
    ) -> Option<(LocalKey, TokenInUse)> {
        for _ in 0..Self::ATTEMPTS {
            let local = LocalKey::new(Key(self.next(entropy)?));
            if let Some(token) = tokens.enter(local.token) {
                return Some((local, token));
            }
        }
        None
    }

    /// A nonce for a join. `None`: there is none to be had.
    pub(super) fn nonce(&mut self, entropy: &Entropy) -> Option<u32> {
        // Half of the octets that were drawn will do.
        self.next(entropy).map(|random| random as u32)
    }

    fn next(&mut self, entropy: &Entropy) -> Option<u64> {
        loop {
            if self.pool.is_empty() {
                let bytes: [u8; 8 * Self::POOL] = entropy.draw().ok()?;
                let (keys, _) = bytes.as_chunks();
                self.pool.extend_from_slice(keys);
            }
            // A key of 0 would be allowed, and some implementations take it for none.
            match u64::from_be_bytes(self.pool.pop()?) {
                0 => {}
                key => return Some(key),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_in_use_until_it_is_dropped() {
        let tokens = Arc::default();
        let mut keys = KeySource::default();
        let (one, in_use) = keys.draw(&Entropy::System, &tokens).unwrap();
        let (other, _other_in_use) = keys.draw(&Entropy::System, &tokens).unwrap();
        assert_ne!(one.key, other.key);
        assert_eq!(tokens.len(), 2);
        assert!(tokens.enter(one.token).is_none() && !tokens.is_free(one.token));
        drop(in_use);
        assert!(tokens.is_free(one.token) && tokens.enter(one.token).is_some());
    }
}
