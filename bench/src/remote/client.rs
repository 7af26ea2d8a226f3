//! The receiving host's end.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::{GREETING, Request, VERSION};
use crate::error::{Context, Error, Result};
use crate::interrupt::Interrupt;
use crate::traffic::sender::Report;

/// How long the sender may take to answer.
const ANSWER: Duration = Duration::from_secs(10);

/// How often it is looked whether to stop.
const GLANCE: Duration = Duration::from_millis(20);

/// The most bytes of a report: an hour's timeline and then some.
const LONGEST_REPORT: usize = 4 << 20;

/// A job that the sender does for us.
#[derive(Debug)]
pub(crate) struct Job {
    sender: SocketAddr,
    stream: TcpStream,
    /// What came of a line that is not complete yet, and lines after it.
    buffer: Vec<u8>,
}

impl Job {
    /// Asks a sender for something.
    ///
    /// # Errors
    ///
    /// If nobody serves there, or one of another version.
    pub(crate) fn start(
        sender: SocketAddr,
        request: &Request,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&sender, ANSWER).context(|| {
            format!("no sender at {sender} (start `mpxdp-bench sender --serve` there)")
        })?;
        let failed = || format!("the control connection to {sender}");
        stream.set_nodelay(true).context(failed)?;
        stream.set_read_timeout(Some(GLANCE)).context(failed)?;
        let mut job = Self { sender, stream, buffer: Vec::new() };
        let greeting = job.line(ANSWER, interrupt)?;
        let version = greeting.strip_prefix(GREETING).map(str::trim_start).unwrap_or_default();
        if version.split(' ').next() != Some(VERSION.to_string().as_str()) {
            return Err(Error::Failed(format!(
                "{sender} says {greeting:?}, not {GREETING:?} with version {VERSION}: use the same \
                 version of mpxdp-bench on both hosts"
            )));
        }
        job.stream.write_all(format!("{request}\n").as_bytes()).context(failed)?;
        Ok(job)
    }

    /// Waits for a line of the sender's that says so.
    ///
    /// # Errors
    ///
    /// What the sender says instead, or that it says nothing within `limit`.
    pub(crate) fn wait_for(
        &mut self,
        text: &str,
        limit: Duration,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let line = self.line(limit, interrupt)?;
        if line == text {
            return Ok(());
        }
        let report = report(&line);
        let why = report.and_then(|report| report.connections.into_iter().find_map(|c| c.error));
        Err(Error::failed(format!("sender {}", self.sender), why.unwrap_or(line)))
    }

    /// Waits for the report.
    ///
    /// # Errors
    ///
    /// What the sender says instead, or that it says nothing within `limit`.
    pub(crate) fn finish(mut self, limit: Duration, interrupt: &Interrupt) -> Result<Report> {
        let line = self.line(limit, interrupt)?;
        report(&line).ok_or_else(|| Error::failed(format!("sender {}", self.sender), line))
    }

    fn line(&mut self, limit: Duration, interrupt: &Interrupt) -> Result<String> {
        let deadline = Instant::now() + limit;
        let mut room = [0; 16 << 10];
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let line = self.buffer.drain(..=end).take(end).collect();
                return String::from_utf8(line)
                    .map_err(|error| Error::failed(format!("sender {}", self.sender), error));
            }
            interrupt.check()?;
            let failed = |why: &str| Err(Error::failed(format!("sender {}", self.sender), why));
            if Instant::now() > deadline {
                return failed("it says nothing");
            }
            match self.stream.read(&mut room) {
                Ok(0) => return failed("it closed the control connection"),
                Ok(_) if self.buffer.len() > LONGEST_REPORT => return failed("it says too much"),
                Ok(length) => self.buffer.extend_from_slice(&room[..length]),
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) => {}
                Err(error) => return failed(&error.to_string()),
            }
        }
    }
}

fn report(line: &str) -> Option<Report> {
    serde_json::from_str(line.strip_prefix("report ")?).ok()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::traffic::sender::WARM;
    use crate::traffic::socket::Protocol;

    /// A job at something that says these lines and ends.
    fn job(lines: &'static str) -> Result<Job> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let sender = listener.local_addr().expect("bound");
        let served = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("accepts");
            stream.write_all(lines.as_bytes()).expect("writes");
            // Until the request has come or the client has gone: else a reset takes the lines away.
            let _ = stream.read(&mut [0; 512]);
        });
        let request =
            Request { protocol: Protocol::Tcp, to: sender, seconds: 1.0, warmup: 0.0, subflows: 1 };
        let job = Job::start(sender, &request, &Interrupt::never());
        served.join().expect("ends");
        job
    }

    fn warm(lines: &'static str) -> String {
        let mut job = job(lines).expect("it starts");
        let error = job.wait_for(WARM, ANSWER, &Interrupt::never()).expect_err("no warm-up");
        error.to_string()
    }

    #[test]
    fn another_version_is_refused() {
        for greeting in ["mpxdp-bench sender 2 9.9.9\n", "SSH-2.0-x\n"] {
            let error = job(greeting).expect_err("refused").to_string();
            assert!(error.contains("same version"), "{error}");
        }
    }

    #[test]
    fn what_the_sender_says_is_the_error() {
        assert!(warm("mpxdp-bench sender 1 0.1.0\nerror busy\n").ends_with("error busy"));
        assert!(warm("mpxdp-bench sender 1 0.1.0\n").contains("closed the control connection"));
    }

    #[test]
    fn nobody_there_is_said_with_what_to_do() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let sender = listener.local_addr().expect("bound");
        drop(listener);
        let request =
            Request { protocol: Protocol::Tcp, to: sender, seconds: 1.0, warmup: 0.0, subflows: 1 };
        let error = Job::start(sender, &request, &Interrupt::never()).expect_err("nobody");
        assert!(error.to_string().contains("sender --serve"), "{error}");
    }
}
