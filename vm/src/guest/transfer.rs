//! A stream from the kernel's MPTCP to `mpxdp recv`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::command::Running;
use super::network::{Configured, End, LINKS, Network, start_at_peer};
use super::receiver::{self, Connection, Frames, Kernel, Port, Report};
use crate::error::{Context, Error, Result};
use crate::plan::{self, Outcome, SENDER_BUILD, Spread, Transfer};

/// How long a transfer may take, on an emulated machine.
const LIMIT: Duration = Duration::from_secs(150);

/// What the sender reports.
#[derive(Debug, Deserialize)]
pub(super) struct Sent {
    pub(super) connections: Vec<SentConnection>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SentConnection {
    pub(super) bytes: u64,
    pub(super) sha256: Option<String>,
    pub(super) error: Option<String>,
}

/// Runs it, and leaves the network as it was.
pub(super) fn run(transfer: &Transfer, network: &Network) -> Result<String> {
    let queues = network.guest.queues;
    network.configured(transfer, |configured| match transfer.outcome {
        Outcome::Refused(code, words) => refused(transfer, configured, code, words),
        _ => received(transfer, configured, network, queues),
    })
}

/// Kills a receiver with SIGKILL while data comes, and runs the transfer with one that is started
/// at once.
pub(super) fn after_kill(transfer: &Transfer, network: &Network) -> Result<String> {
    let queues = network.guest.queues;
    network.configured(transfer, |configured| {
        let first = receiver::listening(transfer.build, transfer.mode, configured.target())?;
        let endless = Transfer { bytes: 1 << 40, ..*transfer };
        let sender = send(&endless, configured)?;
        receiver::wait_for_data(1 << 16, LIMIT)?;
        // Dropping ends both by SIGKILL; the sender first would end the stream.
        drop(first);
        let result = received(transfer, configured, network, queues);
        drop(sender);
        result
    })
}

/// Runs it with several numbers of queues, and leaves as many as there were.
pub(super) fn with_queues(
    transfer: &Transfer,
    network: &Network,
    numbers: &[u32],
) -> Result<String> {
    network.configured(transfer, |configured| {
        let run = |&queues: &u32| {
            network.set_queues(queues)?;
            let note = received(transfer, configured, network, queues)
                .map_err(|error| Error::failed(format!("with {queues} queues: {error}")))?;
            Ok(format!("{queues}: {note}"))
        };
        let notes: Result<Vec<String>> = numbers.iter().map(run).collect();
        network.set_queues(network.guest.queues)?;
        Ok(notes?.join("\n"))
    })
}

/// The receiver must say no, and leave nothing attached.
fn refused(transfer: &Transfer, configured: &Configured, code: u8, words: &str) -> Result<String> {
    let ended =
        receiver::ended(receiver::start(transfer.build, transfer.mode, configured.target())?)?;
    let said = ended.stderr.trim_end();
    if ended.status.code() != Some(code.into()) || !said.contains(words) {
        return Err(Error::failed(format!("{}, and said: {said}", ended.status)));
    }
    nothing_attached()?;
    Ok(said.to_owned())
}

fn received(
    transfer: &Transfer,
    configured: &Configured,
    network: &Network,
    queues: u32,
) -> Result<String> {
    let running = receiver::listening(transfer.build, transfer.mode, configured.target())?;
    let kernel: Vec<Kernel> =
        (0..LINKS).map(|link| Kernel::about(&End::Receiver.nic(link))).collect::<Result<_>>()?;
    let sent = send(transfer, configured)?.wait(LIMIT)?;
    let sent: Sent = serde_json::from_str(&sent.stdout)
        .context(|| format!("the sender said: {}", sent.stderr.trim_end()))?;
    let report = receiver::stop(running)
        .map_err(|error| Error::failed(format!("{error}\nthe sender: {sent:?}")))?;
    check_modes(transfer, &report, &kernel, network.guest.kernel, queues)?;
    check_content(transfer, &report, &sent)?;
    check_spread(transfer.spread, &report, queues)?;
    check_frames(&report)?;
    nothing_attached()?;
    Ok(describe(&report))
}

/// Starts the kernel's sender.
pub(super) fn send(transfer: &Transfer, configured: &Configured) -> Result<Running> {
    let (target, bytes) = (configured.target().to_string(), transfer.bytes.to_string());
    let connections = transfer.connections.to_string();
    let program = format!("/{}/mpxdp-bench", SENDER_BUILD.name());
    let rate = (transfer.bytes / duration(transfer).as_secs()).to_string();
    let slowly = if transfer.subflows > 1 { &["--rate", &rate][..] } else { &[] };
    let words = [
        &program,
        "sender",
        "--connect",
        &target,
        "--bytes",
        &bytes,
        "--connections",
        &connections,
        "--parallel",
        &connections,
        "--patience",
        "60",
        "--hash",
    ];
    start_at_peer(&[&words[..], slowly].concat())
}

/// How long a sender with several subflows takes, so that the joins come before the end: a client
/// that has closed its end leaves MP_JOIN out of its third ACK, which refuses the subflow.
fn duration(transfer: &Transfer) -> Duration {
    // Where a SYN or an ADD_ADDR may get lost, a few are sent again after a second each.
    Duration::from_secs(if transfer.netem.is_some() { 8 } else { 2 })
}

/// What the report says of NICs and sockets is what was to come of it, and what the kernel says.
fn check_modes(
    transfer: &Transfer,
    report: &Report,
    kernel: &[Kernel],
    release: plan::Kernel,
    queues: u32,
) -> Result<()> {
    let (mode, zero_copy) = match transfer.outcome {
        Outcome::ZeroCopy => ("native", true),
        Outcome::Copy => ("native", false),
        Outcome::Generic => ("generic", false),
        Outcome::Refused(..) => return Err(Error::failed("it was not refused")),
    };
    let shown = if release.tells_sockets() { queues } else { 0 };
    let sockets = (0..shown).map(|queue| (queue, zero_copy)).collect();
    let wanted = Kernel { mode: Some(mode), sockets };
    for (nic, kernel) in report.nics.iter().zip(kernel) {
        if *kernel != wanted {
            return Err(Error::failed(format!("{}: the kernel has {kernel:?}", nic.name)));
        }
        let same = nic.mode == mode
            && nic.zero_copy == zero_copy
            && nic.queues.iter().copied().eq(0..queues);
        if !same {
            return Err(Error::failed(format!("the report has {nic:?}, the kernel {kernel:?}")));
        }
    }
    let port_mode = if zero_copy { "zerocopy" } else { "copy" };
    match report.ports.iter().find(|port| port.mode != port_mode) {
        Some(port) => Err(Error::failed(format!("{port:?} is not {port_mode}"))),
        None if report.ports.len() == (LINKS * queues) as usize => Ok(()),
        None => Err(Error::failed(format!("{} ports", report.ports.len()))),
    }
}

/// What arrived is what was sent, over as many subflows as there should be.
pub(super) fn check_content(transfer: &Transfer, report: &Report, sent: &Sent) -> Result<()> {
    let wanted = transfer.connections as usize;
    if (report.connections.len(), sent.connections.len()) != (wanted, wanted) {
        return Err(Error::failed(format!("not {wanted} connections: {report:#?}, {sent:#?}")));
    }
    if report.ended != "signal" {
        return Err(Error::failed(format!("ended by {}", report.ended)));
    }
    let Some(SentConnection { sha256: Some(hash), .. }) = sent.connections.first() else {
        return Err(Error::failed("the sender gave no hash"));
    };
    for sent in &sent.connections {
        let all = sent.error.is_none() && sent.bytes == transfer.bytes;
        if !all || sent.sha256.as_ref() != Some(hash) {
            return Err(Error::failed(format!("{sent:?}; {report:#?}")));
        }
    }
    for connection in &report.connections {
        let Connection { bytes, mptcp, fallback, closed, error, output, subflows } = connection;
        let good = *mptcp && fallback.is_none() && closed == "data_fin" && error.is_none();
        let carried: u64 = subflows.iter().map(|subflow| subflow.bytes).sum();
        let as_many = subflows.len() == transfer.subflows as usize;
        if !good || *bytes != transfer.bytes || carried < *bytes || !as_many {
            return Err(Error::failed(format!("{connection:#?}\n{:#?}", report.workers)));
        }
        let path = output.as_ref().ok_or_else(|| Error::failed("no output"))?;
        let is = hash_of(path)?;
        if is != *hash {
            return Err(Error::failed(format!("{connection:#?}: SHA-256 {is}, not {hash}")));
        }
    }
    for worker in &report.workers {
        // Everything that came was ours and whole, so no packet may have been misread.
        let misread = ["checksum", "tcp_", "ip_", "ipv", "ethernet"];
        let bad = |(reason, count): (&String, &u64)| {
            *count > 0 && misread.iter().any(|name| reason.contains(name))
        };
        if worker.drops.iter().any(bad) {
            return Err(Error::failed(format!("dropped: {:?}", worker.drops)));
        }
    }
    Ok(())
}

/// The queues of the first NIC that should have brought connections have, and no others.
fn check_spread(spread: Spread, report: &Report, queues: u32) -> Result<()> {
    let wanted = match spread {
        Spread::Any => return Ok(()),
        Spread::All => 0..queues,
        Spread::Last => queues - 1..queues,
    };
    let first = End::Receiver.nic(0);
    let subflows = report.connections.iter().flat_map(|connection| &connection.subflows);
    let used: BTreeSet<u32> =
        subflows.filter(|subflow| subflow.nic == first).map(|subflow| subflow.queue).collect();
    if used.iter().copied().eq(wanted.clone()) {
        Ok(())
    } else {
        Err(Error::failed(format!("queues {wanted:?} should bring connections, {used:?} did")))
    }
}

/// Every frame is somewhere, none is with the worker, and all that was sent came back.
pub(super) fn check_frames(report: &Report) -> Result<()> {
    for Port { nic, queue, frames, statistics, .. } in &report.ports {
        let Frames { fill, rx, held, tx, completion, free, total } = *frames;
        let sum = fill + rx + held + tx + completion + free;
        let invalid = ["rx_invalid_descs", "tx_invalid_descs", "bad_descriptors"];
        let bad = invalid.iter().any(|name| statistics.get(*name) != Some(&0));
        if sum != total || held != 0 || tx != 0 || bad {
            return Err(Error::failed(format!("{nic} queue {queue}: {frames:?}, {statistics:?}")));
        }
    }
    Ok(())
}

/// No XDP program and no AF_XDP socket is left behind.
pub(super) fn nothing_attached() -> Result<()> {
    for link in 0..LINKS {
        let nic = End::Receiver.nic(link);
        let left = Kernel::about(&nic)?;
        if left != Kernel::default() {
            return Err(Error::failed(format!("{nic}: left behind: {left:?}")));
        }
    }
    Ok(())
}

/// What is worth a word in the summary.
fn describe(report: &Report) -> String {
    let reason = report.nics.iter().find_map(|nic| nic.mode_reason.clone());
    let subflows = || report.connections.iter().flat_map(|connection| &connection.subflows);
    let disordered: u64 = subflows().map(|subflow| subflow.out_of_order).sum();
    let mut used: Vec<String> =
        subflows().map(|subflow| format!("{}:{}", subflow.nic, subflow.queue)).collect();
    used.sort();
    used.dedup();
    let mut words = vec![format!("over {}", used.join(" "))];
    if disordered > 0 {
        words.push(format!("{disordered} segments out of order"));
    }
    words.extend(reason);
    words.join("; ")
}

fn hash_of(path: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    File::open(path)
        .and_then(|mut file| io::copy(&mut file, &mut Writer(&mut hash)))
        .context(|| path.display().to_string())?;
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// `sha2` has no `Write` without its `std` feature.
struct Writer<'a>(&'a mut Sha256);

impl io::Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
