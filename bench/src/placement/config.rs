//! A placement in the service's configuration.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use mpxdp::Placement;
use mpxdp_cli::{describe, files};
use nix::unistd::{Gid, Uid, fchown};
use toml_edit::{DocumentMut, Item, Table, Value};

use crate::error::{Context, Error, Result};

/// The key, at the top level.
const KEY: &str = "placement";

/// A configuration file that a placement is to be written to.
#[derive(Debug)]
pub struct ConfigFile {
    path: PathBuf,
    document: DocumentMut,
}

impl ConfigFile {
    /// Reads a file, before the work that finds the placement: what cannot be written is better found
    /// first. A file that is not there is an empty one, and is created in the end.
    ///
    /// # Errors
    ///
    /// If it is no TOML, its placement is no text, or it cannot be read or written: wrong usage.
    pub fn open(path: &Path) -> Result<Self> {
        let wrong = |why: &dyn std::fmt::Display| {
            Error::Usage(format!("--write-config {}: {why}", path.display()))
        };
        if path == Path::new("-") {
            return Err(wrong(&"name a file, which is read and then written"));
        }
        // A link is kept, and what it points to replaced.
        let (path, text) = match fs::canonicalize(path) {
            // It will be replaced, which is no good for a device or a pipe.
            Ok(real) if !real.is_file() => return Err(wrong(&"it is no ordinary file")),
            Ok(real) => (real.clone(), fs::read_to_string(real).map_err(|error| wrong(&error))?),
            Err(error) if error.kind() == ErrorKind::NotFound => (path.to_owned(), String::new()),
            Err(error) => return Err(wrong(&error)),
        };
        let document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| {
            // It has the line and a picture of it; one line is enough.
            let place = error.span().map(|span| text[..span.start].lines().count().max(1));
            let place = place.map_or_else(String::new, |line| format!("line {line}: "));
            wrong(&format!("{place}{}", error.message().replace('\n', ", ")))
        })?;
        if document.get(KEY).is_some_and(|item| !item.is_str()) {
            return Err(wrong(&format!("`{KEY}` is there, but is no text")));
        }
        files::writable(&path).map_err(|error| wrong(&describe(&error)))?;
        Ok(Self { path, document })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts a placement in; comments, order and all other keys stay. The file is replaced as a whole,
    /// with its owner and mode. Where that would not be the same file, since it has other names (hard
    /// links) or belongs to somebody whose files this process cannot make, it is written in place.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn write(mut self, placement: &Placement) -> Result<()> {
        set(self.document.as_table_mut(), &placement.to_string());
        let failed = || format!("cannot write {}", self.path.display());
        let text = self.document.to_string();
        let old = fs::metadata(&self.path).ok();
        if old.as_ref().is_some_and(|old| old.nlink() > 1) {
            return write_in_place(&self.path, &text).context(failed);
        }
        let mut new = tempfile::NamedTempFile::new_in(files::parent(&self.path)).context(failed)?;
        new.write_all(text.as_bytes()).context(failed)?;
        if let Some(old) = &old {
            let (uid, gid) = (Uid::from_raw(old.uid()), Gid::from_raw(old.gid()));
            if fchown(new.as_file().as_fd(), Some(uid), Some(gid)).is_err() {
                return write_in_place(&self.path, &text).context(failed);
            }
        }
        // After the owner, a change of which takes bits of the mode away.
        let mode = old.map_or_else(default_mode, |old| old.permissions());
        new.as_file().set_permissions(mode).context(failed)?;
        new.as_file().sync_all().context(failed)?;
        new.persist(&self.path).map_err(|error| Error::failed(failed(), error.error))?;
        Ok(())
    }
}

/// Puts another text into a file that stays the same.
fn write_in_place(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)?;
    file.sync_all()
}

/// What a file has that is made by hand; a temporary one is for its owner alone.
fn default_mode() -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o644)
}

/// Changes the value, with whatever stands around it left as it is.
fn set(table: &mut Table, placement: &str) {
    let mut value = Value::from(placement);
    match table.get_mut(KEY) {
        Some(Item::Value(old)) => {
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        _ => {
            table.insert(KEY, Item::Value(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement() -> Placement {
        "napi=0 worker=2,3 reader=1".parse().expect("a placement")
    }

    /// What becomes of a file.
    fn written(text: Option<&str>) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mpxdp.toml");
        if let Some(text) = text {
            fs::write(&path, text).expect("written");
        }
        ConfigFile::open(&path).expect("it can be read").write(&placement()).expect("written");
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 1, "nothing else is left");
        fs::read_to_string(&path).expect("there")
    }

    #[test]
    fn a_device_is_refused_and_not_replaced() {
        let error = ConfigFile::open(Path::new("/dev/zero")).expect_err("no file");
        assert!(error.to_string().contains("no ordinary file"), "{error}");
    }

    #[test]
    fn a_file_that_is_not_there_is_made() {
        assert_eq!(written(None), "placement = \"napi=0 worker=2,3 reader=1\"\n");
        assert_eq!(written(Some("")), "placement = \"napi=0 worker=2,3 reader=1\"\n");
    }

    #[test]
    fn comments_and_all_else_stay_as_they_are() {
        let before = "# The service.\nlisten = \"10.0.0.2:5000\"   # where\n\n\
            # Found on the bench.\nplacement   =   'worker=1'  # by hand\nnic = [\"eth0\"]\n\n\
            [limits] # most\nconnections=7\n";
        let after = before.replace("'worker=1'", "\"napi=0 worker=2,3 reader=1\"");
        assert_eq!(written(Some(before)), after);
    }

    #[test]
    fn a_new_key_goes_before_the_tables_where_the_top_level_is() {
        let after = written(Some("mode = \"copy\"\n\n[limits]\nplacement = 3\n"));
        let document: DocumentMut = after.parse().expect("TOML");
        assert_eq!(document[KEY].as_str(), Some("napi=0 worker=2,3 reader=1"));
        assert_eq!(document["limits"][KEY].as_integer(), Some(3));
        assert!(after.starts_with("mode = \"copy\"\n"), "{after}");
    }

    #[test]
    fn a_file_keeps_its_mode_and_a_link_its_place() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let (path, link) = (folder.path().join("real.toml"), folder.path().join("link.toml"));
        fs::write(&path, "").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("set");
        std::os::unix::fs::symlink(&path, &link).expect("linked");
        ConfigFile::open(&link).expect("read").write(&placement()).expect("written");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o640);
        assert!(fs::read_to_string(&path).expect("there").contains("worker=2,3"));
    }

    #[test]
    fn a_file_keeps_its_owner_and_its_other_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, other) = (folder.path().join("a.toml"), folder.path().join("b.toml"));
        fs::write(&path, "# a comment that makes it longer than what it becomes\n")
            .expect("written");
        fs::hard_link(&path, &other).expect("linked");
        ConfigFile::open(&path).expect("read").write(&placement()).expect("written");
        let text = fs::read_to_string(&other).expect("there");
        assert!(text.contains("worker=2,3"), "{text}");
        assert_eq!(fs::metadata(&path).expect("there").nlink(), 2);
        fs::remove_file(&other).expect("removed");
        // Only root can give files away.
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(1234), Some(4321)).expect("given away");
            ConfigFile::open(&path).expect("read").write(&placement()).expect("written");
            let there = fs::metadata(&path).expect("there");
            assert_eq!((there.uid(), there.gid()), (1234, 4321));
        }
    }

    #[test]
    fn standard_output_is_no_configuration() {
        let error = ConfigFile::open(Path::new("-")).expect_err("no file");
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("name a file"), "{error}");
    }

    #[test]
    fn what_cannot_be_kept_is_refused_in_one_line_and_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mpxdp.toml");
        for (text, named) in [
            ("a = 1\nb = = 2\n", "line 2"),
            ("placement = 3\n", "no text"),
            ("[placement]\n", "no text"),
        ] {
            fs::write(&path, text).expect("written");
            let error = ConfigFile::open(&path).expect_err("refused");
            let message = error.to_string();
            assert_eq!(error.exit_code(), 2, "{message}");
            assert!(message.contains(named) && message.lines().count() == 1, "{message}");
            assert!(message.contains("mpxdp.toml"), "{message}");
            assert_eq!(fs::read_to_string(&path).expect("there"), text);
        }
        let nowhere = folder.path().join("no/such/file.toml");
        assert_eq!(ConfigFile::open(&nowhere).expect_err("no folder").exit_code(), 2);
        assert_eq!(ConfigFile::open(folder.path()).expect_err("a folder").exit_code(), 2);
    }
}
