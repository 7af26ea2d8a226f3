//! Where the bytes of connections go.
//!
//! An [`OutputSpec`] is what the user named, an [`Output`] is that place found writable, and a
//! [`Sink`] takes the bytes of one connection. Sinks are given slices of the receive ring and write
//! them as they are: nothing is copied on the way to the kernel.

pub(crate) mod file;

use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use mpxdp_cli::files::Part;

use crate::failure::Failure;

use self::file::{Directory, Target};

/// The value of `--output`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum OutputSpec {
    /// Read in place and discard.
    Null,
    /// Standard output.
    Stdout,
    /// One file.
    File(PathBuf),
    /// One file a connection.
    Directory(PathBuf),
}

impl FromStr for OutputSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("it is empty; write FILE, DIR/, - or null".to_owned()),
            "null" => Ok(Self::Null),
            "-" => Ok(Self::Stdout),
            _ if text.ends_with('/') => Ok(Self::Directory(text.into())),
            _ => Ok(Self::File(text.into())),
        }
    }
}

impl fmt::Display for OutputSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Stdout => f.write_str("standard output"),
            Self::File(path) | Self::Directory(path) => path.display().fmt(f),
        }
    }
}

impl OutputSpec {
    /// Whether more than one connection can go there.
    pub(crate) const fn takes_many(&self) -> bool {
        matches!(self, Self::Null | Self::Directory(_))
    }

    /// Finds out whether the place can be written to. Nothing that is there changes until
    /// [`Output::keep`], and what was created goes away again without it.
    ///
    /// # Errors
    ///
    /// A [`Failure`] of usage if it cannot.
    pub(crate) fn open(&self) -> Result<Output, Failure> {
        match self {
            Self::Null => Ok(Output::Null),
            Self::Stdout => io::stdout()
                .as_fd()
                .try_clone_to_owned()
                .map(|fd| Output::Stdout(Some(fd.into())))
                .map_err(|e| Failure::unwritable("--output", Path::new("-"), &e)),
            Self::File(path) => Target::open(path).map(Some).map(Output::File),
            Self::Directory(path) => Directory::open(path).map(Output::Directory),
        }
    }
}

/// A place that was found writable.
#[derive(Debug)]
pub(crate) enum Output {
    /// Discards.
    Null,
    /// Standard output, until a connection has it.
    Stdout(Option<File>),
    /// One file, until a connection has it.
    File(Option<Target>),
    /// A directory.
    Directory(Directory),
}

impl Output {
    /// The run has begun: what was created stays.
    pub(crate) const fn keep(&mut self) {
        if let Self::Directory(directory) = self {
            directory.keep();
        }
    }

    /// A sink for connection `number`, the first being 1, from `peer`.
    ///
    /// # Errors
    ///
    /// What the kernel says; [`io::ErrorKind::Other`] if the place takes one connection and had it.
    pub(crate) fn sink(&mut self, number: u64, peer: SocketAddr) -> io::Result<Sink> {
        let taken = || io::Error::other("it takes one connection and had it");
        match self {
            Self::Null => Ok(Sink::Null),
            Self::Stdout(file) => Ok(Sink::Stdout(file.take().ok_or_else(taken)?)),
            Self::File(target) => match target.take().ok_or_else(taken)? {
                Target::File(path) => Part::replacing(path).map(Sink::Part),
                Target::Device(path, file) => Ok(Sink::Device(path, file)),
            },
            Self::Directory(directory) => directory.part(number, peer).map(Sink::Part),
        }
    }
}

/// Takes the bytes of one connection.
#[derive(Debug)]
pub(crate) enum Sink {
    /// Discards.
    Null,
    /// Standard output.
    Stdout(File),
    /// A device or a pipe.
    Device(PathBuf, File),
    /// A file that is named when it is complete.
    Part(Part),
}

impl Sink {
    /// How many bytes it wants at a time. Larger writes would keep the window closed for longer;
    /// the kernel copies a mebibyte in some 100 microseconds, so that the call no longer counts.
    pub(crate) const fn appetite(&self) -> usize {
        match self {
            Self::Null => usize::MAX,
            _ => 1 << 20,
        }
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    ///
    /// What the kernel says; some of the bytes may have been written then.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Null => Ok(()),
            Self::Stdout(file) => file.write_all(bytes),
            Self::Device(_, file) => file.write_all(bytes),
            Self::Part(part) => part.file().write_all(bytes),
        }
    }

    /// Everything was written: makes it last, as far as the place can, and says where it is.
    ///
    /// # Errors
    ///
    /// What the kernel says; the bytes may not be on the disk then.
    pub(crate) fn finish(self) -> io::Result<Option<PathBuf>> {
        match self {
            Self::Null => Ok(None),
            // A write to a pipe or a terminal is all that there is to do. Standard output may as
            // well be a file, and then this is as good as `--output FILE`.
            Self::Stdout(file) => file::sync(&file).map(|()| Some("-".into())),
            Self::Device(path, _) => Ok(Some(path)),
            Self::Part(part) => part.finish().map(Some),
        }
    }

    /// Where its bytes are so far, for messages and reports.
    pub(crate) fn place(&self) -> Option<PathBuf> {
        match self {
            Self::Null => None,
            Self::Stdout(_) => Some("-".into()),
            Self::Device(path, _) => Some(path.clone()),
            Self::Part(part) => Some(part.place().to_owned()),
        }
    }
}

#[cfg(test)]
mod tests;
