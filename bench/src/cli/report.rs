//! `mpxdp-bench report`.

use std::path::PathBuf;

use clap::Args;
use mpxdp_bench::document::Target;
use mpxdp_bench::{Result, page};

#[derive(Args)]
pub(super) struct ReportArguments {
    /// Documents that benchmarks wrote with --json; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Compare the first document with each of the others.
    #[arg(long)]
    compare: bool,
    /// Where the page goes: a file or (-) standard output.
    #[arg(long, short, value_name = "FILE|-", default_value = "report.html")]
    output: Target,
}

impl ReportArguments {
    pub(super) fn run(self) -> Result<()> {
        page::run(&self.files, self.compare, &self.output)
    }
}
