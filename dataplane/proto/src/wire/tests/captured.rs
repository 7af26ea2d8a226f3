//! Packets that a Linux 6.18 kernel sent over its loopback interface, between MPTCP sockets, and
//! the tokens and data sequence numbers that `ss -M` told for the same connections.

use alloc::vec::Vec;

use crate::crypto::key_to_token_and_idsn;
use crate::segment::{
    Dss, DssMapping, DssNumber, Flags, Key, MpCapableBody, MpCapableData, Token, WindowScale,
};
use crate::seq::{DataSeq, SeqNum};
use crate::wire::options::{MAX_LEN, emit};
use crate::wire::{Frame, checksum, parse_frame};

const SYN_V4: &str = "00000000000000000000000008004500004045df40004006e03d0a4d00010a4d0001\
    bafc138960567bec00000000b002ffd714ce00000204ffd70402080a64e1d132000000000103030a1e040101";
const SYN_ACK_V4: &str = "00000000000000000000000008004500004800004000400626150a4d00010a4d0001\
    1389bafc3a88f98760567bedd012ffcb14d600000204ffd70402080ae93d749a64e1d1320103030a\
    1e0c01015557e869a65c3ffd";
const ACK_V4: &str = "00000000000000000000000008004500004845e040004006e0340a4d00010a4d0001\
    bafc138960567bed3a88f988d010004014d600000101080a64e1d132e93d749a\
    1e1401016b8061baa394ec8e5557e869a65c3ffd";
const FIRST_DATA_V4: &str = "00000000000000000000000008004500005745e140004006e0240a4d00010a4d0001\
    bafc138960567bed3a88f988e018004014e500000101080a64e1d1b6e93d749a\
    1e1601016b8061baa394ec8e5557e869a65c3ffd000b010168656c6c6f20776f726c64";
const DATA_ACK_V4: &str = "00000000000000000000000008004500004063cf40004006c24d0a4d00010a4d0001\
    1389bafc3a88f98860567bf8b010004014ce00000101080ae93d751e64e1d1b61e0c200371fd1354714efed8";
const DATA_V4: &str = "00000000000000000000000008004500005145e240004006e0290a4d00010a4d0001\
    bafc138960567bf83a88f988e018004014df00000101080a64e1d21ae93d751e\
    1e16200d1d214f8471fd1354714efed80000000c00050101616761696e";
const DATA_FIN_V4: &str = "00000000000000000000000008004500004c45e340004006e02d0a4d00010a4d0001\
    bafc138960567bfd3a88f988e010004014da00000101080a64e1d21ae93d7582\
    1e16201d1d214f8471fd1354714efedd0000000000010101";
const LONG_ACK_DATA_V4: &str = "00000000000000000000000008004500005363d240004006c2370a4d00010a4d0001\
    1389bafc3a88f98860567bfdf018004014e100000101080ae93d75e664e1d21a\
    1e1a200f71fd1354714efedec6651b501d214f840000000100030101627965";
const SYN_V6: &str = "00000000000000000000000086dd6000e041002c0640fd770000000000000000000000000001\
    fd7700000000000000000000000000019b62138a5fc0873000000000b002ffc4fb230000\
    0204ffc40402080ab569900b000000000103030a1e040101";
const FIRST_DATA_V6: &str = "00000000000000000000000086dd6000e04100430640\
    fd770000000000000000000000000001fd770000000000000000000000000001\
    9b62138a5fc087313b93a8f0e0180040fb3a00000101080ab569907e61fba591\
    1e160101241c06b24af60b2007373aa9c483285b000b010168656c6c6f20776f726c64";

const CLIENT_KEY: Key = Key(0x6b80_61ba_a394_ec8e);
const SERVER_KEY: Key = Key(0x5557_e869_a65c_3ffd);

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        hex.chars().map(|c| c.to_digit(16).expect("a hexadecimal digit") as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

#[track_caller]
fn parsed(hex: &str) -> Frame {
    let bytes = bytes(hex);
    parse_frame(&bytes, bytes.len()).expect("the kernel's packet parses")
}

#[test]
fn a_syn() {
    let Frame { segment, remote, local, payload_len, .. } = parsed(SYN_V4);
    assert_eq!(remote, "10.77.0.1:47868".parse().expect("an address"));
    assert_eq!(local, "10.77.0.1:5001".parse().expect("an address"));
    assert_eq!((segment.flags, segment.seq), (Flags::SYN, SeqNum(0x6056_7bec)));
    assert_eq!((segment.window, payload_len), (65495, 0));
    assert_eq!(segment.options.mss, Some(65495));
    assert_eq!(segment.options.window_scale, Some(WindowScale::new(10)));
    assert!(segment.options.sack_permitted);
    assert_eq!(segment.options.timestamps.map(|stamps| stamps.value), Some(1_692_520_754));
    let capable = segment.options.mptcp.capable.expect("MP_CAPABLE");
    assert_eq!((capable.version, capable.body), (1, MpCapableBody::Syn));
}

#[test]
fn the_handshake_and_the_first_data() {
    let capable = |hex| parsed(hex).segment.options.mptcp.capable.expect("MP_CAPABLE").body;
    assert_eq!(capable(SYN_ACK_V4), MpCapableBody::SynAck { sender: SERVER_KEY });
    let ack = |data| MpCapableBody::Ack { sender: CLIENT_KEY, receiver: SERVER_KEY, data };
    assert_eq!(capable(ACK_V4), ack(None));
    let data = MpCapableData { length: 11, checksum: None };
    assert_eq!(capable(FIRST_DATA_V4), ack(Some(data)));
    let bytes = bytes(FIRST_DATA_V4);
    let frame = parsed(FIRST_DATA_V4);
    assert_eq!(&bytes[frame.payload_at..frame.end()], b"hello world");
    assert_eq!(frame.segment.payload_len, 11);
}

/// `ss -M` told token and sequence numbers; the first byte of data follows the IDSN.
#[test]
fn tokens_and_initial_data_sequence_numbers() {
    let expected = |token, next: u64| (Token(token), DataSeq(next - 1));
    assert_eq!(key_to_token_and_idsn(CLIENT_KEY), expected(0xa9b5_5e05, 0x71fd_1354_714e_fecd));
    assert_eq!(key_to_token_and_idsn(SERVER_KEY), expected(0xff2c_87a7, 0xc665_1b50_1d21_4f84));
    let frame = parsed(FIRST_DATA_V6);
    let Some(MpCapableBody::Ack { sender, receiver, .. }) =
        frame.segment.options.mptcp.capable.map(|capable| capable.body)
    else {
        panic!("no keys");
    };
    assert_eq!(key_to_token_and_idsn(sender), expected(0x2d0a_d2cd, 0x6f84_d8da_764c_fa61));
    assert_eq!(key_to_token_and_idsn(receiver), expected(0x2017_7695, 0x02b4_ccb6_b42e_467a));
}

#[test]
fn mappings_and_acknowledgements() {
    let dss = |hex| parsed(hex).segment.options.mptcp.dss.expect("DSS");
    let mapping = |data_seq, subflow_seq, length| {
        let data_seq = DssNumber::Long(data_seq);
        Some(DssMapping { data_seq, subflow_seq, length, checksum: None })
    };
    let short = Some(DssNumber::Short(0x1d21_4f84));
    let first = 0x71fd_1354_714e_fecd;
    assert_eq!(
        dss(DATA_ACK_V4),
        Dss { data_fin: false, ack: Some(DssNumber::Long(first + 11)), mapping: None }
    );
    assert_eq!(
        dss(DATA_V4),
        Dss { data_fin: false, ack: short, mapping: mapping(first + 11, 12, 5) }
    );
    assert_eq!(
        dss(DATA_FIN_V4),
        Dss { data_fin: true, ack: short, mapping: mapping(first + 16, 0, 1) }
    );
    assert_eq!(
        dss(LONG_ACK_DATA_V4),
        Dss {
            data_fin: false,
            ack: Some(DssNumber::Long(first + 17)),
            mapping: mapping(0xc665_1b50_1d21_4f84, 1, 3),
        }
    );
}

/// The interface leaves the checksum to the hardware, so the field holds the pseudo-header's sum.
#[test]
fn the_pseudo_header_sums_to_what_the_kernel_filled_in() {
    for hex in [SYN_V4, SYN_ACK_V4, FIRST_DATA_V4, DATA_V4, SYN_V6, FIRST_DATA_V6] {
        let bytes = bytes(hex);
        let frame = parsed(hex);
        let field = u16::from_be_bytes([bytes[frame.tcp_at + 16], bytes[frame.tcp_at + 17]]);
        assert_eq!(checksum::fold(frame.pseudo_header_sum()), field);
        assert!(!frame.is_checksum_right(&bytes));
    }
}

/// What is parsed from the kernel's options is written in the kernel's layout, octet by octet.
#[test]
fn options_are_written_as_the_kernel_writes_them() {
    for hex in [
        SYN_V4,
        SYN_ACK_V4,
        ACK_V4,
        FIRST_DATA_V4,
        DATA_ACK_V4,
        DATA_V4,
        DATA_FIN_V4,
        LONG_ACK_DATA_V4,
        SYN_V6,
        FIRST_DATA_V6,
    ] {
        let bytes = bytes(hex);
        let frame = parsed(hex);
        let mut buf = [0; MAX_LEN];
        let len = emit(&frame.segment.options, &mut buf).expect("they fit");
        assert_eq!(buf[..len], bytes[frame.tcp_at + 20..frame.payload_at]);
    }
}
