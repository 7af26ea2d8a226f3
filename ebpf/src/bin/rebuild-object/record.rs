//! What the committed objects were built from, and by which compiler: `prebuilt/RECORD`.
//!
//! The sources' digest is what lets a test without a compiler see that an object is out of date.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use sha2::{Digest, Sha256};

/// The record's file, beside the objects.
pub(crate) const RECORD: &str = "RECORD";

/// What `prebuilt/RECORD` holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The compiler's version, as `14.0.6`.
    pub(crate) clang: String,
    /// SHA-256 over the names and contents of the C sources, in hexadecimal.
    pub(crate) sources: String,
}

impl Record {
    /// The record in `directory`.
    pub(crate) fn read(directory: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(directory.join(RECORD))?;
        let field = |name: &str| {
            text.lines()
                .filter_map(|line| line.split_once(' '))
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.trim().to_owned())
                .ok_or_else(|| {
                    io::Error::new(io::ErrorKind::InvalidData, format!("{RECORD}: no `{name}`"))
                })
        };
        Ok(Self { clang: field("clang")?, sources: field("sources")? })
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "clang {}\nsources {}", self.clang, self.sources)
    }
}

/// The digest of the C files in `directory`, in the order of their names.
pub(crate) fn digest_of_sources(directory: &Path) -> io::Result<String> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "c" || extension == "h") {
            paths.push(path);
        }
    }
    paths.sort();
    let mut hash = Sha256::new();
    for path in paths {
        let contents = fs::read(&path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        hash.update(format!("{name} {}\n", contents.len()));
        hash.update(contents);
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
