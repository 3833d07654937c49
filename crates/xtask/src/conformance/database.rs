//! The database of one case: its tables and rows, and the statements and requests of the case.
//!
//! `execute` creates one for each case and mode.

use arrow::array::RecordBatch;
use lockstep_engine::{Database, Diagnostic, Output, Parameter, Result as EngineResult, Session};
use lockstep_sql::ast::Statement;
use lockstep_testkit::{disk_tables, rows::to_batch};
use serde_json::Value as Json;

use super::{
    case::{CaseInput, ConformanceCase, typed},
    compare::{CaseOutcome, ResultTable},
    execute::Setting,
};

/// A database with a case's tables.
pub(super) struct CaseDatabase {
    pub(super) session: Session,
    pub(super) setting: Setting,
}

impl CaseDatabase {
    /// Creates the databases and the empty tables.
    pub(super) fn open(case: &ConformanceCase, setting: Setting) -> Result<Self, String> {
        let database = match setting {
            Setting::OnDisk => disk_tables::open().map_err(|error| error.render(None))?,
            Setting::OpenMldb | Setting::Default => Database::in_memory(),
        };
        let database = Self { session: database.session(), setting };
        database.execute("SET time_zone = 'Asia/Shanghai'")?;
        if setting != Setting::Default {
            database.execute("SET compatibility = 'openmldb'")?;
        }
        let others = case.inputs.iter().filter_map(|input| input.database.as_ref());
        for name in others.chain([&case.database]) {
            database.execute(&format!("CREATE DATABASE IF NOT EXISTS `{name}`"))?;
        }
        database.execute(&format!("USE `{}`", case.database))?;
        for create in case.inputs.iter().filter_map(|input| input.create.as_ref()) {
            database.execute(create)?;
        }
        Ok(database)
    }

    pub(super) fn fill<'a>(
        &self,
        inputs: impl Iterator<Item = &'a CaseInput>,
    ) -> Result<(), String> {
        for input in inputs {
            if input.inserts.is_empty() {
                self.append(input, to_batch(&input.columns, &input.repeated_rows()))?;
            }
            for insert in &input.inserts {
                if input.insert_values.is_empty() {
                    self.execute(insert)?;
                }
                for row in &input.insert_values {
                    self.insert_prepared(input, insert, row)?;
                }
            }
        }
        self.flush()
    }

    /// Writes the rows into files if the tables are on a disk.
    fn flush(&self) -> Result<(), String> {
        match self.setting {
            Setting::OnDisk => disk_tables::flush(self.session.database())
                .map_err(|error| format!("not flushed: {}", error.render(None))),
            Setting::OpenMldb | Setting::Default => Ok(()),
        }
    }

    /// Runs an INSERT whose `?` stand for cells of the table's columns, in their order.
    pub(super) fn insert_prepared(
        &self,
        input: &CaseInput,
        insert: &str,
        row: &[Json],
    ) -> Result<(), String> {
        let failed = |error: Box<Diagnostic>| error.render(Some(insert));
        let select = format!("SELECT * FROM {}", input.qualified_name());
        let relation = self.session.query(&select).map_err(failed)?;
        let mut columns = relation.columns().to_vec();
        let script = lockstep_sql::parse(insert).map_err(failed)?;
        if let Some(Statement::Insert(parsed)) = script.first().map(|parsed| &parsed.statement)
            && !parsed.columns.is_empty()
        {
            columns.retain(|(name, _)| parsed.columns.iter().any(|column| column.text == *name));
        }
        let cells = row.iter().zip(columns);
        let values =
            cells.map(|(cell, (_, data_type))| Ok((typed(cell, &data_type, 0)?, data_type)));
        let values = values.collect::<Result<Vec<Parameter>, String>>()?;
        let prepared = self.session.prepare(insert).map_err(failed)?;
        self.session.execute_prepared(&prepared, &values).map(|_| ()).map_err(failed)
    }

    pub(super) fn append(&self, input: &CaseInput, rows: RecordBatch) -> Result<(), String> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let appended = self.session.append(&input.qualified_name(), &[rows]);
        let failed = |error| format!("append to `{}`: {error}", input.name);
        appended.map(|_| ()).map_err(failed)
    }

    /// Runs a statement that prepares a case.
    pub(super) fn execute(&self, sql: &str) -> Result<(), String> {
        self.session.execute(sql).map(|_| ()).map_err(|error| error.render(Some(sql)))
    }

    /// Runs all statements and returns the result of the last one, as OpenMLDB does.
    pub(super) fn run_statements(&self, statements: &[String]) -> CaseOutcome {
        let mut last = CaseOutcome::Table(ResultTable::default());
        for statement in statements {
            last = outcome_of(self.session.execute(statement), statement);
            if let Err(error) = self.flush() {
                let diagnostic = Box::new(Diagnostic::internal(error));
                return CaseOutcome::Error { diagnostic, sql: statement.clone() };
            }
        }
        last
    }

    /// Returns the empty table of answers, or the error of preparing the request.
    pub(super) fn requested_table(&self, target: &str) -> Result<ResultTable, CaseOutcome> {
        match self.session.prepare_request(target) {
            Ok(prepared) => {
                Ok(ResultTable { columns: prepared.output().to_vec(), rows: Vec::new() })
            }
            Err(diagnostic) => Err(CaseOutcome::Error { diagnostic, sql: target.to_owned() }),
        }
    }

    /// Requests a query over constants, whose request row has no columns.
    pub(super) fn request_without_table(&self, target: &str) -> Result<CaseOutcome, String> {
        let row = to_batch(&[], &[Vec::new()]);
        Ok(outcome_of(self.session.request(target, &[row]), target))
    }
}

/// Returns the outcome of a statement.
pub(super) fn outcome_of(result: EngineResult<Output>, sql: &str) -> CaseOutcome {
    match result {
        Ok(output) => CaseOutcome::Table(ResultTable::from(&output)),
        Err(diagnostic) => CaseOutcome::Error { diagnostic, sql: sql.to_owned() },
    }
}
