//! Random operations over the whole stack, against a model of what a reader may get.
//!
//! A case is a few clients with several subflows and a few plain senders, links with middleboxes
//! between them and an engine of two workers with two ports each, and a list of operations: subflows
//! open, end, move to another worker's port and give up their addresses, links go down, readers read
//! a little or go away. All of it happens in virtual time, so a case does the same every time, and
//! one that fails is made smaller by proptest. Afterwards the links are mended and everybody reads.
//!
//! The model is simple, as everybody is honest: a reader gets the pattern from its beginning on, no
//! more than was sent, and all of it unless somebody has aborted; nobody is told of data that the
//! reader cannot get; and when all is over, nothing is left.
//!
//! The number of cases is PROPTEST_CASES, and without that variable such that it takes seconds.
//! PROPTEST_RNG_SEED, a number, gives other cases.

mod case;
mod edges;
mod world;

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use case::{Case, LINKS, Operation, case};
use world::{Fate, World};

/// Cases that are run if nobody says how many.
const CASES: u32 = 250;

/// How long the clients have after the last operation.
const REST: Duration = Duration::from_secs(600);

fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(CASES)
}

/// What the cases are drawn from. Without PROPTEST_RNG_SEED they are the same every time, so that a
/// run tells of the change that it tests; more of them go on from there.
fn rng_seed() -> RngSeed {
    match ProptestConfig::default().rng_seed {
        RngSeed::Random => RngSeed::Fixed(1),
        fixed => fixed,
    }
}

/// Plays a case and checks it to its end.
fn play(case: &Case) {
    let mut world = World::new(case);
    for operation in &case.operations {
        apply(&mut world, operation);
    }
    world.mend();
    world.serve(REST);
    world.check_whole();
    world.assert_empty();
}

fn apply(world: &mut World, operation: &Operation) {
    match *operation {
        Operation::Pass(millis) => world.pass(Duration::from_millis(millis.into())),
        Operation::Read { reader, most } => world.read(reader.into(), most.into()),
        Operation::Open { client, link } => world.open(client.into(), link),
        Operation::End { client, subflow } => world.end(client.into(), subflow.into()),
        Operation::Move { client, subflow, link } => {
            world.shift(client.into(), subflow.into(), link);
        }
        Operation::Remove { client, subflow } => world.remove(client.into(), subflow.into()),
        Operation::Link { link, up } => world.set_link(link, up),
        Operation::Leave { reader } => world.leave(reader.into()),
        Operation::Abort { client } => world.abort(client.into()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(),
        rng_seed: rng_seed(),
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_happens_readers_get_what_was_sent(case in case()) {
        play(&case);
    }
}

#[test]
fn the_fate_of_a_client_that_nobody_disturbs_is_to_be_read_whole() {
    let case = Case::plain(2);
    let mut world = World::new(&case);
    world.serve(REST);
    assert_eq!(world.fates(), [Fate::Whole; 2]);
    world.check_whole();
    world.assert_empty();
}

/// Its first link shifts sequence numbers and the second does not, so both ends of the subflow are deaf
/// from the move on. The client gives it up and ends its stream by another.
#[test]
fn a_subflow_that_leaves_its_shifted_numbers_costs_no_data() {
    let mut case = Case::plain(1);
    case.clients[0].links = vec![0];
    case.links[0] = "isn,delay=20ms".parse().expect("the text of a chain");
    case.operations = vec![Operation::Pass(90), Operation::Move { client: 0, subflow: 0, link: 1 }];
    let mut world = World::new(&case);
    for operation in &case.operations {
        apply(&mut world, operation);
    }
    world.pass(REST);
    assert!(!world.are_acknowledged(), "the move broke nothing");
    world.mend();
    world.serve(REST);
    assert_eq!(world.fates(), [Fate::Whole]);
    world.check_whole();
    world.assert_empty();
}

/// The client's second link loses options from some octet on, both ways. That is as if its subflow were not
/// there: what it carried goes by the first, and so does the end of the stream.
#[test]
fn a_further_subflow_that_loses_its_options_costs_no_data() {
    for strip in
        ["strip=after-11551", ">strip=after-11551", "strip=data", "<strip=all", "strip=syn"]
    {
        let mut case = Case::plain(1);
        case.clients[0].links = vec![1, LINKS - 1];
        case.links[usize::from(LINKS) - 1] = strip.parse().expect("the text of a chain");
        let mut world = World::new(&case);
        world.serve(REST);
        assert_eq!(world.fates(), [Fate::Whole]);
        world.check_whole();
        world.assert_empty();
    }
}
