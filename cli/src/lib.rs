//! What mpxdp's commands have in common: one line for what went wrong, on a standard error that may
//! be closed ([`say`]), a command line that is refused in the same way ([`usage`]), and files that
//! have their name only once they are whole ([`files`]).

#![warn(clippy::print_stderr, clippy::print_stdout)]

pub mod files;
pub mod say;
pub mod usage;

use std::io;

/// The kernel's words for an error, without the number that Rust appends.
#[must_use]
pub fn describe(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(code) => nix::errno::Errno::from_raw(code).desc().to_owned(),
        None => error.to_string(),
    }
}

/// A text in one line: what comes from elsewhere may hold line breaks.
#[must_use]
pub fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_come_without_its_number() {
        let error = io::Error::from_raw_os_error(libc::ENOSPC);
        assert_eq!(describe(&error), "No space left on device");
        assert_eq!(describe(&io::Error::other("why")), "why");
    }

    #[test]
    fn line_breaks_become_spaces() {
        assert_eq!(one_line("eth0: refused\n\n  by the driver\n"), "eth0: refused by the driver");
        assert_eq!(one_line(""), "");
    }
}
