use core::net::{Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use super::*;

fn hex<const N: usize>(text: &str) -> [u8; N] {
    assert_eq!(text.len(), 2 * N);
    core::array::from_fn(|n| {
        u8::from_str_radix(&text[2 * n..2 * n + 2], 16).expect("hexadecimal digits")
    })
}

const KEY_A: Key = Key(0x0102_0304_0506_0708);
const KEY_B: Key = Key(0x1112_1314_1516_1718);
const NONCE_A: u32 = 0xa1a2_a3a4;
const NONCE_B: u32 = 0xb1b2_b3b4;

/// RFC 4231, test case 2. HMAC pads a key with zeros, so that the four octets "Jefe" are the same
/// key as these sixteen.
#[test]
fn hmac_sha256_of_rfc_4231() {
    let jefe = Key(u64::from_be_bytes(*b"Jefe\0\0\0\0"));
    assert_eq!(
        hmac_sha256(jefe, Key(0), b"what do ya want for nothing?"),
        hex("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843")
    );
}

/// The vector in the SipHash paper, appendix A.
#[test]
fn siphash_of_the_paper() {
    let mut hasher = SipHasher24::new_with_key(&core::array::from_fn(|n| n as u8));
    hasher.write(&core::array::from_fn::<u8, 15, _>(|n| n as u8));
    assert_eq!(hasher.finish(), 0xa129_ca61_49be_45e5);
}

/// NIST's SHA-256 vector for a message of 64 bits, which starts with 963bb88f and ends with
/// 36e1917120fb48bf. What a kernel derived from its keys is tested with its packets, in `wire`.
#[test]
fn token_and_idsn_are_the_ends_of_the_keys_hash() {
    assert_eq!(
        key_to_token_and_idsn(Key(0x5738_c929_c4f4_ccb6)),
        (Token(0x963b_b88f), DataSeq(0x36e1_9171_20fb_48bf))
    );
}

/// Computed with Python's hmac module.
#[test]
fn join_hmacs() {
    let of_a = JoinHmac::new(KEY_A, KEY_B, NONCE_A, NONCE_B);
    let of_b = JoinHmac::new(KEY_B, KEY_A, NONCE_B, NONCE_A);
    assert_eq!(
        of_a.full(),
        hex("53037f2899475529844115fd07e665d23d3554fb8dde7551287562b1aa8e53de")
    );
    assert_eq!(of_a.leftmost_160(), hex("53037f2899475529844115fd07e665d23d3554fb"));
    assert_eq!(of_b.leftmost_64(), 0x864b_4042_8762_fd06);
}

#[test]
fn join_hmacs_match_only_themselves() {
    let hmac = JoinHmac::new(KEY_A, KEY_B, NONCE_A, NONCE_B);
    assert!(hmac.matches_64(hmac.leftmost_64()));
    assert!(hmac.matches_160(&hmac.leftmost_160()));
    for bit in 0..160 {
        let mut shown = hmac.leftmost_160();
        shown[bit / 8] ^= 1 << (bit % 8);
        assert!(!hmac.matches_160(&shown));
    }
    for bit in 0..64 {
        assert!(!hmac.matches_64(hmac.leftmost_64() ^ 1 << bit));
        assert!(!keys_equal(KEY_A, Key(KEY_A.0 ^ 1 << bit)));
        assert!(!hmacs_equal(KEY_A.0, KEY_A.0 ^ 1 << bit));
    }
    assert!(keys_equal(KEY_A, KEY_A));
    assert!(hmacs_equal(7, 7));
}

/// Computed with Python's hmac module; without a port the message has two octets of zero.
#[test]
fn add_addr_hmacs() {
    let v4 = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    let v6 = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x42));
    for (id, address, port, expected) in [
        (5, v4, None, 0xf868_d632_9306_284a),
        (5, v4, Some(8080), 0xc829_b2d8_597d_0f19),
        (9, v6, None, 0xe9b7_085e_a536_dc0b),
        (9, v6, Some(8080), 0xf0b8_2683_d055_d4d2),
    ] {
        assert_eq!(add_addr_hmac(KEY_A, KEY_B, AddressId(id), address, port), expected);
    }
}

fn secret() -> IsnSecret {
    IsnSecret::new(core::array::from_fn(|n| n as u8))
}

fn ends(ipv6: bool) -> (SocketAddr, SocketAddr) {
    let (local, remote) = if ipv6 {
        ("[2001:db8::1]:80", "[2001:db8::2]:40000")
    } else {
        ("192.0.2.1:80", "198.51.100.7:40000")
    };
    (local.parse().expect("an address"), remote.parse().expect("an address"))
}

/// Computed with another implementation of SipHash-2-4, itself checked with the paper's vector.
#[test]
fn initial_sequence_numbers_and_timestamp_offsets() {
    for (ipv6, isn, offset) in [(false, 0x5b7c_9a36, 0xccfe_5b81), (true, 0x62fc_9d5b, 0xaa68_a51e)]
    {
        let (local, remote) = ends(ipv6);
        assert_eq!(secret().isn(local, remote, Instant(0)), SeqNum(isn));
        assert_eq!(secret().timestamp_offset(local, remote), offset);
    }
}

/// RFC 9293, section 3.4.1: the clock ticks roughly every 4 microseconds.
#[test]
fn initial_sequence_numbers_grow_with_time() {
    let (local, remote) = ends(false);
    let at = |after| secret().isn(local, remote, Instant(0) + after);
    let start = at(Duration::ZERO);
    assert_eq!(at(Duration::from_nanos(3999)), start);
    assert_eq!(at(Duration::from_micros(4)), start + 1);
    assert_eq!(at(Duration::from_secs(1)), start + 250_000);
    // Around once in 4.77 hours.
    assert_eq!(at(Duration::from_micros(4 << 32)), start);
}

#[test]
fn every_part_of_the_addresses_and_the_secret_counts() {
    let (local, remote) = ends(false);
    let now = Instant(0);
    let base = secret().isn(local, remote, now);
    assert_ne!(secret().isn(remote, local, now), base);
    for (local, remote) in [
        (local, "198.51.100.7:40001"),
        (local, "198.51.100.8:40000"),
        ("192.0.2.1:81".parse().expect("an address"), "198.51.100.7:40000"),
        ("192.0.2.2:80".parse().expect("an address"), "198.51.100.7:40000"),
    ] {
        assert_ne!(secret().isn(local, remote.parse().expect("an address"), now), base);
    }
    assert_ne!(IsnSecret::new([9; 16]).isn(local, remote, now), base);
}

#[test]
fn secrets_are_not_printed() {
    extern crate alloc;
    assert_eq!(alloc::format!("{:?}", secret()), "IsnSecret(..)");
    let hmac = JoinHmac::new(KEY_A, KEY_B, NONCE_A, NONCE_B);
    assert_eq!(alloc::format!("{hmac:?}"), "JoinHmac(..)");
}
