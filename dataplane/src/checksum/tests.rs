use super::*;

/// RFC 1071, word by word.
fn oracle(bytes: &[u8]) -> u32 {
    let mut sum = 0_u32;
    for word in bytes.chunks(2) {
        sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// Bytes without a pattern that a swap or a lost carry could hide in.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn the_example_of_rfc_1071() {
    // Section 3: the sum of these is ddf2.
    assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    assert_eq!(sum(&[0x12]), 0x1200);
    assert_eq!(sum(&[]), 0);
}

#[test]
fn agrees_with_the_oracle_at_every_length_and_alignment() {
    let noise = noise(2100 + 64);
    // And where nearly every addition carries.
    let ones = vec![0xff; 2100 + 64];
    for bytes in [&noise, &ones] {
        for start in 0..64 {
            let mut expected = 0_u32;
            for len in 0..=2100 {
                // The oracle, one byte further each time: even places are a word's high byte.
                if len > 0 {
                    let byte = u32::from(bytes[start + len - 1]);
                    expected += if len % 2 == 1 { byte << 8 } else { byte };
                    expected = (expected & 0xffff) + (expected >> 16);
                }
                assert_eq!(sum(&bytes[start..start + len]), expected, "{len} bytes at {start}");
            }
            assert_eq!(expected, oracle(&bytes[start..start + 2100]));
        }
    }
}

#[test]
fn agrees_with_the_oracle_on_large_packets() {
    let bytes = noise(1 << 20);
    for len in [8946, 9000, 65_483, 65_535, 65_536, 65_537, 1 << 20] {
        for start in [0, 1, 14, 54, 63] {
            let part = &bytes[start..(start + len).min(bytes.len())];
            assert_eq!(sum(part), oracle(part));
        }
    }
    let ones = vec![0xff; 1 << 20];
    assert_eq!(sum(&ones), 0xffff);
    assert_eq!(sum(&vec![0; 1 << 20]), 0);
}

/// What this machine's dispatch does not take is held to the same.
#[test]
fn the_portable_sum_agrees_with_the_oracle() {
    let bytes = noise(2100 + 8);
    for start in 0..8 {
        for len in (0..=300).chain(2060..=2100) {
            let part = &bytes[start..start + len];
            let native = fold_wide(vector::sum_portable(part));
            assert_eq!(u32::from(u16::from_ne_bytes(native.to_be_bytes())), oracle(part));
        }
    }
}

#[test]
fn pieces_add_up_wherever_the_packet_is_cut() {
    let bytes = noise(700);
    let whole = oracle(&bytes);
    for first in 0..=300 {
        for second in [0, 1, 2, 3, 64, 129, 256, 299] {
            let (a, rest) = bytes.split_at(first);
            let (b, c) = rest.split_at(second);
            let mut pieces = Pieces::new();
            for piece in [a, b, c] {
                pieces.add(piece);
            }
            assert_eq!(pieces.sum(), whole, "cut at {first} and {second}");
        }
    }
}

#[test]
fn folding_adds_the_carries_back_in() {
    assert_eq!(fold(0), 0);
    assert_eq!(fold(0xffff), 0xffff);
    assert_eq!(fold(0x1_0000), 1);
    assert_eq!(fold(0x1_ffff), 1);
    assert_eq!(fold(u32::MAX), 0xffff);
}

#[test]
fn an_intact_packet_folds_to_ones() {
    let mut bytes = noise(1501);
    bytes[16..18].fill(0);
    let check = !fold(sum(&bytes));
    bytes[16..18].copy_from_slice(&check.to_be_bytes());
    assert_eq!(fold(sum(&bytes)), 0xffff);
    bytes[1500] ^= 0x10;
    assert_ne!(fold(sum(&bytes)), 0xffff);
}
