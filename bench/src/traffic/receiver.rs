//! The kernel's receivers: what mpxdp is compared with.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::socket::{self, Protocol, Spoken};
use super::{CpuTime, Hash, bits_per_second};
use crate::error::{Context, Error, Result};

/// Bytes for a read: as the sender's writes.
const READ_SIZE: usize = 256 * 1024;

/// What to receive, and how.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// MPTCP or TCP.
    pub protocol: Protocol,
    /// Where to listen.
    pub listen: SocketAddr,
    /// The number of connections after which to end.
    pub connections: u32,
    /// Whether to report SHA-256 of what arrived.
    pub hash: bool,
    /// How long a connection may be silent.
    pub patience: Duration,
}

/// What was received.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// What was asked for.
    pub protocol: Protocol,
    /// One for each connection, in the order in which they ended.
    pub connections: Vec<Connection>,
    /// The CPU time of the receiving process.
    pub cpu: CpuTime,
}

/// One connection.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Connection {
    /// Bytes that were read.
    pub bytes: u64,
    /// From accepted until the end of the stream.
    pub seconds: f64,
    /// The two above.
    pub bits_per_second: f64,
    /// What the connection really spoke.
    #[serde(flatten)]
    pub spoken: Spoken,
    /// SHA-256 of what arrived, if asked for.
    pub sha256: Option<String>,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// Receives, and tells what happened. Says `listening on ADDRESS` on standard error when it does. A
/// connection that fails is in the report; it is no error here.
///
/// # Errors
///
/// If the address cannot be listened on.
pub fn run(options: &Options) -> Result<Report> {
    let listener = socket::listen(options.protocol, options.listen)
        .context(|| format!("cannot listen on {}", options.listen))?;
    let at = listener.local_addr().context(|| "cannot listen")?;
    // Nobody may be reading; that is no reason not to receive.
    let _ = writeln!(io::stderr(), "listening on {at}");
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..options.connections {
            let (stream, _) = listener.accept().context(|| "cannot accept")?;
            let read = || {
                let connection = read(options, &stream);
                drop(stream);
                if let Ok(mut done) = done.lock() {
                    done.push(connection);
                }
            };
            if options.connections == 1 {
                read();
            } else {
                scope.spawn(read);
            }
        }
        Ok(())
    })?;
    let connections = done.into_inner().map_err(|error| Error::failed("receiver", error))?;
    Ok(Report { protocol: options.protocol, connections, cpu: CpuTime::of_this_process() })
}

fn read(options: &Options, stream: &TcpStream) -> Connection {
    let mut connection = Connection::default();
    let mut hash = options.hash.then(Hash::default);
    let started = Instant::now();
    let outcome = drain(options, stream, &mut connection, hash.as_mut());
    let time = started.elapsed();
    connection.seconds = time.as_secs_f64();
    connection.bits_per_second = bits_per_second(connection.bytes, time);
    connection.spoken = socket::spoken(options.protocol, stream);
    connection.sha256 = hash.map(Hash::finish);
    connection.error = outcome.err().map(|error| error.to_string());
    connection
}

fn drain(
    options: &Options,
    mut stream: &TcpStream,
    connection: &mut Connection,
    mut hash: Option<&mut Hash>,
) -> io::Result<()> {
    stream.set_read_timeout(Some(options.patience))?;
    let mut buffer = vec![0; READ_SIZE];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => {
                connection.bytes += length as u64;
                if let Some(hash) = &mut hash {
                    hash.update(&buffer[..length]);
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(io::Error::new(ErrorKind::TimedOut, "the peer is silent"));
            }
            Err(error) => return Err(error),
        }
    }
}
