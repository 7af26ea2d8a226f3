//! Signals about addresses and priorities: ADD_ADDR, REMOVE_ADDR, MP_PRIO (RFC 8684, sections 3.4
//! and 3.3.8).
//!
//! They go out on acknowledgements of their own, since together with DSS and timestamps most do
//! not fit. Only ADD_ADDR is answered, by its echo, and sent again until that comes. REMOVE_ADDR is
//! sent a few times, as it may get lost like any acknowledgement.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use super::timers::Timer;
use super::{Event, Mode, Mptcp, State, Subflow, View};
use crate::crypto::{add_addr_hmac, hmacs_equal};
use crate::segment::{AddAddr, AddressId, Options, RemoveAddr, Segment};
use crate::time::Instant;
use crate::wire::options::{MAX_LEN, options_len};

/// So many announcements of ours may wait for their echo, and so many echoes to be sent.
const LIMIT: usize = 8;

/// "An MPTCP implementation SHOULD NOT send more than two duplicate ACKs in a row for signaling
/// purposes" (RFC 8684, section 3.4.1).
const IN_ROW: u8 = 2;

/// REMOVE_ADDR is sent so often: nothing tells whether it came, an acknowledgement is not sent again by
/// TCP, and a peer that never hears of it goes on trying an address that is gone. One that did hear
/// "will silently ignore the request", as it knows the identifier no more (RFC 8684, section 3.4.2).
const REMOVALS: u8 = 3;

/// An ADD_ADDR of ours that the peer has not echoed.
#[derive(Debug)]
struct Announcement {
    option: AddAddr,
    /// When it is to be sent (again).
    at: Instant,
    sent: u8,
    /// So often it may be.
    limit: u8,
}

impl Announcement {
    fn is_due(&self, now: Instant) -> bool {
        self.at <= now && self.sent < self.limit
    }
}

/// A REMOVE_ADDR of ours that is to be sent, for the first time or again.
#[derive(Debug)]
struct Removal {
    id: AddressId,
    /// When it is to be sent (again).
    at: Instant,
    sent: u8,
}

impl Removal {
    fn is_due(&self, now: Instant) -> bool {
        self.at <= now
    }
}

/// What is to be signalled.
#[derive(Debug, Default)]
pub(super) struct Signals {
    announcements: Vec<Announcement>,
    echoes: VecDeque<AddAddr>,
    removals: Vec<Removal>,
    priority: Option<bool>,
    /// Signals sent since the last acknowledgement that said something new.
    in_row: u8,
}

impl Signals {
    fn is_due(&self, now: Instant) -> bool {
        !self.echoes.is_empty()
            || self.priority.is_some()
            || self.removals.iter().any(|removal| removal.is_due(now))
            || self.announcements.iter().any(|known| known.is_due(now))
    }

    /// Something new was acknowledged.
    pub(super) const fn on_progress(&mut self) {
        self.in_row = 0;
    }
}

fn fits(options: &Options) -> bool {
    options_len(options) <= MAX_LEN
}

impl Subflow {
    fn may_signal(&self) -> bool {
        let open = !matches!(self.state, State::SynReceived | State::TimeWait | State::Closed);
        open && self.is_mptcp() && self.sums.failed.is_none() && !self.sums.agreed
    }

    fn signals_mut(&mut self) -> &mut Signals {
        self.signals.get_or_insert_default()
    }

    /// Announces an address of ours, and a port if it differs from the connection's (ADD_ADDR). It
    /// is sent again until the peer echoes it ([`Event::AddressEchoed`]), or has not for too long
    /// ([`Event::AddressUnanswered`]).
    /// `false` if the subflow does not speak MPTCP now, or too many announcements are under way.
    pub fn announce(&mut self, id: AddressId, address: IpAddr, port: Option<u16>) -> bool {
        let Mode::Mptcp(mptcp) = self.mode else { return false };
        if !self.may_signal() {
            return false;
        }
        let limit = self.config.announce_retries.saturating_add(1);
        let signals = self.signals_mut();
        signals.announcements.retain(|known| known.option.id != id);
        // Sent again later, it would take this back.
        signals.removals.retain(|removal| removal.id != id);
        let room = signals.announcements.len() < LIMIT;
        if room {
            let hmac = add_addr_hmac(mptcp.local.key, mptcp.remote, id, address, port);
            let option = AddAddr { id, address, port, hmac: Some(hmac) };
            signals.announcements.push(Announcement { option, at: Instant(0), sent: 0, limit });
        }
        room
    }

    /// Takes addresses of ours back (REMOVE_ADDR). It is sent at once and, as nothing tells whether it
    /// came, twice more. `false` if the subflow does not speak MPTCP now, or too many removals wait to
    /// be sent; some may have been taken then.
    pub fn withdraw(&mut self, ids: &[AddressId]) -> bool {
        if !self.may_signal() {
            return false;
        }
        let signals = self.signals_mut();
        signals.announcements.retain(|known| !ids.contains(&known.option.id));
        ids.iter().all(|id| signals.remove(*id))
    }

    /// Sends REMOVE_ADDR no more for addresses that are ours again, which another subflow may be
    /// announcing.
    pub fn keep_addresses(&mut self, are_ours: impl Fn(AddressId) -> bool) {
        if let Some(signals) = &mut self.signals {
            signals.removals.retain(|removal| !are_ours(removal.id));
        }
    }

    /// Tells the peer whether to use the subflow as a backup only (MP_PRIO). `false` if it does not
    /// speak MPTCP now.
    pub fn set_backup(&mut self, backup: bool) -> bool {
        let possible = self.may_signal();
        if possible {
            self.addresses.local_backup = backup;
            self.signals_mut().priority = Some(backup);
        }
        possible
    }

    /// Takes in the signals of a valid segment.
    pub(super) fn take_signals(&mut self, mptcp: &Mptcp, segment: &Segment) {
        let options = &segment.options.mptcp;
        if let Some(theirs) = options.add_addr {
            let AddAddr { id, address, port, hmac } = theirs;
            match hmac {
                None => self.on_echo(&theirs),
                Some(shown) => {
                    let right = add_addr_hmac(mptcp.remote, mptcp.local.key, id, address, port);
                    if hmacs_equal(shown, right) {
                        self.on_announcement(theirs);
                    } else {
                        self.statistics.forged_addresses += 1;
                    }
                }
            }
        }
        if let Some(removed) = options.remove_addr {
            self.events.push_back(Event::AddressesRemoved(removed));
        }
        if let Some(backup) = options.priority {
            self.addresses.remote_backup = backup;
            self.events.push_back(Event::PriorityChanged { backup });
        }
    }

    /// The peer announces an address, provably.
    fn on_announcement(&mut self, theirs: AddAddr) {
        self.confirm();
        let echo = AddAddr { hmac: None, ..theirs };
        let echoes = &mut self.signals_mut().echoes;
        if echoes.contains(&echo) {
            return;
        }
        // The peer sends again what was not echoed.
        if echoes.len() < LIMIT {
            echoes.push_back(echo);
            self.events.push_back(Event::AddressAnnounced(theirs));
        }
    }

    fn on_echo(&mut self, echo: &AddAddr) {
        let Some(signals) = &mut self.signals else { return };
        let ours = |known: &Announcement| {
            known.sent > 0 && AddAddr { hmac: None, ..known.option } == *echo
        };
        let Some(at) = signals.announcements.iter().position(ours) else { return };
        signals.announcements.swap_remove(at);
        self.events.push_back(Event::AddressEchoed(echo.id));
        self.confirm();
    }

    /// Options of the first subflow are known to pass: its first DSS came, or an address signal.
    pub(super) fn confirm(&mut self) {
        if !self.confirmed {
            self.confirmed = true;
            self.events.push_back(Event::FullyEstablished);
        }
    }

    /// The next segment that carries signals, if some are due.
    pub(super) fn next_signal(&mut self, now: Instant, view: &View) -> Option<Segment> {
        let signals = self.signals.as_ref()?;
        if !signals.is_due(now) {
            return None;
        }
        if !self.may_signal() {
            self.signals = None;
            return None;
        }
        if signals.in_row >= IN_ROW {
            self.wait_to_signal(now);
            return None;
        }
        // What has not been acknowledged yet must be so with a DATA_ACK, for which there may be no
        // room beside the signal.
        let told = self.receive.acknowledged == self.receive.next;
        let mut segment = self.acknowledgement(now, view, false);
        if told && let Some(signals) = &mut self.signals {
            let base = Options { sack: Default::default(), ..segment.options };
            let mut options = base;
            let interval = self.config.announce_interval;
            signals.fill(now, interval, &mut options);
            if options == base {
                // What is first in the queue does not fit beside the DATA_ACK, or the timestamps.
                options.mptcp.dss = None;
                signals.fill(now, interval, &mut options);
                if options.mptcp == Default::default() {
                    options.timestamps = None;
                    signals.fill(now, interval, &mut options);
                }
            }
            segment.options = options;
            signals.in_row += 1;
        }
        self.wait_to_signal(now);
        Some(segment)
    }

    /// Starts the timer for what is left.
    fn wait_to_signal(&mut self, now: Instant) {
        let Some(signals) = &self.signals else { return };
        let held_back = signals.in_row >= IN_ROW && signals.is_due(now);
        let pause = now + self.round_trip.timeout(&self.config.rto);
        let announcements = signals.announcements.iter().map(|known| known.at);
        match announcements.chain(signals.removals.iter().map(|removal| removal.at)).min() {
            _ if held_back => self.timers.start(Timer::Signal, pause),
            Some(at) => self.timers.start(Timer::Signal, at),
            None => self.timers.stop(Timer::Signal),
        }
    }

    /// Time for an announcement again, or for more signals after a pause.
    pub(super) fn on_signal_timeout(&mut self, now: Instant) {
        if let Some(signals) = &mut self.signals {
            signals.in_row = 0;
            let over = |known: &mut Announcement| known.at <= now && !known.is_due(now);
            for given_up in signals.announcements.extract_if(.., over) {
                self.events.push_back(Event::AddressUnanswered(given_up.option.id));
            }
        }
        self.wait_to_signal(now);
    }
}

impl Signals {
    /// Has REMOVE_ADDR sent. `false` if there is no room.
    fn remove(&mut self, id: AddressId) -> bool {
        self.removals.retain(|removal| removal.id != id);
        if self.removals.len() == LIMIT {
            // What was sent gives way to what was not.
            let Some(at) = self.removals.iter().position(|removal| removal.sent > 0) else {
                return false;
            };
            self.removals.remove(at);
        }
        self.removals.push(Removal { id, at: Instant(0), sent: 0 });
        true
    }

    /// Adds to `options` what is due and fits, and takes it off the queue.
    fn fill(&mut self, now: Instant, interval: Duration, options: &mut Options) {
        if let Some(echo) = self.echoes.front() {
            let mut with = *options;
            with.mptcp.add_addr = Some(*echo);
            if fits(&with) {
                *options = with;
                self.echoes.pop_front();
            }
        } else if let Some(known) = self.announcements.iter_mut().find(|known| known.is_due(now)) {
            let mut with = *options;
            with.mptcp.add_addr = Some(known.option);
            if fits(&with) {
                *options = with;
                known.at = now + interval * (1 << known.sent.min(16));
                known.sent += 1;
            }
        }
        let mut removed = RemoveAddr::default();
        // There is room for all that wait.
        for removal in self.removals.iter().filter(|removal| removal.is_due(now)) {
            removed.push(removal.id);
        }
        if !removed.as_slice().is_empty() {
            let mut with = *options;
            with.mptcp.remove_addr = Some(removed);
            if fits(&with) {
                *options = with;
                for removal in self.removals.iter_mut().filter(|removal| removal.is_due(now)) {
                    removal.at = now + interval * (1 << removal.sent);
                    removal.sent += 1;
                }
                self.removals.retain(|removal| removal.sent < REMOVALS);
            }
        }
        if self.priority.is_some() {
            let mut with = *options;
            with.mptcp.priority = self.priority;
            if fits(&with) {
                *options = with;
                self.priority = None;
            }
        }
    }
}

/// The queue of signals, made when there is the first.
pub(super) type Queue = Option<Box<Signals>>;
