//! Chains described as text; the grammar is in the documentation of [`super`].

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use super::units::{Size, Time, parse_size, parse_time};
use super::{BitRate, Direction, Padding, Probability};

/// How long `reorder` holds a frame back if not told.
const REORDER_TIME: Duration = Duration::from_millis(1);
/// How long `coalesce` waits for the next segment if not told.
const COALESCE_TIME: Duration = Duration::from_millis(1);
/// The queue of `rate` if not told: what a NIC's thousand descriptors of 1 KiB hold.
const RATE_QUEUE: u64 = 1 << 20;
/// `split` must not make a flood of a segment.
const SPLIT_LEAST: u64 = 8;
/// The payload of a merged segment must leave room for headers in an IP packet.
const COALESCE_MOST: u64 = 65_000;
/// The least MTU of IPv4 (RFC 791); with less, not even a TCP header would pass.
const MTU_LEAST: u64 = 68;

/// Middleboxes in a row, as the text form describes them.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ChainSpec {
    /// The boxes, the leftmost first.
    pub items: Vec<Item>,
}

/// One middlebox.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Item {
    /// The direction it acts on, if not both.
    pub only: Option<Direction>,
    /// What it does.
    pub kind: Kind,
}

/// What a middlebox does.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Loses frames.
    Loss(Probability),
    /// Sends frames twice.
    Duplicate(Probability),
    /// Flips a bit of IP packets.
    Corrupt(Probability),
    /// Holds frames back so that later ones overtake them.
    Reorder {
        /// How many.
        probability: Probability,
        /// For how long.
        by: Duration,
    },
    /// Delays all frames, keeping their order.
    Delay {
        /// By at least this.
        by: Duration,
        /// By up to this much more.
        jitter: Duration,
    },
    /// Passes frames at a rate.
    Rate {
        /// The rate, Ethernet header included, preamble and check sequence not.
        rate: BitRate,
        /// How many bytes may wait.
        queue: u64,
    },
    /// Removes TCP options.
    Strip {
        /// From which segments.
        place: Place,
        /// Which options.
        what: Vec<OptionName>,
        /// What comes in their place.
        padding: Padding,
    },
    /// Shifts sequence numbers.
    Sequence,
    /// Translates ports, and addresses.
    Nat {
        /// The address that connections seem to come from, if it is changed.
        address: Option<IpAddr>,
    },
    /// Cuts segments.
    Split {
        /// The most bytes of payload of a part, at least 8.
        size: u64,
        /// Whether the MPTCP options stay on the first part only.
        first_only: bool,
    },
    /// Merges segments.
    Coalesce {
        /// The most bytes of payload of a merged segment, at most 65,000.
        size: u64,
        /// How long a segment waits for the next one.
        patience: Duration,
        /// Whether segments with different MPTCP options are merged, those of the first kept.
        first_only: bool,
    },
    /// Loses one kind of traffic.
    Drop(Traffic),
    /// Loses everything for a time.
    Cut {
        /// So long after the first TCP segment.
        after: Duration,
        /// For so long.
        length: Duration,
    },
    /// Changes payload and corrects the TCP checksum.
    Alter(Alteration),
    /// Loses what is too long.
    Mtu {
        /// The longest IP packet that passes, in bytes, at least 68.
        mtu: u64,
        /// Whether the sender gets an ICMP message.
        icmp: bool,
    },
}

/// The segments from which options are removed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// Those with SYN.
    Syn,
    /// Those with payload.
    Data,
    /// All.
    All,
    /// All of a connection once so many bytes of payload have passed.
    After(u64),
}

/// A TCP option, or one of MPTCP's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OptionName {
    /// A TCP option by its kind.
    Kind(u8),
    /// An MPTCP option by its subtype, 0 to 15.
    Subtype(u8),
}

const OPTION_NAMES: [(&str, OptionName); 15] = [
    ("mptcp", OptionName::Kind(30)),
    ("mss", OptionName::Kind(2)),
    ("wscale", OptionName::Kind(3)),
    ("sackok", OptionName::Kind(4)),
    ("sack", OptionName::Kind(5)),
    ("ts", OptionName::Kind(8)),
    ("capable", OptionName::Subtype(0)),
    ("join", OptionName::Subtype(1)),
    ("dss", OptionName::Subtype(2)),
    ("add_addr", OptionName::Subtype(3)),
    ("remove_addr", OptionName::Subtype(4)),
    ("prio", OptionName::Subtype(5)),
    ("fail", OptionName::Subtype(6)),
    ("fastclose", OptionName::Subtype(7)),
    ("reset", OptionName::Subtype(8)),
];

/// All of MPTCP's options.
const MPTCP: OptionName = OptionName::Kind(30);

/// A kind of traffic.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Traffic {
    /// TCP segments with payload.
    Data,
    /// TCP segments with neither payload nor SYN, FIN or RST.
    Acks,
    /// TCP segments with SYN.
    Syn,
    /// TCP segments with an MP_JOIN option.
    Join,
    /// TCP segments with FIN.
    Fin,
    /// TCP segments with RST.
    Rst,
    /// Every frame.
    All,
}

const TRAFFIC: [(&str, Traffic); 7] = [
    ("data", Traffic::Data),
    ("acks", Traffic::Acks),
    ("syn", Traffic::Syn),
    ("join", Traffic::Join),
    ("fin", Traffic::Fin),
    ("rst", Traffic::Rst),
    ("all", Traffic::All),
];

/// Which payload is changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Alteration {
    /// A byte of a segment, with this probability.
    Random(Probability),
    /// This byte of each TCP stream, the first being 0, every time it passes. The box must have seen
    /// the SYN.
    At(u32),
}

/// Why a text describes no chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpecError {
    item: String,
    expected: &'static str,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no middlebox: expected {}", self.item, self.expected)
    }
}

impl std::error::Error for SpecError {}

impl FromStr for ChainSpec {
    type Err = SpecError;

    /// An empty text is a chain without boxes.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let items = text.split(',').map(|item| item.trim().parse()).collect::<Result<_, _>>()?;
        Ok(Self { items })
    }
}

impl fmt::Display for ChainSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, item) in self.items.iter().enumerate() {
            write!(f, "{}{item}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for Item {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (only, rest) = match (text.strip_prefix('>'), text.strip_prefix('<')) {
            (Some(rest), _) => (Some(Direction::Right), rest),
            (_, Some(rest)) => (Some(Direction::Left), rest),
            (None, None) => (None, text),
        };
        let (name, value) = match rest.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (rest, None),
        };
        let kind = Kind::parse(name, value)
            .map_err(|expected| SpecError { item: text.to_owned(), expected })?;
        Ok(Self { only, kind })
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.only {
            Some(Direction::Right) => ">",
            Some(Direction::Left) => "<",
            None => "",
        };
        write!(f, "{prefix}{}", self.kind)
    }
}

/// What was expected, where something else was found.
type Parsed<T> = Result<T, &'static str>;

impl Kind {
    fn parse(name: &str, value: Option<&str>) -> Parsed<Self> {
        let mut parts = value.unwrap_or_default().split(':');
        let first = parts.next().unwrap_or_default();
        let kind = match name {
            "loss" => Self::Loss(probability(first)?),
            "dup" => Self::Duplicate(probability(first)?),
            "corrupt" => Self::Corrupt(probability(first)?),
            "reorder" => Self::Reorder {
                probability: probability(first)?,
                by: parts.next().map_or(Ok(REORDER_TIME), time)?,
            },
            "delay" => Self::Delay {
                by: time(first)?,
                jitter: parts.next().map_or(Ok(Duration::ZERO), time)?,
            },
            "rate" => Self::Rate {
                rate: BitRate::parse(first).ok_or("a rate such as 100Mbit")?,
                queue: parts.next().map_or(Ok(RATE_QUEUE), size)?,
            },
            "strip" => Self::parse_strip(first, &mut parts)?,
            "isn" if value.is_none() => Self::Sequence,
            // An IPv6 address has colons of its own.
            "nat" => return parse_nat(value),
            "split" => Self::Split {
                size: Some(size(first)?)
                    .filter(|&size| size >= SPLIT_LEAST)
                    .ok_or("a size of at least 8 bytes")?,
                first_only: flag("first", parts.next())?,
            },
            "coalesce" => Self::parse_coalesce(first, &mut parts)?,
            "drop" => Self::Drop(
                find(&TRAFFIC, first).ok_or("one of data, acks, syn, join, fin, rst, all")?,
            ),
            "cut" => Self::Cut {
                after: time(first)?,
                length: time(parts.next().ok_or("two times such as 2s:500ms")?)?,
            },
            "alter" => Self::Alter(match first.strip_prefix("at-") {
                Some(place) => {
                    Alteration::At(u32::try_from(size(place)?).map_err(|_| "a place below 4G")?)
                }
                None => Alteration::Random(probability(first)?),
            }),
            "mtu" => Self::Mtu {
                mtu: Some(size(first)?)
                    .filter(|&mtu| mtu >= MTU_LEAST)
                    .ok_or("an MTU of at least 68 bytes")?,
                icmp: flag("icmp", parts.next())?,
            },
            _ => {
                return Err(
                    "loss=, dup=, corrupt=, reorder=, delay=, rate=, strip=, isn, nat, split=, \
                     coalesce=, drop=, cut=, alter= or mtu=",
                );
            }
        };
        if parts.next().is_some() { Err("nothing more behind a colon") } else { Ok(kind) }
    }

    fn parse_strip<'a>(place: &str, parts: &mut impl Iterator<Item = &'a str>) -> Parsed<Self> {
        let place = match (place, place.strip_prefix("after-")) {
            ("syn", _) => Place::Syn,
            ("data", _) => Place::Data,
            ("all", _) => Place::All,
            (_, Some(bytes)) => Place::After(size(bytes)?),
            _ => return Err("syn, data, all or after-BYTES"),
        };
        let mut what = vec![MPTCP];
        let mut padding = Padding::Nops;
        if let Some(part) = parts.next() {
            if part == "shrink" {
                padding = Padding::Shrink;
            } else {
                what = part.split('+').map(option_name).collect::<Parsed<_>>()?;
                if flag("shrink", parts.next())? {
                    padding = Padding::Shrink;
                }
            }
        }
        Ok(Self::Strip { place, what, padding })
    }

    fn parse_coalesce<'a>(first: &str, parts: &mut impl Iterator<Item = &'a str>) -> Parsed<Self> {
        let size = Some(size(first)?)
            .filter(|&size| size <= COALESCE_MOST)
            .ok_or("a size of at most 65000 bytes")?;
        let (mut patience, mut first_only) = (COALESCE_TIME, false);
        if let Some(part) = parts.next() {
            if part == "first" {
                first_only = true;
            } else {
                patience = time(part)?;
                first_only = flag("first", parts.next())?;
            }
        }
        Ok(Self::Coalesce { size, patience, first_only })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loss(probability) => write!(f, "loss={probability}"),
            Self::Duplicate(probability) => write!(f, "dup={probability}"),
            Self::Corrupt(probability) => write!(f, "corrupt={probability}"),
            Self::Reorder { probability, by } => {
                write!(f, "reorder={probability}")?;
                unless(f, *by == REORDER_TIME, Time(*by))
            }
            Self::Delay { by, jitter } => {
                write!(f, "delay={}", Time(*by))?;
                unless(f, jitter.is_zero(), Time(*jitter))
            }
            Self::Rate { rate, queue } => {
                write!(f, "rate={rate}")?;
                unless(f, *queue == RATE_QUEUE, Size(*queue))
            }
            Self::Strip { place, what, padding } => {
                match place {
                    Place::Syn => write!(f, "strip=syn")?,
                    Place::Data => write!(f, "strip=data")?,
                    Place::All => write!(f, "strip=all")?,
                    Place::After(bytes) => write!(f, "strip=after-{}", Size(*bytes))?,
                }
                if what[..] != [MPTCP] {
                    for (at, name) in what.iter().enumerate() {
                        write!(f, "{}{name}", if at == 0 { ':' } else { '+' })?;
                    }
                }
                unless(f, *padding == Padding::Nops, "shrink")
            }
            Self::Sequence => write!(f, "isn"),
            Self::Nat { address: None } => write!(f, "nat"),
            Self::Nat { address: Some(address) } => write!(f, "nat={address}"),
            Self::Split { size, first_only } => {
                write!(f, "split={}", Size(*size))?;
                unless(f, !first_only, "first")
            }
            Self::Coalesce { size, patience, first_only } => {
                write!(f, "coalesce={}", Size(*size))?;
                unless(f, *patience == COALESCE_TIME, Time(*patience))?;
                unless(f, !first_only, "first")
            }
            Self::Drop(traffic) => {
                let name = TRAFFIC.iter().find(|(_, known)| known == traffic);
                write!(f, "drop={}", name.map_or("all", |(name, _)| name))
            }
            Self::Cut { after, length } => write!(f, "cut={}:{}", Time(*after), Time(*length)),
            Self::Alter(Alteration::Random(probability)) => write!(f, "alter={probability}"),
            Self::Alter(Alteration::At(place)) => {
                write!(f, "alter=at-{}", Size(u64::from(*place)))
            }
            Self::Mtu { mtu, icmp } => {
                write!(f, "mtu={}", Size(*mtu))?;
                unless(f, !icmp, "icmp")
            }
        }
    }
}

impl fmt::Display for OptionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (OPTION_NAMES.iter().find(|(_, known)| known == self), self) {
            (Some((name, _)), _) => f.write_str(name),
            (None, Self::Kind(kind)) => write!(f, "kind-{kind}"),
            (None, Self::Subtype(subtype)) => write!(f, "subtype-{subtype}"),
        }
    }
}

/// A part behind a colon, left out where it is what is taken without it.
fn unless(f: &mut fmt::Formatter<'_>, left_out: bool, part: impl fmt::Display) -> fmt::Result {
    if left_out { Ok(()) } else { write!(f, ":{part}") }
}

fn find<T: Copy>(known: &[(&str, T)], name: &str) -> Option<T> {
    known.iter().find(|(known, _)| *known == name).map(|&(_, value)| value)
}

fn probability(text: &str) -> Parsed<Probability> {
    Probability::parse(text).ok_or("a percentage such as 0.1%")
}

fn time(text: &str) -> Parsed<Duration> {
    parse_time(text).ok_or("a time such as 40ms")
}

fn size(text: &str) -> Parsed<u64> {
    parse_size(text).ok_or("a number of bytes such as 1500 or 64k")
}

/// Whether there is a further part, which can only be `name`.
fn flag(name: &'static str, part: Option<&str>) -> Parsed<bool> {
    match part {
        None => Ok(false),
        Some(part) if part == name => Ok(true),
        Some(_) => Err(name),
    }
}

fn option_name(text: &str) -> Parsed<OptionName> {
    let number = |prefix: &str| text.strip_prefix(prefix).and_then(|number| number.parse().ok());
    find(&OPTION_NAMES, text)
        // 0 and 1 are not options but padding.
        .or_else(|| number("kind-").filter(|&kind| kind > 1).map(OptionName::Kind))
        .or_else(|| number("subtype-").filter(|&subtype| subtype < 16).map(OptionName::Subtype))
        .ok_or("TCP options such as mptcp, dss or kind-8, joined with +")
}

fn parse_nat(value: Option<&str>) -> Parsed<Kind> {
    let address = value.map(|text| text.parse().map_err(|_| "an address")).transpose()?;
    Ok(Kind::Nat { address })
}
