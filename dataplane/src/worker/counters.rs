//! A worker's counters: written by the worker alone, read by anybody.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use mpxdp_proto::subflow::{DropReason, RefusalReason};
use mpxdp_proto::wire::ParseError;

use crate::stats::{TableSizes, WorkerReport};

/// A counter with one writer: an addition is a load and a store, with no bus lock.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// For the one writer.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// For the one writer.
    #[inline]
    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    /// For anybody.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Why the worker itself changed nothing for a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum WorkerDrop {
    /// The TCP checksum is wrong.
    TcpChecksum,
    /// Neither a flow nor a SYN.
    NoFlow,
    /// A SYN for a port that nobody listens on.
    NoListener,
    /// A SYN while as many subflows as the listener allows are half open. It was answered by a
    /// cookie.
    HalfOpenFull,
    /// A SYN while as many subflows as the listener allows for one source are half open. It was
    /// answered by a cookie.
    SourceHalfOpenFull,
    /// A SYN, or the end of a handshake, while the listener's backlog is full.
    BacklogFull,
    /// There was no memory or descriptor for the connection's receive ring.
    NoRing,
    /// The limit of memory for all connections leaves no room for a receive ring, or for payload
    /// that waits for its checksum.
    MemoryLimit,
    /// It met TIME-WAIT.
    TimeWait,
    /// A packet of another worker's flow while that worker's inbox was full.
    StrayLost,
    /// An answer for which no frame to send was free.
    NoTransmitFrame,
    /// A reset that was due, but held back by the rate limit.
    ResetLimited,
    /// A challenge ACK that was due, but held back by the rate limit.
    ChallengeLimited,
    /// Payload that a subflow took and the receive ring did not. A defect of ours if not 0.
    RingRefused,
    /// An answer that could not be written. A defect of ours if not 0.
    EmitFailed,
    /// The kernel did not take what was to be sent.
    FlushFailed,
}

impl WorkerDrop {
    const ALL: [Self; 16] = [
        Self::TcpChecksum,
        Self::NoFlow,
        Self::NoListener,
        Self::HalfOpenFull,
        Self::SourceHalfOpenFull,
        Self::BacklogFull,
        Self::NoRing,
        Self::MemoryLimit,
        Self::TimeWait,
        Self::StrayLost,
        Self::NoTransmitFrame,
        Self::ResetLimited,
        Self::ChallengeLimited,
        Self::RingRefused,
        Self::EmitFailed,
        Self::FlushFailed,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::TcpChecksum => "tcp_checksum",
            Self::NoFlow => "no_flow",
            Self::NoListener => "no_listener",
            Self::HalfOpenFull => "half_open_full",
            Self::SourceHalfOpenFull => "half_open_full_for_source",
            Self::BacklogFull => "backlog_full",
            Self::NoRing => "no_receive_ring",
            Self::MemoryLimit => "memory_limit",
            Self::TimeWait => "time_wait",
            Self::StrayLost => "hand_over_lost",
            Self::NoTransmitFrame => "no_transmit_frame",
            Self::ResetLimited => "reset_rate_limited",
            Self::ChallengeLimited => "challenge_ack_rate_limited",
            Self::RingRefused => "receive_ring_refused",
            Self::EmitFailed => "emit_failed",
            Self::FlushFailed => "flush_failed",
        }
    }
}

/// Everything that a worker counts.
#[derive(Debug, Default)]
pub(crate) struct Counters(CachePadded<Fields>);

#[derive(Debug, Default)]
struct Fields {
    packets: Counter,
    bytes: Counter,
    sent: Counter,
    bursts: Counter,
    handed_over: Counter,
    opened_by_cookie: Counter,
    busy: Counter,
    running: Counter,
    parse: [Counter; ParseError::ALL.len()],
    subflow: [Counter; DropReason::ALL.len()],
    refusal: [Counter; RefusalReason::ALL.len()],
    worker: [Counter; WorkerDrop::ALL.len()],
    half_open: AtomicUsize,
    subflows: AtomicUsize,
    time_wait: AtomicUsize,
    frames_held: AtomicUsize,
}

impl Counters {
    /// A burst of packets came in.
    pub(super) fn burst(&self, packets: usize, bytes: usize) {
        self.0.bursts.add(1);
        self.0.packets.add(packets as u64);
        self.0.bytes.add(bytes as u64);
    }

    /// A packet went out.
    pub(super) fn sent(&self) {
        self.0.sent.add(1);
    }

    /// A packet came from another worker.
    pub(super) fn handed_over(&self) {
        self.0.handed_over.add(1);
    }

    /// A handshake of which nothing was kept is complete.
    pub(super) fn opened_by_cookie(&self) {
        self.0.opened_by_cookie.add(1);
    }

    /// The parser took nothing from a packet.
    pub(super) fn parse_error(&self, reason: ParseError) {
        self.0.parse[reason as usize].add(1);
    }

    /// A subflow took nothing from a packet.
    pub(super) fn disposed(&self, reason: DropReason) {
        self.0.subflow[reason.index()].add(1);
    }

    /// A listener refused a packet.
    pub(super) fn refused(&self, reason: RefusalReason) {
        self.0.refusal[reason.index()].add(1);
    }

    /// The worker took nothing from a packet.
    pub(super) fn dropped(&self, reason: WorkerDrop) {
        self.0.worker[reason as usize].add(1);
    }

    /// Time passed; `busy` says whether it was spent on packets.
    pub(super) fn time(&self, passed: Duration, busy: bool) {
        // 64 bits of nanoseconds are 584 years.
        let nanos = passed.as_nanos() as u64;
        self.0.running.add(nanos);
        if busy {
            self.0.busy.add(nanos);
        }
    }

    /// How full the tables are.
    pub(super) fn tables(&self, sizes: TableSizes) {
        let TableSizes { half_open, subflows, time_wait, frames_held } = sizes;
        self.0.half_open.store(half_open, Relaxed);
        self.0.subflows.store(subflows, Relaxed);
        self.0.time_wait.store(time_wait, Relaxed);
        self.0.frames_held.store(frames_held, Relaxed);
    }

    /// A copy of everything.
    pub(crate) fn report(&self, cpu: Option<usize>) -> WorkerReport {
        let fields = &self.0;
        let running = fields.running.get();
        let named = (ParseError::ALL.iter().map(|reason| reason.name()).zip(&fields.parse))
            .chain(DropReason::ALL.iter().map(|reason| reason.name()).zip(&fields.subflow))
            .chain(RefusalReason::ALL.iter().map(|reason| reason.name()).zip(&fields.refusal))
            .chain(WorkerDrop::ALL.iter().map(|reason| reason.name()).zip(&fields.worker));
        WorkerReport {
            cpu,
            busy_fraction: fields.busy.get() as f64 / running.max(1) as f64,
            packets: fields.packets.get(),
            bytes: fields.bytes.get(),
            sent: fields.sent.get(),
            bursts: fields.bursts.get(),
            handed_over: fields.handed_over.get(),
            opened_by_cookie: fields.opened_by_cookie.get(),
            drops: named
                .map(|(name, counter)| (name, counter.get()))
                .filter(|&(_, n)| n > 0)
                .collect(),
            tables: TableSizes {
                half_open: fields.half_open.load(Relaxed),
                subflows: fields.subflows.load(Relaxed),
                time_wait: fields.time_wait.load(Relaxed),
                frames_held: fields.frames_held.load(Relaxed),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_reason_has_a_counter_and_a_name_of_its_own() {
        let counters = Counters::default();
        ParseError::ALL.into_iter().for_each(|reason| counters.parse_error(reason));
        DropReason::ALL.into_iter().for_each(|reason| counters.disposed(reason));
        RefusalReason::ALL.into_iter().for_each(|reason| counters.refused(reason));
        WorkerDrop::ALL.into_iter().for_each(|reason| counters.dropped(reason));
        let drops = counters.report(None).drops;
        let reasons = ParseError::ALL.len()
            + DropReason::ALL.len()
            + RefusalReason::ALL.len()
            + WorkerDrop::ALL.len();
        assert_eq!(drops.len(), reasons);
        assert!(drops.iter().all(|&(_, n)| n == 1), "{drops:?}");
        let names: HashSet<&str> = drops.iter().map(|&(name, _)| name).collect();
        assert_eq!(names.len(), reasons);
    }
}
