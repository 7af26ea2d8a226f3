//! The tools a lab is made with, and what they need.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::thread;

use mpxdp_cli::describe;
use nix::sched::{CloneFlags, setns};

use crate::error::{Context, Error, Result};

/// What is needed to make namespaces and links, by its bit in the kernel's capability sets.
const CAPABILITIES: [(u32, &str); 2] = [(12, "CAP_NET_ADMIN"), (21, "CAP_SYS_ADMIN")];

/// Whether this process may make a lab; if not, the line that says what it lacks.
///
/// # Errors
///
/// [`Error::Missing`] with the names of the capabilities that are missing.
pub fn privilege() -> Result<()> {
    require_privilege()
}

pub(super) fn require_privilege() -> Result<()> {
    let status = fs::read_to_string("/proc/self/status").context(|| "cannot read /proc")?;
    let missing = missing_capabilities(&status);
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::Missing(format!(
        "making network namespaces needs {}: run as root",
        missing.join(" and ")
    )))
}

fn missing_capabilities(status: &str) -> Vec<&'static str> {
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    let lacking = CAPABILITIES.iter().filter(|(bit, _)| effective >> bit & 1 == 0);
    lacking.map(|&(_, name)| name).collect()
}

pub(super) fn require_tools() -> Result<()> {
    for (tool, version, package) in [("ip", "-V", "iproute2"), ("ethtool", "--version", "ethtool")]
    {
        match Command::new(tool).arg(version).output() {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(Error::Missing(format!(
                    "cannot find `{tool}`: install the package {package}, or add /usr/sbin to PATH"
                )));
            }
            Err(error) => {
                return Err(Error::Missing(format!("cannot run `{tool}`: {}", describe(&error))));
            }
        }
    }
    Ok(())
}

/// Runs a tool to its end and returns what it printed.
pub(super) fn run(arguments: &[&str]) -> Result<String> {
    let [program, rest @ ..] = arguments else {
        return Err(Error::Failed("no command".into()));
    };
    let mut command = Command::new(program);
    // Away from the terminal's signals: an interrupted clean-up would leave things behind.
    command.args(rest).stdin(Stdio::null()).process_group(0);
    let shown = arguments.join(" ");
    let output = command.output().context(|| format!("cannot run `{shown}`"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Error::Failed(format!("`{shown}` failed: {}", complaint(&output))))
}

/// Runs a tool in a namespace.
pub(super) fn run_in(namespace: &str, arguments: &[&str]) -> Result<String> {
    let mut whole = vec!["ip", "netns", "exec", namespace];
    whole.extend_from_slice(arguments);
    run(&whole)
}

/// The line in which a tool said what is wrong.
fn complaint(output: &Output) -> String {
    let text = [&output.stderr[..], &output.stdout[..]].concat();
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    last.map_or_else(|| output.status.to_string(), ToOwned::to_owned)
}

/// Runs a closure on a thread of its own that entered a namespace.
pub(super) fn within<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> Result<T> {
    let path = format!("/run/netns/{namespace}");
    let file = File::open(&path).context(|| format!("cannot open namespace {path}"))?;
    thread::scope(|scope| {
        let thread = scope.spawn(move || {
            setns(file, CloneFlags::CLONE_NEWNET)
                .context(|| format!("cannot enter namespace {path}"))?;
            Ok(work())
        });
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capabilities_are_named() {
        let all = "Name:\tx\nCapEff:\t000001ffffffffff\n";
        assert!(missing_capabilities(all).is_empty());
        assert_eq!(missing_capabilities("CapEff:\t0000000000200000\n"), ["CAP_NET_ADMIN"]);
        assert_eq!(missing_capabilities("CapEff:\t0\n"), ["CAP_NET_ADMIN", "CAP_SYS_ADMIN"]);
        assert_eq!(missing_capabilities("").len(), 2);
    }

    #[test]
    fn a_failed_tool_is_named_with_its_complaint() {
        let error = run(&["sh", "-c", "echo one >&2; echo two >&2; exit 3"]).expect_err("exits 3");
        assert!(error.to_string().ends_with("failed: two"), "{error}");
        let error = run(&["mpxdp-no-such-tool"]).expect_err("does not exist");
        assert!(error.to_string().contains("mpxdp-no-such-tool"), "{error}");
        assert_eq!(run(&["echo", "x"]).expect("echo"), "x\n");
    }
}
