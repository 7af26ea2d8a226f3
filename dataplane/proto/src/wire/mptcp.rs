//! The options of Multipath TCP (RFC 8684), all of which are TCP options of kind 30.
//!
//! An option counts only if its length is exactly one that the RFC gives for its form; otherwise
//! it is ignored as a whole. Reserved bits are ignored, and sent as 0. The form of MP_CAPABLE and
//! MP_JOIN goes by the segment's SYN and ACK bits and by the length together (section 3.1), so a
//! form that does not belong into its segment is ignored as well. MP_CAPABLE counts only if it
//! offers what this implementation speaks: version 1 (or, in a SYN, a later one, which may be
//! negotiated down), HMAC-SHA256 (H), and no extensibility (B), which must then be ignored.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::options::Writer;
use crate::segment::{
    AddAddr, AddressId, Dss, DssMapping, DssNumber, Flags, Key, MpCapable, MpCapableBody,
    MpCapableData, MpJoin, MpReset, MptcpOptions, RemoveAddr, Token,
};

/// The kind of the TCP option that all of these are.
pub const KIND: u8 = 30;

const CAPABLE: u8 = 0x0;
const JOIN: u8 = 0x1;
const DSS: u8 = 0x2;
const ADD_ADDR: u8 = 0x3;
const REMOVE_ADDR: u8 = 0x4;
const PRIORITY: u8 = 0x5;
const FAIL: u8 = 0x6;
const FAST_CLOSE: u8 = 0x7;
const RESET: u8 = 0x8;

const CAPABLE_CHECKSUM: u8 = 0x80;
const CAPABLE_EXTENSIBILITY: u8 = 0x40;
const CAPABLE_NO_JOIN: u8 = 0x20;
const CAPABLE_ALGORITHMS: u8 = 0x1f;
const CAPABLE_HMAC_SHA256: u8 = 0x01;

const BACKUP: u8 = 0x01;
const ECHO: u8 = 0x01;

const DSS_ACK: u8 = 0x01;
const DSS_LONG_ACK: u8 = 0x02;
const DSS_MAPPING: u8 = 0x04;
const DSS_LONG_SEQ: u8 = 0x08;
const DSS_FIN: u8 = 0x10;

/// Parses one option, of which `body` is what follows kind and length, into its place in `into`,
/// unless that is taken.
#[inline]
pub(super) fn parse(body: &[u8], flags: Flags, into: &mut MptcpOptions) {
    let Some(subtype) = body.first().map(|first| first >> 4) else { return };
    if subtype == DSS {
        if into.dss.is_none() {
            into.dss = parse_dss(body);
        }
    } else {
        parse_rare(subtype, body, flags, into);
    }
}

fn parse_rare(subtype: u8, body: &[u8], flags: Flags, into: &mut MptcpOptions) {
    match subtype {
        CAPABLE => into.capable = into.capable.or_else(|| parse_capable(body, flags)),
        JOIN => into.join = into.join.or_else(|| parse_join(body, flags)),
        ADD_ADDR => into.add_addr = into.add_addr.or_else(|| parse_add_addr(body)),
        REMOVE_ADDR => into.remove_addr = into.remove_addr.or_else(|| parse_remove_addr(body)),
        PRIORITY => {
            if let &[first] = body {
                into.priority.get_or_insert(first & BACKUP != 0);
            }
        }
        FAIL => {
            if let Ok([_, _, number @ ..]) = <[u8; 10]>::try_from(body) {
                into.fail.get_or_insert_with(|| u64::from_be_bytes(number));
            }
        }
        FAST_CLOSE => {
            if let Ok([_, _, key @ ..]) = <[u8; 10]>::try_from(body) {
                into.fast_close.get_or_insert_with(|| Key(u64::from_be_bytes(key)));
            }
        }
        RESET => {
            if let &[first, reason] = body {
                into.reset.get_or_insert(MpReset { flags: first & 0x0f, reason });
            }
        }
        _ => {}
    }
}

/// Takes the first `N` octets off `rest`.
#[inline]
fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*taken)
}

#[inline]
fn parse_dss(body: &[u8]) -> Option<Dss> {
    let mut rest = body;
    let [_, flags] = take(&mut rest)?;
    let mut dss = Dss { data_fin: flags & DSS_FIN != 0, ack: None, mapping: None };
    if flags & DSS_ACK != 0 {
        dss.ack = Some(parse_number(&mut rest, flags & DSS_LONG_ACK != 0)?);
    }
    if flags & DSS_MAPPING != 0 {
        dss.mapping = Some(DssMapping {
            data_seq: parse_number(&mut rest, flags & DSS_LONG_SEQ != 0)?,
            subflow_seq: u32::from_be_bytes(take(&mut rest)?),
            length: u16::from_be_bytes(take(&mut rest)?),
            checksum: match rest.len() {
                2 => take(&mut rest).map(u16::from_be_bytes),
                _ => None,
            },
        });
    }
    rest.is_empty().then_some(dss)
}

#[inline]
fn parse_number(rest: &mut &[u8], long: bool) -> Option<DssNumber> {
    if long {
        take(rest).map(|number| DssNumber::Long(u64::from_be_bytes(number)))
    } else {
        take(rest).map(|number| DssNumber::Short(u32::from_be_bytes(number)))
    }
}

fn parse_capable(body: &[u8], flags: Flags) -> Option<MpCapable> {
    let mut rest = body;
    let [first, bits] = take(&mut rest)?;
    let version = first & 0x0f;
    if bits & CAPABLE_EXTENSIBILITY != 0 || bits & CAPABLE_HMAC_SHA256 == 0 {
        return None;
    }
    let body = match (flags.contains(Flags::SYN), flags.contains(Flags::ACK), rest.len()) {
        (true, false, 0) => MpCapableBody::Syn,
        (true, true, 8) => MpCapableBody::SynAck { sender: parse_key(&mut rest)? },
        (false, true, 16 | 18 | 20) => MpCapableBody::Ack {
            sender: parse_key(&mut rest)?,
            receiver: parse_key(&mut rest)?,
            data: take(&mut rest).map(|length| MpCapableData {
                length: u16::from_be_bytes(length),
                checksum: take(&mut rest).map(u16::from_be_bytes),
            }),
        },
        _ => return None,
    };
    let spoken = match body {
        MpCapableBody::Syn => version >= 1,
        MpCapableBody::SynAck { .. } | MpCapableBody::Ack { .. } => version == 1,
    };
    spoken.then_some(MpCapable {
        version,
        checksum_required: bits & CAPABLE_CHECKSUM != 0,
        extensibility: false,
        no_join_to_initial_address: bits & CAPABLE_NO_JOIN != 0,
        algorithms: bits & CAPABLE_ALGORITHMS,
        body,
    })
}

fn parse_key(rest: &mut &[u8]) -> Option<Key> {
    take(rest).map(|key| Key(u64::from_be_bytes(key)))
}

fn parse_join(body: &[u8], flags: Flags) -> Option<MpJoin> {
    let mut rest = body;
    let [first, id] = take(&mut rest)?;
    let backup = first & BACKUP != 0;
    let address_id = AddressId(id);
    match (flags.contains(Flags::SYN), flags.contains(Flags::ACK), rest.len()) {
        (true, false, 8) => Some(MpJoin::Syn {
            backup,
            address_id,
            token: Token(u32::from_be_bytes(take(&mut rest)?)),
            nonce: u32::from_be_bytes(take(&mut rest)?),
        }),
        (true, true, 12) => Some(MpJoin::SynAck {
            backup,
            address_id,
            hmac: u64::from_be_bytes(take(&mut rest)?),
            nonce: u32::from_be_bytes(take(&mut rest)?),
        }),
        (false, true, 20) => Some(MpJoin::Ack { hmac: take(&mut rest)? }),
        _ => None,
    }
}

fn parse_add_addr(body: &[u8]) -> Option<AddAddr> {
    let mut rest = body;
    let [first, id] = take(&mut rest)?;
    let hmac_len = if first & ECHO == 0 { 8 } else { 0 };
    let (is_v6, has_port) = match rest.len().checked_sub(hmac_len)? {
        4 => (false, false),
        6 => (false, true),
        16 => (true, false),
        18 => (true, true),
        _ => return None,
    };
    let address = if is_v6 {
        IpAddr::V6(Ipv6Addr::from(take::<16>(&mut rest)?))
    } else {
        IpAddr::V4(Ipv4Addr::from(take::<4>(&mut rest)?))
    };
    Some(AddAddr {
        id: AddressId(id),
        address,
        port: if has_port { take(&mut rest).map(u16::from_be_bytes) } else { None },
        hmac: take(&mut rest).map(u64::from_be_bytes),
    })
}

fn parse_remove_addr(body: &[u8]) -> Option<RemoveAddr> {
    let [_, ids @ ..] = body else { return None };
    if ids.is_empty() {
        return None;
    }
    let mut remove = RemoveAddr::default();
    for id in ids {
        if !remove.push(AddressId(*id)) {
            break;
        }
    }
    Some(remove)
}

/// Calls `f` with the length of each option that `options` has, in the order of [`emit`].
pub(super) fn for_each_len(options: &MptcpOptions, mut f: impl FnMut(usize)) {
    let MptcpOptions {
        capable,
        join,
        dss,
        add_addr,
        remove_addr,
        priority,
        fail,
        fast_close,
        reset,
    } = options;
    if let Some(capable) = capable {
        f(match capable.body {
            MpCapableBody::Syn => 4,
            MpCapableBody::SynAck { .. } => 12,
            MpCapableBody::Ack { data: None, .. } => 20,
            MpCapableBody::Ack { data: Some(data), .. } => 22 + checksum_len(data.checksum),
        });
    }
    if let Some(join) = join {
        f(match join {
            MpJoin::Syn { .. } => 12,
            MpJoin::SynAck { .. } => 16,
            MpJoin::Ack { .. } => 24,
        });
    }
    if let Some(dss) = dss {
        f(dss_len(dss));
    }
    if let Some(add_addr) = add_addr {
        f(add_addr_len(add_addr));
    }
    // A list without identifiers has no form on the wire.
    if let Some(remove) = remove_addr.filter(|remove| !remove.as_slice().is_empty()) {
        f(3 + remove.as_slice().len());
    }
    if priority.is_some() {
        f(3);
    }
    if fail.is_some() {
        f(12);
    }
    if fast_close.is_some() {
        f(12);
    }
    if reset.is_some() {
        f(4);
    }
}

const fn checksum_len(checksum: Option<u16>) -> usize {
    if checksum.is_some() { 2 } else { 0 }
}

const fn number_len(number: DssNumber) -> usize {
    match number {
        DssNumber::Short(_) => 4,
        DssNumber::Long(_) => 8,
    }
}

fn dss_len(dss: &Dss) -> usize {
    let mapping_len =
        |mapping: DssMapping| number_len(mapping.data_seq) + 6 + checksum_len(mapping.checksum);
    4 + dss.ack.map_or(0, number_len) + dss.mapping.map_or(0, mapping_len)
}

fn add_addr_len(add_addr: &AddAddr) -> usize {
    let address = if add_addr.address.is_ipv6() { 16 } else { 4 };
    4 + address + add_addr.port.map_or(0, |_| 2) + add_addr.hmac.map_or(0, |_| 8)
}

/// Writes the options; the caller has made sure that they fit.
pub(super) fn emit(options: &MptcpOptions, out: &mut Writer<'_>) {
    let MptcpOptions {
        capable,
        join,
        dss,
        add_addr,
        remove_addr,
        priority,
        fail,
        fast_close,
        reset,
    } = options;
    if let Some(capable) = capable {
        emit_capable(capable, out);
    }
    if let Some(join) = join {
        emit_join(join, out);
    }
    if let Some(dss) = dss {
        emit_dss(dss, out);
    }
    if let Some(add_addr) = add_addr {
        emit_add_addr(add_addr, out);
    }
    if let Some(remove) = remove_addr.filter(|remove| !remove.as_slice().is_empty()) {
        out.put(&[KIND, 3 + remove.as_slice().len() as u8, REMOVE_ADDR << 4]);
        for id in remove.as_slice() {
            out.put(&[id.0]);
        }
        out.pad_behind();
    }
    if let Some(backup) = priority {
        out.put(&[KIND, 3, PRIORITY << 4 | u8::from(*backup)]);
        out.pad_behind();
    }
    if let Some(data_seq) = fail {
        out.put(&[KIND, 12, FAIL << 4, 0]);
        out.put(&data_seq.to_be_bytes());
    }
    if let Some(key) = fast_close {
        out.put(&[KIND, 12, FAST_CLOSE << 4, 0]);
        out.put(&key.0.to_be_bytes());
    }
    if let Some(reset) = reset {
        out.put(&[KIND, 4, RESET << 4 | reset.flags & 0x0f, reset.reason]);
    }
}

fn emit_capable(capable: &MpCapable, out: &mut Writer<'_>) {
    let MpCapable {
        version,
        checksum_required,
        extensibility,
        no_join_to_initial_address,
        algorithms,
        body,
    } = *capable;
    let bit = |set: bool, bit: u8| if set { bit } else { 0 };
    let first = CAPABLE << 4 | version & 0x0f;
    let bits = bit(checksum_required, CAPABLE_CHECKSUM)
        | bit(extensibility, CAPABLE_EXTENSIBILITY)
        | bit(no_join_to_initial_address, CAPABLE_NO_JOIN)
        | algorithms & CAPABLE_ALGORITHMS;
    match body {
        MpCapableBody::Syn => out.put(&[KIND, 4, first, bits]),
        MpCapableBody::SynAck { sender } => {
            out.put(&[KIND, 12, first, bits]);
            out.put(&sender.0.to_be_bytes());
        }
        MpCapableBody::Ack { sender, receiver, data } => {
            let data_len = data.map_or(0, |data| 2 + checksum_len(data.checksum) as u8);
            out.put(&[KIND, 20 + data_len, first, bits]);
            out.put(&sender.0.to_be_bytes());
            out.put(&receiver.0.to_be_bytes());
            if let Some(MpCapableData { length, checksum }) = data {
                out.put(&length.to_be_bytes());
                if let Some(checksum) = checksum {
                    out.put(&checksum.to_be_bytes());
                }
                out.pad_behind();
            }
        }
    }
}

fn emit_join(join: &MpJoin, out: &mut Writer<'_>) {
    match join {
        MpJoin::Syn { backup, address_id, token, nonce } => {
            out.put(&[KIND, 12, JOIN << 4 | u8::from(*backup), address_id.0]);
            out.put(&token.0.to_be_bytes());
            out.put(&nonce.to_be_bytes());
        }
        MpJoin::SynAck { backup, address_id, hmac, nonce } => {
            out.put(&[KIND, 16, JOIN << 4 | u8::from(*backup), address_id.0]);
            out.put(&hmac.to_be_bytes());
            out.put(&nonce.to_be_bytes());
        }
        MpJoin::Ack { hmac } => {
            out.put(&[KIND, 24, JOIN << 4, 0]);
            out.put(hmac);
        }
    }
}

fn emit_dss(dss: &Dss, out: &mut Writer<'_>) {
    let Dss { data_fin, ack, mapping } = dss;
    let mut flags = if *data_fin { DSS_FIN } else { 0 };
    flags |= match ack {
        None => 0,
        Some(DssNumber::Short(_)) => DSS_ACK,
        Some(DssNumber::Long(_)) => DSS_ACK | DSS_LONG_ACK,
    };
    flags |= match mapping.map(|mapping| mapping.data_seq) {
        None => 0,
        Some(DssNumber::Short(_)) => DSS_MAPPING,
        Some(DssNumber::Long(_)) => DSS_MAPPING | DSS_LONG_SEQ,
    };
    out.put(&[KIND, dss_len(dss) as u8, DSS << 4, flags]);
    if let Some(ack) = ack {
        emit_number(*ack, out);
    }
    if let Some(DssMapping { data_seq, subflow_seq, length, checksum }) = mapping {
        emit_number(*data_seq, out);
        out.put(&subflow_seq.to_be_bytes());
        out.put(&length.to_be_bytes());
        if let Some(checksum) = checksum {
            out.put(&checksum.to_be_bytes());
        }
        out.pad_behind();
    }
}

fn emit_number(number: DssNumber, out: &mut Writer<'_>) {
    match number {
        DssNumber::Short(number) => out.put(&number.to_be_bytes()),
        DssNumber::Long(number) => out.put(&number.to_be_bytes()),
    }
}

fn emit_add_addr(add_addr: &AddAddr, out: &mut Writer<'_>) {
    let AddAddr { id, address, port, hmac } = add_addr;
    let echo = if hmac.is_none() { ECHO } else { 0 };
    out.put(&[KIND, add_addr_len(add_addr) as u8, ADD_ADDR << 4 | echo, id.0]);
    match address {
        IpAddr::V4(address) => out.put(&address.octets()),
        IpAddr::V6(address) => out.put(&address.octets()),
    }
    if let Some(port) = port {
        out.put(&port.to_be_bytes());
    }
    if let Some(hmac) = hmac {
        out.put(&hmac.to_be_bytes());
    }
    out.pad_behind();
}
