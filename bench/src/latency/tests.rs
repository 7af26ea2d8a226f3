//! What can be asked for.

use super::*;

fn options() -> Options {
    Options {
        name: "unused".into(),
        rates: vec![1000],
        sizes: vec![64],
        time: Duration::from_secs(1),
        rounds: 1,
        mtus: vec![1500],
        receivers: vec![Receiver::KernelTcp],
        readings: vec![Reading::Sleep],
        placement: None,
        json: None,
        hgrm: None,
    }
}

fn refused(options: &Options) -> String {
    match options.check().and_then(|()| options.subjects().map(|_| ())) {
        Err(Error::Usage(text)) => text,
        other => panic!("not refused as wrong usage: {other:?}"),
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    assert!(options().check().is_ok());
    for (wrong, named) in [
        (Options { rates: vec![], ..options() }, "--rate"),
        (Options { rates: vec![10, 0], ..options() }, "--rate 0"),
        (Options { rates: vec![*RATE.end() + 1], ..options() }, "--rate 10000001"),
        (Options { sizes: vec![], ..options() }, "--size"),
        (Options { sizes: vec![23], ..options() }, "--size 23"),
        (Options { sizes: vec![(1 << 20) + 1], ..options() }, "--size 1048577"),
        (Options { rounds: 0, ..options() }, "--rounds"),
        (Options { mtus: vec![], ..options() }, "--mtu"),
        (Options { receivers: vec![], ..options() }, "--receivers"),
        (Options { readings: vec![], ..options() }, "--reader"),
        (Options { time: Duration::from_micros(900), ..options() }, "--seconds 0.0009"),
        (Options { placement: Some("reader".into()), ..options() }, "--placement"),
    ] {
        let said = refused(&wrong);
        assert!(said.contains(named), "{named}: {said}");
    }
}

#[test]
fn every_size_is_measured_at_every_rate() {
    let options = Options { rates: vec![10, 20], sizes: vec![64, 128, 256], ..options() };
    let loads: Vec<_> = options.loads().map(|load| (load.plan.rate, load.size)).collect();
    assert_eq!(loads, [(10, 64), (20, 64), (10, 128), (20, 128), (10, 256), (20, 256)]);
    let first = options.loads().next().expect("six");
    assert_eq!((first.plan.warm_up, first.plan.measured), (3, 10));
}

#[test]
fn busy_polling_is_nothing_for_mpxdp() {
    let receivers = vec![Receiver::Mpxdp, Receiver::KernelTcp];
    let options = Options { receivers, readings: Reading::ALL.to_vec(), ..options() };
    let subjects = options.subjects().expect("there is a CPU");
    assert_eq!(subjects.len(), 6);
    let not_run = subjects.iter().filter(|subject| inapplicable(subject).is_err());
    let not_run: Vec<_> = not_run.map(|subject| (subject.receiver, subject.reading)).collect();
    assert_eq!(not_run, [(Receiver::Mpxdp, Reading::BusyPoll)]);
}
