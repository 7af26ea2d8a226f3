//! `mpxdp recv`, and what it and the kernel say about it.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde::Deserialize;

use super::command::{Ended, Running, tool};
use super::network::{End, LINKS};
use crate::error::{Context, Error, Result};
use crate::plan::{Build, Mode};

const REPORT: &str = "/tmp/report.json";
/// Where received files go.
const OUTPUT: &str = "/tmp/in/";

/// How long starting and ending may take.
const LIMIT: Duration = Duration::from_secs(30);

/// How long a receiver is left alone before it is ended, so that what it sent has been sent.
const SETTLE: Duration = Duration::from_millis(400);

/// What the checks need of the report.
#[derive(Debug, Deserialize)]
pub(super) struct Report {
    pub(super) ended: String,
    pub(super) connections: Vec<Connection>,
    pub(super) nics: Vec<Nic>,
    pub(super) ports: Vec<Port>,
    pub(super) workers: Vec<Worker>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Connection {
    pub(super) bytes: u64,
    pub(super) mptcp: bool,
    pub(super) fallback: Option<String>,
    pub(super) closed: String,
    pub(super) error: Option<String>,
    pub(super) output: Option<PathBuf>,
    pub(super) subflows: Vec<Subflow>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Subflow {
    pub(super) nic: String,
    pub(super) queue: u32,
    pub(super) bytes: u64,
    pub(super) out_of_order: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Nic {
    pub(super) name: String,
    pub(super) mode: String,
    pub(super) mode_reason: Option<String>,
    pub(super) zero_copy: bool,
    pub(super) queues: Vec<u32>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Port {
    pub(super) nic: String,
    pub(super) queue: u32,
    pub(super) mode: String,
    pub(super) statistics: BTreeMap<String, u64>,
    pub(super) frames: Frames,
}

#[derive(Debug, Deserialize)]
pub(super) struct Frames {
    pub(super) fill: u64,
    pub(super) rx: u64,
    pub(super) held: u64,
    pub(super) tx: u64,
    pub(super) completion: u64,
    pub(super) free: u64,
    pub(super) total: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Worker {
    pub(super) drops: BTreeMap<String, u64>,
}

/// What the kernel says about a NIC of the receiver's.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Kernel {
    /// How its XDP program is attached, if there is one: `native` or `generic`.
    pub(super) mode: Option<&'static str>,
    /// The queues that have an AF_XDP socket, each with whether it is zero-copy.
    pub(super) sockets: BTreeMap<u32, bool>,
}

/// Starts it, on both NICs.
pub(super) fn start(build: Build, mode: Mode, listen: SocketAddr) -> Result<Running> {
    let _ = fs::remove_dir_all(OUTPUT);
    let _ = fs::remove_file(REPORT);
    let program = format!("/{}/mpxdp", build.name());
    let listen = listen.to_string();
    let nics: Vec<String> = (0..LINKS).map(|link| End::Receiver.nic(link)).collect();
    let mut words = vec![program.as_str(), "recv", "--listen", &listen, "--mode", mode.name()];
    for nic in &nics {
        words.extend(["--nic", nic]);
    }
    words.extend(["--output", OUTPUT, "--report", REPORT]);
    Running::start(&words)
}

/// Starts it and waits until it listens.
pub(super) fn listening(build: Build, mode: Mode, listen: SocketAddr) -> Result<Running> {
    let mut running = start(build, mode, listen)?;
    running.wait_for("listening on", LIMIT)?;
    Ok(running)
}

/// Waits until so many bytes of some connection are in a file.
pub(super) fn wait_for_data(bytes: u64, limit: Duration) -> Result<()> {
    let until = Instant::now() + limit;
    loop {
        let files = fs::read_dir(OUTPUT).into_iter().flatten().flatten();
        let mut lengths = files.filter_map(|file| Some(file.metadata().ok()?.len()));
        if lengths.any(|len| len >= bytes) {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(Error::failed(format!("no {bytes} bytes came in {} s", limit.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits for one that ends by itself.
pub(super) fn ended(running: Running) -> Result<Ended> {
    running.wait(LIMIT)
}

/// Ends it by SIGTERM when nothing happens any more, and reads its report.
pub(super) fn stop(running: Running) -> Result<Report> {
    std::thread::sleep(SETTLE);
    running.signal(Signal::SIGTERM)?;
    let ended = running.wait(LIMIT)?;
    let text = fs::read(REPORT).map_err(|error| {
        Error::failed(format!("no report: {error}; it said:\n{}", ended.stderr.trim_end()))
    })?;
    if !ended.status.success() {
        return Err(Error::failed(format!(
            "mpxdp recv: {}; it said:\n{}\n{}",
            ended.status,
            ended.stderr.trim_end(),
            String::from_utf8_lossy(&text)
        )));
    }
    serde_json::from_slice(&text).context(|| "its report".to_owned())
}

impl Kernel {
    /// Asks about a NIC.
    pub(super) fn about(nic: &str) -> Result<Self> {
        Ok(Self { mode: attached(nic)?, sockets: sockets(nic)? })
    }
}

/// The kernel's XDP_ATTACHED_DRV and XDP_ATTACHED_SKB.
fn attached(nic: &str) -> Result<Option<&'static str>> {
    #[derive(Deserialize)]
    struct Link {
        xdp: Option<Xdp>,
    }
    #[derive(Deserialize)]
    struct Xdp {
        mode: u32,
    }
    let text = tool(&format!("ip -json -details link show dev {nic}"))?;
    let links: Vec<Link> = serde_json::from_str(&text).context(|| "what ip says".to_owned())?;
    match links.into_iter().next().and_then(|link| link.xdp) {
        None => Ok(None),
        Some(Xdp { mode: 1 }) => Ok(Some("native")),
        Some(Xdp { mode: 2 }) => Ok(Some("generic")),
        Some(Xdp { mode }) => Err(Error::failed(format!("{nic}: XDP program in mode {mode}"))),
    }
}

/// AF_XDP sockets as `ss` shows them: a line with `nic:qN`, and `zc:1` if it is zero-copy.
fn sockets(nic: &str) -> Result<BTreeMap<u32, bool>> {
    let text = tool("ss --no-header --oneline --extended --xdp")?;
    let place = format!("{nic}:q");
    Ok(text
        .lines()
        .filter_map(|line| {
            let queue = line.split_whitespace().find_map(|word| word.strip_prefix(&place))?;
            Some((queue.parse().ok()?, line.contains("zc:1")))
        })
        .collect())
}
