//! Memory for rings that grow, made ready by a thread of its own.
//!
//! The kernel zeroes a page when it is touched first, and on a virtual machine the host may have to
//! find it as well: 2.4 us a page were measured, 10 ms for a ring of 16 MiB. A worker that copied
//! into such a ring would fall behind its NIC at the very moment at which the stream speeds up. So
//! one thread of the process maps and touches the memory, and the ring moves when it is ready.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use nix::sched::{sched_getaffinity, sched_setaffinity};
use nix::unistd::{Pid, getpid};

use super::mapping::Mapping;

/// Where a memory that was asked for is put.
#[derive(Debug, Default)]
pub(super) struct Slot(Mutex<Option<io::Result<Mapping>>>);

impl Slot {
    /// What came of the request; `None` while it is being worked on.
    pub(super) fn take(&self) -> Option<io::Result<Mapping>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, made: io::Result<Mapping>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
    }
}

struct Request {
    capacity: usize,
    slot: Arc<Slot>,
}

/// Asks for a memory of `capacity` bytes to be put into `slot`.
///
/// # Errors
///
/// What the kernel says where it gives no thread.
pub(super) fn ask(capacity: usize, slot: Arc<Slot>) -> io::Result<()> {
    static REQUESTS: OnceLock<Option<Sender<Request>>> = OnceLock::new();
    let requests = REQUESTS.get_or_init(|| start().ok()).as_ref();
    // The thread ends with the process, so it takes what it is sent.
    let sent = requests.map(|requests| requests.send(Request { capacity, slot }));
    if matches!(sent, Some(Ok(()))) { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
}

fn start() -> io::Result<Sender<Request>> {
    let (sender, receiver) = channel();
    std::thread::Builder::new().name("mpxdp-memory".into()).spawn(move || run(&receiver))?;
    Ok(sender)
}

fn run(requests: &Receiver<Request>) {
    // The worker that happened to start this thread is pinned, and has given it its CPU; it should
    // run anywhere but there. If it may not, it is slow and no more.
    let _ = sched_getaffinity(getpid()).and_then(|cpus| sched_setaffinity(Pid::from_raw(0), &cpus));
    while let Ok(Request { capacity, slot }) = requests.recv() {
        slot.put(Mapping::new(capacity).inspect(Mapping::populate));
    }
}
