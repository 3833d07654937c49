//! The query of a stream, which gives its rows when they are final, or at once.

use std::sync::Arc;

use lockstep_diagnostic::Result;
use lockstep_plan::BoundQuery;
use lockstep_stream::{JoinCounts, TeamCounts};
use lockstep_table::TailSignal;

use super::StreamOptions;
use crate::{
    Database,
    continuous::{
        ArrivalQuery, ContinuousOptions, ContinuousProgress, ContinuousQuery, FinalRows,
        LateSourceRow, QueryPart,
    },
};

/// The query of a stream.
#[derive(Debug)]
pub(crate) enum StreamQuery {
    /// Rows are given when they are final.
    Final(Box<ContinuousQuery>),
    /// Rows are given when they arrive.
    AtArrival(Box<ArrivalQuery>),
}

/// Where a query goes on, and which rows it has.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GoingOn<'p> {
    /// How far it was; `None` where it begins.
    pub(crate) progress: Option<&'p ContinuousProgress>,
    /// `None` for all rows of its tables.
    pub(crate) part: Option<&'p QueryPart>,
}

impl StreamQuery {
    /// Begins a query, or goes on with one that was so far.
    pub(crate) fn new(
        query: &BoundQuery,
        database: &Database,
        of_query: ContinuousOptions,
        (options, going_on): (StreamOptions, GoingOn<'_>),
    ) -> Result<Self> {
        let known = (going_on.progress, going_on.part);
        Ok(match options.emits_at_arrival {
            true => {
                let query = ArrivalQuery::new(query, database, of_query, known)?;
                Self::AtArrival(Box::new(query))
            }
            false => {
                let query = ContinuousQuery::new(query, database, of_query, known)?;
                Self::Final(Box::new(query))
            }
        })
    }

    /// Returns rows that were not given yet, some thousand at most.
    pub(super) fn poll(&mut self) -> Result<FinalRows> {
        match self {
            Self::Final(query) => query.poll(),
            Self::AtArrival(query) => query.poll(),
        }
    }

    /// Returns no rows, with the columns of all others.
    pub(super) fn no_rows(&mut self) -> Result<FinalRows> {
        match self {
            Self::Final(query) => Ok(query.no_rows()),
            Self::AtArrival(query) => query.no_rows(),
        }
    }

    /// Returns how far it is, the rows of the last [`Self::poll`] included.
    pub(super) fn progress(&mut self) -> ContinuousProgress {
        match self {
            Self::Final(query) => query.progress(),
            Self::AtArrival(query) => query.progress(),
        }
    }

    /// Fails where rows of a part that are to be read again are gone: before a poll that found no more, those of each source
    /// before an offset were stored.
    pub(super) fn check_stored(&mut self, stored: &[u64]) -> Result<()> {
        match self {
            Self::Final(query) => query.check_stored(stored),
            Self::AtArrival(_) => Ok(()),
        }
    }

    /// Returns the places in the tables of its sources from which on rows count.
    pub(super) fn positions(&self) -> Vec<u64> {
        match self {
            Self::Final(query) => query.positions(),
            Self::AtArrival(query) => vec![query.position()],
        }
    }

    /// Returns what is raised when there are rows to read.
    pub(super) fn signal(&self) -> &Arc<TailSignal> {
        match self {
            Self::Final(query) => query.signal(),
            Self::AtArrival(query) => query.signal(),
        }
    }

    /// Returns whether the last call has read all rows that there were.
    pub(super) fn is_caught_up(&self) -> bool {
        match self {
            Self::Final(query) => query.is_caught_up(),
            Self::AtArrival(query) => query.is_caught_up(),
        }
    }

    /// Counts the rows that were read of all sources, each once.
    pub(super) fn rows_read(&self) -> u64 {
        match self {
            Self::Final(query) => query.rows_read(),
            Self::AtArrival(query) => query.rows_read(),
        }
    }

    /// Takes the late rows that were read since the last call, if they are kept.
    pub(super) fn take_late_rows(&mut self) -> Vec<LateSourceRow> {
        match self {
            Self::Final(query) => query.take_late_rows(),
            Self::AtArrival(_) => Vec::new(),
        }
    }

    /// Counts the late rows since the query was begun or went on.
    pub(super) fn rows_late(&self) -> u64 {
        match self {
            Self::Final(query) => query.rows_late(),
            Self::AtArrival(_) => 0,
        }
    }

    /// Returns the newest event time of all sources, and the time before which all rows have come.
    pub(super) fn times(&self) -> (Option<i64>, Option<i64>) {
        match self {
            Self::Final(query) => (query.newest(), query.watermark()),
            Self::AtArrival(_) => (None, None),
        }
    }

    /// Returns what it has done, and has. *Cost*: a visit to each key.
    pub(super) fn counts(&mut self) -> JoinCounts {
        match self {
            Self::Final(query) => query.counts(),
            Self::AtArrival(_) => JoinCounts::default(),
        }
    }

    /// Returns how the rows are divided among joiners.
    pub(super) fn teams(&self) -> TeamCounts {
        match self {
            Self::Final(query) => query.teams(),
            Self::AtArrival(_) => TeamCounts::default(),
        }
    }
}
