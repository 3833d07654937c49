//! The option `log_answers` of DEPLOY: the table to which the answers are logged.

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_plan::BoundQuery;
use lockstep_request::gives_row_by_row;

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
    /// Has a request log its answers to a table, which is made where there is none.
    pub(super) fn log_answers(
        &self,
        table: &str,
        request: &PreparedRequest,
        query: &BoundQuery,
        source: &QuerySource,
    ) -> Result<TableReference> {
        if !request.is_compiled() || !gives_row_by_row(&query.plan) {
            return not_logged("An answer may have several rows, or be made by batch mode.")
                .with_hint("Aggregate over windows, and join with LAST JOIN.")
                .err();
        }
        if query.request_table.is_none() {
            return not_logged("The query reads no table.").err();
        }
        let name = object_name(table.trim());
        let of = |privilege| Requirement::new(privilege, Securable::Table(self.qualified(&name)));
        self.permit(&Needs::of(vec![of(Privilege::Insert)]))?;
        if self.find_table(&name).is_err() {
            self.permit(&Needs::of(vec![of(Privilege::Create)]))?;
            let options = TableOptions::default();
            let new = NewTable { name: &name, options, rule: NameRule::Tolerated };
            self.add_table(new, schema_of_answers(request)?)?;
        }
        let entry = self.find_entry(&name)?;
        let reference = reference_to(&entry);
        if references(&query.plan).contains(&reference) {
            let message = format!("the query reads `{}`", reference.name.name);
            return Diagnostic::new(code::INVALID_PARAMETER, message)
                .with_detail("Answers cannot be logged to a table on which they depend.")
                .err();
        }
        request.log_to(AnswerLog::new(entry, request, source)?);
        Ok(reference)
    }
}

fn reference_to(entry: &TableEntry) -> TableReference {
    TableReference { id: entry.id, name: entry.definition.name().clone() }
}
