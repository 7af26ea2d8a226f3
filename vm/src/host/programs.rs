//! What of this workspace goes into a guest, and the host's tools with the libraries they need.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::archive::Archive;
use super::tool;
use crate::error::{Context, Error, Result};
use crate::plan::{Build, Guest};

/// The host's tools that the checks in a guest use.
const TOOLS: [&str; 4] = ["ip", "tc", "ss", "ethtool"];

/// Where tools are that not every user has in the path.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Tests to build: those of the XDP program and its loader, and small ones of the packages whose
/// programs are wanted.
const TESTS: [&str; 7] =
    ["agreement", "attach", "object", "tables", "verdicts", "usage", "pipeline"];

/// Files of the host and where they lie in a guest.
#[derive(Debug, Default)]
pub(super) struct Programs {
    files: Vec<(String, PathBuf)>,
}

/// What cargo says about something that it built.
#[derive(Deserialize)]
struct Message {
    reason: String,
    executable: Option<PathBuf>,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// A program that cargo built.
struct Artifact {
    name: String,
    path: PathBuf,
    /// The folder of its package.
    package: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Binary,
    /// The tests of a library.
    Library,
    /// Tests in a file of their own.
    Test,
    Other,
}

impl Artifact {
    fn new(message: Message) -> Option<Self> {
        let Message { reason, executable, manifest_path, target, profile } = message;
        let (path, target, test) = (executable?, target?, profile?.test);
        let package = manifest_path?.parent()?.file_name()?.to_string_lossy().into_owned();
        let kind = match (target.kind.first()?.as_str(), test) {
            ("bin", false) => Kind::Binary,
            ("lib", true) => Kind::Library,
            ("test", true) => Kind::Test,
            _ => Kind::Other,
        };
        (reason == "compiler-artifact").then_some(Self { name: target.name, path, package, kind })
    }
}

impl Programs {
    /// Builds what these guests need.
    pub(super) fn build(guests: &[&'static Guest]) -> Result<Self> {
        let mut programs = Self::default();
        let checks = || guests.iter().flat_map(|guest| guest.checks);
        let wants = |build| checks().any(|check| check.build() == Some(build));
        if wants(Build::Release) {
            let build = ["build", "--release", "--package=mpxdp-control", "--bin=mpxdp"];
            for artifact in cargo(&build)? {
                programs.add(Build::Release, artifact);
            }
        }
        // For all of the workspace, as CI has built it before: then nothing is built again with other
        // features. With a package's integration test cargo builds its programs, too.
        let mut test = vec!["test", "--workspace", "--no-run", "--profile=checked", "--lib"];
        test.extend(TESTS.iter().flat_map(|name| ["--test", name]));
        for artifact in cargo(&test)? {
            programs.add(Build::Checked, artifact);
        }
        for name in TOOLS {
            let places = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
            let path = places.into_iter().find(|path| path.exists()).ok_or_else(|| {
                Error::Missing(format!("{name} is missing: apt-get install iproute2 ethtool"))
            })?;
            programs.files.push((format!("/bin/{name}"), path));
        }
        let this = std::env::current_exe().context(|| "where is this program?".to_owned())?;
        programs.files.push(("/init".to_owned(), this));
        Ok(programs)
    }

    /// Takes a program that the checks use.
    fn add(&mut self, build: Build, Artifact { name, path, package, kind }: Artifact) {
        let folder = match (package.as_str(), kind) {
            ("control" | "bench", Kind::Binary) => build.name(),
            ("ebpf", Kind::Library | Kind::Test) | ("dataplane", Kind::Library) => "tests",
            _ => return,
        };
        self.files.push((format!("/{folder}/{name}"), path));
    }

    /// Puts all of it into an archive, with the libraries.
    pub(super) fn pack(&self, archive: &mut Archive) -> Result<()> {
        let mut libraries = BTreeSet::new();
        for (place, path) in &self.files {
            archive.copy(place, path)?;
            libraries.extend(libraries_of(path)?);
        }
        for library in libraries {
            archive.copy(&library.to_string_lossy(), &library)?;
        }
        Ok(())
    }
}

/// Runs cargo and returns the programs that it made.
fn cargo(arguments: &[&str]) -> Result<Vec<Artifact>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(arguments)
        .args(["--quiet", "--message-format=json-render-diagnostics"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stderr(Stdio::inherit())
        .output()
        .context(|| "cannot run cargo".to_owned())?;
    if !output.status.success() {
        return Err(Error::failed(format!("cargo {}: {}", arguments.join(" "), output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().map(serde_json::from_str::<Message>);
    messages
        .filter_map(|message| message.map(Artifact::new).transpose())
        .collect::<serde_json::Result<_>>()
        .context(|| "cargo's messages".to_owned())
}

/// The shared libraries of a program, its loader among them.
fn libraries_of(program: &Path) -> Result<BTreeSet<PathBuf>> {
    let text = tool::run(Command::new("ldd").arg(program))?;
    if let Some(line) = text.lines().find(|line| line.contains("not found")) {
        return Err(Error::Missing(format!("{}: {}", program.display(), line.trim())));
    }
    // Either `name => /path (address)` or `/path (address)`.
    let words = text.lines().filter_map(|line| {
        let line = line.split_once("=>").map_or(line, |(_, path)| path);
        line.split_whitespace().next()
    });
    Ok(words.filter(|word| word.starts_with('/')).map(PathBuf::from).collect())
}
