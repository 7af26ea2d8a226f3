//! What is left of a subflow in TIME-WAIT, and the answers of those that are not there at all.

use core::time::Duration;

use super::timers::RateLimit;
use super::{Mode, ResetReason, Subflow};
use crate::segment::{Dss, DssNumber, Flags, Options, Segment, Timestamps};
use crate::seq::{DataSeq, SeqNum};
use crate::time::Instant;

/// All that TIME-WAIT needs (RFC 9293, section 3.6.1): some hundred octets instead of a subflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeWait {
    expires: Instant,
    lasts: Duration,
    /// SND.NXT and RCV.NXT.
    sent: SeqNum,
    received: SeqNum,
    /// Our timestamp offset, and TS.Recent.
    stamps: Option<(u32, u32)>,
    /// In MPTCP, the acknowledgement of the peer's DATA_FIN, which may have got lost.
    data_ack: Option<DataSeq>,
    replies: RateLimit,
    replies_per_second: u16,
}

/// What a segment that meets TIME-WAIT leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "it is looked at on the spot and never stored")]
pub enum TimeWaitVerdict {
    /// Nothing.
    Ignore,
    /// This acknowledgement is to be sent.
    Reply(Segment),
    /// A new SYN that is safely later: the entry is to be dropped and the SYN given to the
    /// listener (RFC 6191), with an initial sequence number that is this one or later.
    Reopen(SeqNum),
    /// The time is over: the entry is to be dropped, and the segment treated as if it had not
    /// been there.
    Done,
}

impl TimeWait {
    pub(super) fn of(subflow: &Subflow, expires: Instant) -> Self {
        let data_ack = match (&subflow.mode, subflow.close.remote_data_fin) {
            (Mode::Mptcp(mptcp), Some(fin)) => Some(mptcp.remote_seq(fin) + 1),
            _ => None,
        };
        Self {
            expires,
            lasts: subflow.config.time_wait,
            sent: subflow.send.next,
            received: subflow.receive.next,
            stamps: subflow.stamps.as_ref().map(|stamps| (stamps.offset, stamps.recent)),
            data_ack,
            replies: subflow.challenges,
            replies_per_second: subflow.config.challenge_acks_per_second,
        }
    }

    /// When the entry is to be dropped; segments may move it.
    #[must_use]
    pub const fn expires(&self) -> Instant {
        self.expires
    }

    /// Takes a segment in (RFC 9293, section 3.10.7.4, for TIME-WAIT).
    pub fn on_segment(&mut self, now: Instant, segment: &Segment) -> TimeWaitVerdict {
        if now >= self.expires {
            return TimeWaitVerdict::Done;
        }
        // RFC 1337: a reset must not end TIME-WAIT, or old segments could meet a new connection.
        if segment.flags.contains(Flags::RST) {
            return TimeWaitVerdict::Ignore;
        }
        if segment.flags.contains(Flags::SYN) && !segment.flags.contains(Flags::ACK) {
            let newer = match (self.stamps, segment.options.timestamps) {
                (Some((_, recent)), Some(theirs)) => theirs.value.wrapping_sub(recent) as i32 > 0,
                _ => false,
            };
            if newer || segment.seq.after(self.received) {
                return TimeWaitVerdict::Reopen(self.sent + 1);
            }
            return self.reply(now);
        }
        if segment.flags.contains(Flags::FIN) && !segment.seq.after(self.received) {
            self.expires = now + self.lasts;
        }
        if segment.seq_len() > 0 || segment.seq != self.received {
            return self.reply(now);
        }
        // A DATA_FIN takes no sequence number of the subflow.
        if segment.options.mptcp.dss.is_some_and(|dss| dss.data_fin) {
            return self.reply(now);
        }
        TimeWaitVerdict::Ignore
    }

    fn reply(&mut self, now: Instant) -> TimeWaitVerdict {
        if !self.replies.allow(now, self.replies_per_second) {
            return TimeWaitVerdict::Ignore;
        }
        let timestamps = self
            .stamps
            .map(|(offset, echo)| Timestamps { value: super::timestamp_clock(now, offset), echo });
        let mut options = Options { timestamps, ..Default::default() };
        options.mptcp.dss = self
            .data_ack
            .map(|ack| Dss { ack: Some(DssNumber::Long(ack.0)), ..Default::default() });
        TimeWaitVerdict::Reply(Segment {
            seq: self.sent,
            ack: self.received,
            flags: Flags::ACK,
            options,
            ..Default::default()
        })
    }
}

/// The reset that answers a segment which belongs to no subflow and no listener (RFC 9293,
/// section 3.10.7.1), or `None` if it is itself a reset.
#[must_use]
pub fn reset_for(segment: &Segment) -> Option<Segment> {
    if segment.flags.contains(Flags::RST) {
        return None;
    }
    // "If the ACK bit is off, sequence number zero is used, <SEQ=0><ACK=SEG.SEQ+SEG.LEN>
    // <CTL=RST,ACK>. If the ACK bit is on, <SEQ=SEG.ACK><CTL=RST>."
    Some(if segment.flags.contains(Flags::ACK) {
        Segment { seq: segment.ack, flags: Flags::RST, ..Default::default() }
    } else {
        Segment {
            ack: segment.seq + segment.seq_len(),
            flags: Flags::RST.with(Flags::ACK),
            ..Default::default()
        }
    })
}

/// [`reset_for`] with MP_TCPRST (RFC 8684, section 3.6).
pub(super) fn reset_with(segment: &Segment, reason: ResetReason) -> Option<Segment> {
    let mut reset = reset_for(segment)?;
    reset.options.mptcp.reset = Some(reason.option());
    Some(reset)
}
