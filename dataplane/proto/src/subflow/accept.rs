//! The handshake of a passive open: SYN, SYN/ACK, and the ACK that decides about MPTCP.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use super::close::Close;
use super::egress::{AckState, Pending};
use super::join::Addresses;
use super::mapping::Mappings;
use super::sack::Reorder;
use super::sums::Sums;
use super::timers::{RateLimit, RoundTrip, Timers};
use super::{
    DropReason, Event, FallbackReason, Heard, Mode, Mptcp, Receive, Refusal, RefusalReason, Send,
    Stamps, State, Subflow, SubflowStatistics, refuse_join, reset_for,
};
use crate::config::{ChecksumPolicy, Config};
use crate::connection::LocalKey;
use crate::crypto::keys_equal;
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

/// Whether the MP_CAPABLE of a SYN can be answered, and with checksums or without (RFC 8684,
/// section 3.1).
fn usable_in_syn(capable: &MpCapable, config: &Config) -> Result<bool, FallbackReason> {
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
        ChecksumPolicy::Refuse => Ok(false),
        // "If either host requires the use of checksums, checksums MUST be used."
        ChecksumPolicy::Accept => Ok(capable.checksum_required),
        ChecksumPolicy::Require => Ok(true),
    }
}

/// The peer's key, if the MP_CAPABLE of a third ACK is right.
fn key_in_ack(capable: &MpCapable, local: &LocalKey, checksums: bool) -> Option<Key> {
    let MpCapableBody::Ack { sender, receiver, .. } = capable.body else { return None };
    // "This decision is confirmed by the setting of the 'A' bit in the third packet (the ACK)."
    let right = capable.version == VERSION
        && !capable.extensibility
        && capable.checksum_required == checksums
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
        check_listen(syn)?;
        if config.mptcp && syn.options.mptcp.join.is_some() {
            return Err(refuse_join(syn, RefusalReason::Join));
        }
        let (mode, fallback) = match (&syn.options.mptcp.capable, opening.local) {
            (None, _) => (Mode::Plain, None),
            (Some(capable), local) => match (usable_in_syn(capable, config), local) {
                (Ok(checksums), Some(local)) => {
                    (Mode::Offered { local, in_syn: true, checksums }, None)
                }
                (Ok(_), None) => (Mode::Plain, Some(FallbackReason::Disabled)),
                (Err(reason), _) => (Mode::Plain, Some(reason)),
            },
        };
        let PassiveOpening { isn, timestamp_offset, local: _, mss } = *opening;
        let mut subflow = Self::opened_by(now, config, syn, (isn, timestamp_offset, mss), mode);
        subflow.fallback = fallback;
        Ok(subflow)
    }

    /// A subflow that answers `syn` with this initial sequence number, timestamp offset and MSS.
    pub(super) fn opened_by(
        now: Instant,
        config: &Arc<Config>,
        syn: &Segment,
        (isn, timestamp_offset, mss): (SeqNum, u32, u16),
        mode: Mode,
    ) -> Self {
        let stamps = syn.options.timestamps.filter(|_| config.timestamps).map(|theirs| Stamps {
            offset: timestamp_offset,
            recent: theirs.value,
            recent_at: now,
            echoed: 0,
        });
        // "Window scaling is in use if both SYNs have the option" (RFC 7323, section 2.2).
        let scales = syn.options.window_scale.zip(config.window_scale);
        Self {
            state: State::SynReceived,
            mode,
            confirmed: false,
            heard: Heard::Nothing { bare: false },
            doubt: None,
            join: None,
            addresses: Addresses::default(),
            receive: Receive {
                next: syn.seq + 1,
                received: 0,
                initial: syn.seq,
                acknowledged: syn.seq + 1,
                told_position: 0,
                told: StreamOffset::ZERO,
                told_ack: StreamOffset::ZERO,
                field: 0,
                scale: scales.map_or(WindowScale::ZERO, |(_, ours)| ours),
                fin_at: None,
                fin_taken: false,
                largest: 0,
                mss,
                unmapped: 0,
            },
            send: Send {
                initial: isn,
                unacked: isn,
                next: isn + 1,
                // RFC 7323, section 2.2: the window of a SYN is never scaled.
                window: u32::from(syn.window),
                max_window: u32::from(syn.window),
                scale: scales.map(|(theirs, _)| theirs),
                window_seq: syn.seq,
                window_ack: isn,
            },
            stamps,
            mappings: Mappings::default(),
            sums: Sums::default(),
            reorder: Reorder::new(config.sack && syn.options.sack_permitted),
            ack: AckState::new(config.acks.quick),
            timers: Timers::default(),
            round_trip: RoundTrip::default(),
            statistics: SubflowStatistics { segments: 1, ..Default::default() },
            heard_at: now,
            probes: 0,
            checked_since: None,
            close: Close::default(),
            pending: Pending { syn_ack: true, ..Default::default() },
            signals: None,
            challenges: RateLimit::default(),
            fallback: None,
            // Nothing is allocated before the handshake is complete.
            events: VecDeque::new(),
            config: Arc::clone(config),
        }
    }

    /// A SYN that came again: the SYN/ACK was lost or late. It may lack MP_CAPABLE now, since
    /// clients give it up after some timeouts; our answer then lacks it too. "MPTCP and non-MPTCP
    /// SYNs could get reordered in the network. Therefore, the final state is inferred from the
    /// presence or absence of the MP_CAPABLE option in the third packet" (RFC 8684, section 3.1).
    pub(super) fn on_syn_again(&mut self, syn: &Segment) {
        if let Mode::Offered { in_syn, checksums, .. } = &mut self.mode {
            let usable = syn.options.mptcp.capable.map(|c| usable_in_syn(&c, &self.config));
            *in_syn = matches!(usable, Some(Ok(_)));
            if let Some(Ok(required)) = usable {
                *checksums = required;
            }
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
    ) -> Result<(), DropReason> {
        if self.join.is_some() {
            return self.complete_join(now, segment);
        }
        if let Mode::Offered { local, in_syn, checksums } = self.mode {
            let capable = segment.options.mptcp.capable;
            match capable.and_then(|c| key_in_ack(&c, &local, checksums)) {
                Some(remote) => self.mode = Mode::Mptcp(Mptcp::new(local, remote, checksums)),
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
        if self.uses_checksums() {
            self.events.push_back(Event::ChecksumsInUse);
        }
        self.events.extend(self.fallback.map(Event::Fallback));
        self.move_to_established(now);
        Ok(())
    }
}

/// What a listener does with a segment that is no plain SYN.
#[expect(clippy::result_large_err, reason = "the answer is in it, so that none is allocated")]
pub(super) fn check_listen(segment: &Segment) -> Result<(), Refusal> {
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
    Ok(())
}
