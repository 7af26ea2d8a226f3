//! The few system calls that neither the standard library nor nix offers. All `unsafe` of this
//! crate is here, in the packet sockets of `relay::socket`, and in the hook between fork and exec in
//! `lab::process`.

use std::io;
use std::mem::{size_of, size_of_val};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// `IPPROTO_MPTCP`.
const IPPROTO_MPTCP: libc::c_int = 262;
/// The level of MPTCP's own socket options.
const SOL_MPTCP: libc::c_int = 284;
/// The option that returns `struct mptcp_info`.
const MPTCP_INFO: libc::c_int = 1;

/// Makes a stream socket: MPTCP's or TCP's, IPv4 or IPv6.
pub(crate) fn stream_socket(ipv6: bool, mptcp: bool) -> io::Result<OwnedFd> {
    let family = if ipv6 { libc::AF_INET6 } else { libc::AF_INET };
    let protocol = if mptcp { IPPROTO_MPTCP } else { libc::IPPROTO_TCP };
    // SAFETY: no pointer is passed.
    let fd = unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, protocol) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above returned a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The head of the kernel's `struct mptcp_info`; newer kernels append to it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct MptcpInfo {
    pub(crate) subflows: u8,
    add_addr_signal: u8,
    add_addr_accepted: u8,
    subflows_max: u8,
    add_addr_signal_max: u8,
    add_addr_accepted_max: u8,
    pub(crate) flags: u32,
    pub(crate) token: u32,
    write_seq: u64,
    snd_una: u64,
    rcv_nxt: u64,
    local_addr_used: u8,
    local_addr_max: u8,
    pub(crate) csum_enabled: u8,
    pub(crate) retransmits: u32,
}

/// Reads MPTCP's state of a socket. The kernel refuses for a TCP socket and for an MPTCP socket
/// that fell back to TCP.
pub(crate) fn mptcp_info(socket: BorrowedFd<'_>) -> io::Result<MptcpInfo> {
    let mut info = MptcpInfo::default();
    let mut length = size_of::<MptcpInfo>() as libc::socklen_t;
    // SAFETY: `info` is plain old data of at least `length` bytes that outlives the call, and the
    // kernel writes no more than `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            SOL_MPTCP,
            MPTCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(info) }
}

/// The option that returns `struct tcp_info` of every subflow.
const MPTCP_TCPINFO: libc::c_int = 2;

/// The head of the kernel's `struct tcp_info`; newer kernels append to it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TcpInfo {
    pub(crate) state: u8,
    _bytes: [u8; 7],
    _words: [u32; 23],
    pub(crate) total_retransmissions: u32,
}

impl TcpInfo {
    /// `TCP_ESTABLISHED`.
    pub(crate) const ESTABLISHED: u8 = 1;
}

/// Reads the state of a TCP socket.
pub(crate) fn tcp_info(socket: BorrowedFd<'_>) -> io::Result<TcpInfo> {
    let mut info = TcpInfo::default();
    let mut length = size_of::<TcpInfo>() as libc::socklen_t;
    // SAFETY: `info` is plain old data of at least `length` bytes that outlives the call, and the
    // kernel writes no more than `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(info) }
}

/// As many subflows as a connection is asked about; the kernel's path manager makes no more.
const MOST_SUBFLOWS: usize = 16;

/// The kernel's `struct mptcp_subflow_data`, and behind it what it writes of each subflow.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct SubflowInfos {
    size_of_head: u32,
    subflows: u32,
    size_in_kernel: u32,
    size_in_user: u32,
    infos: [TcpInfo; MOST_SUBFLOWS],
}

/// Reads the state of all subflows of an MPTCP socket.
pub(crate) fn subflow_infos(socket: BorrowedFd<'_>) -> io::Result<Vec<TcpInfo>> {
    let mut all = SubflowInfos {
        size_of_head: 16,
        size_in_user: size_of::<TcpInfo>() as u32,
        ..SubflowInfos::default()
    };
    let mut length = size_of::<SubflowInfos>() as libc::socklen_t;
    // SAFETY: `all` is plain old data of at least `length` bytes that outlives the call, and the
    // kernel writes no more than `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            SOL_MPTCP,
            MPTCP_TCPINFO,
            (&raw mut all).cast(),
            &raw mut length,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let known = (all.subflows as usize).min(MOST_SUBFLOWS);
    Ok(all.infos[..known].to_vec())
}

/// One instruction of the kernel's BPF machine.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instruction {
    pub(crate) code: u8,
    /// Destination in the low four bits, source in the high four.
    pub(crate) registers: u8,
    pub(crate) offset: i16,
    pub(crate) immediate: i32,
}

/// The part of `union bpf_attr` that BPF_PROG_LOAD needs.
#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buffer: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    expected_attach_type: u32,
}

/// The part of `union bpf_attr` that BPF_PROG_ATTACH needs.
#[repr(C)]
#[derive(Default)]
struct ProgramAttach {
    target_interface: u32,
    program: u32,
    attach_type: u32,
    flags: u32,
    replaced: u32,
    relative: u32,
    expected_revision: u64,
}

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_ATTACH: libc::c_int = 8;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;

/// Where a traffic control program sits on an interface.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hook {
    /// After XDP, before the stack.
    Ingress,
    /// After the stack, before the driver.
    Egress,
}

/// Loads a traffic control program.
pub(crate) fn load_classifier(name: &str, program: &[Instruction]) -> io::Result<OwnedFd> {
    let mut attributes = ProgramLoad {
        program_type: BPF_PROG_TYPE_SCHED_CLS,
        instruction_count: u32::try_from(program.len()).map_err(io::Error::other)?,
        instructions: program.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        ..ProgramLoad::default()
    };
    for (to, from) in attributes.name.iter_mut().take(15).zip(name.bytes()) {
        *to = from;
    }
    let fd = bpf(BPF_PROG_LOAD, &attributes)?;
    // SAFETY: the kernel just returned this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Attaches a traffic control program to an interface of this thread's namespace. It stays until
/// the interface goes.
pub(crate) fn attach_classifier(
    interface: u32,
    hook: Hook,
    program: BorrowedFd<'_>,
) -> io::Result<()> {
    let attributes = ProgramAttach {
        target_interface: interface,
        program: program.as_raw_fd().cast_unsigned(),
        attach_type: match hook {
            Hook::Ingress => 46,
            Hook::Egress => 47,
        },
        ..ProgramAttach::default()
    };
    bpf(BPF_PROG_ATTACH, &attributes).map(|_| ())
}

/// The bpf system call.
fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<RawFd> {
    // SAFETY: `attributes` is a prefix of the kernel's `union bpf_attr` for this command, valid for
    // the stated number of bytes; the pointers in it are to slices that the callers keep alive.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of_val(attributes),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    RawFd::try_from(result).map_err(io::Error::other)
}

/// Clock ticks a second, the unit of /proc/stat.
pub(crate) fn ticks_per_second() -> f64 {
    // SAFETY: no pointer is passed.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if ticks > 0 { ticks as f64 } else { 100.0 }
}

/// Lets a blocking read of a socket poll the queue that its packets come in on, for so long
/// (`SO_BUSY_POLL`).
pub(crate) fn set_busy_poll(socket: BorrowedFd<'_>, microseconds: u32) -> io::Result<()> {
    let value = libc::c_int::try_from(microseconds).map_err(io::Error::other)?;
    // SAFETY: the option takes an int, and `value` is one that outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BUSY_POLL,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The kernel's number of the queue that a socket's last packet came in on (`SO_INCOMING_NAPI_ID`);
/// 0 if it knows none.
pub(crate) fn incoming_napi_id(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut id: libc::c_uint = 0;
    let mut length = size_of::<libc::c_uint>() as libc::socklen_t;
    // SAFETY: the option gives an unsigned int, and `id` is one, of `length` bytes, that outlives
    // the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_INCOMING_NAPI_ID,
            (&raw mut id).cast(),
            &raw mut length,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(id) }
}
