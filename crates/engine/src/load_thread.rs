//! The thread that puts memory tables into memory after a directory was opened.
//!
//! Until it has come to a table, rows are read from its files, as those of a disk table are, with the same answers.
//! It begins with the smallest table, and ends when all are in memory, or with the engine. A table for which the
//! memory budget does not suffice stays on the disk, and is tried again from time to time.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, Ordering},
};

use lockstep_host::{Clock, QueryContext, Threads};
use lockstep_table::{Table, TableError};

use crate::{Database, append::table_error, database::EngineState};

/// How often the thread looks whether it is to end.
const LOOK_MS: u32 = 50;
/// After how many looks a table that could not be loaded is tried again.
const LOOKS_UNTIL_RETRY: u32 = 1_200;

/// Starts the thread. Without one, memory tables are read from their files.
pub(crate) fn start(threads: Threads, engine: Weak<EngineState>, is_over: Arc<AtomicBool>) {
    let started = threads.spawn_background("lockstep-load", move || run(&engine, &is_over));
    if started.is_err() {
        lockstep_host::log::warn(
            "could not start the load thread; memory tables are read from the disk",
        );
    }
}

fn run(engine: &Weak<EngineState>, is_over: &Arc<AtomicBool>) {
    let mut has_warned = false;
    loop {
        let Some(engine) = engine.upgrade() else { return };
        let database = Database::unowned(engine);
        let (clock, tables) = (Arc::clone(database.clock()), database.tables_to_load());
        drop(database);
        let mut failed = None;
        for table in tables {
            // Relaxed, as below: it guards no data.
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            if let Err(error) = load(&table, &clock, is_over) {
                failed = Some(error);
            }
        }
        let Some(error) = failed else { return };
        if !std::mem::replace(&mut has_warned, true) {
            let message = table_error(&error).message;
            lockstep_host::log::warn(&format!(
                "a memory table is still read from the disk: {message}"
            ));
        }
        for _ in 0..LOOKS_UNTIL_RETRY {
            lockstep_host::pause(LOOK_MS);
            if is_over.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

/// Puts a table into memory, unless the engine ends.
fn load(
    table: &Table,
    clock: &Arc<dyn Clock>,
    is_over: &Arc<AtomicBool>,
) -> Result<(), TableError> {
    debug_assert!(table.is_of_memory(), "a disk table stays on the disk");
    let is_over = Arc::clone(is_over);
    let context =
        QueryContext::polling(Arc::clone(clock), LOOK_MS, move || is_over.load(Ordering::Relaxed));
    match context.run(|| table.load_files()) {
        Err(TableError::Dropped | TableError::Interrupted(_)) => Ok(()),
        loaded => loaded,
    }
}
