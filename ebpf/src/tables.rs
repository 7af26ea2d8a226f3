//! The tables that the steering program reads: which packets are ours, and where they go.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use aya::Ebpf;
use aya::maps::{self, Map, MapData, MapError};

use crate::object::{LoadError, os_error};
use crate::verdict::Counters;

/// Receive queues of one interface that can have a socket: 0 to 255. `MAX_QUEUES` in `bpf/maps.h`.
pub const MAX_QUEUES: u32 = 256;

/// Why a table did not take a change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The queue number is [`MAX_QUEUES`] or more.
    #[error("receive queue {queue}: the steering program knows queues 0 to {}", MAX_QUEUES - 1)]
    QueueOutOfRange {
        /// The queue.
        queue: u32,
    },
    /// Port zero is no port.
    #[error("{address}: port 0 cannot be steered; name a port")]
    PortZero {
        /// The address given.
        address: SocketAddr,
    },
    /// A connection whose two ends are of different families.
    #[error("{local} and {remote}: an IPv4 and an IPv6 address do not make a connection")]
    MixedFamilies {
        /// Our end.
        local: SocketAddr,
        /// The peer's end.
        remote: SocketAddr,
    },
    /// The table has no room.
    #[error("{what}: the steering program's table of {table} is full")]
    Full {
        /// The entry that did not fit.
        what: String,
        /// The table's name.
        table: &'static str,
    },
    /// The kernel refused.
    #[error("{what}: the kernel refused a change to the table of {table}: {source}")]
    Refused {
        /// The entry.
        what: String,
        /// The table's name.
        table: &'static str,
        /// Its error.
        source: io::Error,
    },
}

/// A transport address as the program's keys hold it: `struct endpoint` in `bpf/parse.h`.
type Endpoint = [u8; 20];
/// `struct flow`: our end, then the peer's.
type Flow = [u8; 40];

fn endpoint(address: IpAddr, port: u16) -> Endpoint {
    let mut key = [0; 20];
    match address {
        IpAddr::V4(address) => {
            key[..4].copy_from_slice(&address.octets());
            key[18] = 4;
        }
        IpAddr::V6(address) => {
            key[..16].copy_from_slice(&address.octets());
            key[18] = 6;
        }
    }
    key[16..18].copy_from_slice(&port.to_be_bytes());
    key
}

fn flow(local: SocketAddr, remote: SocketAddr) -> Flow {
    let mut key = [0; 40];
    key[..20].copy_from_slice(&endpoint(local.ip(), local.port()));
    key[20..].copy_from_slice(&endpoint(remote.ip(), remote.port()));
    key
}

/// Who uses a local port. The program reads it as bits and looks in no table that cannot match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PortUse {
    flows: u32,
    listeners_ipv4: u32,
    listeners_ipv6: u32,
    any_ipv4: bool,
    any_ipv6: bool,
}

impl PortUse {
    /// The `USE_` bits of `bpf/maps.h`.
    fn bits(self) -> u8 {
        u8::from(self.flows > 0)
            | u8::from(self.listeners_ipv4 > 0) << 1
            | u8::from(self.listeners_ipv6 > 0) << 2
            | u8::from(self.any_ipv4) << 3
            | u8::from(self.any_ipv6) << 4
    }
}

/// The steering program's tables.
///
/// They may be changed while packets flow: an entry counts from the packet after the call on. Adding
/// what is there and removing what is not are no errors.
pub struct Tables {
    sockets: maps::XskMap<MapData>,
    ports: maps::Array<MapData, u8>,
    flows: maps::HashMap<MapData, Flow, u8>,
    listeners: maps::HashMap<MapData, Endpoint, u8>,
    local_addresses: maps::HashMap<MapData, Endpoint, u8>,
    counters: maps::PerCpuArray<MapData, u64>,
    /// What the maps hold, where it takes a system call for each entry to find out.
    uses: HashMap<u16, PortUse>,
    addresses: HashSet<IpAddr>,
    bound: HashSet<u32>,
}

impl Tables {
    pub(crate) fn take_from(ebpf: &mut Ebpf, program: &'static str) -> Result<Self, LoadError> {
        fn take<T: TryFrom<Map, Error = MapError>>(
            ebpf: &mut Ebpf,
            program: &'static str,
            name: &str,
        ) -> Result<T, LoadError> {
            ebpf.take_map(name)
                .ok_or_else(|| LoadError::missing(program, name))?
                .try_into()
                .map_err(|error| LoadError::map(program, &error))
        }
        Ok(Self {
            sockets: take(ebpf, program, "sockets")?,
            ports: take(ebpf, program, "ports")?,
            flows: take(ebpf, program, "flows")?,
            listeners: take(ebpf, program, "listeners")?,
            local_addresses: take(ebpf, program, "local_addresses")?,
            counters: take(ebpf, program, "counters")?,
            uses: HashMap::new(),
            addresses: HashSet::new(),
            bound: HashSet::new(),
        })
    }

    /// Sends our packets of receive queue `queue` to `socket`, an `AF_XDP` socket bound to that
    /// queue. A socket that was there before is replaced.
    ///
    /// The kernel forgets the socket by itself when it is closed. A queue without one drops what
    /// is ours ([`crate::Verdict::NoSocket`]).
    ///
    /// # Errors
    ///
    /// [`TableError::QueueOutOfRange`], or [`TableError::Refused`] if it is no `AF_XDP` socket or
    /// has no receive ring.
    pub fn bind_queue(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), TableError> {
        if queue >= MAX_QUEUES {
            return Err(TableError::QueueOutOfRange { queue });
        }
        self.sockets
            .set(queue, socket.as_raw_fd(), 0)
            .map_err(|error| refused(format!("receive queue {queue}"), "sockets", error))?;
        self.bound.insert(queue);
        Ok(())
    }

    /// Takes the socket of a receive queue away: from now on the queue drops what is ours.
    ///
    /// # Errors
    ///
    /// [`TableError::QueueOutOfRange`] or [`TableError::Refused`].
    pub fn unbind_queue(&mut self, queue: u32) -> Result<(), TableError> {
        if queue >= MAX_QUEUES {
            return Err(TableError::QueueOutOfRange { queue });
        }
        self.bound.remove(&queue);
        match self.sockets.unset(queue) {
            Err(error) if !is_absent(&error) => {
                Err(refused(format!("receive queue {queue}"), "sockets", error))
            }
            _ => Ok(()),
        }
    }

    /// Takes in TCP segments to `at`. The unspecified address stands for every address of its
    /// family that [`Self::set_local_addresses`] named: `0.0.0.0` for IPv4, `::` for IPv6 and IPv6
    /// only.
    ///
    /// # Errors
    ///
    /// [`TableError::PortZero`], [`TableError::Full`] (1024 listeners at an address of their own),
    /// [`TableError::Refused`].
    pub fn listen(&mut self, at: SocketAddr) -> Result<(), TableError> {
        if at.port() == 0 {
            return Err(TableError::PortZero { address: at });
        }
        let mut port = self.port_use(at.port());
        match at.ip() {
            IpAddr::V4(address) if address.is_unspecified() => port.any_ipv4 = true,
            IpAddr::V6(address) if address.is_unspecified() => port.any_ipv6 = true,
            address => {
                let key = endpoint(address, at.port());
                if !add(&mut self.listeners, &key, || at.to_string(), "listeners")? {
                    return Ok(());
                }
                match address {
                    IpAddr::V4(_) => port.listeners_ipv4 += 1,
                    IpAddr::V6(_) => port.listeners_ipv6 += 1,
                }
            }
        }
        // The port's bits come last when adding, first when removing: a bit never promises more
        // than the tables hold for longer than one look-up.
        self.set_port_use(at.port(), port)
    }

    /// Leaves segments to `at` to the kernel again, those of open connections among them unless
    /// they are [flows](Self::add_flow).
    ///
    /// # Errors
    ///
    /// [`TableError::Refused`].
    pub fn unlisten(&mut self, at: SocketAddr) -> Result<(), TableError> {
        let mut port = self.port_use(at.port());
        match at.ip() {
            IpAddr::V4(address) if address.is_unspecified() => port.any_ipv4 = false,
            IpAddr::V6(address) if address.is_unspecified() => port.any_ipv6 = false,
            address => {
                let key = endpoint(address, at.port());
                if !remove(&mut self.listeners, &key, || at.to_string(), "listeners")? {
                    return Ok(());
                }
                let users = match address {
                    IpAddr::V4(_) => &mut port.listeners_ipv4,
                    IpAddr::V6(_) => &mut port.listeners_ipv6,
                };
                *users = users.saturating_sub(1);
            }
        }
        self.set_port_use(at.port(), port)
    }

    /// Says which addresses are this host's, for listeners at any address. The call replaces the
    /// set that was given before; addresses in both are never missing in between.
    ///
    /// # Errors
    ///
    /// [`TableError::Full`] (1024 addresses) or [`TableError::Refused`]. The set is then a part of
    /// the old and the new one.
    pub fn set_local_addresses(&mut self, addresses: &[IpAddr]) -> Result<(), TableError> {
        const TABLE: &str = "local addresses";
        let wanted: HashSet<IpAddr> = addresses.iter().copied().collect();
        for &address in wanted.difference(&self.addresses.clone()) {
            let key = endpoint(address, 0);
            add(&mut self.local_addresses, &key, || address.to_string(), TABLE)?;
            self.addresses.insert(address);
        }
        for &address in self.addresses.clone().difference(&wanted) {
            let key = endpoint(address, 0);
            remove(&mut self.local_addresses, &key, || address.to_string(), TABLE)?;
            self.addresses.remove(&address);
        }
        Ok(())
    }

    /// Takes in the segments of one connection: from `remote` to `local`.
    ///
    /// # Errors
    ///
    /// [`TableError::PortZero`], [`TableError::MixedFamilies`], [`TableError::Full`] (65536
    /// connections), [`TableError::Refused`].
    pub fn add_flow(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<(), TableError> {
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(TableError::MixedFamilies { local, remote });
        }
        if let Some(&address) = [local, remote].iter().find(|address| address.port() == 0) {
            return Err(TableError::PortZero { address });
        }
        let what = || format!("{remote} to {local}");
        if add(&mut self.flows, &flow(local, remote), what, "connections")? {
            let mut port = self.port_use(local.port());
            port.flows += 1;
            self.set_port_use(local.port(), port)?;
        }
        Ok(())
    }

    /// Leaves the segments of a connection to the listeners, and to the kernel if there is none.
    ///
    /// # Errors
    ///
    /// [`TableError::Refused`].
    pub fn remove_flow(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<(), TableError> {
        let what = || format!("{remote} to {local}");
        if remove(&mut self.flows, &flow(local, remote), what, "connections")? {
            let mut port = self.port_use(local.port());
            port.flows = port.flows.saturating_sub(1);
            self.set_port_use(local.port(), port)?;
        }
        Ok(())
    }

    /// Packets by verdict since the program was loaded.
    ///
    /// # Errors
    ///
    /// [`TableError::Refused`].
    pub fn counters(&self) -> Result<Counters, TableError> {
        Counters::try_from_slots(|slot| {
            let values = self
                .counters
                .get(&slot, 0)
                .map_err(|error| refused(format!("counter {slot}"), "counters", error))?;
            Ok(values.iter().sum())
        })
    }

    fn port_use(&self, port: u16) -> PortUse {
        self.uses.get(&port).copied().unwrap_or_default()
    }

    fn set_port_use(&mut self, port: u16, new: PortUse) -> Result<(), TableError> {
        if self.port_use(port).bits() != new.bits() {
            self.ports
                .set(u32::from(port), new.bits(), 0)
                .map_err(|error| refused(format!("port {port}"), "ports", error))?;
        }
        if new == PortUse::default() {
            self.uses.remove(&port);
        } else {
            self.uses.insert(port, new);
        }
        Ok(())
    }
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tables")
            .field("uses", &self.uses)
            .field("addresses", &self.addresses)
            .field("bound", &self.bound)
            .finish_non_exhaustive()
    }
}

/// `BPF_NOEXIST`: the kernel says whether the entry was there.
const NO_EXIST: u64 = 1;

/// Whether the entry is new.
fn add<K: aya::Pod>(
    map: &mut maps::HashMap<MapData, K, u8>,
    key: &K,
    what: impl Fn() -> String,
    table: &'static str,
) -> Result<bool, TableError> {
    match map.insert(key, 1, NO_EXIST) {
        Ok(()) => Ok(true),
        Err(error) => match os_error(&error) {
            Some(libc::EEXIST) => Ok(false),
            Some(libc::E2BIG) => Err(TableError::Full { what: what(), table }),
            _ => Err(refused(what(), table, error)),
        },
    }
}

/// Whether the entry was there.
fn remove<K: aya::Pod>(
    map: &mut maps::HashMap<MapData, K, u8>,
    key: &K,
    what: impl Fn() -> String,
    table: &'static str,
) -> Result<bool, TableError> {
    match map.remove(key) {
        Ok(()) => Ok(true),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(refused(what(), table, error)),
    }
}

fn is_absent(error: &MapError) -> bool {
    matches!(error, MapError::KeyNotFound | MapError::ElementNotFound)
        || os_error(error) == Some(libc::ENOENT)
}

fn refused(what: String, table: &'static str, error: MapError) -> TableError {
    let source = match os_error(&error) {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::other(error),
    };
    TableError::Refused { what, table, source }
}
