//! The file of `mpxdp recv --config`: TOML, whose keys are the names of the options. CONFIG.md tells
//! users about it.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::num::{NonZeroU8, NonZeroU64};
use std::path::Path;
use std::str::FromStr;

use mpxdp::{Checksums, Dscp, Mode, NicConfig, Placement};
use mpxdp_cli::describe;
use serde::de::{Deserializer, Error};
use serde::{Deserialize, de};

use crate::address::{Announce, parse_listen};
use crate::cli::{parse_checksums, parse_connections, parse_dscp, parse_hop_limit};
use crate::failure::Failure;
use crate::output::OutputSpec;
use crate::report::ReportSpec;

/// What the file says, all of which may be missing.
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RecvFile {
    #[serde(deserialize_with = "list")]
    pub(crate) nic: Vec<NicConfig>,
    #[serde(deserialize_with = "listen")]
    pub(crate) listen: Option<SocketAddr>,
    #[serde(deserialize_with = "announce")]
    pub(crate) announce: Vec<Announce>,
    #[serde(deserialize_with = "text")]
    pub(crate) output: Option<OutputSpec>,
    #[serde(deserialize_with = "connections")]
    pub(crate) connections: Option<NonZeroU64>,
    #[serde(deserialize_with = "text")]
    pub(crate) mode: Option<Mode>,
    #[serde(deserialize_with = "text")]
    pub(crate) placement: Option<Placement>,
    #[serde(deserialize_with = "checksums")]
    pub(crate) checksums: Option<Checksums>,
    #[serde(deserialize_with = "hop_limit")]
    pub(crate) hop_limit: Option<NonZeroU8>,
    #[serde(deserialize_with = "dscp")]
    pub(crate) dscp: Option<Dscp>,
    #[serde(deserialize_with = "text")]
    pub(crate) report: Option<ReportSpec>,
}

impl RecvFile {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// A [`Failure`] of usage that names the file, and the line if it is one's fault.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(path).map_err(|e| {
            Failure::usage(format!("--config {}: cannot be read: {}", path.display(), describe(&e)))
        })?;
        Self::parse(&text)
            .map_err(|(line, what)| Failure::usage(format!("{}:{line}: {what}", path.display())))
    }

    /// Reads the text of a file; an error has the number of the line and what is wrong there.
    fn parse(text: &str) -> Result<Self, (usize, String)> {
        toml::from_str(text).map_err(|error: toml::de::Error| {
            let at = error.span().map_or(0, |span| span.start).min(text.len());
            let line = 1 + text.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count();
            (line, error.message().replace('\n', " "))
        })
    }
}

/// A value in the text that the command line takes.
fn text<'de, D: Deserializer<'de>, T>(from: D) -> Result<Option<T>, D::Error>
where
    T: FromStr<Err: fmt::Display>,
{
    String::deserialize(from)?.parse().map(Some).map_err(D::Error::custom)
}

/// One such value, or a list of them.
fn list<'de, D: Deserializer<'de>, T>(from: D) -> Result<Vec<T>, D::Error>
where
    T: FromStr<Err: fmt::Display>,
{
    struct OneOrMore;

    impl<'de> de::Visitor<'de> for OneOrMore {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text or a list of texts")
        }

        fn visit_str<E: Error>(self, one: &str) -> Result<Vec<String>, E> {
            Ok(vec![one.to_owned()])
        }

        fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<String>, A::Error> {
            let mut all = Vec::new();
            while let Some(one) = seq.next_element()? {
                all.push(one);
            }
            Ok(all)
        }
    }

    let texts = from.deserialize_any(OneOrMore)?;
    texts.iter().map(|text| text.parse()).collect::<Result<_, _>>().map_err(D::Error::custom)
}

/// As on the command line, where nothing cannot be named.
fn announce<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Announce>, D::Error> {
    let named: Vec<Announce> = list(from)?;
    if named.is_empty() {
        return Err(D::Error::custom(
            "announce has no address: write \"none\" to announce nothing, or leave it out for \"auto\"",
        ));
    }
    Ok(named)
}

fn listen<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    parse_listen(&String::deserialize(from)?).map(Some).map_err(D::Error::custom)
}

fn checksums<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Checksums>, D::Error> {
    parse_checksums(&String::deserialize(from)?).map(Some).map_err(D::Error::custom)
}

fn hop_limit<'de, D: Deserializer<'de>>(from: D) -> Result<Option<NonZeroU8>, D::Error> {
    parse_hop_limit(&number(from)?).map(Some).map_err(D::Error::custom)
}

fn dscp<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Dscp>, D::Error> {
    parse_dscp(&number(from)?).map(Some).map_err(D::Error::custom)
}

fn connections<'de, D: Deserializer<'de>>(from: D) -> Result<Option<NonZeroU64>, D::Error> {
    parse_connections(&number(from)?).map(Some).map_err(D::Error::custom)
}

/// A number, as the command line has it.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    match toml::Value::deserialize(from)? {
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Float(number) => {
            Err(D::Error::custom(format!("{number:?} is not a whole number")))
        }
        _ => Err(D::Error::custom("it is no number, which is written without quotes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_may_be_a_single_text_and_comments_are_allowed() {
        let file = RecvFile::parse("# ours\nnic = \"eth0\" # one\nannounce = [\"10.1.0.2\"]\n");
        let file = file.unwrap();
        assert_eq!(file.nic, [NicConfig::new("eth0")]);
        assert_eq!(file.announce, [Announce::Address([10, 1, 0, 2].into(), None)]);
        assert_eq!(file.listen, None);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, line, words) in [
            ("nic = \"eth0\"\n\nplacment = \"auto\"\n", 3, &["placment", "placement"][..]),
            ("\n[recv]\nnic = \"eth0\"\n", 2, &["recv"]),
            ("nic = [\"eth0\"\n", 1, &[]),
            ("listen = \"eth0:80\"\n", 1, &["eth0:80", "10.0.0.2:5000"]),
            ("mode = \"copy\"\nmode = \"skb\"\n", 2, &["duplicate"]),
            ("# x\nmode = \"fast\"\n", 2, &["fast", "zerocopy"]),
            ("nic = [\"eth0\", 7]\n", 1, &["7"]),
            ("nic = \"eth0:cpu=1\"\n", 1, &["cpu=1"]),
            ("connections = 0\n", 1, &["name 1 or more"]),
            ("connections = \"2\"\n", 1, &["no number", "without quotes"]),
            ("\nconnections = 1.5\n", 2, &["1.5 is not a whole number"]),
            ("connections = -1\n", 1, &["-1"]),
            ("announce = []\n", 1, &["no address", "none", "auto"]),
            ("hop_limit = 256\n", 1, &["1 to 255"]),
            ("dscp = -1\n", 1, &["0 to 63"]),
            ("dscp = \"46\"\n", 1, &["no number"]),
            ("checksums = true\n", 1, &["string"]),
            ("checksums = \"yes\"\n", 1, &["auto, on, off"]),
            ("placement = \"wrker=1\"\n", 1, &["wrker=1"]),
        ] {
            let (at, what) = RecvFile::parse(text).expect_err(text);
            assert_eq!(at, line, "{text:?}: {what}");
            assert!(!what.contains('\n'), "{what:?}");
            for word in words {
                assert!(what.contains(word), "{text:?}: \"{word}\" is not in: {what}");
            }
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_wrong_usage() {
        let failure = RecvFile::read(Path::new("/nonexistent/recv.toml")).unwrap_err();
        assert_eq!(failure.kind(), crate::failure::Kind::Usage);
        let text = failure.to_string();
        assert!(text.contains("/nonexistent/recv.toml") && text.contains("No such file"), "{text}");
    }
}
