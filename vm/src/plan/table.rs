//! The table.

use super::{Build, Check, Family, Guest, Kernel, Mode, Nic, Outcome, Spread, Transfer};

/// What the transfers below differ from. More packets than a queue has buffers, so that each buffer
/// is used again.
const PLAIN: Transfer = Transfer {
    build: Build::Checked,
    mode: Mode::Auto,
    outcome: Outcome::Copy,
    mtu: 1500,
    family: Family::V4,
    vlan: None,
    strip: false,
    subflows: 1,
    connections: 1,
    bytes: 8 << 20,
    netem: None,
    spread: Spread::Any,
};

/// Where what is looked at does not take many packets.
const SHORT: Transfer = Transfer { bytes: 1 << 20, ..PLAIN };

/// In the mode that is expected, and no other.
const COPY: Transfer = Transfer { mode: Mode::Copy, ..SHORT };
const SKB: Transfer = Transfer { mode: Mode::Skb, outcome: Outcome::Generic, ..SHORT };
const ZERO_COPY: Transfer = Transfer { mode: Mode::ZeroCopy, outcome: Outcome::ZeroCopy, ..SHORT };
const NO_ZERO_COPY: Transfer = Transfer {
    mode: Mode::ZeroCopy,
    outcome: Outcome::Refused(2, "zerocopy mode does not work here"),
    ..SHORT
};

/// A bad link, slow enough that packets pile up and fast enough to be quick.
const BAD_LINK: &str = "delay 5ms 2ms loss 1% duplicate 1%";

/// All guests, the shortest first.
pub(crate) const GUESTS: &[Guest] = &[
    Guest {
        name: "trixie-virtio",
        kernel: Kernel::Trixie,
        nic: Nic::VirtioIommu,
        queues: 1,
        checks: &[
            Check::Transfer(Transfer { bytes: PLAIN.bytes, build: Build::Release, ..COPY }),
            Check::Transfer(PLAIN),
            Check::Transfer(NO_ZERO_COPY),
            Check::Transfer(SKB),
            Check::Transfer(Transfer { mtu: 9000, family: Family::V6, ..COPY }),
            Check::Transfer(Transfer { vlan: Some(100), ..COPY }),
            Check::Transfer(Transfer { subflows: 4, netem: Some(BAD_LINK), ..COPY }),
            Check::Kill(COPY),
            Check::Bpf,
        ],
    },
    Guest {
        name: "trixie-virtio-queues",
        kernel: Kernel::Trixie,
        nic: Nic::Virtio,
        queues: 4,
        checks: &[
            Check::Transfer(Transfer {
                connections: 24,
                spread: Spread::All,
                bytes: 1 << 18,
                ..COPY
            }),
            Check::Queues(Transfer { subflows: 2, ..COPY }, &[1, 3, 4]),
        ],
    },
    Guest {
        name: "unstable-virtio",
        kernel: Kernel::Unstable,
        nic: Nic::VirtioIommu,
        queues: 1,
        checks: &[
            Check::Transfer(Transfer { build: Build::Release, bytes: PLAIN.bytes, ..ZERO_COPY }),
            Check::Transfer(Transfer { mode: Mode::Auto, bytes: PLAIN.bytes, ..ZERO_COPY }),
            Check::Transfer(COPY),
            Check::Transfer(SKB),
            Check::Transfer(Transfer { family: Family::V6, ..ZERO_COPY }),
            Check::Transfer(Transfer { vlan: Some(4094), ..ZERO_COPY }),
            Check::Transfer(Transfer { mtu: 9000, ..COPY }),
            Check::Transfer(Transfer { mtu: 9000, ..SHORT }),
            Check::Transfer(Transfer {
                mtu: 9000,
                outcome: Outcome::Refused(2, "for an MTU of 9000"),
                ..ZERO_COPY
            }),
            Check::Transfer(Transfer { subflows: 3, family: Family::V6, ..ZERO_COPY }),
            Check::Transfer(Transfer { subflows: 4, netem: Some(BAD_LINK), ..ZERO_COPY }),
            Check::Kill(ZERO_COPY),
            Check::Bpf,
        ],
    },
    Guest {
        name: "unstable-virtio-queues",
        kernel: Kernel::Unstable,
        nic: Nic::VirtioIommu,
        queues: 4,
        checks: &[
            Check::Transfer(Transfer {
                connections: 24,
                spread: Spread::All,
                bytes: 1 << 18,
                ..ZERO_COPY
            }),
            Check::Queues(Transfer { build: Build::Release, subflows: 2, ..ZERO_COPY }, &[1, 3, 4]),
            Check::Transfer(Transfer { subflows: 4, mtu: 9000, vlan: Some(7), ..COPY }),
            Check::Kill(Transfer { subflows: 4, ..ZERO_COPY }),
        ],
    },
    Guest {
        name: "unstable-virtio-plain",
        kernel: Kernel::Unstable,
        nic: Nic::Virtio,
        queues: 1,
        checks: &[Check::Transfer(NO_ZERO_COPY), Check::Transfer(SHORT)],
    },
    Guest {
        name: "bookworm-virtio",
        kernel: Kernel::Bookworm,
        nic: Nic::VirtioIommu,
        queues: 1,
        checks: &[
            Check::Transfer(Transfer { build: Build::Release, ..COPY }),
            Check::Transfer(Transfer { subflows: 2, family: Family::V6, ..SHORT }),
            Check::Transfer(SKB),
            Check::Transfer(NO_ZERO_COPY),
            Check::Transfer(Transfer {
                mtu: 9000,
                outcome: Outcome::Refused(2, "lower it with `ip link set rcv0 mtu"),
                ..SHORT
            }),
            Check::Kill(COPY),
            Check::Bpf,
        ],
    },
    Guest {
        name: "unstable-igb",
        kernel: Kernel::Unstable,
        nic: Nic::Igb,
        queues: 2,
        checks: &[
            Check::Transfer(Transfer { build: Build::Release, ..ZERO_COPY }),
            Check::Transfer(Transfer { mode: Mode::Auto, ..ZERO_COPY }),
            Check::Transfer(Transfer {
                connections: 16,
                spread: Spread::All,
                bytes: 1 << 18,
                ..ZERO_COPY
            }),
            Check::Transfer(Transfer {
                family: Family::V6,
                connections: 8,
                spread: Spread::Last,
                bytes: 1 << 18,
                ..ZERO_COPY
            }),
            Check::Transfer(Transfer { family: Family::V6, subflows: 4, ..ZERO_COPY }),
            Check::Transfer(Transfer {
                vlan: Some(100),
                strip: true,
                outcome: Outcome::Refused(1, "ethtool -K rcv0 rxvlan off"),
                ..ZERO_COPY
            }),
            Check::Transfer(Transfer { vlan: Some(100), ..ZERO_COPY }),
            Check::Transfer(COPY),
            Check::Queues(ZERO_COPY, &[1, 2]),
            Check::Kill(ZERO_COPY),
        ],
    },
    Guest {
        name: "unstable-e1000e",
        kernel: Kernel::Unstable,
        nic: Nic::E1000e,
        queues: 1,
        checks: &[
            Check::Transfer(Transfer { mode: Mode::Auto, ..SKB }),
            Check::Transfer(Transfer { subflows: 2, family: Family::V6, ..SKB }),
            Check::Transfer(NO_ZERO_COPY),
        ],
    },
    Guest {
        name: "unstable-vmxnet3",
        kernel: Kernel::Unstable,
        nic: Nic::Vmxnet3,
        queues: 2,
        checks: &[
            Check::Transfer(SHORT),
            Check::Transfer(Transfer { subflows: 2, family: Family::V6, ..COPY }),
            Check::Transfer(NO_ZERO_COPY),
        ],
    },
];
