//! The receive path without a lab: over the port in memory.

use super::Options;
use crate::error::{Error, Result};
use crate::report::Document;

pub(super) fn run(_: &Options, why: &str) -> Result<Document> {
    Err(Error::Missing(why.to_owned()))
}
