//! Processes in a lab that do not outlive their handle.

use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::{Context, Error, Result};
use crate::interrupt::Interrupt;

/// How often a process that we wait for is looked at.
const GLANCE: Duration = Duration::from_millis(5);

/// A process that is killed when this handle goes, or when the thread that started it ends. What it
/// prints is kept.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    stdout: Option<Collected>,
    stderr: Option<Collected>,
}

/// How a process ended, and what it printed.
#[derive(Debug)]
pub struct Ended {
    /// What it was called.
    pub name: String,
    /// How it ended.
    pub status: ExitStatus,
    /// All it wrote to standard output, if that was not sent elsewhere.
    pub stdout: Vec<u8>,
    /// All it wrote to standard error, if that was not sent elsewhere.
    pub stderr: String,
}

impl Running {
    /// Starts a command, on the given CPUs only if there are any, its output kept.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start(name: &str, command: &mut Command, cpus: &[usize]) -> Result<Self> {
        Self::start_with(name, command.stdout(Stdio::piped()).stderr(Stdio::piped()), cpus)
    }

    /// Starts a command whose standard output and error the caller has set.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start_with(name: &str, command: &mut Command, cpus: &[usize]) -> Result<Self> {
        let mut set = CpuSet::new();
        for &cpu in cpus {
            set.set(cpu).context(|| format!("no CPU {cpu}"))?;
        }
        let pinned = !cpus.is_empty();
        let prepare = move || {
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
            if pinned {
                sched_setaffinity(Pid::from_raw(0), &set)?;
            }
            Ok(())
        };
        // SAFETY: between fork and exec, `prepare` makes two system calls and does nothing else: it
        // takes no lock and does not allocate.
        unsafe { command.pre_exec(prepare) };
        let mut child =
            command.stdin(Stdio::null()).spawn().context(|| format!("cannot start {name}"))?;
        let stdout = child.stdout.take().map(Collected::new);
        let stderr = child.stderr.take().map(Collected::new);
        Ok(Self { name: name.to_owned(), child, stdout, stderr })
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    ///
    /// # Errors
    ///
    /// If it is gone already.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal)
            .context(|| format!("cannot signal {}", self.name))
    }

    /// How it ended, if it did.
    ///
    /// # Errors
    ///
    /// If the system cannot tell.
    pub fn poll(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().context(|| format!("cannot wait for {}", self.name))
    }

    /// Waits until it ends. After `limit`, or after a signal to ourselves, it is killed.
    ///
    /// # Errors
    ///
    /// If it did not end within `limit`, with what it wrote to standard error; or
    /// [`Error::Interrupted`].
    pub fn wait(mut self, limit: Duration, interrupt: &Interrupt) -> Result<Ended> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.poll()? {
                return Ok(self.ended(status));
            }
            interrupt.check()?;
            if Instant::now() > deadline {
                let name = self.name.clone();
                let _ = self.child.kill();
                let status = self.child.wait().context(|| format!("cannot wait for {name}"))?;
                let printed = self.ended(status).stderr;
                return Err(Error::Failed(format!(
                    "{name} did not end within {} s; it said: {}",
                    limit.as_secs(),
                    printed.trim()
                )));
            }
            thread::sleep(GLANCE);
        }
    }

    /// Waits until it has written `text` to standard error.
    ///
    /// # Errors
    ///
    /// If it ended, or did not do so within `limit`; with what it wrote instead.
    pub fn wait_for(&mut self, text: &str, limit: Duration, interrupt: &Interrupt) -> Result<()> {
        let deadline = Instant::now() + limit;
        loop {
            // What it wrote last may be on its way still when it has ended already.
            let ended =
                self.poll()?.is_some() && self.stderr.as_ref().is_none_or(Collected::is_whole);
            let said = self.stderr.as_ref().map(Collected::so_far).unwrap_or_default();
            if said.contains(text) {
                return Ok(());
            }
            interrupt.check()?;
            if ended || Instant::now() > deadline {
                let name = &self.name;
                let said = said.trim();
                return Err(Error::Failed(format!("{name} did not say {text:?} but: {said}")));
            }
            thread::sleep(GLANCE);
        }
    }

    fn ended(mut self, status: ExitStatus) -> Ended {
        let text = |pipe: Option<Collected>| pipe.map(Collected::finish).unwrap_or_default();
        Ended {
            name: self.name.clone(),
            status,
            stdout: text(self.stdout.take()),
            stderr: String::from_utf8_lossy(&text(self.stderr.take())).into_owned(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// Itself, if it ended with exit code 0.
    ///
    /// # Errors
    ///
    /// How it ended otherwise, with the last line it wrote to standard error.
    pub fn success(self) -> Result<Self> {
        if self.status.success() {
            return Ok(self);
        }
        let how = match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "ended".to_owned(),
        };
        let said = self.stderr.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("");
        Err(Error::Failed(format!("{}: {how}: {}", self.name, said.trim())))
    }

    /// The JSON document it wrote to standard output.
    ///
    /// # Errors
    ///
    /// If it is not one, or not of the form wanted.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.stdout).map_err(|error| {
            Error::failed(format!("{} wrote no proper JSON document", self.name), error)
        })
    }
}

/// What comes out of a pipe, read by a thread so that the process never waits for us.
#[derive(Debug)]
struct Collected {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Collected {
    fn new(mut pipe: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&bytes);
        let thread = thread::spawn(move || {
            let mut buffer = [0; 16 * 1024];
            loop {
                match pipe.read(&mut buffer) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // What was read before an error is still worth showing.
                    Ok(0) | Err(_) => return,
                    Ok(length) => locked(&to).extend_from_slice(&buffer[..length]),
                }
            }
        });
        Self { bytes, thread }
    }

    fn so_far(&self) -> String {
        String::from_utf8_lossy(&locked(&self.bytes)).into_owned()
    }

    /// Whether everything has been read that will ever come.
    fn is_whole(&self) -> bool {
        self.thread.is_finished()
    }

    fn finish(self) -> Vec<u8> {
        // A panic there would only mean that there is less to show.
        let _ = self.thread.join();
        std::mem::take(&mut locked(&self.bytes))
    }
}

/// Bytes are never half written, so what a thread that panicked left is as good as any.
fn locked(bytes: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    bytes.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Running {
        Running::start("shell", Command::new("sh").args(["-c", script]), &[]).expect("starts")
    }

    #[test]
    fn output_and_status_are_kept() {
        let ended = shell("echo '[1,2]'; echo oops >&2; exit 4")
            .wait(Duration::from_secs(10), &Interrupt::never())
            .expect("ends");
        assert_eq!(ended.json::<Vec<u8>>().expect("JSON"), [1, 2]);
        let error = ended.success().expect_err("exit code 4");
        assert_eq!(error.to_string(), "shell: exit code 4: oops");
    }

    #[test]
    fn a_process_that_hangs_is_an_error_and_is_killed() {
        let running = shell("echo stuck >&2; exec sleep 60");
        let pid = running.pid();
        let error = running
            .wait(Duration::from_millis(300), &Interrupt::never())
            .expect_err("does not end");
        assert!(error.to_string().contains("stuck"), "{error}");
        assert!(kill(Pid::from_raw(pid.cast_signed()), None).is_err(), "still there");
    }

    #[test]
    fn what_a_process_says_can_be_waited_for() {
        let never = Interrupt::never();
        let limit = Duration::from_secs(10);
        let mut running = shell("echo ready >&2; exec sleep 60");
        running.wait_for("ready", limit, &never).expect("says it");
        let mut running = shell("echo broken >&2");
        let error = running.wait_for("ready", limit, &never).expect_err("ends");
        assert!(error.to_string().contains("broken"), "{error}");
    }

    #[test]
    fn a_dropped_handle_kills_its_process() {
        let running = shell("exec sleep 60");
        let pid = Pid::from_raw(running.pid().cast_signed());
        assert!(kill(pid, None).is_ok());
        drop(running);
        assert!(kill(pid, None).is_err());
    }
}
