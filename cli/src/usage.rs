//! The command line, and what is wrong with it in one line.

use std::io::ErrorKind as IoError;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

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
    let error = match C::try_parse() {
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

/// One line of what clap has to say about a wrong command line.
#[must_use]
pub fn wrong(name: &str, error: &clap::Error) -> String {
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
    format!("{line}; see {name} --help")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Parser, Debug)]
    struct Options {
        #[arg(long)]
        number: u32,
        #[arg(long)]
        word: String,
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
