//! A peer that knows the keys and means no good: whatever it sends, nothing panics, what is sent
//! back fits, and nothing is taken for which there is no room.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::join::{begun, joined, third_ack};
use super::several::Random;
use super::sums::{checked, with_checksum};
use super::*;
use crate::crypto::add_addr_hmac;

struct Peer {
    random: Random,
    trace: Trace,
}

impl Peer {
    /// A number near `around`, or any.
    fn near(&mut self, around: u64) -> u64 {
        match self.random.below(8) {
            0..4 => around,
            4 => around.wrapping_add(self.random.below(4000)),
            5 => around.wrapping_sub(self.random.below(4000)),
            6 => around.wrapping_add(self.random.below(CAPACITY * 2)),
            _ => self.random.below(u64::MAX),
        }
    }

    fn rarely(&mut self) -> bool {
        self.random.below(12) == 0
    }

    fn number(&mut self, number: u64) -> DssNumber {
        if self.random.chance(128) {
            DssNumber::Long(number)
        } else {
            DssNumber::Short(number as u32)
        }
    }

    fn dss(&mut self, position: u64, len: u32) -> Dss {
        let edge = self.trace.edge();
        let offset = self.near(edge);
        let start = self.near(position);
        let length = match self.random.below(16) {
            0 => 0,
            1 => 1,
            2 => self.random.below(65536) as u16,
            _ => len as u16,
        };
        let mut dss = dss(start, offset, length);
        if self.trace.connection.checksums() && !self.rarely() {
            // Right for the payload that is sent with it, if that is all of it.
            let bytes = text(offset, if offset < CAPACITY * 3 { u32::from(length) } else { 0 });
            dss = with_checksum(dss, &bytes);
        }
        dss.data_fin = self.rarely();
        let long = match dss.mapping.map(|mapping| mapping.data_seq) {
            Some(DssNumber::Long(long)) => long,
            _ => 0,
        };
        let data_seq = self.number(long);
        if let Some(mapping) = &mut dss.mapping {
            mapping.data_seq = data_seq;
        }
        if self.random.below(4) == 0 {
            dss.mapping = None;
        }
        let ack = self.near(our_dsn(1));
        dss.ack = self.random.chance(200).then(|| self.number(ack));
        dss
    }

    fn options(&mut self, position: u64, len: u32) -> MptcpOptions {
        let mut options = MptcpOptions::default();
        if self.random.below(8) != 0 {
            options.dss = Some(self.dss(position, len));
        }
        if self.rarely() {
            let id = AddressId(self.random.below(10) as u8);
            let address = match self.random.chance(128) {
                true => IpAddr::V4(Ipv4Addr::LOCALHOST),
                false => IpAddr::V6(Ipv6Addr::LOCALHOST),
            };
            let port = self.random.chance(128).then_some(80);
            let (first, second) = match self.random.chance(200) {
                true => (PEER_KEY, OUR_KEY),
                false => (OUR_KEY, PEER_KEY),
            };
            let hmac = add_addr_hmac(first, second, id, address, port);
            let hmac = self.random.chance(200).then_some(hmac);
            options.add_addr = Some(AddAddr { id, address, port, hmac });
        }
        if self.rarely() {
            let mut removed = RemoveAddr::default();
            while removed.push(AddressId(self.random.below(10) as u8)) {}
            options.remove_addr = Some(removed);
        }
        options.priority = self.rarely().then_some(true);
        if self.rarely() && self.rarely() {
            options.fail = Some(self.near(our_dsn(0)));
        }
        options.fast_close = (self.rarely() && self.rarely()).then_some(PEER_KEY);
        if self.rarely() {
            let data = MpCapableData { length: self.random.below(2000) as u16, checksum: None };
            options.capable = capable_ack(Some(data.length)).capable;
        }
        if self.rarely() {
            options.join = third_ack().options.mptcp.join;
        }
        options
    }

    fn segment(&mut self) -> Segment {
        let received = self.trace.subflow.receive.received;
        let position = self.near(received);
        let len = match self.random.below(6) {
            0 => 0,
            1 => self.random.below(60_000) as u32,
            _ => 1 + self.random.below(1500) as u32,
        };
        let mut segment = with_mptcp(seg(position, len), self.options(position, len));
        segment.seq = PEER + 1 + position as u32;
        segment.ack = SeqNum(self.near(u64::from(self.trace.subflow.send.next.0)) as u32);
        if self.rarely() {
            segment.flags = Flags(self.random.below(256) as u8);
        } else if self.rarely() {
            segment.flags = segment.flags.with(Flags::FIN);
        }
        segment.window = self.random.below(65536) as u16;
        if self.random.chance(16) {
            segment.options.timestamps = None;
        }
        segment
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0 => self.trace.read(),
            1 => self.trace.connection.shutdown_write(StreamOffset(0)),
            2 => {
                if self.trace.subflow.next_timeout().is_some() {
                    self.trace.pass_to_timer();
                }
            }
            3 => {
                let id = AddressId(self.random.below(12) as u8);
                let address = IpAddr::V6(Ipv6Addr::LOCALHOST);
                let _ = self.trace.subflow.announce(id, address, Some(1));
            }
            4 => {
                let _ = self.trace.subflow.withdraw(&[AddressId(self.random.below(12) as u8)]);
                let _ = self.trace.subflow.set_backup(true);
            }
            5 => self.trace.subflow.check_path(self.trace.now),
            _ => {
                let segment = self.segment();
                let offset = match segment.options.mptcp.dss.and_then(|dss| dss.mapping) {
                    Some(DssMapping { data_seq: DssNumber::Long(number), .. }) => {
                        number.wrapping_sub(peer_dsn(0))
                    }
                    _ => 0,
                };
                let offset = if offset < CAPACITY * 3 { offset } else { 0 };
                let _ = self.trace.recv_at(segment, offset);
            }
        }
        if self.random.chance(128) {
            for sent in self.trace.sent() {
                let ack = sent.options.mptcp.dss.and_then(|dss| dss.ack);
                if let Some(DssNumber::Long(number)) = ack {
                    let told = number.wrapping_sub(peer_dsn(0));
                    assert!(told <= self.trace.edge() + 1, "acknowledged what is not there");
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn whatever_a_hostile_peer_sends_the_subflow_stays_sane(
        kind in 0..6_u8,
        seed in 1..u64::MAX,
        steps in 1..150_usize,
    ) {
        let trace = match kind {
            0 => Trace::mptcp(),
            1 => Trace::plain(),
            2 => checked(),
            3 => joined(),
            4 => begun(),
            _ => Trace::with_syn(syn()),
        };
        let mut peer = Peer { random: Random(seed), trace };
        for _ in 0..steps {
            peer.step();
        }
        // It comes to rest whatever came before.
        peer.trace.subflow.abort(Abort::Connection);
        peer.trace.sent();
        prop_assert_eq!(peer.trace.subflow.next_timeout(), None);
    }
}
