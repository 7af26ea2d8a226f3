//! The sender that waits to be told what to send.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use mpxdp_cli::say;

use super::{GREETING, LONGEST_LINE, Request, VERSION};
use crate::error::{Context, Result};
use crate::interrupt::Interrupt;
use crate::traffic::sender::{self, Moment, WARM, WRITTEN};

/// How often it is looked whether to stop.
const GLANCE: Duration = Duration::from_millis(20);

/// How long a control connection may say nothing.
const SILENCE: Duration = Duration::from_secs(60);

/// Control connections at once.
const MOST_CONNECTIONS: usize = 8;

/// How to serve.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Where control connections are accepted.
    pub at: SocketAddr,
    /// Addresses that anybody may have something sent to.
    pub allow: Vec<IpAddr>,
}

/// What all control connections share.
#[derive(Debug)]
struct Service {
    allow: Vec<IpAddr>,
    /// Held while a job runs.
    job: Mutex<()>,
    connections: AtomicUsize,
}

/// Serves until a signal comes. Says `serving at ADDRESS` on standard error when it does.
///
/// # Errors
///
/// If the address cannot be listened on.
pub fn serve(options: ServeOptions, interrupt: &Interrupt) -> Result<()> {
    let ServeOptions { at, allow } = options;
    let listener = TcpListener::bind(at).context(|| format!("cannot listen on {at}"))?;
    listener.set_nonblocking(true).context(|| "cannot listen")?;
    let at = listener.local_addr().context(|| "cannot listen")?;
    say::line(format_args!("serving at {at}"));
    let service =
        Arc::new(Service { allow, job: Mutex::new(()), connections: AtomicUsize::new(0) });
    while !interrupt.is_set() {
        match listener.accept() {
            Ok((stream, peer)) => {
                let service = Arc::clone(&service);
                // A job that runs when the signal comes ends with the process.
                thread::spawn(move || {
                    let outcome = service.converse(&stream, peer);
                    let said = outcome.map_or_else(|error| error.to_string(), |()| "done".into());
                    say::line(format_args!("{peer}: {said}"));
                });
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(GLANCE),
            // The peer went, or there are too many descriptors: the next one may fare better.
            Err(_) => thread::sleep(GLANCE),
        }
    }
    Ok(())
}

/// Counts a control connection for as long as it is there.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Service {
    /// One control connection.
    fn converse(&self, stream: &TcpStream, peer: SocketAddr) -> io::Result<()> {
        let before = self.connections.fetch_add(1, Ordering::Relaxed);
        let _counted = Counted(&self.connections);
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        if before >= MOST_CONNECTIONS {
            return refuse(stream, "too many control connections");
        }
        tell(stream, &format!("{GREETING} {VERSION} {}", env!("CARGO_PKG_VERSION")))?;
        let mut reader = BufReader::new(stream);
        while let Some(line) = read_line(&mut reader)? {
            let request = match line {
                Ok(line) => line.parse::<Request>(),
                Err(why) => Err(why.to_owned()),
            };
            match request.and_then(|request| self.permitted(&request, peer).map(|()| request)) {
                Ok(request) => self.send(stream, &request)?,
                Err(why) => return refuse(stream, &why),
            }
        }
        Ok(())
    }

    fn permitted(&self, request: &Request, peer: SocketAddr) -> std::result::Result<(), String> {
        let (to, from) = (request.to.ip().to_canonical(), peer.ip().to_canonical());
        if to == from || self.allow.contains(&to) {
            return Ok(());
        }
        Err(format!(
            "to={}: not the address that this connection comes from ({from}), and not allowed; \
             start the sender with --allow {to}",
            request.to
        ))
    }

    /// One job.
    fn send(&self, stream: &TcpStream, request: &Request) -> io::Result<()> {
        let Ok(_job) = self.job.try_lock() else {
            return refuse(stream, "busy with another job");
        };
        let report = sender::run_with(&request.options(), &|moment| {
            // A receiver that is gone is noticed when the report is written.
            let _ = match moment {
                Moment::Warm => tell(stream, WARM),
                Moment::Written => tell(stream, WRITTEN),
            };
        });
        match report.map(|report| serde_json::to_string(&report)) {
            Ok(Ok(report)) => tell(stream, &format!("report {report}")),
            Ok(Err(error)) => refuse(stream, &error.to_string()),
            Err(error) => refuse(stream, &error.to_string()),
        }
    }
}

fn tell(mut stream: &TcpStream, line: &str) -> io::Result<()> {
    stream.write_all(format!("{line}\n").as_bytes())
}

/// Says what is wrong, and has that be the outcome.
fn refuse(stream: &TcpStream, why: &str) -> io::Result<()> {
    tell(stream, &format!("error {why}"))?;
    Err(io::Error::other(why.to_owned()))
}

/// The next line; none at the end. A line that cannot be taken is told as such.
fn read_line(
    reader: &mut impl BufRead,
) -> io::Result<Option<std::result::Result<String, &'static str>>> {
    let mut line = Vec::new();
    let length = reader.take(LONGEST_LINE as u64 + 1).read_until(b'\n', &mut line)?;
    if length == 0 {
        return Ok(None);
    }
    if line.pop() != Some(b'\n') {
        return Ok(Some(Err("the line is too long, or not ended")));
    }
    Ok(Some(String::from_utf8(line).map_err(|_| "the line is not text")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(allow: &[&str]) -> Service {
        Service {
            allow: allow.iter().map(|text| text.parse().expect("an address")).collect(),
            job: Mutex::new(()),
            connections: AtomicUsize::new(0),
        }
    }

    #[test]
    fn lines_are_bounded() {
        let mut text = &b"one\ntwo\n"[..];
        assert_eq!(read_line(&mut text).expect("memory"), Some(Ok("one".into())));
        assert_eq!(read_line(&mut text).expect("memory"), Some(Ok("two".into())));
        assert_eq!(read_line(&mut text).expect("memory"), None);
        let long = vec![b'x'; 2 * LONGEST_LINE];
        assert!(matches!(read_line(&mut &long[..]), Ok(Some(Err(_)))));
        assert!(matches!(read_line(&mut &b"\xff\n"[..]), Ok(Some(Err(_)))));
    }

    #[test]
    fn only_who_asks_or_is_allowed_is_sent_to() {
        let request = |to: &str| -> Request {
            let line = format!("send protocol=tcp to={to} seconds=1 warmup=0 subflows=1");
            line.parse().expect("a request")
        };
        let peer = "192.0.2.1:40000".parse().expect("an address");
        let mapped = "[::ffff:192.0.2.1]:40000".parse().expect("an address");
        let (alone, open) = (service(&[]), service(&["192.0.2.9"]));
        assert_eq!(alone.permitted(&request("192.0.2.1:5"), peer), Ok(()));
        assert_eq!(alone.permitted(&request("192.0.2.1:5"), mapped), Ok(()));
        let error = alone.permitted(&request("192.0.2.9:5"), peer).expect_err("another address");
        assert!(error.contains("--allow 192.0.2.9"), "{error}");
        assert_eq!(open.permitted(&request("192.0.2.9:5"), peer), Ok(()));
    }

    /// What a control connection is told for some lines.
    fn told(lines: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let mut client =
            TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        let (stream, peer) = listener.accept().expect("accepts");
        client.write_all(lines.as_bytes()).expect("writes");
        client.shutdown(std::net::Shutdown::Write).expect("ends");
        // That it was refused is in what it is told.
        let _ = service(&[]).converse(&stream, peer);
        drop(stream);
        let mut text = String::new();
        client.read_to_string(&mut text).expect("reads");
        text
    }

    #[test]
    fn bad_input_is_refused_with_a_clear_line() {
        let greeting = format!("mpxdp-bench sender 1 {}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(told(""), greeting);
        for (lines, named) in [
            ("hello\n", "\"hello\" is no command"),
            ("send protocol=udp\n", "protocol=udp"),
            ("send", "not ended"),
            (
                "send protocol=tcp to=192.0.2.9:5 seconds=1 warmup=0 subflows=1\n",
                "--allow 192.0.2.9",
            ),
        ] {
            let text = told(lines);
            let error = text.strip_prefix(&greeting).expect("a greeting");
            assert!(error.starts_with("error ") && error.contains(named), "{lines}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn a_job_is_done_and_reported() {
        let receiver = TcpListener::bind("127.0.0.1:0").expect("listens");
        let to = receiver.local_addr().expect("bound");
        let reader = thread::spawn(move || {
            let (mut stream, _) = receiver.accept().expect("accepts");
            io::copy(&mut stream, &mut io::sink()).expect("reads")
        });
        let text =
            told(&format!("send protocol=tcp to={to} seconds=0.05 warmup=0.01 subflows=1\n"));
        let bytes = reader.join().expect("ends");
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(&lines[..2], [WARM, WRITTEN], "{text}");
        let report = lines[2].strip_prefix("report ").expect("a report");
        let report: sender::Report = serde_json::from_str(report).expect("JSON");
        assert_eq!(report.connections[0].bytes, bytes);
        assert_eq!(report.connections[0].error, None);
    }
}
