//! Text for whoever watches standard error. Nobody may: it is closed, a pipe whose reader went, or a
//! full disk. That is no reason to stop, and none to panic, which `eprintln!` would.

use std::fmt::Display;
use std::io::{self, Write as _};

/// Writes a text as it is, by one call.
pub fn text(text: impl Display) {
    let _ = io::stderr().write_all(text.to_string().as_bytes());
}

/// Writes a text and ends the line, by one call.
pub fn line(line: impl Display) {
    text(format_args!("{line}\n"));
}
