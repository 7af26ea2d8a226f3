//! The process that sends: the kernel's MPTCP or TCP, one write a message.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::clock::{Clock, Identity, Monotonic, Waiting};
use super::histogram;
use super::message::{Greeting, LARGEST, STAMP, Stamp};
use super::schedule::{Paced, Plan, pace};
use crate::error::{Context, Error, Result};
use crate::options;
use crate::traffic::socket::{self, Protocol};

/// From the greeting until the first message is due: the reader has dealt with the connection then.
const HEAD_START: u64 = 20_000_000;

/// What to send, and how.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// MPTCP or TCP.
    pub protocol: Protocol,
    /// Where to.
    pub connect: SocketAddr,
    /// How many messages, and how fast.
    pub plan: Plan,
    /// Octets of a message, [`STAMP`] to [`LARGEST`].
    pub size: usize,
    /// How to wait for the next message's moment.
    pub waiting: Waiting,
    /// How far behind to give up; also how long connecting, and the peer's end, may take.
    pub patience: Duration,
}

/// What was sent. The warm-up is left out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Messages that were written.
    pub sent: u64,
    /// Messages whose write began more than [`LATE`](super::schedule::LATE) after they were due.
    pub late: u64,
    /// Messages that were not written, since the sender was too far behind.
    pub unsent: u64,
    /// Messages a second that were written.
    pub achieved_rate: f64,
    /// How long after they were due the writes began: a histogram of nanoseconds as
    /// [`encode`](histogram::encode) writes it.
    pub lateness: String,
    /// Whether the connection was MPTCP to its end.
    pub mptcp: bool,
}

/// Octets that a message can have.
pub const SIZE: RangeInclusive<usize> = STAMP..=LARGEST;

/// Refuses a size that no message can have.
///
/// # Errors
///
/// Wrong usage.
pub fn check_size(size: usize) -> Result<()> {
    options::within("--size", size, SIZE)
}

/// Sends, and tells how it went.
///
/// # Errors
///
/// If the size is out of range, the connection cannot be made or breaks.
pub fn run(options: &Options) -> Result<Report> {
    check_size(options.size)?;
    let greeting = Greeting {
        size: u32::try_from(options.size).map_err(|error| Error::failed("--size", error))?,
        clock: Identity::of_this_process()?,
    };
    let to = options.connect;
    let stream = socket::connect(options.protocol, to, options.patience)
        .context(|| format!("cannot connect to {to}"))?;
    let paced = send(options, &greeting, &stream).context(|| format!("sending to {to}"))?;
    let mptcp = socket::spoken(options.protocol, &stream).mptcp;
    end(&stream, options.patience).context(|| format!("ending the connection to {to}"))?;
    Ok(Report {
        sent: paced.sent,
        late: paced.late,
        unsent: paced.unsent,
        achieved_rate: paced.achieved(&options.plan),
        lateness: histogram::encode(&paced.lateness)?,
        mptcp,
    })
}

fn send(options: &Options, greeting: &Greeting, mut stream: &TcpStream) -> io::Result<Paced> {
    // A request is not to wait for the acknowledgement of the one before.
    stream.set_nodelay(true)?;
    // Of a hang for ever there is no measurement.
    stream.set_write_timeout(Some(options.patience))?;
    stream.write_all(&greeting.to_bytes())?;
    let mut message = vec![0; options.size];
    let clock = Monotonic::new(options.waiting);
    let start = clock.now().after(HEAD_START);
    let give_up = u64::try_from(options.patience.as_nanos()).unwrap_or(u64::MAX);
    pace(&clock, &options.plan, start, give_up, |stamp: &Stamp| {
        stamp.put(&mut message);
        stream.write_all(&message)
    })
}

/// Ends the connection and waits until the reader has, which it does when it has everything.
fn end(mut stream: &TcpStream, patience: Duration) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_timeout(Some(patience))?;
    loop {
        match stream.read(&mut [0; 64]) {
            Ok(0) => return Ok(()),
            Ok(_) => return Err(io::Error::new(ErrorKind::InvalidData, "the reader answered")),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
