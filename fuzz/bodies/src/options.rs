//! TCP and MPTCP options, and whole frames.

use mpxdp_proto::segment::{Flags, Options, SackBlocks};
use mpxdp_proto::wire::options::{MAX_LEN, emit, options_len, parse, sack_room};
use mpxdp_proto::wire::{EmitError, Frame, IpFields, emit_frame, parse_frame};

/// Parses options or a frame; what it says must hold together, and come back when it is written
/// and parsed again.
///
/// The first byte says what the rest is: a list of options with the control bits of their segment,
/// or a frame as it is, or one whose checksum of the IPv4 header is made right, since no fuzzer
/// finds one.
pub fn options(data: &[u8]) {
    match data {
        [kind, flags, list @ ..] if kind % 3 == 0 => check_list(list, Flags(*flags)),
        [kind, more, frame @ ..] => {
            let mut frame = frame.to_vec();
            if kind % 3 == 1 {
                correct_ipv4(&mut frame);
            }
            check_frame(&frame, frame.len());
            // As the first buffer of a longer packet, and with bytes behind the packet.
            check_frame(&frame, frame.len() + usize::from(*more));
            check_frame(&frame, frame.len().saturating_sub((*more).into()));
        }
        _ => {}
    }
}

fn check_list(list: &[u8], flags: Flags) {
    let parsed = parse(list, flags);
    check_presence(list, flags, &parsed);
    let len = options_len(&parsed);
    assert_eq!(len % 4, 0);
    let mut buf = [0xee; MAX_LEN + 1];
    match emit(&parsed, &mut buf) {
        Ok(written) => {
            assert_eq!(written, len);
            assert!(buf[len..].iter().all(|octet| *octet == 0xee), "wrote past its length");
            assert_eq!(parse(&buf[..len], flags), with_room(&parsed));
        }
        Err(error) => {
            assert_eq!(error, EmitError::OptionsTooLong);
            // A list as long as that is none that a header can hold, or needed its padding.
            assert!(len > MAX_LEN);
        }
    }
}

/// The options without the SACK blocks that have no room beside the others.
fn with_room(options: &Options) -> Options {
    let mut sack = SackBlocks::default();
    for block in options.sack.as_slice().iter().take(sack_room(options)) {
        sack.push(*block);
    }
    Options { sack, ..*options }
}

/// Whether each MPTCP option is there exactly if the list has one of its subtype with a length that
/// RFC 8684 gives it; worked out from the RFC's figures alone, without looking into values.
fn check_presence(list: &[u8], flags: Flags, parsed: &Options) {
    let (syn, ack) = (flags.contains(Flags::SYN), flags.contains(Flags::ACK));
    let mut right = [false; 16];
    for option in split(list).filter(|option| option[0] == 30) {
        let Some(third) = option.get(2) else { continue };
        let (subtype, len) = (third >> 4, option.len());
        right[usize::from(subtype)] |= match subtype {
            // MP_CAPABLE goes by values as well, so it is not decided here.
            0 => false,
            1 => {
                matches!((syn, ack, len), (true, false, 12) | (true, true, 16) | (false, true, 24))
            }
            2 => option.get(3).is_some_and(|bits| {
                let number = |long: u8| if bits & long == 0 { 4 } else { 8 };
                let ack = if bits & 1 == 0 { 0 } else { number(2) };
                let mapping = if bits & 4 == 0 { 0 } else { number(8) + 6 };
                len == 4 + ack + mapping || mapping > 0 && len == 6 + ack + mapping
            }),
            3 => {
                let hmac = if third & 1 == 0 { 8 } else { 0 };
                [8, 10, 20, 22].contains(&len.saturating_sub(hmac))
            }
            4 => len >= 4,
            5 => len == 3,
            6 | 7 => len == 12,
            8 => len == 4,
            _ => false,
        };
    }
    let mptcp = &parsed.mptcp;
    assert_eq!(mptcp.join.is_some(), right[1]);
    assert_eq!(mptcp.dss.is_some(), right[2]);
    assert_eq!(mptcp.add_addr.is_some(), right[3]);
    assert_eq!(mptcp.remove_addr.is_some(), right[4]);
    assert_eq!(mptcp.priority.is_some(), right[5]);
    assert_eq!(mptcp.fail.is_some(), right[6]);
    assert_eq!(mptcp.fast_close.is_some(), right[7]);
    assert_eq!(mptcp.reset.is_some(), right[8]);
}

/// The options of a list, kind and length included, as far as the lengths add up (RFC 9293,
/// section 3.1).
fn split(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = list;
    std::iter::from_fn(move || {
        while rest.first() == Some(&1) {
            rest = &rest[1..];
        }
        let [kind, len, ..] = *rest else { return None };
        if kind == 0 || len < 2 || usize::from(len) > rest.len() {
            return None;
        }
        let (option, behind) = rest.split_at(len.into());
        rest = behind;
        Some(option)
    })
}

/// Parses `bytes` as the first buffer of a frame of `total` bytes.
fn check_frame(bytes: &[u8], total: usize) {
    let Ok(frame) = parse_frame(bytes, total) else { return };
    let Frame { link, local, remote, segment, tcp_at, payload_at, payload_len, .. } = &frame;
    assert!(*tcp_at >= link.wire_len() + if local.is_ipv4() { 20 } else { 40 });
    assert!((tcp_at + 20..=tcp_at + 60).contains(payload_at));
    assert!(*payload_at <= bytes.len() && frame.end() <= total);
    assert_eq!(segment.payload_len as usize, *payload_len);
    assert_eq!(local.is_ipv4(), remote.is_ipv4());
    check_presence(&bytes[tcp_at + 20..*payload_at], segment.flags, &segment.options);
    let Some(payload) = bytes.get(*payload_at..frame.end()) else { return };
    let mut buf = vec![0; bytes.len() + 200];
    let ip =
        IpFields { hop_limit: frame.hop_limit, traffic_class: frame.ecn, ..IpFields::default() };
    // It goes from its source to its destination: what is remote to us is local to its sender.
    match emit_frame(&mut buf, link, *remote, *local, ip, segment, payload) {
        Ok(len) => {
            let again = parse_frame(&buf[..len], len).expect("what was written can be parsed");
            assert!(again.is_checksum_right(&buf[..len]));
            let options = with_room(&segment.options);
            assert_eq!(again.segment, mpxdp_proto::segment::Segment { options, ..*segment });
            assert_eq!((again.link, again.local, again.remote), (*link, *local, *remote));
            assert_eq!((again.ecn, again.hop_limit), (frame.ecn, frame.hop_limit));
            assert_eq!(&buf[again.payload_at..again.end()], payload);
        }
        Err(error) => assert!(
            matches!(error, EmitError::OptionsTooLong | EmitError::PacketTooLong),
            "{error}"
        ),
    }
}

/// Makes the checksum of an untagged frame's IPv4 header right.
fn correct_ipv4(frame: &mut [u8]) {
    let Some(first) = frame.get(14) else { return };
    let end = 14 + 4 * usize::from(first & 15);
    let Some(header) = frame.get_mut(14..end).filter(|header| header.len() >= 20) else { return };
    header[10..12].fill(0);
    let sum = mpxdp_proto::wire::checksum::sum(header);
    let sum = !mpxdp_proto::wire::checksum::fold(sum);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}
