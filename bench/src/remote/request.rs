//! What the sender is asked for.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use crate::traffic::pattern::LARGEST;
use crate::traffic::sender::{Content, Options};
use crate::traffic::socket::Protocol;
use crate::trial::MAX_SUBFLOWS;

/// How long a receiver may take to confirm the last byte and close.
const PATIENCE: Duration = Duration::from_secs(15);

/// A job for the sender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// What to speak.
    pub protocol: Protocol,
    /// Where to connect.
    pub to: SocketAddr,
    /// Seconds to send after the warm-up, up to 3600.
    pub seconds: f64,
    /// Seconds of the warm-up, up to 60.
    pub warmup: f64,
    /// Subflows that the connection must have, from 1 to [`MAX_SUBFLOWS`].
    pub subflows: u32,
}

impl Request {
    /// What the sender does then.
    pub(super) fn options(&self) -> Options {
        Options {
            protocol: self.protocol,
            connect: self.to,
            content: Content::Time(Duration::from_secs_f64(self.seconds)),
            write_size: LARGEST,
            connections: 1,
            parallel: 1,
            retry: Duration::ZERO,
            patience: PATIENCE,
            rate: None,
            reset: false,
            hash: false,
            subflows: self.subflows,
            warmup: Some(Duration::from_secs_f64(self.warmup)),
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { protocol, to, seconds, warmup, subflows } = self;
        let protocol = match protocol {
            Protocol::Mptcp => "mptcp",
            Protocol::Tcp => "tcp",
        };
        write!(
            f,
            "send protocol={protocol} to={to} seconds={seconds} warmup={warmup} subflows={subflows}"
        )
    }
}

impl FromStr for Request {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("send") => {}
            Some(word) => return Err(format!("{word:?} is no command; send is")),
            None => return Err("an empty line is no command; send is".into()),
        }
        let (mut protocol, mut to, mut seconds, mut warmup, mut subflows) =
            (None, None, None, None, None);
        for word in words {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("{word:?} has no ="))?;
            let bad = |what: &str| format!("{key}={value}: {what}");
            let time = |most: f64| match value.parse::<f64>() {
                Ok(seconds) if (0.0..=most).contains(&seconds) => Ok(seconds),
                _ => Err(bad(&format!("from 0 to {most}"))),
            };
            match key {
                "protocol" => {
                    protocol = Some(match value {
                        "mptcp" => Protocol::Mptcp,
                        "tcp" => Protocol::Tcp,
                        _ => return Err(bad("mptcp or tcp")),
                    });
                }
                "to" => to = Some(value.parse().map_err(|_| bad("not an address and port"))?),
                "seconds" => seconds = Some(time(3600.0)?),
                "warmup" => warmup = Some(time(60.0)?),
                "subflows" => {
                    let number = value.parse().ok().filter(|n| (1..=MAX_SUBFLOWS).contains(n));
                    subflows = Some(number.ok_or_else(|| bad("from 1 to 8"))?);
                }
                _ => return Err(format!("{key:?} is unknown")),
            }
        }
        let missing = |key: &str| format!("{key}= is missing");
        Ok(Self {
            protocol: protocol.ok_or_else(|| missing("protocol"))?,
            to: to.ok_or_else(|| missing("to"))?,
            seconds: seconds.ok_or_else(|| missing("seconds"))?,
            warmup: warmup.ok_or_else(|| missing("warmup"))?,
            subflows: subflows.ok_or_else(|| missing("subflows"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_reads_its_own_text() {
        for (to, protocol) in [("192.0.2.1:5000", Protocol::Mptcp), ("[fd00::1]:1", Protocol::Tcp)]
        {
            let to = to.parse().expect("an address");
            let request = Request { protocol, to, seconds: 2.5, warmup: 0.0, subflows: 8 };
            assert_eq!(request.to_string().parse(), Ok(request));
        }
    }

    #[test]
    fn whatever_is_wrong_is_named() {
        let good = "protocol=tcp to=192.0.2.1:5 seconds=1 warmup=1 subflows=1";
        assert!(format!("send {good}").parse::<Request>().is_ok());
        for (line, named) in [
            ("", "empty"),
            ("receive", "receive"),
            ("send", "protocol= is missing"),
            ("send protocol=udp", "protocol=udp"),
            ("send to=here", "to=here"),
            ("send seconds=-1", "seconds=-1"),
            ("send seconds=nan", "seconds=nan"),
            ("send seconds=3601", "3600"),
            ("send warmup=61", "60"),
            ("send subflows=0", "subflows=0"),
            ("send subflows=9", "subflows=9"),
            ("send x=1", "\"x\""),
            ("send x", "no ="),
        ] {
            let error = line.parse::<Request>().expect_err(line);
            assert!(error.contains(named), "{line}: {error}");
        }
    }
}
