//! What brings packets to a receiver, measured without one.
//!
//! Both front ends run the program that steers packets for mpxdp, over packets that it recognises as a
//! listener's. With no socket in its table it drops them: [`FrontEnd::Drop`] is what the driver and
//! the program cost. With an AF_XDP socket, and a reader that gives every frame back without a look at
//! it, [`FrontEnd::Recycle`] is what mpxdp pays before its first instruction for a packet.
//!
//! The packets come from a packet socket: frames that are alike and made once, TCP segments as long as
//! the MTU. A TCP sender would stop when nobody answers, and a UDP one would be for the kernel, since
//! the program takes TCP only. They are handed over as a TCP sender does it, as many segments at once
//! as fit an IP packet, which the kernel takes apart: so they come in bursts of the same length, and
//! the processing of a burst costs as much. The segments' checksums are not right, which nobody here
//! looks at.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use mpxdp::port::{AfXdpOptions, AfXdpPort, Port};
use mpxdp_cli::say;
use mpxdp_ebpf::{AttachMode, Steering};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::bench::{Bench, END, Receiving};
use super::place::Place;
use crate::error::{Context, Error, Result};
use crate::interrupt::Interrupt;
use crate::lab::{Running, Side};
use crate::measure::cpu::{Cost, covers};
use crate::relay::PacketSocket;

/// Headers of the segments that are sent: IPv4 and TCP without options.
const HEADERS: u32 = 20 + 20;

/// How often a front end is watched until CPU time and packets were counted over the same time.
const ATTEMPTS: usize = 5;

/// Unsegmented frames for a system call.
const BURST: usize = 8;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontEnd {
    /// Driver and program, which drops everything.
    Drop,
    /// Driver, program, AF_XDP socket and a reader that only gives frames back.
    Recycle,
}

/// What one measurement gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FrontEndRound {
    /// Packets that came through, a second.
    pub packets_per_second: f64,
    /// CPU nanoseconds of the receiving side for a packet.
    pub nanoseconds_per_packet: f64,
    /// Bytes of payload of a packet.
    pub payload: u32,
}

impl FrontEnd {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Drop, Self::Recycle];

    /// Its name in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drop => "xdp-drop",
            Self::Recycle => "xdp-recycle",
        }
    }
}

impl Bench<'_> {
    /// Measures a front end on the first link of the lab, its reader where the place has the worker.
    ///
    /// # Errors
    ///
    /// If there is no lab, something could not be set up, or nothing came through.
    pub fn front_end(
        &mut self,
        front_end: FrontEnd,
        place: &Place,
        time: Duration,
    ) -> Result<FrontEndRound> {
        /// Until everything runs at its pace.
        const WARMUP: Duration = Duration::from_millis(200);
        self.interrupt.check()?;
        let napi = self.place_processing(place)?;
        let lab = self.site.lab().ok_or_else(|| Error::Failed("there is no lab".into()))?;
        let interfaces = self.site.interfaces();
        let (sender, receiver) = (lab.interface(Side::Sender, 0), lab.interface(Side::Receiver, 0));
        let address = ["cat", &format!("/sys/class/net/{receiver}/address")].map(str::to_owned);
        let to = lab.run(Side::Receiver, &address.each_ref().map(String::as_str))?;
        let at = self.site.listen().to_string();
        let mut command = lab.command(Side::Receiver, &self.programs.bench);
        command.args(["recycle", "--nic", &receiver, "--listen", &at]);
        if front_end == FrontEnd::Drop {
            command.arg("--drop");
        }
        let cpu = place.workers.as_slice().first().copied().unwrap_or(place.reader);
        let running = self.started(front_end.name(), command, &[cpu])?;
        let mut command = lab.command(Side::Sender, &self.programs.bench);
        command.args(["blast", "--nic", &sender, "--to", to.trim(), "--address", &at]);
        command.args(["--mtu", &lab.spec().mtu.to_string()]);
        let blasting = Running::start("blast", &mut command, &[place.sender])?;
        thread::sleep(WARMUP);
        let receiving = Receiving { place, pid: running.pid(), napi: &napi, with_sender: true };
        let mut watched = self.watch(&receiving, &interfaces, time)?;
        for _ in 1..ATTEMPTS {
            if !watched.is_valid() {
                watched = self.watch(&receiving, &interfaces, time)?;
            }
        }
        drop(blasting);
        running.signal(nix::sys::signal::Signal::SIGTERM)?;
        running.wait(END, self.interrupt)?.success()?;
        let Watched { packets, seconds, ref cost } = watched;
        if packets == 0.0 {
            return Err(Error::Failed(format!("{}: no packet came", front_end.name())));
        }
        if !watched.is_valid() {
            return Err(Error::Failed(format!(
                "{}: the machine is too busy: packets were counted for {seconds:.3} s, CPU time for \
                 {:.3} s, {ATTEMPTS} times",
                front_end.name(),
                cost.wall
            )));
        }
        Ok(FrontEndRound {
            packets_per_second: packets / seconds,
            nanoseconds_per_packet: cost.cores() * seconds * 1e9 / packets,
            payload: lab.spec().mtu - HEADERS,
        })
    }

    /// Counts packets and CPU time for so long.
    fn watch(
        &self,
        receiving: &Receiving<'_>,
        interfaces: &[String],
        time: Duration,
    ) -> Result<Watched> {
        let started = Instant::now();
        let (before, from) = (self.counters()?, receiving.now()?);
        while started.elapsed() < time {
            self.interrupt.check()?;
            thread::sleep(Duration::from_millis(5).min(time));
        }
        let (to, after) = (receiving.now()?, self.counters()?);
        Ok(Watched {
            packets: before.packets_until(&after, interfaces) as f64,
            seconds: started.elapsed().as_secs_f64(),
            cost: from.cpu.cost_until(&to.cpu),
        })
    }
}

/// What was counted in some time.
struct Watched {
    packets: f64,
    seconds: f64,
    cost: Cost,
}

impl Watched {
    /// Whether the CPU time is that of the packets.
    fn is_valid(&self) -> bool {
        self.cost.seconds.total() > 0.0 && covers(self.cost.wall, self.seconds)
    }
}

/// How to take packets and do nothing with them.
#[derive(Clone, Debug)]
pub struct RecycleOptions {
    /// The interface; its queue 0 is used.
    pub nic: String,
    /// TCP packets to there are taken.
    pub listen: SocketAddr,
    /// Have the program drop them, instead of taking them.
    pub drop: bool,
}

/// Takes packets and gives their frames back at once, until a signal comes. Says `listening on
/// ADDRESS` on standard error when it does.
///
/// # Errors
///
/// If the interface cannot be used.
pub fn recycle(options: &RecycleOptions, interrupt: &Interrupt) -> Result<()> {
    /// How long a wait for packets may be.
    const WAIT: u16 = 20;
    let RecycleOptions { nic, listen, drop } = options;
    let failed = |error: &dyn std::fmt::Display| Error::failed(nic, error);
    let mut steering = Steering::attach(nic, AttachMode::Native).map_err(|e| failed(&e))?;
    steering.set_local_addresses(&[listen.ip()]).map_err(|e| failed(&e))?;
    let mut port = if *drop {
        None
    } else {
        let port = AfXdpPort::open(&AfXdpOptions::new(nic.clone(), 0)).map_err(|e| failed(&e))?;
        let socket = port.poll_fd().ok_or_else(|| failed(&"the socket has no descriptor"))?;
        steering.bind_queue(0, socket.as_fd()).map_err(|e| failed(&e))?;
        Some(port)
    };
    steering.listen(*listen).map_err(|e| failed(&e))?;
    say::line(format_args!("listening on {listen}"));
    let mut frames = Vec::new();
    while !interrupt.is_set() {
        let Some(port) = &mut port else {
            thread::sleep(Duration::from_millis(WAIT.into()));
            continue;
        };
        if port.receive(64, &mut frames) > 0 {
            port.recycle(frames.drain(..));
            continue;
        }
        port.flush().context(|| nic.clone())?;
        if let Some(socket) = port.poll_fd() {
            // That a signal interrupts it is what the loop looks for.
            let _ = poll(&mut [PollFd::new(socket, PollFlags::POLLIN)], PollTimeout::from(WAIT));
        }
    }
    Ok(())
}

/// Sends segments as long as `mtu` to an address of the interface whose MAC address is `to`, as fast
/// as it goes, until a signal comes.
///
/// # Errors
///
/// If the interface cannot be used.
pub fn blast(
    nic: &str,
    to: [u8; 6],
    address: SocketAddr,
    mtu: u32,
    interrupt: &Interrupt,
) -> Result<()> {
    let frames = vec![unsegmented(to, address, mtu)?; BURST];
    let socket = PacketSocket::open(nic)?;
    socket.send_unsegmented()?;
    while !interrupt.is_set() {
        socket.send(&frames).context(|| nic.to_owned())?;
    }
    Ok(())
}

/// As many TCP segments as fit an IP packet, in one Ethernet frame behind what tells the kernel to take
/// them apart (`struct virtio_net_hdr`). Each is as long as the MTU allows, and comes from the first
/// address of the network that `to` is in.
fn unsegmented(mac: [u8; 6], to: SocketAddr, mtu: u32) -> Result<Vec<u8>> {
    /// VIRTIO_NET_HDR_F_NEEDS_CSUM: the kernel computes checksums, as it must to take segments apart.
    const NEEDS_CHECKSUM: u8 = 1;
    /// VIRTIO_NET_HDR_GSO_TCPV4.
    const TCP_V4: u8 = 1;
    /// Octets before the TCP header.
    const TCP_AT: u16 = 14 + 20;
    let SocketAddr::V4(to) = to else {
        return Err(Error::Usage(format!("{to}: an address of IPv4 is needed")));
    };
    let payload = mtu.checked_sub(HEADERS).filter(|&payload| payload > 0);
    let payload = payload.and_then(|payload| u16::try_from(payload).ok());
    let Some(payload) = payload.filter(|_| mtu <= u32::from(u16::MAX)) else {
        return Err(Error::Usage(format!("--mtu {mtu}: from 41 to 65535")));
    };
    let headers = HEADERS as u16;
    let segments = (u16::MAX - headers) / payload;
    let length = headers + segments * payload;
    let from = Ipv4Addr::from((u32::from(*to.ip()) & 0xffff_ff00) | 1);
    let mut frame = Vec::with_capacity(10 + 14 + usize::from(length));
    // One segment needs no taking apart.
    frame.extend(if segments > 1 { [NEEDS_CHECKSUM, TCP_V4] } else { [0, 0] });
    // Lengths of the headers and of a segment's payload; where the checksummed part and, in that, the
    // checksum are. These numbers are in the byte order of the machine.
    let hints = if segments > 1 { [TCP_AT + 20, payload, TCP_AT, 16] } else { [0; 4] };
    frame.extend(hints.iter().flat_map(|hint| hint.to_ne_bytes()));
    frame.extend(mac);
    // A locally administered address: nobody answers to it.
    frame.extend([2, 0, 0, 0, 0, 1, 8, 0]);
    let ip = frame.len();
    frame.extend([0x45, 0]);
    frame.extend(length.to_be_bytes());
    // Not to be fragmented, 64 hops, TCP; the checksum follows.
    frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    frame.extend(from.octets());
    frame.extend(to.ip().octets());
    let checksum = checksum(&frame[ip..]);
    frame[ip + 10..ip + 12].copy_from_slice(&checksum.to_be_bytes());
    frame.extend(40_000_u16.to_be_bytes());
    frame.extend(to.port().to_be_bytes());
    frame.extend([0, 0, 0, 1, 0, 0, 0, 1]);
    // Twenty bytes of header, ACK, a window; no checksum.
    frame.extend([0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    frame.resize(ip + usize::from(length), 0x5a);
    Ok(frame)
}

/// The Internet checksum of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_segments_go_together_as_fit_an_ip_packet() {
        let to = "10.77.0.2:5000".parse().expect("an address");
        for (mtu, segments) in [(1500, 44), (9000, 7), (40_000, 1), (65535, 1)] {
            let frame = unsegmented([1, 2, 3, 4, 5, 6], to, mtu).expect("a frame");
            let (hints, frame) = frame.split_at(10);
            let length = 40 + segments * (mtu - 40);
            assert_eq!(frame.len(), 14 + length as usize);
            assert_eq!(frame[16..18], u16::try_from(length).expect("it fits").to_be_bytes());
            assert_eq!(checksum(&frame[14..34]), 0, "summed with itself it is nothing");
            assert_eq!(frame[26..34], [10, 77, 0, 1, 10, 77, 0, 2]);
            let each = u16::from_ne_bytes([hints[4], hints[5]]);
            let expected = if segments > 1 { mtu - 40 } else { 0 };
            assert_eq!(u32::from(each), expected, "the payload of a segment, or none");
        }
        assert!(unsegmented([0; 6], to, 40).is_err());
        assert!(unsegmented([0; 6], to, 65536).is_err());
        assert!(unsegmented([0; 6], "[::1]:1".parse().expect("an address"), 1500).is_err());
    }
}
