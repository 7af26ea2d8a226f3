//! What a box remembers of the connections that pass it.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

/// The most connections a box remembers; what is above that makes it forget the oldest.
pub(super) const MAX_FLOWS: usize = 16_384;

/// The two ends of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct FlowKey {
    pub(super) left: SocketAddr,
    pub(super) right: SocketAddr,
}

/// A bounded table.
#[derive(Debug)]
pub(super) struct FlowTable<T> {
    flows: HashMap<FlowKey, T>,
    /// The oldest first.
    order: VecDeque<FlowKey>,
    limit: usize,
}

impl<T> FlowTable<T> {
    pub(super) fn new(limit: usize) -> Self {
        Self { flows: HashMap::new(), order: VecDeque::new(), limit }
    }

    pub(super) fn get_mut(&mut self, key: &FlowKey) -> Option<&mut T> {
        self.flows.get_mut(key)
    }

    /// The flow's state, made if there is none; with the one that had to go for it.
    pub(super) fn get_or_insert(
        &mut self,
        key: FlowKey,
        make: impl FnOnce() -> T,
    ) -> (&mut T, Option<T>) {
        let mut evicted = None;
        if !self.flows.contains_key(&key) {
            if self.order.len() == self.limit
                && let Some(oldest) = self.order.pop_front()
            {
                evicted = self.flows.remove(&oldest);
            }
            self.order.push_back(key);
        }
        (self.flows.entry(key).or_insert_with(make), evicted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_flow_makes_room() {
        let key = |port| FlowKey {
            left: SocketAddr::from(([10, 0, 0, 1], port)),
            right: SocketAddr::from(([10, 0, 0, 2], 80)),
        };
        let mut table = FlowTable::new(2);
        assert_eq!(table.get_or_insert(key(1), || 'a'), (&mut 'a', None));
        assert_eq!(table.get_or_insert(key(2), || 'b'), (&mut 'b', None));
        assert_eq!(table.get_or_insert(key(1), || 'x'), (&mut 'a', None));
        assert_eq!(table.get_or_insert(key(3), || 'c'), (&mut 'c', Some('a')));
        assert_eq!(table.get_mut(&key(1)), None);
        assert_eq!(table.get_mut(&key(2)), Some(&mut 'b'));
    }
}
