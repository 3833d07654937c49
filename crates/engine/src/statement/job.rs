//! SHOW JOBS, SHOW JOB, SHOW JOBLOG, STOP JOB and DELETE JOB.

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_function::scalar::is_like;
use lockstep_row::{DataType, Value};

use crate::{Output, Session, job::Job};

/// The columns of SHOW JOBS.
const JOBS: &[(&str, DataType)] = &[
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

impl Session {
    /// Runs SHOW JOBS [FROM component] [LIKE 'pattern']. All jobs run in this process, whatever the
    /// component.
    pub(crate) fn show_jobs(&self, like: Option<&str>) -> Result<Output> {
        let jobs = self.database.jobs().all().to_vec();
        let is_shown =
            |job: &&Job| like.is_none_or(|pattern| is_like(&job.id.to_string(), pattern));
        job_table(jobs.iter().filter(is_shown))
    }

    /// Runs SHOW JOB.
    pub(crate) fn show_job(&self, id: &str) -> Result<Output> {
        job_table(std::iter::once(&self.find_job(id)?))
    }

    /// Runs SHOW JOBLOG.
    pub(crate) fn show_job_log(&self, id: &str) -> Result<Output> {
        let job = self.find_job(id)?;
        let outcome = job.error.map_or_else(|| "finished".to_owned(), |e| format!("failed: {e}"));
        Output::of_list("log", [job.sql.as_str(), outcome.as_str()].into_iter())
    }

    /// Runs STOP JOB: shows the job, which has ended already.
    pub(crate) fn stop_job(&self, id: &str) -> Result<Output> {
        self.show_job(id)
    }

    /// Runs DELETE JOB: removes the record of the job.
    pub(crate) fn delete_job(&self, id: &str) -> Result<Output> {
        self.database.delete_job(id)?;
        Ok(Output::of_message("DELETE JOB"))
    }

    fn find_job(&self, id: &str) -> Result<Job> {
        self.database.jobs().find(id).cloned().ok_or_else(|| {
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
                text(&job.kind),
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
    Output::of_values(JOBS, &rows)
}
