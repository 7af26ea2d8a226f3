//! Being told to stop: by SIGINT, SIGTERM and SIGHUP, or from inside.

use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mpxdp_cli::signals;
use signal_hook::consts::SIGXFSZ;
use signal_hook::{flag, low_level};

/// Whether it is time to stop, for any number of threads. Its descriptor becomes readable then and
/// stays so.
#[derive(Debug)]
pub(crate) struct Stop {
    requested: Arc<AtomicBool>,
    /// Never read, so that everyone who polls it learns of the one byte that was written.
    readable: UnixStream,
    write: UnixStream,
}

impl Stop {
    /// One that only [`request`](Self::request) sets.
    pub(crate) fn new() -> io::Result<Self> {
        let (readable, write) = UnixStream::pair()?;
        write.set_nonblocking(true)?;
        Ok(Self { requested: Arc::default(), readable, write })
    }

    /// Lets SIGINT, SIGTERM and, unless it is ignored, SIGHUP set it; a second one ends the process at
    /// once, with exit code 1.
    /// A file that grows past its limit becomes an error of the write, not the end.
    pub(crate) fn on_signals(&self) -> io::Result<()> {
        for signal in signals::to_stop_for() {
            // The order matters: the first signal must find the flag unset here.
            flag::register_conditional_shutdown(signal, 1, Arc::clone(&self.requested))?;
            flag::register(signal, Arc::clone(&self.requested))?;
            low_level::pipe::register(signal, self.write.try_clone()?)?;
        }
        // Caught, it lets a write past the limit on file sizes fail like one to a full disk.
        flag::register(SIGXFSZ, Arc::default())?;
        Ok(())
    }

    /// Sets it.
    pub(crate) fn request(&self) {
        self.requested.store(true, Ordering::SeqCst);
        // A full socket is readable already, which is all that this is for.
        let _ = (&self.write).write(b"!");
    }

    /// Whether it is set.
    pub(crate) fn requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use signal_hook::consts::SIGTERM;

    use super::*;

    fn readable(stop: &Stop) -> bool {
        let mut fds = [PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
    }

    #[test]
    fn a_request_is_seen_by_all_and_for_ever() {
        let stop = Stop::new().unwrap();
        assert!(!stop.requested() && !readable(&stop));
        for _ in 0..3 {
            stop.request();
            assert!(stop.requested() && readable(&stop) && readable(&stop));
        }
    }

    #[test]
    fn any_number_of_requests_does_not_block() {
        let stop = Stop::new().unwrap();
        for _ in 0..10_000 {
            stop.request();
        }
        assert!(readable(&stop));
    }

    #[test]
    fn a_signal_is_a_request() {
        let stop = Stop::new().unwrap();
        stop.on_signals().unwrap();
        low_level::raise(SIGTERM).unwrap();
        assert!(stop.requested() && readable(&stop));
    }
}
