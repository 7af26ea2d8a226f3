//! What the tests share: labs, the receiver under test, the kernel's sender.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use mpxdp_bench::Interrupt;
use mpxdp_bench::lab::{self, Builder, Ended, Family, Lab, Running, Side};
use mpxdp_bench::traffic::pattern::Pattern;
use mpxdp_bench::traffic::sender;
use nix::sys::signal::Signal;
use serde::Deserialize;
use tempfile::TempDir;

/// The port that `mpxdp recv` listens on.
pub(crate) const PORT: u16 = 5000;

/// Longer than anything takes on a slow and busy machine; what takes so long hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// The same for transfers of 1 GiB, see [`full`]: over bad links they take some five minutes.
const FULL_LIMIT: Duration = Duration::from_secs(1800);

/// Whether transfers that can be long are to be, with `MPXDP_FULL_TRANSFERS=1`.
pub(crate) fn full() -> bool {
    std::env::var_os("MPXDP_FULL_TRANSFERS").is_some_and(|value| value == "1")
}

/// The binary that these tests belong to.
pub(crate) const BENCH: &str = env!("CARGO_BIN_EXE_mpxdp-bench");

/// Whether labs can be made; if not, says why. With `MPXDP_REQUIRE_PRIVILEGES=1` that is a failure.
pub(crate) fn privileged() -> bool {
    let lacking =
        lab::privilege().map_err(|error| error.to_string()).and_then(
            |()| match fs::read_to_string("/proc/sys/net/mptcp/enabled") {
                Ok(text) if text.trim() == "1" => Ok(()),
                _ => Err("this kernel has no MPTCP".to_owned()),
            },
        );
    let Err(why) = lacking else { return true };
    let required = std::env::var_os("MPXDP_REQUIRE_PRIVILEGES").is_some_and(|value| value == "1");
    assert!(!required, "cannot be skipped (MPXDP_REQUIRE_PRIVILEGES=1): {why}");
    println!("skipped: {why}");
    false
}

/// A name for a lab that no other test has, nor another run of the tests.
pub(crate) fn lab_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("mpxdp-t{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A network, a folder, and the programs.
#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) lab: Lab,
    folder: TempDir,
}

/// `mpxdp recv` while it runs.
#[derive(Debug)]
pub(crate) struct Recv {
    pub(crate) running: Running,
    report: PathBuf,
}

/// How `mpxdp recv` ended.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) ended: Ended,
    pub(crate) report: Report,
}

/// What these tests need of the report.
#[derive(Debug, Deserialize)]
pub(crate) struct Report {
    pub(crate) ended: String,
    pub(crate) connections: Vec<Connection>,
    pub(crate) nics: Vec<Nic>,
    pub(crate) ports: Vec<Port>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) memory: Memory,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Memory {
    pub(crate) limit: u64,
    pub(crate) in_use: u64,
    pub(crate) spare: u64,
    pub(crate) peak: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Connection {
    pub(crate) local: SocketAddr,
    pub(crate) bytes: u64,
    pub(crate) mptcp: bool,
    pub(crate) fallback: Option<String>,
    pub(crate) closed: String,
    pub(crate) error: Option<String>,
    pub(crate) output: Option<PathBuf>,
    pub(crate) subflows: Vec<Subflow>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Subflow {
    pub(crate) local: SocketAddr,
    pub(crate) nic: String,
    pub(crate) queue: u32,
    pub(crate) worker: usize,
    pub(crate) live: bool,
    pub(crate) bytes: u64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Nic {
    pub(crate) name: String,
    pub(crate) mode: String,
    pub(crate) zero_copy: bool,
    pub(crate) queues: Vec<u32>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Port {
    pub(crate) nic: String,
    pub(crate) queue: u32,
    pub(crate) worker: usize,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Worker {
    pub(crate) packets: u64,
    pub(crate) drops: BTreeMap<String, u64>,
    pub(crate) tables: Tables,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Tables {
    pub(crate) half_open: usize,
    pub(crate) subflows: usize,
    pub(crate) time_wait: usize,
    pub(crate) frames_held: usize,
}

impl Rig {
    /// A rig in a lab; none if privilege is lacking.
    pub(crate) fn new(builder: Builder) -> Option<Self> {
        privileged().then(|| Self {
            lab: builder.name(lab_name()).relay_program(BENCH).up().expect("the lab comes up"),
            folder: tempfile::tempdir().expect("a folder"),
        })
    }

    /// A path in the rig's own folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where the receiver listens.
    pub(crate) fn at(&self, family: Family) -> SocketAddr {
        (self.address(family), PORT).into()
    }

    /// The receiver's address.
    pub(crate) fn address(&self, family: Family) -> IpAddr {
        self.lab.address(Side::Receiver, 0, family)
    }

    /// `mpxdp` with some arguments, in the receiver's namespace.
    pub(crate) fn mpxdp(&self, arguments: &[&str]) -> Command {
        let mut command = self.lab.command(Side::Receiver, mpxdp());
        command.args(arguments);
        command
    }

    /// Starts `mpxdp recv` and waits until it listens.
    pub(crate) fn recv(&self, family: Family, arguments: &[&str]) -> Recv {
        let (mut command, report) = self.recv_command(family, arguments);
        let running = Running::start("mpxdp recv", &mut command, &[]).expect("it starts");
        Recv::listening(running, report)
    }

    /// The command for `mpxdp recv`, and where its report will be.
    pub(crate) fn recv_command(&self, family: Family, arguments: &[&str]) -> (Command, PathBuf) {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let report = self.path(&format!("report-{number}.json"));
        let mut command = self.mpxdp(&["recv", "--nic", "rcv0"]);
        command.args(["--listen", &self.at(family).to_string()]).arg("--report").arg(&report);
        command.args(arguments);
        (command, report)
    }

    /// Starts the kernel's sender towards the receiver.
    pub(crate) fn sender(&self, family: Family, arguments: &[&str]) -> Running {
        self.sender_to(self.at(family), arguments)
    }

    /// Starts the kernel's sender towards an address.
    pub(crate) fn sender_to(&self, to: SocketAddr, arguments: &[&str]) -> Running {
        let mut command = self.lab.command(Side::Sender, BENCH);
        command.args(["sender", "--connect", &to.to_string()]).args(arguments);
        Running::start("sender", &mut command, &[]).expect("it starts")
    }

    /// Sends, and returns the sender's report; a connection may have failed.
    pub(crate) fn send(&self, family: Family, arguments: &[&str]) -> sender::Report {
        finish(self.sender(family, arguments)).json().expect("the sender's report")
    }

    /// Runs a tool in a namespace and expects success.
    pub(crate) fn tool(&self, side: Side, arguments: &[&str]) -> String {
        self.lab.run(side, arguments).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Fails if an XDP program is attached to the receiver's end.
    pub(crate) fn assert_detached(&self) {
        let link = self.tool(Side::Receiver, &["ip", "-d", "link", "show", "dev", "rcv0"]);
        assert!(!link.contains("prog/xdp"), "an XDP program is left behind: {link}");
    }
}

impl Recv {
    /// Waits until it listens.
    pub(crate) fn listening(mut running: Running, report: PathBuf) -> Self {
        running
            .wait_for("listening on", LIMIT, &Interrupt::never())
            .unwrap_or_else(|error| panic!("{error}"));
        Self { running, report }
    }

    /// Ends it by SIGTERM, some time after all clients have gone: all connections should have been
    /// closed and forgotten by then.
    pub(crate) fn stop(self) -> Received {
        thread::sleep(Duration::from_millis(500));
        self.running.signal(Signal::SIGTERM).expect("it runs");
        let received = self.finish();
        assert_eq!(received.report.ended, "signal", "{}", received.ended.stderr);
        received
    }

    /// Waits until it ends and reads its report.
    pub(crate) fn finish(self) -> Received {
        let ended = finish(self.running);
        let text = fs::read(&self.report).unwrap_or_else(|error| {
            panic!("no report ({error}); {:?}, it said: {}", ended.status, ended.stderr)
        });
        let report = serde_json::from_slice(&text).unwrap_or_else(|error| {
            panic!("not a proper report ({error}): {}", String::from_utf8_lossy(&text))
        });
        Received { ended, report }
    }
}

impl Received {
    /// Fails unless it ended with this exit code.
    pub(crate) fn assert_code(&self, code: i32) {
        let Ended { status, stderr, .. } = &self.ended;
        assert_eq!(status.code(), Some(code), "it said: {stderr}\n{:#?}", self.report);
    }

    /// The only connection.
    pub(crate) fn only(&self) -> &Connection {
        match &self.report.connections[..] {
            [connection] => connection,
            others => panic!("not one connection: {others:#?}\n{}", self.ended.stderr),
        }
    }

    /// Fails if anything of a connection is left over in a table, or a frame did not come back. For
    /// receivers that were [stopped](Recv::stop): one that ends by itself does so while its last
    /// connection still says farewell.
    pub(crate) fn assert_nothing_left(&self) {
        self.assert_frames_home();
        for worker in &self.report.workers {
            let Tables { subflows, time_wait, .. } = worker.tables;
            assert_eq!((subflows, time_wait), (0, 0), "{:#?}", self.report.workers);
        }
    }

    /// Fails if a worker holds a frame or a half-open connection.
    pub(crate) fn assert_frames_home(&self) {
        assert!(!self.report.workers.is_empty());
        for worker in &self.report.workers {
            let Tables { half_open, frames_held, .. } = worker.tables;
            assert_eq!((half_open, frames_held), (0, 0), "{:#?}", self.report.workers);
        }
    }
}

impl Connection {
    /// Fails unless it came to its proper end with all its bytes.
    pub(crate) fn assert_complete(&self) {
        let end = if self.mptcp { "data_fin" } else { "fin" };
        assert_eq!((self.closed.as_str(), &self.error), (end, &None), "{self:#?}");
        let over_subflows: u64 = self.subflows.iter().map(|subflow| subflow.bytes).sum();
        assert!(over_subflows >= self.bytes, "{self:#?}");
    }
}

/// Waits for a process; one that hangs is a failure.
pub(crate) fn finish(running: Running) -> Ended {
    let limit = if full() { FULL_LIMIT } else { LIMIT };
    running.wait(limit, &Interrupt::never()).unwrap_or_else(|error| panic!("{error}"))
}

/// Fails unless the file holds the first `length` bytes of the pattern that the sender sends, and
/// nothing else.
pub(crate) fn assert_pattern(path: &Path, length: u64) {
    let (differs, got) = compare(path);
    assert_eq!((differs, got), (None, length), "first difference and length of {path:?}");
}

/// Compares a file with the pattern that the sender sends: the first byte that differs, if any does,
/// and the file's length.
pub(crate) fn compare(path: &Path) -> (Option<u64>, u64) {
    let file = fs::File::open(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    pattern().compare(file).expect("it can be read")
}

/// What the sender sends.
pub(crate) fn pattern() -> &'static Pattern {
    static PATTERN: OnceLock<Pattern> = OnceLock::new();
    PATTERN.get_or_init(|| Pattern::new(0))
}

/// The `mpxdp` binary of the same build as these tests. It is in another package, so cargo does not
/// build it for them by itself.
pub(crate) fn mpxdp() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let folder = Path::new(BENCH).parent().expect("a binary is in a folder");
        let target = folder.parent().expect("a profile is in the target folder");
        let profile = match folder.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(name) => name,
        };
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output: Output = Command::new(cargo)
            .args(["build", "--quiet", "--package", "mpxdp-control", "--bin", "mpxdp"])
            .args(["--profile", profile, "--target-dir"])
            .arg(target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .expect("cargo runs: it runs these tests");
        assert!(
            output.status.success(),
            "`mpxdp` cannot be built: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        folder.join("mpxdp")
    })
}
