//! Tells the program which compiler and which commit it was built from.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let compiler = env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let version = output(&compiler, &["--version"]);
    println!("cargo:rustc-env=MPXDP_BENCH_RUSTC={}", version.as_deref().unwrap_or("unknown"));
    let revision = output("git", &["rev-parse", "HEAD"]);
    println!("cargo:rustc-env=MPXDP_BENCH_REVISION={}", revision.as_deref().unwrap_or("unknown"));
    // Where the checked-out commit is written down; in a linked worktree that is elsewhere. A path
    // that does not exist would make every build start over.
    for file in ["HEAD", "logs/HEAD"] {
        let path = output("git", &["rev-parse", "--path-format=absolute", "--git-path", file]);
        if let Some(path) = path.filter(|path| std::path::Path::new(path).is_file()) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
}

/// The line that a command prints; none if it fails.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.trim();
    (output.status.success() && !line.is_empty()).then(|| line.to_owned())
}
