//! smoltcp over the same cable: what another TCP in user space needs for the same payload.
//!
//! It speaks plain TCP, on one connection with timestamps. Its frames come whole, since its devices
//! know no packets in several buffers, so here a buffer holds any packet.

use mpxdp::port::{MemoryPort, Port, RxFrame, receive_packets, send_packet};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
    EthernetRepr, IpCidr,
};

use super::clock::{switches, ticks};
use super::peer::{CLIENT_IP, LINK, Peer, SERVER, SERVER_IP, Shape};
use super::rig::{self, BURST, FRAMES, memory};
use super::round::Measured;
use crate::{Error, Result};

/// Bytes of a buffer: any packet.
const FRAME_SIZE: usize = 16 << 10;

/// See the [module](self).
pub(super) struct Smoltcp {
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    device: Cables,
    /// The far ends, for what goes in and what comes out.
    far: MemoryPort,
    far_out: MemoryPort,
    peer: Peer,
    now: Instant,
    read: u64,
    buf: Vec<u8>,
}

/// The near ends: one cable for what comes in, one for what goes out, since smoltcp answers a packet
/// while it looks at it.
struct Cables {
    incoming: MemoryPort,
    outgoing: MemoryPort,
    frames: Vec<RxFrame>,
    /// How many of `frames` were looked at.
    taken: usize,
    /// Packets between two looks at the socket: as many as a worker's burst has.
    burst: usize,
}

struct Received<'a> {
    port: &'a MemoryPort,
    frame: &'a RxFrame,
}

struct Sending<'a>(&'a mut MemoryPort);

impl Cables {
    /// Takes a burst; says how many packets it is.
    fn take(&mut self) -> usize {
        self.incoming.receive(self.burst, &mut self.frames)
    }

    /// Gives the burst back, and sends what is to be sent.
    fn give_back(&mut self) {
        self.taken = 0;
        self.incoming.recycle(self.frames.drain(..));
        self.outgoing.flush().expect("memory does not fail");
    }
}

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.port.bytes(self.frame))
    }
}

impl TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = self.0.allocate().expect("the far end empties the cable after each block");
        let result = f(&mut self.0.bytes_mut(&mut frame)[..len]);
        self.0.transmit(frame, len);
        result
    }
}

impl Device for Cables {
    type RxToken<'a> = Received<'a>;
    type TxToken<'a> = Sending<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received<'_>, Sending<'_>)> {
        let frame = self.frames.get(self.taken)?;
        self.taken += 1;
        Some((Received { port: &self.incoming, frame }, Sending(&mut self.outgoing)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending<'_>> {
        Some(Sending(&mut self.outgoing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = FRAME_SIZE;
        capabilities
    }
}

impl Smoltcp {
    /// A socket with `ring` bytes of receive buffer, and a client that is connected to it.
    ///
    /// # Errors
    ///
    /// The handshake fails.
    pub(super) fn new(payload: usize, ring: usize) -> Result<Self> {
        let (incoming, far) = MemoryPort::pair(memory(FRAME_SIZE));
        let (outgoing, far_out) = MemoryPort::pair(memory(FRAME_SIZE));
        let burst = BURST.div_ceil((Peer::headers(false) + payload).div_ceil(rig::FRAME_SIZE));
        let mut device = Cables { incoming, outgoing, frames: Vec::new(), taken: 0, burst };
        let now = Instant::from_secs(3600);
        let ours = EthernetAddress(LINK.destination.0);
        let mut interface = Interface::new(Config::new(ours.into()), &mut device, now);
        interface.update_ip_addrs(|addresses| {
            // One network with all clients; there is room for two addresses.
            let _ = addresses.push(IpCidr::new(SERVER_IP.into(), 8));
        });
        let buffer = |len: usize| tcp::SocketBuffer::new(vec![1; len]);
        let mut socket = tcp::Socket::new(buffer(ring), buffer(4096));
        socket.set_tsval_generator(Some(|| 1));
        let failed = |e| Error::failed("pipeline: smoltcp", e);
        socket.listen(SERVER.port()).map_err(|e| failed(e.to_string()))?;
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(socket);
        let shape = Shape { connections: 1, subflows: 1, payload, reorder: 0.0, mptcp: false };
        let mut smoltcp = Self {
            interface,
            sockets,
            socket,
            device,
            far,
            far_out,
            peer: Peer::new(shape),
            now,
            read: 0,
            buf: Vec::new(),
        };
        smoltcp.introduce();
        smoltcp.connect()?;
        Ok(smoltcp)
    }

    /// Tells it the client's hardware address.
    fn introduce(&mut self) {
        let hardware = EthernetAddress(LINK.source.0);
        let arp = ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Request,
            source_hardware_addr: hardware,
            source_protocol_addr: CLIENT_IP,
            target_hardware_addr: EthernetAddress([0; 6]),
            target_protocol_addr: SERVER_IP,
        };
        let ethernet = EthernetRepr {
            src_addr: hardware,
            dst_addr: EthernetAddress::BROADCAST,
            ethertype: EthernetProtocol::Arp,
        };
        let mut bytes = vec![0; ethernet.buffer_len() + arp.buffer_len()];
        let mut frame = EthernetFrame::new_unchecked(&mut bytes[..]);
        ethernet.emit(&mut frame);
        arp.emit(&mut ArpPacket::new_unchecked(frame.payload_mut()));
        self.exchange(&bytes, &mut |_| {});
    }

    fn connect(&mut self) -> Result<()> {
        // The client belongs to `self`, which the exchange needs too.
        let shape = Shape { connections: 0, ..self.peer.shape() };
        let mut peer = std::mem::replace(&mut self.peer, Peer::new(shape));
        let opened = peer.open(0, &mut |frame, answer| self.exchange(frame, answer));
        self.peer = peer;
        opened
    }

    fn exchange(&mut self, frame: &[u8], answer: &mut dyn FnMut(&[u8])) {
        send_packet(&mut self.far, frame);
        self.far.flush().expect("memory does not fail");
        self.device.take();
        self.interface.poll(self.now, &mut self.device, &mut self.sockets);
        self.device.give_back();
        receive_packets(&mut self.far_out, FRAMES, answer);
    }

    /// Makes a block of packets, and measures how it goes through smoltcp to a reader that reads in
    /// place.
    ///
    /// # Errors
    ///
    /// Not all that was sent was received.
    pub(super) fn block(&mut self) -> Result<Measured> {
        for _ in 0..FRAMES {
            let (len, _) = self.peer.next_packet(&mut self.buf);
            assert!(send_packet(&mut self.far, &self.buf[..len]), "a block fits the cable");
        }
        self.far.flush().expect("memory does not fail");
        let before = switches();
        let begin = ticks();
        let mut packets = 0;
        while packets < FRAMES {
            packets += self.device.take();
            self.interface.poll(self.now, &mut self.device, &mut self.sockets);
            self.device.give_back();
            let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.socket);
            while socket.can_recv() {
                let received = socket.recv(|bytes| (bytes.len(), bytes.len()));
                self.read += received.map_err(|e| Error::failed("pipeline: smoltcp", e))? as u64;
            }
            self.now += Duration::from_micros(20);
        }
        let ticks = ticks() - begin;
        let switches = switches() - before;
        self.peer.tick();
        let peer = &mut self.peer;
        receive_packets(&mut self.far_out, usize::MAX, |frame| {
            peer.on_frame(frame);
        });
        if self.read != self.peer.sent(0) {
            let (sent, read) = (self.peer.sent(0), self.read);
            return Err(Error::Failed(format!("pipeline: smoltcp read {read} of {sent} bytes")));
        }
        Ok(Measured {
            ticks,
            packets: packets as u64,
            readings: 1,
            switches,
            ..Measured::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_receives_what_the_clients_send() {
        for payload in [64, 1448, 8948] {
            let mut smoltcp = Smoltcp::new(payload, 1 << 20).expect("it connects");
            for _ in 0..3 {
                let measured = smoltcp.block().expect("nothing is lost");
                assert_eq!(measured.packets, FRAMES as u64);
            }
            assert!(smoltcp.peer.acknowledged(0) > 0);
        }
    }
}
