//! Reservations: a kernel socket that is bound and never listens, so that the kernel gives the
//! address and port to nobody else, and tells us if somebody has it.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, setsockopt, socket,
    sockopt,
};

use crate::error::{Error, Result};

/// Reserves `at` until the descriptor is closed.
pub(super) fn reserve(at: SocketAddr) -> Result<OwnedFd> {
    match try_reserve(at, false) {
        // It may be connections in TIME-WAIT, which a server may disregard. A socket that listens
        // is in the way with this option too.
        Err(Errno::EADDRINUSE) => try_reserve(at, true),
        other => other,
    }
    .map_err(|errno| match errno {
        Errno::EADDRINUSE => Error::AddressInUse { at },
        errno => Error::io(format!("{at}: reserving the port"), errno.into()),
    })
}

fn try_reserve(at: SocketAddr, reuse: bool) -> nix::Result<OwnedFd> {
    let family = if at.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let fd = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, Some(SockProtocol::Tcp))?;
    if at.is_ipv6() {
        setsockopt(&fd, sockopt::Ipv6V6Only, &true)?;
    }
    setsockopt(&fd, sockopt::ReuseAddr, &reuse)?;
    bind(fd.as_raw_fd(), &SockaddrStorage::from(at))?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_kernel_listener_is_in_the_way() {
        let kernel = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = kernel.local_addr().unwrap();
        assert!(matches!(reserve(at), Err(Error::AddressInUse { .. })));
        drop(kernel);
        assert!(reserve(at).is_ok());
    }

    #[test]
    fn a_kernel_listener_gets_no_reserved_port() {
        let at = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let reservation = reserve(at).unwrap();
        assert!(TcpListener::bind(at).is_err());
        drop(reservation);
        assert!(TcpListener::bind(at).is_ok());
    }

    #[test]
    fn connections_in_time_wait_are_not_in_the_way() {
        let kernel = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = kernel.local_addr().unwrap();
        let client = TcpStream::connect(at).unwrap();
        let (server, _) = kernel.accept().unwrap();
        // The side that closes first has TIME-WAIT.
        drop(server);
        drop(client);
        drop(kernel);
        assert!(reserve(at).is_ok());
    }
}
