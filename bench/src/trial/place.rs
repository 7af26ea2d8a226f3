//! Where the parts of a receiver run.

use std::fmt;

use mpxdp::CpuList;

use super::Receiver;
use crate::error::{Error, Result};

/// Where the parts of a receiver run.
///
/// Its text form is that of `--placement`: `napi=sender worker=1 reader=1` for instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The CPU that the sender is pinned to.
    pub sender: usize,
    /// The CPUs of the NICs' receive processing, in threads of its own, one after the other for each
    /// link; none: in the sender's context, as veth does by itself.
    pub napi: Option<CpuList>,
    /// The CPUs of mpxdp's workers, one each; none for a receiver in the kernel, which has none.
    pub workers: CpuList,
    /// The CPU of the reading thread.
    pub reader: usize,
}

impl Place {
    /// Reads a text of parts `KEY=CPUS` separated by spaces, semicolons or slashes: `sender` and
    /// `reader` are a CPU, `worker` is a list, `napi` is a list or the word `sender`. Where they are
    /// left out, the sender has the first of `cpus`, the NIC's processing is in its context, and
    /// worker and reader share a CPU.
    ///
    /// # Errors
    ///
    /// If it is anything else, or names a CPU that is not among `cpus`: wrong usage.
    pub fn parse(text: &str, cpus: &[usize]) -> Result<Self> {
        let refuse = |why: &str| {
            Error::Usage(format!(
                "--placement {text:?}: {why}; write it like \"napi=sender worker=1 reader=1\""
            ))
        };
        let (mut sender, mut napi, mut workers, mut reader) = (None, None, None, None);
        let mut keys = Vec::new();
        for part in text.split([' ', ';', '/']).filter(|part| !part.is_empty()) {
            let (key, value) =
                part.split_once('=').ok_or_else(|| refuse(&format!("{part:?} has no =")))?;
            if keys.contains(&key) {
                return Err(refuse(&format!("{key} is there twice")));
            }
            keys.push(key);
            let place = match key {
                "sender" => &mut sender,
                "napi" if value == "sender" => {
                    napi = None;
                    continue;
                }
                "napi" => &mut napi,
                "worker" => &mut workers,
                "reader" => &mut reader,
                _ => return Err(refuse(&format!("{key:?} is unknown"))),
            };
            let list: CpuList =
                value.parse().map_err(|_| refuse(&format!("{value:?} is no list of CPUs")))?;
            if let Some(cpu) = list.as_slice().iter().find(|cpu| !cpus.contains(cpu)) {
                return Err(refuse(&format!("there is no CPU {cpu} to use")));
            }
            *place = Some(list);
        }
        let one = |list: Option<CpuList>, key: &str| match list.as_ref().map(CpuList::as_slice) {
            None => Ok(None),
            Some(&[cpu]) => Ok(Some(cpu)),
            Some(_) => Err(refuse(&format!("{key} has one CPU"))),
        };
        let sender = one(sender, "sender")?.or_else(|| cpus.first().copied());
        let first_worker = workers.as_ref().and_then(|list| list.as_slice().first().copied());
        let reader = one(reader, "reader")?
            .or(first_worker)
            .ok_or_else(|| refuse("neither worker nor reader is there"))?;
        Ok(Self {
            sender: sender.ok_or_else(|| refuse("there is no CPU to use"))?,
            napi,
            workers: workers.unwrap_or_else(|| CpuList::from_iter([reader])),
            reader,
        })
    }

    /// The same place as a receiver has it: one in the kernel has no worker.
    #[must_use]
    pub fn of(&self, receiver: Receiver) -> Self {
        let mut place = self.clone();
        if receiver != Receiver::Mpxdp {
            place.workers = CpuList::default();
        }
        place
    }

    /// The CPU of a link's receive processing; none: the sender's context.
    #[must_use]
    pub fn napi_of(&self, link: u32) -> Option<usize> {
        let cpus = self.napi.as_ref()?.as_slice();
        cpus.get(link as usize % cpus.len().max(1)).copied()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.napi {
            Some(cpus) => write!(f, "napi={cpus}")?,
            None => f.write_str("napi=sender")?,
        }
        if !self.workers.is_empty() {
            write!(f, " worker={}", self.workers)?;
        }
        write!(f, " reader={}", self.reader)
    }
}

/// The placements worth trying for a receiver on these CPUs. The sender has the first one; with
/// several, nothing of the receiver but the NIC's processing runs there, which would only measure
/// how the scheduler shares it out.
#[must_use]
pub fn places(receiver: Receiver, cpus: &[usize]) -> Vec<Place> {
    let Some((&sender, others)) = cpus.split_first() else { return Vec::new() };
    let place = |napi: Option<usize>, worker: usize, reader| {
        let napi = napi.map(|cpu| CpuList::from_iter([cpu]));
        Place { sender, napi, workers: CpuList::from_iter([worker]), reader }.of(receiver)
    };
    match *others {
        [] => vec![place(None, sender, sender)],
        [a] => vec![place(None, a, a), place(Some(a), a, a)],
        [a, b, ..] => {
            let mut all = vec![place(None, a, a), place(Some(a), a, a), place(Some(b), a, a)];
            if receiver == Receiver::Mpxdp {
                all.push(place(None, a, b));
                if let Some(&c) = others.get(2) {
                    all.push(place(Some(b), a, c));
                }
            }
            all
        }
    }
}

/// The order of a round: each starts with another item, so that none always comes first.
#[must_use]
pub fn order<T: Clone>(items: &[T], round: usize) -> Vec<T> {
    let mut items = items.to_vec();
    if !items.is_empty() {
        let by = round % items.len();
        items.rotate_left(by);
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sender_keeps_its_cpu_where_there_are_others() {
        for count in 2..6 {
            let cpus: Vec<usize> = (3..3 + count).collect();
            for receiver in Receiver::ALL {
                let places = places(receiver, &cpus);
                assert!(places.len() >= 2);
                for (n, place) in places.iter().enumerate() {
                    assert_eq!(place.sender, 3);
                    assert_ne!(place.reader, 3);
                    assert!(!place.workers.as_slice().contains(&3));
                    assert_eq!(!place.workers.is_empty(), receiver == Receiver::Mpxdp);
                    assert!(!places[..n].contains(place), "{place} twice");
                }
            }
        }
        assert_eq!(places(Receiver::KernelTcp, &[7]).len(), 1);
    }

    #[test]
    fn placements_are_written_as_the_command_line_has_them() {
        let [first, second] = &places(Receiver::Mpxdp, &[0, 1])[..] else { panic!("two") };
        assert_eq!(first.to_string(), "napi=sender worker=1 reader=1");
        assert_eq!(second.to_string(), "napi=1 worker=1 reader=1");
        assert_eq!(places(Receiver::KernelTcp, &[0, 1])[0].to_string(), "napi=sender reader=1");
    }

    #[test]
    fn placements_read_their_own_text() {
        let cpus = [0, 1, 2, 3];
        for text in ["napi=sender worker=1 reader=1", "napi=2,3 worker=1,2 reader=3"] {
            assert_eq!(Place::parse(text, &cpus).expect("a placement").to_string(), text);
        }
        let place = Place::parse("worker=2/sender=1", &cpus).expect("a placement");
        assert_eq!((place.sender, place.reader, &place.napi), (1, 2, &None));
        let place = Place::parse("napi=0;reader=3", &cpus).expect("a placement");
        assert_eq!(place.workers.as_slice(), [3]);
        let kernel = place.of(Receiver::KernelTcp);
        assert_eq!(kernel.to_string(), "napi=0 reader=3");
    }

    #[test]
    fn what_is_no_placement_is_wrong_usage() {
        for (text, named) in [
            ("", "neither"),
            ("napi=0", "neither"),
            ("worker", "no ="),
            ("worker=x", "\"x\""),
            ("wrk=1", "\"wrk\""),
            ("reader=0,1", "one CPU"),
            ("worker=0 worker=1", "worker is there twice"),
            ("napi=sender napi=1 worker=1", "napi is there twice"),
            ("worker=1 reader=9", "no CPU 9"),
        ] {
            let error = Place::parse(text, &[0, 1]).expect_err(text);
            assert!(matches!(error, Error::Usage(_)), "{error}");
            assert!(error.to_string().contains(named), "{text}: {error}");
        }
    }

    #[test]
    fn links_share_the_cpus_for_their_processing() {
        let place = Place::parse("napi=2,3 worker=1", &[0, 1, 2, 3]).expect("a placement");
        assert_eq!([0, 1, 2].map(|link| place.napi_of(link)), [Some(2), Some(3), Some(2)]);
        let place = Place::parse("worker=1", &[0, 1]).expect("a placement");
        assert_eq!(place.napi_of(0), None);
    }

    #[test]
    fn every_receiver_comes_first_once_in_as_many_rounds() {
        let firsts: std::collections::HashSet<_> =
            (0..5).map(|round| order(&Receiver::ALL, round)[0]).collect();
        assert_eq!(firsts.len(), 5);
        assert!(order::<u8>(&[], 3).is_empty());
    }
}
