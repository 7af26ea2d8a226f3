//! What can go wrong when an engine starts, listens or runs.

use std::io;
use std::net::{IpAddr, SocketAddr};

use mpxdp_ebpf::{AttachError, TableError};

use crate::port::AfXdpError;

/// A result whose error is [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Whose doing an error is; command-line tools make their exit code of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// The request cannot work on this machine as it stands: wrong usage or configuration.
    Usage,
    /// The request was sensible; carrying it out failed.
    Runtime,
}

/// Why the engine could not do what it was asked. Each message is one line: what, where, what to
/// do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no interface of this name.
    #[error("{nic}: no such interface; `ip -br link` lists those that there are")]
    NoSuchNic {
        /// The name that was asked for.
        nic: String,
    },
    /// The interface is there, but administratively down.
    #[error("{nic}: the interface is down; bring it up with `ip link set {nic} up`")]
    NicDown {
        /// The interface.
        nic: String,
    },
    /// The interface takes VLAN tags out of frames, so that answers would leave without them.
    #[error(
        "{nic}: it takes VLAN tags out of received frames, and there are VLANs on it ({vlans}); have \
         it leave them in with `ethtool -K {nic} rxvlan off`"
    )]
    VlanTagsStripped {
        /// The interface.
        nic: String,
        /// The VLAN interfaces on it.
        vlans: String,
    },
    /// The interface has fewer receive queues than the highest one that was asked for.
    #[error("{nic}: there is no receive queue {queue}; it has {queues} (0 to {})", queues.saturating_sub(1))]
    QueueOutOfRange {
        /// The interface.
        nic: String,
        /// The queue that was asked for.
        queue: u32,
        /// How many receive queues there are.
        queues: u32,
    },
    /// A frame of this MTU fits neither one buffer nor, in this mode, several.
    #[error(
        "{nic}: an MTU of {mtu} is too large for {mode} mode, which takes {limit} here; lower it \
         with `ip link set {nic} mtu {limit}`, or choose another mode"
    )]
    MtuTooLarge {
        /// The interface.
        nic: String,
        /// Its MTU in octets.
        mtu: u32,
        /// The largest MTU that would do.
        limit: u32,
        /// The mode that was asked for.
        mode: &'static str,
    },
    /// Another XDP program sits on the interface.
    #[error(
        "{nic}: the XDP program \"{program}\" (id {id}) is already attached; end the \
         process that attached it or detach it (`ip link set {nic} xdp off`, `bpftool link \
         detach`), or choose another interface"
    )]
    NicOccupied {
        /// The interface.
        nic: String,
        /// The name of the program.
        program: String,
        /// The id of the program.
        id: u32,
    },
    /// The mode that was named does not work on this interface.
    #[error("{nic}: {mode} mode does not work here: {reason}; `auto` takes the best that does")]
    ModeUnavailable {
        /// The interface.
        nic: String,
        /// The mode that was asked for.
        mode: &'static str,
        /// What the kernel said.
        reason: String,
    },
    /// The process lacks a privilege.
    #[error(
        "{what}: not permitted; run as root, or with the capabilities CAP_NET_ADMIN, CAP_NET_RAW \
         and CAP_BPF"
    )]
    Privilege {
        /// What was not permitted.
        what: String,
    },
    /// The process may not have as many files open as are needed.
    #[error(
        "{what}: this process may have {limit} files open (RLIMIT_NOFILE), which is too few; raise \
         the limit with `ulimit -n` or LimitNOFILE="
    )]
    Descriptors {
        /// What needed them.
        what: String,
        /// How many files it may have open.
        limit: u64,
    },
    /// The address to listen on belongs to none of the engine's NICs, nor to their VLANs.
    #[error(
        "{address}: not an address of {nics} or of a VLAN on it; `ip addr` shows the addresses"
    )]
    AddressNotLocal {
        /// The address that was asked for.
        address: IpAddr,
        /// The engine's NICs.
        nics: String,
    },
    /// A socket of the kernel, or another listener of this engine, holds the address and port.
    #[error("{at}: the port is taken by another socket; `ss -ltnp sport = :{}` shows whose", at.port())]
    AddressInUse {
        /// The address and port that were asked for.
        at: SocketAddr,
    },
    /// An AF_XDP port did not open, for a reason that none of the others names.
    #[error(transparent)]
    Port(#[from] AfXdpError),
    /// The steering program did not attach, for a reason that none of the others names.
    #[error(transparent)]
    Steering(#[from] AttachError),
    /// The steering program did not take an address or a queue.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A configuration that makes no sense.
    #[error("{0}")]
    Configuration(String),
    /// A call of the kernel failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done, and where.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A worker thread ended by a panic; its connections are lost.
    #[error("the worker {worker} ended by a panic; this is a defect, please report it: {message}")]
    WorkerFailed {
        /// The worker's number.
        worker: usize,
        /// The panic's message.
        message: String,
    },
    /// All NICs were deleted, or moved to other network namespaces.
    #[error("{nics}: gone, and with it the last NIC; start again once there is one")]
    NicsGone {
        /// The NICs that there were.
        nics: String,
    },
    /// The engine was shut down.
    #[error("the engine was shut down")]
    Stopped,
}

impl Error {
    /// Whether the request was wrong or carrying it out failed.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSuchNic { .. }
            | Self::QueueOutOfRange { .. }
            | Self::MtuTooLarge { .. }
            | Self::ModeUnavailable { .. }
            | Self::AddressNotLocal { .. }
            | Self::Configuration(_) => ErrorKind::Usage,
            Self::NicDown { .. }
            | Self::VlanTagsStripped { .. }
            | Self::NicOccupied { .. }
            | Self::Privilege { .. }
            | Self::Descriptors { .. }
            | Self::AddressInUse { .. }
            | Self::Port(_)
            | Self::Steering(_)
            | Self::Table(_)
            | Self::Io { .. }
            | Self::WorkerFailed { .. }
            | Self::NicsGone { .. }
            | Self::Stopped => ErrorKind::Runtime,
        }
    }

    /// A failed call of the kernel; a missing privilege and a lack of descriptors are told apart.
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        let what = what.into();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Privilege { what },
            Some(libc::EMFILE) => Self::Descriptors { what, limit: descriptors() },
            _ => Self::Io { what, source },
        }
    }
}

/// How many files this process may have open.
pub(crate) fn descriptors() -> u64 {
    let limit = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE);
    // It cannot fail, for a limit that there is.
    limit.map_or(u64::MAX, |(soft, _)| soft)
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Io { source, .. } => source.kind(),
            Error::Privilege { .. } => io::ErrorKind::PermissionDenied,
            Error::AddressInUse { .. } => io::ErrorKind::AddrInUse,
            Error::AddressNotLocal { .. } => io::ErrorKind::AddrNotAvailable,
            Error::Stopped => io::ErrorKind::NotConnected,
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
