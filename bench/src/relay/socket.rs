//! A raw packet socket on one interface: every frame that arrives there, and a way to send any.
//!
//! Like `crate::sys`, this makes system calls that neither the standard library nor nix offers; the
//! `unsafe` is in four functions at the end.

use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, sockopt};

use crate::error::{Context, Result};

/// Frames that one system call takes or sends.
const BURST: usize = 32;
/// Room for the longest IP packet behind an Ethernet header with two tags.
const FRAME_ROOM: usize = 66 << 10;
/// Bytes that the kernel may hold for us: what arrives at 10 Gbit/s within 50 ms.
const SOCKET_BUFFER: usize = 64 << 20;

/// Octets of the two MAC addresses, behind which a VLAN tag goes.
const ADDRESSES: usize = 12;
/// The tag protocol identifier if the kernel does not tell.
const CUSTOMER_TAG: u16 = 0x8100;

/// Room for the one control message that we ask for.
type Control = [u64; 8];

/// A packet socket on an interface.
#[derive(Debug)]
pub(crate) struct PacketSocket {
    fd: OwnedFd,
    interface: String,
    /// Room for a burst.
    room: Vec<u8>,
}

/// A frame that arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arrived {
    pub(super) frame: Vec<u8>,
    /// Whether its checksums are right, as far as the kernel promises: it is not if the sender left
    /// them to a NIC that there is not.
    pub(super) is_complete: bool,
}

impl PacketSocket {
    /// Opens a socket that gets what arrives at an interface of this namespace, and not what is sent
    /// there.
    pub(crate) fn open(interface: &str) -> Result<Self> {
        let what = || format!("cannot open a packet socket on {interface}");
        let index = nix::net::if_::if_nametoindex(interface).context(what)?;
        // With protocol 0 nothing arrives until it is bound to one interface.
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let fd = socket::socket(AddressFamily::Packet, SockType::Raw, flags, None).context(what)?;
        socket::setsockopt(&fd, sockopt::RcvBufForce, &SOCKET_BUFFER).context(what)?;
        socket::setsockopt(&fd, sockopt::SndBufForce, &SOCKET_BUFFER).context(what)?;
        for option in [libc::PACKET_IGNORE_OUTGOING, libc::PACKET_AUXDATA] {
            set_packet_option(fd.as_fd(), option, 1).context(what)?;
        }
        bind(fd.as_fd(), index).context(what)?;
        Ok(Self { fd, interface: interface.to_owned(), room: vec![0; BURST * FRAME_ROOM] })
    }

    /// From now on each frame that is sent, and each that arrives, has a `struct virtio_net_hdr` in
    /// front, which may have the kernel make several TCP segments of it.
    pub(crate) fn send_unsegmented(&self) -> Result<()> {
        let what = || format!("cannot have packets taken apart on {}", self.interface);
        set_packet_option(self.fd.as_fd(), libc::PACKET_VNET_HDR, 1).context(what)
    }

    /// The interface.
    pub(super) fn interface(&self) -> &str {
        &self.interface
    }

    /// For polling: readable when a frame waits.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Takes a burst of frames that wait, if there are any. What a link that is down says is no
    /// error: it may come up again.
    pub(super) fn receive(&mut self, mut each: impl FnMut(Arrived)) -> io::Result<usize> {
        let mut controls: [Control; BURST] = [[0; 8]; BURST];
        let mut lengths = [0; BURST];
        let count = match receive(self.fd.as_fd(), &mut self.room, &mut controls, &mut lengths) {
            Ok(count) => count,
            Err(error) if is_passing(&error) => return Ok(0),
            Err(error) => return Err(error),
        };
        let rooms = self.room.chunks_exact(FRAME_ROOM).zip(lengths).zip(&controls);
        for ((room, length), control) in rooms.take(count) {
            each(arrived(&room[..length.min(FRAME_ROOM)], control));
        }
        Ok(count)
    }

    /// Sends frames; returns how many the kernel took.
    pub(crate) fn send(&self, frames: &[Vec<u8>]) -> io::Result<usize> {
        let (mut at, mut taken) = (0, 0);
        while at < frames.len() {
            match send(self.fd.as_fd(), &frames[at..]) {
                Ok(count) => {
                    at += count;
                    taken += count;
                }
                // The first one could not be sent: too long, no buffer, link down.
                Err(error) if is_passing(&error) || is_refusal(&error) => at += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }
}

/// Whether an error says something about the moment, not about the socket.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAGAIN | libc::EINTR | libc::ENETDOWN | libc::ENOBUFS | libc::ENOMEM)
    )
}

/// Whether an error says something about the frame.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMSGSIZE | libc::EINVAL))
}

/// Puts a frame together from what the kernel gave: it takes a VLAN tag out and tells it aside.
fn arrived(bytes: &[u8], control: &Control) -> Arrived {
    let auxiliary = Auxiliary::read(control);
    let is_complete = auxiliary.is_none_or(|told| told.status & libc::TP_STATUS_CSUMNOTREADY == 0);
    let mut frame = Vec::with_capacity(bytes.len() + 4);
    match auxiliary.and_then(Auxiliary::tag) {
        Some(tag) if bytes.len() >= ADDRESSES => {
            let (addresses, rest) = bytes.split_at(ADDRESSES);
            frame.extend_from_slice(addresses);
            frame.extend_from_slice(&tag);
            frame.extend_from_slice(rest);
        }
        _ => frame.extend_from_slice(bytes),
    }
    Arrived { frame, is_complete }
}

/// What `struct tpacket_auxdata` tells that is of use.
#[derive(Clone, Copy, Debug)]
struct Auxiliary {
    status: u32,
    vlan_control: u16,
    vlan_protocol: u16,
}

impl Auxiliary {
    fn read(control: &Control) -> Option<Self> {
        // A message starts with `struct cmsghdr`: its length with this header, level, type.
        let bytes: Vec<u8> = control.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let (length, rest) = bytes.split_first_chunk::<{ size_of::<usize>() }>()?;
        let (level, rest) = rest.split_first_chunk()?;
        let (kind, body) = rest.split_first_chunk()?;
        let length = usize::from_ne_bytes(*length);
        let expected = size_of::<libc::cmsghdr>() + size_of::<libc::tpacket_auxdata>();
        let is_ours = length >= expected
            && i32::from_ne_bytes(*level) == libc::SOL_PACKET
            && i32::from_ne_bytes(*kind) == libc::PACKET_AUXDATA;
        // status, len, snaplen: 32 bits; mac, net, vlan_tci, vlan_tpid: 16 bits.
        let half = |at: usize| Some(u16::from_ne_bytes(*body.get(at..)?.first_chunk()?));
        is_ours.then_some(Self {
            status: u32::from_ne_bytes(*body.first_chunk()?),
            vlan_control: half(16)?,
            vlan_protocol: half(18)?,
        })
    }

    /// The octets of the VLAN tag that the kernel took out of the frame.
    fn tag(self) -> Option<[u8; 4]> {
        if self.status & libc::TP_STATUS_VLAN_VALID == 0 {
            return None;
        }
        let told = self.status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
        let protocol = if told { self.vlan_protocol } else { CUSTOMER_TAG };
        let ([a, b], [c, d]) = (protocol.to_be_bytes(), self.vlan_control.to_be_bytes());
        Some([a, b, c, d])
    }
}

fn set_packet_option(
    socket: BorrowedFd<'_>,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: `value` is an integer of the stated length that outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Binds a packet socket to all protocols of one interface.
fn bind(socket: BorrowedFd<'_>, interface: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: interface.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: `address` is an address of the stated length that outlives the call.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of_val(&address) as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Receives up to a burst of frames, each into its part of `room`; returns how many.
fn receive(
    socket: BorrowedFd<'_>,
    room: &mut [u8],
    controls: &mut [Control; BURST],
    lengths: &mut [usize; BURST],
) -> io::Result<usize> {
    // SAFETY: these are plain C structures for which all zero bytes are a value.
    let mut messages: [libc::mmsghdr; BURST] = unsafe { zeroed() };
    let mut parts = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BURST];
    let rooms = room.chunks_exact_mut(FRAME_ROOM);
    for (((message, part), room), control) in
        messages.iter_mut().zip(&mut parts).zip(rooms).zip(controls)
    {
        *part = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        message.msg_hdr.msg_iov = part;
        message.msg_hdr.msg_iovlen = 1;
        message.msg_hdr.msg_control = control.as_mut_ptr().cast();
        message.msg_hdr.msg_controllen = size_of::<Control>() as _;
    }
    // SAFETY: each message points to an iovec, and that to memory, and to control memory, of the
    // stated lengths; all of it is borrowed exclusively and outlives the call.
    let count = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            messages.as_mut_ptr(),
            BURST as libc::c_uint,
            libc::MSG_DONTWAIT as _,
            std::ptr::null_mut(),
        )
    };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    for (length, message) in lengths.iter_mut().zip(&messages) {
        *length = message.msg_len as usize;
    }
    Ok(count)
}

/// Sends up to a burst of frames; returns how many of them, from the first on. An error means that
/// the first could not be sent.
fn send(socket: BorrowedFd<'_>, frames: &[Vec<u8>]) -> io::Result<usize> {
    // SAFETY: these are plain C structures for which all zero bytes are a value.
    let mut messages: [libc::mmsghdr; BURST] = unsafe { zeroed() };
    let mut parts = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BURST];
    let frames = &frames[..frames.len().min(BURST)];
    for ((message, part), frame) in messages.iter_mut().zip(&mut parts).zip(frames) {
        *part = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
        message.msg_hdr.msg_iov = part;
        message.msg_hdr.msg_iovlen = 1;
    }
    // SAFETY: as many messages as there are frames point to an iovec each, and that to the frame,
    // which the kernel only reads; all of it outlives the call.
    let count = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            messages.as_mut_ptr(),
            frames.len() as libc::c_uint,
            libc::MSG_DONTWAIT as _,
        )
    };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(status: u32, tci: u16, tpid: u16) -> Control {
        let length = size_of::<libc::cmsghdr>() + size_of::<libc::tpacket_auxdata>();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(libc::SOL_PACKET.to_ne_bytes());
        bytes.extend(libc::PACKET_AUXDATA.to_ne_bytes());
        bytes.extend(status.to_ne_bytes());
        bytes.extend([0; 12]);
        bytes.extend(tci.to_ne_bytes());
        bytes.extend(tpid.to_ne_bytes());
        bytes.resize(size_of::<Control>(), 0);
        let mut control = [0; 8];
        for (word, bytes) in control.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        control
    }

    #[test]
    fn a_tag_that_the_kernel_took_out_goes_back_in() {
        let frame: Vec<u8> = (0..20).collect();
        let plain = arrived(&frame, &control(0, 77, 0x88a8));
        assert_eq!(plain, Arrived { frame: frame.clone(), is_complete: true });
        assert_eq!(arrived(&frame, &[0; 8]), plain, "no message");

        let tagged = |status| arrived(&frame, &control(status, 77, 0x88a8)).frame;
        let with = |tag: [u8; 4]| [&frame[..12], &tag, &frame[12..]].concat();
        let valid = libc::TP_STATUS_VLAN_VALID;
        assert_eq!(tagged(valid), with([0x81, 0x00, 0, 77]));
        assert_eq!(tagged(valid | libc::TP_STATUS_VLAN_TPID_VALID), with([0x88, 0xa8, 0, 77]));
    }

    #[test]
    fn a_checksum_that_was_left_to_a_nic_is_noticed() {
        assert!(!arrived(&[0; 20], &control(libc::TP_STATUS_CSUMNOTREADY, 0, 0)).is_complete);
    }
}
