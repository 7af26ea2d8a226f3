//! What can be found wrong before anything is attached.
//!
//! The engine makes sure of all this itself, but of the address only once it runs. Attaching to a
//! NIC can cost it its link for seconds, which a wrong address or port is not worth.

use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;

use mpxdp::{CpuList, Error, NicFacts};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, SockaddrIn6, bind, setsockopt, socket, sockopt,
};

use crate::cli::RecvSettings;
use crate::failure::Failure;
use crate::privileges;

/// Looks at the machine and changes nothing.
///
/// # Errors
///
/// The first thing that is wrong.
pub(super) fn check(args: &RecvSettings) -> Result<(), Failure> {
    check_cpus(&args.placement.reader)?;
    let nics = args
        .nics
        .iter()
        .map(|nic| NicFacts::read(nic.name()))
        .collect::<Result<Vec<_>, Error>>()?;
    if let Some(nic) = nics.iter().find(|nic| !nic.up) {
        return Err(Error::NicDown { nic: nic.name.clone() }.into());
    }
    let names: Vec<_> = nics.iter().map(|nic| nic.name.as_str()).collect();
    let names = names.join(", ");
    let address = args.listen.ip();
    if !address.is_unspecified() && !nics.iter().any(|nic| nic.addresses.contains(&address)) {
        return Err(Error::AddressNotLocal { address, nics: names }.into());
    }
    if let SocketAddr::V6(at) = args.listen
        && at.scope_id() != 0
        && !nics.iter().any(|nic| nic.is_scope(at.scope_id()))
    {
        return Err(Failure::usage(format!(
            "--listen {at}: that link is none of {names} or of a VLAN on it; name one of them"
        )));
    }
    check_port(args.listen)?;
    privileges::check(&format!("{names}: receiving on AF_XDP"))
}

/// A wish for CPUs that cannot be granted.
fn check_cpus(wanted: &CpuList) -> Result<(), Failure> {
    match wanted.first_unusable()? {
        Some(cpu) => Err(Failure::usage(format!(
            "--placement reader={cpu}: this process may not use that CPU; it may use {}",
            CpuList::allowed()?
        ))),
        None => Ok(()),
    }
}

/// A port that is taken by a socket of the kernel, or that may not be taken.
fn check_port(at: SocketAddr) -> Result<(), Failure> {
    match probe(at) {
        Err(Errno::EADDRINUSE) => Err(Error::AddressInUse { at }.into()),
        Err(Errno::EACCES) => Err(Failure::runtime(format!(
            "{at}: listening below port 1024 is not permitted, CAP_NET_BIND_SERVICE is missing; \
             run it as root, or choose another port"
        ))),
        // Whatever else there is, the engine finds it too, and says more about it.
        _ => Ok(()),
    }
}

/// Binds a socket of the kernel, and lets go of it at once.
fn probe(at: SocketAddr) -> nix::Result<()> {
    let family = if at.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    // Only sockets that listen are in the way, not what is left of former connections.
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    match at {
        SocketAddr::V4(at) => bind(socket.as_raw_fd(), &SockaddrIn::from(at)),
        SocketAddr::V6(at) => {
            setsockopt(&socket, sockopt::Ipv6V6Only, &true)?;
            bind(socket.as_raw_fd(), &SockaddrIn6::from(at))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_port_with_a_kernel_listener_is_taken_and_is_free_afterwards() {
        for address in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                eprintln!("skipped {address}: this machine does not have it");
                continue;
            };
            let at = listener.local_addr().unwrap();
            let failure = check_port(at).unwrap_err();
            assert!(failure.to_string().contains("the port is taken"), "{failure}");
            drop(listener);
            check_port(at).unwrap();
        }
    }

    #[test]
    fn a_cpu_that_may_not_be_used_is_named() {
        let failure = check_cpus(&CpuList::from_iter([4095])).unwrap_err();
        assert!(failure.to_string().contains("4095"), "{failure}");
        check_cpus(&CpuList::allowed().unwrap()).unwrap();
        check_cpus(&CpuList::default()).unwrap();
    }
}
