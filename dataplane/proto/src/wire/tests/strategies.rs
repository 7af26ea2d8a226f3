//! Values for the property tests. They are boxed, because the types of nested strategies are so
//! large that debug builds run out of stack.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::segment::{
    AddAddr, AddressId, Dss, DssMapping, DssNumber, Flags, Key, MpCapable, MpCapableBody,
    MpCapableData, MpJoin, MpReset, MptcpOptions, Options, RemoveAddr, SackBlock, SackBlocks,
    Segment, Timestamps, Token, WindowScale,
};
use crate::seq::SeqNum;
use crate::wire::options::{MAX_LEN, options_len};

fn number() -> BoxedStrategy<DssNumber> {
    prop_oneof![any::<u32>().prop_map(DssNumber::Short), any::<u64>().prop_map(DssNumber::Long)]
        .boxed()
}

/// Every form of DSS.
pub(super) fn dss() -> BoxedStrategy<Dss> {
    let mapping = (number(), any::<u32>(), any::<u16>(), option::of(any::<u16>())).prop_map(
        |(data_seq, subflow_seq, length, checksum)| DssMapping {
            data_seq,
            subflow_seq,
            length,
            checksum,
        },
    );
    (any::<bool>(), option::of(number()), option::of(mapping))
        .prop_map(|(data_fin, ack, mapping)| Dss { data_fin, ack, mapping })
        .boxed()
}

/// MP_CAPABLE in the form that belongs into a segment with `flags`.
fn capable(flags: Flags) -> BoxedStrategy<MpCapable> {
    let key = any::<u64>().prop_map(Key);
    let body = match (flags.contains(Flags::SYN), flags.contains(Flags::ACK)) {
        (true, false) => Just(MpCapableBody::Syn).boxed(),
        (true, true) => key.prop_map(|sender| MpCapableBody::SynAck { sender }).boxed(),
        (false, _) => {
            let data = (any::<u16>(), option::of(any::<u16>()))
                .prop_map(|(length, checksum)| MpCapableData { length, checksum });
            (key.clone(), key, option::of(data))
                .prop_map(|(sender, receiver, data)| MpCapableBody::Ack { sender, receiver, data })
                .boxed()
        }
    };
    (body, 1..=15_u8, any::<bool>(), any::<bool>(), 0..16_u8)
        .prop_map(|(body, version, checksum_required, no_join, others)| MpCapable {
            version: if body == MpCapableBody::Syn { version } else { 1 },
            checksum_required,
            extensibility: false,
            no_join_to_initial_address: no_join,
            algorithms: others << 1 | 1,
            body,
        })
        .boxed()
}

/// MP_JOIN in the form that belongs into a segment with `flags`.
fn join(flags: Flags) -> BoxedStrategy<MpJoin> {
    let common = (any::<bool>(), any::<u8>().prop_map(AddressId), any::<u32>());
    if !flags.contains(Flags::SYN) {
        any::<[u8; 20]>().prop_map(|hmac| MpJoin::Ack { hmac }).boxed()
    } else if flags.contains(Flags::ACK) {
        (common, any::<u64>())
            .prop_map(|((backup, address_id, nonce), hmac)| MpJoin::SynAck {
                backup,
                address_id,
                hmac,
                nonce,
            })
            .boxed()
    } else {
        (common, any::<u32>().prop_map(Token))
            .prop_map(|((backup, address_id, nonce), token)| MpJoin::Syn {
                backup,
                address_id,
                token,
                nonce,
            })
            .boxed()
    }
    .boxed()
}

fn add_addr() -> BoxedStrategy<AddAddr> {
    let address = prop_oneof![
        any::<[u8; 4]>().prop_map(|octets| IpAddr::V4(Ipv4Addr::from(octets))),
        any::<[u8; 16]>().prop_map(|octets| IpAddr::V6(Ipv6Addr::from(octets))),
    ];
    (any::<u8>(), address, option::of(any::<u16>()), option::of(any::<u64>()))
        .prop_map(|(id, address, port, hmac)| AddAddr { id: AddressId(id), address, port, hmac })
        .boxed()
}

fn remove_addr() -> BoxedStrategy<RemoveAddr> {
    vec(any::<u8>(), 1..=8)
        .prop_map(|ids| {
            let mut remove = RemoveAddr::default();
            for id in ids {
                assert!(remove.push(AddressId(id)));
            }
            remove
        })
        .boxed()
}

/// One MPTCP option that may stand in a segment with `flags`.
pub(super) fn one_mptcp_option(flags: Flags) -> BoxedStrategy<MptcpOptions> {
    let none = MptcpOptions::default();
    prop_oneof![
        capable(flags).prop_map(move |it| MptcpOptions { capable: Some(it), ..none }),
        join(flags).prop_map(move |it| MptcpOptions { join: Some(it), ..none }),
        dss().prop_map(move |it| MptcpOptions { dss: Some(it), ..none }),
        add_addr().prop_map(move |it| MptcpOptions { add_addr: Some(it), ..none }),
        remove_addr().prop_map(move |it| MptcpOptions { remove_addr: Some(it), ..none }),
        any::<bool>().prop_map(move |it| MptcpOptions { priority: Some(it), ..none }),
        any::<u64>().prop_map(move |it| MptcpOptions { fail: Some(it), ..none }),
        any::<u64>().prop_map(move |it| MptcpOptions { fast_close: Some(Key(it)), ..none }),
        (0..16_u8, any::<u8>()).prop_map(move |(flags, reason)| MptcpOptions {
            reset: Some(MpReset { flags, reason }),
            ..none
        }),
    ]
    .boxed()
}

/// Several MPTCP options at once.
fn mptcp(flags: Flags) -> BoxedStrategy<MptcpOptions> {
    let one = || one_mptcp_option(flags);
    (option::of(one()), option::of(one()), option::of(one()))
        .prop_map(|(a, b, c)| {
            let mut all = MptcpOptions::default();
            for one in [a, b, c].into_iter().flatten() {
                all.capable = all.capable.or(one.capable);
                all.join = all.join.or(one.join);
                all.dss = all.dss.or(one.dss);
                all.add_addr = all.add_addr.or(one.add_addr);
                all.remove_addr = all.remove_addr.or(one.remove_addr);
                all.priority = all.priority.or(one.priority);
                all.fail = all.fail.or(one.fail);
                all.fast_close = all.fast_close.or(one.fast_close);
                all.reset = all.reset.or(one.reset);
            }
            all
        })
        .boxed()
}

pub(super) fn sack() -> BoxedStrategy<SackBlocks> {
    vec((any::<u32>(), any::<u32>()), 0..=4)
        .prop_map(|blocks| {
            let mut sack = SackBlocks::default();
            for (start, end) in blocks {
                assert!(sack.push(SackBlock { start: SeqNum(start), end: SeqNum(end) }));
            }
            sack
        })
        .boxed()
}

pub(super) fn timestamps() -> BoxedStrategy<Timestamps> {
    any::<(u32, u32)>().prop_map(|(value, echo)| Timestamps { value, echo }).boxed()
}

/// Options that may stand together in a segment with `flags`, whether they fit or not.
pub(super) fn any_options(flags: Flags) -> BoxedStrategy<Options> {
    let syn = flags.contains(Flags::SYN);
    let of_syn = (option::of(any::<u16>()), option::of(0..=14_u8), any::<bool>());
    (of_syn, option::of(timestamps()), sack(), mptcp(flags))
        .prop_map(move |((mss, scale, permitted), timestamps, sack, mptcp)| Options {
            mss: mss.filter(|_| syn),
            window_scale: scale.filter(|_| syn).map(WindowScale::new),
            sack_permitted: permitted && syn,
            timestamps,
            sack,
            mptcp,
        })
        .boxed()
}

/// The control bits of SYN, SYN/ACK and of everything else.
pub(super) fn kind_of_segment() -> BoxedStrategy<Flags> {
    prop_oneof![
        Just(Flags::SYN),
        Just(Flags::SYN.with(Flags::ACK)),
        Just(Flags::ACK),
        Just(Flags::ACK.with(Flags::PSH)),
        Just(Flags::ACK.with(Flags::FIN)),
        Just(Flags::ACK.with(Flags::RST)),
    ]
    .boxed()
}

/// A segment whose options, SACK blocks aside, fit.
pub(super) fn segment() -> BoxedStrategy<Segment> {
    kind_of_segment()
        .prop_flat_map(|flags| (Just(flags), any_options(flags)))
        .prop_filter("options that fit", |(_, options)| options_len(options) <= MAX_LEN)
        .prop_flat_map(|(flags, options)| {
            any::<(u32, u32, u16, u16)>().prop_map(move |(seq, ack, window, urgent)| Segment {
                seq: SeqNum(seq),
                ack: SeqNum(ack),
                flags,
                window,
                urgent,
                payload_len: 0,
                options,
            })
        })
        .boxed()
}
