//! Whole packets in and out of a port, by copying: for tools and tests, not for workers.

use super::{Port, RxFrame};

/// Sends a copy of `packet`, in as many frames as it needs, with the port's next flush.
///
/// Says `false`, and sends nothing, if the packet is empty or the port has too few free frames.
pub fn send_packet<P: Port>(port: &mut P, packet: &[u8]) -> bool {
    let size = port.frame_size();
    let count = packet.len().div_ceil(size);
    let mut frames = Vec::with_capacity(count);
    while frames.len() < count {
        let Some(frame) = port.allocate() else {
            break;
        };
        frames.push(frame);
    }
    if frames.len() < count || count == 0 {
        for frame in frames {
            port.release(frame);
        }
        return false;
    }
    for (at, (part, mut frame)) in packet.chunks(size).zip(frames).enumerate() {
        port.bytes_mut(&mut frame)[..part.len()].copy_from_slice(part);
        if at + 1 < count {
            port.transmit_part(frame, part.len());
        } else {
            port.transmit(frame, part.len());
        }
    }
    true
}

/// Takes packets of about `max` frames in all, hands each to `each` as one slice, and recycles
/// their frames. Says how many packets there were.
pub fn receive_packets<P: Port>(port: &mut P, max: usize, mut each: impl FnMut(&[u8])) -> usize {
    let mut frames: Vec<RxFrame> = Vec::new();
    let packets = port.receive(max, &mut frames);
    let mut joined = Vec::new();
    for frame in &frames {
        let bytes = port.bytes(frame);
        if joined.is_empty() && !frame.more() {
            each(bytes);
            continue;
        }
        joined.extend_from_slice(bytes);
        if !frame.more() {
            each(&joined);
            joined.clear();
        }
    }
    port.recycle(frames.drain(..));
    packets
}
