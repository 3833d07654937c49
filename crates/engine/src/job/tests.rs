//! The record of jobs: numbers, ends in any order, and logs of older versions.

use std::sync::Arc;

use lockstep_host::QueryContext;

use super::{JOBS_MAX, Job, JobEnd, JobState, Jobs, LOST, RunningJob};

fn job(id: i32) -> Job {
    Job {
        id,
        kind: "ImportOnlineStorage".to_owned(),
        start_ms: 1,
        end_ms: None,
        sql: "LOAD DATA".to_owned(),
        error: None,
        is_stopped: false,
        rows: None,
    }
}

fn ended(id: i32) -> Job {
    Job { end_ms: Some(2), rows: Some(3), ..job(id) }
}

fn running() -> RunningJob {
    RunningJob {
        session: 1,
        context: QueryContext::new(),
        progress: Arc::default(),
        is_stopped: false,
    }
}

fn end(error: Option<&str>) -> JobEnd {
    JobEnd { end_ms: 2, error: error.map(str::to_owned), rows: Some(3) }
}

fn states(jobs: &Jobs) -> Vec<(i32, JobState)> {
    jobs.all().iter().map(|job| (job.id, job.state())).collect()
}

#[test]
fn jobs_have_their_numbers_when_they_begin_and_end_in_any_order() {
    let mut jobs = Jobs::default();
    for _ in 0..3 {
        jobs.start(job(0), running());
    }
    jobs.find_running("3").unwrap().is_stopped = true;
    jobs.find_running("1").unwrap().is_stopped = true;
    assert_eq!(jobs.end(3, end(Some("cancelled"))).unwrap().id, 3);
    // It was done before it noticed.
    jobs.end(1, end(None));
    assert!(jobs.end(1, end(None)).is_none(), "it has ended");
    let expected = [(1, JobState::Finished), (2, JobState::Running), (3, JobState::Stopped)];
    assert_eq!(states(&jobs), expected);
}

#[test]
fn a_log_restores_the_jobs_and_those_that_were_running_are_lost() {
    let mut jobs = Jobs::default();
    for id in 1..4 {
        assert!(jobs.restore(job(id)));
    }
    assert!(!jobs.restore(job(3)), "numbers are given once");
    assert!(jobs.restore_end(ended(2)));
    assert!(!jobs.restore_end(ended(2)), "a job ends once");
    let own = jobs.start(job(0), running()).id;
    jobs.mark_lost();
    let expected = [
        (1, JobState::Failed),
        (2, JobState::Finished),
        (3, JobState::Failed),
        (own, JobState::Running),
    ];
    assert_eq!(states(&jobs), expected);
    assert_eq!(jobs.find("1").unwrap().job.error.as_deref(), Some(LOST));
}

#[test]
fn ends_without_a_beginning_are_jobs_too() {
    let mut jobs = Jobs::default();
    // As older versions logged them.
    assert!(jobs.restore_end(ended(1)) && jobs.restore_end(ended(3)));
    // Its beginning found a full disk.
    assert!(jobs.restore_end(ended(2)));
    let expected = [1, 2, 3].map(|id| (id, JobState::Finished));
    assert_eq!(states(&jobs), expected);
    let old = r#"{"id":7,"kind":"k","start_ms":1,"end_ms":2,"sql":"s","error":null}"#;
    let read: Job = serde_json::from_str(old).unwrap();
    assert_eq!((read.end_ms, read.state(), read.rows), (Some(2), JobState::Finished, None));
    assert_eq!(serde_json::to_string(&read).unwrap(), old);
}

#[test]
fn a_job_that_runs_is_never_dropped() {
    let mut jobs = Jobs::default();
    let first = jobs.start(job(0), running()).id;
    for id in 2..=i32::try_from(JOBS_MAX).unwrap() + 5 {
        assert!(jobs.restore(ended(id)));
    }
    assert_eq!(jobs.all().len(), JOBS_MAX);
    assert_eq!((jobs.all()[0].id, jobs.all()[1].id), (first, 7));
}
