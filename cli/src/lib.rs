//! What mpxdp's commands have in common: one line for what went wrong, on a standard error that may
//! be closed ([`say`]), a command line that is refused in the same way ([`usage`]), the [`signals`] that
//! end them, and files that have their name only once they are whole ([`files`]).

#![warn(clippy::print_stderr, clippy::print_stdout)]

pub mod files;
pub mod say;
pub mod signals;
pub mod usage;

use std::borrow::Cow;
use std::io;

/// The kernel's words for an error, without the number that Rust appends, and with the limit where it
/// is one of the process's own.
#[must_use]
pub fn describe(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EMFILE) => "too many open files (RLIMIT_NOFILE; see ulimit -n)".to_owned(),
        Some(code) => nix::errno::Errno::from_raw(code).desc().to_owned(),
        None => error.to_string(),
    }
}

/// A text in one line that a terminal shows as it is: what comes from elsewhere may hold line breaks,
/// and what [`printable`] takes out.
#[must_use]
pub fn one_line(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    printable(&lines.join(" ")).into_owned()
}

/// A text without characters that do something instead of being seen: those that control a terminal,
/// but for the end of a line and the tabulator, and those that change the direction of what follows.
/// `\u{1b}` stands for one of them.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    let does_something = |c: char| {
        let direction = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        (c.is_control() && !matches!(c, '\n' | '\t')) || direction
    };
    if !text.contains(does_something) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if does_something(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_come_without_its_number() {
        let error = io::Error::from_raw_os_error(libc::ENOSPC);
        assert_eq!(describe(&error), "No space left on device");
        assert_eq!(describe(&io::Error::other("why")), "why");
        let error = io::Error::from_raw_os_error(libc::EMFILE);
        assert!(describe(&error).contains("RLIMIT_NOFILE"));
    }

    #[test]
    fn line_breaks_become_spaces() {
        assert_eq!(one_line("eth0: refused\n\n  by the driver\n"), "eth0: refused by the driver");
        assert_eq!(one_line(""), "");
    }

    #[test]
    fn nothing_that_controls_a_terminal_is_left_in_a_line() {
        assert_eq!(printable("µ \t “x”\n"), "µ \t “x”\n");
        assert_eq!(printable("\u{1b}[31m\r\u{7}\u{9b}0m"), "\\u{1b}[31m\\u{d}\\u{7}\\u{9b}0m");
        assert_eq!(one_line("a\u{202e}b\nc\u{2066}"), "a\\u{202e}b c\\u{2066}");
    }
}
