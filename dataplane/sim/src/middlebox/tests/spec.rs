//! The text form.

use std::time::Duration;

use proptest::prelude::*;

use crate::middlebox::{
    Alteration, BitRate, ChainSpec, Direction, Item, Kind, OptionName, Padding, Place, Probability,
    Traffic,
};

fn canonical(text: &str) -> String {
    text.parse::<ChainSpec>().unwrap_or_else(|error| panic!("{error}")).to_string()
}

fn refused(text: &str) -> String {
    match text.parse::<ChainSpec>() {
        Err(error) => error.to_string(),
        Ok(spec) => panic!("{text:?} was taken as {spec}"),
    }
}

#[test]
fn what_is_written_in_the_shortest_form_comes_back_as_it_was() {
    for text in [
        "",
        "loss=1%,reorder=5%:2ms,dup=1%,corrupt=0.1%,delay=40ms,rate=1Gbit,strip=syn",
        ">loss=0.0001%,<dup=100%",
        "reorder=5%,delay=1ms:100us,rate=100Mbit:64k",
        "strip=data,strip=all:dss,strip=after-100k:ts+sack:shrink,strip=syn:shrink",
        "strip=all:kind-77+subtype-15",
        "isn,<isn,nat,<nat,nat=10.0.0.9,nat=fd77::9",
        "split=536,split=8:first,coalesce=9000,coalesce=9000:first,coalesce=1k:5ms:first",
        ">drop=data,<drop=acks,drop=syn,drop=join,drop=fin,drop=rst,drop=all",
        "cut=2s:500ms,>cut=0ns:1s",
        "alter=1%,alter=at-0,alter=at-1M",
        "mtu=1400,mtu=1280:icmp",
    ] {
        assert_eq!(canonical(text), text);
    }
}

#[test]
fn other_spellings_are_taken_too() {
    assert_eq!(canonical(" loss=1.50% , isn "), "loss=1.5%,isn");
    assert_eq!(canonical("reorder=5%:1000us"), "reorder=5%");
    assert_eq!(canonical("delay=0.04s:0ms"), "delay=40ms");
    assert_eq!(canonical("rate=1000Mbit:1024k"), "rate=1Gbit");
    assert_eq!(canonical("strip=syn:mptcp"), "strip=syn");
    assert_eq!(canonical("strip=all:kind-8+subtype-2"), "strip=all:ts+dss");
}

#[test]
fn what_makes_no_sense_is_refused_with_what_was_expected() {
    for (text, expected) in [
        ("los=1%", "loss=, dup="),
        ("loss", "a percentage"),
        ("loss=101%", "a percentage"),
        ("loss=1%:2", "nothing more"),
        ("loss=1%,,isn", "loss=, dup="),
        ("delay=40", "a time"),
        ("rate=1", "a rate"),
        ("rate=0bit", "a rate"),
        ("strip", "syn, data, all"),
        ("strip=syn:nonsense", "TCP options"),
        ("strip=syn:kind-1", "TCP options"),
        ("strip=syn:dss:shrunk", "shrink"),
        ("isn=1", "loss=, dup="),
        ("nat=here", "an address"),
        ("split=7", "at least 8"),
        ("coalesce=65001", "at most 65000"),
        ("drop=everything", "one of data"),
        ("cut=2s", "two times"),
        ("alter=at-5G", "below 4G"),
        ("mtu=67", "at least 68"),
        ("mtu=1500:silent", "icmp"),
    ] {
        let error = refused(text);
        assert!(error.contains(expected), "{text:?}: {error}");
        assert!(error.contains(text.split(',').nth(1).unwrap_or(text)), "{text:?}: {error}");
    }
}

fn probability() -> impl Strategy<Value = Probability> {
    (0..=1_000_000_u32)
        .prop_map(|parts| Probability::per_million(parts).expect("at most a million"))
}

fn time() -> impl Strategy<Value = Duration> {
    prop_oneof![0..10_000_u64, (0..10_000_u64).prop_map(|ms| ms * 1_000_000), any::<u64>()]
        .prop_map(Duration::from_nanos)
}

fn kind() -> impl Strategy<Value = Kind> {
    let option = prop_oneof![
        (2..=255_u8).prop_map(OptionName::Kind),
        (0..16_u8).prop_map(OptionName::Subtype),
    ];
    let place = prop_oneof![
        Just(Place::Syn),
        Just(Place::Data),
        Just(Place::All),
        any::<u64>().prop_map(Place::After),
    ];
    let padding = prop_oneof![Just(Padding::Nops), Just(Padding::Shrink)];
    let traffic = prop_oneof![
        Just(Traffic::Data),
        Just(Traffic::Acks),
        Just(Traffic::Syn),
        Just(Traffic::Join),
        Just(Traffic::Fin),
        Just(Traffic::Rst),
        Just(Traffic::All),
    ];
    let rate = (1..u64::MAX).prop_map(|bits| BitRate::bits_per_second(bits).expect("not 0"));
    prop_oneof![
        probability().prop_map(Kind::Loss),
        probability().prop_map(Kind::Duplicate),
        probability().prop_map(Kind::Corrupt),
        (probability(), time()).prop_map(|(probability, by)| Kind::Reorder { probability, by }),
        (time(), time()).prop_map(|(by, jitter)| Kind::Delay { by, jitter }),
        (rate, any::<u64>()).prop_map(|(rate, queue)| Kind::Rate { rate, queue }),
        (place, prop::collection::vec(option, 1..4), padding)
            .prop_map(|(place, what, padding)| Kind::Strip { place, what, padding }),
        Just(Kind::Sequence),
        any::<Option<std::net::IpAddr>>().prop_map(|address| Kind::Nat { address }),
        (8..u64::MAX, any::<bool>())
            .prop_map(|(size, first_only)| Kind::Split { size, first_only }),
        (0..=65_000_u64, time(), any::<bool>())
            .prop_map(|(size, patience, first_only)| Kind::Coalesce { size, patience, first_only }),
        traffic.prop_map(Kind::Drop),
        (time(), time()).prop_map(|(after, length)| Kind::Cut { after, length }),
        probability().prop_map(|p| Kind::Alter(Alteration::Random(p))),
        any::<u32>().prop_map(|place| Kind::Alter(Alteration::At(place))),
        (68..u64::MAX, any::<bool>()).prop_map(|(mtu, icmp)| Kind::Mtu { mtu, icmp }),
    ]
}

proptest! {
    #[test]
    fn every_description_survives_its_text(
        items in prop::collection::vec((prop::option::of(any::<bool>()), kind()), 0..6)
    ) {
        let items = items.into_iter().map(|(left, kind)| Item {
            only: left.map(|left| if left { Direction::Left } else { Direction::Right }),
            kind,
        });
        let spec = ChainSpec { items: items.collect() };
        prop_assert_eq!(spec.to_string().parse::<ChainSpec>(), Ok(spec));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[<>]?[a-z]{0,8}=?[0-9a-z%:.,+-]{0,20}") {
        let _ = text.parse::<ChainSpec>();
    }
}
