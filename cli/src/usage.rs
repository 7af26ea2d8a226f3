//! The command line, and what is wrong with it in one line.

use std::error::Error as _;
use std::io::ErrorKind as IoError;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Parser};

use crate::one_line;

/// Why a command line is not carried out.
#[derive(Debug)]
pub enum Refused {
    /// It is wrong; one line says how.
    Wrong(String),
    /// It asked for the help or the version, which was written; the command ends with this code.
    Shown(ExitCode),
    /// It asked for the help or the version, which could not be written; one line says why.
    NotShown(String),
}

/// Reads the command line of this process; `name` is the command's.
///
/// # Errors
///
/// What else is to be done: [`Refused`].
pub fn parse<C: Parser>(name: &str) -> Result<C, Refused> {
    let matches = with_negative_values(C::command()).try_get_matches();
    let error = match matches.and_then(|mut matches| C::from_arg_matches_mut(&mut matches)) {
        Ok(command) => return Ok(command),
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Err(match error.print() {
            Ok(()) => Refused::Shown(ExitCode::SUCCESS),
            // Who has seen enough closes the pipe.
            Err(why) if why.kind() == IoError::BrokenPipe => Refused::Shown(ExitCode::FAILURE),
            Err(why) => {
                Refused::NotShown(format!("cannot write the help: {}", crate::describe(&why)))
            }
        }),
        // That goes to standard error, where nobody may be.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            Err(Refused::Shown(ExitCode::from(2)))
        }
        _ => Err(Refused::Wrong(wrong(name, &error))),
    }
}

/// Lets what follows an option be its value if it is a number below zero, or a list with commas,
/// whatever that begins with: then it is the option that says what is wrong with it, and clap does not
/// take it for an option that nobody knows.
#[must_use]
pub fn with_negative_values(command: Command) -> Command {
    command
        .mut_args(|arg| {
            let takes_values = arg.get_action().takes_values();
            // Where several values may follow, the next option would be one of them.
            let one = arg.get_num_args().is_none_or(|values| values.max_values() == 1);
            let list = takes_values && one && arg.get_value_delimiter().is_some();
            let hyphens = arg.is_allow_hyphen_values_set() || list;
            arg.allow_negative_numbers(takes_values).allow_hyphen_values(hyphens)
        })
        .mut_subcommands(with_negative_values)
}

/// One line of what clap has to say about a wrong command line.
#[must_use]
pub fn wrong(name: &str, error: &clap::Error) -> String {
    let what = refused_value(error).unwrap_or_else(|| said(error));
    format!("{}; see {name} --help", one_line(&what))
}

/// What an option says of its value, in the words of all other errors: `--option value: why`.
fn refused_value(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let option = text(ContextKind::InvalidArg)?.split([' ', '=']).next()?;
    let (value, why) = (text(ContextKind::InvalidValue)?, error.source()?);
    (error.kind() == ErrorKind::ValueValidation).then(|| format!("{option} {value}: {why}"))
}

/// What clap says, in one line.
fn said(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let mut line = String::new();
    for part in text.lines().map(str::trim) {
        if part.starts_with("Usage:") || part.starts_with("For more information") {
            break;
        }
        if !part.is_empty() {
            if !line.is_empty() {
                line.push_str(if line.ends_with(':') { " " } else { "; " });
            }
            line.push_str(part.strip_prefix("error: ").unwrap_or(part));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, FromArgMatches as _};

    use super::*;

    #[derive(Parser, Debug)]
    struct Options {
        #[arg(long)]
        number: u32,
        #[arg(long)]
        word: String,
        #[arg(long, value_delimiter = ',')]
        list: Vec<i32>,
        #[arg(long, value_delimiter = ',', num_args = 1..)]
        many: Vec<String>,
    }

    fn read(arguments: &[&str]) -> Result<Options, clap::Error> {
        let mut matches =
            with_negative_values(Options::command()).try_get_matches_from(arguments)?;
        Options::from_arg_matches_mut(&mut matches)
    }

    #[test]
    fn a_number_below_zero_is_a_value_and_its_option_says_what_is_wrong_with_it() {
        let error = read(&["x", "--word", "a", "--number", "-1"]).expect_err("no u32");
        let line = wrong("x", &error);
        assert!(line.starts_with("--number -1: ") && line.ends_with("; see x --help"), "{line}");
        let both = read(&["x", "--word", "-1", "--number", "2", "--list", "-1,-2"]).expect("read");
        assert_eq!((both.word.as_str(), both.list), ("-1", vec![-1, -2]));
        // What takes several values is ended by the next option, and so is a text.
        let many = read(&["x", "--many", "a", "b", "--word", "c", "--number", "2"]).expect("read");
        assert_eq!((many.many.len(), many.word.as_str()), (2, "c"));
        let error = read(&["x", "--word", "--number", "2"]).expect_err("no word");
        assert!(wrong("x", &error).contains("--word"));
    }

    #[test]
    fn what_is_wrong_is_told_in_one_line() {
        for (arguments, words) in [
            (&["x", "--number", "many"][..], &["many", "--number"][..]),
            (&["x"], &["--number", "--word"]),
            (&["x", "--nmber", "1"], &["--nmber", "--number"]),
            (&["x", "--word", "a\nb", "--number", "c\nd"], &["--number"]),
        ] {
            let error = Options::try_parse_from(arguments).expect_err("wrong");
            let line = wrong("x", &error);
            assert_eq!(line.lines().count(), 1, "{line}");
            assert!(line.ends_with("; see x --help"), "{line}");
            for word in words {
                assert!(line.contains(word), "{word}: {line}");
            }
        }
    }
}
