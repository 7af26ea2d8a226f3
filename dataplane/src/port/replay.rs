//! A capture file as a port: its packets are received, what is sent goes nowhere or is recorded.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError};

use super::frames::{Ledger, Owner, next_port_id};
use super::{FrameAccount, Port, PortMode, PortStatistics, RxFrame, TxFrame};

/// Why a capture cannot be replayed, or not further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The file cannot be read.
    #[error("cannot read the capture: {0}")]
    Io(#[from] io::Error),
    /// It begins like neither pcap nor pcapng.
    #[error("the file is neither pcap nor pcapng; tcpdump -w and tshark -w write what is wanted")]
    NotACapture,
    /// Its packets are not Ethernet frames.
    #[error("the capture's packets are {found}, not Ethernet; capture on an Ethernet interface")]
    NotEthernet {
        /// The link type.
        found: String,
    },
    /// It is damaged.
    #[error("packet {packet} of the capture cannot be read: {source}")]
    Damaged {
        /// The number of the packet, from 1.
        packet: u64,
        /// What is wrong with it.
        source: PcapError,
    },
}

/// The parsers of the two formats.
enum Reader {
    Pcap(PcapReader<Box<dyn Read + Send>>),
    PcapNg(PcapNgReader<Box<dyn Read + Send>>),
}

/// A port whose received packets come from a pcap or pcapng file.
///
/// A packet comes when the time of [`set_time`](Self::set_time) has reached its own; without that
/// call, all come as fast as they are taken. A packet larger than a buffer comes in several. One
/// larger than all buffers together is dropped, as a NIC would do.
/// The file is read as the replay goes on, so it may be larger than memory.
pub struct ReplayPort {
    id: u32,
    frame_size: usize,
    ledger: Ledger,
    buffers: Vec<Box<[u8]>>,
    fill: Vec<u32>,
    free: Vec<u32>,
    queued: VecDeque<(u32, u32, bool)>,
    reader: Reader,
    /// The next packet, read ahead to know its time.
    next: Option<Captured>,
    /// A buffer for the packet after that.
    spare: Vec<u8>,
    /// The first packet's time: the replay's zero.
    origin: Option<Duration>,
    now: Duration,
    packets: u64,
    /// Packets that were left out.
    dropped: u64,
    error: Option<ReplayError>,
    sent: Option<Vec<Vec<u8>>>,
    sending: Vec<u8>,
}

/// One packet of the file.
struct Captured {
    at: Duration,
    bytes: Vec<u8>,
}

/// The buffers of a replay, for receiving and for sending each.
const FRAMES: u32 = 256;

impl ReplayPort {
    /// Opens a capture file, with buffers of `frame_size` bytes.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is no capture, or is not of an Ethernet interface.
    ///
    /// # Panics
    ///
    /// If `frame_size` is 0 or beyond 2^31.
    pub fn open(path: impl AsRef<Path>, frame_size: usize) -> Result<Self, ReplayError> {
        let mut file = File::open(path)?;
        let mut magic = [0; 4];
        file.read_exact(&mut magic).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => ReplayError::NotACapture,
            _ => error.into(),
        })?;
        file.seek(SeekFrom::Start(0))?;
        Self::new(BufReader::new(file), magic, frame_size)
    }

    /// Replays a capture held in memory.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    ///
    /// # Panics
    ///
    /// As [`open`](Self::open).
    pub fn from_bytes(bytes: Vec<u8>, frame_size: usize) -> Result<Self, ReplayError> {
        let magic = *bytes.first_chunk().ok_or(ReplayError::NotACapture)?;
        Self::new(io::Cursor::new(bytes), magic, frame_size)
    }

    fn new(
        source: impl Read + Send + 'static,
        magic: [u8; 4],
        frame_size: usize,
    ) -> Result<Self, ReplayError> {
        assert!((1..1 << 31).contains(&frame_size), "buffers of {frame_size} bytes");
        let source: Box<dyn Read + Send> = Box::new(source);
        let damaged = |source| ReplayError::Damaged { packet: 1, source };
        // The magic numbers of microseconds and nanoseconds, in either byte order.
        let reader = match u32::from_be_bytes(magic) {
            0xA1B2_C3D4 | 0xD4C3_B2A1 | 0xA1B2_3C4D | 0x4D3C_B2A1 => {
                let reader = PcapReader::new(source).map_err(damaged)?;
                check_link(reader.header().datalink)?;
                Reader::Pcap(reader)
            }
            0x0A0D_0D0A => Reader::PcapNg(PcapNgReader::new(source).map_err(damaged)?),
            _ => return Err(ReplayError::NotACapture),
        };
        let mut port = Self {
            id: next_port_id(),
            frame_size,
            ledger: Ledger::new(FRAMES as usize, FRAMES as usize),
            buffers: (0..2 * FRAMES).map(|_| vec![0; frame_size].into_boxed_slice()).collect(),
            fill: (0..FRAMES).rev().collect(),
            free: (FRAMES..2 * FRAMES).rev().collect(),
            queued: VecDeque::new(),
            reader,
            next: None,
            spare: Vec::new(),
            origin: None,
            now: Duration::MAX,
            packets: 0,
            dropped: 0,
            error: None,
            sent: None,
            sending: Vec::new(),
        };
        port.read_ahead();
        // What is wrong with the first packet is wrong with the file.
        match port.error.take() {
            Some(error) => Err(error),
            None => Ok(port),
        }
    }

    /// Lets packets come up to `elapsed` after the first one, in the capture's time.
    pub const fn set_time(&mut self, elapsed: Duration) {
        self.now = elapsed;
    }

    /// When the next packet is to come, counted from the first one in the capture's time. `None`:
    /// there are no more.
    #[must_use]
    pub fn next_at(&self) -> Option<Duration> {
        self.next.as_ref().map(|next| next.at)
    }

    /// The error that ended the replay before the file's end, if one did.
    #[must_use]
    pub const fn error(&self) -> Option<&ReplayError> {
        self.error.as_ref()
    }

    /// Keeps the packets that are sent from here on, for [`take_sent`](Self::take_sent).
    pub fn record(&mut self) {
        self.sent.get_or_insert_default();
    }

    /// The packets sent since [`record`](Self::record) or the last call, in order.
    pub fn take_sent(&mut self) -> Vec<Vec<u8>> {
        self.sent.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn read_ahead(&mut self) {
        if self.error.is_some() {
            return;
        }
        let mut bytes = std::mem::take(&mut self.spare);
        loop {
            bytes.clear();
            let at = match self.reader.read(&mut bytes) {
                Ok(Some(at)) => at,
                Ok(None) => return,
                Err(ReplayError::Damaged { source, .. }) => {
                    self.error = Some(ReplayError::Damaged { packet: self.packets + 1, source });
                    return;
                }
                Err(error) => {
                    self.error = Some(error);
                    return;
                }
            };
            self.packets += 1;
            let origin = *self.origin.get_or_insert(at);
            if bytes.len().div_ceil(self.frame_size) <= FRAMES as usize {
                self.next = Some(Captured { at: at.saturating_sub(origin), bytes });
                return;
            }
            // It would wait for more buffers than there are, and all others behind it.
            self.dropped += 1;
        }
    }

    fn queue(&mut self, frame: TxFrame, len: usize, more: bool) {
        self.check(frame.port);
        assert!((1..=self.frame_size).contains(&len), "{len} bytes in a frame");
        self.ledger.pass(frame.at as usize, Owner::Held, Owner::Transmit);
        self.queued.push_back((frame.at, len as u32, more));
    }

    fn check(&self, port: u32) {
        assert_eq!(port, self.id, "the frame is another port's");
    }
}

impl Reader {
    /// The next packet that is not empty: its time since 1970, its bytes appended to `bytes`.
    fn read(&mut self, bytes: &mut Vec<u8>) -> Result<Option<Duration>, ReplayError> {
        let damaged = |source| ReplayError::Damaged { packet: 0, source };
        loop {
            let at = match self {
                Self::Pcap(reader) => {
                    let Some(packet) = reader.next_packet() else {
                        return Ok(None);
                    };
                    let packet = packet.map_err(damaged)?;
                    bytes.extend_from_slice(&packet.data);
                    packet.timestamp
                }
                Self::PcapNg(reader) => {
                    let Some(block) = reader.next_block() else {
                        return Ok(None);
                    };
                    let (interface, at) = match block.map_err(damaged)? {
                        Block::EnhancedPacket(packet) => {
                            bytes.extend_from_slice(&packet.data);
                            // The parser takes the file's units for nanoseconds.
                            (packet.interface_id, packet.timestamp.as_nanos())
                        }
                        // Of no known time; the first interface's by definition.
                        Block::SimplePacket(packet) => {
                            bytes.extend_from_slice(&packet.data);
                            (0, 0)
                        }
                        _ => continue,
                    };
                    let missing = || damaged(PcapError::InvalidInterfaceId(interface));
                    let description =
                        reader.interfaces().get(interface as usize).ok_or_else(missing)?;
                    check_link(description.linktype)?;
                    let resolution = description.options.iter().find_map(|option| match option {
                        InterfaceDescriptionOption::IfTsResol(resolution) => Some(*resolution),
                        _ => None,
                    });
                    duration(at, resolution.unwrap_or(6))
                }
            };
            if !bytes.is_empty() {
                return Ok(Some(at));
            }
        }
    }
}

fn check_link(link: DataLink) -> Result<(), ReplayError> {
    if link == DataLink::ETHERNET {
        Ok(())
    } else {
        Err(ReplayError::NotEthernet { found: format!("{link:?}") })
    }
}

/// `units` of pcapng's if_tsresol: a power of ten, or of two if the top bit is set.
fn duration(units: u128, resolution: u8) -> Duration {
    let exponent = u32::from(resolution & 0x7f);
    let base: u128 = if resolution & 0x80 == 0 { 10 } else { 2 };
    let Some(per_second) = base.checked_pow(exponent) else {
        return Duration::ZERO;
    };
    let seconds = u64::try_from(units / per_second).unwrap_or(u64::MAX);
    // Below a second, so the product overflows only for units far below a nanosecond.
    let nanoseconds = (units % per_second).saturating_mul(1_000_000_000) / per_second;
    Duration::new(seconds, u32::try_from(nanoseconds).unwrap_or(0).min(999_999_999))
}

impl Port for ReplayPort {
    fn receive(&mut self, max: usize, out: &mut Vec<RxFrame>) -> usize {
        let (mut frames, mut packets) = (0, 0);
        while frames < max && self.next.as_ref().is_some_and(|next| next.at <= self.now) {
            let Some(Captured { bytes, .. }) = self
                .next
                .take_if(|next| next.bytes.len().div_ceil(self.frame_size) <= self.fill.len())
            else {
                break;
            };
            let count = bytes.len().div_ceil(self.frame_size);
            for (at, part) in bytes.chunks(self.frame_size).enumerate() {
                let index = self.fill.pop().expect("as many were there as the packet needs");
                self.buffers[index as usize][..part.len()].copy_from_slice(part);
                self.ledger.pass(index as usize, Owner::Receive, Owner::Held);
                let more = at + 1 < count;
                out.push(RxFrame { at: index, len: part.len() as u32, port: self.id, more });
            }
            frames += count;
            packets += 1;
            self.spare = bytes;
            self.read_ahead();
        }
        packets
    }

    fn bytes<'a>(&'a self, frame: &'a RxFrame) -> &'a [u8] {
        self.check(frame.port);
        &self.buffers[frame.at as usize][..frame.len as usize]
    }

    fn recycle(&mut self, frames: impl Iterator<Item = RxFrame>) {
        for frame in frames {
            self.check(frame.port);
            self.ledger.pass(frame.at as usize, Owner::Held, Owner::Receive);
            self.fill.push(frame.at);
        }
    }

    fn allocate(&mut self) -> Option<TxFrame> {
        let index = self.free.pop()?;
        self.ledger.pass(index as usize, Owner::Free, Owner::Held);
        Some(TxFrame { at: index, port: self.id })
    }

    fn bytes_mut<'a>(&'a mut self, frame: &'a mut TxFrame) -> &'a mut [u8] {
        self.check(frame.port);
        &mut self.buffers[frame.at as usize]
    }

    fn transmit(&mut self, frame: TxFrame, len: usize) {
        self.queue(frame, len, false);
    }

    fn transmit_part(&mut self, frame: TxFrame, len: usize) {
        self.queue(frame, len, true);
    }

    fn release(&mut self, frame: TxFrame) {
        self.check(frame.port);
        self.ledger.pass(frame.at as usize, Owner::Held, Owner::Free);
        self.free.push(frame.at);
    }

    fn flush(&mut self) -> io::Result<()> {
        while let Some(last) = self.queued.iter().position(|&(_, _, more)| !more) {
            for (index, len, _) in self.queued.drain(..=last) {
                self.ledger.pass(index as usize, Owner::Transmit, Owner::Free);
                self.free.push(index);
                if self.sent.is_some() {
                    self.sending.extend_from_slice(&self.buffers[index as usize][..len as usize]);
                }
            }
            if let Some(sent) = &mut self.sent {
                sent.push(std::mem::take(&mut self.sending));
            }
        }
        Ok(())
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn frame_size(&self) -> usize {
        self.frame_size
    }

    fn statistics(&mut self) -> PortStatistics {
        PortStatistics { rx_dropped: self.dropped, ..PortStatistics::default() }
    }

    fn frames(&self) -> FrameAccount {
        FrameAccount {
            fill: self.ledger.receive(),
            rx: 0,
            held: self.ledger.held(),
            tx: self.ledger.transmit(),
            completion: 0,
            free: self.ledger.free(),
            total: self.buffers.len(),
        }
    }

    fn mode(&self) -> PortMode {
        PortMode::Replay
    }
}

impl std::fmt::Debug for ReplayPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplayPort")
            .field("next_at", &self.next_at())
            .field("frames", &self.frames())
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl Drop for ReplayPort {
    fn drop(&mut self) {
        self.ledger.check_returned();
    }
}
