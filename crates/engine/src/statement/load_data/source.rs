//! The rows that LOAD DATA reads, batch by batch.

use std::collections::VecDeque;

use arrow::array::RecordBatch;
use lockstep_batch::load::{FileRows, LoadOptions, read_file};
use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::Settings;
use lockstep_host::{CallStep, query};
use lockstep_row::TableSchema;
use lockstep_sql::ast::LoadData;

use crate::context::checkpoint;

/// The rows of the file, or of a query over it.
pub(super) struct LoadSource {
    rows: FileRows,
    path_span: Span,
    /// The result of the query of the option `sql`, when there is one.
    selected: Option<VecDeque<RecordBatch>>,
}

impl LoadSource {
    /// Opens the file of the statement.
    pub(super) fn open(
        load: &LoadData,
        files: &LoadOptions,
        schema: &TableSchema,
        settings: Settings,
    ) -> Result<Self> {
        let path_span = load.path_span;
        let rows = read_file(&load.path, files, schema, &settings);
        let rows = rows.map_err(|error| Box::new(error.at(path_span)))?;
        Ok(Self { rows, path_span, selected: None })
    }

    /// Yields these rows from now on, in place of the file's.
    pub(super) fn with_selected(self, batches: Vec<RecordBatch>) -> Self {
        Self { selected: Some(batches.into()), ..self }
    }

    /// Returns the warnings about the files, and about rows that were skipped so far.
    pub(super) fn warnings(&self) -> Vec<Diagnostic> {
        let mut warnings: Vec<Diagnostic> = self.rows.warnings().collect();
        if self.rows.skipped_count() > 0 {
            let first = self.rows.first_skipped().map(ToString::to_string).unwrap_or_default();
            let message = format!("{} malformed rows were skipped", self.rows.skipped_count());
            let skipped = Diagnostic::new(code::BAD_COPY_FORMAT, message);
            warnings.push(skipped.with_detail(format!("The first error: {first}.")));
        }
        warnings
    }
}

impl Iterator for LoadSource {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(selected) = &mut self.selected {
            return selected.pop_front().map(Ok);
        }
        if let Err(interrupted) = checkpoint() {
            return Some(Err(interrupted));
        }
        query::report(CallStep::ReadFiles, self.rows.bytes_read(), self.rows.bytes_total());
        let batch = self.rows.next()?;
        Some(batch.map_err(|error| Box::new(error.at(self.path_span))))
    }
}
