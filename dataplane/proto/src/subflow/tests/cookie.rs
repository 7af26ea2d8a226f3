//! Handshakes of which nothing is remembered.

use core::net::{Ipv4Addr, SocketAddr};

use super::*;
use crate::config::ChecksumPolicy;

const START: Instant = Instant(1_000_000_000_000);

fn secret() -> CookieSecret {
    CookieSecret::new(*b"a secret for the")
}

fn opening() -> CookieOpening {
    CookieOpening {
        local: SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 80)),
        remote: SocketAddr::from((Ipv4Addr::new(198, 51, 100, 1), 40_000)),
        timestamp_offset: 17,
        mss: MSS,
    }
}

fn syn_ack(config: &Arc<Config>, syn: &Segment, mptcp: bool) -> Segment {
    let view = View::initial(CAPACITY);
    let answer = Subflow::cookie_syn_ack(START, config, &secret(), &opening(), syn, mptcp, &view);
    let answer = answer.expect("a SYN is answered").expect("by a segment");
    assert_survives_the_wire(&answer);
    answer
}

fn open(now: Instant, config: &Arc<Config>, segment: &Segment) -> Option<Trace> {
    let (view, mut placements) = (View::initial(CAPACITY), Vec::new());
    let opened = Subflow::open_by_cookie(
        now,
        config,
        &secret(),
        &opening(),
        segment,
        &view,
        &mut placements,
    );
    let (subflow, disposition) = opened?;
    assert_eq!(disposition, Disposition::Accepted);
    let connection = Connection::new(subflow.local_key());
    let mut trace = Trace::of(subflow, connection, CAPACITY);
    trace.now = now;
    for Placement { to, at, len, .. } in placements {
        trace.store(to.0, &text(u64::from(at), len));
    }
    trace.poll_events();
    Some(trace)
}

/// The third ACK that answers `syn_ack`.
fn third(syn_ack: &Segment) -> Segment {
    let mut ack = Segment { ack: syn_ack.seq + 1, ..seg(0, 0) };
    if syn_ack.options.timestamps.is_none() {
        ack.options.timestamps = None;
    }
    if let Some(MpCapable { checksum_required, body: MpCapableBody::SynAck { sender }, .. }) =
        syn_ack.options.mptcp.capable
    {
        ack.options.mptcp =
            capable(MpCapableBody::Ack { sender: PEER_KEY, receiver: sender, data: None });
        if let Some(capable) = &mut ack.options.mptcp.capable {
            capable.checksum_required = checksum_required;
        }
    }
    ack
}

#[test]
fn a_cookie_brings_back_what_the_syn_offered() {
    let config = Arc::new(Config { checksums: ChecksumPolicy::Accept, ..calm() });
    for scale in [None, Some(WindowScale::ZERO), Some(WindowScale::new(7)), Some(WindowScale::MAX)]
    {
        for (sack, stamped) in [(false, false), (false, true), (true, false), (true, true)] {
            for mptcp in [None, Some(false), Some(true)] {
                let mut syn = plain_syn();
                syn.options.window_scale = scale;
                syn.options.sack_permitted = sack;
                syn.options.timestamps = syn.options.timestamps.filter(|_| stamped);
                if let Some(checksums) = mptcp {
                    syn.options.mptcp = capable(MpCapableBody::Syn);
                    let capable = syn.options.mptcp.capable.as_mut().expect("it is there");
                    capable.checksum_required = checksums;
                }
                let answer = syn_ack(&config, &syn, true);
                assert_eq!(answer.options.window_scale.is_some(), scale.is_some());
                assert_eq!(answer.options.sack_permitted, sack);
                assert_eq!(answer.options.timestamps.is_some(), stamped);
                assert_eq!(answer.options.mptcp.capable.is_some(), mptcp.is_some());
                let trace = open(START, &config, &third(&answer)).expect("the cookie is ours");
                let subflow = &trace.subflow;
                trace.expect_state(State::Established);
                assert_eq!(subflow.send.scale, scale);
                assert_eq!(subflow.reorder.sack, sack);
                assert_eq!(subflow.stamps.is_some(), stamped);
                assert_eq!(subflow.is_mptcp(), mptcp.is_some());
                assert_eq!(subflow.uses_checksums(), mptcp == Some(true));
                assert_eq!(subflow.send.initial, answer.seq);
            }
        }
    }
}

#[test]
fn a_subflow_opened_by_a_cookie_works() {
    let config = Arc::new(calm());
    let answer = syn_ack(&config, &syn(), true);
    let mut trace = open(START, &config, &third(&answer)).expect("the cookie is ours");
    trace.expect_events(&[Event::Established { mptcp: Some(PEER_KEY) }]);
    trace.expect_sent(0);
    trace.accept(Segment { ack: answer.seq + 1, ..mapped(0, 100) });
    trace.subflow.request_ack();
    assert_eq!(trace.expect_ack(100).seq, answer.seq + 1);
    trace.expect_stream(100);
}

#[test]
fn first_data_may_complete_the_handshake_of_a_cookie() {
    let config = Arc::new(calm());
    let mut first = third(&syn_ack(&config, &syn(), true));
    first.payload_len = 100;
    let capable = first.options.mptcp.capable.as_mut().expect("it is there");
    if let MpCapableBody::Ack { data, .. } = &mut capable.body {
        *data = Some(MpCapableData { length: 100, checksum: None });
    }
    let trace = open(START, &config, &first).expect("the cookie is ours");
    assert!(trace.connection.is_fully_established());
    trace.expect_stream(100);
}

#[test]
fn a_wrong_key_in_the_third_ack_means_plain_tcp_with_a_cookie_too() {
    let config = Arc::new(calm());
    let mut ack = third(&syn_ack(&config, &syn(), true));
    ack.options.mptcp = capable_ack(None);
    let trace = open(START, &config, &ack).expect("the cookie is ours");
    assert!(!trace.subflow.is_mptcp());
}

#[test]
fn without_a_key_to_offer_the_answer_is_plain_tcp() {
    let config = Arc::new(calm());
    let answer = syn_ack(&config, &syn(), false);
    assert_eq!(answer.options.mptcp, MptcpOptions::default());
    let trace = open(START, &config, &third(&answer)).expect("the cookie is ours");
    assert_eq!(trace.events, [Event::Established { mptcp: None }]);
}

#[test]
fn what_acknowledges_no_cookie_opens_nothing() {
    let config = Arc::new(calm());
    let right = third(&syn_ack(&config, &syn(), true));
    for bit in 0..32 {
        assert!(
            open(START, &config, &Segment { ack: SeqNum(right.ack.0 ^ 1 << bit), ..right })
                .is_none()
        );
    }
    assert!(open(START, &config, &Segment { seq: right.seq + 1, ..right }).is_none());
    for flags in [Flags(0), Flags::ACK.with(Flags::RST), Flags::ACK.with(Flags::SYN)] {
        assert!(open(START, &config, &Segment { flags, ..right }).is_none());
    }
    let (view, mut none) = (View::initial(CAPACITY), Vec::new());
    for (other_secret, other_port) in [(true, false), (false, true)] {
        let secret = if other_secret { CookieSecret::new([0; 16]) } else { secret() };
        let mut opening = opening();
        opening.remote.set_port(opening.remote.port() + u16::from(other_port));
        let opened =
            Subflow::open_by_cookie(START, &config, &secret, &opening, &right, &view, &mut none);
        assert!(opened.is_none());
    }
}

#[test]
fn a_cookie_is_good_for_one_minute_and_not_for_three() {
    let config = Arc::new(calm());
    let ack = third(&syn_ack(&config, &syn(), true));
    for (seconds, good) in [(0, true), (60, true), (64, true), (128, false), (200, false)] {
        let now = START + Duration::from_secs(seconds);
        assert_eq!(open(now, &config, &ack).is_some(), good, "{seconds}");
    }
}

#[test]
fn what_is_no_syn_gets_no_cookie() {
    let config = Arc::new(calm());
    let view = View::initial(CAPACITY);
    let answer =
        Subflow::cookie_syn_ack(START, &config, &secret(), &opening(), &seg(0, 0), true, &view);
    assert!(answer.is_err());
}
