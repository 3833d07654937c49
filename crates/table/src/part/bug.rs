//! Bugs that tests seed into parts, and into the tables that have them, to see that they would be found.
//!
//! Each stands beside the line that it breaks. Outside this crate's own tests there are none, and the
//! compiler removes the question.

/// A line left out or done wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartBug {
    /// A merge counts rows that a reader may not see yet among those that displace older ones.
    LatestCutByLaterRows,
    /// A merge takes the rows of a key from one of its runs.
    OneRunOfKeyMerged,
    /// Of a key with several pages only the first is read.
    OnePageOfKey,
    /// The page in which a seek ends is skipped.
    PageOfSeekSkipped,
    /// A run is taken to begin with the row of its page, of whatever key that is.
    BoundOfOtherKey,
    /// Rows that a seek skips are not counted.
    SkippedNotCounted,
    /// Rows of one event time are taken in the order of their sources.
    TiesNotCompared,
    /// Rows of each source are counted apart.
    CountedBySource,
    /// Rows that arrived after the snapshot are shown.
    LaterRowsShown,
    /// The filter has the last key only.
    FilterOfLastKey,
    /// Rows that were flushed stay among the frozen ones, too.
    FrozenReadTwice,
    /// A flush is installed although the table has changed since it was frozen.
    FlushedOverChange,
    /// An index that is added has no rows of the frozen ones.
    FrozenNotIndexed,
    /// DELETE keeps rows that are frozen.
    FrozenNotDeleted,
    /// DELETE keeps rows that are in files.
    FilesNotDeleted,
    /// A table that is put into memory has no rows of the frozen ones.
    FrozenNotLoaded,
    /// The files of a memory table stay its files when rows were removed.
    FilesOfRemovedRows,
    /// An index that is added has the rows of the last run that was sorted for it.
    OneRunOfIndex,
    /// Rows that are held have none of the frozen ones.
    FrozenNotHeld,
    /// The bounds of times of a block are those of its first row.
    TimesOfFirstRow,
    /// Rows that nodes stand for are counted again where a page has some of them.
    NodesCountedTwice,
    /// Nodes are made without the frozen rows.
    FrozenNotInNodes,
    /// Nodes that lack rows which a merge has left out are shown to readers who have these.
    NodesForOlderReaders,
    /// DELETE and changes of indexes leave nodes as they are.
    NodesOfOtherRows,
    /// Rows that are removed are not kept for the tails that have not read them.
    TailHoldsNothing,
    /// What a tail takes before rows are removed lacks the frozen ones.
    FrozenNotFollowed,
    /// Runs that were built ahead are taken although other extents have replaced theirs.
    RunsOfOtherRows,
    /// An index has no rows of files that were written while its runs were built.
    RowsAfterRunsLost,
}

#[cfg(test)]
thread_local! {
    static SEEDED: std::cell::Cell<Option<PartBug>> = const { std::cell::Cell::new(None) };
}

/// Returns whether this thread's code is to have the bug.
#[cfg(test)]
pub(crate) fn is_seeded(bug: PartBug) -> bool {
    SEEDED.get() == Some(bug)
}

/// Returns whether this thread's code is to have the bug: never.
#[cfg(not(test))]
#[expect(clippy::missing_const_for_fn, reason = "it is the test's that does something")]
pub(crate) fn is_seeded(_bug: PartBug) -> bool {
    false
}

/// Seeds a bug into this thread's code, or none.
#[cfg(test)]
fn seed(bug: Option<PartBug>) {
    SEEDED.set(bug);
}

/// Seeds each bug, and draws and checks cases with it until one fails, at most `cases_max`. Fails where a bug was not
/// found.
#[cfg(test)]
pub(crate) fn find_each<S: proptest::strategy::Strategy>(
    bugs: &[PartBug],
    cases_max: usize,
    cases: &S,
    check: impl Fn(S::Value),
) {
    use proptest::strategy::ValueTree as _;
    let find = |bug: PartBug| {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        (0..cases_max).find(|_| {
            let case = cases.new_tree(&mut runner).unwrap().current();
            seed(Some(bug));
            let check = std::panic::AssertUnwindSafe(|| check(case));
            let checked = std::panic::catch_unwind(check);
            seed(None);
            checked.is_err()
        })
    };
    let found: Vec<_> = bugs.iter().map(|bug| (*bug, find(*bug))).collect();
    println!("seeded bugs, each with the case that found it: {found:?}");
    for (bug, case) in found {
        assert!(case.is_some(), "{bug:?} was not found");
    }
}
