//! The bugs that a child can be given, each of which the harness must find.

use crate::{
    failpoints,
    kill::{self, KillOptions},
    replay::{self, ReplayOptions},
    report::Report,
};

/// What finds a bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundBy {
    /// Kills at random moments.
    Kill,
    /// Kills at random moments, but hundreds may be needed: the tests leave it out.
    ManyKills,
    /// Kills at this failpoint.
    Failpoint(&'static str),
    /// Drawn statements in one process.
    Replay,
}

/// The bugs: what `lockstep_host::failpoint` calls them, and what finds them.
pub const BUGS: &[(&str, FoundBy)] = &[
    ("indexes_not_logged", FoundBy::Replay),
    ("widening_not_logged", FoundBy::Replay),
    ("truncate_not_logged", FoundBy::Replay),
    ("truncate_logged_late", FoundBy::ManyKills),
    ("delete_as_of_another_time", FoundBy::Replay),
    ("last_part_not_needed", FoundBy::Failpoint("table.part_logged")),
    ("tables_logged_separately", FoundBy::Failpoint("table.part_logged")),
    ("arrival_time_not_restored", FoundBy::Replay),
    ("catalog_not_logged", FoundBy::Kill),
    ("rows_logged_twice", FoundBy::Kill),
    ("query_database_forgotten", FoundBy::Kill),
    ("checkpoint_position_too_late", FoundBy::Kill),
    ("late_row_not_marked", FoundBy::Kill),
];

/// The most cycles, or cases, until a bug is found.
const TRIES_MAX: u64 = 200;

/// Looks for a bug that the processes have; returns the report, which is to have violations.
pub fn find(options: &KillOptions, bug: &str, found_by: FoundBy) -> Report {
    let options = KillOptions {
        bug: Some(bug.to_owned()),
        cycles: TRIES_MAX,
        stops_early: true,
        ..options.clone()
    };
    match found_by {
        FoundBy::Kill => kill::run(&options),
        FoundBy::ManyKills => kill::run(&KillOptions { cycles: 10 * TRIES_MAX, ..options }),
        FoundBy::Failpoint(name) => {
            let mut report = Report::default();
            for count in 1..TRIES_MAX {
                kill::run_failpoint(&options, name, count, &mut report);
                if report.violation_count() > 0 {
                    break;
                }
            }
            report
        }
        FoundBy::Replay => {
            lockstep_host::failpoint::seed(bug);
            replay::run(&ReplayOptions {
                directory: options.directory.clone(),
                cases: TRIES_MAX,
                seed: options.seed,
                stops_early: true,
            })
        }
    }
}

/// Returns the names of the failpoints that the harness knows.
pub fn failpoint_names() -> &'static [&'static str] {
    failpoints::FAILPOINTS
}
