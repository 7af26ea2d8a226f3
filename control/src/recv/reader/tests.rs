use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{Read, Write as _};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;

use super::*;
use crate::output::OutputSpec;

/// What happens to a stream next, when its reader asks.
enum Step {
    Bytes(Vec<u8>),
    /// Nothing is there; the reader is woken at once.
    Nothing,
    /// Nothing is there, and nothing ever will be.
    Silence,
    Fails(io::ErrorKind),
}

/// What became of a stream.
#[derive(Default)]
struct Fate {
    closed: Cell<bool>,
    aborted: Cell<bool>,
    /// Bytes that the reader consumed.
    consumed: Cell<usize>,
}

/// A stream that follows a script; after it comes the end of the stream.
struct Scripted {
    steps: VecDeque<Step>,
    fate: Rc<Fate>,
    mptcp: bool,
    ours: UnixStream,
    theirs: UnixStream,
}

impl Scripted {
    fn new(mptcp: bool, steps: impl IntoIterator<Item = Step>) -> (Self, Rc<Fate>) {
        let fate = Rc::new(Fate::default());
        let (ours, theirs) = UnixStream::pair().unwrap();
        let steps = steps.into_iter().collect();
        (Self { steps, fate: Rc::clone(&fate), mptcp, ours, theirs }, fate)
    }
}

impl Read for Scripted {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        unreachable!("the reader reads in place")
    }
}

impl BufRead for Scripted {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        // The engine's stream consumes in the same way: what is left over comes again.
        if matches!(self.steps.front(), Some(Step::Bytes(bytes)) if bytes.is_empty()) {
            self.steps.pop_front();
        }
        if matches!(self.steps.front(), Some(Step::Nothing)) {
            self.steps.pop_front();
            self.theirs.write_all(b"!").unwrap();
            return Err(io::ErrorKind::WouldBlock.into());
        }
        match self.steps.front() {
            Some(Step::Silence | Step::Nothing) => Err(io::ErrorKind::WouldBlock.into()),
            Some(&Step::Fails(kind)) => Err(kind.into()),
            Some(Step::Bytes(bytes)) => Ok(bytes),
            None => Ok(&[]),
        }
    }

    fn consume(&mut self, n: usize) {
        let Some(Step::Bytes(bytes)) = self.steps.front_mut() else { panic!("nothing was read") };
        bytes.drain(..n);
        self.fate.consumed.set(self.fate.consumed.get() + n);
    }
}

impl AsFd for Scripted {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ours.as_fd()
    }
}

impl Incoming for Scripted {
    fn close(&mut self) -> io::Result<()> {
        self.fate.closed.set(true);
        Ok(())
    }

    fn abort(self) {
        self.fate.aborted.set(true);
    }

    fn statistics(&self) -> ConnectionStatistics {
        ConnectionStatistics {
            local: "10.0.0.2:5000".parse().unwrap(),
            remote: "10.0.0.1:40112".parse().unwrap(),
            bytes: 0,
            age: Duration::ZERO,
            mptcp: self.mptcp,
            fallback: None,
            checksums: false,
            closed: self.fate.closed.get().then_some(Closed::DataFin),
            subflows: Vec::new(),
        }
    }
}

fn sink(path: &Path) -> Sink {
    let mut output = OutputSpec::File(path.to_owned()).open().unwrap();
    output.keep();
    output.sink(1, "10.0.0.1:40112".parse().unwrap()).unwrap()
}

/// Serves a script with a fresh counter, and nobody to stop it.
fn run(stream: Scripted, sink: Sink) -> (Outcome, Connection) {
    serve(1, stream, sink, &AtomicU64::new(0), &Stop::new().unwrap())
}

#[test]
fn a_stream_that_ends_is_stored_and_then_closed() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("out");
    let steps = [
        Step::Bytes(b"one".to_vec()),
        Step::Nothing,
        Step::Bytes(b"two".to_vec()),
        Step::Bytes(b"three".to_vec()),
    ];
    let (stream, fate) = Scripted::new(true, steps);
    let (outcome, connection) = run(stream, sink(&path));
    assert!(matches!(outcome, Outcome::Complete));
    assert_eq!(std::fs::read(&path).unwrap(), b"onetwothree");
    assert!(fate.closed.get() && !fate.aborted.get());
    assert_eq!((connection.bytes, connection.closed, connection.error), (11, "data_fin", None));
    assert_eq!(connection.output.as_deref(), path.to_str());
}

#[test]
fn a_plain_tcp_stream_ends_with_fin() {
    let (stream, _) = Scripted::new(false, []);
    let (_, connection) = run(stream, Sink::Null);
    assert_eq!((connection.closed, connection.bytes, connection.output), ("fin", 0, None));
}

#[test]
fn a_slice_larger_than_a_write_goes_out_in_several() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("out");
    let data: Vec<u8> = (0..5_000_000_u32).map(|n| (n % 251) as u8).collect();
    let (stream, fate) = Scripted::new(true, [Step::Bytes(data.clone())]);
    let (_, connection) = run(stream, sink(&path));
    assert_eq!(fate.consumed.get(), data.len());
    assert_eq!(connection.bytes, data.len() as u64);
    assert_eq!(std::fs::read(&path).unwrap(), data);
}

#[test]
fn a_full_disk_resets_the_connection_and_never_closes_it() {
    for mptcp in [true, false] {
        let (stream, fate) = Scripted::new(mptcp, [Step::Bytes(vec![1; 100])]);
        let (outcome, connection) = run(stream, sink(Path::new("/dev/full")));
        assert!(matches!(outcome, Outcome::NotStored(_)));
        assert!(fate.aborted.get() && !fate.closed.get());
        assert_eq!(fate.consumed.get(), 0, "what was not stored was not consumed");
        assert_eq!(connection.bytes, 0);
        assert_eq!(connection.closed, if mptcp { "fastclose" } else { "reset" });
        assert_eq!(connection.error.as_deref(), Some("writing /dev/full: No space left on device"));
    }
}

#[test]
fn a_sink_that_cannot_finish_resets_the_connection() {
    let temp = tempfile::tempdir().unwrap();
    let directory = temp.path().join("in");
    let mut output = OutputSpec::Directory(directory.clone()).open().unwrap();
    output.keep();
    let sink = output.sink(1, "10.0.0.1:40112".parse().unwrap()).unwrap();
    // The file cannot get its final name if it is gone.
    std::fs::remove_dir_all(&directory).unwrap();
    let (stream, fate) = Scripted::new(true, [Step::Bytes(vec![1; 100])]);
    let (outcome, connection) = run(stream, sink);
    assert!(matches!(outcome, Outcome::NotStored(_)));
    assert!(fate.aborted.get() && !fate.closed.get());
    assert!(connection.error.unwrap().contains("No such file"));
}

#[test]
fn a_broken_connection_is_neither_closed_nor_complete() {
    for (kind, closed) in [
        (io::ErrorKind::ConnectionReset, "reset"),
        (io::ErrorKind::ConnectionAborted, "reset"),
        (io::ErrorKind::TimedOut, "timeout"),
    ] {
        let (stream, fate) = Scripted::new(true, [Step::Bytes(vec![1; 7]), Step::Fails(kind)]);
        let (outcome, connection) = run(stream, Sink::Null);
        assert!(matches!(outcome, Outcome::Broken(_)));
        assert!(!fate.closed.get());
        assert_eq!((connection.bytes, connection.closed), (7, closed));
        assert!(connection.error.is_some());
    }
}

#[test]
fn a_reader_that_waits_is_interrupted() {
    let stop = Stop::new().unwrap();
    let (stream, fate) = Scripted::new(true, [Step::Bytes(vec![1; 7]), Step::Silence]);
    let taken = AtomicU64::new(0);
    let (outcome, connection) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while taken.load(Ordering::Relaxed) < 7 {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(20));
            stop.request();
        });
        serve(1, stream, Sink::Null, &taken, &stop)
    });
    assert!(matches!(outcome, Outcome::Interrupted));
    assert!(fate.aborted.get() && !fate.closed.get());
    assert_eq!((connection.bytes, connection.closed), (7, "fastclose"));
}

#[test]
fn a_connection_without_a_sink_is_reset() {
    let (stream, fate) = Scripted::new(true, [Step::Bytes(vec![1; 7])]);
    let full = io::Error::from_raw_os_error(libc::ENOSPC);
    let (outcome, connection) = refuse(4, stream, full);
    assert!(matches!(outcome, Outcome::NotStored(_)));
    assert!(fate.aborted.get());
    assert_eq!((connection.number, connection.bytes), (4, 0));
    assert_eq!(connection.error.as_deref(), Some("writing the output: No space left on device"));
}
