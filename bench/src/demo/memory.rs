//! The receive path where there is no privilege: the same workers, subflows, rings and reader, but
//! over the port in memory, from a client in memory.

use std::io::BufRead;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use mpxdp::port::{MemoryOptions, MemoryPort, Port, receive_packets, send_packet};
use mpxdp::{Engine, PortNic, Stream};
use mpxdp_proto::time;
use mpxdp_sim::{Content, Pattern, Sender, SenderOptions};

use super::{Options, progress};
use crate::document::{CpuSeconds, Document, Exactness, Round, Row};
use crate::error::{Context, Error, Result};
use crate::interrupt::Interrupt;
use crate::measure::tasks::Tasks;
use crate::traffic::{Hash, bits_per_second};
use crate::trial::Receiver;

/// What a transfer carries: some tenths of a second's worth.
const BYTES: u64 = 256 << 20;

/// What the exactness pass carries.
const EXACT_BYTES: u64 = 64 << 20;

/// No transfer takes so long, even on a slow machine; what does hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// Frames that the client sends before it looks for answers.
const BURST: usize = 32;

const CLIENT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1)), 40_000);
const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2)), 5000);

/// One transfer.
struct Transfer {
    /// Its CPU time is that of the worker and the reader.
    round: Round,
    mptcp: bool,
    hash: Option<String>,
}

/// Runs the demo without a lab, `why` saying what is missing for one.
pub(super) fn run(
    options: &Options,
    why: &str,
    interrupt: &Interrupt,
    document: &mut Document,
) -> Result<()> {
    document.remarks = vec![format!(
        "NO LAB ({why}): what ran is the same receive path (worker, subflow, receive ring, \
         reader) over the port in memory, from a client in memory, not over AF_XDP and not from the \
         Linux kernel. The kernel's receivers are left out, since nothing that can be measured without \
         a lab compares with them; cores are those of worker and reader."
    )];
    for &mtu in &options.mtus {
        progress(&format!("MTU {mtu}: are the bytes right?"));
        document.exactness.push(exactness(mtu, interrupt)?);
        let mut transfers = Vec::new();
        let ended = (0..options.rounds).try_for_each(|round| {
            progress(&format!("MTU {mtu}: round {} of {}", round + 1, options.rounds));
            transfers.push(transfer(mtu, BYTES, false, interrupt)?);
            Ok(())
        });
        if !transfers.is_empty() {
            document.results.push(row(mtu, &transfers));
        }
        ended?;
    }
    Ok(())
}

fn exactness(mtu: u32, interrupt: &Interrupt) -> Result<Exactness> {
    let received = transfer(mtu, EXACT_BYTES, true, interrupt)?.hash.unwrap_or_default();
    let mut hash = Hash::default();
    let mut buffer = vec![0; 64 << 10];
    for offset in (0..EXACT_BYTES).step_by(buffer.len()) {
        pattern().fill(offset, &mut buffer);
        hash.update(&buffer);
    }
    let sent = hash.finish();
    let exact = sent == received;
    Ok(Exactness { mtu, bytes: EXACT_BYTES, sent, received, exact })
}

fn row(mtu: u32, transfers: &[Transfer]) -> Row {
    let row = Row {
        benchmark: "demo".into(),
        receiver: Receiver::Mpxdp.name().into(),
        mtu,
        subflows: 1,
        links: 1,
        placement: "not pinned".into(),
        best: true,
        mode: "memory".into(),
        mptcp: transfers.iter().all(|t| t.mptcp),
        ..Row::default()
    };
    let row = row.with_rounds(transfers.iter().map(|t| t.round.clone()).collect());
    let mut walls: Vec<f64> = transfers.iter().map(|t| t.round.seconds).collect();
    walls.sort_by(f64::total_cmp);
    let seconds = walls.get(walls.len() / 2).copied().unwrap_or(0.0);
    Row { seconds: (seconds * 1000.0).round() / 1000.0, ..row }
}

const fn pattern() -> Pattern {
    Pattern::new(0)
}

/// Sends `bytes` from a client in memory to an engine and reads them.
fn transfer(mtu: u32, bytes: u64, hashed: bool, interrupt: &Interrupt) -> Result<Transfer> {
    let (ours, theirs) = MemoryPort::pair(MemoryOptions::default());
    let nic = PortNic::new("memory", [ours]).addresses([SERVER.ip()]).mtu(mtu);
    let engine = Engine::builder().ports(nic).start().map_err(engine_failed)?;
    let listener = engine.listen(SERVER).map_err(engine_failed)?;
    // IPv4 and TCP headers take 40 bytes; an MSS beyond 16 bits cannot be told.
    let mss = u16::try_from(mtu.saturating_sub(40)).unwrap_or(u16::MAX);
    let content = Content::Pattern { pattern: pattern(), len: bytes };
    let client = Sender::new(SenderOptions { mss, ..SenderOptions::new(CLIENT, SERVER, content) });
    let before = Tasks::of_process(std::process::id());
    let started = Instant::now();
    let mut transfer = thread::scope(|scope| {
        let client = scope.spawn(|| drive(client, theirs, interrupt));
        let transfer = receive(&listener, bytes, hashed, interrupt);
        client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        transfer
    })?;
    let wall = started.elapsed().as_secs_f64();
    // The client's thread has ended; what threads did that have ended is not in this.
    let ran = before.ran_until(&Tasks::of_process(std::process::id()));
    transfer.round.receiving_cores = ran / wall;
    transfer.round.cpu_seconds = CpuSeconds { user: ran, ..CpuSeconds::default() };
    drop(listener);
    engine.shutdown(Duration::from_secs(1)).map_err(engine_failed)?;
    Ok(transfer)
}

fn engine_failed(error: mpxdp::Error) -> Error {
    Error::failed("the engine over the port in memory", error)
}

/// The client: passes frames between the port and the sender until the connection is over.
fn drive(mut sender: Sender, mut port: MemoryPort, interrupt: &Interrupt) -> Result<()> {
    let origin = Instant::now();
    let mut buffer = vec![0; 1 << 17];
    let mut waiting: Option<usize> = None;
    while !sender.is_done() {
        interrupt.check()?;
        if let Some(failure) = sender.failure() {
            return Err(Error::Failed(format!("the client in memory failed: {failure:?}")));
        }
        if origin.elapsed() > LIMIT {
            return Err(Error::Failed("the transfer over the port in memory hangs".into()));
        }
        let now = time::Instant(u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let received = receive_packets(&mut port, BURST, |packet| sender.on_frame(now, packet));
        sender.on_timeout(now);
        let mut sent = 0;
        while sent < BURST {
            let Some(length) = waiting.take().or_else(|| sender.poll_frame(now, &mut buffer))
            else {
                break;
            };
            if !send_packet(&mut port, &buffer[..length]) {
                waiting = Some(length);
                break;
            }
            sent += 1;
        }
        port.flush().context(|| "the port in memory")?;
        if received == 0 && sent == 0 {
            thread::yield_now();
        }
    }
    Ok(())
}

/// The server: accepts the connection and reads it to its end, in place.
fn receive(
    listener: &mpxdp::Listener,
    bytes: u64,
    hashed: bool,
    interrupt: &Interrupt,
) -> Result<Transfer> {
    let accepted = listener.accept_timeout(LIMIT).map_err(engine_failed)?;
    let mut stream: Stream =
        accepted.ok_or_else(|| Error::Failed("nobody connected in memory".into()))?;
    stream.set_read_timeout(Some(LIMIT));
    let started = Instant::now();
    let mut hash = hashed.then(Hash::default);
    let mut got = 0;
    loop {
        interrupt.check()?;
        let part = stream.fill_buf().context(|| "reading from the engine")?;
        if part.is_empty() {
            break;
        }
        if let Some(hash) = &mut hash {
            hash.update(part);
        }
        let length = part.len();
        got += length as u64;
        stream.consume(length);
    }
    let time = started.elapsed();
    if got != bytes {
        return Err(Error::Failed(format!("{got} of {bytes} bytes arrived in memory")));
    }
    let seconds = time.as_secs_f64();
    Ok(Transfer {
        round: Round {
            seconds,
            bytes,
            bits_per_second: bits_per_second(bytes, time),
            total_bytes: bytes,
            total_seconds: seconds,
            ..Round::default()
        },
        mptcp: stream.is_mptcp(),
        hash: hash.map(Hash::finish),
    })
}
