//! The entrance: every call of a session passes [`Session::enter`].
//!
//! It refuses a closed engine and a session that was ended, checks what the call needs, makes it
//! visible in the list of sessions, so that it can be cancelled, reserves its memory, runs it under its
//! limits, and records its outcome. What a front end says of a call is a [`CallOptions`]; it is bound to the
//! thread, as the [`QueryContext`] is. (ADR 0022, ADR 0030)
//!
//! *Cost*: a call of a session of the process itself costs what it did without it, some loads. One of a
//! user costs a look at the user's grants and two short locks.

use std::{
    borrow::Borrow,
    cell::RefCell,
    collections::BTreeSet,
    sync::atomic::{AtomicU64, Ordering},
};

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::{QueryContext, QueryLimits};

use crate::{
    Database, Session,
    access::{AccessGuard, Caller, NeededFile, Needs, Requirement},
    audit::{AuditEvent, SlowRequest},
    user::Securable,
};

/// What a front end says of one call.
///
/// ```
/// use lockstep_engine::{CallOptions, Database};
///
/// let session = Database::in_memory().session();
/// let call = CallOptions { rows_max: Some(1), ..CallOptions::default() };
/// let rows = call.run(&session, || session.execute("SELECT 1 AS a UNION ALL SELECT 2 AS a"));
/// assert_eq!(rows.unwrap_err().code, "54000");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallOptions {
    /// The id of the request, which the client may give: it is in the audit record and the record of
    /// slow requests.
    pub request_id: Option<String>,
    /// How long the call may last; `statement_timeout` holds as well.
    pub timeout_ms: Option<u64>,
    /// How much memory the call may hold. It is reserved of the memory for all queries, where that is
    /// limited; `memory_limit` holds as well.
    pub memory_bytes: Option<u64>,
    /// The most rows that a query may return: one more is an error.
    pub rows_max: Option<u64>,
}

thread_local! {
    static CALL: RefCell<Option<CallOptions>> = const { RefCell::new(None) };
}

impl CallOptions {
    /// Runs work with a session as this call. Its time begins now.
    ///
    /// To cancel it from another thread, run it under a [`QueryContext`] and cancel that one, or call
    /// [`Session::cancel`].
    pub fn run<T>(&self, session: &Session, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let _reserved = session.database.reserve_query_memory(self.memory_bytes)?;
        let before = CALL.replace(Some(self.clone()));
        let _restore = CallRestorer(before);
        let limits = QueryLimits { timeout_ms: self.timeout_ms, memory_bytes: self.memory_bytes };
        if limits.is_none() {
            return work();
        }
        QueryContext::limited(session.database.clock(), limits).run(work)
    }
}

/// Restores a thread's call when it is dropped.
struct CallRestorer(Option<CallOptions>);

impl Drop for CallRestorer {
    fn drop(&mut self) {
        drop(CALL.replace(self.0.take()));
    }
}

/// Returns the most rows that a query of the thread's call may return.
pub(crate) fn rows_max() -> Option<u64> {
    CALL.with_borrow(|call| call.as_ref().and_then(|call| call.rows_max))
}

/// Returns the id of the thread's call.
pub(crate) fn request_id() -> Option<String> {
    CALL.with_borrow(|call| call.as_ref().and_then(|call| call.request_id.clone()))
}

/// Makes the error for a result of too many rows.
pub(crate) fn too_many_rows(rows_max: u64) -> Diagnostic {
    let message = format!("result exceeds the limit of {rows_max} rows");
    Diagnostic::new(code::VALUE_TOO_LARGE, message)
        .with_kind(Kind::FreeResources)
        .with_hint("Add a LIMIT clause, or a more selective WHERE clause.")
}

/// A call that is about to be made.
pub(crate) struct CallDescription<'a> {
    /// What it does, such as `INSERT` or `REQUEST`.
    pub(crate) action: &'static str,
    /// The statement, or the name of what is used.
    pub(crate) text: &'a str,
    pub(crate) needs: Needs,
    /// Whether it is recorded where it succeeds, too.
    pub(crate) is_audited: bool,
    /// Describes how it ran, if it was slow.
    pub(crate) plan: &'a dyn Fn() -> Option<String>,
}

impl<'a> CallDescription<'a> {
    /// Describes a look at an object of the catalog.
    pub(crate) fn look_at(name: &'a str, object: Securable) -> Self {
        let needs = Needs::of(vec![Requirement::any(object)]);
        Self { action: "DESCRIBE", text: name, needs, is_audited: false, plan: &no_plan }
    }
}

impl CallDescription<'static> {
    /// Describes a look at all that the caller sees.
    pub(crate) fn look_at_all(text: &'static str) -> Self {
        let needs = Needs::default();
        Self { action: "DESCRIBE", text, needs, is_audited: false, plan: &no_plan }
    }
}

/// The plan of a call that has none.
pub(crate) fn no_plan() -> Option<String> {
    None
}

impl Session {
    /// Runs a call, if the caller may make it.
    pub(crate) fn enter<'a, T>(
        &self,
        operation: impl FnOnce() -> CallDescription<'a>,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.database.check_open()?;
        self.shared.check_present()?;
        let slow_ns = self.database.slow_request_ns();
        if self.caller().is_process() && slow_ns == 0 {
            return self.limits().run(work);
        }
        let operation = operation();
        let begin_ns = self.database.clock().monotonic_ns();
        let _objects = ReadObjects::begin();
        let result = self.permit(&operation.needs).and_then(|()| self.run_listed(&operation, work));
        let elapsed_ns = self.database.clock().monotonic_ns().saturating_sub(begin_ns);
        if slow_ns > 0 && elapsed_ns >= slow_ns {
            self.record_slow(&operation, elapsed_ns);
        }
        if operation.is_audited || result.is_err() {
            let outcome = result.as_ref().err().map(|error| error.code);
            self.record_audit(&operation, outcome);
        }
        result
    }

    /// Runs a call while the list of sessions shows it, and KILL cancels it.
    fn run_listed<T>(
        &self,
        operation: &CallDescription<'_>,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        debug_assert!(!operation.action.is_empty(), "a call has an action for the audit record");
        let context = QueryContext::opening(self.database.file_access(self.caller()));
        let started_ms = self.database.now_ms();
        let _listed = self.shared.list(&context, started_ms, operation.text);
        context.run(|| {
            let work = || self.limits().run(work);
            if self.caller().is_process() {
                return work();
            }
            // The next call of a server is another user's: one that panics must not end it.
            let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            unwound.unwrap_or_else(|_| Diagnostic::internal("the call ended unexpectedly").err())
        })
    }

    /// Fails where the caller may not make a call.
    pub(crate) fn permit(&self, needs: &Needs) -> Result<()> {
        if self.caller().is_process() {
            return Ok(());
        }
        {
            let objects = self.database.objects();
            self.caller().check(&objects, self.database.now_ms(), &needs.requirements)?;
        }
        if let Some(change) = &needs.grants {
            self.permit_grants(change)?;
        }
        self.permit_files(needs.files.iter())
    }

    /// Fails where the caller may not have files of the server's machine opened.
    pub(crate) fn permit_files(
        &self,
        files: impl Iterator<Item = impl Borrow<NeededFile>>,
    ) -> Result<()> {
        if self.caller().is_process() {
            return Ok(());
        }
        let folders = self.database.file_folders();
        let mut files = files;
        files.try_for_each(|file| folders.check(&file.borrow().path, file.borrow().span))
    }

    /// Runs work that opens files as the caller may, also outside of [`Self::enter`].
    pub(crate) fn opening_files<T>(&self, work: impl FnOnce() -> T) -> T {
        QueryContext::opening(self.database.file_access(self.caller())).run(work)
    }

    /// Checks the caller for something that it prepares, and makes the guard of it.
    pub(crate) fn guard(&self, requirements: Vec<Requirement>) -> Result<Option<AccessGuard>> {
        AccessGuard::new(&self.database, &self.shared, requirements)
    }

    /// Returns who calls.
    pub(crate) fn caller(&self) -> &Caller {
        self.shared.caller()
    }

    fn record_audit(&self, operation: &CallDescription<'_>, outcome: Option<&'static str>) {
        if self.caller().is_process() {
            return;
        }
        let named = operation.needs.requirements.iter().map(|needed| needed.object.text());
        let objects: BTreeSet<String> = named.chain(ReadObjects::current()).collect();
        self.database.audit(AuditEvent {
            time_ms: self.database.now_ms(),
            user: self.caller().name().to_owned(),
            client: self.shared.client().clone(),
            session: self.shared.id(),
            request_id: request_id(),
            action: operation.action.into(),
            objects: objects.into_iter().collect(),
            outcome: outcome.unwrap_or(code::SUCCESS).into(),
        });
    }

    fn record_slow(&self, operation: &CallDescription<'_>, elapsed_ns: u64) {
        self.database.record_slow(SlowRequest {
            time_ms: self.database.now_ms(),
            user: self.caller().name().to_owned(),
            session: self.shared.id(),
            request_id: request_id(),
            action: operation.action,
            text: lockstep_sql::masked(operation.text).into_owned(),
            elapsed_ns,
            plan: (operation.plan)(),
        });
    }
}

thread_local! {
    static OBJECTS: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

/// The objects that the names of a call's queries were found to mean, for the audit record.
pub(crate) struct ReadObjects(BTreeSet<String>);

impl ReadObjects {
    /// Begins to note the objects of a call.
    pub(crate) fn begin() -> Self {
        Self(OBJECTS.take())
    }

    /// Notes an object.
    pub(crate) fn note(object: &Securable) {
        OBJECTS.with_borrow_mut(|objects| objects.insert(object.text()));
    }

    fn current() -> BTreeSet<String> {
        OBJECTS.with_borrow(Clone::clone)
    }
}

impl Drop for ReadObjects {
    fn drop(&mut self) {
        drop(OBJECTS.replace(std::mem::take(&mut self.0)));
    }
}

/// The memory that running calls have reserved.
#[derive(Debug, Default)]
pub(crate) struct QueryMemory {
    reserved: AtomicU64,
    /// The most; 0 is no limit.
    limit: AtomicU64,
}

/// A part of [`QueryMemory`]; given back when it is dropped.
#[must_use]
pub(crate) struct QueryMemoryReservation {
    database: Database,
    bytes: u64,
}

impl QueryMemory {
    /// Returns the bytes that are reserved, and the most.
    pub(crate) fn state(&self) -> (u64, Option<u64>) {
        // Relaxed: the numbers themselves are all that is shared.
        let limit = self.limit.load(Ordering::Relaxed);
        // Relaxed: as above.
        (self.reserved.load(Ordering::Relaxed), Some(limit).filter(|limit| *limit > 0))
    }

    fn reserve(&self, bytes: u64) -> bool {
        // Relaxed: the numbers themselves are all that is shared.
        let limit = self.limit.load(Ordering::Relaxed);
        let add = |reserved: u64| {
            let wanted = reserved.saturating_add(bytes);
            (limit == 0 || wanted <= limit).then_some(wanted)
        };
        // Relaxed: as above.
        self.reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }
}

impl Drop for QueryMemoryReservation {
    fn drop(&mut self) {
        let reserved = &self.database.query_memory().reserved;
        // Relaxed: as in `reserve`.
        let before = reserved.fetch_sub(self.bytes, Ordering::Relaxed);
        debug_assert!(before >= self.bytes, "what is given back was reserved");
    }
}

impl Database {
    /// Limits the memory that all calls together may reserve ([`CallOptions::memory_bytes`]); `None` is no
    /// limit. A call that finds too little is refused at once.
    pub fn set_query_memory(&self, bytes: Option<u64>) {
        // Relaxed: the number itself is all that is shared.
        self.query_memory().limit.store(bytes.unwrap_or(0), Ordering::Relaxed);
    }

    fn reserve_query_memory(&self, bytes: Option<u64>) -> Result<QueryMemoryReservation> {
        let bytes = bytes.unwrap_or(0);
        if self.query_memory().reserve(bytes) {
            return Ok(QueryMemoryReservation { database: self.as_unowned(), bytes });
        }
        let message = format!("cannot reserve {bytes} bytes of query memory");
        Diagnostic::new(code::OUT_OF_MEMORY, message)
            .with_kind(Kind::Retry)
            .with_hint("Retry when other queries finish.")
            .err()
    }
}
