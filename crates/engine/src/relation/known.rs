//! Relations of as-known training sets: which tables they read, and the rows that are wanted.

use arrow::array::RecordBatch;
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_host::query;

use super::{ProgressCallback, Relation};
use crate::{
    Output, PreparedRequest,
    catalog::TableEntry,
    entrance::{rows_max, too_many_rows},
    index_read,
    known::{ArrivalRun, ColumnRun, DeployedRequests, KnownBy, KnownQuery, does_not_fit},
};

impl Relation {
    /// Makes the relation an as-known training set.
    pub(crate) fn with_known(self, known: KnownQuery) -> Self {
        Self { known: Some(known), ..self }
    }

    /// Computes an as-known training set, and holds it.
    pub(super) fn collect_known(
        &self,
        known: &KnownQuery,
        progress: Option<ProgressCallback>,
    ) -> Result<Output> {
        let allowed = query::current().and_then(|context| context.memory_bytes());
        let (mut batches, mut bytes) = (Vec::new(), 0_u64);
        let warnings = self.run_known(known, progress, &mut |batch| {
            let size = u64::try_from(batch.get_array_memory_size()).unwrap_or(u64::MAX);
            bytes = bytes.saturating_add(size);
            if allowed.is_some_and(|allowed| bytes > allowed) {
                return does_not_fit().err();
            }
            batches.push(batch);
            Ok(())
        })?;
        let (columns, settings) = (self.query.columns.clone(), self.settings());
        Ok(Output { columns, batches, settings, warnings, ..Output::default() })
    }

    /// Computes an as-known training set, and passes each batch on. Returns warnings about rows that are
    /// gone.
    pub(super) fn run_known(
        &self,
        known: &KnownQuery,
        progress: Option<ProgressCallback>,
        consume: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<Vec<Diagnostic>> {
        let (rows_max, mut rows) = (rows_max(), 0_u64);
        let consume = &mut |batch: RecordBatch| {
            rows += u64::try_from(batch.num_rows()).unwrap_or(u64::MAX);
            match rows_max {
                Some(most) if rows > most => too_many_rows(most).err(),
                _ => consume(batch),
            }
        };
        match &known.by {
            KnownBy::Arrival => self.run_at_arrival(known, progress, consume),
            KnownBy::Column(column) => {
                let entries = self.database.stored_entries_of(&self.query.plan)?;
                let run = ColumnRun {
                    database: &self.database,
                    query: &self.query,
                    column,
                    entries: &entries,
                    read_through: self.read_through(),
                    temporary: self.context.temporary.clone(),
                    conversion: self.context.conversion,
                    range: known.range,
                };
                let done = run.run(progress, consume);
                check_tables(&entries)?;
                done
            }
        }
    }

    fn run_at_arrival(
        &self,
        known: &KnownQuery,
        progress: Option<ProgressCallback>,
        consume: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<Vec<Diagnostic>> {
        let mut entries = self.database.entries_of(&self.query.plan)?;
        let compiled;
        let (request, other) = match &known.deployed {
            Some(DeployedRequests { request, table }) => (request.as_ref(), table.as_ref()),
            None => {
                compiled = PreparedRequest::compile(
                    &self.query,
                    &self.database,
                    &entries,
                    self.context.temporary.clone(),
                )?;
                (&compiled, None)
            }
        };
        let own = self.query.request_table.as_ref().map(|table| table.id);
        let Some(main_table) = other.map(|table| table.id).or(own) else {
            let message = "AS KNOWN AT requires a table in FROM";
            return Diagnostic::unsupported(message).at(known.span).err();
        };
        if let Some(table) = other
            && entries.iter().all(|entry| entry.id != table.id)
        {
            entries.push(table.clone());
        }
        let run = ArrivalRun {
            request,
            columns: &self.query.columns,
            entries: &entries,
            main_table,
            read_through: self.read_through(),
            temporary: self.context.temporary.clone(),
            range: known.range,
            threads: self.database.host().threads.count(),
        };
        let done = run.run(progress, consume);
        request.check_definitions()?;
        check_tables(&entries)?;
        done
    }

    /// Returns the indexes through which batch mode reads the tables of the query.
    pub(super) fn read_through(&self) -> std::collections::BTreeMap<u64, usize> {
        index_read::of(self.settings().compatibility, &self.query.plan)
    }
}

/// Fails where a table was dropped meanwhile: it was empty while the query read it.
fn check_tables(entries: &[TableEntry]) -> Result<()> {
    entries.iter().try_for_each(|entry| entry.definition.check())
}
