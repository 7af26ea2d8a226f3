//! Which results stand in one plot: those that differ in the receiver alone, and what is best told
//! apart beside it.

use crate::document::Row;
pub(super) use crate::text::count;

/// Results with the same conditions.
#[derive(Debug)]
pub(super) struct Group<'a> {
    /// The conditions in words.
    pub(super) title: String,
    /// In the order of the document.
    pub(super) rows: Vec<&'a Row>,
}

/// Groups results by what `title` says of them, in the order of first appearance.
pub(super) fn group<'a>(rows: &[&'a Row], title: impl Fn(&Row) -> String) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for &row in rows {
        let title = title(row);
        match groups.iter_mut().find(|group| group.title == title) {
            Some(group) => group.rows.push(row),
            None => groups.push(Group { title, rows: vec![row] }),
        }
    }
    groups
}

/// The conditions of a transfer.
pub(super) fn conditions(row: &Row) -> String {
    format!("MTU {}, {}, {}", row.mtu, count(row.subflows, "subflow"), count(row.links, "link"))
}

/// Receivers that have a colour of their own, in its order.
const KNOWN: [&str; 5] =
    ["mpxdp", "kernel-mptcp-xdp", "kernel-mptcp", "kernel-tcp-xdp", "kernel-tcp"];

/// The number of a receiver's series: the same on every plot.
pub(super) fn series(receiver: &str) -> usize {
    KNOWN.iter().position(|known| *known == receiver).unwrap_or_else(|| {
        let name = receiver.bytes().fold(0, |sum, byte| sum + usize::from(byte));
        KNOWN.len() + name % (super::theme::SERIES - KNOWN.len())
    })
}

/// What a result is called among those of its group.
pub(super) fn label(row: &Row, group: &Group<'_>) -> String {
    let same = group.rows.iter().filter(|other| other.receiver == row.receiver);
    if same.count() > 1 {
        format!("{} ({})", row.receiver, row.placement)
    } else {
        row.receiver.clone()
    }
}

/// The receivers of some results, each once, with its series.
pub(super) fn receivers<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<(usize, String)> {
    let mut names: Vec<(usize, String)> = Vec::new();
    for row in rows {
        let entry = (series(&row.receiver), row.receiver.clone());
        if !names.contains(&entry) {
            names.push(entry);
        }
    }
    names
}
