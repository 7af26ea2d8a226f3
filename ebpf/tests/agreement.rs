//! What the program takes from the kernel, the worker's parser must be able to take: else a packet
//! would be lost that the kernel should have had.

mod common;

use std::os::fd::{AsFd, OwnedFd};

use mpxdp_ebpf::{Action, Program};
use mpxdp_proto::wire::{ParseError, parse_frame};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::common::packet::*;
use crate::common::{privileged, xdp_socket};

const PORT: u16 = 5001;

fn program() -> (Program, OwnedFd) {
    let mut program = Program::load().expect("the program loads");
    let socket = xdp_socket();
    let tables = program.tables_mut();
    tables.bind_queue(0, socket.as_fd()).expect("a socket on queue 0");
    tables.listen((OURS, PORT).into()).expect("an IPv4 listener");
    tables.listen((OURS_V6, PORT).into()).expect("an IPv6 listener");
    (program, socket)
}

/// A good frame of each shape.
fn frames() -> Vec<Vec<u8>> {
    let segment = Segment { options: vec![1; 12], payload: 40, ..Segment::to(PORT) };
    let ipv6 = Ipv6 {
        extensions: vec![
            (HOP_BY_HOP, options(0)),
            (ROUTING, routing(0)),
            (DESTINATION_OPTIONS, options(1)),
        ],
        ..Ipv6::of(TCP, segment.build())
    };
    vec![
        segment.ipv4().build(),
        segment.ipv4().padded_by(9).tagged(&[(VLAN, 7)]).build(),
        Ipv4 { options: vec![1; 8], ..Ipv4::of(TCP, segment.build()) }.frame().build(),
        segment.ipv6().tagged(&[(QINQ, 7), (VLAN, 8)]).build(),
        ipv6.frame().build(),
    ]
}

/// Where the IPv4 header of an untagged or tagged frame is, if it has one whose length field can be.
fn fix_header_checksum(frame: &mut [u8]) {
    let mut at = 12;
    while matches!(frame.get(at..at + 2), Some([0x81, 0] | [0x88, 0xa8])) {
        at += 4;
    }
    if frame.get(at..at + 2) != Some(&[8, 0]) {
        return;
    }
    let Some(&first) = frame.get(at + 2) else { return };
    let length = usize::from(first & 0x0f) * 4;
    if let Some(header) = frame.get_mut(at + 2..at + 2 + length).filter(|header| header.len() >= 20)
    {
        fill_header_checksum(header);
    }
}

#[test]
fn the_workers_parser_takes_what_the_program_redirects() {
    if !privileged("the_workers_parser_takes_what_the_program_redirects") {
        return;
    }
    let (program, _socket) = program();
    let frames = frames();
    for frame in &frames {
        assert_eq!(program.test_run(frame, 1).expect("a run").action, Action::Redirect);
        parse_frame(frame, frame.len()).expect("a good frame");
    }

    let damage = (0..frames.len(), vec((0_usize..160, any::<u8>()), 0..4), 14_usize..240);
    let mut runner =
        TestRunner::new(Config { cases: 20_000, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&damage, |(which, changes, length)| {
        let mut frame = frames[which].clone();
        for (at, value) in changes {
            if let Some(octet) = frame.get_mut(at) {
                *octet = value;
            }
        }
        frame.truncate(length);
        fix_header_checksum(&mut frame);

        let redirected = program.test_run(&frame, 1).expect("a run").action == Action::Redirect;
        match (redirected, parse_frame(&frame, frame.len())) {
            // The parser also judges what is beside the point of steering: the options inside an
            // extension header, and the peer's address.
            (true, Ok(_) | Err(ParseError::IpExtension | ParseError::IpAddress)) => {}
            (true, Err(error)) => {
                return Err(TestCaseError::fail(format!("redirected, then refused: {error}")));
            }
            (false, Ok(parsed)) => {
                let ours = parsed.local.port() == PORT
                    && [OURS.into(), OURS_V6.into()].contains(&parsed.local.ip());
                prop_assert!(!ours, "ours, but passed: {:?}", parsed.local);
            }
            (false, Err(_)) => {}
        }
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}
