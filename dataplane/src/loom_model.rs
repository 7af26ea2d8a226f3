//! How loom is run here.

/// Runs `case` in every way that switches threads at most three times where none has to wait: most
/// bugs need two switches, and with four some cases take minutes (docs/testing.md says how long).
/// `LOOM_MAX_PREEMPTIONS` sets another bound.
pub(crate) fn model(case: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(case);
}
