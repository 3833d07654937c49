//! What a stream computes: its LAST JOINs and its windows, over rows whose columns have positions.
//!
//! The rows of windows have the same columns, whatever their source: those of the windows' input, and what keys, event
//! time and arguments are computed to. Where main rows are joined below the windows, those of source 0 have what these LAST
//! JOINs need, and a [`MainProgram`](crate::MainProgram) makes rows of windows of them.

use std::fmt;

use lockstep_function::BoundAggregate;
use lockstep_plan::{Frame, FrameAhead, Window, has_beginning};

use crate::bug::{self, StreamBug};

/// The windows of a stream. Source 0 has the main rows; then come those of UNION, in the order of
/// [`lockstep_plan::WindowAggregate::unions`], and those of LAST JOINs, in theirs.
#[derive(Debug, Clone)]
pub struct WindowJoinSpec {
    /// The sources.
    pub sources: Vec<SourceShape>,
    /// The LAST JOINs below the windows, each of what those before it have joined.
    pub lookups: Vec<LookupSpec>,
    /// How many columns a row of the windows has.
    pub width: usize,
    /// For each of these which column of a main row it is, before LAST JOINs; `None` where it is computed.
    pub main_columns: Vec<Option<usize>>,
    /// The LAST JOINs above the windows: of main rows as the windows have them.
    pub output_lookups: Vec<LookupSpec>,
    /// The scans, each with its windows.
    pub scans: Vec<ScanSpec>,
}

/// The rows of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceShape {
    /// How many columns they have.
    pub width: usize,
    /// The column with the event time.
    pub order: usize,
}

/// A LAST JOIN: a main row is joined with the newest row of the key that is not newer than it.
#[derive(Debug, Clone)]
pub struct LookupSpec {
    /// The source of the rows, which is that of no other LAST JOIN.
    pub source: usize,
    /// How many of their columns, from the first on, are joined.
    pub columns: usize,
    /// The columns of the key.
    pub keys: Vec<usize>,
    /// The columns of a main row that have the key, among those it has and those joined before.
    pub main_keys: Vec<usize>,
    /// Whether a row of the main row's time is joined.
    pub is_inclusive: bool,
    /// Before which time no row is joined.
    pub at_least: Option<LeastTime>,
}

/// The time before which no row is joined: `right.time >= column`, or `>`. Where it is NULL, no row is joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeastTime {
    /// The column of the main row that has it.
    pub column: usize,
    /// Whether a row of this time is joined.
    pub is_inclusive: bool,
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

    /// Returns whether a source has the rows of a LAST JOIN.
    pub fn is_of_lookup(&self, source: usize) -> bool {
        self.lookups.iter().chain(&self.output_lookups).any(|lookup| lookup.source == source)
    }

    /// Returns whether the results of a main row may be final later than the rows up to it.
    pub(crate) fn waits(&self) -> bool {
        self.groups().any(|group| group.window.ahead.is_some())
    }

    /// Returns whether the frames of main rows may hold other main rows.
    pub(crate) fn has_main_candidates(&self) -> bool {
        self.scans.iter().any(|scan| !scan.without_main)
    }

    /// Returns whether several joiners may compute the windows of one key: another one can go on with its candidates alone.
    pub fn is_shareable(&self) -> bool {
        self.groups().all(|group| has_beginning(&group.window))
    }

    /// Returns the time before which rows of main rows and UNION sources count for no main row that is still to be given,
    /// where the watermark is this; `None` as long as all count.
    pub(crate) fn needed_from(&self, watermark: Option<i64>) -> Option<i64> {
        let ahead_ms = match bug::is_seeded(StreamBug::ReplayedTooLittle) {
            true => 0,
            false => self.ahead_ms()?,
        };
        Some(watermark?.saturating_sub(ahead_ms).saturating_sub(self.reach_ms()?))
    }

    /// Returns the columns by which rows can be divided, for each source: rows that meet in a window or in a LAST JOIN
    /// have the same values in them. `None` where there are none such.
    pub fn divided_by(&self) -> Option<Vec<Vec<usize>>> {
        let mut columns = vec![Vec::new(); self.sources.len()];
        for main in 0..self.sources[0].width {
            let Some(of_sources) = self.meeting_columns(main) else { continue };
            columns.iter_mut().zip(of_sources).for_each(|(columns, column)| columns.push(column));
        }
        (!columns[0].is_empty()).then_some(columns)
    }

    /// Returns for each source the column that has the value of a main row's column in all rows which the main row
    /// meets; `None` unless there is one.
    fn meeting_columns(&self, main: usize) -> Option<Vec<usize>> {
        debug_assert_eq!(
            self.main_columns.len(),
            self.width,
            "each column is one of main rows or none"
        );
        let mut columns: Vec<Option<usize>> = vec![None; self.sources.len()];
        columns[0] = Some(main);
        let mut set = |source: usize, column: usize| {
            let known = *columns[source].get_or_insert(column);
            (known == column).then_some(())
        };
        let is_main = |column: &usize| self.main_columns.get(*column) == Some(&Some(main));
        for scan in &self.scans {
            let key = scan.keys.iter().copied().find(|key| is_main(key))?;
            scan.unions.iter().try_for_each(|union| set(*union, key))?;
        }
        for lookup in &self.lookups {
            let at = lookup.main_keys.iter().position(|key| *key == main)?;
            set(lookup.source, lookup.keys[at])?;
        }
        for lookup in &self.output_lookups {
            let at = lookup.main_keys.iter().position(is_main)?;
            set(lookup.source, lookup.keys[at])?;
        }
        // A source that meets no main row may be anywhere.
        Some(columns.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// Checks that each window's results are final at some time.
    pub fn check(&self) -> Result<(), SpecError> {
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
