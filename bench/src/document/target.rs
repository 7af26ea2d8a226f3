//! Where a document goes.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::{Error, Result};

/// Where a document goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard output, `-`.
    Stdout,
    /// A file.
    File(PathBuf),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "" => Err("it is empty; write FILE or -".into()),
            "-" => Ok(Self::Stdout),
            path => Ok(Self::File(path.into())),
        }
    }
}

impl Target {
    /// Opens it, before the work that the document is about: a file that cannot be written is better
    /// found first.
    ///
    /// # Errors
    ///
    /// If it cannot be written: wrong usage.
    pub fn open(&self) -> Result<Box<dyn Write>> {
        match self {
            Self::Stdout => Ok(Box::new(io::stdout())),
            Self::File(path) => match File::create(path) {
                Ok(file) => Ok(Box::new(file)),
                Err(error) => Err(Error::Usage(format!("--json {}: {error}", path.display()))),
            },
        }
    }
}
