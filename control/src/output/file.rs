//! Files: a single one, and a directory of them.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use mpxdp_cli::describe;
use mpxdp_cli::files::{self, Part, Place, may};
use nix::unistd::AccessFlags;

use crate::failure::Failure;

/// Brings what was written to the disk, if that is where it went.
pub(super) fn sync(file: &File) -> io::Result<()> {
    if file.metadata()?.is_file() { file.sync_data() } else { Ok(()) }
}

/// The place of `--output FILE`.
#[derive(Debug)]
pub(crate) enum Target {
    /// A file, to be made or replaced when its connection has come whole.
    File(PathBuf),
    /// A device, a pipe or the like, written to as it is.
    Device(PathBuf, File),
}

impl Target {
    /// Finds out whether the file can be made or replaced, and leaves it as it is; what is no file is
    /// opened.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        if path.is_dir() {
            return Err(Failure::usage(format!(
                "--output {0}: is a directory; end it with / to have one file a connection: {0}/",
                path.display()
            )));
        }
        // A symbolic link stays, and what it points to is made or replaced.
        files::writable(path)
            .and_then(|place| match place {
                Place::File(real) => Ok(Self::File(real)),
                Place::Other => {
                    let opened = OpenOptions::new().write(true).open(path)?;
                    Ok(Self::Device(path.to_owned(), opened))
                }
            })
            .map_err(|e| Failure::unwritable("--output", path, &e))
    }
}

/// The directory of `--output DIR/`.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// The highest number in use before this run.
    offset: u64,
    /// Whether it is ours to remove, having been created by a run that did not begin.
    remove: bool,
}

impl Directory {
    /// Finds the directory, creating it if it is not there.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let unwritable = |e: &io::Error| Failure::unwritable("--output", path, e);
        let remove = match fs::create_dir(path) {
            Ok(()) => true,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => false,
            Err(e) => return Err(unwritable(&e)),
        };
        let mut directory = Self { path: path.to_owned(), offset: 0, remove };
        may(path, AccessFlags::W_OK | AccessFlags::X_OK).map_err(|e| unwritable(&e))?;
        let entries = fs::read_dir(path).map_err(|e| {
            Failure::usage(format!(
                "--output {}: cannot be read: {}; name a directory that you may read",
                path.display(),
                describe(&e)
            ))
        })?;
        for entry in entries {
            let entry = entry.map_err(|e| unwritable(&e))?;
            let number = entry.file_name().to_str().and_then(number_of);
            directory.offset = directory.offset.max(number.unwrap_or(0));
        }
        Ok(directory)
    }

    /// See [`Output::keep`](super::Output::keep).
    pub(super) const fn keep(&mut self) {
        self.remove = false;
    }

    /// Creates the file for a connection.
    pub(super) fn part(&self, number: u64, peer: SocketAddr) -> io::Result<Part> {
        let path = self.path.join(name_of(self.offset.saturating_add(number), peer));
        // Never over a file that someone else has put there meanwhile.
        Part::new(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.remove {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// The name of the file for connection `number` from `peer`. The colons of IPv6 addresses become
/// underscores, since tools like scp take a colon for the end of a host's name.
fn name_of(number: u64, peer: SocketAddr) -> String {
    let ip = match peer.ip() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => ip.to_string().replace(':', "_"),
    };
    format!("{number:04}-{ip}-{}.bin", peer.port())
}

/// The number in a name that [`name_of`] made.
fn number_of(name: &str) -> Option<u64> {
    let (number, rest) = name.split_once('-')?;
    let ours = rest.ends_with(".bin") || rest.ends_with(".bin.part");
    let digits = number.len() >= 4 && number.bytes().all(|b| b.is_ascii_digit());
    (ours && digits).then(|| number.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_by_number_and_are_safe_for_other_tools() {
        assert_eq!(name_of(1, "10.0.0.2:40112".parse().unwrap()), "0001-10.0.0.2-40112.bin");
        assert_eq!(name_of(12, "[2001:db8::2]:9".parse().unwrap()), "0012-2001_db8__2-9.bin");
        assert_eq!(name_of(123_456, "10.0.0.2:1".parse().unwrap()), "123456-10.0.0.2-1.bin");
    }

    #[test]
    fn only_names_of_ours_have_a_number() {
        assert_eq!(number_of("0007-10.0.0.2-40112.bin"), Some(7));
        assert_eq!(number_of("0008-10.0.0.2-40112.bin.part"), Some(8));
        assert_eq!(number_of("123456-10.0.0.2-1.bin"), Some(123_456));
        for name in ["", "notes.txt", "1-x.bin", "2024-01-01.log", "abcd-x.bin", "0001"] {
            assert_eq!(number_of(name), None, "{name}");
        }
    }
}
