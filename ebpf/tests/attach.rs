//! The programs on interfaces of network namespaces that the tests make and that go with them.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

mod common;

use std::env;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use mpxdp_ebpf::{
    AttachError, AttachMode, AttachedMode, Front, Hook, Steering, Verdict, attached_programs,
};

use crate::common::{in_own_namespace, ip, privileged};

fn make_veth() {
    ip("link add mpxdp-a type veth peer name mpxdp-b");
    ip("link set mpxdp-a up");
    ip("link set mpxdp-b up");
}

/// Tests beside this one start processes, and each has a copy of our descriptors for a moment.
fn wait_until_free(interface: &str) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while !attached_programs(interface).unwrap().is_empty() {
        assert!(Instant::now() < deadline, "{interface}: still occupied after 5 s");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_driver_with_xdp_gets_the_program_and_loses_it_again() {
    if !privileged("a_driver_with_xdp_gets_the_program_and_loses_it_again") {
        return;
    }
    in_own_namespace(|| {
        make_veth();
        // Above one page only a program that knows of several buffers is taken.
        ip("link set mpxdp-a mtu 9000");
        ip("link set mpxdp-b mtu 9000");
        for mode in [AttachMode::Native, AttachMode::Auto] {
            let steering = Steering::attach("mpxdp-a", mode).unwrap();
            assert_eq!(*steering.mode(), AttachedMode::Native);
            assert_eq!(steering.interface(), "mpxdp-a");
            let attached = attached_programs("mpxdp-a").unwrap();
            assert_eq!(attached.len(), 1);
            assert_eq!(attached[0].id, steering.program_id());
            assert_eq!(attached[0].name, "mpxdp_steer");
            assert_eq!(attached[0].hook, Hook::Native);
            drop(steering);
            wait_until_free("mpxdp-a");
        }
    });
}

#[test]
fn generic_mode_is_taken_when_asked_for() {
    if !privileged("generic_mode_is_taken_when_asked_for") {
        return;
    }
    in_own_namespace(|| {
        make_veth();
        let steering = Steering::attach("mpxdp-a", AttachMode::Generic).unwrap();
        assert_eq!(*steering.mode(), AttachedMode::Generic { native_refused: None });
        assert_eq!(attached_programs("mpxdp-a").unwrap()[0].hook, Hook::Generic);
    });
}

#[test]
fn automatic_mode_falls_back_and_keeps_the_reason() {
    if !privileged("automatic_mode_falls_back_and_keeps_the_reason") {
        return;
    }
    in_own_namespace(|| {
        // The loopback device has no XDP of its own.
        let error = Steering::attach("lo", AttachMode::Native).unwrap_err();
        assert!(matches!(error, AttachError::NativeRefused { .. }), "{error}");
        assert_eq!(attached_programs("lo").unwrap(), []);

        let steering = Steering::attach("lo", AttachMode::Auto).unwrap();
        assert_eq!(steering.mode().name(), "generic");
        let reason = steering.mode().native_refused().expect("a reason");
        assert!(reason.contains("not supported"), "{reason}");
        assert_eq!(attached_programs("lo").unwrap()[0].hook, Hook::Generic);
    });
}

#[test]
fn an_occupied_interface_is_refused_by_the_name_and_id_of_what_is_there() {
    if !privileged("an_occupied_interface_is_refused_by_the_name_and_id_of_what_is_there") {
        return;
    }
    in_own_namespace(|| {
        make_veth();
        for (theirs, hook) in
            [(AttachMode::Native, Hook::Native), (AttachMode::Generic, Hook::Generic)]
        {
            let front = Front::attach_pass("mpxdp-a", theirs).unwrap();
            for ours in [AttachMode::Native, AttachMode::Generic, AttachMode::Auto] {
                let error = Steering::attach("mpxdp-a", ours).unwrap_err();
                let text = error.to_string();
                match error {
                    AttachError::Occupied { interface, program_name, program_id, hook: found } => {
                        assert_eq!(interface, "mpxdp-a");
                        assert_eq!(program_name, "mpxdp_front");
                        assert_eq!(program_id, front.program_id());
                        assert_eq!(found, hook);
                    }
                    other => panic!("{other:?}"),
                }
                assert!(text.contains("mpxdp_front"), "{text}");
                assert!(text.contains(&format!("id {}", front.program_id())), "{text}");
                assert!(!text.contains('\n'), "{text}");
            }
            // What was there is there still.
            let attached = attached_programs("mpxdp-a").unwrap();
            assert_eq!(attached.len(), 1);
            assert_eq!(attached[0].id, front.program_id());
            drop(front);
            wait_until_free("mpxdp-a");
            Steering::attach("mpxdp-a", AttachMode::Auto).unwrap();
            wait_until_free("mpxdp-a");
        }
    });
}

#[test]
fn an_unknown_interface_is_named() {
    if !privileged("an_unknown_interface_is_named") {
        return;
    }
    in_own_namespace(|| {
        for name in ["mpxdp-none", "", "a-name-longer-than-any-interface", "nul\0inside"] {
            let error = Steering::attach(name, AttachMode::Auto).unwrap_err();
            assert!(matches!(error, AttachError::UnknownInterface { .. }), "{name:?}: {error}");
            assert!(attached_programs(name).is_err(), "{name:?}");
        }
    });
}

#[test]
fn steering_moves_between_threads() {
    if !privileged("steering_moves_between_threads") {
        return;
    }
    in_own_namespace(|| {
        make_veth();
        let mut steering = Steering::attach("mpxdp-a", AttachMode::Auto).unwrap();
        let steering = thread::spawn(move || {
            steering.listen("192.0.2.1:5001".parse().unwrap()).unwrap();
            steering
        })
        .join()
        .unwrap();
        assert_eq!(steering.counters().unwrap().get(Verdict::Listener), 0);
    });
}

/// Traffic of the kernel's own: what is not ours must work as if we were not there, and what is
/// ours must never reach it.
#[test]
fn the_kernel_keeps_what_is_not_ours_and_never_sees_what_is() {
    if !privileged("the_kernel_keeps_what_is_not_ours_and_never_sees_what_is") {
        return;
    }
    in_own_namespace(|| {
        make_veth();
        let peer = Peer::start("mpxdp-b");
        ip("address add 192.0.2.1/24 dev mpxdp-a");
        let ours: SocketAddr = "192.0.2.1:5001".parse().unwrap();
        let kernels: SocketAddr = "192.0.2.1:5002".parse().unwrap();
        let listener = std::net::TcpListener::bind(kernels).unwrap();

        let mut steering = Steering::attach("mpxdp-a", AttachMode::Native).unwrap();
        assert_eq!(peer.connect(ours), Err(ErrorKind::ConnectionRefused), "nobody listens yet");
        assert_eq!(peer.connect(kernels), Ok(()));
        listener.accept().unwrap();

        // No socket on the queue: the SYN is dropped, and the kernel does not refuse it.
        steering.listen(ours).unwrap();
        assert_eq!(peer.connect(ours), Err(ErrorKind::TimedOut));
        assert_eq!(peer.connect(kernels), Ok(()));
        let counters = steering.counters().unwrap();
        assert!(counters.get(Verdict::NoSocket) >= 1, "{counters:?}");
        assert!(counters.get(Verdict::NoMatch) >= 2, "{counters:?}");

        steering.unlisten(ours).unwrap();
        assert_eq!(peer.connect(ours), Err(ErrorKind::ConnectionRefused));
        drop(steering);
        assert_eq!(peer.connect(kernels), Ok(()));
    });
}

/// A thread in a network namespace of its own, at the other end of the veth pair.
struct Peer {
    requests: mpsc::Sender<SocketAddr>,
    answers: mpsc::Receiver<Result<(), ErrorKind>>,
}

impl Peer {
    fn start(interface: &'static str) -> Self {
        let (requests, incoming) = mpsc::channel::<SocketAddr>();
        let (outgoing, answers) = mpsc::channel();
        let (ready, thread_id) = mpsc::channel();
        let (moved, in_place) = mpsc::channel::<()>();
        thread::spawn(move || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            ready.send(nix::unistd::gettid()).unwrap();
            in_place.recv().unwrap();
            ip(&format!("address add 192.0.2.2/24 dev {interface}"));
            ip(&format!("link set {interface} up"));
            ready.send(nix::unistd::gettid()).unwrap();
            for address in incoming {
                let outcome = TcpStream::connect_timeout(&address, Duration::from_millis(1500));
                outgoing.send(outcome.map(drop).map_err(|error| error.kind())).unwrap();
            }
        });
        let id = thread_id.recv().unwrap();
        ip(&format!("link set {interface} netns {id}"));
        moved.send(()).unwrap();
        thread_id.recv().unwrap();
        Self { requests, answers }
    }

    fn connect(&self, to: SocketAddr) -> Result<(), ErrorKind> {
        self.requests.send(to).unwrap();
        self.answers.recv().unwrap()
    }
}

/// The interface that a copy of this test's process is to attach to and hold.
const HOLD: &str = "MPXDP_TEST_HOLD_INTERFACE";

#[test]
fn a_killed_process_leaves_nothing_attached() {
    if let Ok(interface) = env::var(HOLD) {
        let _steering = Steering::attach(&interface, AttachMode::Auto).unwrap();
        println!("attached");
        std::io::stdout().flush().unwrap();
        // Until killed, or until the parent is gone.
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        return;
    }
    if !privileged("a_killed_process_leaves_nothing_attached") {
        return;
    }
    in_own_namespace(|| {
        make_veth();
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "a_killed_process_leaves_nothing_attached", "--nocapture"])
            .env(HOLD, "mpxdp-a")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let attached = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok)
            .any(|line| line.ends_with("attached"));
        let held = attached_programs("mpxdp-a");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(attached, "the child never attached");
        assert_eq!(held.unwrap()[0].name, "mpxdp_steer");

        wait_until_free("mpxdp-a");
        Steering::attach("mpxdp-a", AttachMode::Native).unwrap();
    });
}
