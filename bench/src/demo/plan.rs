//! Who receives, and where.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::traffic::socket::Protocol;

/// A receiver that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Receiver {
    /// `mpxdp recv`.
    Mpxdp,
    /// The kernel's MPTCP, as it is.
    KernelMptcp,
    /// The kernel's TCP, as it is.
    KernelTcp,
    /// The kernel's MPTCP behind the XDP front end.
    KernelMptcpXdp,
    /// The kernel's TCP behind the XDP front end.
    KernelTcpXdp,
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

/// Where the parts of a receiver run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The CPU that the sender is pinned to.
    pub sender: usize,
    /// The CPU of the NIC's receive processing, in a thread of its own; none: in the sender's
    /// context, as veth does by itself.
    pub napi: Option<usize>,
    /// The CPU of mpxdp's worker; none for a receiver in the kernel, which has none.
    pub worker: Option<usize>,
    /// The CPU of the reading thread.
    pub reader: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.napi {
            Some(cpu) => write!(f, "napi={cpu}")?,
            None => f.write_str("napi=sender")?,
        }
        if let Some(cpu) = self.worker {
            write!(f, " worker={cpu}")?;
        }
        write!(f, " reader={}", self.reader)
    }
}

/// The placements worth trying for a receiver on these CPUs. The sender has the first one; with
/// several, nothing of the receiver but the NIC's processing runs there, which would only measure
/// how the scheduler shares it out.
#[must_use]
pub fn places(receiver: Receiver, cpus: &[usize]) -> Vec<Place> {
    let Some((&sender, others)) = cpus.split_first() else { return Vec::new() };
    let place = |napi, worker, reader| Place {
        sender,
        napi,
        worker: (receiver == Receiver::Mpxdp).then_some(worker),
        reader,
    };
    match *others {
        [] => vec![place(None, sender, sender)],
        [a] => vec![place(None, a, a), place(Some(a), a, a)],
        [a, b, ..] => {
            let mut all = vec![place(None, a, a), place(Some(a), a, a), place(Some(b), a, a)];
            if receiver == Receiver::Mpxdp {
                all.push(place(None, a, b));
                if let Some(&c) = others.get(2) {
                    all.push(place(Some(b), a, c));
                }
            }
            all
        }
    }
}

/// The order of a round: each starts with another receiver, so that none always comes first.
#[must_use]
pub fn order<T: Copy>(items: &[T], round: usize) -> Vec<T> {
    let mut items = items.to_vec();
    if !items.is_empty() {
        let by = round % items.len();
        items.rotate_left(by);
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sender_keeps_its_cpu_where_there_are_others() {
        for count in 2..6 {
            let cpus: Vec<usize> = (3..3 + count).collect();
            for receiver in Receiver::ALL {
                let places = places(receiver, &cpus);
                assert!(places.len() >= 2);
                for (n, place) in places.iter().enumerate() {
                    assert_eq!(place.sender, 3);
                    assert_ne!(place.reader, 3);
                    assert_ne!(place.worker, Some(3));
                    assert_eq!(place.worker.is_some(), receiver == Receiver::Mpxdp);
                    assert!(!places[..n].contains(place), "{place} twice");
                }
            }
        }
        assert_eq!(places(Receiver::KernelTcp, &[7]).len(), 1);
    }

    #[test]
    fn placements_are_written_as_the_command_line_has_them() {
        let [first, second] = places(Receiver::Mpxdp, &[0, 1])[..] else { panic!("two") };
        assert_eq!(first.to_string(), "napi=sender worker=1 reader=1");
        assert_eq!(second.to_string(), "napi=1 worker=1 reader=1");
        assert_eq!(places(Receiver::KernelTcp, &[0, 1])[0].to_string(), "napi=sender reader=1");
    }

    #[test]
    fn every_receiver_comes_first_once_in_as_many_rounds() {
        let firsts: std::collections::HashSet<_> =
            (0..5).map(|round| order(&Receiver::ALL, round)[0]).collect();
        assert_eq!(firsts.len(), 5);
        assert!(order::<u8>(&[], 3).is_empty());
    }
}
