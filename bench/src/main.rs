//! The binary `mpxdp-bench`.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("mpxdp-bench: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
