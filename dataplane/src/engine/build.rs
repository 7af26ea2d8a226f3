//! From a configuration to running workers.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::descriptors;
use super::holds::Holds;
use super::memory::Memory;
use super::nics::{Nic, Nics};
use super::open::{self, OpenNic};
use super::{Engine, EngineConfig};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::listener::Ended;
use crate::nic::{NicConfig, PortNic};
use crate::placement::CpuList;
use crate::port::Port;
use crate::stats::{NicReport, NicState};
use crate::worker::{Attached, Entropy, Handle, PortFacts, Shared, Worker, run};

/// Collects what an [`Engine`] is made of.
#[derive(Default)]
#[must_use = "an engine starts by `start`"]
pub struct EngineBuilder {
    config: EngineConfig,
    nics: Vec<NicConfig>,
    port_nics: Vec<ReadyNic>,
}

/// Makes the workers of a NIC's ports, whose type it knows.
type Spawn = Box<dyn FnOnce(&mut Spawner) -> Result<()> + Send>;

/// Starts a worker's thread.
type Start = Box<dyn FnOnce(&Engine) -> io::Result<JoinHandle<()>>>;

/// A NIC of ready-made ports, of whatever type they are.
struct ReadyNic {
    report: NicReport,
    addresses: Vec<IpAddr>,
    cpus: CpuList,
    spawn: Spawn,
}

impl EngineBuilder {
    /// Adds a NIC.
    pub fn nic(mut self, nic: NicConfig) -> Self {
        self.nics.push(nic);
        self
    }

    /// Adds a NIC made of ready-made ports.
    pub fn ports<P: Port + 'static>(mut self, nic: PortNic<P>) -> Self {
        let PortNic { name, ports, addresses, cpus, mtu } = nic;
        let report = NicReport {
            name: name.clone(),
            mode: ports.first().map_or("none", |port| port.mode().name()),
            mode_reason: None,
            zero_copy: false,
            queues: (0..).take(ports.len()).collect(),
            mtu,
            state: NicState::Up,
            changes: 0,
            program_id: 0,
            counters: Vec::new(),
        };
        let workers = cpus.clone();
        let spawn = move |spawner: &mut Spawner| {
            let nic: Arc<str> = name.into();
            let ports = ports.into_iter().zip(0..).map(|(port, queue)| Attached {
                port,
                facts: PortFacts { nic: Arc::clone(&nic), queue, mtu, gone: false },
            });
            if workers.is_empty() {
                return spawner.add(None, ports.collect());
            }
            let mut by_cpu: BTreeMap<usize, Vec<Attached<P>>> = BTreeMap::new();
            for (port, cpu) in ports.zip(workers.as_slice().iter().cycle()) {
                by_cpu.entry(*cpu).or_default().push(port);
            }
            by_cpu.into_iter().try_for_each(|(cpu, ports)| spawner.add(Some(cpu), ports))
        };
        self.port_nics.push(ReadyNic { report, addresses, cpus, spawn: Box::new(spawn) });
        self
    }

    /// Sets the engine's configuration.
    pub fn config(mut self, config: EngineConfig) -> Self {
        self.config = config;
        self
    }

    /// Opens the ports, attaches the steering programs and starts the workers.
    ///
    /// # Errors
    ///
    /// See [`Error`]; whatever had been set up is undone.
    pub fn start(self) -> Result<Engine> {
        let Self { config, nics, port_nics } = self;
        if nics.is_empty() && port_nics.is_empty() {
            return Err(Error::Configuration("no NIC was named".to_owned()));
        }
        let names = nics.iter().map(NicConfig::name);
        let names = names.chain(port_nics.iter().map(|nic| nic.report.name.as_str()));
        if let Some(twice) = first_repeated(names) {
            return Err(Error::Configuration(format!("{twice}: the NIC is named twice")));
        }
        check_cpus(&config, &nics, &port_nics)?;

        let described = nics.into_iter().map(open::describe).collect::<Result<Vec<_>>>()?;
        let queues = described.iter().map(open::Described::queues).sum();
        if !described.is_empty() {
            descriptors::check(described.len(), queues)?;
        }
        let cpus = open::place(&config.placement, &described)?;
        let opened = described.into_iter().map(open::open).collect::<Result<Vec<_>>>()?;

        let memory = Arc::new(Memory::new(config.memory_limit));
        let ring = config.ring(Arc::clone(&memory));
        let shared = Shared::new(config.protocol(), ring, config.joins(), Entropy::System)
            .map_err(|e| Error::io("drawing random numbers", e))?;
        let mut spawner =
            Spawner { shared: Arc::new(shared), clock: Clock::start(), workers: Vec::new() };
        let (mut nics, mut programs, mut by_cpu) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (OpenNic { name, report, index, limit, addresses, ports, steering }, cpus) in
            opened.into_iter().zip(cpus)
        {
            programs.push(Mutex::new(steering));
            let program = Some(programs.len() - 1);
            nics.push(Nic::new(report, program, index, limit, addresses));
            for (port, cpu) in ports.into_iter().zip(cpus) {
                by_cpu.entry(cpu).or_insert_with(Vec::new).push(port);
            }
            tracing::debug!("{name}: open");
        }
        for (cpu, ports) in by_cpu {
            spawner.add(Some(cpu), ports)?;
        }
        for ReadyNic { report, addresses, cpus: _, spawn } in port_nics {
            nics.push(Nic::new(report, None, 0, None, addresses));
            spawn(&mut spawner)?;
        }
        let Spawner { shared, clock, workers } = spawner;
        shared.introduce(workers.iter().map(|worker| Arc::clone(&worker.handle)).collect());
        let nics = Nics::new(nics, config.announce.clone(), Holds::new(programs));
        let mut engine = Engine {
            config,
            clock: clock.clone(),
            shared,
            nics: Arc::new(nics),
            watch: None,
            workers: Vec::new(),
            failure: Arc::default(),
            memory,
        };
        for worker in workers {
            let Planned { handle, start } = worker;
            let thread = start(&engine)
                .map_err(|e| Error::io(format!("starting worker {}", handle.index), e))?;
            engine.workers.push((handle, thread));
        }
        if engine.nics.are_real() {
            let watch = engine.watch();
            engine.watch = Some(watch.map_err(|e| Error::io("watching the NICs", e))?);
        }
        Ok(engine)
    }
}

fn first_repeated<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = std::collections::HashSet::new();
    let mut names = names;
    names.find(|name| !seen.insert(*name))
}

/// A thread that cannot be pinned would show only once it runs.
fn check_cpus(config: &EngineConfig, nics: &[NicConfig], ready: &[ReadyNic]) -> Result<()> {
    let lists = nics.iter().map(|nic| &nic.cpus).chain(ready.iter().map(|nic| &nic.cpus));
    for list in lists.chain([&config.placement.workers]) {
        if let Some(cpu) = list.first_unusable()? {
            let allowed = CpuList::allowed()?;
            return Err(Error::Configuration(format!(
                "CPU {cpu}: does not exist or may not be used by this process, which has {allowed}"
            )));
        }
    }
    Ok(())
}

/// Collects workers; their threads start once all are known.
struct Spawner {
    shared: Arc<Shared>,
    clock: Clock,
    workers: Vec<Planned>,
}

struct Planned {
    handle: Arc<Handle>,
    start: Start,
}

impl Spawner {
    fn add<P: Port + 'static>(
        &mut self,
        cpu: Option<usize>,
        ports: Vec<Attached<P>>,
    ) -> Result<()> {
        let index = self.workers.len();
        let (worker, handle) = Worker::new(index, cpu, ports, Arc::clone(&self.shared))
            .map_err(|e| Error::io(format!("making worker {index}"), e))?;
        let clock = self.clock.clone();
        let start = move |engine: &Engine| {
            let failure = Arc::clone(&engine.failure);
            let shared = Arc::clone(&engine.shared);
            let spin = engine.config.spin;
            let pin: CpuList = cpu.into_iter().collect();
            std::thread::Builder::new().name(format!("mpxdp-{index}")).spawn(move || {
                let pinned = pin.pin_this_thread().map_err(|e| e.to_string());
                if let Err(message) = pinned.and_then(|()| run(worker, &clock, spin)) {
                    let ended = Ended::Failed { worker: index, message };
                    let mut first = failure.lock().unwrap_or_else(PoisonError::into_inner);
                    shared.listeners.end(first.get_or_insert(ended));
                }
            })
        };
        self.workers.push(Planned { handle, start: Box::new(start) });
        Ok(())
    }
}
