//! Bugs that are seeded into tables with files: the property test of tables finds each.

use proptest::{collection::vec, prelude::*, strategy::ValueTree as _, test_runner::TestRunner};

use super::{declared, run, step};
use crate::part::bug::{self, PartBug};

/// How many cases of the generator it takes at most to find a bug.
const CASES_TO_FIND: usize = 4_000;

#[test]
fn each_seeded_bug_of_a_table_is_found() {
    let bugs = [
        PartBug::FrozenReadTwice,
        PartBug::FlushedOverChange,
        PartBug::FrozenNotIndexed,
        PartBug::FrozenNotDeleted,
        PartBug::FilesNotDeleted,
        PartBug::FrozenNotLoaded,
        PartBug::FilesOfRemovedRows,
        PartBug::OneRunOfIndex,
    ];
    let find = |bug: PartBug| {
        let mut runner = TestRunner::deterministic();
        (0..CASES_TO_FIND).find(|_| {
            let case = (declared(), vec(step(), 1..24));
            let (indexes, steps) = case.new_tree(&mut runner).unwrap().current();
            bug::seed(Some(bug));
            let checked = std::panic::catch_unwind(|| run(indexes, steps));
            bug::seed(None);
            checked.is_err()
        })
    };
    let found = bugs.map(|bug| (bug, find(bug)));
    println!("seeded bugs, each with the case that found it: {found:?}");
    for (bug, case) in found {
        assert!(case.is_some(), "{bug:?} was not found");
    }
}
