//! An MPTCP client with many subflows, of which a test decides everything that matters.
//!
//! Left to itself ([`ClientOptions::automatic`]) it opens its subflows, sends its stream over them in
//! turn, sends again what is not acknowledged, and closes. A test may do any of that by hand. It
//! knows no network: its frames are [taken out](Client::take_out) with the path that they take.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use mpxdp_proto::connection::LocalKey;
use mpxdp_proto::crypto::{JoinHmac, key_to_token_and_idsn};
use mpxdp_proto::segment::{
    AddAddr, AddressId, Dss, DssMapping, DssNumber, Flags, Key, MpCapable, MpCapableBody,
    MpCapableData, MpJoin, Options, RemoveAddr, Segment, Token, WindowScale,
};
use mpxdp_proto::seq::{DataSeq, SeqNum};
use mpxdp_proto::time::Instant;
use mpxdp_proto::wire::{Frame, IpFields, LinkHeader, MacAddress, checksum, emit_frame};

use crate::{FirstData, Pattern};

/// When something that was not acknowledged is sent again.
const TIMEOUT: Duration = Duration::from_millis(400);

/// Where a subflow runs.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// The client's address.
    pub local: SocketAddr,
    /// The server's.
    pub remote: SocketAddr,
    /// The cable; what number stands for which is the owner's business, as is the delay.
    pub seat: usize,
    /// How long a frame takes, one way.
    pub delay: Duration,
}

/// What a client does.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The length of its stream, bytes.
    pub len: u64,
    /// Whether it opens subflows and sends by itself; chunks go over the subflows in turn.
    pub automatic: bool,
    /// Where its subflows run, the first one first. All the others join once the server has
    /// acknowledged data.
    pub paths: Vec<Path>,
    /// Bytes of a segment, which is a mapping of its own.
    pub chunk: u32,
    /// Chunks on one subflow that are not acknowledged, at most.
    pub in_flight: usize,
    /// How the first mapping is told. With [`FirstData::Dss`], its handshake must not get lost.
    pub first_data: FirstData,
    /// Whether it requires data-level checksums.
    pub checksums: bool,
    /// A chunk, by its place in the stream, that a middlebox damages when it is sent first.
    pub damaged: Option<u64>,
    /// What it opens a subflow by when it is told of an address.
    pub on_announcement: Option<fn(&AddAddr) -> Option<Path>>,
}

/// How far a subflow has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The SYN is not answered.
    SynSent,
    /// The third ACK of a join is not answered.
    Joining,
    /// Data may be sent.
    Established,
    /// Closed in good order.
    Closed,
    /// With the reason of MP_TCPRST.
    Reset(Option<u8>),
}

/// A chunk that was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    /// Its place in the subflow; the first is 1.
    ssn: u32,
    offset: u64,
    len: u32,
}

/// What a client knows of one of its subflows.
#[derive(Debug)]
pub struct Subflow {
    /// Where it runs. It may be moved to another cable at any time.
    pub path: Path,
    /// How far it has come.
    pub state: State,
    /// Without it the client does not go on with its handshake.
    pub answers: bool,
    isn: SeqNum,
    /// The next octet to send, as a place in the subflow.
    next: u32,
    unacked: VecDeque<Sent>,
    sent_at: Option<Instant>,
    received: SeqNum,
    scale: WindowScale,
    nonce: u32,
    /// The last DATA_ACK that came here, as a place in the stream.
    pub data_ack: u64,
    /// The last right edge of the window that came here, likewise.
    pub right_edge: u64,
    /// Segments that came.
    pub heard: u64,
    fin_sent: bool,
    fin_received: bool,
    /// The number in the last MP_FAIL that came here.
    pub failed_at: Option<u64>,
}

/// A client: one connection with any number of subflows.
///
/// Its owner passes it frames ([`on_frame`](Self::on_frame)) and the time ([`poll`](Self::poll)),
/// and sends what it yields ([`take_out`](Self::take_out)).
#[derive(Debug)]
pub struct Client {
    options: ClientOptions,
    local: LocalKey,
    remote: Option<LocalKey>,
    pattern: Pattern,
    /// Its subflows, in the order in which they were opened.
    pub subflows: Vec<Subflow>,
    /// Up to where the stream was sent for the first time.
    next: u64,
    /// Up to where the stream is acknowledged at the data level; DATA_FIN counts as one byte.
    pub acked: u64,
    /// Up to where it may be sent.
    right_edge: u64,
    lost: VecDeque<(u64, u32)>,
    turn: usize,
    fin_at: Option<Instant>,
    remote_fin: bool,
    /// Whether the server has aborted the connection by MP_FASTCLOSE, with the right key.
    pub fast_closed: bool,
    /// How often something was sent again after a timeout.
    pub timeouts: u64,
    /// The addresses that the server has announced, and not taken back.
    pub announced: Vec<AddAddr>,
    /// The identifiers of those that it has taken back.
    pub forgotten: Vec<u8>,
    /// Whether it echoes announcements.
    pub echoes: bool,
    out: Vec<(Path, Vec<u8>)>,
}

/// The paths of client number `n`: `count` of them, all from 10.0.0.1 to `to`, on cable after cable.
pub fn paths(n: u16, count: u16, seats: usize, to: SocketAddr) -> Vec<Path> {
    let path = |k: u16| Path {
        local: SocketAddr::new([10, 0, 0, 1].into(), 40_000 + n * 100 + k),
        remote: to,
        seat: usize::from(k) % seats,
        delay: Duration::from_micros(50),
    };
    (0..count).map(path).collect()
}

impl ClientOptions {
    /// A client that sends `len` bytes by itself, without checksums, in chunks of 1000 bytes.
    #[must_use]
    pub fn new(len: u64, paths: Vec<Path>) -> Self {
        Self {
            len,
            automatic: true,
            paths,
            chunk: 1000,
            in_flight: 20,
            first_data: FirstData::Dss,
            checksums: false,
            damaged: None,
            on_announcement: None,
        }
    }
}

impl Client {
    /// A client that is about to connect.
    ///
    /// # Panics
    ///
    /// If there is no path, or its port is below 40000: the pattern goes by that.
    #[must_use]
    pub fn new(options: ClientOptions) -> Self {
        let port = options.paths[0].local.port();
        Self {
            options,
            local: LocalKey::new(Key(0x1234_5678_0000_0000 + u64::from(port))),
            remote: None,
            pattern: Pattern::new(u64::from(port - 40_000)),
            subflows: Vec::new(),
            next: 0,
            acked: 0,
            right_edge: 0,
            lost: VecDeque::new(),
            turn: 0,
            fin_at: None,
            remote_fin: false,
            fast_closed: false,
            timeouts: 0,
            announced: Vec::new(),
            forgotten: Vec::new(),
            echoes: true,
            out: Vec::new(),
        }
    }

    /// The token that joins the connection.
    ///
    /// # Panics
    ///
    /// If the server has not answered.
    #[must_use]
    pub fn token(&self) -> Token {
        self.remote.expect("the connection is established").token
    }

    /// From now on it sends by itself, or does not.
    pub fn set_automatic(&mut self, automatic: bool) {
        self.options.automatic = automatic;
    }

    /// The length of what it sends.
    pub fn set_len(&mut self, len: u64) {
        self.options.len = len;
    }

    /// Whether all is over.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let over = |subflow: &Subflow| matches!(subflow.state, State::Closed | State::Reset(_));
        !self.subflows.is_empty() && self.subflows.iter().all(over)
    }

    /// Whether the server has all of it.
    #[must_use]
    pub fn is_acknowledged(&self) -> bool {
        self.acked == self.options.len + 1
    }

    /// Sends a SYN: the first opens the connection, the others join it. Gives the subflow's place.
    pub fn open(&mut self, now: Instant, path: Path) -> usize {
        let index = self.subflows.len();
        let subflow = Subflow {
            path,
            state: State::SynSent,
            answers: true,
            isn: SeqNum(0x1000 * (index as u32 + 1)),
            next: 1,
            unacked: VecDeque::new(),
            sent_at: Some(now),
            received: SeqNum(0),
            scale: WindowScale::ZERO,
            nonce: 0xabcd + index as u32,
            data_ack: 0,
            right_edge: 0,
            heard: 0,
            fin_sent: false,
            fin_received: false,
            failed_at: None,
        };
        self.subflows.push(subflow);
        self.syn(index, None);
        index
    }

    /// A SYN of subflow `index`, with another token than the right one if one is given.
    pub fn syn(&mut self, index: usize, token: Option<Token>) {
        let subflow = &self.subflows[index];
        let mut options = Options {
            mss: Some(1400),
            window_scale: Some(WindowScale::new(7)),
            sack_permitted: true,
            ..Options::default()
        };
        if index == 0 {
            options.mptcp.capable = Some(self.capable(MpCapableBody::Syn));
        } else {
            options.mptcp.join = Some(MpJoin::Syn {
                backup: false,
                address_id: AddressId(index as u8),
                token: token.unwrap_or_else(|| self.token()),
                nonce: subflow.nonce,
            });
        }
        let segment = Segment {
            seq: subflow.isn,
            flags: Flags::SYN,
            window: 65535,
            options,
            ..Segment::default()
        };
        self.emit(index, &segment, &[]);
    }

    fn capable(&self, body: MpCapableBody) -> MpCapable {
        MpCapable {
            version: 1,
            checksum_required: self.options.checksums,
            extensibility: false,
            no_join_to_initial_address: false,
            algorithms: 1,
            body,
        }
    }

    fn emit(&mut self, index: usize, segment: &Segment, payload: &[u8]) {
        let path = self.subflows[index].path;
        let link = LinkHeader::new(MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2]));
        let mut buf = vec![0; payload.len() + 200];
        let ip = IpFields::default();
        let len = emit_frame(&mut buf, &link, path.local, path.remote, ip, segment, payload)
            .expect("what clients say fits");
        buf.truncate(len);
        self.out.push((path, buf));
    }

    /// A segment without payload, as an acknowledgement is.
    fn blank(&self, index: usize) -> Segment {
        let subflow = &self.subflows[index];
        let ack =
            self.remote.map(|remote| remote.idsn.0.wrapping_add(1 + u64::from(self.remote_fin)));
        let mut options = Options::default();
        options.mptcp.dss = Some(Dss { ack: ack.map(DssNumber::Long), ..Dss::default() });
        Segment {
            seq: subflow.isn + subflow.next,
            ack: subflow.received,
            flags: Flags::ACK,
            window: 65535,
            options,
            ..Segment::default()
        }
    }

    fn acknowledge(&mut self, index: usize) {
        let segment = self.blank(index);
        self.emit(index, &segment, &[]);
    }

    /// Sends a part of the stream on a subflow, as new there.
    pub fn send(&mut self, now: Instant, index: usize, offset: u64, len: u32) {
        let subflow = &mut self.subflows[index];
        let sent = Sent { ssn: subflow.next, offset, len };
        subflow.next += len;
        subflow.unacked.push_back(sent);
        subflow.sent_at.get_or_insert(now);
        let damaged = self.options.damaged.take_if(|damaged| *damaged == offset).is_some();
        self.transmit(index, &sent, damaged);
    }

    fn transmit(&mut self, index: usize, sent: &Sent, damaged: bool) {
        let mut payload = vec![0; sent.len as usize];
        self.pattern.fill(sent.offset, &mut payload);
        let data_seq = self.local.idsn.0.wrapping_add(1).wrapping_add(sent.offset);
        let checksum = self.options.checksums.then(|| {
            let header = [
                &data_seq.to_be_bytes()[..],
                &sent.ssn.to_be_bytes(),
                &(sent.len as u16).to_be_bytes(),
            ]
            .concat();
            !checksum::fold(checksum::sum(&header) + checksum::sum(&payload))
        });
        if damaged {
            payload[7] ^= 0x20;
        }
        let mut segment = self.blank(index);
        segment.seq = self.subflows[index].isn + sent.ssn;
        segment.payload_len = sent.len;
        let length = sent.len as u16;
        let first = index == 0 && sent.ssn == 1 && self.acked == 0;
        if first
            && self.options.first_data == FirstData::Capable
            && let Some(LocalKey { key: receiver, .. }) = self.remote
        {
            let data = Some(MpCapableData { length, checksum });
            let body = MpCapableBody::Ack { sender: self.local.key, receiver, data };
            segment.options.mptcp.dss = None;
            segment.options.mptcp.capable = Some(self.capable(body));
        } else if let Some(dss) = &mut segment.options.mptcp.dss {
            dss.mapping = Some(DssMapping {
                data_seq: DssNumber::Long(data_seq),
                subflow_seq: sent.ssn,
                length,
                checksum,
            });
        }
        self.emit(index, &segment, &payload);
    }

    /// Says on a subflow that the stream ends at its length.
    pub fn data_fin(&mut self, now: Instant, index: usize) {
        self.fin_at = Some(now);
        let data_seq = self.local.idsn.0.wrapping_add(1).wrapping_add(self.options.len);
        let checksum = self.options.checksums.then(|| {
            let header =
                [&data_seq.to_be_bytes()[..], &0_u32.to_be_bytes(), &1_u16.to_be_bytes()].concat();
            !checksum::fold(checksum::sum(&header))
        });
        let mut segment = self.blank(index);
        if let Some(dss) = &mut segment.options.mptcp.dss {
            dss.data_fin = true;
            dss.mapping = Some(DssMapping {
                data_seq: DssNumber::Long(data_seq),
                subflow_seq: 0,
                length: 1,
                checksum,
            });
        }
        self.emit(index, &segment, &[]);
    }

    /// Resets one subflow, or the whole connection by it.
    pub fn reset(&mut self, index: usize, connection: bool) {
        let mut segment = self.blank(index);
        segment.flags = Flags::RST.with(Flags::ACK);
        segment.options.mptcp.dss = None;
        segment.options.mptcp.fast_close =
            self.remote.filter(|_| connection).map(|remote| remote.key);
        self.emit(index, &segment, &[]);
        self.lose(index, None);
    }

    /// Says on a subflow that the addresses with these identifiers are given up.
    ///
    /// # Panics
    ///
    /// If they are more than eight.
    pub fn remove_addresses(&mut self, index: usize, ids: &[u8]) {
        let mut removed = RemoveAddr::default();
        for &id in ids {
            assert!(removed.push(AddressId(id)), "an option has room for eight");
        }
        let mut segment = self.blank(index);
        segment.options.mptcp.remove_addr = Some(removed);
        self.emit(index, &segment, &[]);
    }

    /// A subflow has ended: what went by it goes by others.
    fn lose(&mut self, index: usize, reason: Option<u8>) {
        let subflow = &mut self.subflows[index];
        subflow.state = State::Reset(reason);
        subflow.sent_at = None;
        self.lost.extend(subflow.unacked.drain(..).map(|sent| (sent.offset, sent.len)));
    }

    /// What is to be sent, with the path that each frame takes.
    pub fn take_out(&mut self) -> Vec<(Path, Vec<u8>)> {
        std::mem::take(&mut self.out)
    }

    /// When [`poll`](Self::poll) has something to do although nothing came.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let fin = self.fin_at.filter(|_| !self.is_acknowledged() && !self.is_done());
        let sent = self.subflows.iter().filter(|s| s.answers).filter_map(|s| s.sent_at);
        sent.chain(fin).min().map(|at| at + TIMEOUT)
    }

    /// Does what a client does by itself.
    pub fn poll(&mut self, now: Instant) {
        if self.subflows.is_empty() {
            self.open(now, self.options.paths[0]);
        }
        if self.options.automatic {
            if self.acked > 0 {
                while let Some(path) = self.options.paths.get(self.subflows.len()).copied() {
                    self.open(now, path);
                }
            }
            self.send_all(now);
        }
        for index in 0..self.subflows.len() {
            self.poll_subflow(now, index);
        }
    }

    /// The subflows that data can go by now, from that whose turn it is on.
    fn usable(&self) -> Option<usize> {
        let count = self.subflows.len();
        (0..count).map(|n| (self.turn + n) % count).find(|&index| {
            let subflow = &self.subflows[index];
            subflow.state == State::Established && subflow.unacked.len() < self.options.in_flight
        })
    }

    fn send_all(&mut self, now: Instant) {
        let (len, chunk) = (self.options.len, self.options.chunk);
        while let Some(index) = self.usable() {
            if let Some((offset, len)) = self.lost.pop_front() {
                if offset + u64::from(len) > self.acked {
                    self.send(now, index, offset, len);
                }
            } else if self.next < len {
                let part = u64::from(chunk).min(len - self.next);
                // Of the first data the server learns that options pass; until then, no more.
                let early = self.acked == 0 && self.next > 0;
                if early || self.next + part > self.right_edge {
                    break;
                }
                let offset = self.next;
                self.next += part;
                self.send(now, index, offset, part as u32);
            } else {
                let due = self.fin_at.is_none_or(|at| at + TIMEOUT <= now);
                if due && !self.is_acknowledged() {
                    self.timeouts += u64::from(self.fin_at.is_some());
                    self.data_fin(now, index);
                    // One subflow may lose it each time.
                    self.turn = index + 1;
                }
                break;
            }
            self.turn = index + 1;
        }
    }

    fn poll_subflow(&mut self, now: Instant, index: usize) {
        let subflow = &mut self.subflows[index];
        let closing = self.remote_fin && self.acked == self.options.len + 1;
        if closing && subflow.state == State::Established && !subflow.fin_sent {
            subflow.fin_sent = true;
            subflow.sent_at = Some(now);
            self.fin(index);
        }
        let subflow = &mut self.subflows[index];
        if !subflow.answers || subflow.sent_at.is_none_or(|at| at + TIMEOUT > now) {
            return;
        }
        self.timeouts += 1;
        subflow.sent_at = Some(now);
        match subflow.state {
            State::SynSent => self.syn(index, None),
            State::Joining => self.third_ack(index),
            State::Established if subflow.unacked.is_empty() => self.fin(index),
            State::Established => {
                for sent in subflow.unacked.clone() {
                    self.transmit(index, &sent, false);
                }
            }
            State::Closed | State::Reset(_) => {}
        }
    }

    fn fin(&mut self, index: usize) {
        let mut segment = self.blank(index);
        segment.flags = segment.flags.with(Flags::FIN);
        self.emit(index, &segment, &[]);
    }

    fn third_ack(&mut self, index: usize) {
        let Some(remote) = self.remote else { return };
        let mut segment = self.blank(index);
        segment.options.mptcp.dss = None;
        if index == 0 {
            let body =
                MpCapableBody::Ack { sender: self.local.key, receiver: remote.key, data: None };
            segment.options.mptcp.capable = Some(self.capable(body));
        } else {
            let subflow = &self.subflows[index];
            // The server's nonce is kept in the right edge's place until there is one.
            let theirs = subflow.right_edge as u32;
            let hmac = JoinHmac::new(self.local.key, remote.key, subflow.nonce, theirs);
            segment.options.mptcp.join = Some(MpJoin::Ack { hmac: hmac.leftmost_160() });
        }
        self.emit(index, &segment, &[]);
    }

    /// Takes in a frame, whose checksums are right; says whether it was for this client.
    ///
    /// # Panics
    ///
    /// If a SYN/ACK does not say what one of a server that speaks MPTCP has to.
    pub fn on_frame(&mut self, now: Instant, frame: &Frame) -> bool {
        let ours = |s: &Subflow| s.path.local == frame.local && s.path.remote == frame.remote;
        let Some(index) = self.subflows.iter().rposition(ours) else { return false };
        let segment = &frame.segment;
        let mptcp = &segment.options.mptcp;
        let subflow = &mut self.subflows[index];
        subflow.heard += 1;
        subflow.failed_at = mptcp.fail.or(subflow.failed_at);
        if segment.flags.contains(Flags::RST) {
            self.fast_closed |= mptcp.fast_close.is_some_and(|key| key == self.local.key);
            self.lose(index, mptcp.reset.map(|reset| reset.reason));
            return true;
        }
        if !subflow.answers {
            return true;
        }
        match subflow.state {
            State::SynSent => self.on_syn_ack(index, segment),
            State::Joining | State::Established => self.on_segment(now, index, segment),
            State::Closed => self.acknowledge(index),
            State::Reset(_) => {}
        }
        true
    }

    fn on_syn_ack(&mut self, index: usize, segment: &Segment) {
        let subflow = &mut self.subflows[index];
        if !segment.flags.contains(Flags::SYN.with(Flags::ACK)) {
            return;
        }
        subflow.received = segment.seq + 1;
        subflow.scale = segment.options.window_scale.unwrap_or(WindowScale::ZERO);
        if index == 0 {
            let Some(MpCapable { body: MpCapableBody::SynAck { sender }, .. }) =
                segment.options.mptcp.capable
            else {
                panic!("no MPTCP: {segment:?}");
            };
            let (token, idsn) = key_to_token_and_idsn(sender);
            self.remote = Some(LocalKey { key: sender, token, idsn });
            self.right_edge = segment.window.into();
            subflow.state = State::Established;
            subflow.sent_at = None;
        } else {
            let Some(MpJoin::SynAck { hmac, nonce, .. }) = segment.options.mptcp.join else {
                // A middlebox makes a plain connection of it, which is of no use.
                return self.reset(index, false);
            };
            let remote = self.remote.expect("joins come after the handshake");
            let right = JoinHmac::new(remote.key, self.local.key, nonce, subflow.nonce);
            assert!(right.matches_64(hmac), "a wrong HMAC");
            subflow.right_edge = nonce.into();
            subflow.state = State::Joining;
        }
        self.third_ack(index);
    }

    fn on_segment(&mut self, now: Instant, index: usize, segment: &Segment) {
        let first = self.local.idsn + 1;
        let subflow = &mut self.subflows[index];
        if segment.flags.contains(Flags::SYN) {
            return self.third_ack(index);
        }
        let acked = segment.ack.distance_from(subflow.isn) as u32;
        // "If the ACK acks something not yet sent [...], then [...] drop the segment" (RFC 9293,
        // section 3.10.7.4).
        if acked > subflow.next + u32::from(subflow.fin_sent) {
            return;
        }
        if subflow.unacked.pop_front_if(|sent| sent.ssn + sent.len <= acked).is_some() {
            while subflow.unacked.pop_front_if(|sent| sent.ssn + sent.len <= acked).is_some() {}
            subflow.sent_at = (!subflow.unacked.is_empty()).then_some(now);
        }
        if let Some(dss) = segment.options.mptcp.dss {
            if let Some(DssNumber::Long(ack)) = dss.ack {
                if subflow.state == State::Joining {
                    subflow.state = State::Established;
                    subflow.sent_at = None;
                }
                subflow.data_ack = DataSeq(ack).distance_from(first) as u64;
                let window = u64::from(segment.window) << subflow.scale.shift();
                subflow.right_edge = subflow.data_ack + window;
                self.acked = self.acked.max(subflow.data_ack);
                self.right_edge = self.right_edge.max(subflow.right_edge);
            }
            if dss.data_fin {
                self.remote_fin = true;
                self.acknowledge(index);
            }
        }
        let subflow = &mut self.subflows[index];
        if segment.flags.contains(Flags::FIN) && segment.seq == subflow.received {
            subflow.received += 1;
            subflow.fin_received = true;
            subflow.next += u32::from(subflow.fin_sent);
            self.acknowledge(index);
        }
        let subflow = &mut self.subflows[index];
        if subflow.fin_sent && subflow.fin_received {
            subflow.state = State::Closed;
            subflow.sent_at = None;
        }
        if let Some(removed) = segment.options.mptcp.remove_addr {
            self.announced.retain(|known| !removed.as_slice().contains(&known.id));
            self.forgotten.extend(removed.as_slice().iter().map(|id| id.0));
        }
        if let Some(theirs) = segment.options.mptcp.add_addr
            && theirs.hmac.is_some()
        {
            if self.echoes {
                let mut echo = self.blank(index);
                echo.options.mptcp.dss = None;
                echo.options.mptcp.add_addr = Some(AddAddr { hmac: None, ..theirs });
                self.emit(index, &echo, &[]);
            }
            if !self.announced.iter().any(|known| known.id == theirs.id) {
                self.announced.push(theirs);
                let path = self.options.on_announcement.and_then(|path| path(&theirs));
                self.options.paths.extend(path);
            }
        }
    }
}
