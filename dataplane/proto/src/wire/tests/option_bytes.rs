//! Options octet by octet, as the RFCs draw them.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::segment::{
    AddAddr, AddressId, Dss, DssMapping, DssNumber, Flags, Key, MpCapable, MpCapableBody,
    MpCapableData, MpJoin, MpReset, MptcpOptions, Options, RemoveAddr, SackBlock, SackBlocks,
    Timestamps, Token, WindowScale,
};
use crate::seq::SeqNum;
use crate::wire::options::{MAX_LEN, emit, options_len, parse, sack_room};

const SYN: Flags = Flags::SYN;
const SYN_ACK: Flags = Flags::SYN.with(Flags::ACK);
const ACK: Flags = Flags::ACK;
const RST: Flags = Flags::RST;

const NONE: MptcpOptions = MptcpOptions {
    capable: None,
    join: None,
    dss: None,
    add_addr: None,
    remove_addr: None,
    priority: None,
    fail: None,
    fast_close: None,
    reset: None,
};

const CAPABLE: MpCapable = MpCapable {
    version: 1,
    checksum_required: false,
    extensibility: false,
    no_join_to_initial_address: false,
    algorithms: 1,
    body: MpCapableBody::Syn,
};

const STAMPS: Timestamps = Timestamps { value: 0x0102_0304, echo: 0x0506_0708 };

/// `bytes` parse to `mptcp`, and `mptcp` is written as `bytes`, padded with NOPs.
#[track_caller]
fn both_ways(flags: Flags, bytes: &[u8], mptcp: MptcpOptions) {
    let options = Options { mptcp, ..Options::default() };
    assert_eq!(parse(bytes, flags), options);
    let mut buf = [0; MAX_LEN];
    let len = emit(&options, &mut buf).expect("one option fits");
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(4), 1);
    assert_eq!(buf[..len], padded);
}

fn number(bytes: core::ops::RangeInclusive<u8>) -> Vec<u8> {
    bytes.collect()
}

fn bytes(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

#[test]
fn mp_capable_in_a_syn() {
    both_ways(SYN, &[30, 4, 0x01, 0x01], MptcpOptions { capable: Some(CAPABLE), ..NONE });
    both_ways(
        SYN,
        &[30, 4, 0x02, 0xa1],
        MptcpOptions {
            capable: Some(MpCapable {
                version: 2,
                checksum_required: true,
                no_join_to_initial_address: true,
                ..CAPABLE
            }),
            ..NONE
        },
    );
}

#[test]
fn mp_capable_in_a_syn_ack() {
    let body = MpCapableBody::SynAck { sender: Key(0x0102_0304_0506_0708) };
    both_ways(
        SYN_ACK,
        &bytes(&[&[30, 12, 0x01, 0x81], &number(1..=8)]),
        MptcpOptions {
            capable: Some(MpCapable { checksum_required: true, body, ..CAPABLE }),
            ..NONE
        },
    );
}

#[test]
fn mp_capable_in_a_third_ack_without_data_with_data_and_with_checksum() {
    let keys = number(1..=16);
    let (sender, receiver) = (Key(0x0102_0304_0506_0708), Key(0x090a_0b0c_0d0e_0f10));
    let with = |data| MptcpOptions {
        capable: Some(MpCapable { body: MpCapableBody::Ack { sender, receiver, data }, ..CAPABLE }),
        ..NONE
    };
    both_ways(ACK, &bytes(&[&[30, 20, 0x01, 0x01], &keys]), with(None));
    both_ways(
        ACK,
        &bytes(&[&[30, 22, 0x01, 0x01], &keys, &[0x05, 0xa8]]),
        with(Some(MpCapableData { length: 1448, checksum: None })),
    );
    both_ways(
        ACK,
        &bytes(&[&[30, 24, 0x01, 0x01], &keys, &[0x05, 0xa8, 0xbe, 0xef]]),
        with(Some(MpCapableData { length: 1448, checksum: Some(0xbeef) })),
    );
}

#[test]
fn mp_capable_that_is_not_spoken_here_is_ignored() {
    let capable = |bytes: &[u8], flags| parse(bytes, flags).mptcp.capable;
    assert!(capable(&[30, 4, 0x01, 0x01], SYN).is_some());
    assert!(capable(&[30, 4, 0x00, 0x01], SYN).is_none(), "version 0");
    assert!(capable(&[30, 4, 0x01, 0x41], SYN).is_none(), "B set");
    assert!(capable(&[30, 4, 0x01, 0x00], SYN).is_none(), "no algorithm");
    assert!(capable(&[30, 4, 0x01, 0x02], SYN).is_none(), "another algorithm alone");
    assert!(capable(&[30, 4, 0x01, 0x03], SYN).is_some(), "another algorithm besides");
    let syn_ack = |version| bytes(&[&[30, 12, version, 0x01], &number(1..=8)]);
    assert!(capable(&syn_ack(1), SYN_ACK).is_some());
    assert!(capable(&syn_ack(0), SYN_ACK).is_none(), "answered with version 0");
    assert!(capable(&syn_ack(2), SYN_ACK).is_none(), "answered with version 2");
    let ack = |version| bytes(&[&[30, 20, version, 0x01], &number(1..=16)]);
    assert!(capable(&ack(1), ACK).is_some());
    assert!(capable(&ack(2), ACK).is_none(), "confirmed with version 2");
}

#[test]
fn mp_join_in_all_three_packets() {
    both_ways(
        SYN,
        &bytes(&[&[30, 12, 0x11, 7], &number(1..=8)]),
        MptcpOptions {
            join: Some(MpJoin::Syn {
                backup: true,
                address_id: AddressId(7),
                token: Token(0x0102_0304),
                nonce: 0x0506_0708,
            }),
            ..NONE
        },
    );
    both_ways(
        SYN_ACK,
        &bytes(&[&[30, 16, 0x10, 9], &number(1..=12)]),
        MptcpOptions {
            join: Some(MpJoin::SynAck {
                backup: false,
                address_id: AddressId(9),
                hmac: 0x0102_0304_0506_0708,
                nonce: 0x090a_0b0c,
            }),
            ..NONE
        },
    );
    let hmac = number(1..=20);
    both_ways(
        ACK,
        &bytes(&[&[30, 24, 0x10, 0], &hmac]),
        MptcpOptions {
            join: Some(MpJoin::Ack { hmac: hmac.try_into().expect("20 octets") }),
            ..NONE
        },
    );
}

/// All 32 combinations of the DSS flags, with and without a checksum; and each with one octet too
/// few, and one and two too many.
#[test]
fn dss_in_all_forms() {
    for flags in 0..0x20_u8 {
        let ack = (flags & 1 != 0).then_some(if flags & 2 != 0 { 8 } else { 4 });
        let seq = (flags & 4 != 0).then_some(if flags & 8 != 0 { 8 } else { 4 });
        for with_checksum in [false, true] {
            if with_checksum && seq.is_none() {
                continue;
            }
            let mut body = vec![0x20, flags];
            let mut octet = 0_u8;
            let mut take = |body: &mut Vec<u8>, n: usize| -> u64 {
                let mut value = 0;
                for _ in 0..n {
                    octet += 1;
                    body.push(octet);
                    value = value << 8 | u64::from(octet);
                }
                value
            };
            let number = |len: usize, value: u64| match len {
                4 => DssNumber::Short(value as u32),
                _ => DssNumber::Long(value),
            };
            let ack = ack.map(|len| number(len, take(&mut body, len)));
            let mapping = seq.map(|len| DssMapping {
                data_seq: number(len, take(&mut body, len)),
                subflow_seq: take(&mut body, 4) as u32,
                length: take(&mut body, 2) as u16,
                checksum: with_checksum.then(|| take(&mut body, 2) as u16),
            });
            let dss = Dss { data_fin: flags & 0x10 != 0, ack, mapping };
            let option = |body: &[u8]| bytes(&[&[30, body.len() as u8 + 2], body]);

            let bytes = option(&body);
            let options =
                Options { mptcp: MptcpOptions { dss: Some(dss), ..NONE }, ..Options::default() };
            assert_eq!(parse(&bytes, ACK), options, "flags {flags:#04x}");
            let mut buf = [0; MAX_LEN];
            let len = emit(&options, &mut buf).expect("a DSS fits");
            // The bits "a" and "m" mean nothing without "A" and "M", and are not sent then.
            let mut sent = bytes.clone();
            if ack.is_none() {
                sent[3] &= !2;
            }
            if mapping.is_none() {
                sent[3] &= !8;
            }
            sent.resize(bytes.len().next_multiple_of(4), 1);
            assert_eq!(buf[..len], sent, "flags {flags:#04x}");

            body.push(0);
            assert_eq!(parse(&option(&body), ACK).mptcp, NONE, "one more, flags {flags:#04x}");
            body.push(0);
            let accepted = parse(&option(&body), ACK).mptcp.dss.is_some();
            let has_room_for_checksum = mapping.is_some() && !with_checksum;
            assert_eq!(accepted, has_room_for_checksum, "two more, flags {flags:#04x}");
            body.truncate(body.len() - 3);
            assert_eq!(parse(&option(&body), ACK).mptcp, NONE, "one less, flags {flags:#04x}");
        }
    }
}

#[test]
fn add_addr_in_all_forms() {
    let v4 = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    let v6 =
        IpAddr::V6(Ipv6Addr::from([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x42]));
    for (address, octets) in [
        (v4, vec![192, 0, 2, 1]),
        (v6, {
            let mut octets = vec![0x20, 0x01, 0x0d, 0xb8];
            octets.extend([0; 11]);
            octets.push(0x42);
            octets
        }),
    ] {
        for (port, port_octets) in [(None, vec![]), (Some(0x1f90), vec![0x1f, 0x90])] {
            for (hmac, hmac_octets) in
                [(None, vec![]), (Some(0x0102_0304_0506_0708), number(1..=8))]
            {
                let echo = u8::from(hmac.is_none());
                let body = bytes(&[&[0x30 | echo, 5], &octets, &port_octets, &hmac_octets]);
                let add_addr = AddAddr { id: AddressId(5), address, port, hmac };
                both_ways(
                    ACK,
                    &bytes(&[&[30, body.len() as u8 + 2], &body]),
                    MptcpOptions { add_addr: Some(add_addr), ..NONE },
                );
            }
        }
    }
}

#[test]
fn remove_addr_with_one_to_eight_identifiers_and_more() {
    for n in 1..=8_u8 {
        let ids = number(1..=n);
        let mut remove = RemoveAddr::default();
        for id in &ids {
            assert!(remove.push(AddressId(*id)));
        }
        both_ways(
            ACK,
            &bytes(&[&[30, 3 + n, 0x40], &ids]),
            MptcpOptions { remove_addr: Some(remove), ..NONE },
        );
    }
    let long = parse(&bytes(&[&[30, 14, 0x40], &number(1..=11)]), ACK).mptcp.remove_addr;
    let ids: Vec<_> = long.expect("a list").as_slice().iter().map(|id| id.0).collect();
    assert_eq!(ids, number(1..=8), "the first eight are kept");
    assert_eq!(parse(&[30, 3, 0x40, 1], ACK).mptcp, NONE, "an empty list");
    let empty = MptcpOptions { remove_addr: Some(RemoveAddr::default()), ..NONE };
    assert_eq!(options_len(&Options { mptcp: empty, ..Options::default() }), 0);
}

#[test]
fn mp_prio_mp_fail_mp_fastclose_and_mp_tcprst() {
    both_ways(ACK, &[30, 3, 0x51], MptcpOptions { priority: Some(true), ..NONE });
    both_ways(ACK, &[30, 3, 0x50], MptcpOptions { priority: Some(false), ..NONE });
    both_ways(
        ACK,
        &bytes(&[&[30, 12, 0x60, 0], &number(1..=8)]),
        MptcpOptions { fail: Some(0x0102_0304_0506_0708), ..NONE },
    );
    both_ways(
        RST,
        &bytes(&[&[30, 12, 0x70, 0], &number(1..=8)]),
        MptcpOptions { fast_close: Some(Key(0x0102_0304_0506_0708)), ..NONE },
    );
    both_ways(
        RST,
        &[30, 4, 0x81, 6],
        MptcpOptions { reset: Some(MpReset { flags: 1, reason: 6 }), ..NONE },
    );
}

/// Every subtype at every length in every kind of segment: only the RFC's lengths count, and an
/// option that does not count does not harm the ones around it.
#[test]
fn only_the_exact_lengths_count() {
    for subtype in 0..16_u8 {
        for len in 3..=30_u8 {
            for (flags, syn, ack) in
                [(SYN, true, false), (SYN_ACK, true, true), (ACK, false, true), (RST, false, false)]
            {
                for low in [0, 1_u8] {
                    let mut option = vec![30, len, subtype << 4 | low];
                    // For MP_CAPABLE: H set; for DSS: an acknowledgement of 4 octets.
                    option.resize(usize::from(len), 1);
                    let bytes = bytes(&[&option, &[8, 10], &number(1..=8)]);
                    let options = parse(&bytes, flags);
                    let expected = match subtype {
                        0 if low == 0 => false,
                        0 if syn && ack => len == 12,
                        0 if syn => len == 4,
                        0 => ack && matches!(len, 20 | 22 | 24),
                        1 if syn && ack => len == 16,
                        1 if syn => len == 12,
                        1 => ack && len == 24,
                        2 => len == 8,
                        3 if low == 1 => matches!(len, 8 | 10 | 20 | 22),
                        3 => matches!(len, 16 | 18 | 28 | 30),
                        4 => len >= 4,
                        5 => len == 3,
                        6 | 7 => len == 12,
                        8 => len == 4,
                        _ => false,
                    };
                    assert_eq!(
                        options.mptcp != NONE,
                        expected,
                        "subtype {subtype} of {len} octets, low bits {low}, {flags:?}"
                    );
                    assert_eq!(options.timestamps, Some(STAMPS));
                }
            }
        }
    }
}

#[test]
fn reserved_bits_are_ignored() {
    assert_eq!(parse(&[30, 3, 0x5f], ACK).mptcp.priority, Some(true));
    assert_eq!(parse(&[30, 3, 0x5e], ACK).mptcp.priority, Some(false));
    let dss = parse(&[30, 8, 0x2f, 0xe1, 0, 0, 0, 9], ACK).mptcp.dss;
    assert_eq!(dss, Some(Dss { ack: Some(DssNumber::Short(9)), ..Dss::default() }));
    let echo = parse(&[30, 8, 0x3f, 2, 10, 0, 0, 1], ACK).mptcp.add_addr.expect("an echo");
    assert_eq!(echo.hmac, None);
    let fail = bytes(&[&[30, 12, 0x6f, 0xff], &number(1..=8)]);
    assert_eq!(parse(&fail, ACK).mptcp.fail, Some(0x0102_0304_0506_0708));
}

#[test]
fn of_two_options_of_a_kind_the_first_counts() {
    let twice = |a: &[u8], b: &[u8], flags| parse(&bytes(&[a, b]), flags);
    assert_eq!(twice(&[2, 4, 5, 180], &[2, 4, 1, 1], SYN).mss, Some(1460));
    assert_eq!(twice(&[3, 3, 7], &[3, 3, 2], SYN).window_scale, Some(WindowScale::new(7)));
    assert_eq!(twice(&[30, 3, 0x51], &[30, 3, 0x50], ACK).mptcp.priority, Some(true));
    let dss = |n| [30, 8, 0x20, 1, 0, 0, 0, n];
    let ack = twice(&dss(1), &dss(2), ACK).mptcp.dss.and_then(|dss| dss.ack);
    assert_eq!(ack, Some(DssNumber::Short(1)));
    let first = bytes(&[&[8, 10], &number(1..=8)]);
    let second = bytes(&[&[8, 10], &number(11..=18)]);
    assert_eq!(twice(&first, &second, ACK).timestamps, Some(STAMPS));
    let first = bytes(&[&[5, 10], &number(1..=8)]);
    let second = bytes(&[&[5, 10], &number(11..=18)]);
    let block = SackBlock { start: SeqNum(0x0102_0304), end: SeqNum(0x0506_0708) };
    assert_eq!(twice(&first, &second, ACK).sack.as_slice(), [block]);
    // But one of a wrong length takes no place.
    assert_eq!(twice(&[30, 4, 0x51, 0], &[30, 3, 0x50], ACK).mptcp.priority, Some(false));
}

#[test]
fn options_of_a_syn_count_in_a_syn_only() {
    let list = [2, 4, 5, 180, 4, 2, 3, 3, 7];
    for flags in [SYN, SYN_ACK] {
        let options = parse(&list, flags);
        assert_eq!(options.mss, Some(1460));
        assert!(options.sack_permitted);
        assert_eq!(options.window_scale, Some(WindowScale::new(7)));
    }
    assert_eq!(parse(&list, ACK), Options::default());
}

/// RFC 7323, section 2.3: a shift above 14 is taken as 14.
#[test]
fn a_window_scale_above_14_is_taken_as_14() {
    assert_eq!(parse(&[3, 3, 15], SYN).window_scale, Some(WindowScale::MAX));
    assert_eq!(parse(&[3, 3, 255], SYN).window_scale, Some(WindowScale::MAX));
}

/// RFC 9293, MUST-7: illegal lengths must be handled without crashing; what came before counts.
#[test]
fn a_list_whose_lengths_do_not_add_up_counts_as_far_as_it_goes() {
    let mss = [2, 4, 5, 180];
    for rest in [&[8, 0][..], &[8, 1], &[8], &[30], &[30, 0], &[8, 10, 1], &[30, 41, 0x20], &[0]] {
        let after = [3, 3, 7];
        let options = parse(&bytes(&[&mss, rest, &after]), SYN);
        assert_eq!(options.mss, Some(1460), "before {rest:?}");
        assert_eq!(options.window_scale, None, "after {rest:?}");
    }
    // Unknown kinds with honest lengths are skipped, and so are lengths that a kind cannot have.
    for skipped in
        [&[253, 2][..], &[34, 4, 1, 2], &[2, 3, 1], &[8, 4, 0, 0], &[5, 9, 0, 0, 0, 0, 0, 0, 0]]
    {
        let options = parse(&bytes(&[skipped, &mss]), SYN);
        assert_eq!(options.mss, Some(1460), "after {skipped:?}");
    }
}

#[test]
fn plain_options_are_laid_out_as_other_stacks_do() {
    let mut buf = [0; MAX_LEN];
    let syn = Options {
        mss: Some(1460),
        window_scale: Some(WindowScale::new(7)),
        sack_permitted: true,
        timestamps: Some(STAMPS),
        ..Options::default()
    };
    let len = emit(&syn, &mut buf).expect("they fit");
    assert_eq!(buf[..len], [2, 4, 5, 180, 4, 2, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 3, 3, 7]);
    let len = emit(&Options { timestamps: None, ..syn }, &mut buf).expect("they fit");
    assert_eq!(buf[..len], [2, 4, 5, 180, 1, 1, 4, 2, 1, 3, 3, 7]);
    let mut sack = SackBlocks::default();
    sack.push(SackBlock { start: SeqNum(0x0a0b_0c0d), end: SeqNum(0x0e0f_1011) });
    let ack = Options { timestamps: Some(STAMPS), sack, ..Options::default() };
    let len = emit(&ack, &mut buf).expect("they fit");
    let expected = bytes(&[&[1, 1, 8, 10], &number(1..=8), &[1, 1, 5, 10], &number(10..=17)]);
    assert_eq!(buf[..len], expected);
}

#[test]
fn room_for_sack_blocks_beside_other_options() {
    let ack = |ack| MptcpOptions { dss: Some(Dss { ack: Some(ack), ..Dss::default() }), ..NONE };
    let full =
        DssMapping { data_seq: DssNumber::Long(1), subflow_seq: 1, length: 1, checksum: Some(1) };
    let everything = Dss { data_fin: true, ack: Some(DssNumber::Long(1)), mapping: Some(full) };
    let rows = [
        (None, NONE, 4, 36),
        (Some(STAMPS), NONE, 3, 40),
        (None, ack(DssNumber::Short(1)), 3, 36),
        (None, ack(DssNumber::Long(1)), 3, 40),
        (Some(STAMPS), ack(DssNumber::Short(1)), 2, 40),
        // Only without padding: 10 + 18 + 12.
        (Some(STAMPS), ack(DssNumber::Long(1)), 2, 40),
        (None, MptcpOptions { dss: Some(everything), ..NONE }, 1, 40),
        (Some(STAMPS), MptcpOptions { dss: Some(everything), ..NONE }, 0, 40),
    ];
    for (timestamps, mptcp, room, len) in rows {
        let options = Options { timestamps, mptcp, ..Options::default() };
        assert_eq!(sack_room(&options), room, "{options:?}");
        let mut full = options;
        while full.sack.push(SackBlock { start: SeqNum(1), end: SeqNum(2) }) {}
        assert_eq!(sack_room(&full), room, "whatever blocks there are");
        assert_eq!(options_len(&full), len, "{options:?}");
    }
}

/// The longest ADD_ADDR fits beside timestamps only if nothing is padded.
#[test]
fn add_addr_for_ipv6_with_port_fits_beside_timestamps() {
    let add_addr = AddAddr {
        id: AddressId(1),
        address: IpAddr::V6(Ipv6Addr::LOCALHOST),
        port: Some(1),
        hmac: Some(1),
    };
    let options = Options {
        timestamps: Some(STAMPS),
        mptcp: MptcpOptions { add_addr: Some(add_addr), ..NONE },
        ..Options::default()
    };
    let mut buf = [0; MAX_LEN];
    assert_eq!(emit(&options, &mut buf), Ok(40));
    assert_eq!(parse(&buf, ACK), options);
}
