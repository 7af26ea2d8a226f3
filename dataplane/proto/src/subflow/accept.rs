//! The handshake of a passive open: SYN, SYN/ACK, and the ACK that decides about MPTCP.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use super::close::Close;
use super::egress::{AckState, Pending};
use super::mapping::Mappings;
use super::sack::Reorder;
use super::time_wait::reset_with;
use super::timers::{RateLimit, RoundTrip, Timers};
use super::{
    DropReason, Event, FallbackReason, Mode, Mptcp, Receive, Refusal, RefusalReason, ResetReason,
    Send, Stamps, State, Subflow, SubflowStatistics, View, reset_for,
};
use crate::config::{ChecksumPolicy, Config};
use crate::connection::LocalKey;
use crate::crypto::{key_to_token_and_idsn, keys_equal};
use crate::segment::{Flags, Key, MpCapable, MpCapableBody, Segment, WindowScale};
use crate::seq::{SeqNum, StreamOffset};
use crate::time::Instant;

/// What the driver decides about a subflow that a SYN opens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PassiveOpening {
    /// Our initial sequence number (RFC 6528).
    pub isn: SeqNum,
    /// What is added to our timestamp clock for this peer (RFC 7323, section 5.4).
    pub timestamp_offset: u32,
    /// Our key; `None` where the connection can only be plain TCP.
    pub local: Option<LocalKey>,
    /// The largest segment we can take, without headers: MTU - 40 for IPv4, - 60 for IPv6.
    pub mss: u16,
}

/// The algorithm bit H: HMAC-SHA256.
pub(super) const HMAC_SHA256: u8 = 0x01;

/// The MPTCP version spoken.
pub(super) const VERSION: u8 = 1;

/// Whether the MP_CAPABLE of a SYN can be answered (RFC 8684, section 3.1).
fn usable_in_syn(capable: &MpCapable, config: &Config) -> Result<(), FallbackReason> {
    if !config.mptcp {
        return Err(FallbackReason::Disabled);
    }
    // A peer that offers a later version is answered with ours, an earlier one not at all.
    let form = matches!(capable.body, MpCapableBody::Syn) && capable.version >= VERSION;
    if !form || capable.extensibility || capable.algorithms & HMAC_SHA256 == 0 {
        return Err(FallbackReason::UnusableCapable);
    }
    match config.checksums {
        // "If A=1 is received by a host that does not want to use checksums, it MUST fall back to
        // regular TCP by ignoring the MP_CAPABLE option as if it was invalid."
        ChecksumPolicy::Refuse if capable.checksum_required => {
            Err(FallbackReason::ChecksumRequired)
        }
        ChecksumPolicy::Refuse => Ok(()),
    }
}

/// The peer's key, if the MP_CAPABLE of a third ACK is right.
fn key_in_ack(capable: &MpCapable, local: &LocalKey) -> Option<Key> {
    let MpCapableBody::Ack { sender, receiver, data } = capable.body else { return None };
    let checksum = capable.checksum_required || data.is_some_and(|data| data.checksum.is_some());
    let right = capable.version == VERSION
        && !capable.extensibility
        && !checksum
        && capable.algorithms & HMAC_SHA256 != 0
        && keys_equal(receiver, local.key);
    right.then_some(sender)
}

impl Subflow {
    /// Opens a subflow by a SYN that came to a listener (RFC 9293, section 3.10.7.2).
    ///
    /// # Errors
    ///
    /// A [`Refusal`], with the reset to send where one is due, if the segment opens nothing.
    #[expect(clippy::result_large_err, reason = "the answer is in it, so that none is allocated")]
    pub fn passive_open(
        now: Instant,
        config: &Arc<Config>,
        syn: &Segment,
        opening: &PassiveOpening,
    ) -> Result<Self, Refusal> {
        check_listen(syn, config)?;
        let (mode, fallback) = match (&syn.options.mptcp.capable, opening.local) {
            (None, _) => (Mode::Plain, None),
            (Some(capable), local) => match (usable_in_syn(capable, config), local) {
                (Ok(()), Some(local)) => (Mode::Offered { local, in_syn: true }, None),
                (Ok(()), None) => (Mode::Plain, Some(FallbackReason::Disabled)),
                (Err(reason), _) => (Mode::Plain, Some(reason)),
            },
        };
        let stamps = syn.options.timestamps.filter(|_| config.timestamps).map(|theirs| Stamps {
            offset: opening.timestamp_offset,
            recent: theirs.value,
            recent_at: now,
            echoed: 0,
        });
        // "Window scaling is in use if both SYNs have the option" (RFC 7323, section 2.2).
        let scales = syn.options.window_scale.zip(config.window_scale);
        Ok(Self {
            state: State::SynReceived,
            mode,
            receive: Receive {
                next: syn.seq + 1,
                received: 0,
                initial: syn.seq,
                acknowledged: syn.seq + 1,
                told_position: 0,
                told: StreamOffset::ZERO,
                scale: scales.map_or(WindowScale::ZERO, |(_, ours)| ours),
                fin_at: None,
                fin_taken: false,
                largest: 0,
                mss: opening.mss,
                unmapped: 0,
            },
            send: Send {
                initial: opening.isn,
                unacked: opening.isn,
                next: opening.isn + 1,
                // RFC 7323, section 2.2: the window of a SYN is never scaled.
                window: u32::from(syn.window),
                max_window: u32::from(syn.window),
                scale: scales.map(|(theirs, _)| theirs),
                window_seq: syn.seq,
                window_ack: opening.isn,
            },
            stamps,
            mappings: Mappings::default(),
            reorder: Reorder::new(config.sack && syn.options.sack_permitted),
            ack: AckState::new(config.acks.quick),
            timers: Timers::default(),
            round_trip: RoundTrip::default(),
            statistics: SubflowStatistics { segments: 1, ..Default::default() },
            heard_at: now,
            probes: 0,
            close: Close::default(),
            pending: Pending { syn_ack: true, ..Default::default() },
            challenges: RateLimit::default(),
            fallback,
            events: VecDeque::with_capacity(4),
            config: Arc::clone(config),
        })
    }

    /// A SYN that came again: the SYN/ACK was lost or late. It may lack MP_CAPABLE now, since
    /// clients give it up after some timeouts; our answer then lacks it too. "MPTCP and non-MPTCP
    /// SYNs could get reordered in the network. Therefore, the final state is inferred from the
    /// presence or absence of the MP_CAPABLE option in the third packet" (RFC 8684, section 3.1).
    pub(super) fn on_syn_again(&mut self, syn: &Segment) {
        if let Mode::Offered { in_syn, .. } = &mut self.mode {
            let capable = syn.options.mptcp.capable;
            *in_syn = capable.is_some_and(|c| usable_in_syn(&c, &self.config).is_ok());
        }
        if let (Some(stamps), Some(theirs)) = (&mut self.stamps, syn.options.timestamps) {
            stamps.recent = theirs.value;
        }
        self.pending.syn_ack = true;
    }

    /// The segment that completes the handshake: its acknowledgement is right.
    pub(super) fn complete_handshake(
        &mut self,
        now: Instant,
        segment: &Segment,
        view: &View,
    ) -> Result<(), DropReason> {
        if let Mode::Offered { local, in_syn } = self.mode {
            let key = segment.options.mptcp.capable.and_then(|c| key_in_ack(&c, &local));
            match key {
                Some(remote) => {
                    let (_, idsn) = key_to_token_and_idsn(remote);
                    self.mode = Mode::Mptcp(Mptcp { local, remote, remote_first: idsn + 1 });
                }
                // The MP_CAPABLE that decides was overtaken, or lost: the peer repeats it in what
                // starts at the first octet, and only there.
                None if segment.seq != self.receive.next => {
                    return Err(DropReason::BeforeHandshake);
                }
                None => {
                    self.mode = Mode::Plain;
                    self.fallback = Some(if in_syn {
                        FallbackReason::NoCapableInAck
                    } else {
                        FallbackReason::NoCapableInSyn
                    });
                }
            }
        }
        self.events.push_back(Event::Established { mptcp: self.remote_key() });
        self.events.extend(self.fallback.map(Event::Fallback));
        // What the SYN/ACK told is known to have arrived.
        let told = view.right_edge.0.min(u64::from(u16::MAX));
        self.receive.told_position = self.receive.told_position.max(told);
        self.receive.told = self.receive.told.max(StreamOffset(told));
        self.move_to_established(now);
        Ok(())
    }
}

/// What a listener does with a segment that is no plain SYN.
#[expect(clippy::result_large_err, reason = "the answer is in it, so that none is allocated")]
fn check_listen(segment: &Segment, config: &Config) -> Result<(), Refusal> {
    let flags = segment.flags;
    let refuse = |reason, reply| Err(Refusal { reason, reply });
    if flags.contains(Flags::RST) {
        return refuse(RefusalReason::NotSyn, None);
    }
    if flags.contains(Flags::ACK) {
        return refuse(RefusalReason::NotSyn, reset_for(segment));
    }
    if !flags.contains(Flags::SYN) {
        return refuse(RefusalReason::NotSyn, None);
    }
    if flags.contains(Flags::FIN) {
        return refuse(RefusalReason::BadFlags, None);
    }
    if config.mptcp && segment.options.mptcp.join.is_some() {
        return refuse(RefusalReason::Join, reset_with(segment, ResetReason::Prohibited));
    }
    Ok(())
}
