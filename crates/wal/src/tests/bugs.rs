//! Seeded bugs: what the tests are worth.

use super::{damage, faults, harness::check_workload};
use crate::bug::{self, Bug};

/// Whether a bug is found by a crash after some call of a drawn workload; the first seed that does.
fn found_by_crash(bug: Bug) -> Option<u64> {
    let is_found = |seed: &u64| {
        let run = || check_workload(*seed, 14);
        // An assertion that fires has found it as well.
        std::panic::catch_unwind(|| bug::with(bug, run)).map_or(true, |result| result.is_err())
    };
    (0..400).find(is_found)
}

#[test]
fn crashes_find_the_seeded_bugs() {
    for bug in [
        Bug::SyncLeftOut,
        Bug::AcknowledgedBeforeSync,
        Bug::FormerSegmentNotSynced,
        Bug::DirectoryNotSynced,
        Bug::HeaderNotSynced,
        Bug::ChecksumNotCompared,
        Bug::TailNotZeroed,
        Bug::ZerosNotSynced,
        Bug::DurableTooHigh,
        Bug::LastFlagIgnored,
    ] {
        let seed = found_by_crash(bug);
        println!("{bug:?}: seed {seed:?}");
        assert!(seed.is_some(), "{bug:?} is not found");
    }
}

#[test]
fn failing_calls_find_the_seeded_bugs() {
    for bug in [
        Bug::SyncRetried,
        Bug::RefusedGroupCounted,
        Bug::NotWrittenAgain,
        Bug::DirectoryNotSyncedOnOpen,
    ] {
        let is_found = |seed: &u64| {
            let run = || faults::check_faults(*seed, None);
            std::panic::catch_unwind(|| bug::with(bug, run)).map_or(true, |found| found.is_err())
        };
        let seed = (0..200).find(is_found);
        println!("{bug:?}: seed {seed:?}");
        assert!(seed.is_some(), "{bug:?} is not found");
    }
}

#[test]
fn damage_finds_the_seeded_bugs() {
    for bug in [Bug::EvidenceIgnored, Bug::ChecksumNotCompared] {
        assert!(bug::with(bug, damage::check_flips).is_err(), "{bug:?} is not found");
    }
    assert!(bug::with(Bug::LastFlagIgnored, || damage::check_ends(997)).is_err());
}
