//! Text for whoever watches standard error. Nobody may: it is closed, a pipe whose reader went, or a
//! full disk. That is no reason to stop, and none to panic, which `eprintln!` would. What is said may
//! have names and words of others in it, so what would control the terminal is [`printable`].

use std::fmt::Display;
use std::io::{self, Write as _};

use crate::printable;

/// Writes a text, by one call.
pub fn text(text: impl Display) {
    let _ = io::stderr().write_all(printable(&text.to_string()).as_bytes());
}

/// Writes a text and ends the line, by one call.
pub fn line(line: impl Display) {
    text(format_args!("{line}\n"));
}
