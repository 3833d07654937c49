//! SHOW JOBS, SHOW JOB, SHOW JOBLOG, STOP JOB and DELETE JOB.

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_function::scalar::{CaseSensitivity, is_like};
use lockstep_row::{DataType, Value};

use crate::{
    Output, Session,
    catalog::QualifiedName,
    job::{JobState, ShownJob},
};

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
    ("step", DataType::String),
    ("row_count", DataType::BigInt),
    ("fraction", DataType::Double),
];

impl Session {
    /// Runs SHOW JOBS [FROM component] [LIKE 'pattern']. All jobs run in this process, whatever the
    /// component.
    pub(crate) fn show_jobs(&self, like: Option<&str>) -> Result<Output> {
        let jobs = self.database.jobs().shown();
        let is_shown = |job: &&ShownJob| {
            like.is_none_or(|pattern| {
                is_like(&job.job.id.to_string(), pattern, "", CaseSensitivity::Sensitive)
            })
        };
        let listed = jobs.iter().filter(is_shown).map(job_row);
        debug_assert!(
            jobs.is_sorted_by_key(|job| job.job.id),
            "jobs are in the order of their numbers"
        );
        let others = if like.is_some() { Vec::new() } else { self.background_jobs() };
        Output::of_values(JOBS, &listed.chain(others).collect::<Vec<_>>())
    }

    /// Lists the pre-aggregates that are being made, which are nobody's statement: their number is 0.
    fn background_jobs(&self) -> Vec<Vec<Value>> {
        let text = |text: String| Value::String(text.into());
        let objects = self.database.objects();
        let deployments = objects.databases().values().flat_map(|found| found.deployments.values());
        let seen = deployments.filter(|found| {
            let QualifiedName { database, name } = found.name();
            self.caller().sees_deployment(&objects, database, name)
        });
        let all = seen.flat_map(|found| {
            found.request.pre_aggregates().iter().map(move |one| (found.name(), one))
        });
        let running = all.filter_map(|(deployment, pre_aggregate)| {
            let size = pre_aggregate.usage().size;
            let progress = format!(
                "{deployment}: {} keys pending, {} rows aggregated",
                size.waiting, size.folded
            );
            (size.waiting > 0).then(|| {
                vec![
                    Value::Int(0),
                    text("PreAggregate".to_owned()),
                    text("Running".to_owned()),
                    Value::Null,
                    Value::Null,
                    text(progress),
                    text("local".to_owned()),
                    text(String::new()),
                    text(String::new()),
                    Value::Null,
                    Value::Null,
                    Value::Null,
                ]
            })
        });
        running.collect()
    }

    /// Runs SHOW JOB.
    pub(crate) fn show_job(&self, id: &str) -> Result<Output> {
        Output::of_values(JOBS, &[job_row(&self.find_job(id)?)])
    }

    /// Runs SHOW JOBLOG.
    pub(crate) fn show_job_log(&self, id: &str) -> Result<Output> {
        let job = self.find_job(id)?.job;
        let outcome = match (job.state(), &job.error) {
            (JobState::Running, _) => "running".to_owned(),
            (JobState::Stopped, _) => "stopped".to_owned(),
            (_, Some(error)) => format!("failed: {error}"),
            (_, None) => "finished".to_owned(),
        };
        Output::of_list("log", [job.sql.as_str(), outcome.as_str()].into_iter())
    }

    /// Runs STOP JOB: cancels the job, waits for its end, and shows it.
    pub(crate) fn stop_job(&self, id: &str) -> Result<Output> {
        self.find_job(id)?;
        self.database.stop_job(id)?;
        self.show_job(id)
    }

    /// Runs DELETE JOB: removes the record of the job.
    pub(crate) fn delete_job(&self, id: &str) -> Result<Output> {
        self.database.delete_job(id)?;
        Ok(Output::of_message("DELETE JOB"))
    }

    fn find_job(&self, id: &str) -> Result<ShownJob> {
        self.database.jobs().find(id).ok_or_else(|| {
            Box::new(Diagnostic::new(code::UNDEFINED_OBJECT, format!("job {id} does not exist")))
        })
    }
}

/// Returns the row of a job. The fraction is that of its step; one that has finished has done all.
fn job_row(ShownJob { job, progress }: &ShownJob) -> Vec<Value> {
    let text = |text: &str| Value::String(text.into());
    let fraction = match (job.state(), progress) {
        (JobState::Running, Some((_, fraction))) => Value::Double(*fraction),
        (JobState::Finished, _) => Value::Double(1.0),
        _ => Value::Null,
    };
    vec![
        Value::Int(job.id),
        text(&job.kind),
        text(job.state().name()),
        Value::Timestamp(job.start_ms),
        job.end_ms.map_or(Value::Null, Value::Timestamp),
        text(&job.sql),
        text("local"),
        text(""),
        text(job.error.as_deref().unwrap_or_default()),
        progress.map_or(Value::Null, |(step, _)| text(step.text())),
        rows(job.rows),
        fraction,
    ]
}

/// Returns the value of a number of rows.
fn rows(count: Option<u64>) -> Value {
    count.map_or(Value::Null, |count| Value::BigInt(i64::try_from(count).unwrap_or(i64::MAX)))
}
