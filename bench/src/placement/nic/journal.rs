//! What was changed, written down before it is changed, so that the next run puts back what one that
//! was killed left behind.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Roots, Setting};
use crate::error::{Context, Error, Result};
use crate::owner::Owner;

/// What one process has changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) owner: Owner,
    /// How things were before.
    pub(super) before: Vec<Setting>,
}

/// The journal's folder, held against other processes.
#[derive(Debug)]
pub(super) struct Journal {
    folder: PathBuf,
    _lock: File,
}

impl Journal {
    /// Waits until no other process reads or writes it.
    pub(super) fn lock(roots: &Roots) -> Result<Self> {
        // Lost at a reboot, as the settings are.
        let folder = roots.run.join("mpxdp-placement");
        fs::create_dir_all(&folder).context(|| format!("cannot make {}", folder.display()))?;
        let path = folder.join("lock");
        let failed = || format!("cannot lock {}", path.display());
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .context(failed)?;
        lock.lock().context(failed)?;
        Ok(Self { folder, _lock: lock })
    }

    /// All entries, with where they are. One that cannot be read is an error: settings may depend on
    /// it.
    pub(super) fn entries(&self) -> Result<Vec<(PathBuf, Entry)>> {
        let files = fs::read_dir(&self.folder)
            .context(|| format!("cannot read {}", self.folder.display()))?;
        let mut entries = Vec::new();
        for file in files {
            let path = file.context(|| "cannot read the journal")?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let text = fs::read(&path).context(|| format!("cannot read {}", path.display()))?;
                let entry = serde_json::from_slice(&text).map_err(|error| {
                    Error::Failed(format!(
                        "{} is damaged ({error}): it has interrupts' affinities as they were; put \
                         them back by hand and remove it",
                        path.display()
                    ))
                })?;
                entries.push((path, entry));
            }
        }
        Ok(entries)
    }

    /// Writes an entry, whole or not at all, and returns where.
    pub(super) fn write(&self, entry: &Entry) -> Result<PathBuf> {
        let path = self.folder.join(format!("{}.json", entry.owner.pid()));
        let text = serde_json::to_vec(entry).map_err(|error| Error::failed("journal", error))?;
        let unfinished = path.with_extension("new");
        let failed = || format!("cannot write {}", path.display());
        fs::write(&unfinished, text).context(failed)?;
        fs::rename(&unfinished, &path).context(failed)?;
        Ok(path)
    }

    /// Forgets an entry.
    pub(super) fn forget(path: &Path) -> Result<()> {
        fs::remove_file(path).context(|| format!("cannot remove {}", path.display()))
    }
}
