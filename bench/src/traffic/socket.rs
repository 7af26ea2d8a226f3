//! Sockets of the kernel's MPTCP and TCP, and whether MPTCP was really in use.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use nix::sys::socket::{self, Backlog, SockaddrStorage, setsockopt, sockopt};
use serde::{Deserialize, Serialize};

use crate::sys;

/// What a kernel socket speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// MPTCP v1.
    Mptcp,
    /// TCP.
    Tcp,
}

/// Longer queues than any test needs.
const BACKLOG: i32 = 1024;

/// The bit of `mptcpi_flags` that says the connection fell back to TCP.
const FLAG_FALLBACK: u32 = 1;

/// Listens at an address.
///
/// # Errors
///
/// What the kernel refuses with.
pub fn listen(protocol: Protocol, at: SocketAddr) -> io::Result<TcpListener> {
    let fd = sys::stream_socket(at.is_ipv6(), protocol == Protocol::Mptcp)?;
    setsockopt(&fd, sockopt::ReuseAddr, &true)?;
    socket::bind(fd.as_raw_fd(), &SockaddrStorage::from(at))?;
    socket::listen(&fd, Backlog::new(BACKLOG)?)?;
    Ok(TcpListener::from(fd))
}

/// Connects to an address.
///
/// # Errors
///
/// What the kernel refuses with; [`io::ErrorKind::TimedOut`] after `limit`.
pub fn connect(protocol: Protocol, to: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    let fd = sys::stream_socket(to.is_ipv6(), protocol == Protocol::Mptcp)?;
    let stream = TcpStream::from(fd);
    // The kernel bounds a blocking connect by the send timeout.
    stream.set_write_timeout(Some(limit))?;
    match socket::connect(stream.as_raw_fd(), &SockaddrStorage::from(to)) {
        Ok(()) => {}
        Err(nix::errno::Errno::EINPROGRESS) => {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"));
        }
        Err(errno) => return Err(errno.into()),
    }
    stream.set_write_timeout(None)?;
    Ok(stream)
}

/// Makes closing the socket reset the connection.
///
/// # Errors
///
/// What the kernel refuses with.
pub fn reset_on_close(stream: &TcpStream) -> io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    Ok(setsockopt(stream, sockopt::Linger, &linger)?)
}

/// What a connection really speaks, as the kernel tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spoken {
    /// Whether it is MPTCP.
    pub mptcp: bool,
    /// Why not, if MPTCP was asked for.
    pub fallback: Option<String>,
    /// Subflows beyond the first, if it is MPTCP.
    pub additional_subflows: u8,
    /// Whether it uses MPTCP's checksum.
    pub checksum: bool,
    /// Retransmissions at the data level.
    pub retransmits: u32,
}

/// Asks the kernel what a connection really speaks.
#[must_use]
pub fn spoken(protocol: Protocol, stream: &TcpStream) -> Spoken {
    if protocol == Protocol::Tcp {
        return Spoken::default();
    }
    match sys::mptcp_info(stream.as_fd()) {
        Ok(info) if info.flags & FLAG_FALLBACK == 0 => Spoken {
            mptcp: true,
            fallback: None,
            additional_subflows: info.subflows,
            checksum: info.csum_enabled != 0,
            retransmits: info.retransmits,
        },
        Ok(_) => {
            Spoken { fallback: Some("the kernel fell back to TCP".into()), ..Spoken::default() }
        }
        Err(error) => Spoken {
            // A socket that fell back answers every MPTCP option as TCP does.
            fallback: Some(format!("the kernel fell back to TCP ({error})")),
            ..Spoken::default()
        },
    }
}

/// What a connection's subflows are up to; a TCP connection is its own only subflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Subflows {
    /// Established ones.
    pub established: u32,
    /// Segments that were sent again, on all that are there.
    pub retransmissions: u64,
    /// Data sent again at the level of the connection.
    pub data_retransmissions: u64,
}

/// Asks the kernel about a connection's subflows; none where it does not tell.
#[must_use]
pub fn subflows(protocol: Protocol, stream: &TcpStream) -> Subflows {
    let infos = match protocol {
        Protocol::Mptcp => sys::subflow_infos(stream.as_fd()),
        Protocol::Tcp => sys::tcp_info(stream.as_fd()).map(|info| vec![info]),
    };
    // A socket that fell back answers as TCP does.
    let infos = infos.or_else(|_| sys::tcp_info(stream.as_fd()).map(|info| vec![info]));
    let infos = infos.unwrap_or_default();
    let established = infos.iter().filter(|info| info.state == sys::TcpInfo::ESTABLISHED).count();
    let data = sys::mptcp_info(stream.as_fd()).map_or(0, |info| info.retransmits);
    Subflows {
        established: u32::try_from(established).unwrap_or(u32::MAX),
        retransmissions: infos.iter().map(|info| u64::from(info.total_retransmissions)).sum(),
        data_retransmissions: if protocol == Protocol::Mptcp { data.into() } else { 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn any() -> SocketAddr {
        (Ipv4Addr::LOCALHOST, 0).into()
    }

    #[test]
    fn fallback_to_a_tcp_listener_is_reported() {
        let listener = listen(Protocol::Tcp, any()).expect("listens");
        let to = listener.local_addr().expect("bound");
        let Ok(stream) = connect(Protocol::Mptcp, to, Duration::from_secs(5)) else {
            println!("skipped: this kernel has no MPTCP");
            return;
        };
        let spoken = spoken(Protocol::Mptcp, &stream);
        assert!(!spoken.mptcp);
        assert!(spoken.fallback.is_some());
    }

    #[test]
    fn mptcp_between_two_sockets_is_reported() {
        let Ok(listener) = listen(Protocol::Mptcp, any()) else {
            println!("skipped: this kernel has no MPTCP");
            return;
        };
        let to = listener.local_addr().expect("bound");
        let stream = connect(Protocol::Mptcp, to, Duration::from_secs(5)).expect("connects");
        assert_eq!(spoken(Protocol::Mptcp, &stream), Spoken { mptcp: true, ..Spoken::default() });
        let alone = Subflows { established: 1, ..Subflows::default() };
        assert_eq!(subflows(Protocol::Mptcp, &stream), alone);
    }

    #[test]
    fn nobody_there_is_refused_at_once() {
        let listener = listen(Protocol::Tcp, any()).expect("listens");
        let to = listener.local_addr().expect("bound");
        drop(listener);
        let error = connect(Protocol::Tcp, to, Duration::from_secs(5)).expect_err("nobody");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
