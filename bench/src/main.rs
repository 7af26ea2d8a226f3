//! The binary `mpxdp-bench`.

#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod cli;

use std::process::ExitCode;

use mpxdp_cli::{one_line, say};

fn main() -> ExitCode {
    match cli::run() {
        Ok(code) => code,
        Err(error) => {
            say::line(format_args!("mpxdp-bench: {}", one_line(&error.to_string())));
            ExitCode::from(error.exit_code())
        }
    }
}
