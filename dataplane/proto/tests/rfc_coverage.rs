//! Holds `docs/rfc-coverage.md` to its word: each test that it names is there, and each requirement
//! has a test or a reason.
//!
//! How the page is laid out is told on the page itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// What the last cell of a requirement without a test begins with.
const REASONS: [&str; 4] =
    ["Not applicable: ", "Not done: ", "Otherwise: ", "Not shown by a test: "];

/// The chapters in which each row is a requirement, and how many rows each has at least: fewer were
/// lost by accident.
const CHAPTERS: [(&str, usize); 7] = [
    ("RFC 8684", 90),
    ("RFC 9293", 40),
    ("RFC 7323", 20),
    ("RFC 2018", 6),
    ("RFC 5961", 6),
    ("RFC 6528", 2),
    ("Cases that are easy to get wrong", 26),
];

/// The last of the numbers that RFC 9293 gives to its MUSTs.
const LAST_MUST: usize = 69;

/// A row of a table: its cells, and the line it is on.
#[derive(Debug)]
struct Row {
    line: usize,
    cells: Vec<String>,
}

/// The page, as far as it is checked.
#[derive(Debug, Default)]
struct Page {
    /// The files of the tests, by the name that the page has for them.
    files: BTreeMap<String, String>,
    /// The rows of each chapter.
    chapters: BTreeMap<String, Vec<Row>>,
    /// The tests that are named anywhere, and the line.
    named: Vec<(usize, String, String)>,
}

impl Page {
    fn read(text: &str) -> Self {
        let mut page = Self::default();
        let mut chapter = String::new();
        let mut in_table = false;
        for (index, line) in text.lines().enumerate() {
            if let Some(heading) = line.strip_prefix("## ") {
                chapter = heading.to_owned();
            }
            for (file, function) in tests_named_in(line) {
                page.named.push((index + 1, file.to_owned(), function.to_owned()));
            }
            let Some(row) = line.strip_prefix('|') else {
                in_table = false;
                continue;
            };
            let row = row.trim_end().strip_suffix('|').unwrap_or(row);
            let cells: Vec<String> = row.split('|').map(|cell| cell.trim().to_owned()).collect();
            // The first row of a table is its head, the second the rule below it.
            let is_rule = cells.iter().all(|cell| cell.chars().all(|c| matches!(c, '-' | ':')));
            if !in_table || is_rule {
                in_table = true;
                continue;
            }
            if chapter == "Where the tests are" {
                if let [name, file] = &cells[..] {
                    page.files.insert(name.replace('`', ""), file.replace('`', ""));
                }
            } else {
                let row = Row { line: index + 1, cells };
                page.chapters.entry(chapter.clone()).or_default().push(row);
            }
        }
        page
    }

    /// The rows that are requirements.
    fn requirements(&self) -> impl Iterator<Item = &Row> {
        CHAPTERS.iter().filter_map(|(chapter, _)| self.chapters.get(*chapter)).flatten()
    }
}

impl Row {
    fn last(&self) -> &str {
        self.cells.last().map_or("", String::as_str)
    }

    fn has_test(&self) -> bool {
        tests_named_in(self.last()).next().is_some()
    }

    /// What its reason begins with, if it gives one for having no test, or for having one that
    /// shows something else.
    fn reason(&self) -> Option<&'static str> {
        let begin = REASONS.into_iter().find(|begin| self.last().starts_with(begin))?;
        let words = self.last()[begin.len()..].split_whitespace().count();
        (words >= 3).then_some(begin)
    }
}

/// The tests that a line of the page names, as file and function.
fn tests_named_in(line: &str) -> impl Iterator<Item = (&str, &str)> {
    line.split('`').skip(1).step_by(2).filter_map(|code| code.split_once("::"))
}

/// The names of the tests in a source file. A test that is ignored is none.
fn tests_in(source: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    let mut is_test = false;
    for line in source.lines().map(str::trim) {
        let after = line.strip_prefix("pub ").unwrap_or(line).strip_prefix("fn ");
        let attribute = line.strip_prefix("#[").unwrap_or_default();
        if attribute == "test]" {
            is_test = true;
        } else if attribute.starts_with("ignore") {
            is_test = false;
        } else if let Some(name) = after {
            let end = name.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(name.len());
            if std::mem::take(&mut is_test) {
                names.insert(&name[..end]);
            }
        }
    }
    names
}

/// What is wrong with the page, a line each. `source` gives the text of a file of the repository.
fn faults(text: &str, source: impl Fn(&str) -> Option<String>) -> String {
    let page = Page::read(text);
    let mut faults = String::new();
    let mut fault = |text: std::fmt::Arguments<'_>| {
        writeln!(faults, "{text}").expect("a string takes it");
    };

    let mut tests = BTreeMap::new();
    for (name, file) in &page.files {
        match source(file) {
            Some(source) => {
                let there: BTreeSet<String> =
                    tests_in(&source).into_iter().map(str::to_owned).collect();
                tests.insert(name.as_str(), there);
            }
            None => fault(format_args!("{file}, which `{name}` stands for, is not there")),
        }
    }

    for row in page.requirements() {
        let line = row.line;
        if row.cells.len() != 3 || row.cells.iter().any(String::is_empty) {
            fault(format_args!("line {line}: a requirement has three cells with text"));
            continue;
        }
        if !row.has_test() && row.reason().is_none() {
            let begins = REASONS.map(|begin| format!("\"{}\"", begin.trim())).join(", ");
            fault(format_args!("line {line}: no test, and no reason that begins with {begins}"));
        }
    }
    let mut used = BTreeSet::new();
    for (line, file, function) in &page.named {
        used.insert(file);
        match tests.get(file.as_str()) {
            // Those of a file that is not there were told of.
            None if page.files.contains_key(file) => {}
            None => fault(format_args!("line {line}: `{file}` is none of the files named")),
            Some(tests) if !tests.contains(function) => {
                let file = &page.files[file];
                fault(format_args!("line {line}: {file} has no test `{function}`"));
            }
            Some(_) => {}
        }
    }
    for name in page.files.keys().filter(|name| !used.contains(*name)) {
        fault(format_args!("`{name}` is named as a file of tests, and no test of it is named"));
    }
    faults
}

/// How many requirements are shown by tests, and how many have which reason.
fn counts<'a>(rows: impl IntoIterator<Item = &'a Row>) -> String {
    let mut of_reason = BTreeMap::new();
    let (mut all, mut shown) = (0, 0);
    for row in rows {
        all += 1;
        match row.reason() {
            None => shown += 1,
            Some(begin) => *of_reason.entry(begin).or_insert(0) += 1,
        }
    }
    let mut text = format!("{all} requirements, shown by tests: {shown}");
    for (begin, count) in of_reason {
        write!(text, ", {}{count}", begin.to_lowercase()).expect("a string takes it");
    }
    text
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> String {
    fs::read_to_string(root().join("docs/rfc-coverage.md")).expect("the page is there")
}

#[test]
fn every_requirement_has_a_test_that_exists_or_a_reason() {
    let faults = faults(&page(), |file| fs::read_to_string(root().join(file)).ok());
    assert!(faults.is_empty(), "docs/rfc-coverage.md:\n{faults}");
}

#[test]
fn the_page_is_whole() {
    let text = page();
    let page = Page::read(&text);
    for (chapter, least) in CHAPTERS {
        let rows = page.chapters.get(chapter).map_or(&[][..], Vec::as_slice);
        assert!(rows.len() >= least, "{chapter} has {} rows only", rows.len());
        println!("{chapter}: {}", counts(rows));
    }
    println!("in all: {}", counts(page.requirements()));

    // RFC 9293 numbers its requirements.
    let words: BTreeSet<&str> = text.split(|c: char| c != '-' && !c.is_alphanumeric()).collect();
    for number in 1..=LAST_MUST {
        let must = format!("MUST-{number}");
        assert!(words.contains(&must[..]), "{must} of RFC 9293 is not on the page");
    }
}

#[test]
fn what_is_missing_is_named() {
    let page = |cell: &str| {
        format!(
            "## Where the tests are\n\n| Name | File |\n|---|---|\n| `sack` | `a/sack.rs` |\n\n\
             ## RFC 2018\n\n| Section | Sentence | Shown by |\n|---|---|---|\n\
             | 3 | \"A sentence.\" | `sack::there` |\n| 4 | \"Another.\" | {cell} |\n"
        )
    };
    let source = |file: &str| {
        (file == "a/sack.rs").then(|| {
            let test = |attribute: &str, name: &str| {
                format!("#[test]\n#[{attribute}]\nfn {name}() {{}}\n")
            };
            test("expect(lint)", "there")
                + "fn helper() {}\n"
                + &test("ignore", "asleep")
                + &test("ignore = \"slow\"", "drowsy")
        })
    };
    let faults_of = |cell: &str| faults(&page(cell), source);
    assert_eq!(faults_of("`sack::there`"), "");
    assert_eq!(faults_of("Not done: no room for it."), "");
    for (cell, expected) in [
        ("`sack::there`, `sack::gone`", "line 12: a/sack.rs has no test `gone`"),
        ("`sack::helper`", "line 12: a/sack.rs has no test `helper`"),
        ("`sack::asleep`", "line 12: a/sack.rs has no test `asleep`"),
        ("`sack::drowsy`", "line 12: a/sack.rs has no test `drowsy`"),
        ("`other::there`", "line 12: `other` is none of the files named"),
        ("Certainly.", "line 12: no test, and no reason"),
        ("Not done: .", "line 12: no test, and no reason"),
        ("", "line 12: a requirement has three cells"),
    ] {
        let faults = faults_of(cell);
        assert!(faults.starts_with(expected), "{cell}: {faults}");
        assert_eq!(faults.lines().count(), 1, "{faults}");
    }
    let nowhere = faults(&page("`sack::there`"), |_| None);
    assert!(nowhere.starts_with("a/sack.rs, which `sack` stands for, is not there"), "{nowhere}");
}
