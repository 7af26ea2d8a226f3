//! Reordering, loss, duplicates, and what is told about them.

use super::*;

fn block(start: u64, end: u64) -> SackBlock {
    SackBlock { start: PEER + 1 + start as u32, end: PEER + 1 + end as u32 }
}

fn blocks(ack: &Segment) -> &[SackBlock] {
    ack.options.sack.as_slice()
}

/// Plain TCP without timestamps: room for four blocks.
fn roomy() -> Trace {
    let mut syn = plain_syn();
    syn.options.timestamps = None;
    let mut trace = Trace::with_syn(syn);
    trace.expect_sent(1);
    trace.accept(seg(0, 0));
    trace.events.clear();
    trace
}

#[test]
fn a_gap_is_reported_at_once_and_closed_at_once() {
    let mut trace = Trace::mptcp();
    trace.accept(mapped(0, 100));
    trace.accept(mapped(200, 100));
    assert_eq!(blocks(&trace.expect_ack(100)), [block(200, 300)]);
    trace.accept(mapped(300, 100));
    assert_eq!(blocks(&trace.expect_ack(100)), [block(200, 400)]);
    trace.accept(mapped(100, 100));
    let ack = trace.expect_ack(400);
    assert_eq!(blocks(&ack), []);
    trace.expect_stream(400);
    assert_eq!(trace.subflow.statistics().out_of_order, 2);
    assert_eq!(trace.subflow.statistics().bytes, 400);
}

#[test]
fn the_block_that_changed_last_comes_first() {
    let mut trace = roomy();
    for at in [100, 300, 500, 700, 900] {
        trace.accept(seg(at, 50));
    }
    let latest = [block(900, 950), block(700, 750), block(500, 550), block(300, 350)];
    assert_eq!(blocks(&trace.expect_ack(0)), latest);
    trace.accept(seg(350, 50));
    let latest = [block(300, 400), block(900, 950), block(700, 750), block(500, 550)];
    assert_eq!(blocks(&trace.expect_ack(0)), latest);
    // Two blocks become one.
    trace.accept(seg(550, 150));
    let latest = [block(500, 750), block(300, 400), block(900, 950), block(100, 150)];
    assert_eq!(blocks(&trace.expect_ack(0)), latest);
}

#[test]
fn beside_timestamps_and_a_data_ack_two_blocks_fit() {
    let mut trace = Trace::mptcp();
    for at in [100, 300, 500] {
        trace.accept(mapped(at, 50));
    }
    assert_eq!(blocks(&trace.expect_ack(0)), [block(500, 550), block(300, 350)]);
}

#[test]
fn beside_a_data_ack_three_blocks_fit() {
    let mut syn = syn();
    syn.options.timestamps = None;
    let mut trace = Trace::with_syn(syn);
    trace.expect_sent(1);
    trace.accept(with_mptcp(seg(0, 0), capable_ack(None)));
    for at in [100, 300, 500, 700] {
        trace.accept(mapped(at, 50));
    }
    let latest = [block(700, 750), block(500, 550), block(300, 350)];
    assert_eq!(blocks(&trace.expect_ack(0)), latest);
}

#[test]
fn beside_timestamps_and_a_data_fin_no_block_fits() {
    let mut trace = Trace::mptcp();
    trace.accept(mapped(500, 100));
    trace.connection.shutdown_write(StreamOffset(0));
    let sent = trace.expect_one();
    assert!(sent.options.mptcp.dss.is_some_and(|dss| dss.data_fin && dss.ack.is_some()));
    assert_eq!(blocks(&sent), []);
    // What was left out is told the next time.
    trace.subflow.request_ack();
    assert_eq!(blocks(&trace.expect_one()), [block(500, 600)]);
}

#[test]
fn without_sack_at_the_peer_none_is_sent() {
    let mut syn = plain_syn();
    syn.options.sack_permitted = false;
    let mut trace = Trace::with_syn(syn);
    trace.expect_sent(1);
    trace.accept(seg(0, 0));
    trace.accept(seg(100, 100));
    assert_eq!(blocks(&trace.expect_ack(0)), []);
    trace.accept(seg(0, 100));
    trace.expect_stream(200);
}

#[test]
fn a_duplicate_is_reported_once() {
    let mut trace = roomy();
    trace.accept(seg(0, 300));
    trace.sent();
    trace.refuse(seg(100, 100), DropReason::Duplicate);
    assert_eq!(blocks(&trace.expect_ack(300)), [block(100, 200)]);
    trace.subflow.request_ack();
    assert_eq!(blocks(&trace.expect_ack(300)), []);
}

#[test]
fn a_partial_duplicate_is_reported_with_what_was_superfluous() {
    let mut trace = roomy();
    trace.accept(seg(0, 300));
    trace.accept(seg(200, 200));
    assert_eq!(blocks(&trace.expect_ack(400)), [block(200, 300)]);
    trace.expect_stream(400);
    assert_eq!(trace.subflow.statistics().duplicate_bytes, 100);
}

#[test]
fn a_duplicate_above_the_gap_is_followed_by_its_block() {
    // RFC 2883, section 4.1.3.
    let mut trace = roomy();
    trace.accept(seg(100, 300));
    trace.sent();
    trace.accept(seg(600, 100));
    trace.sent();
    trace.refuse(seg(200, 100), DropReason::Duplicate);
    let expected = [block(200, 300), block(100, 400), block(600, 700)];
    assert_eq!(blocks(&trace.expect_ack(0)), expected);
    // The whole of a held block again: the duplicate and the block are the same range.
    trace.refuse(seg(600, 100), DropReason::Duplicate);
    let expected = [block(600, 700), block(600, 700), block(100, 400)];
    assert_eq!(blocks(&trace.expect_ack(0)), expected);
}

#[test]
fn beside_timestamps_a_duplicate_is_followed_by_one_block() {
    let mut trace = Trace::mptcp();
    trace.accept(mapped(0, 100));
    trace.accept(mapped(200, 100));
    trace.accept(mapped(400, 100));
    trace.sent();
    trace.refuse(mapped(0, 100), DropReason::Duplicate);
    assert_eq!(blocks(&trace.expect_ack(100)), [block(0, 100), block(400, 500)]);
}

#[test]
fn with_room_for_one_block_a_gap_matters_more_than_a_duplicate() {
    // Our DATA_FIN takes so much that one block fits.
    let mut syn = syn();
    syn.options.timestamps = None;
    let mut trace = Trace::with_syn(syn);
    trace.expect_sent(1);
    trace.accept(with_mptcp(seg(0, 0), capable_ack(None)));
    trace.accept(mapped(0, 100));
    trace.accept(mapped(200, 100));
    trace.sent();
    trace.refuse(mapped(0, 100), DropReason::Duplicate);
    trace.connection.shutdown_write(StreamOffset(0));
    assert_eq!(blocks(&trace.expect_ack(100)), [block(200, 300)]);
    trace.accept(mapped(100, 100));
    trace.sent();
    trace.refuse(mapped(0, 100), DropReason::Duplicate);
    trace.pass(ms(200));
    assert_eq!(blocks(&trace.expect_ack(300)), [block(0, 100)]);
}

#[test]
fn a_segment_that_spans_gaps_and_held_blocks_fills_what_is_missing() {
    let mut trace = Trace::plain();
    trace.accept(seg(100, 100));
    trace.accept(seg(300, 100));
    trace.sent();
    trace.accept(seg(0, 500));
    trace.expect_ack(500);
    trace.expect_stream(500);
    assert_eq!(trace.subflow.statistics().duplicate_bytes, 200);
    assert_eq!(trace.subflow.statistics().bytes, 500);
}

#[test]
fn the_first_copy_of_a_byte_stands() {
    let mut trace = Trace::plain();
    trace.accept(seg(100, 100));
    // A copy with other bytes covers it.
    let mut forged = text(0, 300);
    forged[100..200].fill(0xee);
    assert_eq!(trace.recv_bytes(seg(0, 300), &forged), Disposition::Accepted);
    trace.expect_stream(300);
}

#[test]
fn more_gaps_than_are_kept_are_refused_but_never_the_next_segment() {
    let mut trace = Trace::plain();
    let limit = crate::subflow::sack::MAX_RANGES as u64;
    for n in 0..limit {
        trace.accept(seg(100 + n * 20, 10));
    }
    trace.refuse(seg(100 + limit * 20, 10), DropReason::ReorderFull);
    trace.expect_ack(0);
    // What joins a range is still taken, and so is what is next.
    trace.accept(seg(110, 10));
    trace.accept(seg(0, 100));
    trace.expect_ack(130);
    trace.accept(seg(100 + limit * 20, 10));
}
