//! What a stream computes: its windows, over rows whose columns have positions.
//!
//! All rows of a stream have the same columns, whatever their source: those of the windows' input, and what keys, event
//! time and arguments are computed to.

use std::fmt;

use lockstep_function::BoundAggregate;
use lockstep_plan::{Frame, FrameAhead, Window};

/// The windows of a stream. Source 0 has the main rows; the others have those of UNION, in the order of
/// [`lockstep_plan::WindowAggregate::unions`].
#[derive(Debug, Clone)]
pub struct WindowJoinSpec {
    /// How many sources there are.
    pub sources: usize,
    /// The column with the event time.
    pub order: usize,
    /// The scans, each with its windows.
    pub scans: Vec<ScanSpec>,
}

/// Windows over the same keys and sources.
#[derive(Debug, Clone)]
pub struct ScanSpec {
    /// The columns of the entity key.
    pub keys: Vec<usize>,
    /// The UNION sources as written: among rows of one time those of the first source are the newest, but for main
    /// rows.
    pub unions: Vec<usize>,
    /// Whether main rows are in the frames of none but themselves (`INSTANCE_NOT_IN_WINDOW`).
    pub without_main: bool,
    /// The windows.
    pub groups: Vec<GroupSpec>,
}

/// One window and the calls over it.
#[derive(Debug, Clone)]
pub struct GroupSpec {
    /// The window; its keys and its order are those of the scan.
    pub window: Window,
    /// The calls.
    pub calls: Vec<CallSpec>,
}

/// One call, and where its result goes.
#[derive(Debug, Clone)]
pub struct CallSpec {
    /// The aggregate.
    pub bound: BoundAggregate,
    /// The columns of its arguments.
    pub arguments: Vec<usize>,
    /// The position of its result among those of all calls.
    pub output: usize,
}

/// The reason why windows cannot be computed over a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpecError {
    /// A frame ends at no time.
    UnboundedFollowing,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnboundedFollowing => {
                f.write_str("a window with UNBOUNDED FOLLOWING is not final before its stream ends")
            }
        }
    }
}

impl std::error::Error for SpecError {}

impl WindowJoinSpec {
    /// Counts the results of a main row.
    pub fn outputs(&self) -> usize {
        self.groups().map(|group| group.calls.len()).sum()
    }

    /// Returns whether the results of a main row may be final later than the rows up to it.
    pub(crate) fn waits(&self) -> bool {
        self.groups().any(|group| group.window.ahead.is_some())
    }

    /// Checks that each window's results are final at some time.
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        let is_unbounded = |group: &GroupSpec| {
            matches!(group.window.ahead, Some(FrameAhead { farthest: None, .. }))
        };
        if self.groups().any(is_unbounded) {
            return Err(SpecError::UnboundedFollowing);
        }
        Ok(())
    }

    /// Returns how far before a time there are rows that count for main rows of this time or later; `None` where rows
    /// may count whatever their age.
    pub(crate) fn reach_ms(&self) -> Option<i64> {
        self.groups().try_fold(0, |most: i64, group| Some(most.max(back_ms(&group.window)?)))
    }

    /// Returns how long after its own time a main row is final at most; `None` where rows decide it, not times.
    pub(crate) fn ahead_ms(&self) -> Option<i64> {
        self.groups().try_fold(0, |most: i64, group| {
            let ahead = match (group.window.frame, group.window.ahead) {
                (_, None) => 0,
                (Frame::Range { .. }, Some(FrameAhead { farthest, .. })) => farthest?,
                (Frame::Rows { .. }, Some(_)) => return None,
            };
            Some(most.max(ahead))
        })
    }

    fn groups(&self) -> impl Iterator<Item = &GroupSpec> {
        self.scans.iter().flat_map(|scan| &scan.groups)
    }
}

/// Returns how far before its row a frame over event time begins; `None` where there is no bound.
pub(crate) fn back_ms(window: &Window) -> Option<i64> {
    match window.frame {
        Frame::Range { from: Some(from), .. } => Some(from.max(0)),
        Frame::Range { from: None, .. } | Frame::Rows { .. } => None,
    }
}
