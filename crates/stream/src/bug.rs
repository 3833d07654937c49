//! Bugs that tests seed into streams, to see that they would be found.
//!
//! Each stands beside the line that it breaks. Outside this crate's own tests there are none, and the
//! compiler removes the question.

/// A line left out or done wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamBug {
    /// The watermark is one millisecond too far.
    WatermarkTooFar,
    /// Frames that go on after their row are computed before the last row that counts has come.
    DecidedTooEarly,
    /// A row that a state has is dropped with the candidates, and stays in the state.
    DroppedRowInState,
    /// Candidates are dropped that later frames hold.
    DroppedTooMuch,
    /// A late row counts.
    LateRowCounts,
    /// A row that is not late is dropped.
    RowDropped,
    /// Equal times are settled by arrival alone.
    TiesByArrival,
    /// Positions of rows that wait stay as they are when candidates before them are dropped.
    PositionsNotMoved,
    /// An idle source has no part in the watermark, although it has come back.
    IdleForEver,
    /// A key is dropped whose rows later frames hold.
    KeyDropped,
    /// The rows that arrive in a bucket which is being settled are settled after it.
    StragglersLast,
    /// The watermark that was reached before a replay is forgotten.
    WatermarkForgotten,
    /// Rows are given again that were given before a replay.
    GivenTwice,
    /// Main rows whose windows waited when a stream ended are taken for given.
    WaitingTakenForGiven,
    /// A LAST JOIN that takes only older rows takes one of the main row's time.
    JoinedTooEarly,
    /// A row that a newer one of its key replaced is still taken for held.
    ReplacedRowHeld,
    /// A row that a newer one of its key replaced is not held for main rows that are joined again.
    ReplacedRowReleased,
    /// A team changes while rows are on their way to its members.
    TeamChangedWithRowsUnsent,
    /// A joiner that leaves a team has no rows any more that its main rows need.
    LeftTooEarly,
    /// A new member of a team has only the rows that were settled.
    UnsettledNotCopied,
    /// A new member of a team has only the rows that were not settled.
    CandidatesNotCopied,
    /// A new member of a team computes the main rows that it is copied.
    CopiedRowsComputed,
    /// A joiner that has left a team keeps its rows, and gets them again when it comes back.
    PartitionNotForgotten,
    /// All members of a team tell what LAST JOINs hold of it.
    HeldTwice,
    /// A replay begins at the rows of the frames, without those of the rows that wait.
    ReplayedTooLittle,
}

#[cfg(test)]
thread_local! {
    static SEEDED: std::cell::Cell<Option<StreamBug>> = const { std::cell::Cell::new(None) };
}

/// Returns whether this thread's code is to have the bug.
#[cfg(test)]
pub(crate) fn is_seeded(bug: StreamBug) -> bool {
    SEEDED.get() == Some(bug)
}

/// Returns whether this thread's code is to have the bug: never.
#[cfg(not(test))]
#[expect(clippy::missing_const_for_fn, reason = "it is the test's that does something")]
pub(crate) fn is_seeded(_bug: StreamBug) -> bool {
    false
}

/// Seeds a bug into this thread's code, or none.
#[cfg(test)]
pub(crate) fn seed(bug: Option<StreamBug>) {
    SEEDED.set(bug);
}
