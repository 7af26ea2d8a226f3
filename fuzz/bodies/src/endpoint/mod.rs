//! A whole endpoint against peers that know the keys and keep no rules.
//!
//! The input is read as the endpoint's configuration and then as one operation after another: what
//! peers send, what the application does, and how time passes. After each, [`World`]
//! checks what must hold whatever comes: no buffer is lost, memory stays within its budget, nothing
//! goes on without end. [`Peers`] check that what the endpoint says it may say: the
//! window is not taken back, and nothing is acknowledged that never came. Bytes that a reader has
//! seen must not change, and where a peer has been honest they are the ones that it sent. At the
//! end everything is closed, and after all timeouts nothing may be left.
//!
//! The first byte says whether all peers are honest. Then what they do may be as odd as before, but
//! every octet keeps its place; otherwise the fuzzer would hardly ever see the bytes compared.

mod input;
mod peer;
mod world;

use std::net::{IpAddr, Shutdown, SocketAddr};
use std::time::Duration;

use mpxdp_proto::crypto::JoinHmac;
use mpxdp_proto::segment::{
    AddAddr, AddressId, Dss, DssMapping, DssNumber, Flags, Key, MpCapable, MpCapableBody,
    MpCapableData, MpJoin, MpReset, Options, RemoveAddr, Segment, Token, WindowScale,
};
use mpxdp_proto::wire::{options, parse_frame};

use input::Input;
use peer::{Host, Kind, Mapping, Peers, Sub};
use world::{World, announced, listening};

use crate::trace::{is_traced, show};

/// Hosts; the last speaks IPv6.
const HOSTS: usize = 3;
/// Subflows of a host that join.
const JOINS: usize = 3;
/// Operations of an input.
const MANY_OPERATIONS: usize = 400;
/// Frames that may be sent again.
const HISTORY: usize = 16;

/// Plays an input against a new endpoint.
pub fn endpoint(data: &[u8]) {
    let mut input = Input::new(data);
    let mut play = Play::new(&mut input);
    for _ in 0..MANY_OPERATIONS {
        if input.is_empty() {
            break;
        }
        play.operation(&mut input);
    }
    let Play { mut world, mut peers, trace, .. } = play;
    world.wind_up(|world| take_all(world, &mut peers, trace));
}

struct Play {
    world: World,
    peers: Peers,
    all_honest: bool,
    /// Frames that were sent, each with the subflow that it is of.
    history: Vec<(usize, Vec<u8>)>,
    /// Whether to print what goes by, for whoever looks into a find.
    trace: bool,
}

fn take_all(world: &mut World, peers: &mut Peers, trace: bool) {
    for frame in world.sent.drain(..) {
        if trace {
            show(world.now, "<-", &frame);
        }
        peers.take(&frame);
    }
}

/// The place of a subflow among all: each host has one that opens its connection, and some that
/// join.
const fn place(host: usize, nth: usize) -> usize {
    host * (1 + JOINS) + nth
}

fn address(host: usize, nth: usize) -> SocketAddr {
    let port = 40_000 + place(host, nth) as u16;
    match host {
        2 => SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, 1], port)),
        _ => SocketAddr::from(([10, 0, 0, 101 + host as u8], port)),
    }
}

impl Play {
    fn new(input: &mut Input<'_>) -> Self {
        let all_honest = input.flag();
        let world = World::new(input);
        let hosts = (0..HOSTS as u64).map(|n| Host::new(n, Kind::Plain)).collect();
        let mut peers = Peers { hosts, subs: Vec::new(), wild: false };
        for host in 0..HOSTS {
            for nth in 0..=JOINS {
                let to = (address(host, nth), listening()[usize::from(host == 2)]);
                // Without a sequence number, as it has not begun.
                peers.subs.push(Sub::new(host, nth > 0, to, 0, 0, false));
            }
        }
        let trace = is_traced();
        Self { world, peers, all_honest, history: Vec::new(), trace }
    }

    fn operation(&mut self, input: &mut Input<'_>) {
        match input.below(32) {
            0 | 1 => self.connect(input),
            2 => self.third_ack(input),
            3 | 4 => self.join(input),
            5 => self.join_ack(input),
            6..=11 => self.data(input),
            12 => self.data_fin(input),
            13 => self.fin(input),
            14 => self.reset(input),
            15 => self.acknowledge(input),
            16 => self.announce(input),
            17 => self.remove_address(input),
            18 => self.signal(input),
            19 => self.any_options(input),
            20 => self.any_frame(input),
            21 => self.again(input),
            22 => {
                let worker = input.below(2).into();
                self.world.jam(worker, input.flag());
            }
            23..=25 => self.pass(input),
            26 => self.world.accept(input.below(2).into()),
            27..=29 => self.read(input),
            30 => {
                let how = [Shutdown::Write, Shutdown::Read, Shutdown::Both];
                let how = how[usize::from(input.below(3))];
                self.world.shut_down(input.below(3).into(), how);
            }
            _ => match input.below(8) {
                0 => self.world.stop_listening(input.below(2).into()),
                n => self.world.close(input.below(3).into(), n & 1 != 0),
            },
        }
        self.look();
        if self.trace {
            eprintln!("{} octets are left", input.left());
        }
    }

    /// Lets the peers see what the endpoint sent.
    fn look(&mut self) {
        take_all(&mut self.world, &mut self.peers, self.trace);
    }

    fn subflow(&self, input: &mut Input<'_>) -> usize {
        usize::from(input.byte()) % self.peers.subs.len()
    }

    /// What a peer does that no honest one would; says whether it may.
    fn lie(&mut self, index: usize) -> bool {
        if !self.all_honest {
            let host = self.peers.subs[index].host;
            self.peers.hosts[host].honest = false;
        }
        !self.all_honest
    }

    fn send(&mut self, index: usize, segment: &Segment, payload: &[u8]) {
        if let Some(frame) = self.peers.frame(index, segment, payload) {
            let seat = self.peers.subs[index].seat;
            if self.trace {
                show(self.world.now, "->", &frame);
            }
            self.world.deliver(seat, &frame);
            self.history.push((index, frame));
            if self.history.len() > HISTORY {
                self.history.remove(0);
            }
            self.look();
        }
    }

    /// A SYN, and unless the input wants otherwise the end of the handshake.
    fn connect(&mut self, input: &mut Input<'_>) {
        let host = usize::from(input.below(HOSTS as u8));
        let how = input.byte();
        let kind = match how & 3 {
            0 => Kind::Plain,
            1 => Kind::Mptcp { checksums: true },
            _ => Kind::Mptcp { checksums: false },
        };
        let index = place(host, 0);
        let before = &self.peers.hosts[host];
        let mut new = Host::new(host as u64, kind);
        new.honest = before.honest;
        new.reborn = before.reborn || self.peers.is_begun(index);
        new.loses_options = how & 128 != 0;
        self.peers.hosts[host] = new;
        // What was sent on an earlier connection does not belong to this one.
        self.history.retain(|(index, _)| self.peers.subs[*index].host != host);
        let to = (address(host, 0), listening()[usize::from(host == 2)]);
        let isn = if how & 4 == 0 { 1000 } else { 0xffff_ff00 } + u32::from(input.byte());
        let seat = usize::from(how >> 3 & 1);
        self.peers.begin(index, Sub::new(host, false, to, seat, isn, how & 16 != 0));
        let mut options = Options::default();
        if kind != Kind::Plain {
            options.mptcp.capable = Some(self.capable(index, MpCapableBody::Syn));
        }
        self.syn(index, options, how & 32 != 0);
        if how & 64 == 0 {
            self.send_third_ack(index, false, None);
        }
    }

    fn capable(&self, index: usize, body: MpCapableBody) -> MpCapable {
        MpCapable {
            version: 1,
            checksum_required: self.peers.hosts[self.peers.subs[index].host].checksums(),
            extensibility: false,
            no_join_to_initial_address: false,
            algorithms: 1,
            body,
        }
    }

    fn syn(&mut self, index: usize, mptcp: Options, scaled: bool) {
        let sub = &self.peers.subs[index];
        let options = Options {
            mss: Some(1400),
            window_scale: scaled.then_some(WindowScale::new(7)),
            sack_permitted: true,
            timestamps: self.peers.stamp(self.world.now, index),
            ..mptcp
        };
        let segment = Segment {
            seq: sub.isn,
            flags: Flags::SYN,
            window: 0xffff,
            options,
            ..Segment::default()
        };
        self.send(index, &segment, &[]);
    }

    /// The third ACK of a connection that is opened, with right keys or wrong ones, and perhaps
    /// with the first data.
    fn third_ack(&mut self, input: &mut Input<'_>) {
        let index = place(input.below(HOSTS as u8).into(), 0);
        let how = input.byte();
        let wrong = how & 7 == 7 && self.lie(index);
        let len = (how & 8 != 0).then(|| 1 + input.word() % 1000);
        self.send_third_ack(index, wrong, len);
    }

    fn send_third_ack(&mut self, index: usize, wrong: bool, len: Option<u16>) {
        if !self.peers.is_answered(index) {
            return;
        }
        let host = &self.peers.hosts[self.peers.subs[index].host];
        let (is_mptcp, sender) = (host.is_mptcp(), host.key.key);
        if is_mptcp && host.remote.is_none() {
            return;
        }
        let first = self.peers.mapped_to(index) == 1;
        let (mut segment, payload) = match len.filter(|_| is_mptcp && first) {
            Some(len) => self.first_data(index, len),
            None => (self.peers.blank(self.world.now, index), Vec::new()),
        };
        let mut data = None;
        if !payload.is_empty() {
            let mapping = Mapping { ssn: 1, len: payload.len() as u16, offset: 0 };
            let dss = self.peers.dss_mapping(index, &mapping, false);
            data = Some(MpCapableData { length: dss.length, checksum: dss.checksum });
        }
        let host = &self.peers.hosts[self.peers.subs[index].host];
        segment.options.mptcp.dss = None;
        if let Some(remote) = host.remote.filter(|_| is_mptcp) {
            let receiver = Key(remote.key.0 ^ u64::from(wrong));
            let body = MpCapableBody::Ack { sender, receiver, data };
            segment.options.mptcp.capable = Some(self.capable(index, body));
        }
        self.peers.subs[index].confirmed |= !wrong;
        self.send(index, &segment, &payload);
        self.peers.lose_options(index);
    }

    /// The stream's first octets, which MP_CAPABLE maps.
    fn first_data(&mut self, index: usize, len: u16) -> (Segment, Vec<u8>) {
        let sub = &mut self.peers.subs[index];
        sub.mappings.push(Mapping { ssn: 1, len, offset: 0 });
        let host = &mut self.peers.hosts[sub.host];
        host.next = host.next.max(len.into());
        let data = self.peers.data(self.world.now, index, 1, len);
        self.peers.subs[index].next = 1 + u32::from(len);
        data
    }

    /// A SYN that joins, and unless the input wants otherwise the end of the handshake.
    fn join(&mut self, input: &mut Input<'_>) {
        let host = usize::from(input.below(HOSTS as u8));
        let nth = 1 + usize::from(input.below(JOINS as u8));
        let how = input.byte();
        let index = place(host, nth);
        let fell_back = self.peers.hosts[host].fell_back;
        let Some(remote) = self.peers.hosts[host].remote.filter(|_| !fell_back) else { return };
        let at = match (host, how & 3) {
            (2, _) => listening()[1],
            (_, 1) => announced()[0],
            (_, 2) => announced()[1],
            _ => listening()[0],
        };
        let isn = 0x7fff_0000 + 0x1000 * u32::from(how);
        let seat = usize::from(how >> 2 & 1);
        let sub = Sub::new(host, true, (address(host, nth), at), seat, isn, how & 8 != 0);
        let token = Token(remote.token.0 ^ u32::from(how & 0x70 == 0x70));
        let mut options = Options::default();
        options.mptcp.join = Some(MpJoin::Syn {
            backup: how & 16 != 0,
            address_id: AddressId(nth as u8),
            token,
            nonce: sub.nonce,
        });
        self.peers.begin(index, sub);
        self.syn(index, options, true);
        if how & 0x80 == 0 {
            self.send_join_ack(index, false);
        }
    }

    fn join_ack(&mut self, input: &mut Input<'_>) {
        let index = self.subflow(input);
        let wrong = input.below(4) == 3 && self.lie(index);
        if self.peers.subs[index].joins {
            self.send_join_ack(index, wrong);
        }
    }

    fn send_join_ack(&mut self, index: usize, wrong: bool) {
        let sub = &self.peers.subs[index];
        let host = &self.peers.hosts[sub.host];
        let Some(remote) = host.remote.filter(|_| self.peers.is_answered(index)) else { return };
        let hmac = JoinHmac::new(host.key.key, remote.key, sub.nonce, sub.their_nonce);
        let mut hmac = hmac.leftmost_160();
        hmac[19] ^= u8::from(wrong);
        let mut segment = self.peers.blank(self.world.now, index);
        segment.options.mptcp.dss = None;
        segment.options.mptcp.join = Some(MpJoin::Ack { hmac });
        self.peers.subs[index].confirmed |= !wrong;
        self.send(index, &segment, &[]);
    }

    /// Payload: new or again, ahead of a gap or over what other subflows brought, with its mapping
    /// told in one way or another.
    fn data(&mut self, input: &mut Input<'_>) {
        let index = self.subflow(input);
        let (what, how) = (input.byte(), input.byte());
        let len = 1 + input.word() % 1400;
        let away = input.word();
        if !self.peers.is_answered(index) || !self.peers.subs[index].confirmed && !self.lie(index) {
            return;
        }
        let host = self.peers.subs[index].host;
        let is_mptcp = self.peers.hosts[host].is_mptcp();
        let next = self.peers.subs[index].next;
        let again = what & 3 == 1 && next > 1;
        let ssn = if again { next - 1 - u32::from(away) % (next - 1) } else { next };
        let mut len = if again { len.min((next - ssn) as u16) } else { len };
        if is_mptcp && !again && self.peers.mapped_to(index) == next {
            self.map(index, len, what, away % 5000);
        }
        let mapping = self.peers.mapping_of(index, ssn);
        if let Some(mapping) = mapping
            && (what & 0x80 == 0 || !self.lie(index))
        {
            // A segment that goes past its mapping says nothing of what lies there.
            let rest = (u32::from(mapping.len) - (ssn - mapping.ssn)) as u16;
            len = len.min(rest);
        }
        let (mut segment, mut payload) = self.peers.data(self.world.now, index, ssn, len);
        let sub = &mut self.peers.subs[index];
        sub.next = sub.next.max(ssn + u32::from(len));
        if is_mptcp {
            self.tell_mapping(index, mapping, ssn, len, how, &mut segment);
        }
        if how & 0x78 == 0x78 && self.lie(index) {
            payload[0] ^= 1;
        }
        self.send(index, &segment, &payload);
    }

    /// Adds a mapping for the next octets of a subflow.
    fn map(&mut self, index: usize, len: u16, what: u8, away: u16) {
        let sub = &mut self.peers.subs[index];
        let host = &mut self.peers.hosts[sub.host];
        let more = [0, 0, 500, 3000][usize::from(what >> 2 & 3)];
        let away = u64::from(away);
        let offset = match what & 3 {
            2 => host.next + away,
            3 => host.next.saturating_sub(away),
            _ => host.next,
        };
        let mapping = Mapping { ssn: sub.next, len: len + more, offset };
        sub.mappings.push(mapping);
        host.next = host.next.max(offset + u64::from(mapping.len));
    }

    /// Puts the mapping of `len` octets from `ssn` on into a segment, or something else.
    fn tell_mapping(
        &mut self,
        index: usize,
        mapping: Option<Mapping>,
        ssn: u32,
        len: u16,
        how: u8,
        segment: &mut Segment,
    ) {
        let Some(dss) = &mut segment.options.mptcp.dss else { return };
        let itself = mapping.map(|Mapping { ssn: start, offset, .. }| Mapping {
            ssn,
            len,
            offset: offset + u64::from(ssn - start),
        });
        let told = if how & 7 == 1 { itself } else { mapping };
        let mut told = told.map(|mapping| self.peers.dss_mapping(index, &mapping, how & 7 == 2));
        if (how & 7 > 2 || told.is_none()) && self.lie(index) {
            told = distort(told, how);
        }
        dss.mapping = told;
    }

    /// The end of a stream at the data level, at the end of what was sent or elsewhere.
    fn data_fin(&mut self, input: &mut Input<'_>) {
        let index = self.subflow(input);
        let how = input.byte();
        let host = self.peers.subs[index].host;
        if !self.peers.is_answered(index) || !self.peers.hosts[host].is_mptcp() {
            return;
        }
        let mut end = self.peers.hosts[host].end.unwrap_or(self.peers.hosts[host].next);
        if how & 7 == 7 && self.lie(index) {
            end = end.wrapping_sub(u64::from(input.word() % 3000));
        }
        self.peers.hosts[host].end = Some(end);
        let mut segment = self.peers.blank(self.world.now, index);
        let mapping = Mapping { ssn: 0, len: 1, offset: end };
        let data_seq = self.peers.hosts[host].data_seq(end);
        let checksum = self.peers.hosts[host].checksums().then(|| {
            !mpxdp_proto::wire::checksum::fold(peer::checksum_of(data_seq, mapping.ssn, 1))
        });
        let data_seq = if how & 8 == 0 {
            DssNumber::Long(data_seq)
        } else {
            DssNumber::Short(data_seq as u32)
        };
        let dss = segment.options.mptcp.dss.get_or_insert_default();
        dss.data_fin = true;
        dss.mapping = Some(DssMapping { data_seq, subflow_seq: 0, length: 1, checksum });
        if how & 16 != 0 {
            segment.flags = segment.flags.with(Flags::FIN);
            self.peers.sent_up_to(index, self.peers.subs[index].next + 1);
        }
        self.send(index, &segment, &[]);
    }

    fn fin(&mut self, input: &mut Input<'_>) {
        let index = self.subflow(input);
        if !self.peers.is_answered(index) {
            return;
        }
        let sub = &self.peers.subs[index];
        let host = &mut self.peers.hosts[sub.host];
        if !host.is_mptcp() {
            host.end = host.end.or_else(|| Some(u64::from(sub.next - 1)));
        }
        self.peers.sent_up_to(index, self.peers.subs[index].next + 1);
        let mut segment = self.peers.blank(self.world.now, index);
        segment.flags = segment.flags.with(Flags::FIN);
        self.send(index, &segment, &[]);
    }

    fn reset(&mut self, input: &mut Input<'_>) {
        let index = self.subflow(input);
        let how = input.byte();
        let mut segment = self.peers.blank(self.world.now, index);
        segment.flags = Flags::RST.with(Flags(how & Flags::ACK.0));
        segment.seq += [0, 1, 1000, 0x8000_0000][usize::from(how & 3)];
        segment.options.mptcp.dss = None;
        let remote = self.peers.hosts[self.peers.subs[index].host].remote;
        if how & 4 != 0 {
            let wrong = u64::from(how & 0x28 == 0x28);
            segment.options.mptcp.fast_close = remote.map(|remote| Key(remote.key.0 ^ wrong));
        }
        if how & 8 != 0 {
            segment.options.mptcp.reset = Some(MpReset { flags: how >> 4, reason: input.byte() });
        }
        if how & 0x80 != 0 {
            // A fast close without RST, answered by one (RFC 8684, section 3.5).
            segment.flags = Flags::ACK;
        }
        self.send(index, &segment, &[]);
    }

    /// An acknowledgement, or a probe of a window or of a connection.
    fn acknowledge(&mut self, input: &mut Input<'_>) {
        let index = self.subflow(input);
        let how = input.byte();
        let mut segment = self.peers.blank(self.world.now, index);
        segment.seq = segment.seq - u32::from(how & 1);
        segment.ack += [0, 0, 1, 0x4000_0000][usize::from(how >> 1 & 3)];
        segment.window = if how & 8 == 0 { 0xffff } else { input.word() };
        if how & 16 != 0
            && let Some(Dss { ack: Some(DssNumber::Long(ack)), .. }) =
                &mut segment.options.mptcp.dss
        {
            *ack = ack.wrapping_add(input.word().into());
        }
        self.send(index, &segment, &[]);
    }

    /// ADD_ADDR of the peer's own, or the echo of the endpoint's.
    fn announce(&mut self, input: &mut Input<'_>) {
        let index = self.subflow(input);
        let how = input.byte();
        let mut segment = self.peers.blank(self.world.now, index);
        segment.options.mptcp.dss = None;
        segment.options.timestamps = None;
        segment.options.mptcp.add_addr = match self.peers.subs[index].announced {
            Some(theirs) if how & 1 == 0 => Some(AddAddr { hmac: None, ..theirs }),
            _ => Some(AddAddr {
                id: AddressId(input.byte()),
                address: IpAddr::from([10, 0, 0, how]),
                port: (how & 2 != 0).then_some(4000),
                hmac: (how & 4 != 0).then_some(0x0102_0304_0506_0708),
            }),
        };
        self.send(index, &segment, &[]);
    }

    fn remove_address(&mut self, input: &mut Input<'_>) {
        let index = self.subflow(input);
        let mut removed = RemoveAddr::default();
        for id in input.bytes(3) {
            removed.push(AddressId(*id));
        }
        let mut segment = self.peers.blank(self.world.now, index);
        segment.options.mptcp.remove_addr = Some(removed);
        self.send(index, &segment, &[]);
    }

    /// MP_PRIO, or MP_FAIL with an infinite mapping or without.
    fn signal(&mut self, input: &mut Input<'_>) {
        let index = self.subflow(input);
        let how = input.byte();
        let mut segment = self.peers.blank(self.world.now, index);
        if how & 1 == 0 || !self.lie(index) {
            segment.options.mptcp.priority = Some(how & 2 != 0);
        } else {
            let host = &self.peers.hosts[self.peers.subs[index].host];
            let at = host.data_seq(host.next.wrapping_sub((input.word() % 2000).into()));
            segment.options.mptcp.fail = (how & 2 != 0).then_some(at);
            if how & 4 != 0 {
                let dss = segment.options.mptcp.dss.get_or_insert_default();
                dss.mapping = Some(DssMapping {
                    data_seq: DssNumber::Long(at),
                    subflow_seq: self.peers.subs[index].next,
                    length: 0,
                    checksum: None,
                });
            }
        }
        self.send(index, &segment, &[]);
    }

    /// Any control bits and any octets as options, at the right place of the sequence space.
    fn any_options(&mut self, input: &mut Input<'_>) {
        let index = self.subflow(input);
        let (flags, len) = (Flags(input.byte()), u32::from(input.byte() & 31));
        let list = input.bytes(options::MAX_LEN as u8);
        if !self.lie(index) {
            return;
        }
        self.peers.wild = true;
        let mut segment = self.peers.blank(self.world.now, index);
        segment.flags = flags;
        segment.payload_len = len;
        segment.options = options::parse(list, flags);
        self.send(index, &segment, &vec![0x55; len as usize]);
    }

    fn any_frame(&mut self, input: &mut Input<'_>) {
        let worker = input.below(2).into();
        let frame = input.bytes(100);
        if !self.all_honest && !frame.is_empty() {
            self.peers.wild = true;
            self.world.deliver(worker, frame);
        }
    }

    /// A frame that was sent before, on the same cable or on another.
    fn again(&mut self, input: &mut Input<'_>) {
        let how = usize::from(input.byte());
        let Some((index, frame)) = self.history.get(how % HISTORY).cloned() else { return };
        // A SYN may open another connection, to which the rest would belong but in part.
        let opens = parse_frame(&frame, frame.len())
            .is_ok_and(|frame| frame.segment.flags.contains(Flags::SYN));
        if !opens || self.lie(index) {
            self.world.deliver(self.peers.subs[index].seat ^ (how >> 7), &frame);
        }
    }

    fn pass(&mut self, input: &mut Input<'_>) {
        // From a microsecond to some eighteen minutes.
        let shift = input.below(31);
        let time = Duration::from_micros(1 << shift);
        let (peers, trace) = (&mut self.peers, self.trace);
        self.world.pass(time, |world| take_all(world, peers, trace));
    }

    fn read(&mut self, input: &mut Input<'_>) {
        let reading = usize::from(input.below(3));
        let most = match input.byte() {
            255 => usize::MAX,
            n => usize::from(n) * 400,
        };
        let peers = &self.peers;
        self.world.read(reading, most, |reading, bytes| {
            let hosts = peers.hosts.iter().zip(0..);
            let mut theirs = hosts.filter(|(_, host)| address(*host, 0) == reading.peer);
            let Some((host, _)) = theirs.next() else { return };
            if host.honest && !peers.wild {
                host.pattern.check(reading.position, bytes).expect("an honest peer's bytes");
                if reading.ended && !reading.shut && !host.reborn {
                    let end = reading.position;
                    assert!(host.end.is_none_or(|said| said == end), "it ended at {end}");
                }
            }
        });
    }
}

/// Something wrong in the place of a mapping.
fn distort(mapping: Option<DssMapping>, how: u8) -> Option<DssMapping> {
    let mut mapping = mapping?;
    let by = u16::from(how >> 3);
    match how & 7 {
        4 => {
            mapping.data_seq = match mapping.data_seq {
                DssNumber::Long(n) => DssNumber::Long(n.wrapping_add(by.into())),
                DssNumber::Short(n) => DssNumber::Short(n.wrapping_add(by.into())),
            };
        }
        5 => mapping.subflow_seq = mapping.subflow_seq.wrapping_sub(by.into()),
        6 => mapping.length = if by == 0 { 0 } else { mapping.length.wrapping_add(by) },
        7 => mapping.checksum = mapping.checksum.map_or(Some(by), |sum| Some(sum ^ 1 << (by & 15))),
        _ => return None,
    }
    Some(mapping)
}
