//! Subflows that join a connection: MP_JOIN on SYN, SYN/ACK and third ACK (RFC 8684, section 3.2).
//!
//! The SYN names the connection by our token. Our SYN/ACK proves that we know both keys, the third
//! ACK proves that the peer does, and our answer to it tells the peer that it may send. There is
//! no plain TCP to fall back to: what does not fit is answered by a reset.

use alloc::boxed::Box;
use alloc::sync::Arc;

use super::accept::check_listen;
use super::time_wait::reset_with;
use super::{
    DropReason, Event, Heard, Mode, Mptcp, Refusal, RefusalReason, ResetReason, Subflow, View,
};
use crate::config::Config;
use crate::connection::Connection;
use crate::crypto::JoinHmac;
use crate::segment::{AddressId, Flags, MpJoin, Segment};
use crate::seq::SeqNum;
use crate::time::Instant;

/// What the driver decides about a subflow that joins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JoinOpening {
    /// Our initial sequence number (RFC 6528).
    pub isn: SeqNum,
    /// What is added to our timestamp clock for this peer (RFC 7323, section 5.4).
    pub timestamp_offset: u32,
    /// The largest segment we can take, without headers: MTU - 40 for IPv4, - 60 for IPv6.
    pub mss: u16,
    /// A random number, new for each join.
    pub nonce: u32,
    /// Our identifier of the address that the SYN came to; that of the first subflow has 0.
    pub address_id: AddressId,
    /// Whether the peer is asked to use the subflow as a backup only.
    pub backup: bool,
}

/// The identifiers of both addresses of a subflow, and what it is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Addresses {
    pub(super) local: AddressId,
    pub(super) remote: AddressId,
    /// Whether one of both sides wants the subflow to be a backup.
    pub(super) local_backup: bool,
    pub(super) remote_backup: bool,
}

/// The secrets of a join.
#[derive(Debug)]
pub(super) struct Join {
    nonce: u32,
    /// What we show in the SYN/ACK.
    ours: JoinHmac,
    /// What the third ACK must show.
    theirs: JoinHmac,
}

/// The refusal of a SYN with MP_JOIN, with the reset and the reason code that RFC 8684 (sections
/// 3.2 and 3.6) gives for `reason`.
#[must_use]
pub fn refuse_join(syn: &Segment, reason: RefusalReason) -> Refusal {
    let reply = reason.reset_reason().and_then(|code| reset_with(syn, code));
    Refusal { reason, reply }
}

impl Subflow {
    /// Opens a subflow by a SYN with MP_JOIN, whose token the driver has found to be that of
    /// `connection`.
    ///
    /// # Errors
    ///
    /// A [`Refusal`], with the reset to send where one is due, if the segment opens nothing or the
    /// connection takes no further subflow now.
    #[expect(clippy::result_large_err, reason = "the answer is in it, so that none is allocated")]
    pub fn passive_join(
        now: Instant,
        config: &Arc<Config>,
        syn: &Segment,
        connection: &Connection,
        view: &View,
        opening: &JoinOpening,
    ) -> Result<Self, Refusal> {
        check_listen(syn)?;
        let refuse = |reason| refuse_join(syn, reason);
        let Some(MpJoin::Syn { backup, address_id, token, nonce }) = syn.options.mptcp.join else {
            return Err(refuse(RefusalReason::Join));
        };
        if connection.local_key().is_none_or(|local| local.token != token) {
            return Err(refuse(RefusalReason::JoinUnknownToken));
        }
        let (local, remote) = connection.accepts_joins(view).map_err(refuse)?;
        let JoinOpening { isn, timestamp_offset, mss, .. } = *opening;
        let mode = Mode::Mptcp(Mptcp::new(local, remote, connection.checksums()));
        let mut subflow = Self::opened_by(now, config, syn, (isn, timestamp_offset, mss), mode);
        subflow.join = Some(Box::new(Join {
            nonce: opening.nonce,
            ours: JoinHmac::new(local.key, remote, opening.nonce, nonce),
            theirs: JoinHmac::new(remote, local.key, nonce, opening.nonce),
        }));
        subflow.addresses = Addresses {
            local: opening.address_id,
            remote: address_id,
            local_backup: opening.backup,
            remote_backup: backup,
        };
        // The first subflow has shown that options pass.
        subflow.confirmed = true;
        subflow.heard = Heard::DataAck;
        Ok(subflow)
    }

    /// MP_JOIN of our SYN/ACK.
    pub(super) fn join_in_syn_ack(&self) -> Option<MpJoin> {
        self.join.as_ref().map(|join| MpJoin::SynAck {
            backup: self.addresses.local_backup,
            address_id: self.addresses.local,
            hmac: join.ours.leftmost_64(),
            nonce: join.nonce,
        })
    }

    /// The third ACK of a join. "If Host B does not receive the expected HMAC or the MP_JOIN option
    /// is missing from the ACK, it MUST close the subflow with a TCP RST." Nor may data come before
    /// we have answered it.
    pub(super) fn complete_join(
        &mut self,
        now: Instant,
        segment: &Segment,
    ) -> Result<(), DropReason> {
        let proved = match (&self.join, segment.options.mptcp.join) {
            (Some(join), Some(MpJoin::Ack { hmac })) => join.theirs.matches_160(&hmac),
            _ => false,
        };
        let bare = segment.payload_len == 0
            && !segment.flags.contains(Flags::FIN)
            && segment.seq == self.receive.next;
        if !proved || !bare {
            return self.violate(ResetReason::MptcpSpecific, DropReason::BadJoin);
        }
        self.events.push_back(Event::Joined {
            address_id: self.addresses.remote,
            backup: self.addresses.remote_backup,
        });
        self.move_to_established(now);
        Ok(())
    }

    /// "Receipt of this packet MUST trigger a regular TCP ACK in response", and the peer repeats it
    /// until that arrives.
    pub(super) fn answer_third_ack(&mut self, segment: &Segment) {
        if self.join.is_some() && matches!(segment.options.mptcp.join, Some(MpJoin::Ack { .. })) {
            self.ack.now();
        }
    }

    /// Whether the subflow joined a connection, or is about to.
    #[must_use]
    pub const fn is_joined(&self) -> bool {
        self.join.is_some()
    }

    /// The identifiers of the subflow's two addresses, ours and the peer's; both are 0 for the
    /// first subflow of a connection.
    #[must_use]
    pub const fn address_ids(&self) -> (AddressId, AddressId) {
        (self.addresses.local, self.addresses.remote)
    }

    /// Whether we, and whether the peer asked for the subflow to be a backup.
    #[must_use]
    pub const fn backup(&self) -> (bool, bool) {
        (self.addresses.local_backup, self.addresses.remote_backup)
    }
}
