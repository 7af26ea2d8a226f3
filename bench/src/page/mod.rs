//! One self-contained HTML page from the documents of benchmarks: plots, tables, what was not
//! measured, and where it was measured.
//!
//! The page loads nothing: the style sheet and the plots, SVG, are in it. It follows the reader's
//! colour scheme, and reads without scripts.

mod compare;
mod figures;
mod groups;
mod latency;
mod machine;
mod pipeline;
mod plot;
mod theme;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use maud::{DOCTYPE, Markup, PreEscaped, html};
use mpxdp_cli::{describe, printable, say};

use crate::document::{Document, Row, Target};
use crate::error::{Error, Result};

/// A document and what to call it: its file's name.
#[derive(Clone, Debug)]
pub struct Named {
    /// The name, unique among those on a page.
    pub name: String,
    /// What was measured.
    pub document: Document,
}

/// Reads documents, `-` from standard input, and writes their page.
///
/// # Errors
///
/// If a file cannot be read or is no document, if a comparison has nothing to compare, or if the
/// page cannot be written.
pub fn run(files: &[PathBuf], compare: bool, output: &Target) -> Result<()> {
    if compare && files.len() < 2 {
        return Err(Error::Usage("--compare needs two documents or more".into()));
    }
    for file in files.iter().filter(|file| *file != Path::new("-")) {
        output.check_apart("--output", &Target::File(file.clone()), "an input")?;
    }
    output.check("--output")?;
    let documents: Vec<Named> =
        files.iter().map(|file| read(file, files)).collect::<Result<_>>()?;
    let page = render(&documents, compare)?;
    output.write("--output", page.as_bytes())?;
    if let Target::File(path) = output {
        say::line(format_args!("wrote {}", path.display()));
    }
    Ok(())
}

/// Reads one document. Its name is its file's, with the folder if others are called the same.
fn read(file: &Path, all: &[PathBuf]) -> Result<Named> {
    let shown = file.display();
    let document = if file == Path::new("-") {
        Document::read(io::stdin().lock())
    } else {
        let opened = File::open(file)
            .map_err(|error| Error::Usage(format!("{shown}: {}", describe(&error))))?;
        Document::read(opened)
    };
    let document = document.map_err(|error| Error::Failed(format!("{shown}: {error}")))?;
    let alike = all.iter().filter(|other| other.file_name() == file.file_name()).count();
    let short = file.file_name().filter(|_| alike == 1);
    let name = short.map_or_else(|| shown.to_string(), |name| name.to_string_lossy().into_owned());
    Ok(Named { name, document })
}

/// The page.
///
/// With `compare`, the first document is compared with each of the others, row by row.
///
/// # Errors
///
/// If a plot cannot be drawn.
pub fn render(documents: &[Named], compare: bool) -> Result<String> {
    let names: Vec<&str> = documents.iter().map(|named| named.name.as_str()).collect();
    let parts: Vec<Markup> = documents.iter().map(one).collect::<Result<_>>()?;
    let comparisons: Vec<Markup> = match documents {
        [base, others @ ..] if compare => {
            others.iter().map(|other| compare::section(base, other)).collect()
        }
        _ => Vec::new(),
    };
    let style = include_str!("style.css");
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "mpxdp: " (names.join(", ")) }
                style { (PreEscaped(style)) }
            }
            body {
                h1 { "mpxdp benchmark report" }
                @for comparison in &comparisons { (comparison) }
                @for part in &parts { (part) }
            }
        }
    };
    // Text from elsewhere is escaped above, so that none of it is markup; nor shall it be anything
    // else that is not seen.
    Ok(printable(&page.into_string()).into_owned())
}

/// All about one document.
fn one(Named { name, document }: &Named) -> Result<Markup> {
    let rows = &document.results;
    let of = |benchmarks: &[&str]| -> Vec<&Row> {
        rows.iter().filter(|row| benchmarks.contains(&row.benchmark.as_str())).collect()
    };
    Ok(html! {
        h2 { (name) }
        p.quiet { (machine::summary(document)) }
        @for warning in warnings(document) { p.warn { (warning) } }
        (figures::throughput(&of(&["demo", "throughput"]))?)
        (figures::placement(&of(&["placement"]))?)
        (latency::section(&of(&["latency"]))?)
        (pipeline::section(&of(&["pipeline"]))?)
        (figures::ratios(&document.ratios))
        @if !document.exactness.is_empty() {
            @let exact = document.exactness.iter().all(|one| one.exact);
            @if exact { p { "Transfers compared by SHA-256: all bytes were right." } }
            @else { p.warn { "Transfers compared by SHA-256: bytes were wrong." } }
        }
        @if !document.not_run.is_empty() {
            h3 { "Not measured" }
            @for (reason, what) in by_reason(document) {
                @if let [only] = what[..] { p { (only) ": " (reason) } }
                @else { details {
                    summary { (reason) " (" (what.len()) ")" }
                    ul { @for what in &what { li { (what) } } }
                } }
            }
        }
        @if !document.remarks.is_empty() {
            h3 { "Remarks" }
            ul { @for remark in &document.remarks { li { (remark) } } }
        }
        (machine::details(document)?)
    })
}

/// What was not measured, by reason, in the order of first appearance.
fn by_reason(document: &Document) -> Vec<(&str, Vec<&str>)> {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for one in &document.not_run {
        match all.iter_mut().find(|(reason, _)| *reason == one.reason) {
            Some((_, what)) => what.push(&one.what),
            None => all.push((&one.reason, vec![&one.what])),
        }
    }
    all
}

/// What makes the whole document less than it seems.
fn warnings(document: &Document) -> Vec<String> {
    let mut all = Vec::new();
    if document.interrupted {
        all.push("The run was interrupted; this is what had been measured by then.".to_owned());
    }
    if !document.environment.optimised {
        all.push("Built without optimisation: the figures mean nothing.".to_owned());
    }
    if document.results.is_empty() {
        all.push("There are no results in this document.".to_owned());
    }
    let noisy = document.results.iter().filter(|row| row.noisy).count();
    if noisy > 0 {
        let of = document.results.len();
        all.push(format!("In {noisy} of {of} results the rounds differ much; see their spread."));
    }
    all
}

#[cfg(test)]
mod tests;
