//! The `mpxdp` command: MPTCP in user space on AF_XDP.

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

use clap::Parser;
use clap::error::ErrorKind;

use crate::cli::{Cli, Command};
use crate::failure::Failure;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("mpxdp: {failure}");
            failure.exit_code()
        }
    }
}

fn run() -> Result<ExitCode, Failure> {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
            _ => return Err(cli::wrong_usage(&error)),
        },
    };
    log_as_asked();
    match cli.command {
        Command::Recv(args) => recv::run(&args.settle()?),
    }
}

/// Logs go to stderr, and only if RUST_LOG asks for some.
fn log_as_asked() {
    if let Ok(filter) = tracing_subscriber::EnvFilter::try_from_default_env() {
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    }
}
