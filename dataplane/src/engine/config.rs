//! What can be set for a whole engine.

use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::Duration;

pub use mpxdp_proto::config::Keepalive;
use mpxdp_proto::config::{ChecksumPolicy, Config};
use mpxdp_proto::wire::IpFields;

use super::announce::Announce;
use super::memory::Memory;
use crate::placement::Placement;
use crate::receive::RingConfig;
use crate::worker::JoinLimits;

/// Whether connections use data-level checksums (RFC 8684, sections 3.1 and 3.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Checksums {
    /// Never: a peer that requires them gets plain TCP.
    Refuse,
    /// If the peer requires them.
    #[default]
    Accept,
    /// Always.
    Require,
}

/// What can be set for a whole engine.
#[derive(Clone, PartialEq, Debug)]
pub struct EngineConfig {
    /// Where the workers run.
    pub placement: Placement,
    /// How long a worker looks for more packets before it sleeps.
    pub spin: Duration,
    /// The size of a connection's receive ring at its start, in bytes; rounded up to a power of
    /// two of at least [`MIN_CAPACITY`](crate::receive::MIN_CAPACITY).
    pub receive_initial: usize,
    /// The size up to which a connection's receive ring grows, in bytes; rounded in the same way.
    pub receive_limit: usize,
    /// How many connections wait for [`Listener::accept`](crate::Listener::accept) at most, for
    /// each listener.
    pub backlog: usize,
    /// How many subflows are half open at most, for each listener. SYNs beyond are answered by
    /// cookies (RFC 4987, section 3.6), with 0 all of them: nothing is kept of such a handshake
    /// until its end, and a SYN/ACK that is lost is not sent again.
    pub half_open: usize,
    /// How many of those come from one source at most, at all listeners: an IPv4 address, or an
    /// IPv6 network of 64 bits. Its further SYNs are answered by cookies too. Subflows that join
    /// are limited by [`subflows`](Self::subflows) and [`pending_joins`](Self::pending_joins).
    pub half_open_per_source: usize,
    /// How often a SYN/ACK is sent again before the half-open subflow is given up.
    pub syn_ack_retries: u8,
    /// How many challenge ACKs (RFC 5961, section 7) a subflow sends in a second.
    pub challenge_acks_per_second: u16,
    /// Probes on idle subflows (RFC 9293, section 3.8.4), or none.
    pub keepalive: Option<Keepalive>,
    /// Whether MPTCP is negotiated; without it every connection is plain TCP.
    pub mptcp: bool,
    /// Whether data-level checksums are used.
    pub checksums: Checksums,
    /// Which further addresses peers are told of.
    pub announce: Announce,
    /// How many subflows a connection has at most.
    pub subflows: usize,
    /// How many further subflows are half open at most, of all connections together.
    pub pending_joins: usize,
    /// How long a connection whose last subflow has ended waits for another, before it fails.
    pub close_timeout: Duration,
    /// How many bytes of memory the receive rings of all connections take at most, with payload
    /// that waits for its checksum and with the memory that is kept for the next ring. A connection
    /// for which nothing is left is reset, and a ring does not grow.
    pub memory_limit: usize,
    /// How long a subflow stays in TIME-WAIT (RFC 9293: twice the maximum segment lifetime).
    pub time_wait: Duration,
    /// The time to live, or hop limit, of all packets sent (RFC 9293, section 3.9.2).
    pub hop_limit: NonZeroU8,
    /// The Differentiated Services code point of all packets sent (RFC 9293, section 3.9.1.9).
    pub dscp: Dscp,
}

/// A Differentiated Services code point (RFC 2474, section 3): 0 to 63. 0, the default, is best effort.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Dscp(u8);

impl Dscp {
    /// The code point with this number; `None` from 64 on.
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if number < 64 { Some(Self(number)) } else { None }
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// What the assigned numbers recommend (RFC 9293, section 3.9.2), and what Linux has.
const HOP_LIMIT: NonZeroU8 = NonZeroU8::new(64).unwrap();

impl Default for EngineConfig {
    /// Rings of 256 KiB, which stay in the second-level cache, growing up to 16 MiB; backlogs of
    /// 1024, of which a source may fill a quarter with half-open subflows; what the protocol's own
    /// default is for SYN/ACKs and challenges, and no probes; 50 us of looking for more, some times
    /// the gap between two bursts of a busy NIC; 8 subflows, the most that Linux makes; a minute
    /// until a connection without subflows fails, and a minute of TIME-WAIT, as Linux has them; 1
    /// GiB of memory.
    fn default() -> Self {
        let Config { syn_ack_retries, challenge_acks_per_second, keepalive, .. } =
            Config::default();
        Self {
            placement: Placement::default(),
            spin: Duration::from_micros(50),
            receive_initial: 256 << 10,
            receive_limit: 16 << 20,
            backlog: 1024,
            half_open: 1024,
            half_open_per_source: 256,
            syn_ack_retries,
            challenge_acks_per_second,
            keepalive,
            mptcp: true,
            checksums: Checksums::default(),
            announce: Announce::default(),
            subflows: 8,
            pending_joins: 1024,
            close_timeout: Duration::from_secs(60),
            memory_limit: 1 << 30,
            time_wait: Duration::from_secs(60),
            hop_limit: HOP_LIMIT,
            dscp: Dscp::default(),
        }
    }
}

impl EngineConfig {
    /// How the protocol is spoken.
    pub(crate) fn protocol(&self) -> Config {
        let Self {
            placement: _,
            spin: _,
            receive_initial: _,
            receive_limit,
            backlog: _,
            half_open: _,
            half_open_per_source: _,
            syn_ack_retries,
            challenge_acks_per_second,
            keepalive,
            mptcp,
            checksums,
            announce: _,
            subflows: _,
            pending_joins: _,
            close_timeout: _,
            memory_limit: _,
            time_wait,
            hop_limit,
            dscp,
        } = *self;
        // The ring rounds up, by less than twice.
        let limit = receive_limit.checked_next_power_of_two().unwrap_or(receive_limit);
        Config {
            mptcp,
            checksums: match checksums {
                Checksums::Refuse => ChecksumPolicy::Refuse,
                Checksums::Accept => ChecksumPolicy::Accept,
                Checksums::Require => ChecksumPolicy::Require,
            },
            syn_ack_retries,
            challenge_acks_per_second,
            keepalive,
            time_wait,
            window_scale: Some(Config::scale_for(limit as u64)),
            ip: IpFields {
                hop_limit: hop_limit.get(),
                // Below it are the two bits of ECN, which is not used.
                traffic_class: dscp.get() << 2,
                ..IpFields::default()
            },
            ..Config::default()
        }
    }

    /// How large receive rings are.
    pub(super) fn ring(&self, memory: Arc<Memory>) -> RingConfig {
        RingConfig { initial: self.receive_initial, limit: self.receive_limit, budget: memory }
    }

    /// What further subflows are allowed.
    pub(crate) const fn joins(&self) -> JoinLimits {
        JoinLimits {
            subflows: self.subflows,
            pending: self.pending_joins,
            close_timeout: self.close_timeout,
        }
    }
}
