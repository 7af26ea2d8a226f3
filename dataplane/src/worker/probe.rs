//! Where the time of a turn goes: what a benchmark may know, at no cost to anybody else.

/// What a worker does with a burst, in the order in which it does it. For a packet's own stages
/// ([`Parse`](Self::Parse) to [`Subflow`](Self::Subflow)) it goes around once a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(usize)]
pub enum Stage {
    /// The port gives a burst of frames.
    Receive,
    /// Headers and options become values.
    Parse,
    /// The TCP checksum is verified, over all of the segment.
    Checksum,
    /// The flow is looked up and takes the segment; the payload has its place in the stream.
    Subflow,
    /// The connection's ring is asked for the places, once a burst and subflow.
    Claim,
    /// The payload is copied into the ring.
    Copy,
    /// The ring's edge moves, and what was counted is published, once a burst and subflow.
    Commit,
    /// The frames go back to the port.
    Recycle,
    /// Acknowledgements are built and sent, once a burst and subflow; deadlines are set.
    Acknowledge,
    /// Commands, wishes and timers are looked for; the worker's numbers are published.
    Rest,
}

impl Stage {
    /// Every stage, in order.
    pub const ALL: [Self; 10] = [
        Self::Receive,
        Self::Parse,
        Self::Checksum,
        Self::Subflow,
        Self::Claim,
        Self::Copy,
        Self::Commit,
        Self::Recycle,
        Self::Acknowledge,
        Self::Rest,
    ];

    /// A stable name for reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Parse => "parse",
            Self::Checksum => "checksum",
            Self::Subflow => "subflow",
            Self::Claim => "claim",
            Self::Copy => "copy",
            Self::Commit => "commit",
            Self::Recycle => "recycle",
            Self::Acknowledge => "acknowledge",
            Self::Rest => "rest",
        }
    }
}

/// Is told as a worker goes through the stages of its turns.
///
/// Workers of an [`Engine`](crate::Engine) pass `()`, which does nothing and has no size: what is
/// compiled for them is the same as if nobody had ever asked. It is passed by value for that, and turn
/// by turn, so that a benchmark can compare turns that are watched with others of the same worker.
pub trait Probe: Copy {
    /// What the worker did since the last mark was `stage`.
    fn mark(self, stage: Stage);
}

impl Probe for () {
    #[inline(always)]
    fn mark(self, _: Stage) {}
}
