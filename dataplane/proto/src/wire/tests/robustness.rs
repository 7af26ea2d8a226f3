//! No input makes the parser panic or point outside the frame.

use alloc::vec::Vec;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::frame;
use super::strategies::segment;
use crate::wire::{Frame, parse_frame, parse_frame_into};

/// Parses `bytes` as the first buffer of a frame of `total` octets and checks that what it tells
/// holds together.
fn check(bytes: &[u8], total: usize) -> Result<(), TestCaseError> {
    let Ok(frame) = parse_frame(bytes, total) else { return Ok(()) };
    prop_assert!(frame.tcp_at >= 34);
    prop_assert!(frame.payload_at >= frame.tcp_at + 20);
    prop_assert!(frame.payload_at <= frame.tcp_at + 60);
    prop_assert!(frame.payload_at <= bytes.len());
    prop_assert!(frame.end() <= total);
    prop_assert_eq!(frame.segment.payload_len as usize, frame.payload_len);
    let _ = frame.is_checksum_right(bytes);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn arbitrary_bytes(bytes in vec(any::<u8>(), 0..200), total in 0..300_usize) {
        check(&bytes, bytes.len())?;
        check(&bytes, total)?;
    }

    #[test]
    fn arbitrary_bytes_behind_an_ether_type(
        mut bytes in vec(any::<u8>(), 14..200),
        tags in 0..=2_usize,
        ipv6 in any::<bool>(),
        total in 0..300_usize,
    ) {
        bytes[0] &= !1;
        let end = if ipv6 { [0x86, 0xdd, 0x60] } else { [0x08, 0x00, 0x45] };
        for n in 0..tags {
            bytes.splice(12 + 4 * n..12 + 4 * n, [0x81, 0, 0, 1]);
        }
        let at = 12 + 4 * tags;
        let len = bytes.len().min(at + 3) - at;
        bytes[at..at + len].copy_from_slice(&end[..len]);
        check(&bytes, bytes.len())?;
        check(&bytes, total)?;
    }

    #[test]
    fn a_used_frame_serves_as_well_as_a_new_one(
        (first, first_tags, first_ipv6) in (segment(), 0..=2_u16, any::<bool>()),
        (second, second_tags, second_ipv6) in (segment(), 0..=2_u16, any::<bool>()),
    ) {
        let mut parsed = Frame::default();
        for (segment, tags, ipv6) in
            [(first, first_tags, first_ipv6), (second, second_tags, second_ipv6)]
        {
            let bytes = frame(tags, ipv6, &segment, &[]);
            prop_assert_eq!(parse_frame_into(&bytes, bytes.len(), &mut parsed), Ok(()));
            prop_assert_eq!(parse_frame(&bytes, bytes.len()), Ok(parsed));
        }
    }

    #[test]
    fn mutations_of_valid_frames(
        segment in segment(),
        (tags, ipv6) in (0..=2_u16, any::<bool>()),
        payload in vec(any::<u8>(), 0..40),
        changes in vec((any::<Index>(), any::<u8>()), 0..6),
        (insert, remove) in (vec((any::<Index>(), any::<u8>()), 0..3), vec(any::<Index>(), 0..3)),
        (cut, total) in (any::<Index>(), any::<Index>()),
    ) {
        let mut bytes: Vec<u8> = frame(tags, ipv6, &segment, &payload);
        for (at, octet) in changes {
            // The headers are what matters.
            let at = at.index(bytes.len().min(140));
            bytes[at] = octet;
        }
        check(&bytes, bytes.len())?;
        for (at, octet) in insert {
            bytes.insert(at.index(bytes.len()), octet);
        }
        for at in remove {
            bytes.remove(at.index(bytes.len()));
        }
        check(&bytes, bytes.len())?;
        check(&bytes, total.index(bytes.len() + 100))?;
        bytes.truncate(cut.index(bytes.len()));
        check(&bytes, bytes.len())?;
        check(&bytes, total.index(bytes.len() + 100))?;
    }
}
