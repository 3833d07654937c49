//! Jobs: a record of each LOAD DATA and each statement in offline mode, for SHOW JOBS.
//!
//! A job runs within its statement, so that every recorded job has ended: there is nothing to wait
//! for and nothing to stop.

use lockstep_diagnostic::Result;
use serde::{Deserialize, Serialize};

use crate::{Database, Output, Session, catalog::CatalogRecord};

/// The most jobs that are recorded; older ones are dropped.
const JOBS_MAX: usize = 1_000;

/// A job that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) id: i32,
    pub(crate) kind: String,
    pub(crate) start_ms: i64,
    pub(crate) end_ms: i64,
    /// The statement.
    pub(crate) sql: String,
    /// The message of the error that it failed with.
    pub(crate) error: Option<String>,
}

/// The recorded jobs of an engine, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    jobs: Vec<Job>,
    last_id: i32,
}

impl Jobs {
    /// Records a job, and gives it its id.
    fn record(&mut self, job: Job) -> Job {
        let job = Job { id: self.last_id.saturating_add(1), ..job };
        let is_next = self.restore(job.clone());
        debug_assert!(is_next, "jobs are in the order they ended");
        job
    }

    /// Records a job that has an id. Returns `false` and does not when that does not follow the last
    /// one.
    pub(crate) fn restore(&mut self, job: Job) -> bool {
        if job.id <= self.last_id {
            return false;
        }
        debug_assert!(job.id > self.last_id, "jobs are in the order they ended");
        self.last_id = job.id;
        self.jobs.push(job);
        let surplus = self.jobs.len().saturating_sub(JOBS_MAX);
        self.jobs.drain(..surplus);
        true
    }

    /// Returns the jobs, oldest first.
    pub(crate) fn all(&self) -> &[Job] {
        &self.jobs
    }

    /// Returns the job of an id as it was written.
    pub(crate) fn find(&self, id: &str) -> Option<&Job> {
        self.jobs.iter().find(|job| job.id.to_string() == id)
    }

    /// Removes the record of a job, if there is one.
    pub(crate) fn remove(&mut self, id: &str) {
        self.jobs.retain(|job| job.id.to_string() != id);
    }
}

impl Database {
    /// Records a job.
    fn record_job(&self, job: Job) {
        let mut jobs = self.jobs();
        let job = jobs.record(job);
        self.log_aside(&CatalogRecord::EndJob { job });
    }

    /// Removes the record of a job.
    pub(crate) fn delete_job(&self, id: &str) -> Result<()> {
        let mut jobs = self.jobs();
        if jobs.find(id).is_some() {
            self.log_record(&CatalogRecord::DeleteJob { id: id.to_owned() })?;
            jobs.remove(id);
        }
        Ok(())
    }
}

impl Session {
    /// Runs a statement as a job, and records it.
    pub(crate) fn run_job(
        &self,
        kind: &'static str,
        sql: &str,
        run: impl FnOnce() -> Result<Output>,
    ) -> Result<Output> {
        let start_ms = self.database.now_ms();
        let result = run();
        let end_ms = self.database.now_ms();
        let error = result.as_ref().err().map(|error| error.message.clone());
        let sql = sql.trim().to_owned();
        let kind = kind.to_owned();
        self.database.record_job(Job { id: 0, kind, start_ms, end_ms, sql, error });
        result
    }
}
