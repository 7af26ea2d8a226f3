//! The JSON document of `--report`. REPORT.md tells users what its fields mean; a change of names
//! here is a change of an interface.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use mpxdp::port::{FrameAccount, PortStatistics};
use mpxdp::{MemoryReport, NicReport, PortReport, SubflowStatistics, WorkerReport};
use mpxdp_cli::{describe, files};
use serde::Serialize;

use crate::failure::Failure;
use crate::units;

/// The value of `--report`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ReportSpec {
    /// Standard output.
    Stdout,
    /// A file.
    File(PathBuf),
}

impl FromStr for ReportSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("it is empty; write FILE or -".to_owned()),
            "-" => Ok(Self::Stdout),
            _ => Ok(Self::File(text.into())),
        }
    }
}

impl ReportSpec {
    /// Finds out whether the report can be written, and changes nothing.
    ///
    /// # Errors
    ///
    /// A [`Failure`] of usage if it cannot.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let Self::File(path) = self else { return Ok(()) };
        let checked = files::writable(path).map(drop);
        checked.map_err(|e| Failure::unwritable("--report", path, &e))
    }

    /// Writes the report. A file appears, or is replaced, as a whole.
    ///
    /// # Errors
    ///
    /// A [`Failure`] of the run.
    pub(crate) fn write(&self, report: &Report) -> Result<(), Failure> {
        let failed = |place: &str, e: &io::Error| {
            Failure::runtime(format!("--report {place}: cannot be written: {}", describe(e)))
        };
        let mut text = serde_json::to_string_pretty(report)
            .map_err(|e| failed("", &io::Error::other(e)))?
            .into_bytes();
        text.push(b'\n');
        match self {
            Self::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(&text).and_then(|()| out.flush()).map_err(|e| failed("-", &e))
            }
            Self::File(path) => {
                files::write(path, &text).map_err(|e| failed(&path.display().to_string(), &e))
            }
        }
    }
}

/// The whole document.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Always `recv`.
    pub(crate) command: &'static str,
    /// The version of mpxdp.
    pub(crate) version: &'static str,
    pub(crate) environment: Environment,
    /// Where it listened.
    pub(crate) listen: SocketAddr,
    /// The mode that was asked for.
    pub(crate) mode: &'static str,
    /// The placement that was asked for.
    pub(crate) placement: String,
    /// From listening to the end.
    pub(crate) seconds: f64,
    /// `connections`, `signal` or `error`.
    pub(crate) ended: Ended,
    /// What ended it, if `ended` is `error`.
    pub(crate) error: Option<String>,
    pub(crate) connections: Vec<Connection>,
    pub(crate) nics: Vec<Nic>,
    pub(crate) ports: Vec<Port>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) memory: Memory,
}

/// The memory of receive rings and of payload that waited for its checksum.
#[derive(Debug, Serialize)]
pub(crate) struct Memory {
    pub(crate) limit: usize,
    pub(crate) in_use: usize,
    pub(crate) spare: usize,
    pub(crate) peak: usize,
}

impl From<MemoryReport> for Memory {
    fn from(memory: MemoryReport) -> Self {
        let MemoryReport { limit, in_use, spare, peak } = memory;
        Self { limit, in_use, spare, peak }
    }
}

/// Why the run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ended {
    /// As many connections as were asked for have ended.
    Connections,
    /// A signal came.
    Signal,
    /// The run itself failed.
    Error,
}

/// Where the figures are from.
#[derive(Debug, Serialize)]
pub(crate) struct Environment {
    pub(crate) kernel: String,
    pub(crate) architecture: &'static str,
    pub(crate) cpu_model: Option<String>,
    pub(crate) cpus: usize,
}

impl Environment {
    /// Of this machine.
    pub(crate) fn of_this_machine() -> Self {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let cpu_model = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        });
        Self {
            kernel: kernel.trim().to_owned(),
            architecture: std::env::consts::ARCH,
            cpu_model,
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
        }
    }
}

/// One connection.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Connection {
    /// In the order of acceptance, the first being 1.
    pub(crate) number: u64,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// Bytes that the reader was given and the output took.
    pub(crate) bytes: u64,
    /// From acceptance until the last byte was taken.
    pub(crate) seconds: f64,
    pub(crate) bits_per_second: f64,
    pub(crate) mptcp: bool,
    pub(crate) fallback: Option<&'static str>,
    pub(crate) checksums: bool,
    /// `data_fin`, `fin`, `reset`, `fastclose` or `timeout`.
    pub(crate) closed: &'static str,
    /// Why the data is not complete; null if it is.
    pub(crate) error: Option<String>,
    /// The file, `-`, or null if the data was discarded.
    pub(crate) output: Option<String>,
    pub(crate) subflows: Vec<Subflow>,
}

/// One subflow of a connection.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Subflow {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) nic: String,
    pub(crate) queue: u32,
    pub(crate) worker: usize,
    pub(crate) live: bool,
    pub(crate) backup: bool,
    pub(crate) bytes: u64,
    pub(crate) segments: u64,
    pub(crate) out_of_order: u64,
    pub(crate) duplicate_bytes: u64,
    pub(crate) retransmitted_bytes: u64,
}

impl From<SubflowStatistics> for Subflow {
    fn from(statistics: SubflowStatistics) -> Self {
        // Exhaustive, so that a new figure is not forgotten here.
        let SubflowStatistics {
            local,
            remote,
            nic,
            queue,
            worker,
            live,
            backup,
            bytes,
            segments,
            out_of_order,
            duplicate_bytes,
            retransmitted_bytes,
        } = statistics;
        Self {
            local,
            remote,
            nic,
            queue,
            worker,
            live,
            backup,
            bytes,
            segments,
            out_of_order,
            duplicate_bytes,
            retransmitted_bytes,
        }
    }
}

/// One NIC.
#[derive(Debug, Serialize)]
pub(crate) struct Nic {
    pub(crate) name: String,
    pub(crate) mode: &'static str,
    pub(crate) mode_reason: Option<String>,
    pub(crate) zero_copy: bool,
    pub(crate) queues: Vec<u32>,
    pub(crate) mtu: u32,
    /// `up`, `no_carrier`, `down` or `gone`.
    pub(crate) state: &'static str,
    pub(crate) changes: u64,
    pub(crate) program_id: u32,
    pub(crate) counters: BTreeMap<&'static str, u64>,
}

impl From<NicReport> for Nic {
    fn from(nic: NicReport) -> Self {
        let NicReport {
            name,
            mode,
            mode_reason,
            zero_copy,
            queues,
            mtu,
            state,
            changes,
            program_id,
            counters,
        } = nic;
        Self {
            name,
            mode,
            mode_reason,
            zero_copy,
            queues,
            mtu,
            state: state.name(),
            changes,
            program_id,
            counters: counters.into_iter().collect(),
        }
    }
}

/// One receive queue's AF_XDP socket.
#[derive(Debug, Serialize)]
pub(crate) struct Port {
    pub(crate) nic: String,
    pub(crate) queue: u32,
    pub(crate) worker: usize,
    pub(crate) mode: &'static str,
    /// Its counters, by name.
    pub(crate) statistics: BTreeMap<&'static str, u64>,
    pub(crate) frames: Frames,
}

/// Where a port's frames are.
#[derive(Debug, Serialize)]
pub(crate) struct Frames {
    pub(crate) fill: usize,
    pub(crate) rx: usize,
    pub(crate) held: usize,
    pub(crate) tx: usize,
    pub(crate) completion: usize,
    pub(crate) free: usize,
    pub(crate) total: usize,
}

impl From<PortReport> for Port {
    fn from(port: PortReport) -> Self {
        let PortReport { nic, queue, worker, mode, statistics, frames } = port;
        let PortStatistics {
            rx_dropped,
            rx_invalid_descs,
            tx_invalid_descs,
            rx_ring_full,
            rx_fill_ring_empty_descs,
            tx_ring_empty_descs,
            tx_kicks,
            rx_kicks,
            bad_descriptors,
        } = statistics;
        let FrameAccount { fill, rx, held, tx, completion, free, total } = frames;
        let statistics = [
            ("rx_dropped", rx_dropped),
            ("rx_invalid_descs", rx_invalid_descs),
            ("tx_invalid_descs", tx_invalid_descs),
            ("rx_ring_full", rx_ring_full),
            ("rx_fill_ring_empty_descs", rx_fill_ring_empty_descs),
            ("tx_ring_empty_descs", tx_ring_empty_descs),
            ("tx_kicks", tx_kicks),
            ("rx_kicks", rx_kicks),
            ("bad_descriptors", bad_descriptors),
        ];
        Self {
            nic,
            queue,
            worker,
            mode: mode.name(),
            statistics: statistics.into_iter().collect(),
            frames: Frames { fill, rx, held, tx, completion, free, total },
        }
    }
}

/// One worker.
#[derive(Debug, Serialize)]
pub(crate) struct Worker {
    pub(crate) cpu: Option<usize>,
    pub(crate) busy_fraction: f64,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) sent: u64,
    pub(crate) bursts: u64,
    pub(crate) handed_over: u64,
    pub(crate) opened_by_cookie: u64,
    pub(crate) drops: BTreeMap<&'static str, u64>,
    pub(crate) tables: Tables,
}

/// How full a worker's tables were at the end.
#[derive(Debug, Serialize)]
pub(crate) struct Tables {
    pub(crate) half_open: usize,
    pub(crate) subflows: usize,
    pub(crate) time_wait: usize,
    pub(crate) frames_held: usize,
}

impl From<WorkerReport> for Worker {
    fn from(worker: WorkerReport) -> Self {
        let WorkerReport {
            cpu,
            busy_fraction,
            packets,
            bytes,
            sent,
            bursts,
            handed_over,
            opened_by_cookie,
            drops,
            tables,
        } = worker;
        let mpxdp::TableSizes { half_open, subflows, time_wait, frames_held } = tables;
        Self {
            cpu,
            busy_fraction: rounded(busy_fraction, 4),
            packets,
            bytes,
            sent,
            bursts,
            handed_over,
            opened_by_cookie,
            drops: drops.into_iter().collect(),
            tables: Tables { half_open, subflows, time_wait, frames_held },
        }
    }
}

/// A time span in seconds, to the microsecond.
pub(crate) fn seconds(span: Duration) -> f64 {
    rounded(span.as_secs_f64(), 6)
}

/// A rate in bits a second, to the bit.
pub(crate) fn rate(bytes: u64, span: Duration) -> f64 {
    rounded(units::bits_per_second(bytes, span), 0)
}

/// More digits than a figure has do not make it better, and they make documents hard to compare.
fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests;
