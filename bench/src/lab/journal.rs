//! What labs there are, written down before they are made, so that even a lab half made by a
//! process that was killed is found and removed.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::spec::Spec;
use crate::error::{Context, Error, Result};

/// Lost at a reboot, as namespaces are.
const FOLDER: &str = "/run/mpxdp-lab";

/// One lab, made or being made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) spec: Spec,
    /// The process the lab shall not outlive.
    pub(super) owner: Option<Owner>,
    /// False while it is being made.
    pub(super) complete: bool,
}

/// A process. Its number alone would be used again by another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    pid: u32,
    started: u64,
}

impl Owner {
    fn current() -> Result<Self> {
        let pid = std::process::id();
        let started = start_time(pid).ok_or_else(|| {
            Error::Failed("cannot read /proc/self/stat: is /proc mounted?".into())
        })?;
        Ok(Self { pid, started })
    }

    fn is_alive(&self) -> bool {
        start_time(self.pid) == Some(self.started)
    }
}

impl Entry {
    /// A lab that stays until it is taken down.
    pub(super) const fn kept(spec: Spec) -> Self {
        Self { spec, owner: None, complete: true }
    }

    /// A lab that goes with this process.
    pub(super) fn owned(spec: Spec) -> Result<Self> {
        Ok(Self { spec, owner: Some(Owner::current()?), complete: true })
    }

    /// Whether the process that it should have gone with is gone.
    pub(super) fn is_orphan(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| !owner.is_alive())
    }
}

/// When a process started, in clock ticks since boot; none if there is no such process.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_start_time(&stat)
}

/// The 22nd field of /proc/PID/stat. The second is the command in parentheses, which may itself
/// hold spaces and parentheses; it ends with the last one.
fn parse_start_time(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Held while labs are made or removed; `ip netns add` itself is not safe against another one.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

/// Waits until no other process makes or removes a lab.
pub(super) fn lock() -> Result<Lock> {
    fs::create_dir_all(FOLDER).context(|| format!("cannot make {FOLDER}"))?;
    let path = Path::new(FOLDER).join("lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .context(|| format!("cannot open {}", path.display()))?;
    file.lock().context(|| format!("cannot lock {}", path.display()))?;
    Ok(Lock { _file: file })
}

fn path(name: &str) -> PathBuf {
    file(&format!("{name}.json"))
}

/// A file beside the entries; its name must not end as theirs do.
pub(super) fn file(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// The entry of that name.
pub(super) fn read(name: &str) -> Result<Option<Entry>> {
    let path = path(name);
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| {
            Error::Failed(format!(
                "{} is damaged ({error}): remove it, and the namespaces {name}-snd and {name}-rcv \
                 with `ip netns del`",
                path.display()
            ))
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::failed(format!("cannot read {}", path.display()), error)),
    }
}

/// All entries that can be read.
pub(super) fn read_all() -> Result<Vec<Entry>> {
    let folder = fs::read_dir(FOLDER).context(|| format!("cannot read {FOLDER}"))?;
    let names = folder
        .flatten()
        .filter_map(|file| file.file_name().to_str()?.strip_suffix(".json").map(ToOwned::to_owned));
    Ok(names.filter_map(|name| read(&name).ok().flatten()).collect())
}

/// Writes an entry, whole or not at all.
pub(super) fn write(entry: &Entry) -> Result<()> {
    let path = path(&entry.spec.name);
    let text = serde_json::to_vec(entry).map_err(|error| Error::failed("journal", error))?;
    let unfinished = path.with_extension("new");
    fs::write(&unfinished, text).context(|| format!("cannot write {}", unfinished.display()))?;
    fs::rename(&unfinished, &path).context(|| format!("cannot write {}", path.display()))
}

/// Forgets an entry.
pub(super) fn forget(name: &str) -> Result<()> {
    let path = path(name);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::failed(format!("cannot remove {}", path.display()), error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_time_is_found_behind_any_command_name() {
        let fields = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
        for command in ["sh", "a b", "x) S 1 (y", ")"] {
            assert_eq!(parse_start_time(&format!("12 ({command}) {fields}")), Some(4711));
        }
        assert_eq!(parse_start_time("12 (sh) S 1"), None);
        assert_eq!(parse_start_time(""), None);
    }

    #[test]
    fn an_owner_is_alive_only_with_its_own_start_time() {
        let me = Owner::current().expect("own process");
        assert!(me.is_alive());
        assert!(!Owner { started: me.started + 1, ..me }.is_alive());
        let gone = std::process::Command::new("true").spawn().and_then(|mut child| {
            let pid = child.id();
            child.wait().map(|_| pid)
        });
        let gone = Owner { pid: gone.expect("true runs"), started: 0 };
        assert!(!gone.is_alive());
    }
}
