//! The thread that follows what becomes of the engine's NICs.
//!
//! The kernel's routing socket only says that something has changed; what there is now is then read
//! as it was at the start, from sysfs and `getifaddrs`. So nothing of its messages has to be
//! understood, and one that is lost or merged with others is no harm.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};

/// Changes come in swarms: it looks no more often than this, and so takes no time worth naming.
const PAUSE: Duration = Duration::from_millis(50);

/// A thread that calls somebody each time something has changed, until it is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts it, for the network namespace of the calling thread. `look` is called once at the
    /// start, for what has changed before.
    ///
    /// # Errors
    ///
    /// No thread or descriptor is left.
    pub(super) fn start(look: impl FnMut() + Send + 'static) -> io::Result<Self> {
        let changes = changes()?;
        let stop = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        let thread = {
            let stop = Arc::clone(&stop);
            let run = move || run(&changes, &stop, look);
            std::thread::Builder::new().name("mpxdp-watch".into()).spawn(run)?
        };
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // It fails only if the counter is full, and then the descriptor is readable anyway.
        let _ = self.stop.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A socket that is readable once a link or an address has changed.
fn changes() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let route = SockProtocol::NetlinkRoute;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, Some(route))?;
    let groups = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, groups as u32))?;
    Ok(socket)
}

fn run(changes: &OwnedFd, stop: &EventFd, mut look: impl FnMut()) {
    loop {
        look();
        let mut fds = [
            PollFd::new(changes.as_fd(), PollFlags::POLLIN),
            PollFd::new(stop.as_fd(), PollFlags::POLLIN),
        ];
        if let Err(error) = poll(&mut fds, PollTimeout::NONE)
            && error != Errno::EINTR
        {
            tracing::warn!(%error, "changes of the NICs are not seen any more");
            return;
        }
        let stopped = |timeout: PollTimeout| {
            let mut fds = [PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, timeout).is_ok_and(|n| n > 0)
        };
        let pause = PollTimeout::try_from(PAUSE).unwrap_or(PollTimeout::ZERO);
        if stopped(pause) {
            return;
        }
        drain(changes);
    }
}

/// Takes out what there is. That some was lost (`ENOBUFS`) only says that something has changed.
fn drain(changes: &OwnedFd) {
    let mut bytes = [0; 8192];
    loop {
        match recv(changes.as_raw_fd(), &mut bytes, MsgFlags::empty()) {
            Ok(_) | Err(Errno::EINTR | Errno::ENOBUFS) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn it_looks_at_the_start_and_ends_when_it_is_dropped() {
        let (looked, looks) = mpsc::channel();
        let watch = Watch::start(move || looked.send(()).unwrap()).unwrap();
        looks.recv_timeout(Duration::from_secs(10)).unwrap();
        drop(watch);
        // Other tests' namespaces are not this one's; what is left is that it has ended.
        while looks.recv_timeout(Duration::from_secs(10)).is_ok() {}
    }
}
