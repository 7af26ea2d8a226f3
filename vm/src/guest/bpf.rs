//! The tests of the XDP program, of its loader and of AF_XDP ports, run on this kernel.

use std::fs;
use std::time::Duration;

use super::command::Running;
use crate::error::{Context, Error, Result};
use crate::plan::Kernel;

/// How long one test program may take.
const LIMIT: Duration = Duration::from_secs(120);

/// What test programs are told, by their names. Cargo names a library's tests after the library.
const ARGUMENTS: [(&str, &[&str]); 2] = [
    // Of the library of the data plane, the AF_XDP ports only: the rest meets no kernel.
    (PORTS, &["af_xdp"]),
    // It compares files of the source tree, which are not here.
    ("object", &["--skip", "the_objects_are_of_the_sources_beside_them"]),
];

/// The tests of AF_XDP ports, which take packets of several buffers.
const PORTS: &str = "mpxdp";

/// Runs all of them that the kernel can.
pub(super) fn run(kernel: Kernel) -> Result<String> {
    let mut notes = Vec::new();
    let entries = fs::read_dir("/tests").context(|| "no tests".to_owned())?;
    let mut programs: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    programs.sort();
    for program in programs {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name == PORTS && !kernel.takes_several_buffers() {
            continue;
        }
        let path = program.to_string_lossy();
        let told = ARGUMENTS.iter().find(|(program, _)| *program == name);
        let arguments = told.map_or(&[][..], |(_, arguments)| arguments);
        let words = [&[path.as_ref()], arguments].concat();
        let ended = Running::start(&words)?.wait(LIMIT)?;
        // Failed tests say why in this program's standard output, after their names.
        let result = ended.stdout.lines().rfind(|line| line.starts_with("test result"));
        if !ended.status.success() {
            let from = ended.stdout.find("failures:").unwrap_or_default();
            let why = ended.stdout.get(from..).unwrap_or_default();
            return Err(Error::failed(format!("{name}: {}\n{why}{}", ended.status, ended.stderr)));
        }
        let result = result.ok_or_else(|| Error::failed(format!("{name} ran no test")))?;
        notes.push(format!("{name}: {result}"));
    }
    Ok(notes.join("\n"))
}
