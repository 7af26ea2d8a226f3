//! What is checked where.

mod table;

use std::fmt;
use std::time::Duration;

pub(crate) use table::GUESTS;

/// A machine to boot, and what to check in it.
#[derive(Debug)]
pub(crate) struct Guest {
    /// Its name: in the summary, in file names and on the guest's kernel command line.
    pub(crate) name: &'static str,
    /// The kernel it runs.
    pub(crate) kernel: Kernel,
    /// Its NICs: four of a kind, two for the receiver and two for the sender.
    pub(crate) nic: Nic,
    /// How many queues each NIC has.
    pub(crate) queues: u32,
    /// What to check, in order.
    pub(crate) checks: &'static [Check],
}

/// A kernel, by the Debian release that it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kernel {
    /// 6.1, of Debian 12.
    Bookworm,
    /// 6.12, of Debian 13.
    Trixie,
    /// The newest there is.
    Unstable,
}

/// A NIC that qemu models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nic {
    /// virtio-net as qemu has it by default: the driver copies.
    Virtio,
    /// virtio-net whose memory accesses the kernel may translate, which its zero copy needs.
    VirtioIommu,
    /// Intel 82576.
    Igb,
    /// Intel 82574L.
    E1000e,
    /// VMware's.
    Vmxnet3,
}

/// A thing to check.
#[derive(Debug)]
pub(crate) enum Check {
    /// A stream from the kernel's MPTCP to `mpxdp recv`, compared with what was sent.
    Transfer(Transfer),
    /// The receiver is killed in the middle of it, started again at once, and sent all of it.
    Kill(Transfer),
    /// The same transfer with these numbers of queues, one after the other.
    Queues(Transfer, &'static [u32]),
    /// The tests of the XDP program, its loader and AF_XDP ports, on this kernel.
    Bpf,
}

/// A build of our programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Build {
    /// As users get it.
    Release,
    /// Release with debug assertions (frames, claims) and overflow checks.
    Checked,
}

/// The build of the program that sends.
pub(crate) const SENDER_BUILD: Build = Build::Checked;

/// Which row of the validation matrix a check belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Row {
    /// The release build.
    Normal,
    /// The build that checks itself.
    Debug,
    /// The XDP program's tests.
    Btf,
}

/// A mode of `mpxdp recv`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// What works best.
    Auto,
    /// Native XDP with zero copy.
    ZeroCopy,
    /// Native XDP with a copy.
    Copy,
    /// Generic XDP.
    Skb,
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// What comes of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Packets came zero-copy.
    ZeroCopy,
    /// Packets came by native XDP, with a copy.
    Copy,
    /// Packets came by generic XDP.
    Generic,
    /// Nothing was attached; `mpxdp` ended with an exit code and these words in its message.
    Refused(u8, &'static str),
}

/// A transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    /// Which of our builds receives.
    pub(crate) build: Build,
    /// The mode asked for.
    pub(crate) mode: Mode,
    /// What must come of it.
    pub(crate) outcome: Outcome,
    /// MTU of all NICs.
    pub(crate) mtu: u32,
    /// What it runs over.
    pub(crate) family: Family,
    /// The VLAN that all of it is in.
    pub(crate) vlan: Option<u16>,
    /// Subflows of each connection; the NICs take turns.
    pub(crate) subflows: u32,
    /// Connections at once.
    pub(crate) connections: u32,
    /// Bytes of each connection. With several subflows the sender takes its time, so that the joins
    /// come before the end.
    pub(crate) bytes: u64,
    /// What `tc netem` does to the sender's packets.
    pub(crate) netem: Option<&'static str>,
    /// Whether the receiver's NICs take VLAN tags out of frames, where they can.
    pub(crate) strip: bool,
    /// Which queues of the first NIC the connections come in on.
    pub(crate) spread: Spread,
}

/// How a NIC spreads connections over its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// As it likes.
    Any,
    /// By a hash (RSS): every queue must bring some.
    All,
    /// By a table that has been set (`ethtool -X`): the last queue brings all.
    Last,
}

impl Guest {
    /// The guest of that name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        GUESTS.iter().find(|guest| guest.name == name)
    }
}

impl Kernel {
    /// The Debian release.
    pub(crate) const fn suite(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
            Self::Unstable => "sid",
        }
    }

    /// Whether its AF_XDP sockets take packets of several buffers, as they do since Linux 6.6.
    pub(crate) const fn takes_several_buffers(self) -> bool {
        !matches!(self, Self::Bookworm)
    }

    /// Whether it says which AF_XDP sockets there are. Debian 12's is built without it.
    pub(crate) const fn tells_sockets(self) -> bool {
        !matches!(self, Self::Bookworm)
    }
}

impl Nic {
    /// The kernel's driver.
    pub(crate) const fn driver(self) -> &'static str {
        match self {
            Self::Virtio | Self::VirtioIommu => "virtio_net",
            Self::Igb => "igb",
            Self::E1000e => "e1000e",
            Self::Vmxnet3 => "vmxnet3",
        }
    }

    /// Whether it has no hardware to model.
    pub(crate) const fn is_virtio(self) -> bool {
        matches!(self, Self::Virtio | Self::VirtioIommu)
    }

    /// The first version of qemu that has it.
    pub(crate) const fn needs_qemu(self) -> u32 {
        match self {
            Self::Igb => 8,
            _ => 0,
        }
    }

    /// Whether the small kernel for virtual machines has the driver.
    pub(crate) const fn in_cloud_kernel(self) -> bool {
        !matches!(self, Self::Igb | Self::E1000e)
    }
}

impl Build {
    /// Cargo's profile.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Checked => "checked",
        }
    }
}

impl Check {
    /// The build that it needs, if it runs our programs.
    pub(crate) const fn build(&self) -> Option<Build> {
        match self {
            Self::Transfer(transfer) | Self::Kill(transfer) | Self::Queues(transfer, _) => {
                Some(transfer.build)
            }
            Self::Bpf => None,
        }
    }

    /// The row of the matrix.
    pub(crate) const fn row(&self) -> Row {
        match self.build() {
            Some(Build::Release) => Row::Normal,
            Some(Build::Checked) => Row::Debug,
            None => Row::Btf,
        }
    }

    /// How long it may take before the guest counts as hung. The guest's own limits are shorter.
    pub(crate) const fn limit(&self) -> Duration {
        match self {
            Self::Transfer(_) => Duration::from_secs(240),
            Self::Kill(_) => Duration::from_secs(420),
            Self::Queues(..) | Self::Bpf => Duration::from_secs(600),
        }
    }
}

impl Row {
    /// In the order of the summary.
    pub(crate) const ALL: [Self; 3] = [Self::Normal, Self::Debug, Self::Btf];
}

impl Mode {
    /// The value of `--mode`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::ZeroCopy => "zerocopy",
            Self::Copy => "copy",
            Self::Skb => "skb",
        }
    }
}

impl fmt::Display for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.queues == 1 { "" } else { "s" };
        write!(f, "{}: {}, {} queue{plural}", self.name, self.nic.driver(), self.queues)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Normal => "normal",
            Self::Debug => "debug",
            Self::Btf => "btf",
        })
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transfer(transfer) => transfer.fmt(f),
            Self::Kill(transfer) => write!(f, "{transfer}; after SIGKILL"),
            Self::Queues(transfer, queues) => write!(f, "{transfer}; with queues {queues:?}"),
            Self::Bpf => f.write_str("tests of the XDP program"),
        }
    }
}

impl fmt::Display for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "recv --mode {}, MTU {}", self.mode.name(), self.mtu)?;
        f.write_str(match self.family {
            Family::V4 => ", IPv4",
            Family::V6 => ", IPv6",
        })?;
        if self.vlan.is_some() {
            f.write_str(", VLAN")?;
        }
        if self.strip {
            f.write_str(" taken out by the NIC")?;
        }
        if self.subflows > 1 {
            write!(f, ", {} subflows", self.subflows)?;
        }
        if self.connections > 1 {
            write!(f, ", {} connections", self.connections)?;
        }
        f.write_str(match self.spread {
            Spread::Any => "",
            Spread::All => " over all queues",
            Spread::Last => " steered to the last queue",
        })?;
        if let Some(netem) = self.netem {
            write!(f, ", {netem}")?;
        }
        match self.outcome {
            Outcome::ZeroCopy => f.write_str(": zero copy"),
            Outcome::Copy => f.write_str(": native, copy"),
            Outcome::Generic => f.write_str(": generic"),
            Outcome::Refused(..) => f.write_str(": refused"),
        }
    }
}
