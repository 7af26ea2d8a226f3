//! What the privileged tests share.

#![allow(dead_code, reason = "every test binary uses a part")]
#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

pub(crate) mod packet;

use std::os::fd::{FromRawFd, OwnedFd};
use std::process::Command;
use std::thread;

use nix::sched::{CloneFlags, unshare};

/// Whether the test may run. Without privileges it is skipped with a line that says so, or fails
/// where `MPXDP_REQUIRE_PRIVILEGES=1` says that they are to be had.
pub(crate) fn privileged(test: &str) -> bool {
    if nix::unistd::geteuid().is_root() {
        return true;
    }
    let required = std::env::var("MPXDP_REQUIRE_PRIVILEGES").is_ok_and(|value| value == "1");
    assert!(!required, "{test}: needs root, and MPXDP_REQUIRE_PRIVILEGES=1 forbids to skip it");
    eprintln!("skipped {test}: needs root to load BPF programs and to make network namespaces");
    false
}

/// An `AF_XDP` socket, bound to nothing: enough to fill a slot of the program's sockets. It has a
/// receive ring, since Linux 7.2 takes none without.
pub(crate) fn xdp_socket() -> OwnedFd {
    // SAFETY: the call takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    assert!(fd >= 0, "AF_XDP socket: {}", std::io::Error::last_os_error());
    // SAFETY: the descriptor is new and nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let entries: u32 = 64;
    let (value, len) = (std::ptr::from_ref(&entries).cast(), size_of::<u32>() as libc::socklen_t);
    // SAFETY: `value` points to `len` bytes that outlive the call.
    let set = unsafe { libc::setsockopt(fd, libc::SOL_XDP, libc::XDP_RX_RING, value, len) };
    assert_eq!(set, 0, "receive ring: {}", std::io::Error::last_os_error());
    socket
}

/// Runs `body` on a thread with a network namespace of its own, which goes with the thread.
pub(crate) fn in_own_namespace<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
        body()
    });
    match thread.join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Runs `ip` with these arguments, in the calling thread's namespace.
pub(crate) fn ip(arguments: &str) {
    let output =
        Command::new("ip").args(arguments.split_whitespace()).output().expect("ip (iproute2) runs");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}
