//! Tests of M13: every level of Lockstep, and SQLite where it is, hold what they acknowledge.

use super::{
    BATCHES, ROW_BYTES, WriteTarget, check,
    disk::SyncedBlocks,
    engine::{M13Lockstep, WriteLevel},
    sql::insert_statement,
    sqlite::SqliteWrites,
};
use crate::{error::Error, peer::sqlite::SqliteSynchronous, statement::Dialect};

/// Writes three batches of each size from two writers, and checks the rows.
fn write(target: &dyn WriteTarget) -> u64 {
    for batch in BATCHES {
        let mut writers = [target.writer(batch).unwrap(), target.writer(batch).unwrap()];
        for _ in 0..3 {
            writers.iter_mut().for_each(|writer| writer.serve(0).unwrap());
        }
    }
    check("target", target).unwrap();
    target.stored().unwrap().unwrap_or(0)
}

#[test]
fn every_level_holds_what_it_acknowledges() {
    for level in [WriteLevel::NoDirectory, WriteLevel::Memory, WriteLevel::Os, WriteLevel::Disk] {
        assert_eq!(write(&M13Lockstep::create(level).unwrap()), 6 + 600, "{level:?}");
    }
}

#[test]
fn rows_that_were_not_acknowledged_are_noticed() {
    let lockstep = M13Lockstep::create(WriteLevel::NoDirectory).unwrap();
    write(&lockstep);
    lockstep.written().acknowledge(1);
    assert!(matches!(check("lockstep", &lockstep), Err(Error::Disagreement { .. })));
}

#[test]
fn sqlite_holds_what_it_acknowledges() {
    for synchronous in [SqliteSynchronous::Full, SqliteSynchronous::Normal] {
        match SqliteWrites::create(synchronous) {
            Err(Error::Missing { .. }) => {}
            sqlite => assert_eq!(write(&sqlite.unwrap()), 606),
        }
    }
}

#[test]
fn the_log_has_more_bytes_than_the_rows() {
    let lockstep = M13Lockstep::create(WriteLevel::Os).unwrap();
    let before = lockstep.log_bytes().unwrap();
    let mut writer = lockstep.writer(100).unwrap();
    (0..10).for_each(|_| writer.serve(0).unwrap());
    let row = (lockstep.log_bytes().unwrap() - before) / 1_000;
    assert!((ROW_BYTES as u64 / 2..4 * ROW_BYTES as u64).contains(&row), "{row} bytes");
}

#[test]
fn blocks_are_written_in_turn() {
    let blocks = SyncedBlocks::create().unwrap();
    let mut writer = blocks.writer(1).unwrap();
    (0..3).for_each(|_| writer.serve(0).unwrap());
    assert_eq!(blocks.stored().unwrap(), None);
}

#[test]
fn an_insert_has_all_rows() {
    let statement = insert_statement(Dialect::MariaDb, 2);
    let row = "(?, ?, ?, ?, ?, ?, ?, ?)";
    assert_eq!(statement.sql, format!("INSERT INTO puts VALUES {row}, {row}"));
    assert_eq!(statement.parameters, (0..16).collect::<Vec<usize>>());
}
