//! Both sequence spaces, far beyond what their numbers on the wire can tell.

use super::*;

/// Beyond 4 GiB, in both spaces: nothing of a trace's model, which holds whole streams.
const FAR: u64 = (5 << 32) + 0x1234_5678;

/// An MPTCP subflow that received `position` octets, as part of a stream of which `edge` are here.
fn aged(position: u64, edge: u64) -> (Trace, View) {
    let mut trace = Trace::mptcp();
    trace.accept(with_dss(seg(0, 0), Dss { mapping: None, ..dss(0, 0, 0) }));
    trace.connection.joined();
    let receive = &mut trace.subflow.receive;
    receive.received = position;
    receive.next = receive.seq_of(position);
    receive.acknowledged = receive.next;
    receive.told_position = position + CAPACITY;
    receive.told = StreamOffset(edge + CAPACITY);
    let view = trace.connection.view(StreamOffset(edge), StreamOffset(edge + CAPACITY));
    (trace, view)
}

fn short(mut dss: Dss) -> Dss {
    if let Some(mapping) = &mut dss.mapping
        && let DssNumber::Long(number) = mapping.data_seq
    {
        mapping.data_seq = DssNumber::Short(number as u32);
    }
    dss
}

/// `segment` comes in; what it places.
fn place(trace: &mut Trace, segment: &Segment, view: &View) -> Vec<(u64, u32)> {
    let mut placements = Vec::new();
    let taken = trace.subflow.on_segment(trace.now, segment, view, &mut placements);
    assert_eq!(taken, Disposition::Accepted, "{segment:?}");
    trace.poll_events();
    placements.iter().map(|placement| (placement.to.0, placement.len)).collect()
}

#[test]
fn streams_and_subflows_go_on_beyond_4_gib() {
    for form in [core::convert::identity, short] {
        let (mut trace, view) = aged(FAR, 3 * FAR);
        let data = |position: u64, offset: u64| {
            with_dss(seg(position, 1000), form(dss(position, offset, 1000)))
        };
        let to = 3 * FAR;
        assert_eq!(place(&mut trace, &data(FAR, to), &view), [(to, 1000)]);
        // Ahead of a gap, on the slow way.
        assert_eq!(place(&mut trace, &data(FAR + 2000, to + 9000), &view), [(to + 9000, 1000)]);
        assert_eq!(place(&mut trace, &data(FAR + 1000, to + 1000), &view), [(to + 1000, 1000)]);
        let view = View { edge: StreamOffset(to + 2000), ..view };
        trace.subflow.request_ack();
        let ack = trace.subflow.poll_transmit(trace.now, &view).expect("it was asked for");
        assert_eq!(ack.ack, PEER + 1 + (FAR + 3000) as u32);
        let number = ack.options.mptcp.dss.and_then(|dss| dss.ack);
        assert_eq!(number, Some(DssNumber::Long(peer_dsn(to + 2000))));
    }
}

#[test]
fn every_wrap_of_either_space_is_crossed() {
    // The sequence numbers of TCP, of the subflow in the option, and of the data level wrap at
    // different places; so do the short data sequence numbers.
    let wraps = [
        // TCP's: PEER + 1 + position.
        (6 << 32) - u64::from(PEER.0) - 1,
        // The option's: 1 + position.
        (6_u64 << 32) - 1,
        6 << 32,
    ];
    let low = peer_dsn(0) & 0xffff_ffff;
    for position in wraps {
        for edge in [FAR, (7 << 32) - low, 7 << 32] {
            for form in [core::convert::identity, short] {
                let (mut trace, view) = aged(position - 1500, edge - 1500);
                for n in [0, 2, 1] {
                    let (at, to) = (position - 1500 + n * 1000, edge - 1500 + n * 1000);
                    let data = with_dss(seg(at, 1000), form(dss(at, to, 1000)));
                    assert_eq!(place(&mut trace, &data, &view), [(to, 1000)]);
                }
                assert_eq!(trace.subflow.receive.received, position + 1500);
            }
        }
    }
}

#[test]
fn the_first_numbers_of_the_data_level_may_wrap_at_64_bits() {
    // The first data sequence number follows from the key; this one is close to the end.
    let Mode::Mptcp(mut mptcp) = Trace::mptcp().subflow.mode else { panic!("MPTCP") };
    mptcp.remote_first = DataSeq(u64::MAX - 99);
    let offset = |number, near| mptcp.stream_offset(number, StreamOffset(near));
    assert_eq!(offset(DssNumber::Long(u64::MAX), 0), Some(StreamOffset(99)));
    assert_eq!(offset(DssNumber::Long(0), 0), Some(StreamOffset(100)));
    assert_eq!(offset(DssNumber::Short(0), 0), Some(StreamOffset(100)));
    assert_eq!(offset(DssNumber::Short(u32::MAX), 150), Some(StreamOffset(99)));
    assert_eq!(mptcp.remote_seq(StreamOffset(100)), DataSeq(0));
    assert_eq!(offset(DssNumber::Long(u64::MAX - 100), 0), None);
}

#[test]
fn short_numbers_near_a_wrap_are_taken_for_what_is_nearest_in_any_order() {
    // Reinjected data below the wrap comes after new data above it, and the other way round.
    let low = peer_dsn(0) & 0xffff_ffff;
    let wrap = (9 << 32) - low;
    for edge in [wrap - 500, wrap, wrap + 500] {
        let (mut trace, view) = aged(FAR, edge);
        let mut position = FAR;
        for to in [wrap + 2000, wrap - 700, wrap + 700, wrap - 1500] {
            let data = with_dss(seg(position, 100), short(dss(position, to, 100)));
            let expected: &[(u64, u32)] = if to + 100 > edge { &[(to, 100)] } else { &[] };
            assert_eq!(place(&mut trace, &data, &view), expected, "{to} at edge {edge}");
            position += 100;
        }
    }
}

#[test]
fn a_data_fin_beyond_4_gib_is_acknowledged() {
    for form in [core::convert::identity, short] {
        let (mut trace, view) = aged(FAR, 2 * FAR);
        let mut fin = form(dss(0, 2 * FAR, 1));
        fin.data_fin = true;
        if let Some(mapping) = &mut fin.mapping {
            mapping.subflow_seq = 0;
        }
        assert_eq!(place(&mut trace, &with_dss(seg(FAR, 0), fin), &view), []);
        trace.expect_events(&[Event::DataFin { at: StreamOffset(2 * FAR) }]);
        let view = trace.connection.view(view.edge, view.right_edge);
        let ack = trace.subflow.poll_transmit(trace.now, &view).expect("a DATA_FIN is answered");
        let number = ack.options.mptcp.dss.and_then(|dss| dss.ack);
        assert_eq!(number, Some(DssNumber::Long(peer_dsn(2 * FAR + 1))));
    }
}
