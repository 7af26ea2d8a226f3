//! The `mpxdp` command: MPTCP in user space on AF_XDP.

#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod address;
mod cli;
mod config;
mod failure;
mod output;
mod privileges;
mod progress;
mod recv;
mod report;
mod signals;
mod units;

use std::process::ExitCode;

use mpxdp_cli::say;
use mpxdp_cli::usage::{self, Refused};

use crate::cli::{Cli, Command};
use crate::failure::Failure;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(failure) => {
            say::line(format_args!("mpxdp: {failure}"));
            failure.exit_code()
        }
    }
}

fn run() -> Result<ExitCode, Failure> {
    let cli: Cli = match usage::parse("mpxdp") {
        Ok(cli) => cli,
        Err(Refused::Wrong(line)) => return Err(Failure::usage(line)),
        Err(Refused::Shown(code)) => return Ok(code),
        Err(Refused::NotShown(line)) => return Err(Failure::runtime(line)),
    };
    log_as_asked();
    match cli.command {
        Command::Recv(args) => recv::run(&args.settle()?),
    }
}

/// Logs go to stderr, and only if RUST_LOG asks for some.
fn log_as_asked() {
    if let Ok(filter) = tracing_subscriber::EnvFilter::try_from_default_env() {
        // A log that cannot be written is told of by `eprintln!` otherwise, which panics there.
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .log_internal_errors(false)
            .init();
    }
}
