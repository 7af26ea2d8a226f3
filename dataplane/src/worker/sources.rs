//! How many handshakes each source has under way.

use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::flows::FlowHash;

/// How many counts there are: far more than handshakes that one listener allows by default, so
/// that two busy sources seldom share one.
const PLACES: usize = 4096;

/// Counts of half-open flows by their source: an IPv4 address, or an IPv6 network of 64 bits, as
/// whoever has one address of that has them all.
///
/// A source finds its count by a keyed hash, so memory is the same whatever comes. Sources that
/// share one reach the limit earlier; all that this costs them is that their SYNs are answered by
/// cookies.
#[derive(Debug)]
pub(super) struct Sources {
    counts: Box<[AtomicUsize]>,
    hash: FlowHash,
}

/// A half-open flow in the count of its source, until it is dropped.
#[derive(Debug)]
pub(super) struct SourcePlace {
    sources: Arc<Sources>,
    index: usize,
}

impl Sources {
    /// Counts that are found under `hash`.
    pub(super) fn new(hash: FlowHash) -> Self {
        Self { counts: (0..PLACES).map(|_| AtomicUsize::new(0)).collect(), hash }
    }

    /// Counts one more flow of `source`, unless there are `limit` of them.
    pub(super) fn begin(self: &Arc<Self>, source: IpAddr, limit: usize) -> Option<SourcePlace> {
        let index = self.index(source);
        let room = |n: usize| (n < limit).then_some(n + 1);
        self.counts[index].fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        Some(SourcePlace { sources: Arc::clone(self), index })
    }

    fn index(&self, source: IpAddr) -> usize {
        let network = match source {
            IpAddr::V4(ip) => u64::from(ip.to_bits()),
            IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64,
        };
        self.hash.hash_one((source.is_ipv4(), network)) as usize % PLACES
    }
}

impl Drop for SourcePlace {
    fn drop(&mut self) {
        self.sources.counts[self.index].fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources() -> Arc<Sources> {
        Arc::new(Sources::new(FlowHash::new([7; 16])))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_source_has_so_many_until_one_is_given_back() {
        let sources = sources();
        let one = sources.begin(ip("10.0.0.1"), 2).unwrap();
        let _other = sources.begin(ip("10.0.0.1"), 2).unwrap();
        assert!(sources.begin(ip("10.0.0.1"), 2).is_none());
        assert!(sources.begin(ip("10.0.0.2"), 2).is_some());
        drop(one);
        assert!(sources.begin(ip("10.0.0.1"), 2).is_some());
    }

    #[test]
    fn an_ipv6_network_is_one_source() {
        let sources = sources();
        let _one = sources.begin(ip("2001:db8:0:1::1"), 1).unwrap();
        assert!(sources.begin(ip("2001:db8:0:1:ffff::2"), 1).is_none());
        assert!(sources.begin(ip("2001:db8:0:2::1"), 1).is_some());
    }
}
