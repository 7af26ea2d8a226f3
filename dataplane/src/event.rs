//! A descriptor that says that something has happened, as a flag: an eventfd, or in loom's tests
//! what loom can run in its place.

#[cfg(not(all(loom, test)))]
pub(crate) use descriptor::Event;
#[cfg(all(loom, test))]
pub(crate) use modelled::Event;

#[cfg(not(all(loom, test)))]
mod descriptor {
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::time::Duration;

    use nix::poll::{PollFd, PollFlags, ppoll};
    use nix::sys::eventfd::{EfdFlags, EventFd};
    use nix::sys::time::TimeSpec;

    /// An eventfd, used as a flag.
    #[derive(Debug)]
    pub(crate) struct Event(EventFd);

    impl Event {
        /// An event that has not happened.
        ///
        /// # Errors
        ///
        /// No descriptor is left.
        pub(crate) fn new() -> io::Result<Self> {
            let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
            Ok(Self(EventFd::from_value_and_flags(0, flags)?))
        }

        /// Makes the descriptor readable. It cannot fail but for a counter at its maximum, and
        /// then the descriptor is readable.
        pub(crate) fn signal(&self) {
            let _ = self.0.write(1);
        }

        /// Makes the descriptor not readable; `EAGAIN` says that it was not.
        pub(crate) fn clear(&self) {
            let _ = self.0.read();
        }

        /// Waits until it is readable; `None` is for ever. Says whether it is.
        ///
        /// # Errors
        ///
        /// [`Interrupted`](io::ErrorKind::Interrupted) if a signal was handled meanwhile.
        pub(crate) fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
            let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            Ok(ppoll(&mut fds, timeout.map(TimeSpec::from_duration), None)? > 0)
        }
    }

    impl AsFd for Event {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }
}

#[cfg(test)]
#[cfg(loom)]
mod modelled {
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::time::Duration;

    use loom::sync::{Condvar, Mutex};

    /// What loom runs in an eventfd's place.
    #[derive(Debug)]
    pub(crate) struct Event {
        readable: Mutex<bool>,
        changed: Condvar,
    }

    impl Event {
        #[expect(clippy::unnecessary_wraps, reason = "the real one can fail")]
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self { readable: Mutex::new(false), changed: Condvar::new() })
        }

        pub(crate) fn signal(&self) {
            *self.readable.lock().unwrap() = true;
            self.changed.notify_one();
        }

        pub(crate) fn clear(&self) {
            *self.readable.lock().unwrap() = false;
        }

        /// Without a timeout, whatever was given: that nobody signals is a deadlock to loom.
        pub(crate) fn wait(&self, _timeout: Option<Duration>) -> io::Result<bool> {
            let mut readable = self.readable.lock().unwrap();
            while !*readable {
                readable = self.changed.wait(readable).unwrap();
            }
            Ok(true)
        }
    }

    impl AsFd for Event {
        fn as_fd(&self) -> BorrowedFd<'_> {
            unreachable!("there is no descriptor under loom")
        }
    }
}
