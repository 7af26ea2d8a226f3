//! Whether mpxdp's bytes are right, and what it costs without traffic.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::document::{Exactness, Idle};
use crate::error::{Context, Result};
use crate::measure::tasks::Tasks;
use crate::traffic::{Hash, sender};
use crate::trial::{Bench, END, Place, Receiver};

/// How much an exactness pass sends.
const EXACT_BYTES: u64 = 64 << 20;

/// Sends 64 MiB to a file through mpxdp and compares.
///
/// # Errors
///
/// If the transfer failed. Bytes that differ are no error but in the result.
pub(super) fn exactness(bench: &mut Bench<'_>, folder: &Path) -> Result<Exactness> {
    bench.interrupt.check()?;
    bench.unplace_processing()?;
    let path = folder.join("received");
    let output = path.to_string_lossy().into_owned();
    let running = bench.start_mpxdp(None, &["--output", &output])?;
    let size = EXACT_BYTES.to_string();
    let sender = bench.start_sender(Receiver::Mpxdp, &[], &["--bytes", &size, "--hash"])?;
    let sender = sender.wait(END, bench.interrupt)?.success()?;
    running.wait(END, bench.interrupt)?.success()?;
    let sent: sender::Report = sender.json()?;
    let sent = sent.connections.into_iter().find_map(|connection| connection.sha256);
    let received = std::fs::read(&path).context(|| format!("cannot read {output}"))?;
    std::fs::remove_file(&path).context(|| format!("cannot remove {output}"))?;
    let mut hash = Hash::default();
    hash.update(&received);
    let (sent, received) = (sent.unwrap_or_default(), hash.finish());
    let exact = sent == received;
    Ok(Exactness { mtu: bench.mtu(), bytes: EXACT_BYTES, sent, received, exact })
}

/// What `mpxdp recv` costs that listens and has no traffic.
///
/// # Errors
///
/// If it cannot be started.
pub(super) fn idle(bench: &Bench<'_>, place: &Place) -> Result<Idle> {
    /// Until the workers have stopped spinning.
    const SETTLE: Duration = Duration::from_millis(500);
    /// Long enough for one per mille to be seen.
    const WATCH: Duration = Duration::from_secs(2);
    let running = bench.start_mpxdp(Some(place), &[])?;
    thread::sleep(SETTLE);
    let before = Tasks::of_process(running.pid());
    let started = Instant::now();
    thread::sleep(WATCH);
    let seconds = started.elapsed().as_secs_f64();
    let used = before.ran_until(&Tasks::of_process(running.pid()));
    running.signal(Signal::SIGTERM)?;
    running.wait(END, bench.interrupt)?;
    Ok(Idle { seconds, cpu_fraction: used / seconds })
}
