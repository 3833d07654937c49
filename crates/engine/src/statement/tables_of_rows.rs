//! The tables that a stream or a source writes to, which are made where there are none.

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_row::{Column, TableSchema};
use lockstep_sql::ast::{ConnectorSystem, ObjectName};

use super::create_table::{NameRule, NewTable, TableOptions};
use crate::{
    Session,
    access::{Needs, Requirement},
    catalog::{Cascade, CatalogCommand, TableReference},
    connector::{schema_of_bad_lines, schema_of_bad_messages},
    session::object_name,
    stream::schema_of_late_rows,
    user::{Privilege, Securable},
};

/// Tables that are made for a statement. They are dropped again unless they are kept: a statement that fails changes
/// nothing.
pub(super) struct TablesOfRows<'s> {
    session: &'s Session,
    created: Vec<TableReference>,
}

impl<'s> TablesOfRows<'s> {
    pub(super) fn new(session: &'s Session) -> Self {
        Self { session, created: Vec::new() }
    }

    /// Returns a table with this name, which is made with these columns if there is none.
    pub(super) fn find_or_create(
        &mut self,
        name: &ObjectName,
        schema: TableSchema,
        span: Span,
    ) -> Result<TableReference> {
        let session = self.session;
        let of = |privilege| {
            Requirement::new(privilege, Securable::Table(session.qualified(name))).at(span)
        };
        session.permit(&Needs::of(vec![of(Privilege::Insert)]))?;
        if session.find_table(name).is_ok() {
            return Ok(session.find_entry(name)?.reference());
        }
        session.permit(&Needs::of(vec![of(Privilege::Create)]))?;
        let options = TableOptions::default();
        session.add_table(NewTable { name, options, rule: NameRule::Free }, schema)?;
        let created = session.find_entry(name)?.reference();
        self.created.push(created.clone());
        Ok(created)
    }

    /// Returns the table of late rows, if one is named.
    pub(super) fn of_late_rows(
        &mut self,
        named: Option<&(String, Span)>,
    ) -> Result<Option<TableReference>> {
        self.of_rows(named, &schema_of_late_rows(), "late rows")
    }

    /// Returns the table of messages or lines that are not rows, if one is named.
    pub(super) fn of_bad_rows(
        &mut self,
        system: ConnectorSystem,
        named: Option<&(String, Span)>,
    ) -> Result<Option<TableReference>> {
        match system {
            ConnectorSystem::Kafka => self.of_rows(named, &schema_of_bad_messages(), "messages"),
            ConnectorSystem::Files => self.of_rows(named, &schema_of_bad_lines(), "lines"),
        }
    }

    /// Returns a table that has these columns and maybe others, if one is named.
    fn of_rows(
        &mut self,
        named: Option<&(String, Span)>,
        schema: &TableSchema,
        what: &str,
    ) -> Result<Option<TableReference>> {
        let Some((name, span)) = named else { return Ok(None) };
        let table = self.find_or_create(&object_name(name.trim()), schema.clone(), *span);
        let table = table.map_err(|error| Box::new(error.at(*span)))?;
        let found = self.session.database().objects().entry(&table)?.table.schema();
        let has = |column: &Column| {
            let at = found.find_column(&column.name);
            at.is_some_and(|at| found.columns[at].data_type == column.data_type)
        };
        if schema.columns.iter().all(has) {
            return Ok(Some(table));
        }
        let columns: Vec<String> = schema
            .columns
            .iter()
            .map(|column| format!("{} {}", column.name, column.data_type))
            .collect();
        let (last, others) = columns.split_last().expect("it has columns");
        let message = format!("table `{}` cannot take {what}", table.name.name);
        Diagnostic::new(code::INVALID_TABLE_DEFINITION, message)
            .at(*span)
            .with_detail(format!("Its columns must include {} and {last}.", others.join(", ")))
            .with_hint("Name a table that does not exist, which is then created.")
            .err()
    }

    /// Keeps the tables that were made.
    pub(super) fn keep(&mut self) {
        self.created.clear();
    }
}

impl Drop for TablesOfRows<'_> {
    fn drop(&mut self) {
        for TableReference { id, name } in self.created.drain(..) {
            let command = CatalogCommand::DropTable { name, id, with: Cascade::default() };
            // Somebody may read it by now; then it stays.
            drop(self.session.database().commit(&command));
        }
    }
}
