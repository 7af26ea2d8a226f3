//! qemu: which there is, and how it runs a guest.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::apt::Suite;
use super::tool;
use crate::error::{Context, Error, Result};

const PROGRAM: &str = "qemu-system-x86_64";

/// A qemu.
#[derive(Clone, Debug)]
pub(super) struct Emulator {
    /// The program.
    pub(super) program: PathBuf,
    /// Where its firmware lies, if not where it looks.
    pub(super) firmware: Vec<PathBuf>,
    /// Its version, as it says it.
    pub(super) version: String,
}

impl Emulator {
    /// A qemu of at least that major version: the machine's or, if that is older, a newer build for
    /// the same release of Debian.
    pub(super) fn get(cache: &Path, major: u32) -> Result<Self> {
        let own = Self::open(PROGRAM.into(), Vec::new()).map_err(|_| {
            Error::Missing(format!("no {PROGRAM}: apt-get install qemu-system-x86"))
        })?;
        if own.major() >= major {
            return Ok(own);
        }
        // Programs of other releases want other libraries.
        let wants = format!("qemu {major} is needed and this is {}", own.version);
        let suite = match release().as_deref() {
            Some("bookworm") => Suite::open(cache, "bookworm-backports"),
            _ => return Err(Error::Missing(wants)),
        }
        .map_err(|error| Error::Missing(format!("{wants}; {error}")))?;
        let wanted = |name: &str| ["qemu-system-common", "qemu-system-data"].contains(&name);
        let root = suite.unpack(&suite.resolve("qemu-system-x86", wanted)?)?;
        let firmware = vec![
            root.join("usr/share/qemu"),
            "/usr/share/qemu".into(),
            "/usr/share/seabios".into(),
        ];
        let newer = Self::open(root.join("usr/bin").join(PROGRAM), firmware)?;
        if newer.major() < major {
            return Err(Error::Missing(format!("{wants}; its backport is {}", newer.version)));
        }
        Ok(newer)
    }

    fn open(program: PathBuf, firmware: Vec<PathBuf>) -> Result<Self> {
        let text = tool::run(Command::new(&program).arg("--version"))?;
        let version = text.split_whitespace().nth(3).unwrap_or_default().to_owned();
        Ok(Self { program, firmware, version })
    }

    fn major(&self) -> u32 {
        let digits = self.version.split('.').next().and_then(|number| number.parse().ok());
        digits.unwrap_or(0)
    }
}

/// The host's Debian release by name.
fn release() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    let name = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    Some(name.trim_matches('"').to_owned())
}

/// The file that says in which run of the machine KVM was seen to fail.
const KVM_FAILED: &str = "kvm-failed";

/// Different each time that the machine starts.
fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// What executes a guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accelerator {
    /// The host's processor.
    Kvm,
    /// qemu.
    Tcg,
}

impl Accelerator {
    /// What this machine seems to have. That /dev/kvm opens does not prove that it works: on nested
    /// virtual machines it may end with an emulation error.
    pub(super) fn probe(cache: &Path) -> Self {
        let failed = fs::read_to_string(cache.join(KVM_FAILED));
        if failed.is_ok_and(|boot| boot == boot_id()) {
            return Self::Tcg;
        }
        match OpenOptions::new().read(true).write(true).open("/dev/kvm") {
            Ok(_) => Self::Kvm,
            Err(_) => Self::Tcg,
        }
    }

    /// Remembers, until the machine is started anew, that KVM does not work.
    pub(super) fn remember_failure(cache: &Path) -> Result<()> {
        let path = cache.join(KVM_FAILED);
        fs::write(&path, boot_id()).context(|| format!("cannot write {}", path.display()))
    }

    /// Its arguments.
    pub(super) const fn arguments(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Self::Tcg => ["-accel", "tcg,thread=multi", "-cpu", "max"],
        }
    }

    /// Its name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kvm => "KVM",
            Self::Tcg => "TCG",
        }
    }
}
