//! Streams: the LAST JOINs and windows of a query over rows that arrive out of order, each result once and final.
//!
//! `engine` passes the rows of a stream's sources to a [`WindowJoin`] as they arrive, and takes the joined rows from
//! it: a main row with the results of its windows, as soon as the [watermark](watermark) says that no row which may
//! count for them is still to come. Each is what batch mode computes over all rows that were not late, bit for bit:
//! frames are those of [`lockstep_plan::FrameEnds`], and states those of `lockstep_function`.
//!
//! # Life of a row
//!
//! 1. It is late when its event time is more than the lateness before the newest one of its source; then it is
//!    returned as late, and counts for nothing. Otherwise it waits in the [reorder buffer](reorder).
//! 2. When the watermark has passed its time, it is *settled*: rows are settled in the order in which batch mode sorts
//!    them, by event time, then source, then arrival. A main row is [joined](lookup) with the newest rows of LAST
//!    JOINs, and the row of the windows is computed of it. Each becomes a candidate of its [entity key](key_rows) in each
//!    scan, which is all windows over the same keys and sources.
//! 3. A main row's windows are computed at once, or, where they go on after it, when the watermark has passed their
//!    end. States [slide](slide) from one frame to the next.
//! 4. Candidates that no later frame can hold are dropped, and so are keys without any.
//!
//! *Cost*: amortised O(log b) for a row, b being the rows in a 256th of the lateness, and O(1) for each row and window
//! whose states slide. Memory: the rows of the lateness, and of the longest frame.
//!
//! | module | what |
//! |---|---|
//! | `join` | [`WindowJoin`]: the interface |
//! | `joiner` | what one joiner computes |
//! | `crew`, `schedule` | several joiners on threads, and which of them has which rows |
//! | `simulation` | joiners on more cores than there are |
//! | `spec` | what is computed |
//! | `watermark` | up to which time all rows have come |
//! | `reorder` | rows that are not settled |
//! | `lookup` | the newest row of each key, for LAST JOINs |
//! | `scan`, `key_rows`, `slide` | the candidates of a key, and the windows over them |
//! | `results` | main rows whose windows are not all computed |

mod bug;
mod crew;
mod join;
mod joiner;
mod key_rows;
mod lookup;
mod reorder;
mod results;
mod scan;
mod schedule;
mod simulation;
mod slide;
mod spec;
#[cfg(test)]
mod tests;
mod watermark;

pub use join::{JoinCounts, JoinProgress, JoinedRound, Pushed, StreamRow, TeamCounts, WindowJoin};
pub use joiner::{JoinerOutput, JoinerParts, WindowedRow};
pub use lookup::MainProgram;
pub use simulation::SimulatedTimes;
pub use spec::{
    CallSpec, GroupSpec, LeastTime, LookupSpec, ScanSpec, SourceShape, SpecError, WindowJoinSpec,
};
pub use watermark::{Lateness, SourceProgress};
