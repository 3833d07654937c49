//! The database in memory that is given the surviving operations: what the directory is to have.

use std::sync::Arc;

use lockstep_engine::{Database, Session};
use lockstep_host::ManualClock;

use crate::{
    observation::Observation,
    operation::{Action, DrawnOperation, is_done},
};

/// When the clock of the workload begins, in milliseconds since the epoch.
pub const BEGIN_MS: i64 = 1_700_000_000_000;

/// A database in memory, with a session for each writer.
#[derive(Debug)]
pub struct ModelDatabase {
    database: Database,
    clock: Arc<ManualClock>,
    sessions: Vec<Session>,
    now_ms: i64,
}

impl ModelDatabase {
    /// Makes an empty database.
    pub fn new(writers: usize) -> Self {
        let clock = Arc::new(ManualClock::new(BEGIN_MS));
        let database = Database::with_clock(Arc::<ManualClock>::clone(&clock));
        let mut model = Self { database, clock, sessions: Vec::new(), now_ms: BEGIN_MS };
        model.reopen(writers, BEGIN_MS);
        model
    }

    /// Gives each writer a new session, as after opening a directory.
    pub fn reopen(&mut self, writers: usize, now_ms: i64) {
        self.now_ms = now_ms;
        self.clock.set_ms(now_ms);
        self.sessions = (0..writers).map(|_| self.database.session()).collect();
    }

    /// Does an operation of a writer; returns its outcome, `None` where it needs a directory.
    pub fn run(&self, writer: usize, operation: &DrawnOperation) -> Option<String> {
        (!operation.needs_directory).then(|| operation.action.run(&self.sessions[writer]))
    }

    /// Does what every workload begins with.
    pub fn create(&self, action: &Action) {
        let done = action.run(&self.sessions[0]);
        assert!(is_done(&done), "{done}");
    }

    /// Describes the database.
    pub fn observe(&self) -> Observation {
        Observation::of(&self.database, self.sessions.len(), self.now_ms)
    }
}
