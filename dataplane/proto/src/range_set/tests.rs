use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

/// Values of the model: few, so that ranges meet often.
const SPACE: u64 = 48;

#[derive(Clone, Debug)]
enum Op {
    Insert(Range<u64>),
    TryInsert(Range<u64>, usize),
    Remove(Range<u64>),
    RemoveBefore(u64),
    PopFirst,
}

fn range() -> impl Strategy<Value = Range<u64>> {
    (0..SPACE, 0..12_u64).prop_map(|(start, len)| start..(start + len).min(SPACE))
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => range().prop_map(Op::Insert),
        3 => (range(), 0..6_usize).prop_map(|(r, limit)| Op::TryInsert(r, limit)),
        3 => range().prop_map(Op::Remove),
        1 => (0..SPACE).prop_map(Op::RemoveBefore),
        1 => Just(Op::PopFirst),
    ]
}

/// The maximal runs of consecutive values.
fn runs(model: &BTreeSet<u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for &value in model {
        match runs.last_mut() {
            Some(last) if last.end == value => last.end += 1,
            _ => runs.push(value..value + 1),
        }
    }
    runs
}

fn without(model: &BTreeSet<u64>, range: Range<u64>) -> Vec<Range<u64>> {
    runs(&range.filter(|v| !model.contains(v)).collect())
}

fn within(model: &BTreeSet<u64>, range: Range<u64>) -> Vec<Range<u64>> {
    runs(&range.filter(|v| model.contains(v)).collect())
}

proptest! {
    #[test]
    fn behaves_as_a_set_of_numbers(
        ops in proptest::collection::vec(op(), 1..60),
        probe in range(),
    ) {
        let mut set = RangeSet::new();
        let mut model = BTreeSet::new();
        for op in ops {
            match op {
                Op::Insert(range) => {
                    set.insert(range.clone());
                    model.extend(range);
                }
                Op::TryInsert(range, limit) => {
                    let before = runs(&model).len();
                    let grown = model.iter().copied().chain(range.clone()).collect();
                    // Full is for a range of its own only; one that joins others always fits.
                    let full = runs(&grown).len() > before && before >= limit;
                    prop_assert_eq!(set.try_insert(range, limit), if full { Err(Full) } else { Ok(()) });
                    if !full {
                        model = grown;
                    }
                }
                Op::Remove(range) => {
                    set.remove(range.clone());
                    model.retain(|v| !range.contains(v));
                }
                Op::RemoveBefore(value) => {
                    set.remove_before(value);
                    model.retain(|&v| v >= value);
                }
                Op::PopFirst => {
                    let first = runs(&model).first().cloned();
                    prop_assert_eq!(set.pop_first(), first.clone());
                    model.retain(|v| !first.clone().is_some_and(|r| r.contains(v)));
                }
            }
            let expected = runs(&model);
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), expected.clone());
            prop_assert_eq!(set.len(), expected.len());
            prop_assert_eq!(set.is_empty(), expected.is_empty());
            prop_assert_eq!(set.first(), expected.first().cloned());
            prop_assert_eq!(set.last(), expected.last().cloned());
            prop_assert_eq!(set.count(), model.len() as u64);
            prop_assert_eq!(
                set.missing(probe.clone()).collect::<Vec<_>>(),
                without(&model, probe.clone())
            );
            prop_assert_eq!(
                set.covered(probe.clone()).collect::<Vec<_>>(),
                within(&model, probe.clone())
            );
            prop_assert_eq!(set.covers(probe.clone()), without(&model, probe.clone()).is_empty());
            prop_assert_eq!(set.overlaps(probe.clone()), !within(&model, probe.clone()).is_empty());
            prop_assert_eq!(set.contains(probe.start), model.contains(&probe.start));
            prop_assert_eq!(
                set.range_of(probe.start),
                expected.iter().find(|r| r.contains(&probe.start)).cloned()
            );
        }
    }
}

#[test]
fn holds_the_whole_space_of_numbers() {
    let mut set: RangeSet = [0..10, 20..u64::MAX].into_iter().collect();
    assert!(set.missing(0..u64::MAX).eq(core::iter::once(10..20)));
    set.insert(10..20);
    assert!(set.iter().eq(core::iter::once(0..u64::MAX)));
    set.remove(1..u64::MAX - 1);
    assert_eq!(set.iter().collect::<Vec<_>>(), [0..1, u64::MAX - 1..u64::MAX]);
}

#[test]
fn a_full_set_is_left_as_it_was() {
    let mut set: RangeSet = [0..1, 4..5].into_iter().collect();
    assert_eq!(set.try_insert(2..3, 2), Err(Full));
    assert_eq!(set.iter().collect::<Vec<_>>(), [0..1, 4..5]);
    // This one fills the gap exactly, so there is one range less afterwards.
    assert_eq!(set.try_insert(1..4, 2), Ok(()));
    assert!(set.iter().eq(core::iter::once(0..5)));
}
