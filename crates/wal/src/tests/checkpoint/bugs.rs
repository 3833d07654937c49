//! Seeded bugs: what the tests of checkpoints are worth.

use super::{damage, faults::check_faults, harness::check_workload};
use crate::bug::{self, Bug};

/// Whether a check with a bug fails; an assertion that fires has found it as well.
fn is_found(bug: Bug, check: impl Fn() -> Result<u64, String> + std::panic::UnwindSafe) -> bool {
    std::panic::catch_unwind(|| bug::with(bug, check)).map_or(true, |result| result.is_err())
}

#[test]
fn crashes_find_the_seeded_bugs() {
    for bug in [
        Bug::CreationNotSynced,
        Bug::ManifestNotSynced,
        Bug::ManifestNameNotSynced,
        Bug::DataFileNotSynced,
        Bug::DataDirectoryNotSynced,
        Bug::OldFilesRemovedEarly,
        Bug::NumberReused,
    ] {
        let seed = (0..40).find(|seed| is_found(bug, || check_workload(*seed, 8)));
        println!("{bug:?}: seed {seed:?}");
        assert!(seed.is_some(), "{bug:?} is not found");
    }
}

#[test]
fn failing_calls_find_the_seeded_bugs() {
    use lockstep_host::file::Operation;
    let sync = Some(Operation::SyncDirectory);
    for bug in [Bug::ManifestNotSyncedOnOpen, Bug::CommitAfterFailedSync] {
        let seed = (0..40).find(|seed| is_found(bug, || check_faults(*seed, sync)));
        println!("{bug:?}: seed {seed:?}");
        assert!(seed.is_some(), "{bug:?} is not found");
    }
}

#[test]
fn damage_finds_the_seeded_bugs() {
    assert!(is_found(Bug::ManifestChecksumNotCompared, damage::check_manifest));
    assert!(is_found(Bug::BlockChecksumNotCompared, damage::check_data_file));
    assert!(is_found(Bug::BlockIndexNotInChecksum, damage::check_exchanged));
    assert!(is_found(Bug::FileChecksumNotCompared, damage::check_exchanged));
}
