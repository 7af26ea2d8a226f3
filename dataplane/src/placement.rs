//! Where threads run: which CPUs the workers, the reader and the NIC's processing are given.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// A list of CPUs in the kernel's notation, e.g. `0-3,8`. Empty means: no wish.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CpuList(Vec<usize>);

impl CpuList {
    /// The CPUs, in the order that they were named.
    #[must_use]
    pub fn as_slice(&self) -> &[usize] {
        &self.0
    }

    /// Whether no CPU is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The CPUs that the calling thread may run on.
    ///
    /// # Errors
    ///
    /// What `sched_getaffinity` says.
    pub fn allowed() -> Result<Self> {
        let set = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0))
            .map_err(|e| Error::io("reading the CPUs that this process may use", e.into()))?;
        let all = 0..nix::sched::CpuSet::count();
        Ok(Self(all.filter(|&cpu| set.is_set(cpu).unwrap_or(false)).collect()))
    }

    /// The first of these CPUs that no thread of this process can be pinned to; none if all can be
    /// used.
    ///
    /// That is not what [`allowed`](Self::allowed) says: the kernel leaves CPUs that `isolcpus`
    /// isolates out of every process's affinity, and a thread may be pinned to them all the same. So
    /// it is tried, on a thread of its own.
    ///
    /// # Errors
    ///
    /// What `sched_getaffinity` says.
    pub fn first_unusable(&self) -> Result<Option<usize>> {
        let allowed = Self::allowed()?;
        let usable = |&cpu: &usize| {
            let pin = move || Self(vec![cpu]).pin_this_thread().is_ok();
            allowed.0.contains(&cpu)
                || std::thread::Builder::new()
                    .spawn(pin)
                    .is_ok_and(|thread| thread.join().unwrap_or(false))
        };
        Ok(self.0.iter().copied().find(|cpu| !usable(cpu)))
    }

    /// Lets the calling thread run on these CPUs only; an empty list changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`] if one of them does not exist or may not be used.
    pub fn pin_this_thread(&self) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let refused = || {
            Error::Configuration(format!(
                "CPU {self}: does not exist or may not be used by this process"
            ))
        };
        let mut set = nix::sched::CpuSet::new();
        for &cpu in &self.0 {
            set.set(cpu).map_err(|_| refused())?;
        }
        nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set).map_err(|_| refused())
    }
}

impl FromIterator<usize> for CpuList {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, cpu) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_str(",")?;
            }
            write!(f, "{cpu}")?;
        }
        Ok(())
    }
}

impl FromStr for CpuList {
    type Err = Error;

    /// Reads `0-3,8`; a `+` may stand for the comma where that has another meaning.
    fn from_str(text: &str) -> Result<Self> {
        parse_numbers(text).map(Self).map_err(|reason| {
            Error::Configuration(format!("CPUs \"{text}\": {reason}; write them like 0-3,8"))
        })
    }
}

/// Reads `0-3,8` or `0-3+8` into the numbers.
///
/// # Errors
///
/// What is wrong, in a few words.
pub(crate) fn parse_numbers(text: &str) -> std::result::Result<Vec<usize>, String> {
    // No machine has more CPUs or queues; it bounds what a typing error can ask for.
    const MOST: usize = 8192;
    let number = |text: &str| match text.parse() {
        Ok(n) if n < MOST => Ok(n),
        Ok(n) => Err(format!("{n} is more than {}, the highest there can be", MOST - 1)),
        Err(_) => Err("it is not a list of numbers".to_owned()),
    };
    let mut numbers = Vec::new();
    for part in text.split([',', '+']) {
        match part.split_once('-') {
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                if first > last {
                    return Err(format!("{first} to {last} is no range"));
                }
                numbers.extend(first..=last);
            }
            None => numbers.push(number(part)?),
        }
    }
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("{} is named twice", pair[0])),
        None => Ok(numbers),
    }
}

/// Which CPUs the parts of the receive path run on.
///
/// Its text form is `auto`, or `KEY=CPUS` parts separated by spaces, semicolons or slashes with
/// the keys `napi`, `worker` and `reader`, e.g. `napi=0 worker=1 reader=1`. As many workers are
/// made as `worker` names CPUs.
///
/// ```
/// let placement: mpxdp::Placement = "napi=0 worker=2-3 reader=1".parse()?;
/// assert_eq!(placement.workers.as_slice(), [2, 3]);
/// assert_eq!(placement.to_string(), "napi=0 worker=2,3 reader=1");
/// # Ok::<(), mpxdp::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Placement {
    /// Where the NIC's processing is to run. The engine does not touch it: it is host set-up,
    /// for `mpxdp doctor` and the lab to carry out.
    pub napi: CpuList,
    /// The workers' CPUs, one each. Empty: the engine chooses.
    pub workers: CpuList,
    /// The reader's CPUs: for the application to carry out by [`CpuList::pin_this_thread`].
    pub reader: CpuList,
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (key, cpus) in
            [("napi", &self.napi), ("worker", &self.workers), ("reader", &self.reader)]
        {
            if !cpus.is_empty() {
                write!(f, "{separator}{key}={cpus}")?;
                separator = " ";
            }
        }
        if separator.is_empty() { f.write_str("auto") } else { Ok(()) }
    }
}

impl FromStr for Placement {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut placement = Self::default();
        if text.trim() == "auto" {
            return Ok(placement);
        }
        let parts = || text.split([' ', ';', '/']).filter(|part| !part.is_empty());
        if parts().next().is_none() {
            // What a script that lacks a variable writes is no wish for any place.
            return Err(Error::Configuration(
                "the placement is empty; write it like \"napi=0 worker=1 reader=1\", or auto"
                    .into(),
            ));
        }
        for part in parts() {
            let (key, cpus) = part.split_once('=').unwrap_or((part, ""));
            let place = match key {
                "napi" => &mut placement.napi,
                "worker" => &mut placement.workers,
                "reader" => &mut placement.reader,
                _ => {
                    return Err(Error::Configuration(format!(
                        "\"{part}\" is not a placement; write it like \
                         \"napi=0 worker=1 reader=1\", or auto"
                    )));
                }
            };
            if !place.is_empty() {
                return Err(Error::Configuration(format!(
                    "\"{text}\": {key} is there twice; name all its CPUs in one list like {key}=1,2"
                )));
            }
            *place = cpus.parse()?;
        }
        Ok(placement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_read_ranges_and_both_separators() {
        assert_eq!("0-2,7".parse::<CpuList>().unwrap().as_slice(), [0, 1, 2, 7]);
        assert_eq!("3+1".parse::<CpuList>().unwrap().as_slice(), [3, 1]);
    }

    #[test]
    fn cpu_lists_refuse_what_is_no_list() {
        for text in ["", "a", "2-1", "1,1", "0-2,1", "-1", "1,", "99999", "0-99999999"] {
            assert!(text.parse::<CpuList>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_list_is_told() {
        for (text, words) in [
            ("9999", "9999 is more than 8191"),
            ("1,a", "not a list of numbers"),
            ("0-2,1", "1 is named twice"),
            ("3-2", "3 to 2"),
        ] {
            let error = text.parse::<CpuList>().unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("0-3,8"), "{error}");
        }
    }

    #[test]
    fn a_placement_reads_its_own_text() {
        for text in ["auto", "napi=0 worker=1 reader=1", "worker=1,2", "reader=0"] {
            assert_eq!(text.parse::<Placement>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_placement_refuses_unknown_keys_repeated_ones_and_empty_lists() {
        for text in ["wrker=1", "worker", "worker=", "1", "worker=1 worker=2", "", " ", ";"] {
            assert!(text.parse::<Placement>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_cpu_outside_the_affinity_is_usable_if_it_can_be_pinned_to() {
        let all = CpuList::allowed().unwrap();
        assert_eq!(all.first_unusable().unwrap(), None);
        assert_eq!(CpuList(vec![8000]).first_unusable().unwrap(), Some(8000));
        // As a process is that was started beside isolated CPUs: they are not in its affinity.
        let first = CpuList(vec![all.0[0]]);
        let narrow = std::thread::spawn(move || {
            first.pin_this_thread().unwrap();
            assert_eq!(CpuList::allowed().unwrap(), first);
            all.first_unusable().unwrap()
        });
        assert_eq!(narrow.join().unwrap(), None);
    }

    #[test]
    fn pinning_to_a_cpu_that_does_not_exist_is_an_error() {
        assert!(CpuList(vec![1000]).pin_this_thread().is_err());
    }
}
