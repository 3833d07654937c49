//! Relations: queries that are bound, and run when their rows are fetched.

mod known;
mod lints;
mod measure;

use std::{borrow::Cow, collections::BTreeMap, fmt, sync::Arc};

use arrow::array::RecordBatch;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use lockstep_batch::{ExecuteOptions, ProgressListener, WindowSkew};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_function::{Settings, scalar::feature_role::FeatureRole};
use lockstep_host::{CallStep, query, temporary::TemporaryStorage};
use lockstep_plan::BoundQuery;
use lockstep_row::DataType;

pub(crate) use self::{
    lints::{QueryLints, SeenQueries},
    measure::{MeasuredMode, QueryMeasure, measured},
};
use crate::{
    Database, Limits, Output, PreparedRequest,
    access::{AccessGuard, Caller},
    catalog::TableEntry,
    conversion::Conversion,
    database::TableSet,
    entrance::{rows_max, too_many_rows},
    known::KnownQuery,
    system,
    variables::Storage,
    view::check_views,
};

/// A function that is called with the fraction of the work that is done, from 0.0 to 1.0, from any
/// thread.
pub type ProgressCallback = Arc<dyn Fn(f64) + Send + Sync>;

/// Reports the progress of an operator as a fraction.
struct FractionReporter(ProgressCallback);

impl ProgressListener for FractionReporter {
    #[expect(clippy::cast_precision_loss, reason = "a fraction for a progress bar")]
    fn report(&self, _step: CallStep, done: u64, total: u64) {
        (self.0)(done as f64 / total.max(1) as f64);
    }
}

/// The settings of the session when a query was bound.
#[derive(Debug, Clone)]
pub(crate) struct RelationContext {
    /// The data that the query reads.
    pub(crate) storage: Storage,
    /// The memory and time that the query may use.
    pub(crate) limits: Limits,
    /// The rules by which the files of offline tables are read.
    pub(crate) conversion: Conversion,
    /// Where the rows go that do not fit into the memory.
    pub(crate) temporary: TemporaryStorage,
    /// When windows cut the rows of one key into time slices.
    pub(crate) window_skew: WindowSkew,
    /// Who asks, for the rows of system tables.
    pub(crate) caller: Caller,
    /// Warnings about the query's CONFIG.
    pub(crate) warnings: Vec<Diagnostic>,
    /// What warns of rows that are wrong for training; not in request mode, nor as known.
    pub(crate) lints: Option<QueryLints>,
}

/// A bound query that has not run yet.
pub struct Relation {
    database: Database,
    query: BoundQuery,
    context: RelationContext,
    /// The request rows of the query's CONFIG, when it runs in request mode.
    requests: Option<Vec<RecordBatch>>,
    /// How rows are known, when it is an as-known training set.
    known: Option<KnownQuery>,
    guard: Option<AccessGuard>,
}

impl fmt::Debug for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relation").field("columns", &self.query.columns).finish_non_exhaustive()
    }
}

impl Relation {
    /// Makes the relation of a query that is answered for these request rows, or runs in batch mode
    /// where there are none.
    pub(crate) fn new(
        database: Database,
        query: BoundQuery,
        context: RelationContext,
        requests: Option<Vec<RecordBatch>>,
        guard: Option<AccessGuard>,
    ) -> Self {
        Self { database, query, context, requests, known: None, guard }
    }

    /// Returns the names (which may repeat) and types of the result's columns.
    pub fn columns(&self) -> &[(String, DataType)] {
        &self.query.columns
    }

    /// Returns what each column is to a model: the signature that its item of the select list is.
    pub fn roles(&self) -> Vec<Option<FeatureRole>> {
        self.query.roles()
    }

    /// Returns the settings of the session when the query was bound.
    pub(crate) fn settings(&self) -> Settings {
        self.context.conversion.settings()
    }

    /// Runs the query in batch mode, or in request mode when its CONFIG says so, under the limits
    /// that the session had when it was bound. Fails with
    /// [`code::STALE_DEFINITION`](crate::code::STALE_DEFINITION) where a table of the query was
    /// dropped since then, even if another table has the name now.
    pub fn collect(&self, progress: Option<ProgressCallback>) -> Result<Output> {
        self.check()?;
        let mut output = self.context.limits.run(|| self.run(progress))?;
        output.warnings.extend(self.context.warnings.iter().cloned());
        Ok(output)
    }

    /// Runs the query as [`Self::collect`] does, and passes each batch to `consume` when it is computed:
    /// for results that need not fit in memory. An error of `consume` ends the query. Returns the
    /// warnings.
    pub fn run_each(
        &self,
        progress: Option<ProgressCallback>,
        consume: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<Vec<Diagnostic>> {
        self.check()?;
        let mut warnings = self.context.limits.run(|| {
            if self.requests.is_some() {
                self.run(progress)?.batches.into_iter().try_for_each(consume)?;
                return Ok(Vec::new());
            }
            if let Some(known) = &self.known {
                return self.run_known(known, progress, consume);
            }
            let run = self.prepare_run(progress)?;
            let mut rows = 0;
            let counted = &mut |batch: RecordBatch| {
                rows += batch.num_rows();
                check_rows(rows, run.rows_max)?;
                let count = u64::try_from(batch.num_rows()).unwrap_or(0);
                consume(batch)?;
                query::report_rows(count);
                Ok(())
            };
            let done = lockstep_batch::execute_each(&run.plan, &run.tables, &run.options, counted);
            run.check_tables()?;
            done.map(|()| self.lint(&run.tables))
        })?;
        warnings.extend(self.context.warnings.iter().cloned());
        Ok(warnings)
    }

    /// Fails where the query may no longer run.
    fn check(&self) -> Result<()> {
        self.database.check_open()?;
        if let Some(guard) = &self.guard {
            guard.check()?;
        }
        check_views(&self.database, &self.query)
    }

    /// Compiles the query for request mode.
    fn compile(&self) -> Result<PreparedRequest> {
        let entries = self.database.entries_of(&self.query.plan)?;
        let temporary = self.context.temporary.clone();
        PreparedRequest::compile(&self.query, &self.database, &entries, temporary)
    }

    fn answer(&self, request: &PreparedRequest, rows: &[RecordBatch]) -> Result<Output> {
        let output = request.answer_batches(rows, self.context.conversion)?;
        check_rows(output.row_count(), rows_max())?;
        Ok(output)
    }

    fn run(&self, progress: Option<ProgressCallback>) -> Result<Output> {
        if let Some(requests) = &self.requests {
            return self.answer(&self.compile()?, requests);
        }
        if let Some(known) = &self.known {
            return self.collect_known(known, progress);
        }
        let run = self.prepare_run(progress)?;
        let batches = lockstep_batch::execute(&run.plan, &run.tables, &run.options);
        run.check_tables()?;
        let batches = batches?;
        check_rows(batches.iter().map(RecordBatch::num_rows).sum(), run.rows_max)?;
        let settings = self.context.conversion.settings();
        let columns = self.query.columns.clone();
        let roles = self.roles();
        let warnings = self.lint(&run.tables);
        Ok(Output { columns, batches, settings, roles, warnings, ..Output::default() })
    }

    /// Returns what the lints say of the query.
    fn lint(&self, tables: &TableSet) -> Vec<Diagnostic> {
        let lints = self.context.lints.as_ref();
        lints.map_or_else(Vec::new, |lints| lints.warnings(&self.query, tables))
    }

    /// Finds the tables of the query, and makes the options of its run in batch mode.
    fn prepare_run(&self, progress: Option<ProgressCallback>) -> Result<BatchRun<'_>> {
        let progress = progress
            .map(|callback| -> Arc<dyn ProgressListener> { Arc::new(FractionReporter(callback)) });
        let read_through = match self.context.storage {
            Storage::Online => self.read_through(),
            Storage::Offline => BTreeMap::new(),
        };
        let temporary = self.context.temporary.clone();
        let window_skew = self.context.window_skew;
        let options = ExecuteOptions {
            progress,
            read_through,
            temporary,
            window_skew,
            ..ExecuteOptions::default()
        };
        let entries = self.database.entries_for(&self.query.plan, &self.context.caller)?;
        let tables = match self.context.storage {
            Storage::Online => TableSet::of(&entries),
            Storage::Offline => {
                let is_system = |entry: &TableEntry| system::is_system(entry.id);
                let (system, stored) = entries.iter().cloned().partition::<Vec<_>, _>(is_system);
                let (conversion, caller) = (self.context.conversion, &self.context.caller);
                let mut tables = self.database.offline_tables(&stored, conversion, caller)?;
                tables.by_id.extend(TableSet::of(&system).by_id);
                tables
            }
        };
        let (plan, rows_max) = self.limited_plan()?;
        Ok(BatchRun { plan, tables, options, entries, rows_max })
    }

    /// Returns the plan, which ends after one row more than the call may return, and that number.
    fn limited_plan(&self) -> Result<(Cow<'_, LogicalPlan>, Option<u64>)> {
        let Some(rows_max) = rows_max() else {
            return Ok((Cow::Borrowed(&self.query.plan), None));
        };
        let fetch = usize::try_from(rows_max).unwrap_or(usize::MAX).saturating_add(1);
        let plan = LogicalPlanBuilder::from(self.query.plan.clone());
        let plan = plan.limit(0, Some(fetch)).and_then(LogicalPlanBuilder::build);
        let plan = plan.map_err(|error| Box::new(Diagnostic::internal(error.to_string())))?;
        Ok((Cow::Owned(plan), Some(rows_max)))
    }
}

/// A query that is about to run in batch mode.
struct BatchRun<'r> {
    plan: Cow<'r, LogicalPlan>,
    tables: TableSet,
    options: ExecuteOptions,
    entries: Vec<TableEntry>,
    rows_max: Option<u64>,
}

impl BatchRun<'_> {
    /// Fails where a table was dropped meanwhile: it was empty while the query read it.
    fn check_tables(&self) -> Result<()> {
        self.entries.iter().try_for_each(|entry| entry.definition.check())
    }
}

/// Fails where a result has more rows than the call may return.
fn check_rows(rows: usize, rows_max: Option<u64>) -> Result<()> {
    match rows_max {
        Some(most) if u64::try_from(rows).unwrap_or(u64::MAX) > most => too_many_rows(most).err(),
        _ => Ok(()),
    }
}
