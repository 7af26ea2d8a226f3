//! Where a document goes.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::str::FromStr;

use mpxdp_cli::{describe, files};
use serde::Serialize;

use crate::error::{Error, Result};

/// Where a document, a page or a picture goes.
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
    /// Finds out whether it can be written, before the work, and changes nothing: a file that is there
    /// stays as it is until it is [replaced](Self::write). `option` is who named it.
    ///
    /// # Errors
    ///
    /// If it cannot be written: wrong usage.
    pub fn check(&self, option: &str) -> Result<()> {
        let Self::File(path) = self else { return Ok(()) };
        files::writable(path).map(drop).map_err(|error| {
            Error::Usage(format!("{option} {}: {}", path.display(), describe(&error)))
        })
    }

    /// Writes all of a text. A file is replaced as a whole; it is FILE.part until then.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn write(&self, option: &str, text: &[u8]) -> Result<()> {
        let (place, written) = match self {
            Self::Stdout => {
                let mut out = io::stdout().lock();
                ("-".to_owned(), out.write_all(text).and_then(|()| out.flush()))
            }
            Self::File(path) => (path.display().to_string(), files::write(path, text)),
        };
        written.map_err(|error| {
            let why = describe(&error);
            Error::Failed(format!("{option} {place}: cannot be written: {why}"))
        })
    }

    /// Writes a document, or a smaller report, for `--json`.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn put(&self, document: &impl Serialize) -> Result<()> {
        let mut text = Vec::new();
        super::write(document, &mut text)?;
        self.write("--json", &text)
    }

    /// Refuses to write two things to the same place.
    ///
    /// # Errors
    ///
    /// If both are standard output or the same file, or one is what the other is until it is complete:
    /// wrong usage.
    pub fn check_apart(&self, option: &str, other: &Self, others_option: &str) -> Result<()> {
        let place = match (self, other) {
            (Self::Stdout, Self::Stdout) => "standard output".to_owned(),
            (Self::File(one), Self::File(two))
                if files::same(one, two)
                    || files::same(&files::part_of(one), two)
                    || files::same(one, &files::part_of(two)) =>
            {
                format!("{} or its .part", one.display())
            }
            _ => return Ok(()),
        };
        Err(Error::Usage(format!("{option} and {others_option} both name {place}")))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_as_it_was_until_it_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out.json");
        fs::write(&path, "a former run's").expect("written");
        let target: Target = path.display().to_string().parse().expect("a file");
        target.check("--json").expect("writable");
        assert_eq!(fs::read_to_string(&path).expect("there"), "a former run's");
        target.put(&[1]).expect("written");
        assert_eq!(fs::read_to_string(&path).expect("there"), "[\n  1\n]\n");
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 1);
        let nowhere = Target::File(folder.path().join("no/file"));
        let error = nowhere.check("--json").expect_err("there is no folder");
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().starts_with("--json /"), "{error}");
    }

    #[test]
    fn two_things_do_not_go_to_one_place() {
        let file = |name: &str| Target::File(name.into());
        let apart = |one: Target, two: Target| one.check_apart("--json", &two, "--plot").is_ok();
        assert!(!apart(Target::Stdout, Target::Stdout) && !apart(file("x"), file("./x")));
        assert!(!apart(file("x"), file("x.part")) && !apart(file("./x.part"), file("x")));
        assert!(apart(Target::Stdout, file("x")) && apart(file("x"), file("y")));
    }
}
