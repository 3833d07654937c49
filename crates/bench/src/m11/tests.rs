//! Tests of M11: every part of a directory gives all rows, within one process.

use super::{
    RestartPart,
    rows::{RestartRows, RowShape},
    step::{EmbeddedSystem, RestartStep, StepAction},
};
use crate::{
    error::Error,
    page_cache::{SystemPageCache, disk_bytes},
    peer::folder::TemporaryFolder,
};

/// Loads rows and opens them again.
fn check(system: EmbeddedSystem, part: RestartPart, shape: RowShape, name: &str) {
    let folder = TemporaryFolder::new(name).unwrap();
    let rows = RestartRows { shape, count: 3_000 };
    let directory = folder.path().join("rows");
    let step = RestartStep { system, action: StepAction::Load, part, rows, directory };
    match step.perform() {
        Err(Error::Missing { .. }) => return,
        loaded => drop(loaded.unwrap()),
    }
    assert!(disk_bytes(folder.path()).unwrap() > 300_000);
    for cache in [SystemPageCache::Warm, SystemPageCache::Cold] {
        cache.prepare(folder.path()).unwrap();
        let open = RestartStep { action: StepAction::Open, ..step.clone() };
        let (found, _opened) = open.perform().unwrap();
        assert_eq!(found.rows_of_a_key, 1_000, "{cache:?}");
    }
}

#[test]
fn lockstep_reads_every_part() {
    for part in [RestartPart::Log, RestartPart::Checkpoint, RestartPart::Both] {
        let name = format!("m11-{}", part.name());
        check(EmbeddedSystem::Lockstep, part, RowShape::Bytes100, &name);
    }
}

#[test]
fn lockstep_reads_rows_of_m1() {
    check(EmbeddedSystem::Lockstep, RestartPart::Log, RowShape::M1, "m11-m1");
}

#[test]
fn duckdb_reads_its_log() {
    check(EmbeddedSystem::DuckDb, RestartPart::Log, RowShape::Bytes100, "m11-duckdb");
}

#[test]
fn a_row_has_a_hundred_bytes() {
    use lockstep_row::Datum;
    let rows = RestartRows { shape: RowShape::Bytes100, count: 2_000 };
    let all: Vec<_> = rows.rows().collect();
    assert_eq!(all.len(), 2_000);
    let bytes = |datum: &Datum<'_>| if let Datum::String(text) = datum { text.len() } else { 8 };
    assert!(all.iter().all(|row| row.datums().iter().map(bytes).sum::<usize>() == 100));
}
