//! Jobs: LOAD DATA, INTO OUTFILE and the statements of offline mode, for SHOW JOBS and STOP JOB.
//!
//! A job runs within its statement. It gets its number when it begins, and the log has a record of
//! its beginning and one of its end, in which the order of the ends is free. A job without an end is
//! one that runs, or one whose process ended first, which opening the directory finds out.
//!
//! Logs of older versions have the ends only, in the order of their numbers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::{
    CallProgress, CallStep, Interrupt, QueryContext, QueryLimits,
    sync::{Condvar, Mutex, MutexGuard},
};
use serde::{Deserialize, Serialize};

use crate::{Database, Output, Session, catalog::CatalogRecord, context::checkpoint};

/// The most jobs that are recorded; the oldest ones that have ended are dropped.
const JOBS_MAX: usize = 1_000;

/// How often a statement that waits for the end of a job checks whether it was interrupted.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The error of a job whose process ended first.
const LOST: &str = "the process ended while the job was running";

/// A job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) id: i32,
    pub(crate) kind: String,
    pub(crate) start_ms: i64,
    /// `None` while it runs, and where its process ended first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) end_ms: Option<i64>,
    /// The statement.
    pub(crate) sql: String,
    /// The message of the error that it failed with.
    pub(crate) error: Option<String>,
    /// Whether STOP JOB ended it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_stopped: bool,
    /// The rows that it loaded, wrote or returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rows: Option<u64>,
}

/// What became of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobState {
    Running,
    Finished,
    Failed,
    Stopped,
}

impl JobState {
    /// Returns the name in SHOW JOBS.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Finished => "Finished",
            Self::Failed => "Failed",
            Self::Stopped => "Stopped",
        }
    }
}

impl Job {
    /// Returns what became of it.
    pub(crate) fn state(&self) -> JobState {
        match (&self.error, self.end_ms) {
            _ if self.is_stopped => JobState::Stopped,
            (Some(_), _) => JobState::Failed,
            (None, None) => JobState::Running,
            (None, Some(_)) => JobState::Finished,
        }
    }
}

/// What a job that runs shares with others.
#[derive(Debug, Clone)]
struct RunningJob {
    /// The id of its session.
    session: u64,
    context: QueryContext,
    progress: Arc<CallProgress>,
    is_stopped: bool,
}

/// A job as it is shown.
#[derive(Debug, Clone)]
pub(crate) struct ShownJob {
    pub(crate) job: Job,
    /// What it does, and the fraction of that which is done.
    pub(crate) progress: Option<(CallStep, f64)>,
}

/// How a job ended.
struct JobEnd {
    end_ms: i64,
    error: Option<String>,
    /// The rows; those that it has reported where `None`.
    rows: Option<u64>,
}

/// The recorded jobs of an engine, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    jobs: Vec<Job>,
    last_id: i32,
    running: BTreeMap<i32, RunningJob>,
}

impl Jobs {
    /// Records the beginning of a job, and gives it its number.
    fn start(&mut self, job: Job, running: RunningJob) -> Job {
        let job = Job { id: self.last_id.saturating_add(1), ..job };
        let is_next = self.restore(job.clone());
        debug_assert!(is_next, "jobs are in the order of their numbers");
        self.running.insert(job.id, running);
        job
    }

    /// Records the end of a job that runs.
    fn end(&mut self, id: i32, end: JobEnd) -> Option<Job> {
        let running = self.running.remove(&id)?;
        let job = self.jobs.iter_mut().find(|job| job.id == id)?;
        debug_assert_eq!(job.state(), JobState::Running, "a job ends once");
        job.end_ms = Some(end.end_ms);
        job.is_stopped = running.is_stopped && end.error.is_some();
        job.rows = Some(end.rows.unwrap_or_else(|| running.progress.rows()));
        job.error = end.error;
        Some(job.clone())
    }

    /// Records a job that has a number. Returns `false` and does not when that does not follow the
    /// last one, or nothing can follow it.
    pub(crate) fn restore(&mut self, job: Job) -> bool {
        if job.id <= self.last_id || job.id == i32::MAX {
            return false;
        }
        self.last_id = job.id;
        self.jobs.push(job);
        let surplus = self.jobs.len().saturating_sub(JOBS_MAX);
        if surplus > 0 {
            let ended = self.jobs.iter().filter(|job| job.state() != JobState::Running);
            let dropped: Vec<i32> = ended.take(surplus).map(|job| job.id).collect();
            self.jobs.retain(|job| !dropped.contains(&job.id));
        }
        true
    }

    /// Records the end of a job. Its beginning may be missing: older versions did not log it, and a
    /// full disk fails no statement that is a job. Returns `false` where the job has ended already, or
    /// its number is none.
    pub(crate) fn restore_end(&mut self, job: Job) -> bool {
        if job.id > self.last_id || job.id < 1 {
            return self.restore(job);
        }
        match self.jobs.binary_search_by_key(&job.id, |known| known.id) {
            Ok(at) if self.jobs[at].state() == JobState::Running => self.jobs[at] = job,
            Ok(_) => return false,
            Err(at) => self.jobs.insert(at, job),
        }
        debug_assert!(self.jobs.is_sorted_by_key(|job| job.id), "by their numbers");
        true
    }

    /// Marks the jobs that no process runs any more, when a directory has been read.
    pub(crate) fn mark_lost(&mut self) {
        let is_lost = |job: &&mut Job| {
            job.state() == JobState::Running && !self.running.contains_key(&job.id)
        };
        self.jobs.iter_mut().filter(is_lost).for_each(|job| job.error = Some(LOST.to_owned()));
    }

    /// Returns the jobs, oldest first.
    pub(crate) fn all(&self) -> &[Job] {
        &self.jobs
    }

    /// Returns the jobs as they are shown, oldest first.
    pub(crate) fn shown(&self) -> Vec<ShownJob> {
        self.jobs.iter().map(|job| self.show(job)).collect()
    }

    /// Returns the job of an id as it was written.
    pub(crate) fn find(&self, id: &str) -> Option<ShownJob> {
        self.jobs.iter().find(|job| job.id.to_string() == id).map(|job| self.show(job))
    }

    fn show(&self, job: &Job) -> ShownJob {
        let mut job = job.clone();
        let running = self.running.get(&job.id);
        if let Some(running) = running {
            job.rows = Some(running.progress.rows());
        }
        ShownJob { job, progress: running.and_then(|running| running.progress.get()) }
    }

    fn find_running(&mut self, id: &str) -> Option<&mut RunningJob> {
        self.running.iter_mut().find(|(number, _)| number.to_string() == id).map(|(_, job)| job)
    }

    /// Removes the record of a job, if there is one.
    pub(crate) fn remove(&mut self, id: &str) {
        self.jobs.retain(|job| job.id.to_string() != id);
    }
}

/// The jobs, and who waits for the end of one.
#[derive(Debug, Default)]
pub(crate) struct JobList {
    jobs: Mutex<Jobs>,
    ended: Condvar,
}

impl JobList {
    /// Locks the jobs.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock()
    }
}

impl Database {
    /// Removes the record of a job.
    pub(crate) fn delete_job(&self, id: &str) -> Result<()> {
        let mut jobs = self.jobs();
        if jobs.find_running(id).is_some() {
            return Diagnostic::new(code::DATABASE_IN_USE, format!("job {id} is running"))
                .with_hint(format!("Stop it with STOP JOB {id}."))
                .err();
        }
        if jobs.find(id).is_some() {
            self.log_record(&CatalogRecord::DeleteJob { id: id.to_owned() })?;
            jobs.remove(id);
        }
        Ok(())
    }

    /// Cancels a job, if it runs, and waits for its end.
    pub(crate) fn stop_job(&self, id: &str) -> Result<()> {
        let list = self.job_list();
        let mut jobs = list.lock();
        while let Some(running) = jobs.find_running(id) {
            running.is_stopped = true;
            running.context.cancel();
            (jobs, _) = list.ended.wait_for(jobs, POLL_INTERVAL);
            checkpoint()?;
        }
        Ok(())
    }
}

/// A job that its statement runs. Where the statement panics, dropping it records the failure.
struct RunJob<'s> {
    database: &'s Database,
    id: i32,
    context: QueryContext,
    has_ended: bool,
}

impl<'s> RunJob<'s> {
    fn start(session: &'s Session, kind: &str, sql: &str) -> Self {
        let (database, progress) = (&session.database, Arc::new(CallProgress::default()));
        let context = QueryContext::nested().watched(Arc::clone(&progress));
        let job = Job {
            id: 0,
            kind: kind.to_owned(),
            start_ms: database.now_ms(),
            end_ms: None,
            sql: sql.trim().to_owned(),
            error: None,
            is_stopped: false,
            rows: None,
        };
        let running = RunningJob {
            session: session.id(),
            context: context.clone(),
            progress,
            is_stopped: false,
        };
        let mut jobs = database.jobs();
        let job = jobs.start(job, running);
        let id = job.id;
        // Under the lock, so that the log has the numbers in their order.
        database.log_aside(&CatalogRecord::StartJob { job });
        drop(jobs);
        Self { database, id, context, has_ended: false }
    }

    fn end(&mut self, error: Option<String>, rows: Option<u64>) {
        self.has_ended = true;
        let list = self.database.job_list();
        let mut jobs = list.lock();
        let end = JobEnd { end_ms: self.database.now_ms(), error, rows };
        if let Some(job) = jobs.end(self.id, end) {
            self.database.log_aside(&CatalogRecord::EndJob { job });
        }
        list.ended.notify_all();
    }
}

impl Drop for RunJob<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end(Some("the statement ended unexpectedly".to_owned()), None);
        }
    }
}

impl Session {
    /// Runs a statement as a job: it is listed while it runs, STOP JOB ends it, `job_timeout` limits
    /// it, and its end is recorded.
    pub(crate) fn run_job(
        &self,
        kind: &'static str,
        sql: &str,
        run: impl FnOnce() -> Result<Output>,
    ) -> Result<Output> {
        let mut job = RunJob::start(self, kind, sql);
        let limits = QueryLimits { timeout_ms: self.job_timeout_ms(), memory_bytes: None };
        let result = job.context.clone().run(|| {
            if limits.is_none() {
                return run();
            }
            let limited = QueryContext::limited(self.database.clock(), limits);
            limited.run(run).map_err(|error| of_timeout(error, &limited, limits))
        });
        match &result {
            Ok(output) => {
                let rows = || u64::try_from(output.row_count()).unwrap_or(u64::MAX);
                job.end(None, Some(output.rows_affected.unwrap_or_else(rows)));
            }
            Err(error) => job.end(Some(error.message.clone()), None),
        }
        result
    }

    /// Returns whether a job that runs is one of this session's user, or of this session.
    pub(crate) fn owns_job(&self, id: &str) -> bool {
        let session = self.database.jobs().find_running(id).map(|job| job.session);
        session.is_some_and(|session| session == self.id() || self.owns_session(session))
    }
}

/// Names the limit that a job has exceeded, where it is that of jobs.
fn of_timeout(
    error: Box<Diagnostic>,
    limited: &QueryContext,
    limits: QueryLimits,
) -> Box<Diagnostic> {
    let timed_out = match limited.check() {
        Err(Interrupt::TimedOut { limit_ms }) if limits.timeout_ms == Some(limit_ms) => limit_ms,
        _ => return error,
    };
    if error.code != code::QUERY_CANCELED {
        return error;
    }
    let message = format!("job exceeded job_timeout ({timed_out} ms)");
    let diagnostic = Diagnostic::new(code::QUERY_CANCELED, message)
        .with_kind(Kind::FreeResources)
        .with_hint("Raise job_timeout with SET (0 means no limit).");
    Box::new(diagnostic)
}

#[cfg(test)]
mod tests;
