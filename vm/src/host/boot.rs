//! Boots a guest and follows what it says.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::emulator::{Accelerator, Emulator};
use super::network;
use crate::error::{Context, Error, Result};
use crate::plan::{Check, Guest};
use crate::wire::{Message, Verdict};

/// How long a guest may take until its first process speaks. An emulated one on an idle machine takes
/// some five seconds.
const BOOT: Duration = Duration::from_secs(120);

/// The same with KVM; one that hangs is seen early, and another way is taken.
const BOOT_KVM: Duration = Duration::from_secs(20);

/// How qemu begins to say that it cannot go on with KVM.
const KVM_ERROR: &str = "KVM internal error";

/// How long powering off may take.
const POWER_OFF: Duration = Duration::from_secs(15);

/// Where what a guest writes goes.
#[derive(Debug)]
pub(super) struct Logs {
    /// The kernel's console, and our first process's words.
    pub(super) console: PathBuf,
    /// qemu's complaints.
    emulator: PathBuf,
}

impl Logs {
    /// In this folder.
    pub(super) fn new(folder: &Path, guest: &Guest) -> Result<Self> {
        fs::create_dir_all(folder).context(|| format!("cannot make {}", folder.display()))?;
        let file = |kind: &str| folder.join(format!("{}.{kind}", guest.name));
        Ok(Self { console: file("console"), emulator: file("qemu") })
    }

    /// qemu's first error, or the first thing that it said.
    fn complaint(&self) -> String {
        let text = fs::read_to_string(&self.emulator).unwrap_or_default();
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        let error = lines.clone().find(|line| line.starts_with(KVM_ERROR));
        error.or_else(|| lines.next()).unwrap_or_default().to_owned()
    }
}

/// How far a boot came.
#[derive(Debug)]
pub(super) enum Boot {
    /// It said what became of its checks; those that it did not come to are missing at the end.
    Ran {
        /// The release of its kernel.
        kernel: String,
        /// One for each check, in order.
        verdicts: Vec<(Verdict, Duration)>,
    },
    /// It never came up.
    Dead(String),
}

/// A running qemu; it is killed when dropped.
struct Emulated {
    child: Child,
    lines: mpsc::Receiver<Message>,
}

impl Drop for Emulated {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Boots a guest, reports each check by `told` as it ends, and waits until it is off.
pub(super) fn run(
    guest: &'static Guest,
    emulator: &Emulator,
    accelerator: Accelerator,
    (vmlinuz, initramfs): (&Path, &Path),
    logs: &Logs,
    mut told: impl FnMut(usize, &Verdict, Duration),
) -> Result<Boot> {
    let mut emulated = start(guest, emulator, accelerator, (vmlinuz, initramfs), logs)?;
    let limit = if accelerator == Accelerator::Kvm { BOOT_KVM } else { BOOT };
    let kernel = match emulated.ready(limit, logs) {
        Ok(kernel) => kernel,
        Err(why) => return Ok(Boot::Dead(why)),
    };
    let mut verdicts = Vec::new();
    let mut record = |verdict: Verdict, took: Duration| {
        told(verdicts.len(), &verdict, took);
        verdicts.push((verdict, took));
    };
    let mut begun = Instant::now();
    let mut limit = Duration::from_secs(30);
    let broken = loop {
        match emulated.next(begun + limit) {
            Ok(Message::Start { check }) => {
                begun = Instant::now();
                limit = guest.checks.get(check).map_or(limit, Check::limit);
            }
            Ok(Message::Done { verdict, .. }) => record(verdict, begun.elapsed()),
            Ok(Message::End) => break None,
            Ok(Message::Fatal { why }) => break Some(why),
            Ok(Message::Ready { .. }) => break Some("the guest started anew".to_owned()),
            Err(RecvTimeoutError::Timeout) => {
                break Some(format!("the guest hung for {} s", limit.as_secs()));
            }
            Err(RecvTimeoutError::Disconnected) => {
                break Some(format!("the guest died; see {}", logs.console.display()));
            }
        }
    };
    if let Some(why) = broken {
        record(Verdict::Failed(why), begun.elapsed());
    } else {
        // It is about to power off, and qemu ends with it.
        let until = Instant::now() + POWER_OFF;
        while emulated.next(until).is_ok() {}
    }
    Ok(Boot::Ran { kernel, verdicts })
}

fn start(
    guest: &Guest,
    emulator: &Emulator,
    accelerator: Accelerator,
    (vmlinuz, initramfs): (&Path, &Path),
    logs: &Logs,
) -> Result<Emulated> {
    let this = std::env::current_exe().context(|| "where is this program?".to_owned())?;
    let mut command = Command::new(this);
    command.arg(network::SUBCOMMAND);
    if network::has_taps(guest) {
        command.arg("--taps");
    }
    command.arg("--").arg(&emulator.program);
    for folder in &emulator.firmware {
        command.arg("-L").arg(folder);
    }
    command.args(["-machine", "q35", "-nodefaults", "-no-user-config", "-no-reboot"]);
    command.args(["-display", "none", "-m", "1024", "-smp"]);
    command.arg(guest.queues.max(2).to_string());
    command.args(accelerator.arguments());
    command.arg("-kernel").arg(vmlinuz).arg("-initrd").arg(initramfs);
    let words = format!("console=ttyS0 loglevel=4 panic=-1 net.ifnames=0 vm.guest={}", guest.name);
    command.arg("-append").arg(words);
    command.arg("-serial").arg(format!("file:{}", logs.console.display()));
    command.args(["-serial", "stdio"]);
    command.args(network::arguments(guest));
    let complaints = File::create(&logs.emulator)
        .context(|| format!("cannot write {}", logs.emulator.display()))?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(complaints)
        .spawn()
        .context(|| "cannot start a guest".to_owned())?;
    let output = child.stdout.take().ok_or_else(|| Error::failed("no output of qemu"))?;
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            let Ok(line) = line else { break };
            // Firmware may write to any serial line before the kernel is up.
            if let Ok(message) = serde_json::from_str(line.trim())
                && sender.send(message).is_err()
            {
                break;
            }
        }
    });
    Ok(Emulated { child, lines })
}

impl Emulated {
    fn next(&self, until: Instant) -> std::result::Result<Message, RecvTimeoutError> {
        self.lines.recv_timeout(until.saturating_duration_since(Instant::now()))
    }

    /// Waits until the guest is up; if it does not come up, says why.
    fn ready(&mut self, limit: Duration, logs: &Logs) -> std::result::Result<String, String> {
        let until = Instant::now() + limit;
        loop {
            let step = Instant::now() + Duration::from_millis(200);
            match self.next(step.min(until)) {
                Ok(Message::Ready { kernel }) => return Ok(kernel),
                Ok(Message::Fatal { why }) => return Err(why),
                Ok(_) => return Err("the guest spoke out of turn".to_owned()),
                Err(RecvTimeoutError::Disconnected) => {
                    let complaint = logs.complaint();
                    return Err(if complaint.is_empty() {
                        format!("the guest died; see {}", logs.console.display())
                    } else {
                        complaint
                    });
                }
                Err(RecvTimeoutError::Timeout) => {
                    let complaint = logs.complaint();
                    if complaint.starts_with(KVM_ERROR) {
                        return Err(complaint);
                    }
                    if Instant::now() >= until {
                        return Err(format!("no life in the guest for {} s", limit.as_secs()));
                    }
                }
            }
        }
    }
}
