//! Tests of the replay port, on captures that pcap-file writes.

use std::borrow::Cow;
use std::time::Duration;

use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};

use super::content;
use crate::port::{Port, PortMode, ReplayError, ReplayPort, receive_packets, send_packet};

fn pcap(packets: &[(Duration, Vec<u8>)]) -> Vec<u8> {
    let mut writer = PcapWriter::new(Vec::new()).unwrap();
    for (at, bytes) in packets {
        writer.write_packet(&PcapPacket::new(*at, bytes.len() as u32, bytes)).unwrap();
    }
    writer.into_writer()
}

fn pcapng(link: DataLink, resolution: u8, packets: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut writer = PcapNgWriter::new(Vec::new()).unwrap();
    let mut interface = InterfaceDescriptionBlock::new(link, 0);
    interface.options.push(InterfaceDescriptionOption::IfTsResol(resolution));
    writer.write_pcapng_block(interface).unwrap();
    for (units, bytes) in packets {
        let packet = EnhancedPacketBlock {
            interface_id: 0,
            // Written as it stands, in the interface's units.
            timestamp: Duration::from_nanos(*units),
            original_len: bytes.len() as u32,
            data: Cow::Borrowed(bytes),
            options: Vec::new(),
        };
        writer.write_pcapng_block(packet).unwrap();
    }
    writer.into_inner()
}

fn all(port: &mut ReplayPort) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    while receive_packets(port, 64, |packet| packets.push(packet.to_vec())) > 0 {}
    packets
}

#[test]
fn every_packet_of_a_pcap_file_comes_once() {
    let packets: Vec<_> = (0..1000)
        .map(|n| (Duration::from_micros(n), content(n, 60 + n as usize * 13 % 9000)))
        .collect();
    let mut port = ReplayPort::from_bytes(pcap(&packets), 4096).unwrap();
    let wanted: Vec<_> = packets.into_iter().map(|(_, bytes)| bytes).collect();
    assert!(all(&mut port) == wanted);
    assert!(port.error().is_none());
    assert_eq!(port.next_at(), None);
    assert_eq!(port.mode(), PortMode::Replay);
    assert_eq!((port.frames().fill, port.frames().free), (256, 256));
}

#[test]
fn packets_come_when_their_time_has_come() {
    let start = Duration::from_secs(1_700_000_000);
    let packets: Vec<_> =
        (0..3).map(|n| (start + Duration::from_millis(10 * n), content(n, 60))).collect();
    let mut port = ReplayPort::from_bytes(pcap(&packets), 4096).unwrap();
    port.set_time(Duration::from_millis(9));
    assert_eq!(all(&mut port).len(), 1);
    assert_eq!(port.next_at(), Some(Duration::from_millis(10)));
    port.set_time(Duration::from_millis(20));
    assert_eq!(all(&mut port).len(), 2);
}

#[test]
fn pcapng_times_go_by_the_interfaces_resolution() {
    // Microseconds, nanoseconds, and 2^-10 seconds.
    for (resolution, units) in [(6, 2_500_000), (9, 2_500_000_000), (0x80 | 10, 2560)] {
        let packets = [(units, content(1, 60)), (2 * units, content(2, 70))];
        let file = pcapng(DataLink::ETHERNET, resolution, &packets);
        let mut port = ReplayPort::from_bytes(file, 4096).unwrap();
        port.set_time(Duration::ZERO);
        assert_eq!(all(&mut port), [content(1, 60)]);
        assert_eq!(port.next_at(), Some(Duration::from_millis(2500)), "resolution {resolution}");
    }
}

#[test]
fn a_full_port_keeps_the_packet_that_does_not_fit() {
    let packets: Vec<_> = (0..10).map(|n| (Duration::ZERO, content(n, 64 * 60))).collect();
    let mut port = ReplayPort::from_bytes(pcap(&packets), 64).unwrap();
    let mut frames = Vec::new();
    // Four times 60 of 256 buffers.
    assert_eq!(port.receive(usize::MAX, &mut frames), 4);
    assert_eq!(port.receive(usize::MAX, &mut frames), 0);
    port.recycle(frames.drain(..));
    assert_eq!(all(&mut port).len(), 6);
}

#[test]
fn a_packet_larger_than_all_buffers_does_not_stop_the_replay() {
    let packets =
        [60, 256 * 64, 256 * 64 + 1, 70].map(|len| (Duration::ZERO, content(len, len as usize)));
    let mut port = ReplayPort::from_bytes(pcap(&packets), 64).unwrap();
    let lengths: Vec<_> = all(&mut port).iter().map(Vec::len).collect();
    assert_eq!(lengths, [60, 256 * 64, 70]);
    assert_eq!(port.statistics().rx_dropped, 1);
}

#[test]
fn what_is_sent_can_be_recorded() {
    let file = pcap(&[(Duration::ZERO, content(1, 60))]);
    let mut port = ReplayPort::from_bytes(file, 64).unwrap();
    for number in 0..1000 {
        assert!(send_packet(&mut port, &content(number, 100)), "unrecorded ones come back too");
        port.flush().unwrap();
    }
    port.record();
    assert!(send_packet(&mut port, &content(7, 150)));
    assert!(send_packet(&mut port, &content(8, 10)));
    port.flush().unwrap();
    assert_eq!(port.take_sent(), [content(7, 150), content(8, 10)]);
}

#[test]
fn what_is_no_ethernet_capture_is_refused() {
    let refused = |bytes| ReplayPort::from_bytes(bytes, 4096).unwrap_err();
    assert!(matches!(refused(b"no".to_vec()), ReplayError::NotACapture));
    assert!(matches!(refused(b"not a capture".to_vec()), ReplayError::NotACapture));
    let header = PcapHeader { datalink: DataLink::LINUX_SLL, ..PcapHeader::default() };
    let cooked = PcapWriter::with_header(Vec::new(), header).unwrap().into_writer();
    assert!(matches!(refused(cooked), ReplayError::NotEthernet { .. }));
    let raw = pcapng(DataLink::RAW, 6, &[(0, content(1, 60))]);
    assert!(matches!(refused(raw), ReplayError::NotEthernet { .. }));
    let missing = ReplayPort::open("/nonexistent/file", 4096).unwrap_err();
    assert!(matches!(missing, ReplayError::Io(_)));
}

#[test]
fn a_truncated_capture_gives_what_is_whole_and_then_its_error() {
    let packets: Vec<_> = (0..3).map(|n| (Duration::ZERO, content(n, 60))).collect();
    let mut file = pcap(&packets);
    file.truncate(file.len() - 1);
    let mut port = ReplayPort::from_bytes(file, 4096).unwrap();
    assert_eq!(all(&mut port).len(), 2);
    assert!(matches!(port.error(), Some(ReplayError::Damaged { packet: 3, .. })));
}
