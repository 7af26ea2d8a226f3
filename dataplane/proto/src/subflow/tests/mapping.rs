//! The table of mappings against a model that has one entry for each position.

use alloc::collections::BTreeMap;

use proptest::prelude::*;

use crate::subflow::mapping::{LIMIT, Mapping, Mappings, Refused};

fn map(start: u64, end: u64, shift: u64) -> Mapping {
    Mapping { start, end, shift }
}

#[test]
fn touching_mappings_that_agree_are_one_entry() {
    let mut table = Mappings::default();
    for n in 0..10 * LIMIT as u64 {
        assert_eq!(table.announce(map(n * 10, n * 10 + 10, 0), 0), Ok(()));
    }
    assert_eq!(table.find(0), Some((0, LIMIT as u64 * 100)));
}

#[test]
fn the_table_is_bounded_but_the_next_mapping_always_fits() {
    let mut table = Mappings::default();
    let far = |n: usize| map(1000 + n as u64 * 20, 1010 + n as u64 * 20, n as u64);
    for n in 0..LIMIT {
        assert_eq!(table.announce(far(n), 0), Ok(()));
    }
    assert_eq!(table.announce(far(LIMIT), 0), Err(Refused::Full));
    assert_eq!(table.announce(map(0, 100, 7), 0), Ok(()));
    assert_eq!(table.find(50), Some((7, 100)));
    table.advance(100);
    assert_eq!(table.announce(map(100, 200, 8), 100), Ok(()));
    assert_eq!(table.find(100), Some((8, 200)));
    // An entry that is used up makes room.
    table.advance(1005);
    assert_eq!(table.find(1005), Some((0, 1010)));
    assert_eq!(table.announce(far(LIMIT), 1005), Ok(()));
}

#[derive(Clone, Debug)]
enum Step {
    Announce { start: u64, len: u64, shift: u64 },
    Advance { by: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let announce = (0..60_u64, 1..25_u64, 0..3_u64)
        .prop_map(|(start, len, shift)| Step::Announce { start, len, shift });
    prop_oneof![4 => announce, 1 => (1..20_u64).prop_map(|by| Step::Advance { by })]
}

proptest! {
    #[test]
    fn the_table_knows_what_was_announced(steps in prop::collection::vec(step(), 1..60)) {
        let mut table = Mappings::default();
        let mut model = BTreeMap::new();
        let mut received = 0;
        for step in steps {
            match step {
                Step::Announce { start, len, shift } => {
                    let (start, end) = (received + start - start.min(10), received + start + len);
                    let range = start.max(received)..end;
                    let conflict = range.clone().any(|p| model.get(&p).is_some_and(|s| *s != shift));
                    let result = table.announce(map(start, end, shift), received);
                    prop_assert_eq!(result.is_err(), conflict);
                    if !conflict {
                        model.extend(range.map(|position| (position, shift)));
                    }
                }
                Step::Advance { by } => {
                    // Only over what is mapped, as payload is taken.
                    for _ in 0..by {
                        if model.remove(&received).is_some() {
                            received += 1;
                        }
                    }
                    table.advance(received);
                }
            }
            for position in received..received + 100 {
                let found = table.find(position);
                prop_assert_eq!(found.map(|(shift, _)| shift), model.get(&position).copied());
                if let Some((shift, end)) = found {
                    prop_assert!(end > position);
                    prop_assert!((position..end).all(|p| model.get(&p) == Some(&shift)));
                }
            }
        }
    }
}
