//! From a NIC's name to open ports and an attached steering program.

use std::net::IpAddr;
use std::sync::Arc;

use mpxdp_ebpf::{AttachError, AttachMode, AttachedProgram, Steering, attached_programs};

use crate::error::{Error, Result};
use crate::nic::{Mode, NicConfig, NicFacts};
use crate::placement::{CpuList, Placement};
use crate::port::{AfXdpError, AfXdpOptions, AfXdpPort, BindMode, BusyPoll, Port, PortMode};
use crate::stats::{NicReport, NicState};
use crate::worker::{Attached, PortFacts};

/// An Ethernet header with two VLAN tags: what a frame is longer than the MTU.
const LINK_HEADER: u32 = 14 + 2 * 4;

/// A NIC that was asked for, checked against what there is.
pub(super) struct Described {
    config: NicConfig,
    facts: NicFacts,
    queues: Vec<u32>,
}

impl Described {
    /// How many queues are to be opened.
    pub(super) fn queues(&self) -> usize {
        self.queues.len()
    }
}

/// A NIC whose packets come to us.
pub(super) struct OpenNic {
    pub(super) name: String,
    pub(super) report: NicReport,
    /// The kernel's number of it.
    pub(super) index: u32,
    /// The largest MTU that all its ports take; `None` if they take any.
    pub(super) limit: Option<u32>,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) ports: Vec<Attached<AfXdpPort>>,
    pub(super) steering: Steering,
}

/// Checks a NIC that was asked for, without changing anything.
pub(super) fn describe(config: NicConfig) -> Result<Described> {
    let facts = NicFacts::read(&config.name)?;
    let nic = || config.name.clone();
    let queues = match &config.queues {
        None => (0..facts.receive_queues).collect(),
        Some(queues) if queues.is_empty() => {
            return Err(Error::Configuration(format!("{}: no receive queue is named", nic())));
        }
        Some(queues) => queues.clone(),
    };
    if let Some(&queue) = queues.iter().find(|&&queue| queue >= facts.receive_queues) {
        let queues = facts.receive_queues;
        return Err(Error::QueueOutOfRange { nic: nic(), queue, queues });
    }
    if !facts.up {
        return Err(Error::NicDown { nic: nic() });
    }
    if facts.strips_vlan_tags && !facts.vlans.is_empty() {
        return Err(Error::VlanTagsStripped { nic: nic(), vlans: facts.vlans.join(", ") });
    }
    // Whoever has the NIC is told first, since binding may wait for queues to come free.
    if let Ok(programs) = attached_programs(&config.name)
        && let Some(AttachedProgram { id, name, .. }) = programs.into_iter().next()
    {
        return Err(Error::NicOccupied { nic: nic(), program: name, id });
    }
    Ok(Described { config, facts, queues })
}

/// The CPU of each queue of each NIC. Queues on the same CPU share a worker.
pub(super) fn place(placement: &Placement, nics: &[Described]) -> Result<Vec<Vec<usize>>> {
    let total: usize = nics.iter().map(|nic| nic.queues.len()).sum();
    let by_default = if placement.workers.is_empty() {
        default_cpus(&CpuList::allowed()?, total)
    } else {
        placement.workers.as_slice().to_vec()
    };
    // NICs without CPUs of their own share the list, one going on where the other ended.
    let mut next = by_default.iter().copied().cycle();
    let of_nic = |nic: &Described| match nic.config.cpus.as_slice() {
        [] => next.by_ref().take(nic.queues.len()).collect(),
        own => own.iter().copied().cycle().take(nic.queues.len()).collect(),
    };
    Ok(nics.iter().map(of_nic).collect())
}

/// One CPU is left to the application if there are several, and the first are left to interrupts,
/// which mostly go there.
fn default_cpus(allowed: &CpuList, queues: usize) -> Vec<usize> {
    let allowed = allowed.as_slice();
    let workers = queues.clamp(1, allowed.len().saturating_sub(1).max(1));
    allowed[allowed.len().saturating_sub(workers)..].to_vec()
}

/// Opens the ports of a NIC, attaches the steering program, and joins them.
pub(super) fn open(described: Described) -> Result<OpenNic> {
    let Described { config, facts, queues } = described;
    let (mut bind, attach) = match config.mode {
        Mode::Auto => (BindMode::Auto, AttachMode::Auto),
        Mode::ZeroCopy => (BindMode::ZeroCopy, AttachMode::Native),
        Mode::Copy => (BindMode::Copy, AttachMode::Native),
        Mode::Skb => (BindMode::Copy, AttachMode::Generic),
    };
    let mut ports = bind_all(&config, &facts, &queues, bind)?;
    let mut steering = Steering::attach(&config.name, attach).map_err(|e| refused(&config, e))?;
    let generic = steering.mode().name() == "generic";
    if generic && bind == BindMode::Auto {
        // A zero-copy socket gets nothing from a program in the kernel's stack; and packets that
        // the kernel merged come larger than the MTU there.
        drop(ports);
        bind = BindMode::Copy;
        ports = bind_all(&config, &facts, &queues, bind)?;
    }
    for (port, &queue) in ports.iter().zip(&queues) {
        if let Some(socket) = port.poll_fd() {
            steering.bind_queue(queue, socket)?;
        }
    }
    steering.set_local_addresses(&facts.addresses)?;

    let zero_copy = ports.iter().all(|port| port.mode() == PortMode::ZeroCopy);
    let refused = steering.mode().native_refused();
    let mode_reason = match config.mode {
        Mode::Auto if generic => Some(format!("no native XDP: {}", refused.unwrap_or("unknown"))),
        Mode::Auto if !zero_copy => Some(
            if multi_buffer(&facts) {
                "no zero copy from this driver for packets of this MTU"
            } else {
                "no zero copy from this driver"
            }
            .to_owned(),
        ),
        _ => None,
    };
    let nic: Arc<str> = config.name.as_str().into();
    let limit = (!ports.iter().all(AfXdpPort::takes_several_buffers)).then(single_buffer_mtu);
    let attached = ports.into_iter().zip(&queues).map(|(port, &queue)| Attached {
        port,
        facts: PortFacts { nic: Arc::clone(&nic), queue, mtu: facts.mtu, gone: false },
    });
    Ok(OpenNic {
        name: config.name.clone(),
        ports: attached.collect(),
        report: NicReport {
            name: config.name,
            mode: steering.mode().name(),
            mode_reason,
            zero_copy,
            queues,
            mtu: facts.mtu,
            state: NicState::of(&facts),
            changes: 0,
            program_id: steering.program_id(),
            counters: Vec::new(),
        },
        index: facts.index,
        limit,
        addresses: facts.addresses,
        steering,
    })
}

/// Whether a frame of the NIC's MTU takes more than one buffer.
fn multi_buffer(facts: &NicFacts) -> bool {
    facts.mtu > single_buffer_mtu()
}

/// The largest MTU whose frames fit one buffer.
fn single_buffer_mtu() -> u32 {
    AfXdpOptions::new("", 0).receive_capacity() - LINK_HEADER
}

fn bind_all(
    config: &NicConfig,
    facts: &NicFacts,
    queues: &[u32],
    mode: BindMode,
) -> Result<Vec<AfXdpPort>> {
    let needed = multi_buffer(facts);
    let bind = |&queue: &u32| {
        let mut options = AfXdpOptions::new(config.name.as_str(), queue);
        options.mode = mode;
        // In copy mode it costs nothing, and packets that the kernel merged exceed the MTU; for
        // zero copy many drivers have it not.
        options.multi_buffer = needed || mode == BindMode::Copy;
        if let Some(frames) = config.frames {
            options.receive_ring = frames;
        }
        if let Some(budget) = config.busy_poll {
            options.busy_poll = Some(BusyPoll { budget, ..BusyPoll::default() });
        }
        match AfXdpPort::open(&options) {
            Err(AfXdpError::MultiBufferUnsupported { .. }) if !needed => {
                options.multi_buffer = false;
                AfXdpPort::open(&options)
            }
            result => result,
        }
        .map_err(|e| unopened(config, facts, &options, e))
    };
    queues.iter().map(bind).collect()
}

/// The error for a port that did not open.
fn unopened(
    config: &NicConfig,
    facts: &NicFacts,
    options: &AfXdpOptions,
    error: AfXdpError,
) -> Error {
    let nic = config.name.clone();
    let mode = config.mode.name();
    let limit = options.receive_capacity() - LINK_HEADER;
    match error {
        AfXdpError::NoInterface { .. } => Error::NoSuchNic { nic },
        AfXdpError::InterfaceDown { .. } => Error::NicDown { nic },
        // Drivers may refuse zero copy with the error that stands for a missing queue, too: virtio_net
        // does if the device keeps memory translation to itself.
        AfXdpError::NoQueue { queue, .. }
            if options.mode == BindMode::ZeroCopy && queue < facts.receive_queues =>
        {
            Error::ModeUnavailable { nic, mode, reason: "the driver refuses this NIC".to_owned() }
        }
        AfXdpError::NoQueue { queue, .. } => {
            Error::QueueOutOfRange { nic, queue, queues: facts.receive_queues }
        }
        AfXdpError::MultiBufferUnsupported { .. } => {
            Error::MtuTooLarge { nic, mtu: facts.mtu, limit, mode }
        }
        // The driver may have zero copy for small packets; if the mode is what it lacks, a smaller
        // MTU would not do.
        AfXdpError::ModeUnsupported { .. } if options.multi_buffer && bindable(options) => {
            Error::MtuTooLarge { nic, mtu: facts.mtu, limit, mode }
        }
        AfXdpError::ModeUnsupported { .. } => Error::ModeUnavailable {
            nic,
            mode,
            // With such an MTU it cannot be tried whether packets of one buffer would do.
            reason: if options.multi_buffer {
                format!("the driver does not support it for an MTU of {}, or at all", facts.mtu)
            } else {
                "the driver does not support it".to_owned()
            },
        },
        AfXdpError::Permission { action, .. } => {
            Error::Privilege { what: format!("{nic}: {action}") }
        }
        AfXdpError::InvalidOption { .. } => Error::Configuration(format!("{nic}: {error}")),
        other => Error::Port(other),
    }
}

fn bindable(options: &AfXdpOptions) -> bool {
    AfXdpPort::open(&AfXdpOptions { multi_buffer: false, ..options.clone() }).is_ok()
}

/// The error for a steering program that did not attach.
fn refused(config: &NicConfig, error: AttachError) -> Error {
    let nic = config.name.clone();
    match error {
        AttachError::UnknownInterface { .. } => Error::NoSuchNic { nic },
        AttachError::Occupied { program_name, program_id, .. } => {
            Error::NicOccupied { nic, program: program_name, id: program_id }
        }
        AttachError::NativeRefused { reason, .. } => {
            Error::ModeUnavailable { nic, mode: config.mode.name(), reason }
        }
        AttachError::NotPermitted { .. } => {
            Error::Privilege { what: format!("{nic}: attaching an XDP program") }
        }
        other => Error::Steering(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_leaves_a_cpu_to_the_application() {
        let cpus = |n: usize| (0..n).collect::<CpuList>();
        assert_eq!(default_cpus(&cpus(1), 4), [0]);
        assert_eq!(default_cpus(&cpus(2), 4), [1]);
        assert_eq!(default_cpus(&cpus(8), 2), [6, 7]);
        assert_eq!(default_cpus(&cpus(4), 9), [1, 2, 3]);
    }

    fn described(name: &str, queues: u32, cpus: &[usize]) -> Described {
        let config = NicConfig::new(name).cpus(cpus.iter().copied());
        let facts = NicFacts {
            name: name.to_owned(),
            index: 1,
            up: true,
            carrier: true,
            mtu: 1500,
            driver: None,
            receive_queues: queues,
            vlans: Vec::new(),
            strips_vlan_tags: false,
            addresses: Vec::new(),
        };
        Described { config, facts, queues: (0..queues).collect() }
    }

    /// The kernel's refusal is made up: over veth every mode takes packets of several buffers.
    #[test]
    fn an_mtu_that_the_mode_cannot_take_is_a_usage_error_in_one_line() {
        let Described { config, mut facts, .. } = described("nic0", 1, &[]);
        let config = config.mode(Mode::ZeroCopy);
        let options = AfXdpOptions::new("nic0", 0);
        let limit = options.receive_capacity() - LINK_HEADER;
        facts.mtu = limit;
        assert!(!multi_buffer(&facts), "an MTU that is named as the limit would do");
        facts.mtu = limit + 1;
        assert!(multi_buffer(&facts));
        let refusal = AfXdpError::MultiBufferUnsupported { interface: "nic0".to_owned(), queue: 0 };
        let error = unopened(&config, &facts, &options, refusal);
        assert_eq!(error.kind(), crate::ErrorKind::Usage);
        assert_eq!(
            error.to_string(),
            format!(
                "nic0: an MTU of {} is too large for zerocopy mode, which takes {limit} here; \
                 lower it with `ip link set nic0 mtu {limit}`, or choose another mode",
                limit + 1
            )
        );
    }

    /// Seen with virtio_net: the queue was there, and the driver did not want it for zero copy.
    #[test]
    fn a_driver_that_refuses_zero_copy_does_not_lose_its_queue() {
        let Described { config, facts, .. } = described("nic0", 2, &[]);
        let config = config.mode(Mode::ZeroCopy);
        let mut options = AfXdpOptions::new("nic0", 1);
        let refusal = |queue| AfXdpError::NoQueue { interface: "nic0".to_owned(), queue };
        options.mode = BindMode::ZeroCopy;
        let error = unopened(&config, &facts, &options, refusal(1));
        assert_eq!(error.kind(), crate::ErrorKind::Usage);
        assert!(error.to_string().starts_with("nic0: zerocopy mode does not work"), "{error}");
        let gone = unopened(&config, &facts, &options, refusal(2));
        assert!(matches!(gone, Error::QueueOutOfRange { queue: 2, queues: 2, .. }), "{gone}");
        options.mode = BindMode::Copy;
        let gone = unopened(&config, &facts, &options, refusal(1));
        assert!(matches!(gone, Error::QueueOutOfRange { queue: 1, .. }), "{gone}");
    }

    #[test]
    fn a_refusal_at_a_large_mtu_names_the_mtu() {
        let Described { config, mut facts, .. } = described("no-such-nic", 1, &[]);
        let config = config.mode(Mode::ZeroCopy);
        facts.mtu = 9000;
        let options =
            AfXdpOptions { mode: BindMode::ZeroCopy, ..AfXdpOptions::new("no-such-nic", 0) };
        let refusal = AfXdpError::ModeUnsupported {
            interface: "no-such-nic".to_owned(),
            queue: 0,
            mode: BindMode::ZeroCopy,
        };
        let error = unopened(&config, &facts, &options, refusal);
        assert!(error.to_string().contains("for an MTU of 9000, or at all"), "{error}");
    }

    #[test]
    fn a_nics_own_cpus_go_before_the_placement() {
        let nics = [described("a", 3, &[]), described("b", 2, &[5]), described("c", 1, &[])];
        let placement = "worker=1,2".parse().unwrap();
        let cpus = place(&placement, &nics).unwrap();
        assert_eq!(cpus, [vec![1, 2, 1], vec![5, 5], vec![2]]);
    }
}
