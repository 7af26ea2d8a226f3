//! What is derived from keys and secrets: tokens, initial data sequence numbers, the HMACs of
//! MP_JOIN and ADD_ADDR (RFC 8684), and initial sequence numbers (RFC 6528).
//!
//! Nothing here is random: keys, nonces and secrets come in as arguments.

use core::fmt;
use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use siphasher::sip::SipHasher24;
use subtle::ConstantTimeEq;

use crate::segment::{AddressId, Key, Token};
use crate::seq::{DataSeq, SeqNum};
use crate::time::Instant;

/// The token and the initial data sequence number that belong to `key`: the leftmost 32 and the
/// rightmost 64 bits of its SHA-256 (RFC 8684, section 3.1).
///
/// The initial data sequence number is taken by the SYN; the first byte of data follows it.
#[must_use]
pub fn key_to_token_and_idsn(key: Key) -> (Token, DataSeq) {
    let digest: [u8; 32] = Sha256::digest(key.0.to_be_bytes()).into();
    let [t0, t1, t2, t3, ..] = digest;
    (Token(u32::from_be_bytes([t0, t1, t2, t3])), DataSeq(rightmost_64(&digest)))
}

/// Whether two keys are equal, in a time that does not depend on where they differ.
#[must_use]
pub fn keys_equal(one: Key, other: Key) -> bool {
    one.0.ct_eq(&other.0).into()
}

/// The HMAC that one host shows the other when a subflow joins (RFC 8684, section 3.2).
#[derive(Clone, Copy)]
pub struct JoinHmac([u8; 32]);

impl JoinHmac {
    /// The HMAC that the host with `sender_key` and `sender_nonce` sends to the host with
    /// `receiver_key` and `receiver_nonce`.
    #[must_use]
    pub fn new(sender_key: Key, receiver_key: Key, sender_nonce: u32, receiver_nonce: u32) -> Self {
        let mut message = [0; 8];
        message[..4].copy_from_slice(&sender_nonce.to_be_bytes());
        message[4..].copy_from_slice(&receiver_nonce.to_be_bytes());
        Self(hmac_sha256(sender_key, receiver_key, &message))
    }

    /// All 256 bits.
    #[must_use]
    pub const fn full(&self) -> [u8; 32] {
        self.0
    }

    /// The leftmost 64 bits, as the SYN/ACK carries them.
    #[must_use]
    pub const fn leftmost_64(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    /// The leftmost 160 bits, as the third ACK carries them.
    #[must_use]
    pub fn leftmost_160(&self) -> [u8; 20] {
        let mut leftmost = [0; 20];
        leftmost.copy_from_slice(&self.0[..20]);
        leftmost
    }

    /// Whether `shown`, from a SYN/ACK, is right; in constant time.
    #[must_use]
    pub fn matches_64(&self, shown: u64) -> bool {
        self.leftmost_64().ct_eq(&shown).into()
    }

    /// Whether `shown`, from a third ACK, is right; in constant time.
    #[must_use]
    pub fn matches_160(&self, shown: &[u8; 20]) -> bool {
        self.0[..20].ct_eq(shown).into()
    }
}

impl fmt::Debug for JoinHmac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinHmac(..)")
    }
}

/// The truncated HMAC of an ADD_ADDR that the host with `sender_key` sends: the rightmost 64 bits
/// (RFC 8684, section 3.4.1). Where the option has no port, pass `None`.
#[must_use]
pub fn add_addr_hmac(
    sender_key: Key,
    receiver_key: Key,
    id: AddressId,
    address: IpAddr,
    port: Option<u16>,
) -> u64 {
    let port = port.unwrap_or(0).to_be_bytes();
    let digest = match address {
        IpAddr::V4(address) => {
            let mut message = [0; 7];
            message[0] = id.0;
            message[1..5].copy_from_slice(&address.octets());
            message[5..].copy_from_slice(&port);
            hmac_sha256(sender_key, receiver_key, &message)
        }
        IpAddr::V6(address) => {
            let mut message = [0; 19];
            message[0] = id.0;
            message[1..17].copy_from_slice(&address.octets());
            message[17..].copy_from_slice(&port);
            hmac_sha256(sender_key, receiver_key, &message)
        }
    };
    rightmost_64(&digest)
}

/// Whether two truncated HMACs are equal; in constant time.
#[must_use]
pub fn hmacs_equal(one: u64, other: u64) -> bool {
    one.ct_eq(&other).into()
}

fn hmac_sha256(first_key: Key, second_key: Key, message: &[u8]) -> [u8; 32] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&first_key.0.to_be_bytes());
    key[8..].copy_from_slice(&second_key.0.to_be_bytes());
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("HMAC takes keys of any length");
    mac.update(message);
    mac.finalize().into_bytes().into()
}

fn rightmost_64(digest: &[u8; 32]) -> u64 {
    let [.., a, b, c, d, e, f, g, h] = *digest;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// The secret behind initial sequence numbers and timestamp offsets. It is drawn once for a
/// process, and is the same for all workers.
#[derive(Clone)]
pub struct IsnSecret([u8; 16]);

impl IsnSecret {
    /// A secret of 16 octets that nobody can guess.
    #[must_use]
    pub const fn new(secret: [u8; 16]) -> Self {
        Self(secret)
    }

    /// The initial sequence number of a connection from `local` to `remote` that is opened `now`:
    /// a keyed hash of the addresses and ports, plus a clock that ticks every 4 microseconds
    /// (RFC 6528, section 3).
    #[must_use]
    pub fn isn(&self, local: SocketAddr, remote: SocketAddr, now: Instant) -> SeqNum {
        let ticks = (now.0 / 4_000) as u32;
        SeqNum(self.hash(Purpose::SequenceNumber, local, remote) as u32) + ticks
    }

    /// What to add to the timestamp clock of a connection from `local` to `remote`, so that the
    /// values tell a peer neither the time since the start nor what other peers are told
    /// (RFC 7323, section 5.4). It is the same for every connection of the same addresses and
    /// ports, whose timestamps so go on where they stood.
    #[must_use]
    pub fn timestamp_offset(&self, local: SocketAddr, remote: SocketAddr) -> u32 {
        self.hash(Purpose::TimestampOffset, local, remote) as u32
    }

    fn hash(&self, purpose: Purpose, local: SocketAddr, remote: SocketAddr) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write_u8(purpose as u8);
        for end in [local, remote] {
            match end.ip() {
                IpAddr::V4(address) => hasher.write(&address.octets()),
                IpAddr::V6(address) => hasher.write(&address.octets()),
            }
            hasher.write(&end.port().to_be_bytes());
        }
        hasher.finish()
    }
}

impl fmt::Debug for IsnSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IsnSecret(..)")
    }
}

/// Keeps the uses of one secret apart.
#[derive(Clone, Copy)]
enum Purpose {
    SequenceNumber = 1,
    TimestampOffset = 2,
}

#[cfg(test)]
mod tests;
