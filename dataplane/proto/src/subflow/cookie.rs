//! SYN cookies (RFC 4987, section 3.6): a handshake of which nothing is remembered between the SYN
//! and the third ACK, for the time of a flood.
//!
//! What the SYN offered is in our initial sequence number, under a keyed hash of it, the addresses,
//! the peer's initial sequence number and the time. Our MPTCP key follows from the same secret, so
//! that the key which the third ACK echoes can be known for ours: "this verifiable way of
//! generating the key can be done by using a hash of the 4-tuple, sequence number, and a local
//! secret" (RFC 8684, section 3.1). A lost SYN/ACK is not sent again.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};

use siphasher::sip::SipHasher24;

use super::accept::{HMAC_SHA256, VERSION};
use super::{Disposition, PassiveOpening, Placement, Refusal, State, Subflow, View};
use crate::config::Config;
use crate::connection::LocalKey;
use crate::segment::{
    Flags, Key, MpCapable, MpCapableBody, Options, Segment, Timestamps, WindowScale,
};
use crate::seq::SeqNum;
use crate::time::Instant;

/// A cookie is good for the slot of time in which it was made, and the next.
const SLOT_NANOS: u64 = 64_000_000_000;

/// The low bits of a cookie: hash. Above them is what the SYN offered.
const HASH_BITS: u32 = 25;

/// The window scale of a SYN without one.
const NO_SCALE: u32 = 15;

/// The secret behind cookies: 16 octets, drawn once for a process, the same for all workers, and
/// used for nothing else.
#[derive(Clone)]
pub struct CookieSecret([u8; 16]);

impl fmt::Debug for CookieSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CookieSecret(..)")
    }
}

/// What the driver knows of a subflow that is opened by a cookie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CookieOpening {
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// What is added to our timestamp clock for this peer; the same for SYN and third ACK.
    pub timestamp_offset: u32,
    /// The largest segment we can take, without headers: MTU - 40 for IPv4, - 60 for IPv6.
    pub mss: u16,
}

/// What a SYN offered, as far as it matters later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Offer {
    scale: Option<WindowScale>,
    sack: bool,
    /// MP_CAPABLE, and whether it requires checksums.
    mptcp: Option<bool>,
}

impl Offer {
    fn of(syn: &Segment) -> Self {
        let Options { window_scale, sack_permitted, mptcp, .. } = &syn.options;
        Self {
            scale: *window_scale,
            sack: *sack_permitted,
            mptcp: mptcp.capable.map(|capable| capable.checksum_required),
        }
    }

    fn bits(self) -> u32 {
        let scale = self.scale.map_or(NO_SCALE, |scale| u32::from(scale.shift()));
        let mptcp = self.mptcp.map_or(0, |checksums| 1 + u32::from(checksums));
        scale | u32::from(self.sack) << 4 | mptcp << 5
    }

    fn from_bits(bits: u32) -> Self {
        Self {
            scale: (bits & 15 != NO_SCALE).then(|| WindowScale::new((bits & 15) as u8)),
            sack: bits >> 4 & 1 == 1,
            mptcp: (bits >> 5 & 3 != 0).then_some(bits >> 5 & 3 == 2),
        }
    }

    /// A SYN that offers this.
    fn syn(self, seq: SeqNum, window: u16, timestamps: Option<Timestamps>) -> Segment {
        let mut options = Options {
            window_scale: self.scale,
            sack_permitted: self.sack,
            timestamps,
            ..Default::default()
        };
        options.mptcp.capable = self.mptcp.map(|checksum_required| MpCapable {
            version: VERSION,
            checksum_required,
            extensibility: false,
            no_join_to_initial_address: false,
            algorithms: HMAC_SHA256,
            body: MpCapableBody::Syn,
        });
        Segment { seq, flags: Flags::SYN, window, options, ..Default::default() }
    }
}

impl CookieSecret {
    /// A secret of 16 octets that nobody can guess.
    #[must_use]
    pub const fn new(secret: [u8; 16]) -> Self {
        Self(secret)
    }

    fn hash(&self, opening: &CookieOpening, peer: SeqNum, more: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        for end in [opening.local, opening.remote] {
            match end.ip() {
                IpAddr::V4(address) => hasher.write(&address.octets()),
                IpAddr::V6(address) => hasher.write(&address.octets()),
            }
            hasher.write(&end.port().to_be_bytes());
        }
        hasher.write(&peer.0.to_be_bytes());
        hasher.write(more);
        hasher.finish()
    }

    /// Our initial sequence number for a SYN with the peer's initial sequence number `peer`.
    fn cookie(&self, opening: &CookieOpening, peer: SeqNum, offer: Offer, slot: u64) -> SeqNum {
        let bits = offer.bits() << HASH_BITS;
        let mut more = [0; 12];
        more[..8].copy_from_slice(&slot.to_be_bytes());
        more[8..].copy_from_slice(&bits.to_be_bytes());
        let hash = self.hash(opening, peer, &more) as u32 & ((1 << HASH_BITS) - 1);
        SeqNum(bits | hash)
    }

    fn key(&self, opening: &CookieOpening, peer: SeqNum) -> Key {
        Key(self.hash(opening, peer, b"key"))
    }

    /// Our key for a SYN: the driver may look whether its token is free, and answer in plain TCP
    /// if not.
    #[must_use]
    pub fn local_key(&self, opening: &CookieOpening, syn: &Segment) -> LocalKey {
        LocalKey::new(self.key(opening, syn.seq))
    }
}

impl Subflow {
    /// The SYN/ACK that answers `syn` by a cookie. `mptcp` says whether MP_CAPABLE, if the SYN has
    /// it, may be answered; `view` is that of a connection of which nothing came.
    ///
    /// # Errors
    ///
    /// A [`Refusal`], as from [`passive_open`](Self::passive_open).
    #[expect(clippy::result_large_err, reason = "the answer is in it, so that none is allocated")]
    pub fn cookie_syn_ack(
        now: Instant,
        config: &Arc<Config>,
        secret: &CookieSecret,
        opening: &CookieOpening,
        syn: &Segment,
        mptcp: bool,
        view: &View,
    ) -> Result<Option<Segment>, Refusal> {
        let mut offer = Offer::of(syn);
        offer.mptcp = offer.mptcp.filter(|_| mptcp);
        let isn = secret.cookie(opening, syn.seq, offer, now.0 / SLOT_NANOS);
        let local = offer.mptcp.map(|_| secret.local_key(opening, syn));
        let CookieOpening { timestamp_offset, mss, .. } = *opening;
        let opening = PassiveOpening { isn, timestamp_offset, local, mss };
        let mut subflow = Self::passive_open(now, config, syn, &opening)?;
        Ok(subflow.poll_transmit(now, view))
    }

    /// Opens a subflow by the segment that completes a handshake of which nothing was remembered,
    /// and takes that segment in as [`on_segment`](Self::on_segment) does. `None` if it does not
    /// acknowledge a cookie of the last minute or two, or cannot complete the handshake.
    ///
    /// The token of [`local_key`](Self::local_key) is to be looked at then: if it has come into
    /// use meanwhile, the subflow is to be aborted.
    pub fn open_by_cookie(
        now: Instant,
        config: &Arc<Config>,
        secret: &CookieSecret,
        opening: &CookieOpening,
        segment: &Segment,
        view: &View,
        placements: &mut Vec<Placement>,
    ) -> Option<(Self, Disposition)> {
        let unwanted = Flags::SYN.with(Flags::RST).0;
        if !segment.flags.contains(Flags::ACK) || segment.flags.0 & unwanted != 0 {
            return None;
        }
        let (peer, isn) = (segment.seq - 1, segment.ack - 1);
        let offer = Offer::from_bits(isn.0 >> HASH_BITS);
        let slot = now.0 / SLOT_NANOS;
        let mut slots = [Some(slot), slot.checked_sub(1)].into_iter().flatten();
        if !slots.any(|slot| secret.cookie(opening, peer, offer, slot) == isn) {
            return None;
        }
        let syn = offer.syn(peer, segment.window, segment.options.timestamps);
        let local = offer.mptcp.map(|_| LocalKey::new(secret.key(opening, peer)));
        let CookieOpening { timestamp_offset, mss, .. } = *opening;
        let opening = PassiveOpening { isn, timestamp_offset, local, mss };
        let mut subflow = Self::passive_open(now, config, &syn, &opening).ok()?;
        let disposition = subflow.on_segment(now, segment, view, placements);
        (subflow.state != State::SynReceived).then_some((subflow, disposition))
    }
}
