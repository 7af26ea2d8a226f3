//! Changing the tables while the program runs.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

mod common;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

use mpxdp_ebpf::{Action, MAX_QUEUES, Program, TableError};

use crate::common::packet::*;
use crate::common::{privileged, xdp_socket};

const PORT: u16 = 5001;

fn any() -> SocketAddr {
    (Ipv4Addr::UNSPECIFIED, PORT).into()
}

fn ours() -> SocketAddr {
    (OURS, PORT).into()
}

/// The program with a socket on queue 0, which must live as long.
fn program() -> (Program, std::os::fd::OwnedFd) {
    let mut program = Program::load().expect("the program loads");
    let socket = xdp_socket();
    program.tables_mut().bind_queue(0, socket.as_fd()).unwrap();
    (program, socket)
}

fn action(program: &Program, frame: &Frame) -> Action {
    program.test_run(&frame.build(), 1).unwrap().action
}

#[test]
fn a_listener_counts_from_listen_to_unlisten() {
    if !privileged("a_listener_counts_from_listen_to_unlisten") {
        return;
    }
    let (mut program, _socket) = program();
    let frame = Segment::to(PORT).ipv4();
    assert_eq!(action(&program, &frame), Action::Pass);
    for _ in 0..2 {
        // Twice is once.
        program.tables_mut().listen(ours()).unwrap();
        program.tables_mut().listen(ours()).unwrap();
        assert_eq!(action(&program, &frame), Action::Redirect);
        program.tables_mut().unlisten(ours()).unwrap();
        assert_eq!(action(&program, &frame), Action::Pass);
        program.tables_mut().unlisten(ours()).unwrap();
    }
}

#[test]
fn listeners_on_one_port_do_not_take_each_other_away() {
    if !privileged("listeners_on_one_port_do_not_take_each_other_away") {
        return;
    }
    let (mut program, _socket) = program();
    let tables = program.tables_mut();
    let second: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
    tables.set_local_addresses(&[OURS.into(), second.into()]).unwrap();
    tables.listen(ours()).unwrap();
    tables.listen((second, PORT).into()).unwrap();
    tables.listen((OURS_V6, PORT).into()).unwrap();
    tables.listen(any()).unwrap();

    let first_frame = Segment::to(PORT).ipv4();
    let second_frame =
        Ipv4 { destination: second, ..Ipv4::of(TCP, Segment::to(PORT).build()) }.frame();
    program.tables_mut().unlisten((second, PORT).into()).unwrap();
    assert_eq!(action(&program, &second_frame), Action::Redirect, "still any address");
    program.tables_mut().unlisten(any()).unwrap();
    assert_eq!(action(&program, &second_frame), Action::Pass);
    assert_eq!(action(&program, &first_frame), Action::Redirect);
    program.tables_mut().unlisten(ours()).unwrap();
    assert_eq!(action(&program, &first_frame), Action::Pass);
    assert_eq!(action(&program, &Segment::to(PORT).ipv6()), Action::Redirect);
}

#[test]
fn the_set_of_local_addresses_is_replaced() {
    if !privileged("the_set_of_local_addresses_is_replaced") {
        return;
    }
    let (mut program, _socket) = program();
    let frame = Segment::to(PORT).ipv4();
    let other: IpAddr = Ipv4Addr::new(192, 0, 2, 2).into();
    program.tables_mut().listen(any()).unwrap();
    for (addresses, expected) in [
        (vec![], Action::Pass),
        (vec![OURS.into(), OURS_V6.into()], Action::Redirect),
        (vec![OURS.into(), other], Action::Redirect),
        (vec![other], Action::Pass),
        (vec![other, OURS.into()], Action::Redirect),
        (vec![], Action::Pass),
    ] {
        program.tables_mut().set_local_addresses(&addresses).unwrap();
        assert_eq!(action(&program, &frame), expected, "{addresses:?}");
    }
}

#[test]
fn connections_of_one_port_are_told_apart() {
    if !privileged("connections_of_one_port_are_told_apart") {
        return;
    }
    let (mut program, _socket) = program();
    let of = |source| Segment { source, ..Segment::to(PORT) }.ipv4();
    let peer = |port| SocketAddr::from((PEER, port));
    program.tables_mut().add_flow(ours(), peer(1)).unwrap();
    program.tables_mut().add_flow(ours(), peer(1)).unwrap();
    program.tables_mut().add_flow(ours(), peer(2)).unwrap();
    program.tables_mut().remove_flow(ours(), peer(3)).unwrap();
    assert_eq!(action(&program, &of(1)), Action::Redirect);
    assert_eq!(action(&program, &of(2)), Action::Redirect);
    assert_eq!(action(&program, &of(3)), Action::Pass);
    program.tables_mut().remove_flow(ours(), peer(1)).unwrap();
    program.tables_mut().remove_flow(ours(), peer(1)).unwrap();
    assert_eq!(action(&program, &of(1)), Action::Pass);
    assert_eq!(action(&program, &of(2)), Action::Redirect);
    program.tables_mut().remove_flow(ours(), peer(2)).unwrap();
    assert_eq!(action(&program, &of(2)), Action::Pass);
}

#[test]
fn a_queue_drops_from_the_moment_its_socket_is_gone() {
    if !privileged("a_queue_drops_from_the_moment_its_socket_is_gone") {
        return;
    }
    let (mut program, socket) = program();
    let frame = Segment::to(PORT).ipv4();
    program.tables_mut().listen(ours()).unwrap();
    assert_eq!(action(&program, &frame), Action::Redirect);
    program.tables_mut().unbind_queue(0).unwrap();
    assert_eq!(action(&program, &frame), Action::Drop);
    program.tables_mut().unbind_queue(0).unwrap();
    program.tables_mut().bind_queue(0, socket.as_fd()).unwrap();
    assert_eq!(action(&program, &frame), Action::Redirect);
    // A closed socket leaves the table by itself.
    drop(socket);
    assert_eq!(action(&program, &frame), Action::Drop);
}

#[test]
fn impossible_entries_are_refused_with_their_reason() {
    if !privileged("impossible_entries_are_refused_with_their_reason") {
        return;
    }
    let (mut program, socket) = program();
    let tables = program.tables_mut();
    tables.bind_queue(MAX_QUEUES - 1, socket.as_fd()).unwrap();
    let error = tables.bind_queue(MAX_QUEUES, socket.as_fd()).unwrap_err();
    assert!(matches!(error, TableError::QueueOutOfRange { queue: MAX_QUEUES }), "{error}");
    assert!(matches!(
        tables.unbind_queue(MAX_QUEUES),
        Err(TableError::QueueOutOfRange { queue: MAX_QUEUES })
    ));
    let not_xdp = std::fs::File::open("/dev/null").unwrap();
    let error = tables.bind_queue(0, not_xdp.as_fd()).unwrap_err();
    assert!(matches!(error, TableError::Refused { .. }), "{error}");
    let zero = SocketAddr::from((OURS, 0));
    assert!(matches!(tables.listen(zero), Err(TableError::PortZero { .. })));
    let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 1));
    assert!(matches!(tables.add_flow(ours(), v6), Err(TableError::MixedFamilies { .. })));
    assert!(matches!(tables.add_flow(ours(), zero), Err(TableError::PortZero { .. })));
}

#[test]
fn a_full_table_says_so_and_takes_again_after_a_removal() {
    if !privileged("a_full_table_says_so_and_takes_again_after_a_removal") {
        return;
    }
    let mut program = Program::load().unwrap();
    let tables = program.tables_mut();
    for port in 1..=1024 {
        tables.listen((OURS, port).into()).unwrap();
    }
    let one_more = SocketAddr::from((OURS, 2000));
    let error = tables.listen(one_more).unwrap_err();
    assert!(matches!(error, TableError::Full { .. }), "{error}");
    tables.unlisten((OURS, 1).into()).unwrap();
    tables.listen(one_more).unwrap();
}
