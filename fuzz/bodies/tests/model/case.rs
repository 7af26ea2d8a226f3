//! Cases: what is there, and what happens.

use mpxdp_sim::middlebox::ChainSpec;
use mpxdp_sim::{FirstData, MptcpOptions};
use proptest::collection::vec;
use proptest::prelude::*;

/// Links between the clients and the engine: two for each worker.
pub(crate) const LINKS: u8 = 4;

/// A client with several subflows.
#[derive(Clone, Debug)]
pub(crate) struct ClientShape {
    /// Segments' payload, and how many of them it sends.
    pub(crate) chunk: u16,
    pub(crate) chunks: u16,
    pub(crate) checksums: bool,
    /// The link of each of its subflows.
    pub(crate) links: Vec<u8>,
}

/// A client with one connection of one subflow, which copes with everything that a network does.
#[derive(Clone, Debug)]
pub(crate) struct SenderShape {
    pub(crate) len: u32,
    pub(crate) mss: u16,
    pub(crate) timestamps: bool,
    pub(crate) scaled: bool,
    pub(crate) mptcp: Option<MptcpOptions>,
}

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    /// Time passes: so many milliseconds.
    Pass(u16),
    /// A reader reads up to so many bytes.
    Read { reader: u8, most: u16 },
    /// A client opens a further subflow.
    Open { client: u8, link: u8 },
    /// A client resets a subflow, but for its last.
    End { client: u8, subflow: u8 },
    /// What a client sends on a subflow takes another link from now on.
    Move { client: u8, subflow: u8, link: u8 },
    /// A client says that it has given up a subflow's address.
    Remove { client: u8, subflow: u8 },
    /// A link goes down, or comes back.
    Link { link: u8, up: bool },
    /// A reader goes away, whatever it has read.
    Leave { reader: u8 },
    /// A client resets its connection.
    Abort { client: u8 },
}

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) seed: u64,
    pub(crate) clients: Vec<ClientShape>,
    pub(crate) senders: Vec<SenderShape>,
    /// What is on each link. On the last there may be further middleboxes, which not everybody can stand:
    /// senders, and subflows that clients open besides others.
    pub(crate) links: Vec<ChainSpec>,
    /// Whether handshakes are answered by cookies.
    pub(crate) cookies: bool,
    /// Whether peers are told of a further address.
    pub(crate) announces: bool,
    pub(crate) operations: Vec<Operation>,
}

impl Case {
    /// So many clients on links that do nothing.
    pub(crate) fn plain(clients: usize) -> Self {
        let client =
            ClientShape { chunk: 1000, chunks: 50, checksums: false, links: vec![0, 2, 1] };
        Self {
            seed: 1,
            clients: vec![client; clients],
            senders: Vec::new(),
            links: vec![ChainSpec::default(); LINKS.into()],
            cookies: false,
            announces: false,
            operations: Vec::new(),
        }
    }
}

fn chain(text: &str) -> ChainSpec {
    text.parse().expect("the text of a chain")
}

/// What a link may do to any client.
fn weather() -> impl Strategy<Value = ChainSpec> {
    let item = prop_oneof![
        (1..6_u8).prop_map(|p| format!("loss={p}%")),
        (1..6_u8).prop_map(|p| format!("dup={p}%")),
        (1..10_u8, 1..40_u8).prop_map(|(p, ms)| format!("reorder={p}%:{ms}ms")),
        (1..4_u8).prop_map(|p| format!("corrupt={p}%")),
        (0..60_u8, 0..20_u8).prop_map(|(ms, jitter)| format!("delay={ms}ms:{jitter}ms")),
        (2..50_u8).prop_map(|rate| format!("rate={rate}Mbit:64k")),
        Just("isn".to_owned()),
        (200..900_u16).prop_map(|n| format!("split={n}")),
        (2000..9000_u16).prop_map(|n| format!("coalesce={n}")),
    ];
    vec(item, 0..4).prop_map(|mut items| {
        // It flips one bit, which every checksum finds. Two in one frame can cancel each other, in
        // TCP's checksum and in MPTCP's alike, and then no receiver can find them.
        let mut corrupts = false;
        items
            .retain(|item| !item.starts_with("corrupt") || !std::mem::replace(&mut corrupts, true));
        chain(&items.join(","))
    })
}

/// What loses options, on both ways or on one, from the SYN or from the data or from some octet on.
fn stripping() -> impl Strategy<Value = String> {
    let way = prop_oneof![2 => Just(""), 2 => Just(">"), 1 => Just("<")];
    let place = prop_oneof![
        1 => Just("syn".to_owned()),
        1 => Just("data".to_owned()),
        1 => Just("all".to_owned()),
        // Of the first flight, which is when the two ends may come to disagree, and later.
        3 => (0..20_000_u32).prop_map(|n| format!("after-{n}")),
        1 => (0..90_000_u32).prop_map(|n| format!("after-{n}")),
    ];
    let what = prop_oneof![
        4 => Just(""),
        2 => Just(":dss"),
        1 => Just(":capable+dss"),
        1 => Just(":fail+dss"),
        1 => Just(":ts+mptcp"),
        1 => Just(":ts+sack"),
    ];
    let shrink = prop_oneof![3 => Just(""), 1 => Just(":shrink")];
    (way, place, what, shrink)
        .prop_map(|(way, place, what, shrink)| format!("{way}strip={place}{what}{shrink}"))
}

/// What the last link may do besides. Two boxes that lose options may begin with it at different times.
fn oddity() -> impl Strategy<Value = ChainSpec> {
    let odd = prop_oneof![
        4 => Just(String::new()),
        5 => stripping(),
        1 => (stripping(), stripping()).prop_map(|(one, other)| format!("{one},{other}")),
        1 => Just("nat".to_owned()),
    ];
    (odd, weather()).prop_map(|(odd, mut weather)| {
        weather.items.extend(chain(&odd).items);
        weather
    })
}

fn client() -> impl Strategy<Value = ClientShape> {
    // The first subflow takes none of the last link.
    let links = (0..LINKS - 1, vec(0..LINKS, 0..4));
    (1..1400_u16, 1..120_u16, any::<bool>(), links).prop_map(
        |(chunk, chunks, checksums, (first, others))| {
            let links = std::iter::once(first).chain(others).collect();
            ClientShape { chunk, chunks, checksums, links }
        },
    )
}

fn sender() -> impl Strategy<Value = SenderShape> {
    let mptcp = (0..20_000_u16, any::<[bool; 4]>()).prop_map(
        |(mapping_len, [long_numbers, straddle, capable, data_fin_with_data])| MptcpOptions {
            long_numbers,
            mapping_len,
            straddle,
            first_data: if capable { FirstData::Capable } else { FirstData::Dss },
            data_fin_with_data,
            ..MptcpOptions::default()
        },
    );
    (0..80_000_u32, 536..1460_u16, any::<[bool; 2]>(), prop::option::weighted(0.7, mptcp)).prop_map(
        |(len, mss, [timestamps, scaled], mptcp)| SenderShape {
            len,
            mss,
            timestamps,
            scaled,
            mptcp,
        },
    )
}

fn operation() -> impl Strategy<Value = Operation> {
    let client = 0..3_u8;
    let subflow = 0..6_u8;
    let link = 0..LINKS - 1;
    let of_a_subflow = (client.clone(), subflow.clone());
    prop_oneof![
        8 => (1..1500_u16).prop_map(Operation::Pass),
        6 => (0..5_u8, any::<u16>()).prop_map(|(reader, most)| Operation::Read { reader, most }),
        3 => (client.clone(), 0..LINKS).prop_map(|(client, link)| Operation::Open { client, link }),
        3 => of_a_subflow.clone().prop_map(|(client, subflow)| Operation::End { client, subflow }),
        2 => (of_a_subflow.clone(), link.clone())
            .prop_map(|((client, subflow), link)| Operation::Move { client, subflow, link }),
        1 => of_a_subflow.prop_map(|(client, subflow)| Operation::Remove { client, subflow }),
        2 => (0..LINKS, any::<bool>()).prop_map(|(link, up)| Operation::Link { link, up }),
        1 => (0..5_u8).prop_map(|reader| Operation::Leave { reader }),
        1 => client.prop_map(|client| Operation::Abort { client }),
    ]
}

prop_compose! {
    pub(crate) fn case()(
        seed in any::<u64>(),
        clients in vec(client(), 0..4),
        senders in vec(sender(), 0..3),
        links in vec(weather(), usize::from(LINKS) - 1),
        last in oddity(),
        cookies in prop::bool::weighted(0.15),
        announces in any::<bool>(),
        operations in vec(operation(), 0..30),
    ) -> Case {
        let links = links.into_iter().chain([last]).collect();
        Case { seed, clients, senders, links, cookies, announces, operations }
    }
}
