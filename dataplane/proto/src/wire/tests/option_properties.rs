//! What holds for all options.

use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::strategies::{any_options, kind_of_segment, one_mptcp_option, segment, timestamps};
use crate::segment::{Flags, Options, SackBlocks};
use crate::wire::EmitError;
use crate::wire::options::{MAX_LEN, emit, options_len, parse, sack_room};

fn emitted(options: &Options) -> Vec<u8> {
    let mut buf = vec![0xee; MAX_LEN];
    let len = emit(options, &mut buf).expect("the options fit");
    assert!(buf[len..].iter().all(|octet| *octet == 0xee), "wrote beyond the length it told");
    buf.truncate(len);
    buf
}

fn first_blocks(options: &Options, n: usize) -> Options {
    let mut sack = SackBlocks::default();
    for block in options.sack.as_slice().iter().take(n) {
        sack.push(*block);
    }
    Options { sack, ..*options }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn each_mptcp_option_comes_back_alone_and_beside_timestamps(
        (flags, mptcp) in kind_of_segment().prop_flat_map(|f| (Just(f), one_mptcp_option(f))),
        timestamps in proptest::option::of(timestamps()),
    ) {
        let options = Options { timestamps, mptcp, ..Options::default() };
        let bytes = emitted(&options);
        prop_assert_eq!(parse(&bytes, flags), options);
        prop_assert_eq!(bytes.len(), options_len(&options));
        prop_assert_eq!(bytes.len() % 4, 0);
    }

    #[test]
    fn options_come_back_but_for_sack_blocks_without_room(
        (flags, options) in kind_of_segment().prop_flat_map(|f| (Just(f), any_options(f))),
    ) {
        let len = options_len(&options);
        prop_assert_eq!(len % 4, 0);
        if len > MAX_LEN {
            prop_assert_eq!(emit(&options, &mut [0; 100]), Err(EmitError::OptionsTooLong));
            // It is not the blocks that make it too long.
            prop_assert_eq!(sack_room(&options), 0);
            prop_assert!(options_len(&first_blocks(&options, 0)) > MAX_LEN);
        } else {
            let room = sack_room(&options);
            let bytes = emitted(&options);
            prop_assert_eq!(bytes.len(), len);
            prop_assert_eq!(parse(&bytes, flags), first_blocks(&options, room));
            prop_assert_eq!(emit(&options, &mut vec![0; len - 1.min(len)]),
                if len == 0 { Ok(0) } else { Err(EmitError::BufferTooSmall) });
        }
    }

    #[test]
    fn the_shortcut_for_timestamps_changes_nothing(
        stamps in any::<[u8; 8]>(),
        tail in proptest::collection::vec(any::<u8>(), 0..=28),
        flags in kind_of_segment(),
    ) {
        let mut shortcut = vec![1, 1, 8, 10];
        shortcut.extend(stamps);
        shortcut.extend(&tail);
        let mut plain = vec![8, 10];
        plain.extend(stamps);
        plain.extend([1, 1]);
        plain.extend(&tail);
        prop_assert_eq!(parse(&shortcut, flags), parse(&plain, flags));
    }

    #[test]
    fn no_bytes_are_too_strange_to_parse_and_what_was_parsed_can_be_sent(
        bytes in proptest::collection::vec(any::<u8>(), 0..=60),
        flags in any::<u8>().prop_map(Flags),
    ) {
        let options = parse(&bytes, flags);
        // What comes from one header may need more room once padding is added, never panics.
        let mut buf = [0; MAX_LEN];
        if let Ok(len) = emit(&options, &mut buf) {
            let again = parse(&buf[..len], flags);
            prop_assert_eq!(again, first_blocks(&options, sack_room(&options)));
        }
    }

    #[test]
    fn a_list_cut_short_counts_as_far_as_it_goes(
        segment in segment(),
        cut in 0..MAX_LEN,
    ) {
        let (flags, options) = (segment.flags, segment.options);
        let bytes = emitted(&options);
        let whole = parse(&bytes, flags);
        let part = parse(&bytes[..cut.min(bytes.len())], flags);
        // Each option is what it was, or missing.
        prop_assert!(part.mss.is_none() || part.mss == whole.mss);
        prop_assert!(part.timestamps.is_none() || part.timestamps == whole.timestamps);
        prop_assert!(part.window_scale.is_none() || part.window_scale == whole.window_scale);
        prop_assert!(part.sack.as_slice().is_empty() || part.sack == whole.sack);
        prop_assert!(part.mptcp.capable.is_none() || part.mptcp.capable == whole.mptcp.capable);
        prop_assert!(part.mptcp.join.is_none() || part.mptcp.join == whole.mptcp.join);
        prop_assert!(part.mptcp.dss.is_none() || part.mptcp.dss == whole.mptcp.dss);
        prop_assert!(part.mptcp.add_addr.is_none() || part.mptcp.add_addr == whole.mptcp.add_addr);
        prop_assert!(part.mptcp.fail.is_none() || part.mptcp.fail == whole.mptcp.fail);
    }
}
