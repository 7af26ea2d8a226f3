//! Who receives.

use serde::{Deserialize, Serialize};

use crate::traffic::socket::Protocol;

/// A receiver that is measured.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Receiver {
    /// `mpxdp recv`.
    Mpxdp,
    /// The kernel's MPTCP behind the XDP front end.
    KernelMptcpXdp,
    /// The kernel's TCP behind the XDP front end.
    KernelTcpXdp,
    /// The kernel's MPTCP, as it is.
    KernelMptcp,
    /// The kernel's TCP, as it is.
    KernelTcp,
}

impl Receiver {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 5] =
        [Self::Mpxdp, Self::KernelMptcpXdp, Self::KernelTcpXdp, Self::KernelMptcp, Self::KernelTcp];

    /// Its name on the command line and in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mpxdp => "mpxdp",
            Self::KernelMptcp => "kernel-mptcp",
            Self::KernelTcp => "kernel-tcp",
            Self::KernelMptcpXdp => "kernel-mptcp-xdp",
            Self::KernelTcpXdp => "kernel-tcp-xdp",
        }
    }

    /// What the sender speaks to it.
    #[must_use]
    pub const fn protocol(self) -> Protocol {
        match self {
            Self::Mpxdp | Self::KernelMptcp | Self::KernelMptcpXdp => Protocol::Mptcp,
            Self::KernelTcp | Self::KernelTcpXdp => Protocol::Tcp,
        }
    }

    /// Whether it is the kernel behind a program that passes everything.
    #[must_use]
    pub const fn behind_front(self) -> bool {
        matches!(self, Self::KernelMptcpXdp | Self::KernelTcpXdp)
    }
}
