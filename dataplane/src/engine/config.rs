//! What can be set for a whole engine.

use std::sync::Arc;
use std::time::Duration;

use mpxdp_proto::config::Config;

use crate::placement::Placement;
use crate::receive::{RingConfig, Unlimited};

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
    /// How many subflows are half open at most, for each listener.
    pub half_open: usize,
    /// Whether MPTCP is negotiated; without it every connection is plain TCP.
    pub mptcp: bool,
    /// How long a subflow stays in TIME-WAIT (RFC 9293: twice the maximum segment lifetime).
    pub time_wait: Duration,
}

impl Default for EngineConfig {
    /// Rings of 256 KiB, which stay in the second-level cache, growing up to 16 MiB; backlogs of
    /// 1024; 50 us of looking for more, some times the gap between two bursts of a busy NIC; a
    /// minute of TIME-WAIT, as Linux has it.
    fn default() -> Self {
        Self {
            placement: Placement::default(),
            spin: Duration::from_micros(50),
            receive_initial: 256 << 10,
            receive_limit: 16 << 20,
            backlog: 1024,
            half_open: 1024,
            mptcp: true,
            time_wait: Duration::from_secs(60),
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
            mptcp,
            time_wait,
        } = *self;
        // The ring rounds up, by less than twice.
        let limit = receive_limit.checked_next_power_of_two().unwrap_or(receive_limit);
        Config {
            mptcp,
            time_wait,
            window_scale: Some(Config::scale_for(limit as u64)),
            ..Config::default()
        }
    }

    /// How large receive rings are.
    pub(crate) fn ring(&self) -> RingConfig {
        RingConfig {
            initial: self.receive_initial,
            limit: self.receive_limit,
            budget: Arc::new(Unlimited),
        }
    }
}
