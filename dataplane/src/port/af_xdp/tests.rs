//! Tests of AF_XDP ports on veth pairs, in network namespaces that live as long as a test's thread.
//!
//! They need root. Without it they say so and pass, unless `MPXDP_REQUIRE_PRIVILEGES=1` is set.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Instant;

use mpxdp_ebpf::{AttachMode, Steering};
use mpxdp_proto::segment::{Flags, Segment};
use mpxdp_proto::seq::SeqNum;
use mpxdp_proto::wire::{IpFields, LinkHeader, MacAddress, emit_frame, parse_frame};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::*;
use crate::port::tests::{conserve_frames, content, operations};
use crate::port::{receive_packets, send_packet};

/// Runs `test` on a thread in a network namespace of its own, which is gone when the thread is.
fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if !nix::unistd::geteuid().is_root() {
        let required =
            std::env::var_os("MPXDP_REQUIRE_PRIVILEGES").is_some_and(|value| value == "1");
        assert!(!required, "this test needs root");
        eprintln!("skipped: needs root to make a network namespace");
        return;
    }
    let thread = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().expect("ip from iproute2");
    assert!(status.success(), "ip {arguments}");
}

/// A veth pair named `near` and `far`.
fn veth(mtu: u32, queues: u32) {
    let queues = format!("numrxqueues {queues} numtxqueues {queues}");
    ip(&format!("link add near mtu {mtu} {queues} type veth peer name far mtu {mtu} {queues}"));
    for end in ["near", "far"] {
        ip(&format!("link set {end} up"));
    }
}

const PORT: u16 = 5001;

/// Has the XDP program at `interface` pass segments to PORT on to `port`.
fn steer(interface: &str, port: &AfXdpPort) -> Steering {
    let mut steering = Steering::attach(interface, AttachMode::Native).expect("native XDP on veth");
    let any = SocketAddr::from((address(), PORT));
    steering.listen(any).expect("a listener");
    steering.bind_queue(0, port.as_fd()).expect("a socket in the map");
    steering
}

const fn address() -> Ipv4Addr {
    Ipv4Addr::new(10, 1, 1, 1)
}

/// A segment to PORT that makes a packet of `len` bytes, Ethernet header included.
fn segment(number: u64, len: usize) -> Vec<u8> {
    let payload = content(number, len - 54);
    let link = LinkHeader::new(MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2]));
    let segment = Segment {
        seq: SeqNum(number as u32),
        flags: Flags::ACK,
        payload_len: payload.len() as u32,
        ..Segment::default()
    };
    let (from, to) = ((Ipv4Addr::new(10, 1, 1, 2), 40_000).into(), (address(), PORT).into());
    let mut packet = vec![0; len];
    let written = emit_frame(&mut packet, &link, from, to, IpFields::default(), &segment, &payload);
    assert_eq!(written, Ok(len));
    packet
}

/// Small rings, so that they wrap often.
fn options(interface: &str) -> AfXdpOptions {
    AfXdpOptions { receive_ring: 128, transmit_ring: 64, ..AfXdpOptions::new(interface, 0) }
}

/// Waits up to `patience` for a packet.
fn wait(port: &AfXdpPort, patience: Duration) -> bool {
    let timeout = PollTimeout::try_from(patience).expect("a short time");
    let mut fds = [PollFd::new(port.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, timeout).expect("poll") > 0
}

/// Flushes until everything sent has come back.
fn drain(port: &mut AfXdpPort) {
    let start = Instant::now();
    while port.frames().tx + port.frames().completion > 0 {
        port.flush().expect("flush");
        assert!(start.elapsed() < Duration::from_secs(5), "not sent: {:?}", port.frames());
    }
}

fn assert_at_rest(port: &mut AfXdpPort, options: &AfXdpOptions) {
    drain(port);
    let wanted = FrameAccount {
        fill: options.receive_ring as usize,
        free: options.transmit_ring as usize,
        total: (options.receive_ring + options.transmit_ring) as usize,
        ..FrameAccount::default()
    };
    assert_eq!(port.frames(), wanted);
    assert_eq!(port.statistics().bad_descriptors, 0);
}

/// Checks that a packet can wait in each receive buffer, so that the kernel really has them all.
fn assert_all_usable(sender: &mut AfXdpPort, receiver: &mut AfXdpPort) {
    let buffers = receiver.frames().fill as u64;
    for number in 0..buffers {
        while !send_packet(sender, &segment(number, 60)) {
            sender.flush().expect("flush");
        }
    }
    drain(sender);
    let mut received = 0;
    while received < buffers && wait(receiver, Duration::from_secs(1)) {
        received += receive_packets(receiver, 64, |_| {}) as u64;
    }
    assert_eq!(received, buffers, "a receive buffer is lost");
}

/// Sends packets of every interesting size over a veth pair in bursts, receives and compares them.
fn packets_cross(mtu: u32) {
    veth(mtu, 1);
    let (near, far) = (options("near"), options("far"));
    let mut sender = AfXdpPort::open(&near).expect("a sending port");
    let mut receiver = AfXdpPort::open(&far).expect("a receiving port");
    assert_eq!((sender.mode(), receiver.mode()), (PortMode::Copy, PortMode::Copy));
    let _steering = steer("far", &receiver);

    let longest = mtu as usize + 14;
    let capacity = far.receive_capacity() as usize;
    let mut lens = vec![54, 55, 60, 1000, longest - 1, longest];
    lens.extend((1..=17).flat_map(|n| [n * capacity - 1, n * capacity, n * capacity + 1]));
    lens.extend((1..=16).flat_map(|n| [n * 4096 - 1, n * 4096, n * 4096 + 1]));
    lens.retain(|&len| len <= longest);
    let rounds = 400 / lens.len() + 1;
    for round in 0..rounds as u64 {
        for (at, &len) in lens.iter().enumerate() {
            let packet = segment(round * 1000 + at as u64, len);
            while !send_packet(&mut sender, &packet) {
                sender.flush().expect("flush");
            }
            sender.flush().expect("flush");
            let mut received = Vec::new();
            while received.is_empty() {
                assert!(wait(&receiver, Duration::from_secs(5)), "{len} bytes did not arrive");
                receive_packets(&mut receiver, 64, |packet| received.push(packet.to_vec()));
            }
            assert!(received.len() == 1 && received[0] == packet, "{len} bytes, round {round}");
        }
    }
    assert_at_rest(&mut sender, &near);
    assert_at_rest(&mut receiver, &far);
    // Each poll has the kernel look for something to send; nothing else is to be counted.
    let PortStatistics { tx_ring_empty_descs, rx_kicks, .. } = receiver.statistics();
    let wanted = PortStatistics { tx_ring_empty_descs, rx_kicks, ..PortStatistics::default() };
    assert_eq!(receiver.statistics(), wanted);
}

#[test]
fn packets_cross_at_mtu_1500() {
    in_namespace(|| packets_cross(1500));
}

#[test]
fn packets_cross_at_mtu_9000() {
    in_namespace(|| packets_cross(9000));
}

#[test]
fn packets_cross_at_mtu_65535() {
    in_namespace(|| packets_cross(65535));
}

/// A receiver that does not receive loses packets, whole ones and counted, and no frame.
#[test]
fn an_overrun_loses_packets_and_no_frames() {
    in_namespace(|| {
        veth(9000, 1);
        let (near, far) = (options("near"), options("far"));
        let mut sender = AfXdpPort::open(&near).expect("a sending port");
        let mut receiver = AfXdpPort::open(&far).expect("a receiving port");
        let _steering = steer("far", &receiver);
        for burst in 0..3 {
            let mut sent = 0;
            while sent < 200 {
                sent += u64::from(send_packet(&mut sender, &segment(sent, 9014)));
                sender.flush().expect("flush");
            }
            drain(&mut sender);
            let mut received = Vec::new();
            while wait(&receiver, Duration::from_millis(200)) {
                receive_packets(&mut receiver, 64, |packet| {
                    let frame = parse_frame(packet, packet.len()).expect("a packet as sent");
                    assert!(packet == segment(frame.segment.seq.0.into(), 9014));
                    received.push(frame.segment.seq.0);
                });
            }
            // 128 buffers, three for a packet.
            assert!((42..200).contains(&received.len()), "{} received", received.len());
            assert!(received.is_sorted(), "burst {burst}: {received:?}");
        }
        let lost = receiver.statistics();
        assert!(
            lost.rx_ring_full + lost.rx_dropped + lost.rx_fill_ring_empty_descs > 0,
            "{lost:?}"
        );
        assert_at_rest(&mut sender, &near);
        assert_at_rest(&mut receiver, &far);
    });
}

#[test]
fn frames_are_conserved_under_random_operations() {
    in_namespace(|| {
        veth(9000, 1);
        let (near, far) = (options("near"), options("far"));
        let mut ports = (
            AfXdpPort::open(&near).expect("a near port"),
            AfXdpPort::open(&far).expect("a far port"),
        );
        let _steering = (steer("near", &ports.0), steer("far", &ports.1));
        let mut runner = TestRunner::deterministic();
        for _ in 0..30 {
            let operations =
                operations(9014 - 54, 100..400).new_tree(&mut runner).unwrap().current();
            let mut number = 0;
            ports = conserve_frames(ports, &operations, |len| {
                number += 1;
                segment(number, len.max(6) + 54)
            });
            for port in [&mut ports.0, &mut ports.1] {
                drain(port);
            }
            for port in [&mut ports.0, &mut ports.1] {
                while wait(port, Duration::from_millis(2)) {
                    receive_packets(port, 64, |_| {});
                }
            }
            assert_all_usable(&mut ports.0, &mut ports.1);
            assert_all_usable(&mut ports.1, &mut ports.0);
            assert_at_rest(&mut ports.0, &near);
            assert_at_rest(&mut ports.1, &far);
        }
    });
}

#[test]
fn busy_polling_receives_without_poll() {
    in_namespace(|| {
        veth(1500, 1);
        let far = AfXdpOptions { busy_poll: Some(BusyPoll::default()), ..options("far") };
        let mut sender = AfXdpPort::open(&options("near")).expect("a sending port");
        let mut receiver = AfXdpPort::open(&far).expect("a busy-polling port");
        let _steering = steer("far", &receiver);
        let start = Instant::now();
        for number in 0..100 {
            let packet = segment(number, 1514);
            assert_eq!(receive_packets(&mut receiver, 64, |_| {}), 0);
            assert!(send_packet(&mut sender, &packet));
            drain(&mut sender);
            let mut received = false;
            while !received {
                receive_packets(&mut receiver, 64, |bytes| received |= bytes == packet);
                assert!(start.elapsed() < Duration::from_secs(10), "packet {number} never came");
            }
        }
        assert!(receiver.statistics().rx_kicks >= 100, "an empty queue was not polled");
        assert_at_rest(&mut receiver, &far);
    });
}

#[test]
fn a_named_mode_that_does_not_work_is_an_error() {
    in_namespace(|| {
        veth(1500, 1);
        let mut options = AfXdpOptions { mode: BindMode::ZeroCopy, ..options("near") };
        let error = AfXdpPort::open(&options).expect_err("veth has no zero copy");
        assert!(matches!(error, AfXdpError::ModeUnsupported { .. }), "{error}");
        assert!(error.to_string().contains("near queue 0"), "{error}");
        for mode in [BindMode::Copy, BindMode::Auto] {
            options.mode = mode;
            let port = AfXdpPort::open(&options).expect("copy mode works everywhere");
            assert!(!port.is_zero_copy());
            assert_eq!(port.mode(), PortMode::Copy);
        }
    });
}

#[test]
fn a_queue_in_use_is_waited_for() {
    in_namespace(|| {
        veth(1500, 1);
        let near = options("near");
        let first = AfXdpPort::open(&near).expect("a port");
        let impatient = AfXdpOptions { patience: Duration::from_millis(50), ..near.clone() };
        let error = AfXdpPort::open(&impatient).expect_err("the queue is taken");
        assert!(matches!(error, AfXdpError::QueueInUse { queue: 0, .. }), "{error}");
        let holder = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(400));
            drop(first);
        });
        AfXdpPort::open(&near).expect("a port, after the first has gone");
        holder.join().expect("the holder");
        for _ in 0..20 {
            AfXdpPort::open(&near).expect("a port, right after another");
        }
    });
}

#[test]
fn errors_name_what_is_wrong() {
    in_namespace(|| {
        veth(1500, 2);
        let open = |options: &AfXdpOptions| AfXdpPort::open(options).expect_err("an error");
        let error = open(&options("absent"));
        assert!(matches!(&error, AfXdpError::NoInterface { interface } if interface == "absent"));
        let error = open(&AfXdpOptions { queue: 2, ..options("near") });
        assert!(matches!(error, AfXdpError::NoQueue { queue: 2, .. }), "{error}");
        AfXdpPort::open(&AfXdpOptions { queue: 1, ..options("near") }).expect("the second queue");
        for (option, wrong) in [
            ("receive_ring", AfXdpOptions { receive_ring: 100, ..options("near") }),
            ("transmit_ring", AfXdpOptions { transmit_ring: 0, ..options("near") }),
            ("frame_size", AfXdpOptions { frame_size: 8192, ..options("near") }),
        ] {
            let error = open(&wrong);
            assert!(error.to_string().starts_with(option), "{error}");
        }
    });
}

const CHILD: &str = "MPXDP_TEST_OPENS_WITHOUT_PRIVILEGE";

#[test]
fn a_missing_privilege_is_named() {
    if std::env::var_os(CHILD).is_some() {
        let error = AfXdpPort::open(&options("lo")).expect_err("no privilege");
        println!("error: {error}");
        return;
    }
    in_namespace(|| {
        let name = "port::af_xdp::tests::a_missing_privilege_is_named";
        let output = Command::new("/proc/self/exe")
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1")
            .uid(65534)
            .output()
            .expect("this test as another user");
        let output = String::from_utf8_lossy(&output.stdout);
        let error = output.lines().find_map(|line| line.split_once("error: ")).expect("an error").1;
        assert!(error.contains("CAP_NET_RAW") && error.contains("permission"), "{error}");
    });
}

#[test]
fn kernel_refusals_become_errors_that_say_what_to_do() {
    let failure = |action, code| {
        let error = io::Error::from_raw_os_error(code);
        AfXdpPort::failure(&options("eth0"), action, error).to_string()
    };
    let memory = failure("register packet memory", libc::ENOBUFS);
    // 192 buffers of 4096 bytes.
    assert!(memory.starts_with("eth0 queue 0: cannot lock 786432 bytes"), "{memory}");
    assert!(memory.contains("LimitMEMLOCK=infinity"), "{memory}");
    let other = failure("bind an AF_XDP socket", libc::ENODEV);
    assert!(other.starts_with("eth0 queue 0: cannot bind an AF_XDP socket: No such device"));
    let down =
        AfXdpPort::bind_failure(&options("eth0"), io::Error::from_raw_os_error(libc::ENETDOWN));
    assert_eq!(down.to_string(), "eth0 is down; bring it up with `ip link set eth0 up`");
}
