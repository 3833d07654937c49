//! The system tables about what happens: sessions, jobs, the audit record, slow requests.

use lockstep_row::{DataType, Value};

use super::{SystemTable, milliseconds, number, optional, text};
use crate::{
    Database,
    access::Caller,
    job::{JobState, ShownJob},
};

pub(super) const AUDIT: SystemTable = SystemTable {
    name: "audit",
    columns: &[
        ("time", DataType::Timestamp),
        ("user_name", DataType::String),
        ("address", DataType::String),
        ("application", DataType::String),
        ("protocol", DataType::String),
        ("session_id", DataType::BigInt),
        ("request_id", DataType::String),
        ("action", DataType::String),
        ("objects", DataType::String),
        ("outcome", DataType::String),
    ],
    rows: audit,
};

pub(super) const JOBS: SystemTable = SystemTable {
    name: "jobs",
    columns: &[
        ("id", DataType::Int),
        ("kind", DataType::String),
        ("state", DataType::String),
        ("started", DataType::Timestamp),
        ("ended", DataType::Timestamp),
        ("statement", DataType::String),
        ("error", DataType::String),
        ("step", DataType::String),
        ("row_count", DataType::BigInt),
        ("fraction", DataType::Double),
    ],
    rows: jobs,
};

pub(super) const SESSIONS: SystemTable = SystemTable {
    name: "sessions",
    columns: &[
        ("id", DataType::BigInt),
        ("user_name", DataType::String),
        ("in_process", DataType::Bool),
        ("address", DataType::String),
        ("application", DataType::String),
        ("protocol", DataType::String),
        ("started", DataType::Timestamp),
        ("running", DataType::String),
        ("running_since", DataType::Timestamp),
        ("request_id", DataType::String),
    ],
    rows: sessions,
};

pub(super) const SLOW_REQUESTS: SystemTable = SystemTable {
    name: "slow_requests",
    columns: &[
        ("time", DataType::Timestamp),
        ("user_name", DataType::String),
        ("session_id", DataType::BigInt),
        ("request_id", DataType::String),
        ("action", DataType::String),
        ("statement", DataType::String),
        ("elapsed_ms", DataType::Double),
        ("plan", DataType::String),
    ],
    rows: slow_requests,
};

/// Whose records a caller sees.
struct RecordFilter<'c> {
    is_admin: bool,
    caller: &'c Caller,
}

impl<'c> RecordFilter<'c> {
    fn new(database: &Database, caller: &'c Caller) -> Self {
        Self { is_admin: caller.is_admin(&database.objects()), caller }
    }

    fn sees(&self, user: &str) -> bool {
        self.is_admin || self.caller.is_user(user)
    }
}

fn audit(database: &Database, caller: &Caller) -> Vec<Vec<Value>> {
    let filter = RecordFilter::new(database, caller);
    let events = database.audit_events();
    let row = |event: &crate::AuditEvent| {
        vec![
            Value::Timestamp(event.time_ms),
            text(&event.user),
            optional(event.client.address.as_deref()),
            optional(event.client.application.as_deref()),
            optional(event.client.protocol.as_deref()),
            number(event.session),
            optional(event.request_id.as_deref()),
            text(&event.action),
            text(&event.objects.join(", ")),
            text(&event.outcome),
        ]
    };
    events.iter().filter(|event| filter.sees(&event.user)).map(row).collect()
}

/// Jobs have no user, and their statements have values: who has ADMIN sees them.
fn jobs(database: &Database, caller: &Caller) -> Vec<Vec<Value>> {
    if !RecordFilter::new(database, caller).is_admin {
        return Vec::new();
    }
    let jobs = database.jobs().shown();
    let row = |ShownJob { job, progress }: &ShownJob| {
        let fraction = match job.state() {
            JobState::Finished => Some(1.0),
            _ => progress.map(|(_, fraction)| fraction),
        };
        vec![
            Value::Int(job.id),
            text(&job.kind),
            text(&job.state().name().to_ascii_lowercase()),
            Value::Timestamp(job.start_ms),
            job.end_ms.map_or(Value::Null, Value::Timestamp),
            text(&job.sql),
            optional(job.error.as_deref()),
            optional(progress.map(|(step, _)| step.text())),
            job.rows.map_or(Value::Null, number),
            fraction.map_or(Value::Null, Value::Double),
        ]
    };
    jobs.iter().map(row).collect()
}

fn sessions(database: &Database, caller: &Caller) -> Vec<Vec<Value>> {
    let filter = RecordFilter::new(database, caller);
    let sessions = database.sessions();
    let row = |session: &crate::SessionInfo| {
        vec![
            number(session.id),
            text(&session.user),
            Value::Bool(session.is_in_process),
            optional(session.client.address.as_deref()),
            optional(session.client.application.as_deref()),
            optional(session.client.protocol.as_deref()),
            Value::Timestamp(session.started_ms),
            optional(session.running.as_deref()),
            session.running_since_ms.map_or(Value::Null, Value::Timestamp),
            optional(session.request_id.as_deref()),
        ]
    };
    sessions.iter().filter(|session| filter.sees(&session.user)).map(row).collect()
}

fn slow_requests(database: &Database, caller: &Caller) -> Vec<Vec<Value>> {
    let filter = RecordFilter::new(database, caller);
    let requests = database.slow_requests();
    let row = |request: &crate::SlowRequest| {
        vec![
            Value::Timestamp(request.time_ms),
            text(&request.user),
            number(request.session),
            optional(request.request_id.as_deref()),
            text(request.action),
            text(&request.text),
            milliseconds(request.elapsed_ns),
            optional(request.plan.as_deref()),
        ]
    };
    requests.iter().filter(|request| filter.sees(&request.user)).map(row).collect()
}
