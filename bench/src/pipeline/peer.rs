//! The sending side: connections whose every packet is made ahead of the measurement.
//!
//! It is a client without timers or retransmission, since the cable loses nothing. It sends one
//! mapping a segment, as a sender without segmentation offload does, with timestamps and 64-bit
//! data sequence numbers: 40 octets of options, the most there can be.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use mpxdp_proto::connection::LocalKey;
use mpxdp_proto::crypto::JoinHmac;
use mpxdp_proto::segment::{
    AddressId, Dss, DssMapping, DssNumber, Flags, Key, MpCapable, MpCapableBody, MpJoin, Options,
    Segment, Timestamps, WindowScale,
};
use mpxdp_proto::seq::SeqNum;
use mpxdp_proto::wire::{Frame, IpFields, LinkHeader, MacAddress, emit_frame, parse_frame};
use mpxdp_sim::Pattern;

use crate::{Error, Result};

/// The server's address.
pub(super) const SERVER_IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// Where everything is sent to.
pub(super) const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(SERVER_IP), 5001);
/// Where the first subflow of each connection comes from; the others have addresses that follow.
pub(super) const CLIENT_IP: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
/// The link header of every frame.
pub(super) const LINK: LinkHeader =
    LinkHeader::new(MacAddress([2, 0, 0, 0, 0, 2]), MacAddress([2, 0, 0, 0, 0, 1]));

/// A client's ports start here; each connection has one.
const FIRST_PORT: u16 = 10_000;
/// The most connections there can be: each has a port of its own.
pub(super) const MAX_CONNECTIONS: u32 = 50_000;
/// A packet that is late comes after 1 to about so many others of its connection: the largest still
/// find room in a ring of 256 KiB behind a gap.
const LATEST: u32 = 16;

/// What the packets are like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) connections: u32,
    /// Of each connection.
    pub(super) subflows: u32,
    /// Octets of each packet.
    pub(super) payload: usize,
    /// Of 100 packets, so many are late.
    pub(super) reorder: f64,
    pub(super) mptcp: bool,
}

/// All clients.
pub(super) struct Peer {
    shape: Shape,
    connections: Vec<Connection>,
    /// The connection of the next packet.
    next: usize,
    /// TSval, in milliseconds.
    clock: u32,
    random: u64,
    payload: Vec<u8>,
}

struct Connection {
    local: LocalKey,
    remote: LocalKey,
    pattern: Pattern,
    /// The next place in the stream.
    offset: u64,
    subflows: Vec<Subflow>,
    /// The subflow of the next packet: they take turns, packet by packet.
    next: usize,
    /// The highest DATA_ACK, or acknowledgement of plain TCP, as a place in the stream.
    acknowledged: u64,
}

struct Subflow {
    local: SocketAddr,
    isn: SeqNum,
    /// The subflow sequence number of the next octet; the first is 1.
    next: u32,
    /// What is expected of the server.
    expected: SeqNum,
    echo: u32,
    /// A packet that is late, and after how many others of the subflow it comes, less one.
    late: Option<(Data, u32)>,
}

/// One packet of the stream.
#[derive(Clone, Copy)]
struct Data {
    subflow_seq: u32,
    offset: u64,
}

impl Peer {
    pub(super) fn new(shape: Shape) -> Self {
        let connections = (0..shape.connections).map(|index| {
            let subflows = (0..shape.subflows).map(|subflow| Subflow {
                local: client(index, subflow),
                // Soon after the start the sequence numbers wrap.
                isn: SeqNum(0xffff_0000 + subflow),
                next: 1,
                expected: SeqNum(1),
                echo: 0,
                late: None,
            });
            Connection {
                local: LocalKey::new(Key(0x1234_5678_0000_0000 + u64::from(index))),
                remote: LocalKey::new(Key(1)),
                pattern: pattern(index),
                offset: 0,
                subflows: subflows.collect(),
                next: 0,
                acknowledged: 0,
            }
        });
        Self {
            connections: connections.collect(),
            shape,
            next: 0,
            clock: 1,
            random: 0x9e37_79b9_7f4a_7c15,
            payload: vec![0; shape.payload],
        }
    }

    /// Octets of a packet with payload before its payload.
    pub(super) fn headers(mptcp: bool) -> usize {
        let options = if mptcp { 40 } else { 12 };
        LINK.wire_len() + 20 + 20 + options
    }

    /// From now on packets carry so many octets.
    pub(super) fn set_payload(&mut self, payload: usize) {
        self.shape.payload = payload;
        self.payload.resize(payload, 0);
    }

    /// From now on so many of 100 packets are late.
    pub(super) fn set_reorder(&mut self, percent: f64) {
        self.shape.reorder = percent;
    }

    /// What the packets are like.
    pub(super) const fn shape(&self) -> Shape {
        self.shape
    }

    /// Lets time pass on the clients.
    pub(super) fn tick(&mut self) {
        self.clock += 1;
    }

    /// Octets of a connection's stream that were sent, or are late.
    pub(super) fn sent(&self, connection: usize) -> u64 {
        self.connections[connection].offset
    }

    /// Octets of a connection's stream that the server acknowledged.
    pub(super) fn acknowledged(&self, connection: usize) -> u64 {
        self.connections[connection].acknowledged
    }

    /// Opens one connection with all its subflows; where there are several, some data opens the way
    /// for them.
    ///
    /// # Errors
    ///
    /// The server did not do what it should.
    pub(super) fn open(&mut self, index: usize, exchange: &mut Exchange<'_>) -> Result<()> {
        let mut buf = vec![0; 256 + self.shape.payload];
        let subflows = self.connections[index].subflows.len();
        for subflow in 0..subflows {
            let syn = self.syn(index, subflow);
            let len = self.emit(index, subflow, &syn, &[], &mut buf);
            let answer = self.talk(exchange, &buf[..len]);
            let ack = self.on_syn_ack(index, subflow, answer)?;
            let len = self.emit(index, subflow, &ack, &[], &mut buf);
            self.talk(exchange, &buf[..len]);
            if subflow == 0 && subflows > 1 {
                // A subflow may join once options are known to pass.
                let first = self.connections[index].fresh(0, self.shape.payload);
                let len = self.emit_data(index, 0, first, &mut buf);
                self.talk(exchange, &buf[..len]);
            }
        }
        Ok(())
    }

    /// As if connections had been opened, to a server that does not answer.
    pub(super) fn pretend(&mut self) {
        for subflow in self.connections.iter_mut().flat_map(|connection| &mut connection.subflows) {
            subflow.echo = 1;
        }
    }

    /// Writes the next packet to `buf`; gives its length and its connection.
    pub(super) fn next_packet(&mut self, buf: &mut Vec<u8>) -> (usize, usize) {
        let index = self.next;
        self.next = (index + 1) % self.connections.len();
        let Shape { payload, reorder, .. } = self.shape;
        let random = self.draw();
        let connection = &mut self.connections[index];
        let subflow = connection.next;
        connection.next = (subflow + 1) % connection.subflows.len();
        let late = &mut connection.subflows[subflow].late;
        if let Some((data, 0)) = *late {
            *late = None;
            return (self.emit_data(index, subflow, data, buf), index);
        }
        if let Some((_, others)) = late {
            *others -= 1;
        } else if ((random >> 32) as f64) < reorder / 100.0 * f64::from(u32::MAX) {
            let data = connection.fresh(subflow, payload);
            // Between two of a subflow comes one of each other.
            let others = random as u32 % LATEST / connection.subflows.len() as u32;
            connection.subflows[subflow].late = Some((data, others));
        }
        let data = self.connections[index].fresh(subflow, payload);
        (self.emit_data(index, subflow, data, buf), index)
    }

    /// Writes a packet that is late to `buf`, however late it is; gives its length and its
    /// connection.
    pub(super) fn next_late(&mut self, buf: &mut Vec<u8>) -> Option<(usize, usize)> {
        let (index, subflow, data) =
            self.connections.iter_mut().enumerate().find_map(|(index, connection)| {
                let mut subflows = connection.subflows.iter_mut().enumerate();
                let (subflow, (data, _)) =
                    subflows.find_map(|(at, subflow)| Some((at, subflow.late.take()?)))?;
                Some((index, subflow, data))
            })?;
        Some((self.emit_data(index, subflow, data, buf), index))
    }

    /// Takes in a frame of the server.
    pub(super) fn on_frame(&mut self, bytes: &[u8]) -> Option<Segment> {
        let Frame { local, segment, .. } = parse_frame(bytes, bytes.len()).ok()?;
        let SocketAddr::V4(to) = local else { return None };
        let subflow = usize::from(to.ip().octets()[1].checked_sub(CLIENT_IP.octets()[1])?);
        let index = usize::from(to.port().checked_sub(FIRST_PORT)?);
        let connection = self.connections.get_mut(index)?;
        let subflow = connection.subflows.get_mut(subflow)?;
        if let Some(stamps) = segment.options.timestamps {
            subflow.echo = stamps.value;
        }
        let acknowledged = match segment.options.mptcp.dss.and_then(|dss| dss.ack) {
            Some(DssNumber::Long(ack)) => ack.wrapping_sub(connection.local.idsn.0.wrapping_add(1)),
            // Of plain TCP: the one subflow's.
            _ if !self.shape.mptcp => {
                let behind = (subflow.isn + subflow.next).distance_from(segment.ack);
                (connection.offset as i64 - i64::from(behind)) as u64
            }
            _ => 0,
        };
        if acknowledged <= connection.offset {
            connection.acknowledged = connection.acknowledged.max(acknowledged);
        }
        Some(segment)
    }

    fn talk(&mut self, exchange: &mut Exchange<'_>, frame: &[u8]) -> Option<Segment> {
        let mut first = None;
        exchange(frame, &mut |answer| {
            let segment = self.on_frame(answer);
            first = first.or(segment);
        });
        first
    }

    fn syn(&self, index: usize, subflow: usize) -> Segment {
        let Connection { remote, subflows, .. } = &self.connections[index];
        let mut options = Options {
            mss: Some(1460),
            window_scale: Some(WindowScale::new(7)),
            sack_permitted: true,
            ..Options::default()
        };
        if !self.shape.mptcp {
        } else if subflow == 0 {
            options.mptcp.capable = Some(capable(MpCapableBody::Syn));
        } else {
            options.mptcp.join = Some(MpJoin::Syn {
                backup: false,
                address_id: AddressId(subflow as u8),
                token: remote.token,
                nonce: nonce(subflow),
            });
        }
        Segment {
            seq: subflows[subflow].isn,
            flags: Flags::SYN,
            window: u16::MAX,
            options,
            ..Segment::default()
        }
    }

    /// Takes the answer to a SYN; gives the third segment of the handshake.
    fn on_syn_ack(
        &mut self,
        index: usize,
        subflow: usize,
        answer: Option<Segment>,
    ) -> Result<Segment> {
        let wrong = || Error::Failed(format!("connection {index}: no right answer to its SYN"));
        let answer = answer.filter(|answer| answer.flags.contains(Flags::SYN.with(Flags::ACK)));
        let answer = answer.ok_or_else(wrong)?;
        let connection = &mut self.connections[index];
        connection.subflows[subflow].expected = answer.seq + 1;
        let mut ack = connection.blank(subflow);
        ack.options = Options::default();
        if !self.shape.mptcp {
            return Ok(ack);
        }
        let mptcp = &answer.options.mptcp;
        if subflow == 0 {
            let Some(MpCapable { body: MpCapableBody::SynAck { sender }, .. }) = mptcp.capable
            else {
                return Err(wrong());
            };
            connection.remote = LocalKey::new(sender);
            let receiver = sender;
            let sender = connection.local.key;
            let body = MpCapableBody::Ack { sender, receiver, data: None };
            ack.options.mptcp.capable = Some(capable(body));
        } else {
            let Some(MpJoin::SynAck { nonce: theirs, .. }) = mptcp.join else {
                return Err(wrong());
            };
            let (ours, remote) = (connection.local.key, connection.remote.key);
            let hmac = JoinHmac::new(ours, remote, nonce(subflow), theirs);
            ack.options.mptcp.join = Some(MpJoin::Ack { hmac: hmac.leftmost_160() });
        }
        Ok(ack)
    }

    fn emit_data(&mut self, index: usize, subflow: usize, data: Data, buf: &mut Vec<u8>) -> usize {
        let mut payload = std::mem::take(&mut self.payload);
        let connection = &self.connections[index];
        connection.pattern.fill(data.offset, &mut payload);
        let mut segment = connection.blank(subflow);
        segment.seq = connection.subflows[subflow].isn + data.subflow_seq;
        segment.flags = Flags::ACK.with(Flags::PSH);
        segment.payload_len = payload.len() as u32;
        if self.shape.mptcp {
            let data_seq = connection.local.idsn.0.wrapping_add(1).wrapping_add(data.offset);
            segment.options.mptcp.dss = Some(Dss {
                ack: Some(DssNumber::Long(connection.remote.idsn.0.wrapping_add(1))),
                mapping: Some(DssMapping {
                    data_seq: DssNumber::Long(data_seq),
                    subflow_seq: data.subflow_seq,
                    // A payload fits a packet.
                    length: payload.len() as u16,
                    checksum: None,
                }),
                data_fin: false,
            });
        }
        let len = self.emit(index, subflow, &segment, &payload, buf);
        self.payload = payload;
        len
    }

    fn emit(
        &self,
        index: usize,
        subflow: usize,
        segment: &Segment,
        payload: &[u8],
        buf: &mut Vec<u8>,
    ) -> usize {
        let subflow = &self.connections[index].subflows[subflow];
        let mut segment = *segment;
        segment.options.timestamps = Some(Timestamps { value: self.clock, echo: subflow.echo });
        buf.resize(buf.len().max(256 + payload.len()), 0);
        emit_frame(buf, &LINK, subflow.local, SERVER, IpFields::default(), &segment, payload)
            .expect("the buffer has room, and the options fit")
    }

    fn draw(&mut self) -> u64 {
        // xorshift64: the same packets are late each time.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

impl Connection {
    /// The next packet of the stream, on `subflow`.
    fn fresh(&mut self, subflow: usize, payload: usize) -> Data {
        let subflow = &mut self.subflows[subflow];
        let data = Data { subflow_seq: subflow.next, offset: self.offset };
        subflow.next = subflow.next.wrapping_add(payload as u32);
        self.offset += payload as u64;
        data
    }

    /// A segment without options.
    fn blank(&self, subflow: usize) -> Segment {
        let Subflow { isn, next, expected, .. } = self.subflows[subflow];
        Segment {
            seq: isn + next,
            ack: expected,
            flags: Flags::ACK,
            window: u16::MAX,
            ..Segment::default()
        }
    }
}

/// Passes a frame to the server, and what comes back to a function.
pub(super) type Exchange<'a> = dyn FnMut(&[u8], &mut dyn FnMut(&[u8])) + 'a;

/// The stream of connection number `index`.
pub(super) fn pattern(index: u32) -> Pattern {
    Pattern::new(index.into())
}

/// Where a subflow of connection number `index` comes from.
fn client(index: u32, subflow: u32) -> SocketAddr {
    let [a, b, c, d] = CLIENT_IP.octets();
    SocketAddr::new(Ipv4Addr::new(a, b + subflow as u8, c, d).into(), FIRST_PORT + index as u16)
}

const fn nonce(subflow: usize) -> u32 {
    0xabcd + subflow as u32
}

const fn capable(body: MpCapableBody) -> MpCapable {
    MpCapable {
        version: 1,
        checksum_required: false,
        extensibility: false,
        no_join_to_initial_address: false,
        algorithms: 1,
        body,
    }
}
