//! What labs there are, written down before they are made, so that even a lab half made by a
//! process that was killed is found and removed.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::spec::Spec;
use crate::error::{Context, Error, Result};
use crate::interrupt::Interrupt;
use crate::owner::Owner;

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

impl Entry {
    /// A lab that stays until it is taken down.
    pub(super) const fn kept(spec: Spec) -> Self {
        Self { spec, owner: None, complete: true }
    }

    /// A lab that goes with this process.
    pub(super) fn owned(spec: Spec) -> Result<Self> {
        Ok(Self { spec, owner: Some(Owner::current()?), complete: true })
    }

    /// The process that has it, if that runs.
    pub(super) fn user(&self) -> Option<&Owner> {
        self.owner.as_ref().filter(|owner| owner.is_alive())
    }

    /// Whether the process that it should have gone with is gone.
    pub(super) fn is_orphan(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| !owner.is_alive())
    }
}

/// Held while labs are made or removed; `ip netns add` itself is not safe against another one.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

/// Waits until no other process makes or removes a lab, or a signal comes.
pub(super) fn lock(interrupt: &Interrupt) -> Result<Lock> {
    fs::create_dir_all(FOLDER).context(|| format!("cannot make {FOLDER}"))?;
    lock_file(&Path::new(FOLDER).join("lock"), interrupt)
}

fn lock_file(path: &Path, interrupt: &Interrupt) -> Result<Lock> {
    /// How often it is tried: a wait within the kernel would not see the signal.
    const GLANCE: Duration = Duration::from_millis(10);
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .context(|| format!("cannot open {}", path.display()))?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Lock { _file: file }),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => {
                return Err(Error::failed(format!("cannot lock {}", path.display()), error));
            }
        }
        interrupt.check()?;
        thread::sleep(GLANCE);
    }
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
    fn who_waits_for_another_one_can_be_told_to_stop() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lock");
        let held = lock_file(&path, &Interrupt::never()).expect("nobody has it");
        let interrupt = Interrupt::never();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| lock_file(&path, &interrupt));
            interrupt.set();
            let ended = waiting.join().expect("no panic");
            assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
        });
        drop(held);
        lock_file(&path, &Interrupt::never()).expect("nobody has it any more");
    }
}
