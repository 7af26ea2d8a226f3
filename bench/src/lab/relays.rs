//! Relays of a lab: a third namespace between the two ends of a link, and in it a process that passes
//! frames through a chain of middleboxes.
//!
//! Link `i` is then two veth pairs: `snd{i}` to `tosnd{i}`, and `torcv{i}` to `rcv{i}`; the two in the
//! middle are in the namespace `NAME-mid`, have no addresses, and no offloads, so that the relay sees
//! what a wire would carry.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::journal;
use super::spec::{self, Spec};
use super::tool::{run, run_in, within};
use crate::error::{Context, Error, Result};
use crate::relay::{READY, Report};

/// How long a relay may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often one is looked at meanwhile.
const GLANCE: Duration = Duration::from_millis(5);

/// A relay that this process started. It ends with the lab, not with this handle.
#[derive(Debug)]
pub(super) struct Relay {
    pub(super) link: u32,
    child: Child,
    report: PathBuf,
}

/// The end of a link in the middle that faces a side's end, `tosnd0` for instance.
pub(super) fn middle(side: super::Side, link: u32) -> String {
    format!("to{}{link}", side.tag())
}

/// Makes the namespace in the middle.
pub(super) fn make_namespace(spec: &Spec) -> Result<()> {
    let namespace = spec::middle_namespace(&spec.name);
    run(&["ip", "netns", "add", &namespace])?;
    // What stands in the middle does not speak.
    let applied = within(&namespace, || {
        ["all", "default"].into_iter().try_for_each(|scope| {
            fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1")
        })
    })?;
    applied.context(|| format!("cannot turn off IPv6 in {namespace}"))
}

/// Takes an end in the middle into service.
pub(super) fn configure_end(spec: &Spec, interface: &str) -> Result<()> {
    let namespace = spec::middle_namespace(&spec.name);
    let offloads = ["tx", "off", "gro", "off", "txvlan", "off", "rxvlan", "off"];
    run_in(&namespace, &[&["ethtool", "-K", interface][..], &offloads].concat())?;
    run(&["ip", "-n", &namespace, "link", "set", interface, "up"]).map(|_| ())
}

/// Starts a link's relay and waits until it relays.
pub(super) fn start(spec: &Spec, program: &Path, link: u32, chain: &str) -> Result<Relay> {
    let [log, report] = [log(&spec.name, link), report(&spec.name, link)];
    let said = File::create(&log).context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new("ip");
    command
        .args(["netns", "exec", &spec::middle_namespace(&spec.name)])
        .arg(program)
        .args(["relay", "--left", &middle(super::Side::Sender, link)])
        .args(["--right", &middle(super::Side::Receiver, link)])
        .args(["--chain", chain, "--seed", &link.to_string()])
        .arg("--json")
        .arg(&report)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(said)
        // Away from the terminal's signals: a kept lab stays when its maker is interrupted.
        .process_group(0);
    let child = command.spawn().context(|| "cannot start the relay")?;
    let mut relay = Relay { link, child, report };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let ended = relay.child.try_wait().context(|| "cannot wait for the relay")?;
        let said = fs::read_to_string(&log).unwrap_or_default();
        if said.contains(READY) {
            return Ok(relay);
        }
        if ended.is_some() || Instant::now() > deadline {
            relay.kill();
            let said = said.lines().last().unwrap_or("nothing");
            return Err(Error::Failed(format!(
                "the relay of link {link} did not start with {}; it said: {said}",
                program.display()
            )));
        }
        thread::sleep(GLANCE);
    }
}

impl Relay {
    /// Ends it and reads what it did.
    pub(super) fn end(&mut self) -> Result<Report> {
        let link = self.link;
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM)
            .context(|| format!("cannot end the relay of link {link}"))?;
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait().context(|| "cannot wait for the relay")?.is_none() {
            if Instant::now() > deadline {
                self.kill();
                return Err(Error::Failed(format!("the relay of link {link} does not end")));
            }
            thread::sleep(GLANCE);
        }
        let text = fs::read(&self.report)
            .context(|| format!("the relay of link {link} left no report"))?;
        serde_json::from_slice(&text)
            .map_err(|error| Error::failed(format!("report of the relay of link {link}"), error))
    }

    /// Kills it, if it still runs, and forgets it.
    pub(super) fn kill(&mut self) {
        // Both fail only if it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Removes what relays of a lab wrote.
pub(super) fn forget(name: &str) {
    for link in 0..*crate::options::LINKS.end() {
        // Most do not exist.
        let _ = fs::remove_file(log(name, link));
        let _ = fs::remove_file(report(name, link));
    }
}

fn log(name: &str, link: u32) -> PathBuf {
    journal::file(&format!("{name}.relay{link}.log"))
}

fn report(name: &str, link: u32) -> PathBuf {
    journal::file(&format!("{name}.relay{link}.report"))
}
