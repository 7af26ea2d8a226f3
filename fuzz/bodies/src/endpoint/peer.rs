//! The far side: hosts that know the keys, each with one connection of several subflows, and a
//! record of what they have said. Nothing happens here by itself but taking note of what comes.

use std::net::SocketAddr;

use mpxdp_proto::connection::LocalKey;
use mpxdp_proto::crypto::JoinHmac;
use mpxdp_proto::range_set::RangeSet;
use mpxdp_proto::segment::{
    AddAddr, Dss, DssMapping, DssNumber, Flags, Key, MpCapableBody, MpJoin, Segment, Timestamps,
    WindowScale,
};
use mpxdp_proto::seq::{DataSeq, SeqNum};
use mpxdp_proto::time::Instant;
use mpxdp_proto::wire::{
    Frame, IpFields, LinkHeader, MacAddress, checksum, emit_frame, parse_frame,
};
use mpxdp_sim::Pattern;

/// What opens a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Plain,
    Mptcp { checksums: bool },
}

/// A peer and its one connection.
pub(super) struct Host {
    pub(super) kind: Kind,
    pub(super) key: LocalKey,
    pub(super) remote: Option<LocalKey>,
    pub(super) pattern: Pattern,
    /// The next octet of the stream to be sent.
    pub(super) next: u64,
    /// Every octet that was sent.
    pub(super) sent: RangeSet,
    /// Where DATA_FIN or FIN ended the stream.
    pub(super) end: Option<u64>,
    /// Whether every octet that was sent is the pattern's, wherever a receiver may think it belongs,
    /// and everything else it said was right. Then the reader gets the pattern.
    pub(super) honest: bool,
    /// The right edge that it was told, the furthest.
    edge: u64,
    /// Whether the endpoint ended its stream.
    remote_fin: bool,
    /// Whether it opened a connection before, of which answers may still come.
    pub(super) reborn: bool,
    /// Whether the network takes its options from all that goes either way after the handshake.
    pub(super) loses_options: bool,
    /// It has noticed, and speaks plain TCP from now on.
    pub(super) fell_back: bool,
}

/// A mapping that was told, or is to be: octets of the subflow, the first is 1, and of the stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    pub(super) ssn: u32,
    pub(super) len: u16,
    pub(super) offset: u64,
}

/// A subflow, or a plain connection.
pub(super) struct Sub {
    pub(super) host: usize,
    /// It has joined, or is to join.
    pub(super) joins: bool,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// The worker whose cable it takes.
    pub(super) seat: usize,
    pub(super) isn: SeqNum,
    /// The next octet to send, the first being 1.
    pub(super) next: u32,
    /// The next octet that was never sent.
    highest: u32,
    pub(super) mappings: Vec<Mapping>,
    pub(super) nonce: u32,
    pub(super) their_nonce: u32,
    pub(super) timestamps: bool,
    last_timestamp: u32,
    received: SeqNum,
    scale: u8,
    /// The endpoint's initial sequence number, once it has answered.
    answered: Option<SeqNum>,
    /// Whether the third ACK went out, and was right.
    pub(super) confirmed: bool,
    pub(super) announced: Option<AddAddr>,
    /// The DATA_ACK that it was told last, as a place in the stream, and the window.
    told: Option<(u64, u64)>,
    edge: u64,
    /// Whether its addresses were in use before, so that answers may belong to an earlier life.
    reborn: bool,
}

impl Mapping {
    fn end(&self) -> u32 {
        self.ssn.wrapping_add(self.len.into())
    }

    fn has(&self, ssn: u32) -> bool {
        ssn.wrapping_sub(self.ssn) < self.len.into()
    }
}

impl Host {
    pub(super) fn new(number: u64, kind: Kind) -> Self {
        Self {
            kind,
            key: LocalKey::new(Key(0x0102_0304_0506_0700 + number)),
            remote: None,
            pattern: Pattern::new(number),
            next: 0,
            sent: RangeSet::new(),
            end: None,
            honest: true,
            edge: 0,
            remote_fin: false,
            reborn: false,
            loses_options: false,
            fell_back: false,
        }
    }

    pub(super) const fn is_mptcp(&self) -> bool {
        matches!(self.kind, Kind::Mptcp { .. })
    }

    pub(super) const fn checksums(&self) -> bool {
        matches!(self.kind, Kind::Mptcp { checksums: true })
    }

    /// The data sequence number of an octet of the stream.
    pub(super) fn data_seq(&self, offset: u64) -> u64 {
        (self.key.idsn + 1 + offset).0
    }
}

/// All peers.
pub(super) struct Peers {
    pub(super) hosts: Vec<Host>,
    pub(super) subs: Vec<Sub>,
    /// Something was sent of which it is not known what a receiver makes of it.
    pub(super) wild: bool,
}

impl Peers {
    /// A new life of subflow `index`, which may have had one already.
    pub(super) fn begin(&mut self, index: usize, new: Sub) {
        self.subs[index] = Sub { reborn: self.is_begun(index), ..new };
    }

    /// The handshake of subflow `index` is over: from now on its options get lost, if those of its host do.
    ///
    /// That is to be told from a host that speaks MPTCP, as it goes on with its stream where it was. Those
    /// whose options get lost later, or one way only, may send data again as new of the subflow, and what
    /// the endpoint makes of it depends on what they would do next; they are models of their own.
    pub(super) fn lose_options(&mut self, index: usize) {
        let host = &mut self.hosts[self.subs[index].host];
        if host.loses_options && host.is_mptcp() {
            host.kind = Kind::Plain;
            host.fell_back = true;
        }
    }

    /// A segment without payload, as an acknowledgement of everything is.
    pub(super) fn blank(&self, now: Instant, index: usize) -> Segment {
        let sub = &self.subs[index];
        let mut segment = Segment {
            seq: sub.isn + sub.next,
            ack: sub.received,
            flags: Flags::ACK,
            window: 0xffff,
            ..Segment::default()
        };
        segment.options.timestamps = self.stamp(now, index);
        if self.hosts[sub.host].is_mptcp() {
            segment.options.mptcp.dss = Some(self.acknowledgement(index));
        }
        segment
    }

    pub(super) fn stamp(&self, now: Instant, index: usize) -> Option<Timestamps> {
        let sub = &self.subs[index];
        let value = (now.0 / 1_000_000) as u32;
        sub.timestamps.then_some(Timestamps { value, echo: sub.last_timestamp })
    }

    fn acknowledgement(&self, index: usize) -> Dss {
        let host = &self.hosts[self.subs[index].host];
        let next = |remote: LocalKey| (remote.idsn + 1 + u64::from(host.remote_fin)).0;
        Dss { ack: host.remote.map(|remote| DssNumber::Long(next(remote))), ..Dss::default() }
    }

    /// Where an octet of a subflow belongs in the stream: by its mapping, or without one by its
    /// place, as in plain TCP.
    fn offset(&self, index: usize, ssn: u32) -> u64 {
        let of = |mapping: &Mapping| mapping.offset + u64::from(ssn.wrapping_sub(mapping.ssn));
        let mapping = self.subs[index].mappings.iter().find(|mapping| mapping.has(ssn));
        mapping.map_or_else(|| u64::from(ssn.wrapping_sub(1)), of)
    }

    /// The payload of `len` octets of a subflow.
    fn payload(&self, index: usize, ssn: u32, len: u16) -> Vec<u8> {
        let pattern = self.hosts[self.subs[index].host].pattern;
        let byte = |n| pattern.byte(self.offset(index, ssn.wrapping_add(n)));
        (0..u32::from(len)).map(byte).collect()
    }

    /// A segment with octets of a subflow, and its payload.
    pub(super) fn data(
        &mut self,
        now: Instant,
        index: usize,
        ssn: u32,
        len: u16,
    ) -> (Segment, Vec<u8>) {
        let mut segment = self.blank(now, index);
        let payload = self.payload(index, ssn, len);
        segment.seq = self.subs[index].isn + ssn;
        segment.payload_len = len.into();
        for n in 0..u32::from(len) {
            let offset = self.offset(index, ssn.wrapping_add(n));
            let host = self.subs[index].host;
            self.hosts[host].sent.insert(offset..offset + 1);
        }
        let sub = &mut self.subs[index];
        sub.highest = sub.highest.max(ssn.wrapping_add(len.into()));
        (segment, payload)
    }

    /// Takes note that the subflow has sent what takes sequence space up to `ssn`.
    pub(super) fn sent_up_to(&mut self, index: usize, ssn: u32) {
        let sub = &mut self.subs[index];
        sub.highest = sub.highest.max(ssn);
    }

    /// The mapping that `ssn` is under.
    pub(super) fn mapping_of(&self, index: usize, ssn: u32) -> Option<Mapping> {
        self.subs[index].mappings.iter().find(|mapping| mapping.has(ssn)).copied()
    }

    /// A mapping as DSS options tell it, with its checksum if the host uses them.
    pub(super) fn dss_mapping(&self, index: usize, mapping: &Mapping, short: bool) -> DssMapping {
        let host = &self.hosts[self.subs[index].host];
        let Mapping { ssn, len, offset } = *mapping;
        let data_seq = host.data_seq(offset);
        let checksum = host.checksums().then(|| {
            let sum =
                checksum_of(data_seq, ssn, len) + checksum::sum(&self.payload(index, ssn, len));
            !checksum::fold(sum)
        });
        let data_seq =
            if short { DssNumber::Short(data_seq as u32) } else { DssNumber::Long(data_seq) };
        DssMapping { data_seq, subflow_seq: ssn, length: len, checksum }
    }

    /// Whether a SYN was ever sent.
    pub(super) fn is_begun(&self, index: usize) -> bool {
        self.subs[index].isn != SeqNum(0)
    }

    /// Whether the endpoint has answered the SYN.
    pub(super) fn is_answered(&self, index: usize) -> bool {
        self.subs[index].answered.is_some()
    }

    /// The end of the mappings of a subflow: where the next may begin.
    pub(super) fn mapped_to(&self, index: usize) -> u32 {
        let sub = &self.subs[index];
        sub.mappings.last().map_or(sub.next, Mapping::end).max(sub.next)
    }

    /// The frame of a segment of a subflow; `None` if its options do not fit.
    pub(super) fn frame(&self, index: usize, segment: &Segment, payload: &[u8]) -> Option<Vec<u8>> {
        let sub = &self.subs[index];
        let mut buf = vec![0; payload.len() + 200];
        let ip = IpFields::default();
        let len =
            emit_frame(&mut buf, &link(), sub.local, sub.remote, ip, segment, payload).ok()?;
        buf.truncate(len);
        Some(buf)
    }

    /// Takes note of what the endpoint sent, and checks that it may say so.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        let frame = parse_frame(bytes, bytes.len()).expect("the endpoint sends TCP");
        assert!(frame.is_checksum_right(bytes), "the endpoint sends a wrong checksum");
        let ours = |sub: &Sub| sub.local == frame.local && sub.remote == frame.remote;
        let Some(index) = self.subs.iter().position(ours) else { return };
        let segment = &frame.segment;
        if segment.flags.contains(Flags::SYN) {
            self.take_syn_ack(index, &frame);
        } else if segment.flags.contains(Flags::ACK) && !segment.flags.contains(Flags::RST) {
            self.take_segment(index, segment);
        }
    }

    fn take_syn_ack(&mut self, index: usize, frame: &Frame) {
        let segment = &frame.segment;
        let sub = &mut self.subs[index];
        if segment.ack != sub.isn + 1 {
            assert!(sub.reborn || self.wild, "an answer to no SYN");
            return;
        }
        let again = sub.answered.replace(segment.seq);
        if again.is_some_and(|before| before != segment.seq) {
            // A SYN that was repeated has opened another connection.
            sub.reborn = true;
            self.hosts[sub.host].reborn = true;
        }
        sub.received = segment.seq + 1;
        sub.scale = segment.options.window_scale.map_or(0, WindowScale::shift);
        sub.last_timestamp = segment.options.timestamps.map_or(0, |stamps| stamps.value);
        sub.timestamps &= segment.options.timestamps.is_some();
        let host = &mut self.hosts[sub.host];
        let mptcp = &segment.options.mptcp;
        if let Some(capable) = mptcp.capable
            && let MpCapableBody::SynAck { sender } = capable.body
        {
            // An earlier connection of the host may have been another kind.
            let offered = !sub.joins && (host.is_mptcp() || host.fell_back);
            assert!(offered || host.reborn, "MP_CAPABLE that nobody offered");
            host.remote = Some(LocalKey::new(sender)).filter(|_| host.is_mptcp());
            if capable.checksum_required && host.is_mptcp() {
                host.kind = Kind::Mptcp { checksums: true };
            }
        }
        if !sub.joins && mptcp.capable.is_none() {
            host.kind = Kind::Plain;
        }
        if let Some(MpJoin::SynAck { hmac, nonce, .. }) = mptcp.join {
            sub.their_nonce = nonce;
            if !host.reborn {
                let remote = host.remote.expect("nobody can join without knowing the token");
                let right = JoinHmac::new(remote.key, host.key.key, nonce, sub.nonce);
                assert!(sub.joins && right.matches_64(hmac), "a wrong HMAC");
            }
        }
    }

    fn take_segment(&mut self, index: usize, segment: &Segment) {
        let sub = &mut self.subs[index];
        if sub.reborn || self.hosts[sub.host].reborn || self.wild || sub.answered.is_none() {
            return;
        }
        if segment.seq == sub.received {
            sub.received += segment.seq_len();
        }
        if let Some(stamps) = segment.options.timestamps {
            sub.last_timestamp = stamps.value;
        }
        sub.announced =
            segment.options.mptcp.add_addr.filter(|a| a.hmac.is_some()).or(sub.announced);
        let acked = segment.ack.distance_from(sub.isn);
        assert!(acked >= 1 && acked as u32 <= sub.highest, "{acked} of {} acked", sub.highest);
        let window = u64::from(segment.window) << sub.scale;
        // The field cannot tell what is below its unit, so the edge as it is told may go back by
        // less than one (RFC 7323, section 2.4); nor, on a subflow without a scale, as much as one
        // with a scale has told. Once the stream has come whole, a window is for nothing.
        let is_full = segment.window == u16::MAX;
        let reaches = |edge: u64, before: u64| is_full || edge + (1 << sub.scale) > before;
        let host = &mut self.hosts[sub.host];
        if let Some(dss) = segment.options.mptcp.dss {
            host.remote_fin |= dss.data_fin;
            let first = host.key.idsn + 1;
            if let Some(ack) = dss.ack {
                let ack = match ack {
                    DssNumber::Long(ack) => DataSeq(ack),
                    DssNumber::Short(low) => (first + host.next).nearest(low),
                };
                let acked = ack.distance_from(first);
                assert!(acked >= 0, "a DATA_ACK before the stream");
                let acked = acked as u64;
                let is_whole = host.end.is_some_and(|end| acked > end);
                // A subflow may say once more what it said last, although another one has said more
                // meanwhile: a sender sees by the DATA_ACK that it is old (docs/decisions/0007).
                let is_repeated = sub.told.replace((acked, window)) == Some((acked, window));
                assert!(
                    is_whole || is_repeated || reaches(acked + window, host.edge),
                    "the window was taken back"
                );
                host.edge = host.edge.max(acked + window);
                let data = acked - u64::from(host.end.is_some_and(|end| acked == end + 1));
                assert!(!host.honest || host.sent.covers(0..data), "a DATA_ACK of what never came");
            }
        } else if !host.is_mptcp() {
            let edge = acked as u64 + window;
            let is_whole = host.end.is_some_and(|end| acked as u64 > end + 1);
            assert!(is_whole || reaches(edge, sub.edge), "the window was taken back");
            sub.edge = sub.edge.max(edge);
        }
    }
}

impl Sub {
    /// A subflow that is about to send its SYN.
    pub(super) const fn new(
        host: usize,
        joins: bool,
        (local, remote): (SocketAddr, SocketAddr),
        seat: usize,
        isn: u32,
        timestamps: bool,
    ) -> Self {
        Self {
            host,
            joins,
            local,
            remote,
            seat,
            isn: SeqNum(isn),
            next: 1,
            highest: 1,
            mappings: Vec::new(),
            nonce: isn ^ 0xabcd_1234,
            their_nonce: 0,
            timestamps,
            last_timestamp: 0,
            received: SeqNum(0),
            scale: 0,
            answered: None,
            confirmed: false,
            announced: None,
            told: None,
            edge: 0,
            reborn: false,
        }
    }
}

/// The link header of all frames.
fn link() -> LinkHeader {
    LinkHeader::new(MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2]))
}

/// The sum over what the checksum of a mapping covers besides its octets (RFC 8684, section 3.3.1).
pub(super) fn checksum_of(data_seq: u64, ssn: u32, len: u16) -> u32 {
    let header = [&data_seq.to_be_bytes()[..], &ssn.to_be_bytes(), &len.to_be_bytes()].concat();
    checksum::sum(&header)
}
