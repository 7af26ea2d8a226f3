//! What can be set about the protocol, and the values it has when nobody sets anything.

use core::time::Duration;

use crate::segment::WindowScale;
use crate::wire::IpFields;

/// How the endpoint speaks TCP and MPTCP. One value is shared by all subflows of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Whether MP_CAPABLE is answered; without it every connection is plain TCP.
    pub mptcp: bool,
    /// What is done about a peer that requires data-level checksums.
    pub checksums: ChecksumPolicy,
    /// Whether selective acknowledgements are offered (RFC 2018).
    pub sack: bool,
    /// Whether the timestamps option is accepted (RFC 7323, section 3).
    pub timestamps: bool,
    /// The shift we announce for our own window (RFC 7323, section 2), or `None` to do without
    /// window scaling. See [`Config::scale_for`].
    pub window_scale: Option<WindowScale>,
    /// Retransmission timeout bounds (RFC 6298).
    pub rto: RtoBounds,
    /// How often a SYN/ACK is retransmitted before the half-open subflow is forgotten.
    pub syn_ack_retries: u8,
    /// How often a FIN or a DATA_FIN is retransmitted before the subflow is given up.
    pub fin_retries: u8,
    /// When and how long acknowledgements are held back.
    pub acks: AckPolicy,
    /// Own keepalive probes (RFC 9293, section 3.8.4), or `None`, the default.
    pub keepalive: Option<Keepalive>,
    /// How long TIME-WAIT lasts: 2 MSL (RFC 9293, section 3.4.2).
    pub time_wait: Duration,
    /// How long FIN-WAIT-2 may last once nobody reads the stream any more; and in MPTCP, how long
    /// the peer's DATA_FIN may then take after ours was acknowledged.
    pub fin_wait_2: Duration,
    /// How long a peer that ended its data first is given to send its FIN first, so that
    /// TIME-WAIT falls to it and not to us.
    pub fin_grace: Duration,
    /// How many challenge ACKs (RFC 5961, section 7) a subflow sends in a second.
    pub challenge_acks_per_second: u16,
    /// Whether peers are told not to open further subflows to the address and port of the first
    /// (RFC 8684, section 3.1, flag C): where a load balancer knows nothing of tokens.
    pub deny_joins_to_initial_address: bool,
    /// How long an ADD_ADDR waits for its echo before it is sent again. It doubles each time.
    pub announce_interval: Duration,
    /// How often an ADD_ADDR is sent again.
    pub announce_retries: u8,
    /// How long the peer may take to answer an MP_FAIL of ours before the subflow is given up.
    pub fail_timeout: Duration,
    /// What the IP header of everything sent says. It is the driver that looks at it.
    pub ip: IpFields,
}

impl Config {
    /// The smallest shift with which a window of `limit` octets can be announced in full.
    #[must_use]
    pub const fn scale_for(limit: u64) -> WindowScale {
        let mut shift = 0;
        while shift < 14 && (u16::MAX as u64) << shift < limit {
            shift += 1;
        }
        WindowScale::new(shift)
    }

    /// How many octets of a window are told to a peer only while it closes, so that the window field
    /// can be rounded up then (docs/decisions/0010): enough for twice.
    #[must_use]
    pub const fn window_slack(&self) -> u64 {
        match self.window_scale {
            Some(scale) => 2 * ((1 << scale.shift()) - 1),
            None => 0,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mptcp: true,
            checksums: ChecksumPolicy::Refuse,
            sack: true,
            timestamps: true,
            // Enough for a receive ring of 16 MiB.
            window_scale: Some(Self::scale_for(16 << 20)),
            rto: RtoBounds::default(),
            syn_ack_retries: 5,
            // With the doubling timeout from 200 ms on, some 100 s, the least RFC 9293 (section
            // 3.8.3) asks for.
            fin_retries: 9,
            acks: AckPolicy::default(),
            keepalive: None,
            time_wait: Duration::from_secs(60),
            fin_wait_2: Duration::from_secs(60),
            fin_grace: Duration::from_millis(200),
            challenge_acks_per_second: 10,
            deny_joins_to_initial_address: false,
            // As the initial retransmission timeout: the address may be wanted soon.
            announce_interval: Duration::from_secs(1),
            // Half a minute in all.
            announce_retries: 4,
            // Many round trips of any path; nothing can be delivered meanwhile.
            fail_timeout: Duration::from_secs(30),
            ip: IpFields::default(),
        }
    }
}

/// Whether data-level checksums are used (RFC 8684, sections 3.1 and 3.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumPolicy {
    /// No: MP_CAPABLE of a SYN that requires them is ignored, so that the connection becomes plain
    /// TCP.
    #[default]
    Refuse,
    /// If the peer requires them.
    Accept,
    /// Always.
    Require,
}

/// Bounds of the retransmission timeout (RFC 6298).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtoBounds {
    /// Before there is a round-trip sample.
    pub initial: Duration,
    /// The least.
    pub min: Duration,
    /// The most, with backoff.
    pub max: Duration,
}

impl Default for RtoBounds {
    fn default() -> Self {
        Self {
            // RFC 6298, section 2.1.
            initial: Duration::from_secs(1),
            // RFC 6298 says 1 s; 200 ms is what deployed stacks use, and their delayed-ACK
            // timers stay below it.
            min: Duration::from_millis(200),
            max: Duration::from_secs(60),
        }
    }
}

/// When acknowledgements of in-order data go out (RFC 9293, section 3.8.6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckPolicy {
    /// The longest an acknowledgement is held back; RFC 9293 allows less than 500 ms.
    pub delay: Duration,
    /// So many segments at the start of a subflow are acknowledged without delay, since the
    /// sender's slow start runs by our acknowledgements.
    pub quick: u16,
}

impl Default for AckPolicy {
    fn default() -> Self {
        Self { delay: Duration::from_millis(40), quick: 16 }
    }
}

/// Keepalive probes on an idle subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Idle time until the first probe; RFC 9293 asks for two hours unless set otherwise.
    pub idle: Duration,
    /// Time between unanswered probes.
    pub interval: Duration,
    /// Unanswered probes after which the subflow is given up.
    pub probes: u8,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self { idle: Duration::from_secs(7200), interval: Duration::from_secs(75), probes: 9 }
    }
}
