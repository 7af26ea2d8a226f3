//! The capture reader of `ReplayPort`.

use mpxdp::port::{Port, ReplayPort, receive_packets};

/// Buffers so small that most packets take several, and some more than there are.
const FRAME_SIZE: usize = 8;

/// Replays a capture file and checks that its packets are of the file, that no buffer is lost, and
/// that the replay comes to an end.
pub fn pcap(data: &[u8]) {
    let Ok(mut port) = ReplayPort::from_bytes(data.to_vec(), FRAME_SIZE) else { return };
    let mut bytes = 0;
    let mut before = port.next_at();
    while before.is_some() {
        let packets = receive_packets(&mut port, 16, |packet| {
            assert!(!packet.is_empty());
            bytes += packet.len();
        });
        let frames = port.frames();
        assert!(frames.is_conserved() && frames.held == 0, "{frames:?}");
        assert!(bytes <= data.len(), "{bytes} bytes came of {}", data.len());
        assert!(packets > 0, "the replay is stuck at {before:?}");
        before = port.next_at();
    }
}
