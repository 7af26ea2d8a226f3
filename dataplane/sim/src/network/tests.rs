//! Virtual time, links, switches, and many nodes at once.

use std::time::Duration;

use mpxdp_proto::segment::Flags;
use mpxdp_proto::wire::{MacAddress, parse_frame};

use super::*;
use crate::{Content, Sender, SenderOptions};
use Direction::{Left, Right};

const FAR: Instant = Instant(3_600_000_000_000);

fn spec(text: &str) -> ChainSpec {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn mac(host: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, host])
}

/// A frame between two hosts, or to all with host 255, that holds a number.
fn frame(from: u8, to: u8, number: u8) -> Vec<u8> {
    let to = if to == 255 { [0xff; 6] } else { mac(to).0 };
    [&to[..], &mac(from).0, &[0x08, 0x06, number]].concat()
}

/// All events until nothing more happens, with their times.
fn events(network: &mut Network) -> Vec<(u64, Step)> {
    let mut events = Vec::new();
    loop {
        let step = network.step(FAR);
        if step == Step::Idle {
            return events;
        }
        events.push((network.now().0, step));
    }
}

#[test]
fn time_jumps_to_the_next_event_and_not_beyond_the_deadline() {
    let mut network = Network::new(1);
    let (a, b) = (network.add_node(), network.add_node());
    network.connect(a.interface(0), b.interface(3), &spec("delay=10ms"));
    assert_eq!(network.step(Instant(1000)), Step::Idle);
    assert_eq!(network.now(), Instant(0), "nothing is ahead, so time stands still");

    network.send(a.interface(0), vec![7; 20]);
    network.set_timer(a, Some(Instant(4_000_000)));
    network.set_timer(b, Some(Instant(12_000_000)));
    assert_eq!(network.step(Instant(1_000_000)), Step::Deadline);
    assert_eq!(network.now(), Instant(1_000_000));
    assert_eq!(network.step(FAR), Step::Timer(a));
    assert_eq!(network.now(), Instant(4_000_000));
    let arrival = Step::Frame { to: b, interface: 3, frame: vec![7; 20] };
    assert_eq!(network.step(FAR), arrival);
    assert_eq!(network.now(), Instant(10_000_000));
    network.set_timer(b, None);
    assert_eq!(network.step(FAR), Step::Idle, "the timer was stopped, and the other went off once");
    // A timer in the past goes off now.
    network.set_timer(a, Some(Instant(5)));
    assert_eq!(network.step(FAR), Step::Timer(a));
    assert_eq!(network.now(), Instant(10_000_000));
    // A deadline in the past does not turn time back.
    network.set_timer(a, Some(FAR));
    assert_eq!(network.step(Instant(1)), Step::Deadline);
    assert_eq!(network.now(), Instant(10_000_000));
}

#[test]
fn frames_of_one_instant_arrive_in_the_order_in_which_they_were_sent() {
    let mut network = Network::new(1);
    let nodes: Vec<_> = (0..3).map(|_| network.add_node()).collect();
    network.connect(nodes[0].interface(0), nodes[2].interface(0), &spec(""));
    network.connect(nodes[1].interface(0), nodes[2].interface(1), &spec(""));
    for number in 0..10 {
        network.send(nodes[usize::from(number % 2)].interface(0), vec![number]);
    }
    let expected = (0..10).map(|number| {
        let interface = u16::from(number % 2);
        (0, Step::Frame { to: nodes[2], interface, frame: vec![number] })
    });
    assert_eq!(events(&mut network), expected.collect::<Vec<_>>());
}

#[test]
fn a_link_that_is_cut_loses_what_is_sent_and_what_arrives_meanwhile() {
    let mut network = Network::new(1);
    let (a, b) = (network.add_node(), network.add_node());
    let link = network.connect(a.interface(0), b.interface(0), &spec("delay=10ms"));
    network.send(a.interface(0), vec![1]);
    network.set_link(link, false);
    network.send(a.interface(0), vec![2]);
    assert_eq!(events(&mut network), []);
    network.set_link(link, true);
    network.send(a.interface(0), vec![3]);
    network.set_link(link, false);
    network.set_link(link, true);
    assert_eq!(events(&mut network).len(), 1);
    let counters = network.link_counters(link, Right);
    assert_eq!(counters, LinkCounters { sent: 3, delivered: 1, cut: 2 });
    assert_eq!(network.link_counters(link, Left), LinkCounters::default());
    network.send(a.interface(9), vec![4]);
    assert_eq!(network.unconnected(), 1);
}

#[test]
fn a_switch_learns_where_hosts_are() {
    let mut network = Network::new(1);
    let switch = network.add_switch();
    let nodes: Vec<_> = (0..4).map(|_| network.add_node()).collect();
    for (port, node) in (0..).zip(&nodes) {
        network.connect(node.interface(0), switch.port(port), &spec(""));
    }
    let mut receivers = |from: u8, to: u8| {
        network.send(nodes[usize::from(from)].interface(0), frame(from, to, 0));
        let arrivals = events(&mut network).into_iter().map(|(_, step)| match step {
            Step::Frame { to, .. } => to.index(),
            other => panic!("{other:?}"),
        });
        arrivals.collect::<Vec<_>>()
    };
    assert_eq!(receivers(0, 2), [1, 2, 3], "nobody knows yet where 2 is");
    assert_eq!(receivers(2, 0), [0]);
    assert_eq!(receivers(0, 2), [2]);
    assert_eq!(receivers(3, 255), [0, 1, 2], "to all");
    assert_eq!(receivers(1, 1), [] as [usize; 0], "not back to where it came from");
}

#[test]
fn the_same_seed_gives_the_same_events() {
    let trace = |seed| {
        let mut network = Network::new(seed);
        let (a, b) = (network.add_node(), network.add_node());
        for interface in 0..2 {
            let text = "loss=10%,dup=10%,corrupt=10%,reorder=10%,delay=1ms:5ms,rate=1Mbit";
            network.connect(a.interface(interface), b.interface(interface), &spec(text));
        }
        for number in 0..200 {
            let from = if number % 3 == 0 { b } else { a };
            network.send(from.interface(u16::from(number % 2)), vec![number; 60]);
        }
        events(&mut network)
    };
    let first = trace(1);
    assert_eq!(first, trace(1));
    assert_ne!(first, trace(2));
    assert!((150..250).contains(&first.len()), "{}", first.len());
}

#[test]
fn links_have_dice_of_their_own() {
    let mut network = Network::new(1);
    let (a, b) = (network.add_node(), network.add_node());
    let mut lost = Vec::new();
    for interface in 0..2 {
        network.connect(a.interface(interface), b.interface(interface), &spec("loss=50%"));
        for number in 0..64 {
            network.send(a.interface(interface), vec![number]);
        }
        lost.push(
            events(&mut network)
                .into_iter()
                .map(|(_, step)| match step {
                    Step::Frame { frame, .. } => frame[0],
                    other => panic!("{other:?}"),
                })
                .collect::<Vec<_>>(),
        );
    }
    assert_ne!(lost[0], lost[1]);
}

#[test]
#[should_panic(expected = "has a link already")]
fn two_links_cannot_end_at_one_place() {
    let mut network = Network::new(1);
    let (a, b) = (network.add_node(), network.add_node());
    network.connect(a.interface(0), b.interface(0), &spec(""));
    network.connect(b.interface(0), a.interface(1), &spec(""));
}

/// Answers each frame with a frame, at once or after a time.
struct Echo {
    after: Duration,
    waiting: VecDeque<(Instant, u16, Vec<u8>)>,
    received: u64,
}

impl Echo {
    fn new(after: Duration) -> Self {
        Self { after, waiting: VecDeque::new(), received: 0 }
    }
}

impl Node for Echo {
    fn on_frame(&mut self, now: Instant, interface: u16, frame: &[u8]) {
        self.received += 1;
        self.waiting.push_back((now + self.after, interface, frame.to_vec()));
    }

    fn on_timeout(&mut self, _: Instant) {}

    fn next_timeout(&self) -> Option<Instant> {
        self.waiting.front().map(|(due, ..)| *due)
    }

    fn poll_frame(&mut self, now: Instant) -> Option<(u16, Vec<u8>)> {
        let (_, interface, frame) = self.waiting.pop_front_if(|(due, ..)| *due <= now)?;
        Some((interface, frame))
    }
}

#[test]
fn nodes_are_driven_until_the_deadline_and_endless_exchanges_come_to_an_end() {
    let mut network = Network::new(1);
    let (a, b) = (network.add_node(), network.add_node());
    network.connect(a.interface(0), b.interface(0), &spec("delay=1ms"));
    let (mut slow, mut quick) = (Echo::new(Duration::from_millis(2)), Echo::new(Duration::ZERO));
    network.send(b.interface(0), vec![1]);
    // There and back takes 4 ms: it arrives at 1 ms, 5 ms, ..., 97 ms.
    let ended = network.run(&mut [&mut slow, &mut quick], Instant(100_000_000));
    assert_eq!(ended, Progress::Deadline);
    assert_eq!((slow.received, quick.received), (25, 25));

    // Two that answer at once without a delay between them would do so for ever at one instant.
    let mut network = Network::new(1);
    let (a, b) = (network.add_node(), network.add_node());
    network.connect(a.interface(0), b.interface(0), &spec(""));
    network.set_event_limit(10_000);
    network.send(a.interface(0), vec![1]);
    let (mut one, mut other) = (Echo::new(Duration::ZERO), Echo::new(Duration::ZERO));
    assert_eq!(network.run(&mut [&mut one, &mut other], FAR), Progress::Exhausted);
    assert_eq!(network.events(), 10_000);
}

/// Answers connection requests with resets.
#[derive(Default)]
struct Refuser {
    answers: VecDeque<Vec<u8>>,
}

impl Node for Refuser {
    fn on_frame(&mut self, _: Instant, _: u16, bytes: &[u8]) {
        use mpxdp_proto::segment::Segment;
        use mpxdp_proto::wire::{IpFields, emit_frame};
        let frame = parse_frame(bytes, bytes.len()).expect("a segment");
        let reset = Segment {
            ack: frame.segment.seq + 1,
            flags: Flags::RST.with(Flags::ACK),
            ..Segment::default()
        };
        let mut answer = vec![0; 200];
        let link = frame.link.reply();
        let fields = IpFields::default();
        let length = emit_frame(&mut answer, &link, frame.local, frame.remote, fields, &reset, b"")
            .expect("it fits");
        answer.truncate(length);
        self.answers.push_back(answer);
    }

    fn on_timeout(&mut self, _: Instant) {}

    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    fn poll_frame(&mut self, _: Instant) -> Option<(u16, Vec<u8>)> {
        self.answers.pop_front().map(|frame| (0, frame))
    }
}

#[test]
fn many_senders_meet_one_peer_behind_a_switch() {
    use mpxdp_proto::wire::LinkHeader;
    let mut network = Network::new(3);
    let server = network.add_node();
    let switch = network.add_switch();
    network.connect(switch.port(0), server.interface(0), &spec("delay=1ms"));
    let mut refuser = Refuser::default();
    let mut senders: Vec<_> = (1..=20)
        .map(|host: u8| {
            let node = network.add_node();
            let text = format!("loss=20%,delay={host}ms,isn,nat");
            network.connect(node.interface(0), switch.port(host.into()), &spec(&text));
            let local = ([10, 0, 0, host], 41_000).into();
            let remote = ([10, 0, 0, 200], 80).into();
            let content = Content::Bytes((*b"hello").into());
            let mut options = SenderOptions::new(local, remote, content);
            options.link = LinkHeader::new(mac(200), mac(host));
            Sender::new(options)
        })
        .collect();
    let mut nodes: Vec<&mut dyn Node> = vec![&mut refuser];
    nodes.extend(senders.iter_mut().map(|sender| sender as &mut dyn Node));
    assert_eq!(network.run(&mut nodes, FAR), Progress::Idle);
    for sender in &senders {
        assert_eq!(sender.failure(), Some(crate::Failure::Refused));
    }
    assert!(network.now() > Instant(200_000_000), "some requests were lost and sent again");
}
