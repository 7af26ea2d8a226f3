//! What a lab is made with.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::{env, fs};

use mpxdp_sim::middlebox::ChainSpec;
use serde::{Deserialize, Serialize};

use super::{Lab, Side, journal, relays, setup, teardown, tool};
use crate::environment;
use crate::error::{Context, Error, Result};
use crate::interrupt::Interrupt;
use crate::options;

/// Names of namespaces become file names, and are typed by hand.
const MAX_NAME: usize = 40;

/// What a lab has besides its shape, and what its figures depend on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conditions {
    /// The congestion control on both sides, by the kernel's name.
    pub congestion: String,
    /// The CPU that processes what the sender receives; none: the one that the receiver sent it on.
    pub sender_cpu: Option<usize>,
}

impl Default for Conditions {
    fn default() -> Self {
        Self { congestion: default_congestion(), sender_cpu: None }
    }
}

/// The shape of a lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// What the namespaces' names start with.
    pub name: String,
    /// The number of links, 1 to 64.
    pub links: u32,
    /// The number of queues of each end of each link, 1 to 4096.
    pub queues: u32,
    /// The MTU of each link in bytes, 1280 (the least IPv6 allows) to 65535.
    pub mtu: u32,
    /// The VLAN that all frames on the links carry as a tag, 1 to 4094; none: untagged.
    pub vlan: Option<u16>,
    /// Whether generic receive offload is on at the receiver's ends.
    pub gro: bool,
    /// The congestion control on both sides, by the kernel's name.
    #[serde(default = "default_congestion")]
    pub congestion: String,
    /// The CPU that processes what the sender receives, its acknowledgements that is; none: the one
    /// on which the receiver happened to send it.
    #[serde(default)]
    pub sender_cpu: Option<usize>,
    /// The links that have a relay, and its chain of middleboxes as text; the sender is on the left.
    #[serde(default)]
    pub relays: BTreeMap<u32, String>,
}

/// Every kernel has it, and it does not pace. Where a host's default does (bbr), the sending CPU
/// programs a timer every few packets, and that is what would be measured.
fn default_congestion() -> String {
    "reno".into()
}

impl Spec {
    /// What it has besides its shape.
    #[must_use]
    pub fn conditions(&self) -> Conditions {
        Conditions { congestion: self.congestion.clone(), sender_cpu: self.sender_cpu }
    }

    /// The name of a side's namespace.
    pub(super) fn namespace(&self, side: Side) -> String {
        namespace(&self.name, side)
    }

    /// The names of all its namespaces.
    pub(super) fn namespaces(&self) -> Vec<String> {
        let middle = (!self.relays.is_empty()).then(|| middle_namespace(&self.name));
        Side::BOTH.map(|side| self.namespace(side)).into_iter().chain(middle).collect()
    }

    fn check(&self) -> Result<()> {
        check_name(&self.name)?;
        let usage = |text: String| Err(Error::Usage(text));
        options::within("--links", self.links, options::LINKS)?;
        options::within("--queues", self.queues, options::QUEUES)?;
        options::within("--mtu", self.mtu, options::MTU)?;
        if let Some(link) = self.relays.keys().find(|&&link| link >= self.links) {
            return usage(format!("--relay {link}=...: the links are 0 to {}", self.links - 1));
        }
        check_congestion(&self.congestion)?;
        if let Some(cpu) = self.sender_cpu
            && !environment::cpus().contains(&cpu)
        {
            return usage(format!("--sender-cpu {cpu}: it does not exist or may not be used"));
        }
        self.vlan.map_or(Ok(()), |id| options::within("--vlan", id, options::VLAN))
    }
}

/// The name of a side's namespace in the lab of that name.
pub(super) fn namespace(name: &str, side: Side) -> String {
    format!("{name}-{}", side.tag())
}

/// The name of the namespace in the middle, where relays are.
pub(super) fn middle_namespace(name: &str) -> String {
    format!("{name}-mid")
}

/// Refuses names that could mean a file elsewhere, or a namespace that is not a lab's.
pub(super) fn check_name(name: &str) -> Result<()> {
    let letters = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    if name.is_empty() || name.len() > MAX_NAME || !letters || name.starts_with('-') {
        return Err(Error::Usage(format!(
            "--name {name:?}: letters, digits, '-' and '_' only, at most {MAX_NAME}"
        )));
    }
    Ok(())
}

/// Refuses a congestion control that a namespace cannot be given: the kernel lets only those be
/// chosen there that every user may choose, and which those are is the host's setting.
fn check_congestion(name: &str) -> Result<()> {
    let path = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
    let allowed = fs::read_to_string(path).context(|| format!("cannot read {path}"))?;
    if allowed.split_ascii_whitespace().any(|there| there == name) {
        return Ok(());
    }
    let allowed = allowed.trim();
    Err(Error::Usage(format!(
        "--congestion {name}: this host allows {allowed} in namespaces; to add others is up to you \
         (sysctl net.ipv4.tcp_allowed_congestion_control, after `modprobe tcp_{name}`)"
    )))
}

/// Makes a [`Lab`]; see [`Lab::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    spec: Spec,
    kept: bool,
    interrupt: Interrupt,
    relay_program: Option<PathBuf>,
}

impl Default for Builder {
    fn default() -> Self {
        let spec = Spec {
            name: "mpxdp".into(),
            links: 1,
            queues: 1,
            mtu: 1500,
            vlan: None,
            gro: true,
            congestion: default_congestion(),
            sender_cpu: None,
            relays: BTreeMap::new(),
        };
        Self { spec, kept: false, interrupt: Interrupt::never(), relay_program: None }
    }
}

impl Builder {
    /// What the namespaces' names start with; `mpxdp` if not given.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.spec.name = name.into();
        self
    }

    /// The number of links; one if not given.
    #[must_use]
    pub const fn links(mut self, links: u32) -> Self {
        self.spec.links = links;
        self
    }

    /// The number of queues of each end; one if not given.
    #[must_use]
    pub const fn queues(mut self, queues: u32) -> Self {
        self.spec.queues = queues;
        self
    }

    /// The MTU in bytes; 1500 if not given.
    #[must_use]
    pub const fn mtu(mut self, mtu: u32) -> Self {
        self.spec.mtu = mtu;
        self
    }

    /// The VLAN tag of all frames on the links; none if not given.
    #[must_use]
    pub const fn vlan(mut self, vlan: Option<u16>) -> Self {
        self.spec.vlan = vlan;
        self
    }

    /// Whether generic receive offload is on at the receiver's ends; on if not given.
    #[must_use]
    pub const fn gro(mut self, gro: bool) -> Self {
        self.spec.gro = gro;
        self
    }

    /// The congestion control on both sides, by the kernel's name (`bbr`, `cubic`); `reno` if not
    /// given.
    #[must_use]
    pub fn congestion(mut self, name: impl Into<String>) -> Self {
        self.spec.congestion = name.into();
        self
    }

    /// The CPU that processes what the sender receives, as a host of its own would; if not given, the
    /// one on which the receiver happened to send it. Over veth that is the receiver's: its
    /// acknowledgement then runs the sender's TCP there, and with it all that the sender may send
    /// from then on, through the NIC's receive processing of the receiver.
    #[must_use]
    pub const fn sender_cpu(mut self, cpu: Option<usize>) -> Self {
        self.spec.sender_cpu = cpu;
        self
    }

    /// Both of the above.
    #[must_use]
    pub fn conditions(self, conditions: &Conditions) -> Self {
        let Conditions { congestion, sender_cpu } = conditions.clone();
        self.congestion(congestion).sender_cpu(sender_cpu)
    }

    /// Puts middleboxes on a link, numbered from 0; the sender is on their left.
    #[must_use]
    pub fn relay(mut self, link: u32, chain: &ChainSpec) -> Self {
        self.spec.relays.insert(link, chain.to_string());
        self
    }

    /// The program `mpxdp-bench`, which relays; this process's own if not given.
    #[must_use]
    pub fn relay_program(mut self, program: impl Into<PathBuf>) -> Self {
        self.relay_program = Some(program.into());
        self
    }

    /// The lab shall outlive this process: it is not removed when its maker is found dead.
    #[must_use]
    pub const fn kept(mut self) -> Self {
        self.kept = true;
        self
    }

    /// Stops, and removes what was made so far, once a signal arrived.
    #[must_use]
    pub fn interrupt(mut self, interrupt: &Interrupt) -> Self {
        self.interrupt = interrupt.clone();
        self
    }

    /// Whether a lab of this shape could be made at all.
    ///
    /// # Errors
    ///
    /// A value out of range: wrong usage.
    pub fn check(&self) -> Result<()> {
        self.spec.check()
    }

    /// Makes the lab. A kept lab of the same name and shape that is up already is taken as it is.
    /// Labs whose makers were killed are removed on the way.
    ///
    /// # Errors
    ///
    /// A value out of range, a missing tool or privilege, a lab of that name that a process uses or
    /// that is kept with another shape, a namespace of that name that no lab made, or a refusal of the
    /// system. Nothing is left behind then.
    pub fn up(self) -> Result<Lab> {
        let Self { spec, kept, interrupt, relay_program } = self;
        spec.check()?;
        tool::require_privilege()?;
        tool::require_tools()?;
        let lock = journal::lock(&interrupt)?;
        teardown::sweep(&lock)?;
        if let Some(earlier) = journal::read(&spec.name)? {
            let same = kept && earlier.spec == spec;
            if same && earlier.user().is_none() && earlier.complete && setup::is_up(&spec) {
                return Ok(Lab { spec, relays: Vec::new(), removed_on_drop: false });
            }
            refuse_occupied(&earlier, same)?;
            // Half made, or not wholly there any more: nobody loses anything.
            teardown::remove(&lock, &spec.name)?;
        }
        setup::refuse_foreign(&spec)?;
        let mut entry =
            if kept { journal::Entry::kept(spec) } else { journal::Entry::owned(spec)? };
        entry.complete = false;
        // Before the first namespace: a lab half made by a process that was killed must be found.
        journal::write(&entry)?;
        let mut relays = Vec::new();
        let made = setup::make(&entry.spec, &interrupt)
            .and_then(|()| start_relays(&entry.spec, relay_program, &mut relays))
            .and_then(|()| {
                entry.complete = true;
                journal::write(&entry)
            });
        if let Err(error) = made {
            relays.iter_mut().for_each(relays::Relay::kill);
            teardown::remove(&lock, &entry.spec.name)?;
            return Err(error);
        }
        Ok(Lab { spec: entry.spec, relays, removed_on_drop: !kept })
    }
}

/// Refuses to take the place of a lab that somebody uses, or that was made to be kept and has another
/// shape.
fn refuse_occupied(earlier: &journal::Entry, same_shape: bool) -> Result<()> {
    let name = &earlier.spec.name;
    if let Some(user) = earlier.user() {
        return Err(Error::Failed(format!(
            "lab {name:?} is in use by {user}: choose another --name, or wait until that ends"
        )));
    }
    if earlier.complete && !same_shape && setup::any_is_there(&earlier.spec) {
        return Err(Error::Failed(format!(
            "lab {name:?} is up, made by `lab up` with another shape: run `mpxdp-bench lab down --name \
             {name}` first, or choose another --name"
        )));
    }
    Ok(())
}

/// Starts the relays of all links that have one.
fn start_relays(
    spec: &Spec,
    program: Option<PathBuf>,
    started: &mut Vec<relays::Relay>,
) -> Result<()> {
    if spec.relays.is_empty() {
        return Ok(());
    }
    let program = match program {
        Some(program) => program,
        None => env::current_exe().context(|| "cannot tell which program this is")?,
    };
    for (&link, chain) in &spec.relays {
        started.push(relays::start(spec, &program, link, chain)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(builder: Builder) -> String {
        match builder.spec.check() {
            Err(Error::Usage(text)) => text,
            other => panic!("not refused as wrong usage: {other:?}"),
        }
    }

    #[test]
    fn values_out_of_range_are_wrong_usage() {
        assert!(refused(Lab::builder().links(0)).contains("--links 0"));
        assert!(refused(Lab::builder().links(65)).contains("--links 65"));
        assert!(refused(Lab::builder().queues(0)).contains("--queues 0"));
        assert!(refused(Lab::builder().mtu(1279)).contains("--mtu 1279"));
        assert!(refused(Lab::builder().mtu(65536)).contains("--mtu 65536"));
        assert!(refused(Lab::builder().congestion("swift9")).contains("--congestion swift9"));
        assert!(refused(Lab::builder().sender_cpu(Some(8191))).contains("--sender-cpu 8191"));
        assert!(refused(Lab::builder().vlan(Some(0))).contains("--vlan 0"));
        assert!(refused(Lab::builder().vlan(Some(4095))).contains("--vlan 4095"));
        let chain = ChainSpec::default();
        assert!(refused(Lab::builder().links(2).relay(2, &chain)).contains("--relay 2"));
        for name in ["", "../x", "a/b", "-a", "a b"] {
            assert!(refused(Lab::builder().name(name)).contains("--name"), "{name:?}");
        }
        assert!(Lab::builder().links(64).queues(4096).mtu(65535).spec.check().is_ok());
    }
}
