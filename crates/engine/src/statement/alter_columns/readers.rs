//! Deployments over a table whose columns change: which changes they allow, and their new programs.
//!
//! A column that a deployment reads keeps its name, and each answer keeps its columns. The definition of the
//! new program is another one, so that a request that began with the old one is answered again.

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_plan::{columns_read, stored_tables};
use lockstep_sql::{
    ast::{Ident, Literal, OptionValue, Statement},
    parse,
};

use super::ChangedColumns;
use crate::{
    Database, Session,
    catalog::{ReplacedReader, TableEntry},
    copied_rows::ValueSource,
    deployment::{Deployment, compatibility_name},
    statement::deploy_script,
};

impl Session {
    /// Returns the deployments over a table and those that log their answers to it, if its columns may
    /// change as they are to.
    pub(super) fn readers(
        &self,
        entry: &TableEntry,
        changed: &ChangedColumns,
    ) -> Result<Vec<Arc<Deployment>>> {
        let readers = {
            let objects = self.database.objects();
            let readers = objects.deployments_with(entry.id);
            objects.check_read_by(entry.definition.name(), entry.id, &readers)?;
            readers
        };
        for reader in &readers {
            check_reads(reader, entry, changed)?;
            let is_read = reader.tables.iter().any(|table| table.id == entry.id);
            if is_read && reader.answers.is_some() {
                let message = format!("deployment `{}` logs its answers", reader.name().name);
                return Diagnostic::new(code::DEPENDENT_OBJECTS, message)
                    .with_detail(
                        "Logged answers refer to rows of the table by arrival, which copying the \
                         table changes.",
                    )
                    .with_hint("Run DEPLOY OR REPLACE without log_answers first.")
                    .err();
            }
        }
        Ok(readers)
    }

    /// Compiles deployments over the table that takes the place of the one that they read.
    pub(super) fn compile_readers(
        &self,
        entry: &TableEntry,
        new: &TableEntry,
        readers: &[Arc<Deployment>],
    ) -> Result<Vec<ReplacedReader>> {
        if readers.is_empty() {
            return Ok(Vec::new());
        }
        let planned = self.database.objects().clone().with_table(new.clone());
        let planned = self.database.with_planned(planned);
        let compiled = readers.iter().map(|before| {
            let after = compile(&planned, before, (entry.id, new.id))?;
            check_answers(before, &after)?;
            Ok(ReplacedReader { before: Arc::clone(before), after: Arc::new(after) })
        });
        compiled.collect()
    }
}

/// Fails if a deployment reads a column that goes or gets another name.
fn check_reads(reader: &Deployment, entry: &TableEntry, changed: &ChangedColumns) -> Result<()> {
    let tables = stored_tables(&reader.training.plan);
    let Some(table) = tables.iter().find(|table| table.id == entry.id) else { return Ok(()) };
    let read = columns_read(&reader.training.plan, table).into_iter().enumerate();
    for (position, _) in read.filter(|(_, is_read)| *is_read) {
        let name = &table.schema.columns[position].name;
        let mut columns = changed.sources.iter().zip(&changed.schema.columns);
        let is_kept = columns.any(|(source, column)| {
            matches!(source, ValueSource::Column(from) if *from == position) && column.name == *name
        });
        if !is_kept {
            let reader = &reader.name().name;
            let message = format!(
                "column `{name}` of table `{}` is read by deployment `{reader}`",
                table.name
            );
            return Diagnostic::new(code::DEPENDENT_OBJECTS, message)
                .with_hint("Run DEPLOY OR REPLACE with a query that does not read the column.")
                .err();
        }
    }
    Ok(())
}

/// Fails if the answers of a deployment would have other columns.
fn check_answers(before: &Deployment, after: &Deployment) -> Result<()> {
    if before.request.output() == after.request.output() {
        return Ok(());
    }
    let message =
        format!("the change would alter the answer columns of deployment `{}`", before.name().name);
    Diagnostic::new(code::DEPENDENT_OBJECTS, message)
        .with_hint("Run DEPLOY OR REPLACE with column names instead of *.")
        .err()
}

/// Compiles a deployment again, in a session like the one that made it.
fn compile(database: &Database, before: &Deployment, (from, to): (u64, u64)) -> Result<Deployment> {
    let session = database.session();
    session.restore_for(before.owner.clone());
    session.set_current_database(&before.current_database);
    let indexes: Vec<_> = before.indexes.iter().map(|bound| bound.moved(from, to)).collect();
    session.set_bound_indexes(&indexes);
    let time_zone = before.settings.time_zone.to_string();
    for (name, value) in
        [("compatibility", compatibility_name(before.settings)), ("time_zone", &time_zone)]
    {
        let name = Ident { text: name.to_owned(), span: Span::default() };
        let value = OptionValue::Literal(Literal::String(value.to_owned()));
        session.set_variable(&name, &value)?;
    }
    let script = deploy_script(before.name(), &before.options, &before.sql);
    let mut statements = parse(&script)?;
    let Some(Statement::Deploy(deploy)) = statements.pop().map(|parsed| parsed.statement) else {
        return Diagnostic::internal("the script of a deployment is not a DEPLOY").err();
    };
    let compiled = session.compile_deployment(before.name().clone(), &deploy, &script);
    compiled.map(|(deployment, _)| deployment).map_err(|error| {
        let name = &before.name().name;
        let message = format!("could not compile deployment `{name}`: {}", error.message);
        Box::new(Diagnostic { message, span: None, code: code::DEPENDENT_OBJECTS, ..*error })
    })
}
