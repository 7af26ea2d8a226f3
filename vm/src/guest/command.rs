//! Programs of the guest, none of which may hang.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::{Context, Error, Result};

/// How long a tool may take.
const TOOL: Duration = Duration::from_secs(30);

/// How often to look at what is waited for.
pub(super) const LOOK: Duration = Duration::from_millis(10);

/// Where programs are.
pub(super) const PATH: &str = "/bin";

/// A program while it runs; it is killed when dropped.
#[derive(Debug)]
pub(super) struct Running {
    name: String,
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

/// How a program ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Running {
    /// Starts a program. What it writes goes to files, so that it never waits for a reader.
    pub(super) fn start(words: &[&str]) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let [program, arguments @ ..] = words else { return Err(Error::failed("no program")) };
        let (stdout, stderr) = (output(number, "out"), output(number, "err"));
        let create = |path| File::create(path).context(|| "cannot write to /tmp".to_owned());
        let child = Command::new(program)
            .args(arguments)
            .env("PATH", PATH)
            .env("RUST_BACKTRACE", "1")
            .env("MPXDP_REQUIRE_PRIVILEGES", "1")
            .stdin(Stdio::null())
            .stdout(create(&stdout)?)
            .stderr(create(&stderr)?)
            .spawn()
            .context(|| format!("cannot run {program}"))?;
        Ok(Self { name: words.join(" "), child, stdout, stderr })
    }

    /// Waits for words in what it writes to standard error.
    pub(super) fn wait_for(&mut self, words: &str, limit: Duration) -> Result<()> {
        let until = Instant::now() + limit;
        while !read(&self.stderr).contains(words) {
            let ended = self.child.try_wait().context(|| self.name.clone())?;
            if ended.is_some() || Instant::now() >= until {
                return Err(self.failure(&format!("did not say \"{words}\"")));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Sends it a signal.
    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        kill(Pid::from_raw(self.child.id() as i32), signal).context(|| self.name.clone())
    }

    /// Waits until it ends.
    pub(super) fn wait(mut self, limit: Duration) -> Result<Ended> {
        let until = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().context(|| self.name.clone())? {
                let (stdout, stderr) = (read(&self.stdout), read(&self.stderr));
                return Ok(Ended { status, stdout, stderr });
            }
            if Instant::now() >= until {
                return Err(self.failure(&format!("did not end within {} s", limit.as_secs())));
            }
            thread::sleep(LOOK);
        }
    }

    fn failure(&self, what: &str) -> Error {
        Error::failed(format!("{} {what}; it said:\n{}", self.name, read(&self.stderr).trim_end()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.stdout);
        let _ = fs::remove_file(&self.stderr);
    }
}

/// Runs a tool, which must succeed, and returns what it wrote.
pub(super) fn tool(line: &str) -> Result<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ended = Running::start(&words)?.wait(TOOL)?;
    if ended.status.success() {
        Ok(ended.stdout)
    } else {
        Err(Error::failed(format!("{line}: {}: {}", ended.status, ended.stderr.trim_end())))
    }
}

fn output(number: u32, kind: &str) -> PathBuf {
    format!("/tmp/{number}.{kind}").into()
}

fn read(path: &PathBuf) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
