//! The NICs of an engine, as they are now, and what follows from their changes.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::announce::{self, AddressIds, Announce};
use super::holds::{self, Holds};
use super::notice::{NicChange, Notice, Notices};
use crate::connection::{Announced, Wishes};
use crate::error::{Error, Result};
use crate::listener::{Ended, Entrance};
use crate::nic::NicFacts;
use crate::stats::{NicReport, NicState};
use crate::worker::{Command, Handle, Shared};

/// See the module.
pub(super) struct Nics {
    list: Vec<Nic>,
    announce: Announce,
    holds: Arc<Holds>,
    ids: AddressIds,
    /// Where listeners listen, and what their peers are told of.
    entrances: Mutex<Vec<(SocketAddr, Weak<Entrance>)>>,
    notices: Notices,
}

/// One NIC.
pub(super) struct Nic {
    report: NicReport,
    /// Its steering program, by its place among all; none for ready-made ports.
    program: Option<usize>,
    /// The kernel's number, which stays when the name changes.
    index: u32,
    /// The largest MTU that the queues take, if there is one.
    limit: Option<u32>,
    now: Mutex<Now>,
}

/// What changes of a NIC.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Now {
    name: String,
    state: NicState,
    mtu: u32,
    addresses: Vec<IpAddr>,
    changes: u64,
}

impl Nic {
    /// A NIC as it was found when the engine started.
    pub(super) fn new(
        report: NicReport,
        program: Option<usize>,
        index: u32,
        limit: Option<u32>,
        addresses: Vec<IpAddr>,
    ) -> Self {
        let now = Now {
            name: report.name.clone(),
            state: report.state,
            mtu: report.mtu,
            addresses,
            changes: 0,
        };
        Self { report, program, index, limit, now: Mutex::new(now) }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what there is now; `None` is that it is gone. Says what has changed.
    fn update(&self, facts: Option<&NicFacts>) -> Vec<NicChange> {
        let mut now = self.now();
        let mut changes = Vec::new();
        if now.state == NicState::Gone {
            return changes;
        }
        let Some(facts) = facts else {
            now.state = NicState::Gone;
            now.addresses.clear();
            now.changes += 1;
            return vec![NicChange::Gone];
        };
        if now.name != facts.name {
            now.name.clone_from(&facts.name);
            changes.push(NicChange::Renamed { to: facts.name.clone() });
        }
        let state = NicState::of(facts);
        if state != now.state {
            let change = match (now.state, state) {
                (_, NicState::Down) => NicChange::Down,
                (_, NicState::NoCarrier) => NicChange::NoCarrier,
                (NicState::NoCarrier, _) => NicChange::Carrier,
                _ => NicChange::Up,
            };
            changes.push(change);
            now.state = state;
        }
        if facts.mtu != now.mtu {
            let (before, mtu) = (now.mtu, facts.mtu);
            now.mtu = mtu;
            changes.push(match self.limit.filter(|&limit| mtu > limit) {
                Some(limit) => NicChange::MtuTooLarge { mtu, limit },
                None => NicChange::Mtu { mtu, before },
            });
        }
        // What a NIC has that is down is of no use to peers.
        let addresses = if facts.up { &facts.addresses[..] } else { &[] };
        let added = addresses.iter().filter(|address| !now.addresses.contains(address));
        let removed = now.addresses.iter().filter(|address| !addresses.contains(address));
        changes.extend(added.map(|address| NicChange::AddressAdded(*address)));
        changes.extend(removed.map(|address| NicChange::AddressRemoved(*address)));
        now.addresses = addresses.to_vec();
        now.changes += changes.len() as u64;
        changes
    }
}

/// The facts of the interface number `index`. `None`: it is gone.
///
/// # Errors
///
/// They cannot be read now.
fn read(index: u32) -> Result<Option<NicFacts>> {
    let Ok(name) = nix::net::if_::if_indextoname(index) else { return Ok(None) };
    let Ok(name) = name.into_string() else { return Ok(None) };
    match NicFacts::read(&name) {
        Ok(facts) => Ok((facts.index == index).then_some(facts)),
        // Its name, or itself, has just gone: there is more to come.
        Err(Error::NoSuchNic { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Nics {
    pub(super) fn new(list: Vec<Nic>, announce: Announce, holds: Arc<Holds>) -> Self {
        Self {
            list,
            announce,
            holds,
            ids: AddressIds::default(),
            entrances: Mutex::default(),
            notices: Notices::default(),
        }
    }

    /// Their names, for messages.
    pub(super) fn names(&self) -> String {
        let names: Vec<&str> = self.list.iter().map(|nic| nic.report.name.as_str()).collect();
        names.join(", ")
    }

    /// Whether there is one of the kernel's.
    pub(super) fn are_real(&self) -> bool {
        self.list.iter().any(|nic| nic.program.is_some())
    }

    pub(super) fn notices(&self) -> &Notices {
        &self.notices
    }

    pub(super) fn reports(&self) -> Vec<NicReport> {
        let report = |nic: &Nic| {
            let Now { state, mtu, changes, .. } = nic.now().clone();
            let mut report = NicReport { state, mtu, changes, ..nic.report.clone() };
            if let Some(program) = nic.program
                && let Ok(counters) = holds::lock(&self.holds.programs()[program]).counters()
            {
                report.counters = counters.iter().map(|(verdict, n)| (verdict.name(), n)).collect();
            }
            report
        };
        self.list.iter().map(report).collect()
    }

    /// Looks at the NICs; what has changed is told to the steering programs, to workers, and to
    /// peers.
    pub(super) fn look(&self, shared: &Shared, workers: &[Arc<Handle>]) -> Result<()> {
        let mut addresses_changed = false;
        for nic in &self.list {
            let Some(program) = nic.program else { continue };
            if nic.now().state == NicState::Gone {
                continue;
            }
            let changes = nic.update(read(nic.index)?.as_ref());
            addresses_changed |= !changes.is_empty();
            for change in changes {
                let name: Arc<str> = nic.report.name.as_str().into();
                let command = match change {
                    NicChange::Gone => Some(Command::NicGone { nic: name }),
                    NicChange::Mtu { mtu, .. } | NicChange::MtuTooLarge { mtu, .. } => {
                        Some(Command::Mtu { nic: name, mtu })
                    }
                    _ => None,
                };
                if let Some(command) = command {
                    workers.iter().for_each(|worker| worker.command(command.clone()));
                }
                let notice = Notice { nic: nic.report.name.clone(), change };
                if notice.change.is_trouble() {
                    tracing::warn!("{notice}");
                } else {
                    tracing::info!("{notice}");
                }
                self.notices.put(notice);
            }
            if addresses_changed {
                let addresses = nic.now().addresses.clone();
                holds::lock(&self.holds.programs()[program]).set_local_addresses(&addresses)?;
            }
        }
        if addresses_changed {
            self.follow_addresses(shared);
        }
        Ok(())
    }

    /// Whether all NICs are gone.
    pub(super) fn all_gone(&self) -> bool {
        self.list.iter().all(|nic| nic.now().state == NicState::Gone)
    }

    /// Ends the listeners and what else waits, since nothing can come any more.
    pub(super) fn gone(&self) -> Ended {
        Ended::NoNic { nics: self.names() }
    }

    /// The addresses of all NICs now.
    pub(super) fn local_addresses(&self) -> Vec<IpAddr> {
        self.list.iter().flat_map(|nic| nic.now().addresses.clone()).collect()
    }

    fn check_local(&self, address: IpAddr, local: &[IpAddr]) -> Result<()> {
        if address.is_unspecified() || local.contains(&address) {
            return Ok(());
        }
        Err(Error::AddressNotLocal { address, nics: self.names() })
    }

    /// Holds the listener's address, and those that are announced to its peers.
    pub(super) fn entrance(&self, at: SocketAddr) -> Result<Arc<Entrance>> {
        let local = self.local_addresses();
        self.check_local(at.ip(), &local)?;
        if let Announce::Addresses(addresses) = &self.announce {
            addresses.iter().try_for_each(|(address, _)| self.check_local(*address, &local))?;
        }
        let entrance = Arc::new(Entrance::new(vec![self.holds.hold(at)?]));
        self.announce_at(at, &entrance, &local, true)?;
        let mut entrances = self.entrances();
        entrances.retain(|(_, entrance)| entrance.strong_count() > 0);
        entrances.push((at, Arc::downgrade(&entrance)));
        Ok(entrance)
    }

    /// Brings what peers of a listener at `at` are told of up to date. `first`: an address that was
    /// named and cannot be held is an error.
    fn announce_at(
        &self,
        at: SocketAddr,
        entrance: &Entrance,
        local: &[IpAddr],
        first: bool,
    ) -> Result<()> {
        let (addresses, chosen) = match &self.announce {
            Announce::None => (Vec::new(), false),
            Announce::Auto => {
                let of_use = local.iter().filter(|address| announce::is_of_use(address));
                (of_use.map(|address| (*address, None)).collect(), false)
            }
            Announce::Addresses(addresses) => (addresses.clone(), true),
        };
        let mut announced: Vec<Announced> = Vec::new();
        for (address, port) in addresses {
            let to = SocketAddr::new(address, port.unwrap_or_else(|| at.port()));
            let known = announced.iter().any(|known| known.at == to);
            if to == at || known || !local.contains(&address) {
                continue;
            }
            let Some(id) = self.ids.of(address, port) else { break };
            if !announce::is_covered(at, to) && !entrance.holds(to) {
                match self.holds.hold(to) {
                    Ok(hold) => entrance.keep(hold),
                    Err(e) if chosen && first => return Err(e),
                    // Somebody else has the port at that address.
                    Err(e) => {
                        tracing::warn!("{to}: not announced to peers: {e}");
                        continue;
                    }
                }
            }
            announced.push(Announced { id, at: to });
        }
        entrance.set(local.to_vec(), announced);
        Ok(())
    }

    /// Tells all that depends on the addresses.
    fn follow_addresses(&self, shared: &Shared) {
        let local = self.local_addresses();
        for (at, entrance) in &*self.entrances() {
            if let Some(entrance) = entrance.upgrade()
                && let Err(error) = self.announce_at(*at, &entrance, &local, false)
            {
                tracing::warn!("{at}: {error}");
            }
        }
        for connection in shared.connections() {
            connection.ask(Wishes::ADDRESSES);
        }
    }

    fn entrances(&self) -> MutexGuard<'_, Vec<(SocketAddr, Weak<Entrance>)>> {
        self.entrances.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> NicFacts {
        NicFacts {
            name: "eth0".to_owned(),
            index: 7,
            up: true,
            carrier: true,
            mtu: 1500,
            driver: None,
            strips_vlan_tags: false,
            receive_queues: 1,
            vlans: Vec::new(),
            addresses: vec![[10, 0, 0, 2].into()],
        }
    }

    fn nic(facts: &NicFacts) -> Nic {
        let report = NicReport {
            name: facts.name.clone(),
            mode: "native",
            mode_reason: None,
            zero_copy: false,
            queues: vec![0],
            mtu: facts.mtu,
            state: NicState::of(facts),
            changes: 0,
            program_id: 1,
            counters: Vec::new(),
        };
        Nic::new(report, Some(0), facts.index, Some(3818), facts.addresses.clone())
    }

    #[test]
    fn each_change_is_told_once() {
        let mut now = facts();
        let nic = nic(&now);
        assert_eq!(nic.update(Some(&now)), []);
        let address = |n: u8| IpAddr::from([10, 0, 0, n]);

        now.addresses.push(address(3));
        assert_eq!(nic.update(Some(&now)), [NicChange::AddressAdded(address(3))]);
        now.addresses.remove(0);
        assert_eq!(nic.update(Some(&now)), [NicChange::AddressRemoved(address(2))]);
        (now.up, now.carrier) = (false, false);
        assert_eq!(
            nic.update(Some(&now)),
            [NicChange::Down, NicChange::AddressRemoved(address(3))],
            "nobody can use it, although it is there"
        );
        now.up = true;
        let changes = [NicChange::NoCarrier, NicChange::AddressAdded(address(3))];
        assert_eq!(nic.update(Some(&now)), changes);
        now.carrier = true;
        assert_eq!(nic.update(Some(&now)), [NicChange::Carrier]);
        now.mtu = 1400;
        assert_eq!(nic.update(Some(&now)), [NicChange::Mtu { mtu: 1400, before: 1500 }]);
        now.mtu = 9000;
        assert_eq!(nic.update(Some(&now)), [NicChange::MtuTooLarge { mtu: 9000, limit: 3818 }]);
        now.name = "lan0".to_owned();
        assert_eq!(nic.update(Some(&now)), [NicChange::Renamed { to: "lan0".to_owned() }]);
        assert_eq!(nic.update(Some(&now)), []);
        assert_eq!(nic.update(None), [NicChange::Gone]);
        assert_eq!(nic.update(None), []);
        assert_eq!(nic.update(Some(&now)), [], "what has its number now is another");
        let now = nic.now();
        assert_eq!((now.state, now.changes, now.addresses.len()), (NicState::Gone, 11, 0));
    }

    #[test]
    fn a_number_of_no_interface_has_no_facts() {
        assert!(read(u32::MAX / 2).unwrap().is_none());
        assert_eq!(read(1).unwrap().unwrap().name, "lo");
    }
}
