//! Removing a lab, whole or half made.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::journal::{self, Lock};
use super::tool::run;
use super::{Side, relays, spec};
use crate::error::{Error, Result};
use crate::options;

/// How long killed processes may take to go.
const PATIENCE: Duration = Duration::from_secs(5);

/// Removes all there is of the lab of that name. True if there was anything. Namespaces of that
/// name that no lab made are left alone.
pub(super) fn remove(_: &Lock, name: &str) -> Result<bool> {
    let Some(entry) = journal::read(name)? else { return Ok(false) };
    let mut failure = None;
    // None of the sides': only if there are relays is a namespace of that name ours.
    let middle = spec::middle_namespace(name);
    let has_middle = !entry.spec.relays.is_empty() && exists(&middle);
    if has_middle && let Err(error) = end_processes(&middle) {
        failure = Some(error);
    }
    for side in Side::BOTH {
        let namespace = spec::namespace(name, side);
        if !exists(&namespace) {
            continue;
        }
        // A process in it would keep the namespace and its interfaces alive without a name.
        let removed = end_processes(&namespace).and_then(|()| {
            // Deleting one end takes the other end along, and at once, which the end of a
            // namespace does not promise.
            remove_links(&namespace, side);
            run(&["ip", "netns", "del", &namespace])
        });
        if let Err(error) = removed {
            failure = Some(error);
        }
    }
    if has_middle && let Err(error) = run(&["ip", "netns", "del", &middle]) {
        failure = Some(error);
    }
    relays::forget(name);
    match failure {
        Some(error) => Err(error),
        None => journal::forget(name).map(|()| true),
    }
}

fn exists(namespace: &str) -> bool {
    Path::new("/run/netns").join(namespace).exists()
}

/// Removes the labs whose makers are gone.
pub(super) fn sweep(lock: &Lock) -> Result<()> {
    for entry in journal::read_all()? {
        if entry.is_orphan() {
            remove(lock, &entry.spec.name)?;
        }
    }
    Ok(())
}

fn remove_links(namespace: &str, side: Side) {
    for link in 0..*options::LINKS.end() {
        let interface = format!("{}{link}", side.tag());
        if run(&["ip", "-n", namespace, "link", "del", "dev", &interface]).is_err() {
            // They are numbered without gaps, or were removed by hand; the namespace goes anyway.
            break;
        }
    }
}

/// Kills the processes in a namespace and waits until they are gone.
fn end_processes(namespace: &str) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let processes = processes_in(namespace);
        if processes.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Error::Failed(format!(
                "processes {processes:?} in namespace {namespace} do not end"
            )));
        }
        for &pid in &processes {
            // Already gone is as good.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// The processes in a namespace, without ourselves and those that are dead but not yet waited for.
pub(super) fn processes_in(namespace: &str) -> Vec<i32> {
    let Ok(wanted) = fs::metadata(Path::new("/run/netns").join(namespace)) else {
        return Vec::new();
    };
    let Ok(folder) = fs::read_dir("/proc") else { return Vec::new() };
    let own = std::process::id().cast_signed();
    let pids = folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid: &i32| pid != own)
        .filter(|pid| {
            fs::metadata(format!("/proc/{pid}/ns/net"))
                .is_ok_and(|found| (found.dev(), found.ino()) == (wanted.dev(), wanted.ino()))
        })
        .collect()
}
