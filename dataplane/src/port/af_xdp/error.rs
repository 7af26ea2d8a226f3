//! Why an AF_XDP port could not be opened.

use std::io;

use super::BindMode;

/// Why an AF_XDP port could not be opened. Each message is one line: what, where, what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AfXdpError {
    /// An option has a value that no kernel takes.
    #[error("{option} of an AF_XDP port cannot be {value}: {rule}")]
    InvalidOption {
        /// The field of `AfXdpOptions`.
        option: &'static str,
        /// Its value.
        value: u64,
        /// What it must be.
        rule: &'static str,
    },
    /// There is no such interface in this network namespace.
    #[error("{interface}: no such interface in this network namespace; see `ip link`")]
    NoInterface {
        /// The name that was given.
        interface: String,
    },
    /// The kernel was built without AF_XDP.
    #[error("this kernel has no AF_XDP sockets; it needs CONFIG_XDP_SOCKETS")]
    NoAfXdp,
    /// The process lacks a privilege.
    #[error("no permission to {action}; missing: {missing} (run as root, or grant them)")]
    Permission {
        /// What was refused.
        action: &'static str,
        /// The capabilities that the process lacks of those it needs, or what else is known.
        missing: String,
    },
    /// The packet memory cannot be locked.
    #[error(
        "{interface} queue {queue}: cannot lock {bytes} bytes for packets ({source}); the limit is \
         {limit} bytes: raise it with `ulimit -l unlimited` or LimitMEMLOCK=infinity, or grant \
         CAP_IPC_LOCK"
    )]
    Memory {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// What was to be locked.
        bytes: usize,
        /// RLIMIT_MEMLOCK.
        limit: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// Another AF_XDP socket has the queue.
    #[error(
        "{interface} queue {queue} is in use by another AF_XDP socket; end the program that holds \
         it (`ss --xdp -p` names it)"
    )]
    QueueInUse {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
    },
    /// The interface has no such queue.
    #[error("{interface} has no queue {queue}; see `ethtool -l {interface}`")]
    NoQueue {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
    },
    /// The interface is down.
    #[error("{interface} is down; bring it up with `ip link set {interface} up`")]
    InterfaceDown {
        /// The interface.
        interface: String,
    },
    /// The mode that was named does not work here.
    #[error(
        "{interface} queue {queue}: the driver does not support {} mode here; mode auto takes what \
         works", mode.name()
    )]
    ModeUnsupported {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// The mode.
        mode: BindMode,
    },
    /// The kernel does not take packets of several buffers.
    #[error(
        "{interface} queue {queue}: this kernel takes no packets of several buffers (Linux 6.6 and \
         later do); lower the MTU so that a packet fits one buffer"
    )]
    MultiBufferUnsupported {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
    },
    /// Busy polling was asked for and cannot be had.
    #[error("{interface} queue {queue}: cannot set up busy polling: {source}")]
    BusyPoll {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// What the kernel said.
        source: io::Error,
    },
    /// Something else that the kernel refused.
    #[error("{interface} queue {queue}: cannot {action}: {source}")]
    System {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
        /// What was refused.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// The capabilities out of `wanted` that the process does not have, by name; `None` if it has all
/// or that cannot be found out.
pub(super) fn missing_capabilities(wanted: &[(u32, &str)]) -> Option<String> {
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let effective = u64::from_str_radix(line.trim(), 16).ok()?;
    let missing: Vec<&str> = wanted
        .iter()
        .filter(|&&(bit, _)| effective & (1 << bit) == 0)
        .map(|&(_, name)| name)
        .collect();
    (!missing.is_empty()).then(|| missing.join(", "))
}
