//! The command line.

use std::net::SocketAddr;
use std::num::{NonZeroU8, NonZeroU64};
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use mpxdp::{Checksums, Dscp, Mode, NicConfig, Placement};
use mpxdp_cli::files;

use crate::address::{Announce, parse_listen};
use crate::config::RecvFile;
use crate::failure::Failure;
use crate::output::OutputSpec;
use crate::report::ReportSpec;

/// Multipath TCP in user space on AF_XDP.
///
/// mpxdp takes over the TCP packets of chosen ports on chosen NICs; everything else on those NICs
/// stays with the kernel.
#[derive(Parser, Debug)]
#[command(name = "mpxdp", version, after_help = AFTER_HELP)]
#[command(disable_help_subcommand = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER_HELP: &str = "\
Exit codes: 0 done, 1 failed at run time, 2 wrong usage or configuration.
Logs: RUST_LOG=info (or debug, or mpxdp=debug) writes them to stderr; they are off by default.";

/// The subcommands.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Receive connections and write what they carry.
    ///
    /// MPTCP v1 and plain TCP clients are both served. Needs root, or the capabilities
    /// CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_PERFMON.
    #[command(after_long_help = RECV_AFTER_HELP)]
    Recv(RecvArgs),
}

const RECV_AFTER_HELP: &str = "\
Ending: SIGINT, SIGTERM and SIGHUP (of a terminal that closes; not under nohup) reset the connections
that are open, write the report and end; a second signal ends at once. Our direction of a connection
is closed only after everything was written, and for files also synced; if that fails, the connection
is reset.

Changes of the NICs have a line on stderr each. Addresses that come and go are announced and withdrawn;
a NIC that is gone is given up, and with the last one the command ends with exit code 1.

A peer that has said nothing for a minute is asked whether it is there. After another minute without
an answer the subflow is given up, and with MPTCP the connection a minute later if none is left.

Exit codes: 0 done, or ended by a signal with no output left incomplete; 1 failed at run time: a
connection did not come to its end, its output could not be written, or the machine is not ready for
it (NIC down or occupied, port taken, no privilege); 2 wrong usage or configuration. Nothing is
attached before these checks, and nothing stays attached.

Examples:
  mpxdp recv --nic eth0 --listen 10.0.0.2:5000 --output backup.tar
  mpxdp recv --nic eth0:queues=0-3:cpus=2,3 --nic eth1:cpus=4 --listen 0.0.0.0:5000 --output in/
  mpxdp recv --nic eth0 --listen [2001:db8::2]:5000 --output null --report -";

/// The arguments of `mpxdp recv`. What none of them says may be in the file of `--config`.
#[derive(Args, Debug)]
pub(crate) struct RecvArgs {
    /// A file with any of these options, in TOML; those on the command line go before it.
    ///
    /// Its keys are the options' names: nic = ["eth0:cpus=2"], listen = "10.0.0.2:5000", and so on.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// A NIC to receive on, its receive queues and the CPUs of its workers; may be repeated.
    ///
    /// Without `queues` all of them are taken. A connection's packets on a queue that is not taken
    /// are lost, so name queues only where steering rules of the NIC keep its packets on them.
    /// CPUs are a list like 2,4-5, one worker each; they go before --placement.
    #[arg(long = "nic", required_unless_present = "config")]
    #[arg(value_name = "IF[:queues=A-B][:cpus=LIST]")]
    pub(crate) nics: Vec<NicConfig>,

    /// Where to listen: `10.0.0.2:5000`, `[2001:db8::2]:5000`, or `0.0.0.0:5000` and `[::]:5000` for
    /// every address of the NICs and their VLANs.
    #[arg(long, value_name = "ADDR:PORT", required_unless_present = "config")]
    #[arg(value_parser = parse_listen)]
    pub(crate) listen: Option<SocketAddr>,

    /// Further addresses that peers are told of, for further subflows: auto, none, or a list of
    /// addresses of the NICs [default: auto].
    ///
    /// auto is every address of the NICs and their VLANs, of both families. An address stands for
    /// the port that is listened on, unless it has one of its own. Subflows to addresses that are
    /// neither announced nor the first subflow's are refused.
    #[arg(long, value_name = "auto|none|ADDR[:PORT]", value_delimiter = ',', num_args = 1..)]
    pub(crate) announce: Vec<Announce>,

    /// Where the data goes: a file, a directory (ends in /), - for standard output, or null
    /// [default: null].
    ///
    /// FILE appears, or is replaced, once everything has come; until then, and if that never
    /// happens, what has come is in FILE.part. DIR/ is created if need be and takes one file for
    /// each connection, named by number and peer, e.g. 0001-10.0.0.2-40112.bin; it has .part at its
    /// end until it is complete, and numbers go on after the highest one there. null reads in place
    /// and discards.
    #[arg(long, value_name = "FILE|DIR/|-|null")]
    pub(crate) output: Option<OutputSpec>,

    /// End after this many connections [default: 1 for FILE and -, no limit for DIR/ and null].
    ///
    /// Up to 256 are read at the same time; more wait until one ends.
    #[arg(long, value_name = "N", value_parser = parse_connections)]
    pub(crate) connections: Option<NonZeroU64>,

    /// How packets come: auto, zerocopy, copy (both native XDP) or skb (generic XDP).
    ///
    /// A mode that is named works or is an error; auto, the default, takes the best that works and
    /// says which.
    #[arg(long, value_name = "auto|zerocopy|copy|skb")]
    pub(crate) mode: Option<Mode>,

    /// Where threads run: auto, or parts like "worker=2-3 reader=1" (CPU lists).
    ///
    /// As many workers are made as `worker` names CPUs; `reader` is where the threads that write
    /// the output run. `napi` is accepted for the sake of the benchmarks' notation: where the NIC's
    /// own processing runs is host set-up, which this command leaves alone.
    #[arg(long, value_name = "TEXT")]
    pub(crate) placement: Option<Placement>,

    /// MPTCP's own checksums over the data: auto, on or off.
    ///
    /// auto, the default, uses them if the client requires them; on requires them of each client;
    /// off serves a client that requires them as plain TCP. They cost another pass over each byte.
    #[arg(long, value_name = "auto|on|off", value_parser = parse_checksums)]
    pub(crate) checksums: Option<Checksums>,

    /// The time to live, or hop limit, of what is sent, 1 to 255 [default: 64].
    #[arg(long, value_name = "N", value_parser = parse_hop_limit)]
    pub(crate) hop_limit: Option<NonZeroU8>,

    /// The Differentiated Services code point of what is sent, 0 to 63 [default: 0].
    #[arg(long, value_name = "N", value_parser = parse_dscp)]
    pub(crate) dscp: Option<Dscp>,

    /// Write one JSON document about the run at its end, to a file or (-) standard output.
    #[arg(long, value_name = "FILE|-")]
    pub(crate) report: Option<ReportSpec>,
}

impl RecvArgs {
    /// What is to be done: the options, those of the file where there is one, and the defaults.
    ///
    /// # Errors
    ///
    /// A [`Failure`] of usage.
    pub(crate) fn settle(self) -> Result<RecvSettings, Failure> {
        let file = self.config.as_deref().map(RecvFile::read).transpose()?.unwrap_or_default();
        let Self {
            config,
            nics,
            listen,
            announce,
            output,
            connections,
            mode,
            placement,
            checksums,
            hop_limit,
            dscp,
            report,
        } = self;
        let missing = |option: &str| {
            let file = config.as_deref().unwrap_or_else(|| Path::new("")).display();
            Failure::usage(format!("{file}: {option} is missing; add it there, or give --{option}"))
        };
        let nics = if nics.is_empty() { file.nic } else { nics };
        if nics.is_empty() {
            return Err(missing("nic"));
        }
        let settings = RecvSettings {
            nics,
            listen: listen.or(file.listen).ok_or_else(|| missing("listen"))?,
            announce: if announce.is_empty() { file.announce } else { announce },
            output: output.or(file.output).unwrap_or(OutputSpec::Null),
            connections: connections.or(file.connections),
            mode: mode.or(file.mode),
            placement: placement.or(file.placement).unwrap_or_default(),
            checksums: checksums.or(file.checksums).unwrap_or_default(),
            hop_limit: hop_limit.or(file.hop_limit),
            dscp: dscp.or(file.dscp).unwrap_or_default(),
            report: report.or(file.report),
        };
        settings.check()?;
        Ok(settings)
    }
}

/// What `mpxdp recv` is to do.
#[derive(Debug)]
pub(crate) struct RecvSettings {
    pub(crate) nics: Vec<NicConfig>,
    pub(crate) listen: SocketAddr,
    /// Empty: the default.
    announce: Vec<Announce>,
    pub(crate) output: OutputSpec,
    connections: Option<NonZeroU64>,
    pub(crate) mode: Option<Mode>,
    pub(crate) placement: Placement,
    pub(crate) checksums: Checksums,
    /// `None`: the default.
    pub(crate) hop_limit: Option<NonZeroU8>,
    pub(crate) dscp: Dscp,
    pub(crate) report: Option<ReportSpec>,
}

impl RecvSettings {
    /// How many connections to serve; `None` means no limit.
    pub(crate) fn limit(&self) -> Option<u64> {
        match self.connections {
            Some(n) => Some(n.get()),
            None => (!self.output.takes_many()).then_some(1),
        }
    }

    /// What peers are told of.
    pub(crate) fn announce(&self) -> mpxdp::Announce {
        match self.announce[..] {
            [] | [Announce::Auto] => mpxdp::Announce::Auto,
            [Announce::None] => mpxdp::Announce::None,
            _ => mpxdp::Announce::Addresses(
                self.announce
                    .iter()
                    .filter_map(|announce| match *announce {
                        Announce::Address(ip, port) => Some((ip, port)),
                        Announce::Auto | Announce::None => None,
                    })
                    .collect(),
            ),
        }
    }

    /// Checks what can be told from the arguments alone.
    ///
    /// # Errors
    ///
    /// A [`Failure`] of usage.
    fn check(&self) -> Result<(), Failure> {
        let address = |announce: &Announce| matches!(announce, Announce::Address(..));
        if self.announce.len() > 1 && !self.announce.iter().all(address) {
            return Err(Failure::usage(
                "--announce: auto and none stand alone; name one of them, or addresses".to_owned(),
            ));
        }
        for (n, nic) in self.nics.iter().enumerate() {
            if self.nics[..n].iter().any(|other| other.name() == nic.name()) {
                return Err(Failure::usage(format!(
                    "--nic {}: given twice; name each NIC once, with all its queues and CPUs",
                    nic.name()
                )));
            }
        }
        if !self.output.takes_many()
            && let Some(n) = self.connections
            && n.get() > 1
        {
            return Err(Failure::usage(format!(
                "--connections {n}: {} takes one connection; end the --output with / to have a \
                 file for each",
                self.output
            )));
        }
        if matches!((&self.output, &self.report), (OutputSpec::Stdout, Some(ReportSpec::Stdout))) {
            return Err(Failure::usage(
                "--output - and --report - both want standard output; send one of them to a file",
            ));
        }
        if let (OutputSpec::File(output), Some(ReportSpec::File(report))) =
            (&self.output, &self.report)
        {
            // What has come of the output, and of the report, is in files of their own until the end.
            let both = [output.clone(), files::part_of(output)];
            if files::same(output, &files::part_of(report))
                || both.iter().any(|name| files::same(name, report))
            {
                return Err(Failure::usage(format!(
                    "--output and --report both name {} or its .part; give them different files",
                    output.display()
                )));
            }
        }
        Ok(())
    }
}

/// How many connections to serve.
///
/// # Errors
///
/// One line that says how to write it.
pub(crate) fn parse_connections(text: &str) -> Result<NonZeroU64, String> {
    let n: u64 = text.parse().map_err(|_| format!("\"{text}\" is not a number from 1 up"))?;
    NonZeroU64::new(n).ok_or_else(|| {
        "0 connections would be over at once; name 1 or more, or leave it out".to_owned()
    })
}

/// A time to live, or hop limit.
///
/// # Errors
///
/// One line that says how to write it.
pub(crate) fn parse_hop_limit(text: &str) -> Result<NonZeroU8, String> {
    text.parse().map_err(|_| format!("\"{text}\" is not a number from 1 to 255"))
}

/// A Differentiated Services code point.
///
/// # Errors
///
/// One line that says how to write it.
pub(crate) fn parse_dscp(text: &str) -> Result<Dscp, String> {
    let number = text.parse().ok().and_then(Dscp::new);
    number.ok_or_else(|| format!("\"{text}\" is not a number from 0 to 63"))
}

/// Whether checksums are used.
///
/// # Errors
///
/// One line that says how to write it.
pub(crate) fn parse_checksums(text: &str) -> Result<Checksums, String> {
    match text {
        "auto" => Ok(Checksums::Accept),
        "on" => Ok(Checksums::Require),
        "off" => Ok(Checksums::Refuse),
        _ => Err(format!("\"{text}\" is none of auto, on, off")),
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches};

    use super::*;
    use crate::failure::Kind;

    fn only(arguments: &[&str]) -> Result<RecvSettings, Failure> {
        let command = mpxdp_cli::usage::with_negative_values(Cli::command());
        let matches = command.try_get_matches_from(["mpxdp", "recv"].iter().chain(arguments));
        let cli = matches
            .and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches))
            .map_err(|e| Failure::usage(mpxdp_cli::usage::wrong("mpxdp", &e)))?;
        let Command::Recv(args) = cli.command;
        args.settle()
    }

    fn recv(arguments: &[&str]) -> Result<RecvSettings, Failure> {
        only(&[&["--nic", "eth0", "--listen", "10.0.0.2:5000"], arguments].concat())
    }

    #[test]
    fn clap_finds_no_fault_in_the_definition() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_shortest_command_has_the_documented_defaults() {
        let args = recv(&[]).unwrap();
        assert_eq!(args.nics, [NicConfig::new("eth0")]);
        assert_eq!(args.listen, "10.0.0.2:5000".parse().unwrap());
        assert_eq!(args.announce(), mpxdp::Announce::Auto);
        assert_eq!(args.checksums, Checksums::Accept);
        assert_eq!(args.output, OutputSpec::Null);
        assert_eq!(args.limit(), None);
        assert_eq!(args.mode, None);
        assert_eq!(args.placement, Placement::default());
        assert_eq!((args.hop_limit, args.dscp), (None, Dscp::default()));
        assert_eq!(args.report, None);
    }

    #[test]
    fn everything_can_be_given() {
        let args = recv(&[
            "--nic=eth1:queues=0-3:cpus=1",
            "--announce=none",
            "--output=in/",
            "--connections=7",
            "--mode=copy",
            "--placement=worker=1 reader=0",
            "--checksums=on",
            "--hop-limit=255",
            "--dscp=46",
            "--report=-",
        ])
        .unwrap();
        assert_eq!((args.hop_limit, args.dscp.get()), (Some(NonZeroU8::MAX), 46));
        assert_eq!(args.nics[1], NicConfig::new("eth1").queues(0..=3).cpus([1]));
        assert_eq!(args.announce(), mpxdp::Announce::None);
        assert_eq!(args.checksums, Checksums::Require);
        assert_eq!(args.output, OutputSpec::Directory("in/".into()));
        assert_eq!(args.limit(), Some(7));
        assert_eq!(args.mode, Some(Mode::Copy));
        assert_eq!(args.placement.reader.as_slice(), [0]);
        assert_eq!(args.report, Some(ReportSpec::Stdout));
    }

    #[test]
    fn addresses_to_announce_are_a_list() {
        assert_eq!(recv(&[]).unwrap().announce(), mpxdp::Announce::Auto);
        assert_eq!(recv(&["--announce", "none"]).unwrap().announce(), mpxdp::Announce::None);
        let list = mpxdp::Announce::Addresses(vec![
            ("10.1.0.2".parse().unwrap(), None),
            ("fd00::2".parse().unwrap(), Some(5001)),
        ]);
        for arguments in [
            &["--announce", "10.1.0.2,[fd00::2]:5001"][..],
            &["--announce", "10.1.0.2", "[fd00::2]:5001"],
            &["--announce", "10.1.0.2", "--announce", "[fd00::2]:5001"],
        ] {
            assert_eq!(recv(arguments).unwrap().announce(), list, "{arguments:?}");
        }
    }

    #[test]
    fn a_file_takes_one_connection_and_a_directory_takes_all() {
        assert_eq!(recv(&["--output", "f"]).unwrap().limit(), Some(1));
        assert_eq!(recv(&["--output", "-"]).unwrap().limit(), Some(1));
        assert_eq!(recv(&["--output", "d/"]).unwrap().limit(), None);
        assert_eq!(recv(&["--output", "null", "--connections", "2"]).unwrap().limit(), Some(2));
    }

    #[test]
    fn wrong_usage_is_one_line_that_names_the_argument() {
        for (arguments, named) in [
            (&["--mode", "fast"][..], "fast"),
            (&["--connections", "0"], "name 1 or more"),
            (&["--checksums", "maybe"], "auto, on, off"),
            (&["--hop-limit", "0"], "1 to 255"),
            (&["--hop-limit", "256"], "1 to 255"),
            (&["--dscp", "64"], "0 to 63"),
            (&["--dscp", "EF"], "0 to 63"),
            (&["--connections", "-3"], "-3"),
            (&["--placement", "worker=x"], "x"),
            (&["--placement", ""], "the placement is empty"),
            (&["--hop-limit", "-1"], "--hop-limit -1: "),
            (&["--dscp", "-1"], "0 to 63"),
            (&["--listen", "10.0.0.3:1"], "--listen"),
            (&["--nic", "eth1:queue=1"], "queue=1"),
            (&["--nic", "eth0:queues=1"], "eth0"),
            (&["--announce", "auto", "10.1.0.2:5000"], "stand alone"),
            (&["--announce", "auto,none"], "stand alone"),
            (&["--announce", "both"], "both"),
            (&["--output", "f", "--connections", "2"], "file for each"),
            (&["--output", "-", "--report", "-"], "standard output"),
            (&["--output", "./same-new-file", "--report", "./same-new-file"], "different files"),
            (&["--output", "same-new-file", "--report", "./same-new-file"], "different files"),
            (&["--output", "new-file", "--report", "new-file.part"], "different files"),
            (&["--output", "new-file.part", "--report", "new-file"], "different files"),
            (&["--output", ""], "--output"),
            (&["--frobnicate"], "--frobnicate"),
            (&["stray"], "stray"),
        ] {
            let failure = recv(arguments).map(|_| ()).expect_err(&format!("{arguments:?}"));
            let text = failure.to_string();
            assert_eq!(failure.kind(), Kind::Usage, "{text}");
            assert!(text.contains(named), "{arguments:?}: {text}");
            assert_eq!(text.lines().count(), 1, "{text}");
        }
    }

    #[test]
    fn a_file_gives_what_the_command_line_does_not() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("recv.toml");
        let text = "nic = [\"eth0:cpus=1\", \"eth1\"]\nlisten = \"10.0.0.2:5000\"\n\
                    announce = \"none\"\nmode = \"copy\"\nplacement = \"worker=1\"\n\
                    checksums = \"on\"\nhop_limit = 9\ndscp = 8\nconnections = 2\n\
                    output = \"in/\"\nreport = \"-\"\n";
        std::fs::write(&path, text).unwrap();
        let config = ["--config", path.to_str().unwrap()];
        let args = only(&config).unwrap();
        assert_eq!(args.nics, [NicConfig::new("eth0").cpus([1]), NicConfig::new("eth1")]);
        assert_eq!(args.listen, "10.0.0.2:5000".parse().unwrap());
        assert_eq!(args.announce(), mpxdp::Announce::None);
        assert_eq!((args.mode, args.checksums), (Some(Mode::Copy), Checksums::Require));
        assert_eq!(args.placement.to_string(), "worker=1");
        assert_eq!((args.hop_limit, args.dscp.get()), (NonZeroU8::new(9), 8));
        assert_eq!((args.limit(), args.output.to_string()), (Some(2), "in/".to_owned()));
        assert_eq!(args.report, Some(ReportSpec::Stdout));

        let more = ["--nic=eth2", "--listen=[::]:1", "--announce=auto", "--mode=skb"];
        let rest = ["--placement=auto", "--checksums=off", "--connections=3", "--output=null"];
        let ip = ["--hop-limit=1", "--dscp=0"];
        let args = only(&[&config[..], &more, &rest, &ip, &["--report=r"]].concat()).unwrap();
        assert_eq!((args.hop_limit, args.dscp.get()), (NonZeroU8::new(1), 0));
        assert_eq!(args.nics, [NicConfig::new("eth2")], "a list takes the place of the other");
        assert_eq!(args.listen, "[::]:1".parse().unwrap());
        assert_eq!(args.announce(), mpxdp::Announce::Auto);
        assert_eq!((args.mode, args.checksums), (Some(Mode::Skb), Checksums::Refuse));
        assert_eq!(args.placement, Placement::default());
        assert_eq!((args.limit(), args.output), (Some(3), OutputSpec::Null));
        assert_eq!(args.report, Some(ReportSpec::File("r".into())));
    }

    #[test]
    fn what_neither_a_file_nor_the_command_line_gives_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("recv.toml");
        std::fs::write(&path, "placement = \"auto\"\n").unwrap();
        let config = ["--config", path.to_str().unwrap()];
        for (more, named) in [(&[][..], "--nic"), (&["--nic", "eth0"], "--listen")] {
            let failure = only(&[&config, more].concat()).unwrap_err();
            assert_eq!(failure.kind(), Kind::Usage);
            let text = failure.to_string();
            assert!(text.contains(named) && text.contains("recv.toml"), "{text}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = Cli::try_parse_from(["mpxdp", "recv", "--listen", "[::]:1"]).unwrap_err();
        let text = mpxdp_cli::usage::wrong("mpxdp", &error);
        assert!(text.contains("--nic"), "{text}");
        assert!(!text.contains('\n'), "{text}");
    }
}
