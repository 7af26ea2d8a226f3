//! The initial file system of a guest: a cpio archive in the form that the kernel unpacks.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::error::{Context, Result};

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// An archive in the making ("newc").
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<String>,
    count: u32,
}

impl Archive {
    /// An archive with the one device that the kernel needs before there is /dev: without it the
    /// first process has no standard output.
    pub(super) fn new() -> Self {
        let mut archive = Self::default();
        archive.folder("dev");
        archive.entry("dev/console", CHARACTER_DEVICE, (5, 1), &[]);
        archive
    }

    /// Adds a folder and those that it is in.
    pub(super) fn folder(&mut self, path: &str) {
        let path = path.trim_matches('/');
        if path.is_empty() || self.folders.contains(path) {
            return;
        }
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.folder(parent);
        }
        self.folders.insert(path.to_owned());
        self.entry(path, DIRECTORY, (0, 0), &[]);
    }

    /// Adds a file.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) {
        let path = path.trim_matches('/');
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.folder(parent);
        }
        self.entry(path, PROGRAM, (0, 0), content);
    }

    /// Adds a file of the host.
    pub(super) fn copy(&mut self, path: &str, from: &Path) -> Result<()> {
        let content = fs::read(from).context(|| format!("cannot read {}", from.display()))?;
        self.file(path, &content);
        Ok(())
    }

    /// The whole archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.count += 1;
        let (owner, links, time, on) = (0, 1, 0, 0);
        let fields = [
            self.count,
            mode,
            owner,
            owner,
            links,
            time,
            content.len() as u32,
            on,
            on,
            device.0,
            device.1,
            path.len() as u32 + 1,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_come_once_and_before_what_is_in_them() {
        let mut archive = Archive::new();
        archive.file("/a/b/one", b"1");
        archive.file("a/b/two", b"22222");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        // A header is 110 bytes of text; the name's length is its twelfth field.
        let (mut at, mut names) = (0, Vec::new());
        while at < bytes.len() {
            let field = |n: usize| {
                let text = std::str::from_utf8(&bytes[at + 6 + 8 * n..][..8]).unwrap();
                usize::from_str_radix(text, 16).unwrap()
            };
            let (size, name) = (field(6), field(11));
            let text = &bytes[at + 110..][..name - 1];
            names.push(std::str::from_utf8(text).unwrap().to_owned());
            at = ((at + 110 + name).next_multiple_of(4) + size).next_multiple_of(4);
        }
        let wanted = ["dev", "dev/console", "a", "a/b", "a/b/one", "a/b/two", "TRAILER!!!"];
        assert_eq!(names, wanted);
    }
}
