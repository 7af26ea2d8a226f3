//! The guest's part: the first process of a machine that has nothing but the initial file system.

mod bpf;
mod command;
pub(crate) mod network;
mod receiver;
mod transfer;

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};

use crate::error::{Context, Error, Result};
use crate::plan::{Check, Guest};
use crate::wire::{Message, Verdict};
use network::Network;

/// The serial line to the host; the first one is the kernel's console.
const LINE: &str = "/dev/ttyS1";

/// Runs everything and powers off.
pub(crate) fn main() -> ! {
    if let Err(error) = run() {
        eprintln!("init: {error}");
        if let Ok(mut host) = Host::open() {
            host.tell(&Message::Fatal { why: error.to_string() });
        }
    }
    // The line's driver still has the last words.
    std::thread::sleep(Duration::from_millis(100));
    let _ = reboot(RebootMode::RB_POWER_OFF);
    // Only a kernel that cannot power off gets here; the host's limit ends it.
    loop {
        std::thread::park();
    }
}

fn run() -> Result<()> {
    mount_all()?;
    let guest = this_guest()?;
    let mut host = Host::open()?;
    load_modules()?;
    let network = Network::set_up(guest)?;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")
        .context(|| "cannot read the kernel's release".to_owned())?;
    host.tell(&Message::Ready { kernel: release.trim().to_owned() });
    for (index, check) in guest.checks.iter().enumerate() {
        eprintln!("init: {check}");
        host.tell(&Message::Start { check: index });
        let verdict = match run_check(check, &network) {
            Ok(note) => Verdict::Passed(note),
            Err(Error::Missing(why)) => Verdict::NotRun(why),
            Err(Error::Failed(why) | Error::Usage(why)) => Verdict::Failed(why),
        };
        eprintln!("init: {verdict:?}");
        host.tell(&Message::Done { check: index, verdict });
    }
    host.tell(&Message::End);
    Ok(())
}

fn run_check(check: &Check, network: &Network) -> Result<String> {
    match check {
        Check::Transfer(transfer) => transfer::run(transfer, network),
        Check::Kill(transfer) => transfer::after_kill(transfer, network),
        Check::Queues(transfer, queues) => transfer::with_queues(transfer, network, queues),
        Check::Bpf => bpf::run(network.guest.kernel),
    }
}

/// The line to the host.
struct Host(File);

impl Host {
    fn open() -> Result<Self> {
        let mut options = OpenOptions::new();
        // Not to become our terminal, which could send us signals.
        options.write(true).custom_flags(nix::fcntl::OFlag::O_NOCTTY.bits());
        options.open(LINE).map(Self).context(|| format!("cannot open {LINE}"))
    }

    fn tell(&mut self, message: &Message) {
        let Ok(mut text) = serde_json::to_string(message) else { return };
        text.push('\n');
        // Without the line there is nobody to tell that it failed; the host's limit notices.
        let _ = self.0.write_all(text.as_bytes());
    }
}

fn mount_all() -> Result<()> {
    for (kind, place) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/tmp"),
        ("tmpfs", "/run"),
        ("bpf", "/sys/fs/bpf"),
    ] {
        mount(Some(kind), place, Some(kind), MsFlags::empty(), None::<&str>)
            .context(|| format!("cannot mount {place}"))?;
    }
    Ok(())
}

/// Who this is, by the kernel's command line.
fn this_guest() -> Result<&'static Guest> {
    let line = fs::read_to_string("/proc/cmdline").context(|| "no command line".to_owned())?;
    let name = line.split_whitespace().find_map(|word| word.strip_prefix("vm.guest="));
    name.and_then(Guest::named).ok_or_else(|| Error::failed(format!("which guest is this? {line}")))
}

/// Loads what the host packed, in the order of the names. What does not load is missed by whatever
/// needs it, and the console says why.
fn load_modules() -> Result<()> {
    let entries = fs::read_dir("/modules").context(|| "no modules".to_owned())?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let file = File::open(&path).context(|| format!("cannot open {}", path.display()))?;
        if let Err(error) = finit_module(&file, c"", ModuleInitFlags::empty()) {
            eprintln!("init: {}: {error}", path.display());
        }
    }
    Ok(())
}
