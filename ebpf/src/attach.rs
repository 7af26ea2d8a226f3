//! Attaching a program to an interface so that it leaves with the process.

use std::fmt;
use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use aya::programs::links::FdLink;
use aya::programs::{Xdp, XdpMode};

use crate::interface::{AttachedProgram, attached_programs, index_of};
use crate::object::{LoadError, describe, os_error};
use crate::{front, steering};

/// How a program should be attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AttachMode {
    /// In the driver, or not at all.
    Native,
    /// In the kernel's stack; works with every driver, slowly.
    Generic,
    /// In the driver if it can, else in the kernel's stack.
    #[default]
    Auto,
}

/// How a program is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachedMode {
    /// In the driver.
    Native,
    /// In the kernel's stack.
    Generic {
        /// Why not in the driver, if that was tried.
        native_refused: Option<String>,
    },
}

impl AttachedMode {
    /// The mode's stable name: `native` or `generic`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic { .. } => "generic",
        }
    }

    /// Why the driver did not take the program, if it was asked.
    pub fn native_refused(&self) -> Option<&str> {
        match self {
            Self::Native => None,
            Self::Generic { native_refused } => native_refused.as_deref(),
        }
    }
}

impl fmt::Display for AttachedMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Why a program could not be attached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// There is no such interface.
    #[error("{interface}: no such network interface; `ip link` lists them")]
    UnknownInterface {
        /// The name given.
        interface: String,
    },
    /// The interface carries an XDP program already.
    #[error(
        "{interface}: occupied by XDP program {} (id {program_id}, {hook} mode); stop what attached it, \
         or choose another interface",
        named(program_name)
    )]
    Occupied {
        /// The interface.
        interface: String,
        /// The program's name; empty if it has none.
        program_name: String,
        /// The kernel's id of it, as `bpftool prog` shows it.
        program_id: u32,
        /// Where it sits.
        hook: crate::Hook,
    },
    /// The driver did not take the program, and only native mode was allowed.
    #[error(
        "{interface}: native XDP refused: {reason}; choose automatic or generic mode, or change \
         what the driver objects to"
    )]
    NativeRefused {
        /// The interface.
        interface: String,
        /// The driver's reason.
        reason: String,
    },
    /// The kernel did not take the program in generic mode.
    #[error("{interface}: generic XDP refused: {reason}{}", after_native(native_refused.as_deref()))]
    GenericRefused {
        /// The interface.
        interface: String,
        /// The kernel's reason.
        reason: String,
        /// Why native mode had not worked before, if it was tried.
        native_refused: Option<String>,
    },
    /// The kernel can attach the program, but not so that it leaves with the process.
    #[error("{interface}: the kernel gives no BPF link for XDP; Linux 5.9 or later is needed")]
    NoLink {
        /// The interface.
        interface: String,
    },
    /// The process may not attach programs.
    #[error(
        "{interface}: not permitted to attach XDP programs; run as root, or with CAP_NET_ADMIN"
    )]
    NotPermitted {
        /// The interface.
        interface: String,
    },
    /// What the interface carries could not be found out.
    #[error("{interface}: cannot ask for its XDP programs: {source}")]
    Query {
        /// The interface.
        interface: String,
        /// The system's error.
        source: io::Error,
    },
    /// The program did not get into the kernel.
    #[error(transparent)]
    Load(#[from] LoadError),
}

fn named(name: &str) -> &str {
    if name.is_empty() { "without a name" } else { name }
}

fn after_native(reason: Option<&str>) -> String {
    reason.map(|reason| format!(" (native XDP before that: {reason})")).unwrap_or_default()
}

/// A program on an interface. Dropping it, or the death of the process, detaches.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) interface: String,
    pub(crate) index: u32,
    pub(crate) mode: AttachedMode,
    pub(crate) program_id: u32,
    /// Held for its drop, which closes the kernel's link.
    _link: FdLink,
}

impl Attachment {
    pub(crate) fn new(
        xdp: &mut Xdp,
        interface: &str,
        mode: AttachMode,
    ) -> Result<Self, AttachError> {
        let index = index_of(interface)
            .ok_or_else(|| AttachError::UnknownInterface { interface: interface.to_owned() })?;
        refuse_occupied(interface)?;
        let program_id = xdp
            .info()
            .map_err(|error| AttachError::Query {
                interface: interface.to_owned(),
                source: io::Error::other(error),
            })?
            .id();
        let (link, mode) = match mode {
            AttachMode::Native => (native(xdp, interface, index)?, AttachedMode::Native),
            AttachMode::Generic => (
                generic(xdp, interface, index, None)?,
                AttachedMode::Generic { native_refused: None },
            ),
            AttachMode::Auto => match native(xdp, interface, index) {
                Ok(link) => (link, AttachedMode::Native),
                Err(AttachError::NativeRefused { reason, .. }) => (
                    generic(xdp, interface, index, Some(&reason))?,
                    AttachedMode::Generic { native_refused: Some(reason) },
                ),
                Err(other) => return Err(other),
            },
        };
        Ok(Self { interface: interface.to_owned(), index, mode, program_id, _link: link })
    }
}

/// How long a program of ours that is on its way out is waited for, and how often it is looked at.
///
/// A link goes when the last descriptor of it is closed. The one of a killed process takes the
/// kernel a moment, and a child that another thread forks has a copy until it runs its program.
const LEAVING: Duration = Duration::from_millis(250);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

fn refuse_occupied(interface: &str) -> Result<(), AttachError> {
    let deadline = Instant::now() + LEAVING;
    loop {
        let programs = attached_programs(interface)
            .map_err(|source| AttachError::Query { interface: interface.to_owned(), source })?;
        let Some(AttachedProgram { id, name, hook }) = programs.into_iter().next() else {
            return Ok(());
        };
        let is_ours = [steering::PROGRAM, front::PROGRAM].contains(&name.as_str());
        if !is_ours || Instant::now() >= deadline {
            return Err(AttachError::Occupied {
                interface: interface.to_owned(),
                program_name: name,
                program_id: id,
                hook,
            });
        }
        thread::sleep(LOOK_AGAIN);
    }
}

fn native(xdp: &mut Xdp, interface: &str, index: u32) -> Result<FdLink, AttachError> {
    link(xdp, interface, index, XdpMode::Driver)?
        .map_err(|reason| AttachError::NativeRefused { interface: interface.to_owned(), reason })
}

fn generic(
    xdp: &mut Xdp,
    interface: &str,
    index: u32,
    native_refused: Option<&str>,
) -> Result<FdLink, AttachError> {
    link(xdp, interface, index, XdpMode::Skb)?.map_err(|reason| AttachError::GenericRefused {
        interface: interface.to_owned(),
        reason,
        native_refused: native_refused.map(str::to_owned),
    })
}

/// The link, or the reason why the interface does not take the program in this mode; an error where
/// another mode would not help.
fn link(
    xdp: &mut Xdp,
    interface: &str,
    index: u32,
    mode: XdpMode,
) -> Result<Result<FdLink, String>, AttachError> {
    let id = match xdp.attach_to_if_index(index, mode) {
        Ok(id) => id,
        Err(error) => {
            return match os_error(&error) {
                Some(libc::EPERM) => {
                    Err(AttachError::NotPermitted { interface: interface.to_owned() })
                }
                Some(libc::ENODEV) => {
                    Err(AttachError::UnknownInterface { interface: interface.to_owned() })
                }
                // Somebody was quicker than our question. If it is gone again, say what the
                // kernel said.
                Some(libc::EBUSY | libc::EEXIST) => {
                    refuse_occupied(interface)?;
                    Ok(Err(describe(&error)))
                }
                _ => Ok(Err(describe(&error))),
            };
        }
    };
    let no_link = || AttachError::NoLink { interface: interface.to_owned() };
    // Where the kernel refuses a link, aya attaches over netlink, and that would outlive us.
    let program_id = xdp.info().map_err(|_| no_link())?.id();
    if !holds_link(program_id) {
        xdp.detach(id).map_err(|_| no_link())?;
        return Err(no_link());
    }
    let link = xdp.take_link(id).map_err(|_| no_link())?;
    FdLink::try_from(link).map(Ok).map_err(|_| no_link())
}

/// Whether one of our descriptors is an XDP link of this program, as `/proc` shows it.
fn holds_link(program_id: u32) -> bool {
    let Ok(descriptors) = fs::read_dir("/proc/self/fdinfo") else { return false };
    descriptors.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok()).any(|info| {
        let field = |name: &str| {
            info.lines()
                .filter_map(|line| line.split_once(':'))
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.trim())
        };
        field("link_type") == Some("xdp")
            && field("prog_id").and_then(|id| id.parse().ok()) == Some(program_id)
    })
}
