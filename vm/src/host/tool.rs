//! Running tools of the host.

use std::process::{Command, Stdio};

use crate::error::{Context, Error, Result};

/// Runs a tool to its end and returns what it wrote to standard output; if it fails, the error is
/// the last line that it complained with.
pub(super) fn run(command: &mut Command) -> Result<String> {
    Ok(String::from_utf8_lossy(&bytes(command)?).into_owned())
}

/// The same, for output that is no text.
pub(super) fn bytes(command: &mut Command) -> Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().context(|| format!("cannot run {name}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let last = complaint.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    Err(Error::failed(format!("{name}: {}: {last}", output.status)))
}
