//! Jobs: what LOAD DATA and offline statements leave behind for SHOW JOBS.
//!
//! `session` notes them. A job runs within its statement, so that every job is over when it can be
//! seen: there is nothing to wait for and nothing to stop.

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_row::{DataType, Value};

use crate::{Output, Session, session::done, show};

/// Jobs that are remembered; older ones are forgotten.
const JOBS_MAX: usize = 1_000;

/// A job that ran.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    id: i32,
    kind: &'static str,
    start_ms: i64,
    end_ms: i64,
    /// The statement.
    sql: String,
    /// Why it failed.
    error: Option<String>,
}

/// All jobs of a database engine, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    jobs: Vec<Job>,
    last_id: i32,
}

impl Session {
    /// Runs a statement as a job.
    pub(crate) fn as_job(
        &self,
        kind: &'static str,
        sql: &str,
        run: impl FnOnce() -> Result<Output>,
    ) -> Result<Output> {
        let start_ms = self.database.now_ms();
        let result = run();
        let end_ms = self.database.now_ms();
        let mut jobs = self.database.jobs();
        jobs.last_id += 1;
        let error = result.as_ref().err().map(|error| error.message.clone());
        let (id, sql) = (jobs.last_id, sql.trim().to_owned());
        jobs.jobs.push(Job { id, kind, start_ms, end_ms, sql, error });
        let surplus = jobs.jobs.len().saturating_sub(JOBS_MAX);
        jobs.jobs.drain(..surplus);
        result
    }

    /// SHOW JOBS [FROM component] [LIKE 'pattern']. There is one place where jobs run, whatever
    /// the component.
    pub(crate) fn show_jobs(&self, like: Option<&str>) -> Result<Output> {
        let jobs = self.database.jobs().jobs.clone();
        let is_shown =
            |job: &&Job| like.is_none_or(|pattern| show::is_like(&job.id.to_string(), pattern));
        job_table(jobs.iter().filter(is_shown))
    }

    pub(crate) fn show_job(&self, id: &str) -> Result<Output> {
        job_table(std::iter::once(&self.find_job(id)?))
    }

    pub(crate) fn show_job_log(&self, id: &str) -> Result<Output> {
        let job = self.find_job(id)?;
        let outcome = job.error.map_or_else(|| "finished".to_owned(), |e| format!("failed: {e}"));
        show::list("log", [job.sql.as_str(), outcome.as_str()].into_iter())
    }

    /// STOP JOB: it is over already, which the answer shows.
    pub(crate) fn stop_job(&self, id: &str) -> Result<Output> {
        self.show_job(id)
    }

    /// DELETE JOB: forgets it.
    pub(crate) fn delete_job(&self, id: &str) -> Output {
        self.database.jobs().jobs.retain(|job| job.id.to_string() != id);
        done("DELETE JOB")
    }

    fn find_job(&self, id: &str) -> Result<Job> {
        let jobs = self.database.jobs();
        let found = jobs.jobs.iter().find(|job| job.id.to_string() == id);
        found.cloned().ok_or_else(|| {
            Box::new(Diagnostic::new(code::UNDEFINED_OBJECT, format!("job {id} does not exist")))
        })
    }
}

fn job_table<'a>(jobs: impl Iterator<Item = &'a Job>) -> Result<Output> {
    let text = |text: &str| Value::String(text.into());
    let rows: Vec<Vec<Value>> = jobs
        .map(|job| {
            let state = if job.error.is_some() { "Failed" } else { "Finished" };
            vec![
                Value::Int(job.id),
                text(job.kind),
                text(state),
                Value::Timestamp(job.start_ms),
                Value::Timestamp(job.end_ms),
                text(&job.sql),
                text("local"),
                text(""),
                text(job.error.as_deref().unwrap_or_default()),
            ]
        })
        .collect();
    let columns = [
        ("id", DataType::Int),
        ("job_type", DataType::String),
        ("state", DataType::String),
        ("start_time", DataType::Timestamp),
        ("end_time", DataType::Timestamp),
        ("parameter", DataType::String),
        ("cluster", DataType::String),
        ("application_id", DataType::String),
        ("error", DataType::String),
    ];
    show::values(&columns, &rows)
}
