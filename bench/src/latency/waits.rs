//! Who may spin: only a thread that no other one needs the CPU of.

use super::Reading;
use crate::trial::{Place, Receiver};

/// The place to measure at without being told: everything of the receiver away from the sender, and
/// each thread on a CPU of its own, as far as there are CPUs. None if there is none.
#[must_use]
pub fn place_by_default(receiver: Receiver, cpus: &[usize]) -> Option<Place> {
    let (sender, worker, reader) = match *cpus {
        [] => return None,
        [only] => (only, only, only),
        [sender, other] => (sender, other, other),
        [sender, first, second, ..] => (sender, first, second),
    };
    // The kernel's receivers have no worker, and their reader needs no CPU beyond the second.
    let reader = if receiver == Receiver::Mpxdp { reader } else { worker };
    let workers = [worker].into_iter().collect();
    Some(Place { sender, napi: None, workers, reader }.of(receiver))
}

/// Whether the reading thread is not alone on its CPU.
#[must_use]
pub fn reader_shares(place: &Place) -> bool {
    place.reader == place.sender
        || place.workers.as_slice().contains(&place.reader)
        || place.napi_of(0) == Some(place.reader)
}

/// How mpxdp's worker waits: as the reader, unless another thread needs its CPU. None without a
/// worker.
#[must_use]
pub fn worker(place: &Place, reading: Reading) -> Option<Reading> {
    let &cpu = place.workers.as_slice().first()?;
    let shares = cpu == place.reader || cpu == place.sender || place.napi_of(0) == Some(cpu);
    Some(if reading == Reading::Spin && !shares { Reading::Spin } else { Reading::Sleep })
}

/// How the sender waits for the next message's moment: by spinning, unless another thread needs its
/// CPU.
#[must_use]
pub fn sender(place: &Place) -> Reading {
    let cpu = place.sender;
    let shares = place.reader == cpu
        || place.workers.as_slice().contains(&cpu)
        || place.napi_of(0) == Some(cpu);
    if shares { Reading::Sleep } else { Reading::Spin }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(receiver: Receiver, cpus: &[usize]) -> Place {
        place_by_default(receiver, cpus).expect("there are CPUs")
    }

    #[test]
    fn threads_have_cpus_of_their_own_where_there_are_enough() {
        let four = place(Receiver::Mpxdp, &[4, 5, 6, 7]);
        assert_eq!(four.to_string(), "napi=sender worker=5 reader=6");
        assert!(!reader_shares(&four));
        assert_eq!(worker(&four, Reading::Spin), Some(Reading::Spin));
        assert_eq!(worker(&four, Reading::Sleep), Some(Reading::Sleep));
        assert_eq!(sender(&four), Reading::Spin);
        let kernel = place(Receiver::KernelTcp, &[4, 5, 6]);
        assert_eq!(kernel.to_string(), "napi=sender reader=5");
        assert_eq!(worker(&kernel, Reading::Spin), None);
    }

    #[test]
    fn who_shares_a_cpu_does_not_keep_it() {
        // Worker and reader on one CPU: the reader looks and yields, and the worker sleeps.
        let two = place(Receiver::Mpxdp, &[0, 1]);
        assert!(reader_shares(&two));
        assert_eq!(worker(&two, Reading::Spin), Some(Reading::Sleep));
        assert_eq!(sender(&two), Reading::Spin);
        assert!(!reader_shares(&place(Receiver::KernelTcp, &[0, 1])));
        let one = place(Receiver::KernelTcp, &[3]);
        assert!(reader_shares(&one));
        assert_eq!(sender(&one), Reading::Sleep);
        let beside_napi = Place::parse("napi=0 reader=1", &[0, 1]).expect("a placement");
        assert_eq!(sender(&beside_napi), Reading::Sleep);
        assert!(place_by_default(Receiver::Mpxdp, &[]).is_none());
    }
}
