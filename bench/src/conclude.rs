//! The end of a benchmark.

use mpxdp_cli::say;

use crate::document::{Document, NotRun, Target};
use crate::error::{Error, Result};

/// Shows what was measured, and writes it. If something failed after that, a lab that could not be
/// removed for instance, it is in `not_run`, and what was measured before is not lost. What a signal
/// ended is marked as interrupted.
///
/// # Errors
///
/// The outcome's own, or if the document cannot be written.
pub(crate) fn conclude<T>(
    document: &mut Document,
    outcome: Result<T>,
    table: impl FnOnce(&Document) -> String,
    json: Option<&Target>,
) -> Result<T> {
    match &outcome {
        Ok(_) => {}
        Err(Error::Interrupted) => document.interrupted = true,
        Err(_) if document.results.is_empty() => return outcome,
        Err(error) => document.not_run.push(NotRun {
            what: "what was to come after the results".into(),
            reason: error.to_string(),
        }),
    }
    say::text(table(document));
    if let Some(json) = json
        && let Err(error) = json.put(document)
    {
        // One of the two is returned; the other is said here.
        if let Err(before) = &outcome {
            say::line(format_args!("mpxdp-bench: {before}"));
        }
        return Err(error);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Row;

    /// The document that a run with this outcome leaves, if it leaves one.
    fn left(results: usize, outcome: Result<()>) -> (Option<Document>, Result<()>) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out.json");
        let mut document = Document::new();
        document.results = vec![Row::default(); results];
        let target = Target::File(path.clone());
        let outcome = conclude(&mut document, outcome, |_| String::new(), Some(&target));
        let file = std::fs::File::open(&path).ok();
        (file.map(|file| Document::read(file).expect("a document")), outcome)
    }

    #[test]
    fn what_was_measured_outlives_a_failure_after_it() {
        let (document, outcome) = left(1, Err(Error::Failed("the lab stays".into())));
        let document = document.expect("it was written");
        assert_eq!(document.results.len(), 1);
        assert_eq!(document.not_run[0].reason, "the lab stays");
        assert!(matches!(outcome, Err(Error::Failed(why)) if why == "the lab stays"));
    }

    #[test]
    fn a_signal_is_in_the_document_and_a_failure_without_results_leaves_none() {
        let (document, outcome) = left(0, Err(Error::Interrupted));
        assert!(document.is_some_and(|document| document.interrupted));
        assert!(matches!(outcome, Err(Error::Interrupted)));
        let (document, outcome) = left(0, Err(Error::Missing("ethtool".into())));
        assert!(document.is_none() && outcome.is_err());
        let (document, outcome) = left(2, Ok(()));
        assert!(document.is_some_and(|document| document.not_run.is_empty()) && outcome.is_ok());
    }
}
