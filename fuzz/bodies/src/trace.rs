//! Frames as text, for whoever looks into a find.

use std::time::Duration;

use mpxdp_proto::segment::Segment;
use mpxdp_proto::time::Instant;
use mpxdp_proto::wire::{Frame, parse_frame};

/// Whether frames are to be printed: the environment has MPXDP_FUZZ_TRACE.
#[must_use]
pub fn is_traced() -> bool {
    std::env::var_os("MPXDP_FUZZ_TRACE").is_some()
}

/// Prints a frame to stderr; `way` says where it goes.
pub fn show(now: Instant, way: &str, frame: &[u8]) {
    let Ok(Frame { local, remote, segment, .. }) = parse_frame(frame, frame.len()) else { return };
    let Segment { seq, ack, flags, window, payload_len, options, .. } = segment;
    let mptcp = format!("{:?}", options.mptcp);
    // What is set, without the rest.
    let set =
        mptcp.trim_start_matches("MptcpOptions ").split(", ").filter(|o| !o.contains(": None"));
    eprintln!(
        "{:?} {remote} {way} {local} flags {:#04x} {}+{payload_len} ack {} window {window} {:?} {}",
        Duration::from_nanos(now.0),
        flags.0,
        seq.0,
        ack.0,
        options.sack.as_slice(),
        set.collect::<Vec<_>>().join(" "),
    );
}
