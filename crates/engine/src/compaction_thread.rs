//! The thread that merges files of tables.
//!
//! It looks at all tables from time to time, and merges what is to be merged, one table after the other. What
//! it replaces is read on by those who read it; the next checkpoint lists the new files, and removes the others.
//! It ends with the engine, and keeps it alive only while it looks.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, Ordering},
};

use lockstep_host::Threads;
use lockstep_table::{Table, TableError};

use crate::{Database, append::table_error, database::EngineState};

/// How often the thread looks at the tables.
const LOOK_MS: u32 = 500;
/// After a merge that failed, so many looks are left out.
const LOOKS_LEFT_OUT: u32 = 60;

/// Starts the thread. Without one, files are not merged: reads take longer, and expired rows stay on the disk.
pub(crate) fn start(threads: Threads, engine: Weak<EngineState>, is_over: Arc<AtomicBool>) {
    let started = threads.spawn_background("lockstep-compaction", move || run(&engine, &is_over));
    if started.is_err() {
        lockstep_host::log::warn(
            "could not start the compaction thread; files of disk tables are not merged",
        );
    }
}

fn run(engine: &Weak<EngineState>, is_over: &AtomicBool) {
    let mut left_out = 0;
    loop {
        lockstep_host::pause(LOOK_MS);
        // Relaxed, as below: it guards no data.
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        if left_out > 0 {
            left_out -= 1;
            continue;
        }
        let Some(engine) = engine.upgrade() else { return };
        let tables = Database::unowned(engine).stored_tables();
        for table in tables {
            if let Err(error) = compact(&table, is_over) {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let message = table_error(&error).message;
                lockstep_host::log::warn(&format!("compaction failed: {message}"));
                left_out = LOOKS_LEFT_OUT;
            }
        }
    }
}

/// Merges files of a table until none is to be merged.
fn compact(table: &Table, is_over: &AtomicBool) -> Result<(), TableError> {
    debug_assert!(
        table.parts().is_none() || table.log_id().is_some(),
        "files are of logged tables"
    );
    let checkpoint = &mut || match is_over.load(Ordering::Relaxed) {
        true => Err(TableError::Dropped),
        false => Ok(()),
    };
    loop {
        match table.compact(checkpoint) {
            Ok(true) => {}
            Ok(false) | Err(TableError::Dropped) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
