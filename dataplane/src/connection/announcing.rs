//! Which of our addresses the peer knows.
//!
//! An announcement waits for the end of the one before, its echo or that it is given up: Linux takes
//! one at a time, and forgets those that come meanwhile. Any subflow may make it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use mpxdp_proto::segment::AddressId;

use super::Announced;

/// A set of identifiers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Ids([u64; 4]);

impl Ids {
    const fn contains(self, AddressId(id): AddressId) -> bool {
        self.0[(id >> 6) as usize] >> (id & 63) & 1 == 1
    }

    const fn insert(&mut self, AddressId(id): AddressId) {
        self.0[(id >> 6) as usize] |= 1 << (id & 63);
    }

    const fn remove(&mut self, AddressId(id): AddressId) {
        self.0[(id >> 6) as usize] &= !(1 << (id & 63));
    }
}

/// What the peer of one connection knows.
#[derive(Debug)]
pub(super) struct Announcing(Mutex<State>);

#[derive(Debug)]
struct State {
    /// The addresses that the peer was told of, and not yet told to forget.
    known: Ids,
    /// The one whose announcement is under way.
    under_way: Option<AddressId>,
}

impl Announcing {
    /// The peer knows the address that it has connected to.
    pub(super) fn new() -> Self {
        let mut known = Ids::default();
        known.insert(AddressId(0));
        Self(Mutex::new(State { known, under_way: None }))
    }

    /// Whether the peer knows the address `id`.
    pub(super) fn knows(&self, id: AddressId) -> bool {
        self.lock().known.contains(id)
    }

    /// The first of `ours` that the peer does not know, to be announced now; none while another
    /// announcement is under way.
    pub(super) fn next(&self, mut ours: impl Iterator<Item = Announced>) -> Option<Announced> {
        let mut state = self.lock();
        if state.under_way.is_some() {
            return None;
        }
        let next = ours.find(|address| !state.known.contains(address.id))?;
        state.known.insert(next.id);
        state.under_way = Some(next.id);
        Some(next)
    }

    /// The announcement of `id` was echoed, or given up.
    pub(super) fn done(&self, id: AddressId) {
        let mut state = self.lock();
        state.under_way.take_if(|under_way| *under_way == id);
    }

    /// The announcement of `id` could not be made, or ended with its subflow.
    pub(super) fn undone(&self, id: AddressId) {
        let mut state = self.lock();
        if state.under_way.take_if(|under_way| *under_way == id).is_some() {
            state.known.remove(id);
        }
    }

    /// The identifiers that the peer knows and that are ours no more; it is to be told by whoever
    /// calls.
    pub(super) fn take_gone(&self, is_ours: impl Fn(AddressId) -> bool) -> Vec<AddressId> {
        let mut state = self.lock();
        let known = state.known;
        let gone = (0..=u8::MAX).map(AddressId);
        let gone: Vec<_> = gone.filter(|&id| known.contains(id) && !is_ours(id)).collect();
        for &id in &gone {
            state.known.remove(id);
            state.under_way.take_if(|under_way| *under_way == id);
        }
        gone
    }

    /// The peer could not be told that `id` is gone.
    pub(super) fn not_told(&self, id: AddressId) {
        self.lock().known.insert(id);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn ours(ids: &[u8]) -> impl Iterator<Item = Announced> {
        let at = "10.0.0.2:5001".parse().unwrap();
        ids.iter().map(move |&id| Announced { id: AddressId(id), at })
    }

    fn next(announcing: &Announcing, ids: &[u8]) -> Option<u8> {
        announcing.next(ours(ids)).map(|next| next.id.0)
    }

    #[test]
    fn one_is_announced_at_a_time_and_each_once() {
        let announcing = Announcing::new();
        assert_eq!(next(&announcing, &[]), None);
        assert_eq!(next(&announcing, &[1, 200]), Some(1));
        assert_eq!(next(&announcing, &[1, 200]), None, "1 is under way");
        announcing.done(AddressId(200));
        assert_eq!(next(&announcing, &[1, 200]), None, "and still is");
        announcing.done(AddressId(1));
        assert_eq!(next(&announcing, &[1, 200]), Some(200));
        announcing.undone(AddressId(200));
        assert_eq!(next(&announcing, &[1, 200]), Some(200), "its subflow ended");
        announcing.done(AddressId(200));
        announcing.undone(AddressId(200));
        assert_eq!(next(&announcing, &[1, 200]), None);
    }

    #[test]
    fn what_is_gone_is_told_once_and_may_come_again() {
        let announcing = Announcing::new();
        assert_eq!(next(&announcing, &[1, 2]), Some(1));
        announcing.done(AddressId(1));
        assert_eq!(next(&announcing, &[1, 2]), Some(2));
        let only = |id: u8| move |other: AddressId| other.0 == id;
        assert_eq!(announcing.take_gone(only(1)), [AddressId(0), AddressId(2)]);
        assert_eq!(announcing.take_gone(only(1)), []);
        assert!(!announcing.knows(AddressId(0)) && announcing.knows(AddressId(1)));
        announcing.not_told(AddressId(0));
        assert_eq!(announcing.take_gone(only(1)), [AddressId(0)]);
        assert_eq!(next(&announcing, &[1, 2]), Some(2), "its announcement is not under way");
    }
}
