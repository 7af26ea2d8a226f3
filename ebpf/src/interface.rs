//! Which XDP programs an interface carries, asked over rtnetlink.

use std::fmt;
use std::io;
use std::os::fd::AsRawFd;

use aya::programs::loaded_programs;
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

/// Where on an interface an XDP program sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Hook {
    /// In the driver.
    Native,
    /// In the kernel's stack, on socket buffers.
    Generic,
    /// On the NIC itself.
    Offloaded,
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Native => "native",
            Self::Generic => "generic",
            Self::Offloaded => "offloaded",
        })
    }
}

/// An XDP program that an interface carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedProgram {
    /// The kernel's id of the program, as `bpftool prog` shows it.
    pub id: u32,
    /// The program's name, at most 15 characters; empty if it has none, or if we may not ask.
    pub name: String,
    /// Where it sits.
    pub hook: Hook,
}

/// The kernel's index of an interface, by its name or one of its alternative names.
pub(crate) fn index_of(interface: &str) -> Option<u32> {
    if_nametoindex(interface).ok()
}

/// The XDP programs attached to `interface` now.
///
/// # Errors
///
/// The system's: `ENODEV` if there is no such interface, and whatever rtnetlink returns.
pub fn attached_programs(interface: &str) -> io::Result<Vec<AttachedProgram>> {
    let index = index_of(interface).ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
    let mut programs = Vec::new();
    for (id, hook) in attached_ids(index)? {
        programs.push(AttachedProgram { id, name: program_name(id), hook });
    }
    Ok(programs)
}

/// A name is a convenience: where the kernel does not let us look, the id has to do.
fn program_name(id: u32) -> String {
    loaded_programs()
        .filter_map(Result::ok)
        .find(|program| program.id() == id)
        .map(|program| String::from_utf8_lossy(program.name()).into_owned())
        .unwrap_or_default()
}

// rtnetlink's numbers, from <linux/if_link.h>.
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;
const IFLA_XDP_HW_PROG_ID: u16 = 7;
const XDP_ATTACHED_SKB: u8 = 2;
const XDP_ATTACHED_HW: u8 = 3;

/// The two high bits of an attribute's type are flags.
const ATTRIBUTE_TYPE: u16 = 0x3fff;
/// `struct nlmsghdr`.
const HEADER: usize = 16;
/// `struct ifinfomsg`.
const LINK_HEADER: usize = 16;
/// A link's description with its statistics and up to dozens of virtual functions.
const ANSWER: usize = 64 * 1024;

fn attached_ids(index: u32) -> io::Result<Vec<(u32, Hook)>> {
    let route = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    let length = HEADER + LINK_HEADER;
    let mut request = Vec::with_capacity(length);
    request.extend_from_slice(&u32::try_from(length).unwrap_or(0).to_ne_bytes());
    request.extend_from_slice(&libc::RTM_GETLINK.to_ne_bytes());
    request.extend_from_slice(&u16::try_from(libc::NLM_F_REQUEST).unwrap_or(1).to_ne_bytes());
    request.extend_from_slice(&1_u32.to_ne_bytes()); // sequence
    request.extend_from_slice(&0_u32.to_ne_bytes()); // port: the kernel fills it
    request.extend_from_slice(&[0; 4]); // family: any; device type
    request.extend_from_slice(&index.to_ne_bytes());
    request.extend_from_slice(&[0; 8]); // flags and their mask
    send(route.as_raw_fd(), &request, MsgFlags::empty())?;

    let mut answer = vec![0; ANSWER];
    let received = loop {
        match recv(route.as_raw_fd(), &mut answer, MsgFlags::empty()) {
            Err(Errno::EINTR) => {}
            other => break other?,
        }
    };
    programs_of_answer(&answer[..received])
}

fn programs_of_answer(answer: &[u8]) -> io::Result<Vec<(u32, Hook)>> {
    let unexpected = || io::Error::new(io::ErrorKind::InvalidData, "unexpected rtnetlink answer");
    let kind = read_u16(answer, 4).ok_or_else(unexpected)?;
    if i32::from(kind) == libc::NLMSG_ERROR {
        let error = read_u32(answer, HEADER).ok_or_else(unexpected)?;
        return Err(io::Error::from_raw_os_error(error.cast_signed().wrapping_neg()));
    }
    if kind != libc::RTM_NEWLINK {
        return Err(unexpected());
    }
    let attributes = answer.get(HEADER + LINK_HEADER..).ok_or_else(unexpected)?;
    let Some((_, xdp)) = Attributes(attributes).find(|&(kind, _)| kind == IFLA_XDP) else {
        return Ok(Vec::new());
    };

    let mut programs = Vec::new();
    let mut any = None;
    let mut attached = 0;
    for (kind, value) in Attributes(xdp) {
        let hook = match kind {
            IFLA_XDP_DRV_PROG_ID => Hook::Native,
            IFLA_XDP_SKB_PROG_ID => Hook::Generic,
            IFLA_XDP_HW_PROG_ID => Hook::Offloaded,
            IFLA_XDP_PROG_ID => {
                any = read_u32(value, 0);
                continue;
            }
            IFLA_XDP_ATTACHED => {
                attached = value.first().copied().unwrap_or(0);
                continue;
            }
            _ => continue,
        };
        if let Some(id) = read_u32(value, 0).filter(|&id| id != 0) {
            programs.push((id, hook));
        }
    }
    // With one program some kernels name only the id and how it is attached.
    if let (true, Some(id)) = (programs.is_empty(), any.filter(|&id| id != 0)) {
        let hook = match attached {
            XDP_ATTACHED_SKB => Hook::Generic,
            XDP_ATTACHED_HW => Hook::Offloaded,
            _ => Hook::Native,
        };
        programs.push((id, hook));
    }
    Ok(programs)
}

/// The attributes of a netlink message: length, type, value, padded to four octets.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(read_u16(self.0, 0)?);
        let kind = read_u16(self.0, 2)? & ATTRIBUTE_TYPE;
        let value = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}
