//! Builds the committed BPF objects anew, or compares them with what the sources give.
//!
//! `--check` writes nothing. Equal sources give equal objects only from the same clang, so with
//! another major version than the recorded one it builds, says which versions differ, and judges by
//! the sources' digest alone.

mod record;

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use libbpf_cargo::SkeletonBuilder;

use crate::record::{RECORD, Record, digest_of_sources};

const USAGE: &str = "\
Builds the BPF programs in ebpf/bpf with clang and writes ebpf/prebuilt.

Usage: rebuild-object [--check]

  --check  write nothing; fail if the committed objects are not what the sources give

Environment: CLANG  the compiler (default: clang)";

/// One object a program, since loading an object makes all its maps.
const PROGRAMS: [&str; 2] = ["steer", "front"];

fn main() -> ExitCode {
    let check = match env::args().nth(1).as_deref() {
        None => false,
        Some("--check") => true,
        Some("--help" | "-h") => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Some(other) => {
            eprintln!("rebuild-object: unknown argument {other}; see --help");
            return ExitCode::from(2);
        }
    };
    match run(check) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("rebuild-object: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all is as it should be.
fn run(check: bool) -> Result<bool, Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = root.join("bpf");
    let prebuilt = root.join("prebuilt");
    let clang = env::var_os("CLANG").unwrap_or_else(|| OsString::from("clang"));
    let new = Record { clang: clang_version(&clang)?, sources: digest_of_sources(&sources)? };

    let built = tempfile::tempdir()?;
    for program in PROGRAMS {
        build(&clang, root, program, built.path())?;
    }
    if !check {
        for program in PROGRAMS {
            let object = object_name(program);
            fs::copy(built.path().join(&object), prebuilt.join(&object))?;
            println!("built {object} with clang {}", new.clang);
        }
        fs::write(prebuilt.join(RECORD), new.to_string())?;
        return Ok(true);
    }

    let recorded = Record::read(&prebuilt)?;
    let mut good = true;
    if recorded.sources != new.sources {
        println!("the sources are not those the committed objects were built from");
        good = false;
    }
    let same_compiler = major(&recorded.clang) == major(&new.clang);
    if !same_compiler {
        println!(
            "clang {} here, clang {} recorded: the objects may differ for that alone",
            new.clang, recorded.clang
        );
    }
    for program in PROGRAMS {
        let object = object_name(program);
        let equal = fs::read(built.path().join(&object))? == fs::read(prebuilt.join(&object))?;
        println!("{object}: {}", if equal { "equal" } else { "differs" });
        good &= equal || !same_compiler;
    }
    if !good {
        println!("run `cargo run -p mpxdp-ebpf --features rebuild --bin rebuild-object`");
    }
    Ok(good)
}

fn object_name(program: &str) -> String {
    format!("{program}.bpf.o")
}

fn build(
    clang: &OsString,
    root: &Path,
    program: &str,
    destination: &Path,
) -> Result<(), Box<dyn Error>> {
    let source: PathBuf = root.join("bpf").join(format!("{program}.bpf.c"));
    // What the object says of its sources is relative to the crate, wherever that lies.
    let mut prefix_map = OsString::from("-ffile-prefix-map=");
    prefix_map.push(root);
    prefix_map.push("/=");
    SkeletonBuilder::new()
        .source(&source)
        .obj(destination.join(object_name(program)))
        .clang(clang)
        .clang_args([
            prefix_map,
            "-fdebug-compilation-dir=.".into(),
            // 32-bit registers and jumps: in every kernel since 5.1, and in no default of clang's
            // that lasts.
            "-mcpu=v3".into(),
            "-Wall".into(),
            "-Wextra".into(),
            "-Werror".into(),
        ])
        .build()
        // libbpf-cargo's error says what clang wrote only with its causes.
        .map_err(|error| format!("{error:#}").into())
}

/// The version in the first line of `clang --version`.
fn clang_version(clang: &OsString) -> Result<String, Box<dyn Error>> {
    let name = clang.to_string_lossy();
    let output = Command::new(clang).arg("--version").output().map_err(|error| {
        format!("{name}: {error}; install clang, or name the compiler in the variable CLANG")
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .next()
        .and_then(|line| line.split_once("version "))
        .map(|(_, rest)| rest.split([' ', '-', '+', '~']).next().unwrap_or(rest).to_owned())
        .filter(|version| major(version).is_some())
        .ok_or_else(|| format!("{name}: does not say that it is clang").into())
}

fn major(version: &str) -> Option<u32> {
    version.split('.').next()?.parse().ok()
}
