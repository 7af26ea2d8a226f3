//! What the program was built with and from.

use serde::{Deserialize, Serialize};

/// What the program was built with and from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// The compiler, as `rustc --version` prints it, or `unknown`.
    pub rustc: String,
    /// The commit that was checked out, or `unknown`. Changes that were not committed are not in it.
    pub revision: String,
}

impl Build {
    /// Of this program.
    #[must_use]
    pub fn of_this_program() -> Self {
        Self {
            rustc: env!("MPXDP_BENCH_RUSTC").to_owned(),
            revision: env!("MPXDP_BENCH_REVISION").to_owned(),
        }
    }
}
