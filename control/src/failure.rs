//! What ends the command other than well: one line for the user, and the exit code.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use mpxdp_cli::{describe, one_line};

/// Why the command could not do what it was asked. Its text is one line: what, where, what to do.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    message: String,
}

/// Whose doing a failure is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Wrong usage or configuration.
    Usage,
    /// The request was sensible, and carrying it out failed.
    Runtime,
}

impl Failure {
    /// The request was wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { kind: Kind::Usage, message: message.into() }
    }

    /// Carrying the request out failed.
    pub(crate) fn runtime(message: impl Into<String>) -> Self {
        Self { kind: Kind::Runtime, message: message.into() }
    }

    /// A place named by `option` cannot be written to.
    pub(crate) fn unwritable(option: &str, path: &Path, error: &io::Error) -> Self {
        Self::usage(format!(
            "{option} {}: cannot be written: {}; name a place that you may write to",
            path.display(),
            describe(error)
        ))
    }

    /// Whose doing it is.
    pub(crate) const fn kind(&self) -> Kind {
        self.kind
    }

    /// The process's exit code: 1 failed at run time, 2 wrong usage or configuration.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self.kind() {
            Kind::Runtime => ExitCode::from(1),
            Kind::Usage => ExitCode::from(2),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What comes from elsewhere may hold line breaks; the promise is one line.
        f.write_str(&one_line(&self.message))
    }
}

impl From<mpxdp::Error> for Failure {
    fn from(error: mpxdp::Error) -> Self {
        let kind = match error.kind() {
            mpxdp::ErrorKind::Usage => Kind::Usage,
            mpxdp::ErrorKind::Runtime => Kind::Runtime,
        };
        Self { kind, message: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_whatever_it_was_made_of() {
        let failure = Failure::runtime("eth0: refused\n  by the driver\n");
        assert_eq!(failure.to_string(), "eth0: refused by the driver");
    }

    #[test]
    fn the_engine_says_whose_doing_it_is() {
        let usage: Failure = mpxdp::Error::NoSuchNic { nic: "nope0".to_owned() }.into();
        assert_eq!(usage.kind(), Kind::Usage);
        assert!(usage.to_string().starts_with("nope0: no such interface"));
        let runtime: Failure = mpxdp::Error::NicDown { nic: "eth9".to_owned() }.into();
        assert_eq!(runtime.kind(), Kind::Runtime);
    }
}
