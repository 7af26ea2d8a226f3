//! Two network namespaces joined by a veth pair: a kernel client in one, `mpxdp` in the other.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{SockaddrIn, connect};
use nix::unistd::Pid;

/// The receiver's end of the link, and its address.
pub(crate) const NIC: &str = "rcv0";
pub(crate) const RECEIVER: &str = "10.99.0.2";
const SENDER: &str = "10.99.0.1";

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Distinguishes the labs of one process.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// The two namespaces; they go when it is dropped.
pub(crate) struct Lab {
    sender: String,
    receiver: String,
}

impl Lab {
    /// Builds one, or says why not: without the privilege there is none, which is an error only
    /// where privileges are required.
    pub(crate) fn new() -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            let required = std::env::var_os("MPXDP_REQUIRE_PRIVILEGES").is_some_and(|v| v == "1");
            assert!(!required, "this test needs root, and MPXDP_REQUIRE_PRIVILEGES is 1");
            eprintln!("skipped: network namespaces need root");
            return None;
        }
        let name =
            format!("mpxdp-g-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let lab = Self { sender: format!("{name}-s"), receiver: format!("{name}-r") };
        for namespace in [&lab.sender, &lab.receiver] {
            ip(&["netns", "add", namespace]);
            ip(&["-n", namespace, "link", "set", "lo", "up"]);
        }
        ip(&[
            "-n",
            &lab.sender,
            "link",
            "add",
            "snd0",
            "numtxqueues",
            "2",
            "numrxqueues",
            "2",
            "type",
            "veth",
            "peer",
            "name",
            NIC,
            "netns",
            &lab.receiver,
            "numtxqueues",
            "2",
            "numrxqueues",
            "2",
        ]);
        ip(&["-n", &lab.sender, "addr", "add", &format!("{SENDER}/24"), "dev", "snd0"]);
        ip(&["-n", &lab.receiver, "addr", "add", &format!("{RECEIVER}/24"), "dev", NIC]);
        ip(&["-n", &lab.sender, "link", "set", "snd0", "up"]);
        ip(&["-n", &lab.receiver, "link", "set", NIC, "up"]);
        // Otherwise frames arrive with checksums that are not filled in.
        lab.ethtool(&["-K", "snd0", "tx", "off"]);
        Some(lab)
    }

    /// Runs `ethtool` in the sender's namespace.
    pub(crate) fn ethtool(&self, arguments: &[&str]) {
        run(Command::new("ip").args(["netns", "exec", &self.sender, "ethtool"]).args(arguments));
    }

    /// Runs `ip` in the receiver's namespace.
    pub(crate) fn ip(&self, arguments: &[&str]) {
        ip(&[&["-n", &self.receiver][..], arguments].concat());
    }

    /// A command that runs `mpxdp` with these arguments in the receiver's namespace.
    pub(crate) fn mpxdp(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.receiver, env!("CARGO_BIN_EXE_mpxdp")]);
        command.args(arguments);
        command
    }

    /// `mpxdp recv` at this port of the lab's NIC, once it listens.
    pub(crate) fn recv(&self, port: u16, arguments: &[&str]) -> Running {
        let listen = format!("{RECEIVER}:{port}");
        let given = ["recv", "--nic", NIC, "--listen", &listen];
        self.start(&[&given[..], arguments].concat())
    }

    /// `mpxdp` with these arguments, once it listens.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        Running::start(self.mpxdp(arguments))
    }

    /// Does something in a namespace, on a thread of its own: the receiver's, or the sender's.
    pub(crate) fn inside<T: Send>(&self, receiver: bool, what: impl FnOnce() -> T + Send) -> T {
        let name = if receiver { &self.receiver } else { &self.sender };
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let file =
                    File::open(format!("/run/netns/{name}")).expect("the namespace is there");
                setns(file, CloneFlags::CLONE_NEWNET).expect("root may enter a namespace");
                what()
            });
            inside.join().expect("what runs inside does not panic")
        })
    }

    /// An MPTCP connection of the kernel's to this port of the receiver's.
    pub(crate) fn connect(&self, port: u16) -> TcpStream {
        self.inside(false, || {
            // SAFETY: socket takes no pointers, and what it returns is checked below.
            let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP) };
            assert!(fd >= 0, "the kernel has MPTCP: {}", std::io::Error::last_os_error());
            // SAFETY: the descriptor is fresh, open and nobody else's.
            let socket = TcpStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
            socket.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
            socket.set_write_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
            let SocketAddr::V4(to) = format!("{RECEIVER}:{port}").parse().expect("an address")
            else {
                unreachable!("it is an IPv4 address");
            };
            connect(socket.as_raw_fd(), &SockaddrIn::from(to)).expect("the receiver answers");
            socket
        })
    }

    /// Whether an XDP program is attached to the receiver's NIC.
    pub(crate) fn has_program(&self) -> bool {
        let output = Command::new("ip")
            .args(["-n", &self.receiver, "link", "show", "dev", NIC])
            .output()
            .expect("ip runs");
        String::from_utf8_lossy(&output.stdout).contains("prog/xdp")
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for namespace in [&self.sender, &self.receiver] {
            let _ =
                Command::new("ip").args(["netns", "del", namespace]).stderr(Stdio::null()).status();
        }
    }
}

fn ip(arguments: &[&str]) {
    run(Command::new("ip").args(arguments));
}

fn run(command: &mut Command) {
    let output = command.output().expect("iproute2 and ethtool are installed");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
}

/// A process of `mpxdp` that runs. It is killed if it still does when this is dropped.
pub(crate) struct Running {
    child: Child,
    stderr: mpsc::Receiver<String>,
    /// The lines of stderr so far.
    pub(crate) lines: Vec<String>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("ip runs");
        let stderr = child.stderr.take().expect("stderr is a pipe");
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut running = Self { child, stderr: receiver, lines: Vec::new() };
        running.wait_for("listening on");
        running
    }

    /// Waits for a line of stderr with these words.
    pub(crate) fn wait_for(&mut self, words: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.stderr.recv_timeout(left) {
                Ok(line) => {
                    let found = line.contains(words);
                    self.lines.push(line);
                    if found {
                        return;
                    }
                }
                Err(e) => panic!("no \"{words}\" ({e}) in {:#?}", self.lines),
            }
        }
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        // `ip netns exec` does not fork: the process is mpxdp.
        let pid = i32::try_from(self.child.id()).expect("process ids are positive");
        kill(Pid::from_raw(pid), signal).expect("the process is there");
    }

    /// Whether it still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end: how it ended, and what it wrote to stdout.
    pub(crate) fn end(&mut self) -> (ExitStatus, Vec<u8>) {
        let mut stdout = self.child.stdout.take().expect("it ends once");
        let reader = thread::spawn(move || {
            let mut bytes = Vec::new();
            stdout.read_to_end(&mut bytes).expect("a pipe reads");
            bytes
        });
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("the child is ours") {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end: {:#?}", self.lines);
            thread::sleep(Duration::from_millis(5));
        };
        let stdout = reader.join().expect("reading does not panic");
        self.lines.extend(self.stderr.iter());
        (status, stdout)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
