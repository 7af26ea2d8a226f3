use super::*;

fn plan() -> Plan {
    Plan {
        payloads: vec![64, 1448, 8948],
        subflows: vec![1, 8],
        connections: vec![1, 100],
        reorder: vec![0.0, 20.0],
        amount: Amount::Packets(700),
        rounds: 2,
        cpu: None,
    }
}

/// What arrives is compared byte for byte before and after, and counted always; see [`Rig`].
#[test]
fn every_case_has_a_row_with_time_for_each_stage() {
    let (plan, mut document, mut told) = (plan(), Document::new(), 0);
    let cases = plan.cases().expect("they can be");
    let never = Interrupt::never();
    let tell = |cases, _: &Row| {
        assert_eq!(cases, 3 * (2 * 2 + 2));
        told += 1;
    };
    measure_all(&plan, cases, &never, &mut document, tell).expect("nothing is lost");
    assert_eq!(document.results.len(), 3 * (2 * 2 + 2));
    assert_eq!(told, document.results.len());
    for row in &document.results {
        let Some(found) = &row.pipeline else { panic!("{row:?}") };
        let (total, stages) = (found.total_nanoseconds_per_packet, found.nanoseconds_per_packet);
        assert!(total.min > 0.0 && total.min <= total.median && total.median <= total.max);
        for (name, time) in stages.named() {
            // Fast ones may take less than the mark that is subtracted.
            assert!(time.is_finite() && time >= 0.0, "{name}: {time}");
        }
        for name in ["parse", "subflow", "acknowledge", "copy"] {
            assert!(stages.named().any(|(stage, time)| stage == name && time > 0.0), "{row:?}");
        }
        let fraction = found.explained_fraction;
        assert!(fraction.is_finite() && fraction > 0.0, "{row:?}");
        assert_eq!(found.explained, (0.9..=1.1).contains(&fraction));
        assert!(found.packets >= 2 * 700, "{row:?}");
        let Limits { memcpy, checksum, checksum_copy, smoltcp } = found.limits;
        assert!(memcpy > 0.0 && checksum > 0.0 && checksum_copy > 0.0, "{row:?}");
        let case = found.case;
        let same = case.connections == 1 && case.subflows == 1 && case.reorder_percent == 0.0;
        assert_eq!(smoltcp.is_some(), same);
        assert_eq!(found.buffers_per_packet, if case.payload == 8948 { 3 } else { 1 });
    }
    let table = table(&document.results);
    assert_eq!(table.lines().count(), 1 + document.results.len());
    let text = serde_json::to_string(&document).expect("it has a JSON form");
    let again: Document = serde_json::from_str(&text).expect("and comes back from it");
    assert_eq!(again.results.len(), document.results.len());
    assert!(again.results.iter().all(|row| row.pipeline.is_some()));
}

#[test]
fn what_a_signal_ends_has_all_that_is_known_of_the_cases_before() {
    let (plan, mut document) = (plan(), Document::new());
    let cases = plan.cases().expect("they can be");
    let (date, interrupt) = (document.environment.date.clone(), Interrupt::never());
    let mut known = Vec::new();
    let ended = measure_all(&plan, cases, &interrupt, &mut document, |_, row| {
        known.extend(remarks(row));
        interrupt.set();
    });
    assert!(matches!(ended, Err(Error::Interrupted)));
    assert_eq!(document.results.len(), 1);
    assert!(document.remarks.ends_with(&known), "{:?}", document.remarks);
    assert_eq!(document.environment.date, date);
}

#[test]
fn a_signal_ends_a_measurement_that_would_last_for_hours() {
    let amount = Amount::Packets(u64::MAX);
    let (plan, interrupt) = (Plan { amount, ..plan() }, Interrupt::never());
    let case = plan.cases().expect("they can be")[0];
    let measured = std::thread::scope(|scope| {
        let measured = scope.spawn(|| {
            let calibration = Calibration::measure();
            measure(&case, &plan, &calibration, &interrupt)
        });
        std::thread::sleep(std::time::Duration::from_millis(100));
        interrupt.set();
        measured.join().expect("no panic")
    });
    assert!(matches!(measured, Err(Error::Interrupted)));
}

#[test]
fn a_packet_that_is_damaged_on_its_way_is_found() {
    let shape = Shape { connections: 2, subflows: 1, payload: 500, reorder: 0.0, mptcp: true };
    let mut rig = Rig::new(shape, 1 << 18).expect("it opens");
    rig.block(Peer::headers(true) + 500, 10, ()).expect("all is well");
    rig.finish().expect("all is well");
    rig.forget_a_packet();
    rig.block(Peer::headers(true) + 500, 10, ()).expect("one is missing, but none got lost");
    let error = rig.finish().expect_err("one is missing").to_string();
    assert!(error.contains("connection 0"), "{error}");
}

#[test]
fn late_packets_are_late_and_arrive_all_the_same() {
    let shape = Shape { connections: 1, subflows: 2, payload: 100, reorder: 30.0, mptcp: true };
    let mut rig = Rig::new(shape, 1 << 18).expect("it opens");
    rig.block(Peer::headers(true) + 100, usize::MAX, ()).expect("nothing is lost");
    rig.finish().expect("and all is right");
    assert!(rig.out_of_order() > 100, "{}", rig.out_of_order());
}
