//! What a receiver costs beyond its front end.

use crate::document::{AboveFrontEnd, Document, FrontEndRow, Row};
use crate::trial::{FrontEnd, Receiver};

/// A placement without what only mpxdp has, so that places of all receivers compare.
pub(super) fn common(placement: &str) -> String {
    let parts = placement.split(' ').filter(|part| !part.starts_with("worker="));
    parts.collect::<Vec<_>>().join(" ")
}

/// Fills it in, for the rows whose front end was measured at the same place.
pub(super) fn fill(document: &mut Document) {
    for row in &mut document.results {
        row.above_front_end = above(row, &document.front_ends);
    }
}

fn above(row: &Row, front_ends: &[FrontEndRow]) -> Option<AboveFrontEnd> {
    let front_end = front_end_of(&row.receiver)?.name();
    let found = front_ends.iter().find(|one| {
        (one.front_end.as_str(), one.mtu) == (front_end, row.mtu)
            && common(&one.placement) == common(&row.placement)
    })?;
    let per_packet = row.nanoseconds_per_packet?;
    // A second for a gigabyte is a nanosecond for a byte.
    let per_byte = row.cpu_seconds_per_gigabyte?;
    let bytes_per_packet = per_packet / per_byte;
    let of_front_end = found.nanoseconds_per_packet.median;
    Some(AboveFrontEnd {
        front_end: front_end.into(),
        nanoseconds_per_packet: per_packet - of_front_end,
        nanoseconds_per_byte: per_byte - of_front_end / bytes_per_packet,
    })
}

/// What brings packets to a receiver; none for the kernel's without an XDP program.
fn front_end_of(receiver: &str) -> Option<FrontEnd> {
    let receiver = Receiver::ALL.into_iter().find(|one| one.name() == receiver)?;
    match receiver {
        Receiver::Mpxdp => Some(FrontEnd::Recycle),
        Receiver::KernelMptcpXdp | Receiver::KernelTcpXdp => Some(FrontEnd::Drop),
        Receiver::KernelMptcp | Receiver::KernelTcp => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Spread;

    #[test]
    fn each_receiver_is_above_its_own_front_end_at_its_own_place() {
        let row = |receiver: Receiver, placement: &str| Row {
            receiver: receiver.name().into(),
            mtu: 1500,
            placement: placement.into(),
            nanoseconds_per_packet: Some(2000.0),
            cpu_seconds_per_gigabyte: Some(2.0),
            ..Row::default()
        };
        let front_end = |front_end: FrontEnd, cost: f64| FrontEndRow {
            front_end: front_end.name().into(),
            mtu: 1500,
            placement: "napi=1 worker=1 reader=1".into(),
            nanoseconds_per_packet: Spread { median: cost, min: cost, max: cost },
            ..FrontEndRow::default()
        };
        let mut document = Document::new();
        document.front_ends =
            vec![front_end(FrontEnd::Drop, 500.0), front_end(FrontEnd::Recycle, 1500.0)];
        document.results = vec![
            row(Receiver::Mpxdp, "napi=1 worker=1 reader=1"),
            row(Receiver::KernelMptcpXdp, "napi=1 reader=1"),
            row(Receiver::KernelMptcpXdp, "napi=sender reader=1"),
            row(Receiver::KernelMptcp, "napi=1 reader=1"),
        ];
        fill(&mut document);
        let found: Vec<_> = document
            .results
            .iter()
            .map(|row| row.above_front_end.as_ref())
            .map(|above| above.map(|a| (a.nanoseconds_per_packet, a.nanoseconds_per_byte)))
            .collect();
        assert_eq!(found, [Some((500.0, 0.5)), Some((1500.0, 1.5)), None, None]);
    }
}
