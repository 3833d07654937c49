//! Results that are passed on batch by batch, and rows that arrive so: for front ends that hold neither.

use arrow::array::RecordBatch;
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_row::DataType;
use lockstep_table::{Durability, with_durability};

use crate::{
    Output, Parameter, Session,
    access::Needs,
    append::{AppendRule, append_warnings, load},
    entrance::CallDescription,
    parameters::{check_parameters, only_rows},
    session::object_name,
};

/// A function that gets the names and types of a result's columns before its rows.
pub type BeginRows<'b> = &'b mut dyn FnMut(&[(String, DataType)]) -> Result<()>;

impl Session {
    /// Runs one query with a value for each `?`: `begin` gets its columns, then `consume` each batch of
    /// rows when it is computed; an error of either ends the query. Returns the warnings.
    ///
    /// ```
    /// use lockstep_engine::Database;
    ///
    /// let session = Database::in_memory().session();
    /// let mut rows = 0;
    /// session.query_each("SELECT 1 AS a", &[], &mut |_| Ok(()), &mut |batch| {
    ///     rows += batch.num_rows();
    ///     Ok(())
    /// })?;
    /// assert_eq!(rows, 1);
    /// # Ok::<(), Box<lockstep_engine::Diagnostic>>(())
    /// ```
    pub fn query_each(
        &self,
        sql: &str,
        parameters: &[Parameter],
        begin: BeginRows<'_>,
        consume: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<Vec<Diagnostic>> {
        let prepared = self.prepare(sql)?;
        let parsed = &prepared.parsed;
        let query = only_rows(parsed)?;
        check_parameters(parsed, parameters)?;
        let plan = || self.plan_of(&parsed.statement, parameters);
        let operation = || CallDescription {
            action: "SELECT",
            text: sql,
            needs: Needs::default(),
            is_audited: true,
            plan: &plan,
        };
        self.enter(operation, || {
            let relation =
                lockstep_host::with_large_stack(|| self.relation(query, parameters, None))?;
            begin(relation.columns())?;
            relation.run_each(None, consume)
        })
    }

    /// Appends batches that are read one after another: all rows or none, visible together, with little
    /// more memory than the stored rows. Columns are matched and converted as by [`Self::append`].
    ///
    /// ```
    /// use lockstep_engine::Database;
    ///
    /// let session = Database::in_memory().session();
    /// session.execute("CREATE TABLE t (a INT)")?;
    /// let batches = session.execute("SELECT 1 AS a")?.batches;
    /// let appended = session.append_each("t", &mut batches.into_iter().map(Ok), None)?;
    /// assert_eq!(appended.rows_affected, Some(1));
    /// # Ok::<(), Box<lockstep_engine::Diagnostic>>(())
    /// ```
    pub fn append_each(
        &self,
        table: &str,
        batches: &mut dyn Iterator<Item = Result<RecordBatch>>,
        durability: Option<Durability>,
    ) -> Result<Output> {
        let (name, conversion) = (object_name(table), self.conversion());
        let of_session = self.durability();
        let append = || {
            self.check_insert_memory()?;
            let entry = self.find_entry(&name)?;
            let write = |table: &_| load(batches, table, AppendRule::Any, conversion);
            with_durability(of_session, || entry.write_as(durability, write))
        };
        let appended = self.enter(|| self.append_operation(table), append)?;
        Ok(Output {
            rows_affected: Some(appended.rows),
            warnings: append_warnings(appended),
            ..Output::of_message("APPEND")
        })
    }
}
