//! Bugs that are seeded into tables with files: the property test of tables finds each.

use proptest::{collection::vec, prelude::Just};

use super::steps::{declared, declared_for_nodes, divided_ties, node_steps, run, step};
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
        PartBug::FrozenNotHeld,
        PartBug::TimesOfFirstRow,
        PartBug::TailHoldsNothing,
        PartBug::FrozenNotFollowed,
        PartBug::RunsOfOtherRows,
        PartBug::RowsAfterRunsLost,
    ];
    let cases = (declared(), vec(step(), 1..24));
    bug::find_each(&bugs, CASES_TO_FIND, &cases, |(indexes, steps)| run(indexes, steps));
}

#[test]
fn each_seeded_bug_of_nodes_of_a_disk_table_is_found() {
    let bugs = [PartBug::NodesCountedTwice, PartBug::FrozenNotInNodes, PartBug::NodesOfOtherRows];
    let cases = (declared_for_nodes(), node_steps(30));
    bug::find_each(&bugs, CASES_TO_FIND, &cases, |(indexes, steps)| run(indexes, steps));
    // Drawn about once in ten thousand cases.
    let cases = Just(divided_ties());
    let bugs = [PartBug::NodesForOlderReaders];
    bug::find_each(&bugs, 1, &cases, |(indexes, steps)| run(indexes, steps));
}
