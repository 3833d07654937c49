//! The option `log_answers` of DEPLOY: the table to which the answers are logged.

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_plan::BoundQuery;
use lockstep_request::gives_row_by_row;
use lockstep_row::{Column, TableSchema};

use crate::{
    PreparedRequest, Session,
    access::{Needs, Requirement},
    answer_log::{AnswerLog, not_logged, schema_of_answers},
    catalog::{TableEntry, TableReference},
    deployment::{QuerySource, references},
    session::object_name,
    statement::create_table::{NameRule, NewTable, TableOptions},
    user::{Privilege, Securable},
};

impl Session {
    /// Has a request log its answers to a table, which is made where there is none, and gets the columns
    /// that it lacks.
    pub(super) fn log_answers(
        &self,
        table: &str,
        request: &PreparedRequest,
        query: &BoundQuery,
        source: &QuerySource,
    ) -> Result<TableReference> {
        if !request.is_compiled() || !gives_row_by_row(&query.plan) {
            return not_logged("A request may return several rows, or run in batch mode.")
                .with_hint("Aggregate over windows, and join with LAST JOIN.")
                .err();
        }
        if query.request_table.is_none() {
            return not_logged("The query reads no table.").err();
        }
        let name = object_name(table.trim());
        let of = |privilege| Requirement::new(privilege, Securable::Table(self.qualified(&name)));
        self.permit(&Needs::of(vec![of(Privilege::Insert)]))?;
        let schema = schema_of_answers(request)?;
        if self.find_table(&name).is_err() {
            self.permit(&Needs::of(vec![of(Privilege::Create)]))?;
            let options = TableOptions::default();
            let new = NewTable { name: &name, options, rule: NameRule::Tolerated };
            self.add_table(new, schema.clone())?;
        }
        let lacking = lacking_columns(&self.find_entry(&name)?, &schema);
        // A deployment that is made again, as it was, finds its columns.
        if !lacking.is_empty() && !self.is_restored() {
            self.permit(&Needs::of(vec![of(Privilege::Alter)]))?;
            self.add_columns(&name, &lacking)?;
        }
        let entry = self.find_entry(&name)?;
        let reference = reference_to(&entry);
        if references(&query.plan).contains(&reference) {
            let message = format!("the query reads table `{}`", reference.name.name);
            return Diagnostic::new(code::INVALID_PARAMETER, message)
                .with_detail("Answers cannot be logged to a table on which they depend.")
                .err();
        }
        request.log_to(AnswerLog::new(entry, request, source)?);
        Ok(reference)
    }
}

/// Returns the columns of requests and answers that a table of answers does not have yet.
fn lacking_columns(entry: &TableEntry, answers: &TableSchema) -> Vec<Column> {
    let schema = entry.table.schema();
    let lacks = |column: &&Column| schema.find_column(&column.name).is_none();
    let lacking: Vec<Column> = answers.columns.iter().filter(lacks).cloned().collect();
    // Without one of the fixed columns, which are not NULL, it is another table.
    if lacking.iter().all(|column| column.nullable) { lacking } else { Vec::new() }
}

fn reference_to(entry: &TableEntry) -> TableReference {
    TableReference { id: entry.id, name: entry.definition.name().clone() }
}
