//! What only ethtool's ioctl tells about an interface.

use std::io;
use std::os::fd::AsRawFd as _;
use std::ptr;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

/// `ETHTOOL_GFLAGS`: asks for the flags below.
const GET_FLAGS: u32 = 0x25;

/// `ETH_FLAG_RXVLAN`: the interface takes VLAN tags out of received frames.
const RX_VLAN: u32 = 1 << 8;

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Whether the interface takes VLAN tags out of received frames (`ethtool -k` calls it
/// rx-vlan-offload), so that an XDP program does not see them.
///
/// # Errors
///
/// What the kernel said.
pub(super) fn strips_vlan_tags(interface: &str) -> io::Result<bool> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let mut value = Value { command: GET_FLAGS, data: 0 };
    let mut name = [0; libc::IFNAMSIZ];
    // The last byte stays zero; no interface has a longer name.
    for (to, from) in name[..libc::IFNAMSIZ - 1].iter_mut().zip(interface.as_bytes()) {
        *to = from.cast_signed() as libc::c_char;
    }
    let mut request = libc::ifreq {
        ifr_name: name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: ptr::from_mut(&mut value).cast() },
    };
    // SAFETY: the request names an interface and points to a `struct ethtool_value`, which is what
    // the command reads and writes; both outlive the call.
    let result =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(value.data & RX_VLAN != 0)
}
