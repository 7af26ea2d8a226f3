//! Files that results go to: found writable before the work, and replaced as a whole after it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::AtFlags;
use nix::unistd::{AccessFlags, Gid, Uid, faccessat, fchown};

/// The ending of a file that is not complete.
const PART: &str = ".part";

/// What a path leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// A file with this path, symbolic links followed, whether or not it is there yet. It is to be
    /// replaced as a whole.
    File(PathBuf),
    /// A device, a pipe or the like, which cannot be replaced but is written to as it is.
    Other,
}

impl Place {
    /// Finds it.
    ///
    /// # Errors
    ///
    /// `EISDIR` for a directory; what the kernel says.
    pub fn of(path: &Path) -> io::Result<Self> {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => Err(io::Error::from_raw_os_error(libc::EISDIR)),
            // As it is: the links of /dev/stdout may lead to what has no path.
            Ok(metadata) if !metadata.is_file() => Ok(Self::Other),
            Ok(metadata) => {
                let real = followed(path)?;
                // /dev/stdout may be a file that has no name any more.
                let there = fs::metadata(&real).is_ok_and(|found| id(&found) == id(&metadata));
                Ok(if there { Self::File(real) } else { Self::Other })
            }
            // The name of a folder that is not there.
            Err(error) if error.kind() == io::ErrorKind::NotFound && ends_in_slash(path) => {
                Err(io::Error::from_raw_os_error(libc::EISDIR))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => followed(path).map(Self::File),
            Err(error) => Err(error),
        }
    }
}

/// Finds out whether a path can be written to, and changes nothing.
///
/// # Errors
///
/// Why it cannot.
pub fn writable(path: &Path) -> io::Result<Place> {
    let place = Place::of(path)?;
    match &place {
        Place::Other => may(path, AccessFlags::W_OK)?,
        Place::File(real) => {
            if real.exists() {
                may(real, AccessFlags::W_OK)?;
            }
            may_create_in(parent(real))?;
            // A name that is short enough may not be so with its ending.
            match fs::metadata(part_of(real)) {
                Ok(metadata) if metadata.is_dir() => {
                    return Err(io::Error::from_raw_os_error(libc::EISDIR));
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(place)
}

/// Writes a text. A file appears, or is replaced, as a whole: who waits for it never sees a part of
/// it, and until then it is as it was.
///
/// # Errors
///
/// What the kernel says; the file is as it was then.
pub fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let real = match Place::of(path)? {
        Place::File(real) => real,
        Place::Other => return OpenOptions::new().write(true).open(path)?.write_all(text),
    };
    let mut part = Part::replacing(real)?;
    if let Err(error) = part.file().write_all(text) {
        let _ = fs::remove_file(part.place());
        return Err(error);
    }
    part.finish().map(drop)
}

/// What tells one file from another.
fn id(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Whether two paths name the same file, as far as their text or the file system tells. Devices and
/// pipes are none.
#[must_use]
pub fn same(one: &Path, other: &Path) -> bool {
    // A file that is not there yet lies in a folder that is.
    let real = |path: &Path| match Place::of(path) {
        Ok(Place::File(real)) => {
            let named = || Some(parent(&real).canonicalize().ok()?.join(real.file_name()?));
            let id = fs::metadata(&real).ok().map(|there| id(&there));
            // Hard links have the same number.
            Some((id, if id.is_some() { None } else { named() }))
        }
        _ => None,
    };
    (one == other && !one.exists()) || real(one).is_some_and(|one| Some(one) == real(other))
}

/// Whether this process may do that with the path, read-only file systems considered.
///
/// # Errors
///
/// Why not.
pub fn may(path: &Path, what: AccessFlags) -> io::Result<()> {
    faccessat(nix::fcntl::AT_FDCWD, path, what, AtFlags::AT_EACCESS).map_err(Into::into)
}

/// Whether files can be made in a directory: one is, and goes at once. Permissions alone do not tell;
/// root has them in `/proc` too.
///
/// # Errors
///
/// Why not.
pub fn may_create_in(directory: &Path) -> io::Result<()> {
    let probe = directory.join(format!(".mpxdp-{}", std::process::id()));
    match OpenOptions::new().write(true).create_new(true).open(&probe) {
        // Somebody of this process is trying the same.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        made => made.map(drop)?,
    }
    fs::remove_file(&probe)
}

/// The directory that a path lies in.
#[must_use]
pub fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// The path with the symbolic links at its end followed, whether or not something is there.
fn followed(path: &Path) -> io::Result<PathBuf> {
    /// As many as the kernel follows.
    const LINKS: usize = 40;

    let mut path = path.to_owned();
    for _ in 0..LINKS {
        match fs::read_link(&path) {
            Ok(to) => path = parent(&path).join(to),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

fn ends_in_slash(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}

/// Where what is to become the file at `path` is until it is complete.
#[must_use]
pub fn part_of(path: &Path) -> PathBuf {
    let mut part = path.to_owned().into_os_string();
    part.push(PART);
    part.into()
}

/// A file that has its name only once it is complete.
#[derive(Debug)]
pub struct Part {
    file: File,
    part: PathBuf,
    path: PathBuf,
}

impl Part {
    /// Begins the file that is to be `path`. What a former run left of it goes.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn replacing(path: PathBuf) -> io::Result<Self> {
        Self::create(path, OpenOptions::new().create(true).truncate(true))
    }

    /// Begins the file that is to be `path`, which must not have been begun by anybody else.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn new(path: PathBuf) -> io::Result<Self> {
        Self::create(path, OpenOptions::new().create_new(true))
    }

    fn create(path: PathBuf, how: &mut OpenOptions) -> io::Result<Self> {
        let part = part_of(&path);
        let file = how.write(true).open(&part)?;
        Ok(Self { file, part, path })
    }

    /// What is written to.
    pub const fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Where the data is so far.
    #[must_use]
    pub fn place(&self) -> &Path {
        &self.part
    }

    /// Makes it last under its final name, which it returns.
    ///
    /// # Errors
    ///
    /// What the kernel says; the data is under its preliminary name then.
    pub fn finish(self) -> io::Result<PathBuf> {
        if let Ok(old) = fs::metadata(&self.path) {
            // Whose file it is and who may read it stays the same; whether that can be so is no
            // matter for the data. The owner first: another one takes bits of the mode away.
            let (uid, gid) = (Uid::from_raw(old.uid()), Gid::from_raw(old.gid()));
            let _ = fchown(self.file.as_fd(), Some(uid), Some(gid));
            let _ = self.file.set_permissions(old.permissions());
        }
        self.file.sync_data()?;
        fs::rename(&self.part, &self.path)?;
        // The new name must last too.
        File::open(parent(&self.path))?.sync_data()?;
        Ok(self.path)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).expect("there").map(|entry| entry.expect("an entry"));
        let mut names: Vec<_> =
            names.map(|entry| entry.file_name().into_string().expect("text")).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_found_writable_without_a_trace_and_replaced_as_a_whole() {
        let temp = tempfile::tempdir().expect("a folder");
        let path = temp.path().join("out");
        assert_eq!(writable(&path).expect("writable"), Place::File(path.clone()));
        assert!(names(temp.path()).is_empty());
        fs::write(&path, "a former run's, and longer").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("set");
        writable(&path).expect("writable");
        assert_eq!(fs::read(&path).expect("there"), b"a former run's, and longer");
        write(&path, b"new").expect("written");
        assert_eq!(fs::read(&path).expect("there"), b"new");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o640);
        assert_eq!(names(temp.path()), ["out"]);
    }

    #[test]
    fn what_cannot_be_written_is_found_before() {
        let temp = tempfile::tempdir().expect("a folder");
        let kind = |path: &Path| writable(path).expect_err("not writable").kind();
        assert_eq!(kind(temp.path()), io::ErrorKind::IsADirectory);
        assert_eq!(kind(&temp.path().join("new/")), io::ErrorKind::IsADirectory);
        assert_eq!(kind(&temp.path().join("no/file")), io::ErrorKind::NotFound);
        let long = temp.path().join("x".repeat(253));
        assert_eq!(kind(&long), io::ErrorKind::InvalidFilename, "with .part it is too long");
        let part = temp.path().join("a.part");
        fs::create_dir(part).expect("made");
        assert_eq!(kind(&temp.path().join("a")), io::ErrorKind::IsADirectory);
    }

    #[test]
    fn a_link_stays_and_what_it_leads_to_is_replaced() {
        let temp = tempfile::tempdir().expect("a folder");
        let (link, file) = (temp.path().join("link"), temp.path().join("file"));
        symlink("file", &link).expect("linked");
        for text in ["made", "replaced"] {
            write(&link, text.as_bytes()).expect("written");
            assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
            assert_eq!(fs::read_to_string(&file).expect("there"), text);
        }
        let round = temp.path().join("round");
        symlink("round", &round).expect("linked");
        assert!(writable(&round).is_err());
    }

    #[test]
    fn a_pipe_is_written_to_as_it_is() {
        let temp = tempfile::tempdir().expect("a folder");
        let pipe = temp.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("made");
        assert_eq!(writable(&pipe).expect("writable"), Place::Other);
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read(pipe).expect("read")
        });
        write(&pipe, b"through").expect("written");
        assert_eq!(reader.join().expect("it ends"), b"through");
        assert!(!same(&pipe, &pipe));
    }

    #[test]
    fn the_same_file_is_known_by_any_name() {
        let temp = tempfile::tempdir().expect("a folder");
        let at = |name: &str| temp.path().join(name);
        assert!(same(&at("new"), &at("new")) && same(&at("new"), &at("./new")));
        assert!(!same(&at("new"), &at("other")));
        fs::write(at("a"), "").expect("written");
        symlink("a", at("b")).expect("linked");
        fs::hard_link(at("a"), at("c")).expect("linked");
        fs::write(at("d"), "").expect("written");
        assert!(same(&at("a"), &at("b")) && same(&at("a"), &at("c")) && same(&at("b"), &at("c")));
        assert!(!same(&at("a"), &at("d")) && !same(&at("a"), &at("new")));
    }
}
