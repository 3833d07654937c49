//! Every failpoint, reached for the first time, and some more times.

use crate::{
    kill::{KillOptions, run_failpoint},
    report::Report,
};

/// The failpoints of the product, in the order in which a row meets them.
pub const FAILPOINTS: &[&str] = &[
    "wal.before_copy",
    "wal.after_copy",
    "wal.before_sync",
    "wal.after_sync",
    "wal.segment_created",
    "wal.segment_synced",
    "wal.segment_renamed",
    "wal.truncate",
    "wal.manifest_written",
    "wal.manifest_renamed",
    "table.rows_logged",
    "table.rows_stored",
    "table.part_logged",
    "table.indexes_logged",
    "table.rebuild_logged",
    "table.truncate_logged",
    "catalog.logged",
    "checkpoint.written",
    "checkpoint.committed",
    "recovery.record",
    "recovery.compile",
];

/// How many directories are tried until one reaches a failpoint.
const ATTEMPTS: u64 = 5;

/// Runs every failpoint with each of the counts. Returns the report and the failpoints at which no
/// process has ended.
pub fn run(options: &KillOptions, counts: &[u64]) -> (Report, Vec<&'static str>) {
    let mut report = Report::default();
    let mut unreached = Vec::new();
    for name in FAILPOINTS {
        let mut is_reached = false;
        for count in counts {
            // Not every directory reaches every point: a checkpoint may leave no record to be read.
            is_reached |= (0..ATTEMPTS).any(|attempt| {
                let options = KillOptions { seed: options.seed + attempt, ..options.clone() };
                run_failpoint(&options, name, *count, &mut report)
            });
        }
        if !is_reached {
            unreached.push(*name);
        }
    }
    (report, unreached)
}
