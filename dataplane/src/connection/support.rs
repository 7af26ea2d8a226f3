//! Connections without a wire, for tests.

use std::sync::Arc;

use mpxdp_proto::connection::{Connection as DataLevel, LocalKey};
use mpxdp_proto::segment::{AddressId, Key};
use mpxdp_proto::subflow::Event;
use mpxdp_proto::time::Instant;

use super::{Connection, Record};
use crate::listener::Entrance;
use crate::receive::{Reader, RingConfig, ring};
use crate::worker::{FlowId, FlowKey, Handle, Inbox};

/// Any time.
pub(super) const NOW: Instant = Instant(1_000_000_000);

/// A worker, as other threads see it, and its own ends.
pub(super) fn worker(index: usize) -> (Arc<Handle>, Inbox) {
    let (handle, inbox) = Handle::new(index, None).unwrap();
    (Arc::new(handle), inbox)
}

/// Subflow number `n` of a connection, which `worker` owns.
pub(super) fn subflow(n: u8, worker: &Arc<Handle>) -> Arc<Record> {
    let key = FlowKey {
        local: "10.0.0.2:5001".parse().unwrap(),
        remote: format!("10.0.0.1:{}", 40_000 + u16::from(n)).parse().unwrap(),
    };
    let id = FlowId::new(n.into(), 0);
    Record::new(key, id, Arc::clone(worker), "mem".into(), AddressId(n))
}

/// A connection that speaks MPTCP by the subflow `first`, and its reader.
pub(super) fn connection(first: &Arc<Record>) -> (Arc<Connection>, Reader) {
    let level = DataLevel::new(Some(LocalKey::new(Key(1))));
    assert!(level.on_event(&Event::Established { mptcp: Some(Key(2)) }));
    let (ring, reader) = ring(RingConfig::default()).unwrap();
    let entrance = Arc::new(Entrance::default());
    (Arc::new(Connection::new(level, ring, 0, entrance, Arc::clone(first))), reader)
}
