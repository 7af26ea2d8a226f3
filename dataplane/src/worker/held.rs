//! Payload that waits for the checksum of its mapping (RFC 8684, section 3.3.1).
//!
//! It is kept apart from the ring until it is proved: a claim for it would keep other subflows from
//! bringing the same bytes, and its own may never come to be proved.

use std::iter;
use std::sync::Arc;

use mpxdp_proto::seq::StreamOffset;
use mpxdp_proto::subflow::{Abort, MappingId, Placement, ResetReason, Verdict};
use mpxdp_proto::time::Instant;

use super::Core;
use super::counters::WorkerDrop;
use super::flows::FlowId;
use crate::checksum;
use crate::receive::{Budget, Wanted};

/// What a subflow holds.
pub(super) struct Held {
    /// By mapping, of which a subflow keeps a bounded number: a peer that sends single bytes does
    /// not make it dear to find what is proved.
    mappings: Vec<(MappingId, Vec<Piece>)>,
    /// Bytes that the budget has granted.
    granted: usize,
    budget: Arc<dyn Budget>,
}

struct Piece {
    to: StreamOffset,
    bytes: Box<[u8]>,
}

impl Piece {
    /// What it takes of the budget: the peer decides how small pieces are.
    const fn cost(&self) -> usize {
        self.bytes.len() + size_of::<Self>()
    }
}

impl Held {
    fn new(budget: Arc<dyn Budget>) -> Self {
        Self { mappings: Vec::new(), granted: 0, budget }
    }

    /// Holds a piece, or says that there is no memory for it.
    fn push(&mut self, mapping: MappingId, piece: Piece) -> bool {
        let cost = piece.cost();
        if !self.budget.reserve(cost) {
            return false;
        }
        self.granted += cost;
        match self.mappings.iter_mut().rev().find(|(known, _)| *known == mapping) {
            Some((_, pieces)) => pieces.push(piece),
            None => self.mappings.push((mapping, vec![piece])),
        }
        true
    }

    /// Takes out what is held of one mapping, or everything.
    fn take(&mut self, of: Option<MappingId>) -> Vec<Piece> {
        let chosen = |(known, _): &mut (MappingId, _)| of.is_none_or(|mapping| *known == mapping);
        let taken = self.mappings.extract_if(.., chosen);
        let taken: Vec<Piece> = taken.flat_map(|(_, pieces)| pieces).collect();
        let cost = taken.iter().map(Piece::cost).sum();
        self.budget.release(cost);
        self.granted -= cost;
        taken
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.release(self.granted);
    }
}

impl Core {
    /// Holds the payload that `self.placements` tells of, which lies at `payload_at` of `packet`,
    /// and stores what is proved by it.
    #[cold]
    pub(super) fn hold<'a>(
        &mut self,
        now: Instant,
        id: FlowId,
        payload_at: usize,
        packet: impl Iterator<Item = &'a [u8]> + Clone,
    ) {
        let mut placements = std::mem::take(&mut self.placements);
        for placement in placements.drain(..) {
            self.hold_one(now, id, payload_at, packet.clone(), &placement);
        }
        self.placements = placements;
    }

    fn hold_one<'a>(
        &mut self,
        now: Instant,
        id: FlowId,
        payload_at: usize,
        packet: impl Iterator<Item = &'a [u8]>,
        placement: &Placement,
    ) {
        let Some(flow) = self.flows.flow_mut(id) else { return };
        let Placement { to, at, len, mapping: Some(mapping) } = *placement else { return };
        let bytes = copy_out(packet, payload_at + at as usize, len as usize);
        let sum = checksum::sum(&bytes);
        let budget = &self.shared.ring.budget;
        let held = flow.held.get_or_insert_with(|| Box::new(Held::new(Arc::clone(budget))));
        if !held.push(mapping, Piece { to, bytes }) {
            // The subflow has acknowledged it, so only its end lets the peer send it again.
            self.handle.counters.dropped(WorkerDrop::MemoryLimit);
            flow.subflow.abort(Abort::Subflow(ResetReason::Resources));
            return self.take_events(id);
        }
        let verdict = flow.subflow.on_payload_sum(now, placement, sum, &flow.view);
        if let Some(Verdict::Proved(mapping)) = verdict {
            self.store_held(id, Some(mapping));
        }
        self.take_events(id);
    }

    /// Stores what a flow holds of one mapping, or everything.
    pub(super) fn store_held(&mut self, id: FlowId, of: Option<MappingId>) {
        let Some(flow) = self.flows.flow_mut(id) else { return };
        let Some(held) = &mut flow.held else { return };
        let pieces = held.take(of);
        // Between bursts, and within one for a flow that holds its payload, this is empty.
        let others = std::mem::take(&mut self.wanted_of_one);
        self.wanted_of_one.extend(pieces.iter().zip(0..).map(|(piece, source)| Wanted {
            to: piece.to,
            // No longer than a packet.
            len: piece.bytes.len() as u32,
            source,
            at: 0,
        }));
        self.store_of_one(id, &|source| iter::once(&*pieces[source].bytes), ());
        self.wanted_of_one = others;
    }
}

/// A copy of `len` bytes from `at` on of a packet in several pieces.
fn copy_out<'a>(packet: impl Iterator<Item = &'a [u8]>, at: usize, len: usize) -> Box<[u8]> {
    let mut bytes = Vec::with_capacity(len);
    let mut skip = at;
    for piece in packet {
        let from = skip.min(piece.len());
        let to = piece.len().min(from + len - bytes.len());
        bytes.extend_from_slice(&piece[from..to]);
        skip -= from;
    }
    bytes.into_boxed_slice()
}
