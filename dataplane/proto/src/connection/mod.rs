//! The data level of one connection, without its bytes: keys, mode, and how both streams end.
//!
//! A [`Connection`] is shared by the application's thread and the workers of all its subflows.
//! What identifies it is fixed when it is made; everything else is a fact that becomes true once
//! and stays true (the peer's key is known, the stream ends at this offset, ...), so that each is
//! one atomic and no lock is needed. Where the bytes are is the receive ring's business; its two
//! edges and the connection's facts together make the [`View`] that a subflow works with.
//!
//! Flags are set with release and looked at with acquire: whoever sees one sees what was known when
//! it was set. So the peer's key comes with MPTCP; with the end that is acknowledged, or the
//! application that has gone, come the ends of the streams. The key and the ends are relaxed: they
//! are looked at after the flags.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::segment::{Key, Token};
use crate::seq::{DataSeq, StreamOffset};
use crate::subflow::{Event, FallbackReason, RefusalReason};
use crate::sync::{AtomicU32, AtomicU64};

#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

/// Our end of an MPTCP handshake: the key and what follows from it (RFC 8684, section 3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalKey {
    /// The key; random, and unknown to others until it is sent.
    pub key: Key,
    /// Its token, unique among our connections.
    pub token: Token,
    /// Its initial data sequence number.
    pub idsn: DataSeq,
}

impl LocalKey {
    /// The local end that uses `key`.
    #[must_use]
    pub fn new(key: Key) -> Self {
        let (token, idsn) = crate::crypto::key_to_token_and_idsn(key);
        Self { key, token, idsn }
    }
}

/// What a subflow must know of its connection. Taken anew after every commit to the receive
/// ring, so at least once a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View {
    /// Everything before this offset is in the receive ring or was read from it.
    pub edge: StreamOffset,
    /// The right edge of the receive window: bytes up to it have room. It never moves back.
    pub right_edge: StreamOffset,
    /// So many bytes before the right edge are told to the peer only while the window closes, when
    /// what it is told is rounded up (docs/decisions/0010). Zero does without.
    pub slack: u64,
    /// The highest right edge that the peer was told on any subflow.
    pub told: StreamOffset,
    /// Where the peer's stream ends, once its DATA_FIN (or, in plain TCP, its FIN) said so.
    pub remote_fin: Option<StreamOffset>,
    /// The length of our own stream, once the application has ended it.
    pub local_fin: Option<StreamOffset>,
    /// Whether the peer has acknowledged the end of our stream.
    pub local_fin_acked: bool,
    /// Whether the connection may still become plain TCP: no subflow ever joined it.
    pub may_fall_back: bool,
    /// Whether the application has gone, so that new payload must be answered with an abort.
    pub reader_gone: bool,
}

impl View {
    /// What is known before there is a connection: nothing came, `window` bytes may.
    #[must_use]
    pub const fn initial(window: u64) -> Self {
        Self {
            edge: StreamOffset::ZERO,
            right_edge: StreamOffset(window),
            slack: 0,
            told: StreamOffset::ZERO,
            remote_fin: None,
            local_fin: None,
            local_fin_acked: false,
            may_fall_back: true,
            reader_gone: false,
        }
    }

    /// Whether everything the peer sent is here, its end included.
    #[must_use]
    pub fn remote_complete(&self) -> bool {
        self.remote_fin.is_some_and(|fin| self.edge >= fin)
    }
}

/// How a connection speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The handshake is not complete.
    Negotiating,
    /// MPTCP.
    Mptcp,
    /// Plain TCP; the reason says why, unless the peer never asked for MPTCP.
    Plain(Option<FallbackReason>),
}

/// No offset: streams are shorter.
const NONE: u64 = u64::MAX;

const MPTCP: u32 = 1 << 8;
const ESTABLISHED: u32 = 1 << 9;
const FALLBACK: u32 = 1 << 10;
const LOCAL_FIN_ACKED: u32 = 1 << 11;
const READER_GONE: u32 = 1 << 12;
const JOINED: u32 = 1 << 13;
const FULLY_ESTABLISHED: u32 = 1 << 14;
const CHECKSUMS: u32 = 1 << 15;
/// A checksum failed and the peer was told so: the connection is on its way to plain TCP.
const FALLING_BACK: u32 = 1 << 16;
/// The low bits: the index of the fallback reason.
const REASON: u32 = 0xff;

/// The data level of one connection; see the [module](self).
#[derive(Debug)]
pub struct Connection {
    local: Option<LocalKey>,
    remote_key: AtomicU64,
    facts: AtomicU32,
    remote_fin: AtomicU64,
    local_fin: AtomicU64,
}

impl Connection {
    /// A connection whose handshake is under way; `local` is `None` where only plain TCP will do.
    #[must_use]
    pub fn new(local: Option<LocalKey>) -> Self {
        Self {
            local,
            remote_key: AtomicU64::new(0),
            facts: AtomicU32::new(0),
            remote_fin: AtomicU64::new(NONE),
            local_fin: AtomicU64::new(NONE),
        }
    }

    /// Our key, token and initial data sequence number.
    #[must_use]
    pub const fn local_key(&self) -> Option<LocalKey> {
        self.local
    }

    /// The peer's key, once it is known.
    #[must_use]
    pub fn remote_key(&self) -> Option<Key> {
        let known = self.facts() & MPTCP != 0;
        known.then(|| Key(self.remote_key.load(Relaxed)))
    }

    /// How the connection speaks.
    #[must_use]
    pub fn mode(&self) -> Mode {
        let facts = self.facts();
        match FallbackReason::ALL.get((facts & REASON) as usize) {
            Some(&reason) if facts & FALLBACK != 0 => Mode::Plain(Some(reason)),
            _ if facts & ESTABLISHED == 0 => Mode::Negotiating,
            _ if facts & MPTCP != 0 => Mode::Mptcp,
            _ => Mode::Plain(None),
        }
    }

    /// The view of a subflow: the ring's two edges as they are now, and the facts. Where the edges
    /// move meanwhile, those in the view are to be of a time after this call: an application that
    /// has gone may have read up to an edge that was not there before.
    #[must_use]
    pub fn view(&self, edge: StreamOffset, right_edge: StreamOffset) -> View {
        let facts = self.facts();
        let offset = |value: u64| (value != NONE).then_some(StreamOffset(value));
        View {
            edge,
            right_edge,
            slack: 0,
            told: StreamOffset::ZERO,
            remote_fin: offset(self.remote_fin.load(Relaxed)),
            local_fin: offset(self.local_fin.load(Relaxed)),
            local_fin_acked: facts & LOCAL_FIN_ACKED != 0,
            may_fall_back: facts & JOINED == 0,
            reader_gone: facts & READER_GONE != 0,
        }
    }

    /// Takes note of what a subflow told. `false` means that it contradicts what another subflow
    /// has made of the connection meanwhile (there is no joining after a fallback, and no fallback
    /// after a join): the subflow is to be aborted, and what the same segment placed is not to be
    /// stored.
    pub fn on_event(&self, event: &Event) -> bool {
        match *event {
            Event::Established { mptcp } => {
                let mut facts = ESTABLISHED;
                if let Some(key) = mptcp {
                    self.remote_key.store(key.0, Relaxed);
                    facts |= MPTCP;
                }
                self.set(facts);
            }
            Event::Fallback(reason) => {
                // The first reason stands: it is stored together with the flag.
                let update = self.facts.fetch_update(Release, Relaxed, |facts| {
                    let possible = facts & (FALLBACK | JOINED) == 0;
                    possible.then_some(facts | FALLBACK | reason.index() as u32)
                });
                return update.map_or_else(|facts| facts & JOINED == 0, |_| true);
            }
            Event::Joined { .. } => return self.joined(),
            Event::FullyEstablished => self.set(FULLY_ESTABLISHED),
            Event::ChecksumsInUse => self.set(CHECKSUMS),
            Event::ChecksumFailed { falling_back: true, .. } => {
                let update = self.facts.fetch_update(Release, Relaxed, |facts| {
                    (facts & JOINED == 0).then_some(facts | FALLING_BACK)
                });
                return update.is_ok();
            }
            Event::DataFin { at } | Event::StreamEnd { at } => {
                // The first end stands; the subflow has checked that it is a possible one.
                let _ = self.remote_fin.compare_exchange(NONE, at.0, Relaxed, Relaxed);
            }
            Event::LocalFinAcked => self.set(LOCAL_FIN_ACKED),
            Event::ChecksumFailed { falling_back: false, .. }
            | Event::AddressAnnounced(_)
            | Event::AddressEchoed(_)
            | Event::AddressUnanswered(_)
            | Event::AddressesRemoved(_)
            | Event::PriorityChanged { .. }
            | Event::SubflowFin
            | Event::FastClose
            | Event::Reset(_)
            | Event::TimedOut
            | Event::Closed => {}
        }
        true
    }

    fn set(&self, facts: u32) {
        self.facts.fetch_or(facts, Release);
    }

    fn facts(&self) -> u32 {
        self.facts.load(Acquire)
    }

    /// Ends our stream at `at`, its length: 0 as long as nothing is sent. The subflows signal it
    /// the next time they are polled. Only the first call counts.
    pub fn shutdown_write(&self, at: StreamOffset) {
        let _ = self.local_fin.compare_exchange(NONE, at.0, Relaxed, Relaxed);
    }

    /// The application will read no more: payload that still comes is answered with an abort.
    pub fn reader_gone(&self) {
        self.set(READER_GONE);
    }

    /// A further subflow joined: from now on there is no falling back (RFC 8684, section 3.7).
    /// `false` if it is too late for that.
    pub fn joined(&self) -> bool {
        let update = self.facts.fetch_update(Release, Relaxed, |facts| {
            let possible = facts & MPTCP != 0 && facts & (FALLBACK | FALLING_BACK) == 0;
            possible.then_some(facts | JOINED)
        });
        update.is_ok()
    }

    /// Whether data-level checksums are in use.
    #[must_use]
    pub fn checksums(&self) -> bool {
        self.facts() & CHECKSUMS != 0
    }

    /// Whether MPTCP options are known to pass in both directions. Before, no subflow may join
    /// (RFC 8684, section 3.1).
    #[must_use]
    pub fn is_fully_established(&self) -> bool {
        self.facts() & FULLY_ESTABLISHED != 0
    }

    /// The keys of both ends, if a further subflow may join now.
    ///
    /// # Errors
    ///
    /// Why it may not.
    pub fn accepts_joins(&self, view: &View) -> Result<(LocalKey, Key), RefusalReason> {
        let facts = self.facts();
        if facts & (FALLBACK | FALLING_BACK) != 0 {
            return Err(RefusalReason::JoinFellBack);
        }
        let keys = self.local.zip(self.remote_key()).filter(|_| facts & FULLY_ESTABLISHED != 0);
        let keys = keys.ok_or(RefusalReason::JoinTooEarly)?;
        let over = view.remote_complete() && view.local_fin.is_some();
        if over || facts & READER_GONE != 0 {
            return Err(RefusalReason::JoinClosing);
        }
        Ok(keys)
    }

    /// Whether both streams have ended and both ends are known to the other side: the connection
    /// is closed, whatever its subflows have yet to do.
    #[must_use]
    pub fn is_closed(&self, edge: StreamOffset) -> bool {
        let view = self.view(edge, edge);
        view.remote_complete() && view.local_fin_acked
    }
}
