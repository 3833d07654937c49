//! ALTER TABLE that adds, drops or renames columns.
//!
//! A row is stored in the layout of its table's columns, so that a table with other columns is another
//! table: its rows are copied in their order of arrival while writers wait, and it takes the name in one
//! step. Readers go on with the table as it was. After a crash there is the one or the other. A copy costs
//! as much as loading the rows, and both tables are in memory meanwhile.
//!
//! Deployments over the table, and those that log their answers to it, are compiled over the new one before
//! the rows are copied, and take the place of the old ones in the same step ([`readers`]).

mod readers;

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_row::{Column, IndexSpec, Retention, TableSchema, Value};
use lockstep_sql::ast::{AlterTableAction, ColumnDefinition, Ident, ObjectName};
use lockstep_table::with_durability;

use super::{at_name, create_index::add_primary_key, create_table::column};
use crate::{
    Session,
    catalog::{CatalogCommand, Definition, ObjectKind, TableEntry},
    copied_rows::{ValueSource, copy_rows},
    inspect::declared_schema,
};

/// The columns of a table that ALTER TABLE makes of another.
struct ChangedColumns {
    schema: TableSchema,
    /// Where the values of each column come from.
    sources: Vec<ValueSource>,
}

impl Session {
    /// Runs ALTER TABLE with actions that change columns.
    pub(super) fn alter_columns(
        &self,
        name: &ObjectName,
        actions: &[AlterTableAction],
    ) -> Result<()> {
        self.require_online("changing columns with ALTER TABLE", name.name.span)?;
        self.replace_columns(name, |entry, schema| self.changed(entry, schema, actions))
    }

    /// Adds columns that are NULL in all rows.
    pub(super) fn add_columns(&self, name: &ObjectName, columns: &[Column]) -> Result<()> {
        debug_assert!(columns.iter().all(|column| column.nullable), "rows have no values for them");
        self.replace_columns(name, |_, schema| {
            let mut changed = ChangedColumns::of(schema);
            changed.sources.extend(columns.iter().map(|_| ValueSource::Constant(Value::Null)));
            changed.schema.columns.extend_from_slice(columns);
            Ok(changed)
        })
    }

    /// Puts a table with other columns in the place of one.
    fn replace_columns(
        &self,
        name: &ObjectName,
        change: impl FnOnce(&TableEntry, TableSchema) -> Result<ChangedColumns>,
    ) -> Result<()> {
        let entry = self.find_entry(name)?;
        let _held = entry.hold_writes()?;
        let schema = declared_schema(&entry.table);
        let changed = change(&entry, schema.clone())?;
        if changed.schema == schema {
            return Ok(());
        }
        let readers = self.readers(&entry, &changed);
        let readers = readers.map_err(|error| Box::new(at_name(*error, name)))?;
        if !entry.offline.is_empty() {
            return Diagnostic::unsupported("cannot change columns of a table with offline data")
                .at(name.name.span)
                .with_detail("The offline files and rows have the current columns.")
                .with_hint("Remove the offline data first with ALTER TABLE … DROP offline_path.")
                .err();
        }
        check_times(&schema, name)?;
        let table = self.make_unnamed_table(changed.schema.clone(), &entry.options)?;
        let new = TableEntry {
            id: table.log_id().unwrap_or(0),
            table,
            options: entry.options.clone(),
            offline: Arc::default(),
            definition: Definition::new(ObjectKind::Table, self.qualified(name)),
            writers: Arc::default(),
        };
        // While the table is empty: the indexes that they need are built by the copy.
        let readers = self.compile_readers(&entry, &new, &readers);
        let readers = readers.map_err(|error| Box::new(at_name(*error, name)))?;
        let durability = entry.options.durability().unwrap_or_else(|| self.durability());
        with_durability(durability, || copy_rows(&entry.table, &new.table, &changed.sources))?;
        let replaced = entry.id;
        self.database.commit(&CatalogCommand::ReplaceTable { entry: new, replaced, readers })
    }

    /// Returns the columns as they are after the actions, in their order.
    fn changed(
        &self,
        entry: &TableEntry,
        schema: TableSchema,
        actions: &[AlterTableAction],
    ) -> Result<ChangedColumns> {
        let mut changed = ChangedColumns::of(schema);
        for action in actions {
            match action {
                AlterTableAction::OfflinePath { span, .. } => {
                    let message = "ALTER TABLE cannot change both columns and offline paths";
                    return Diagnostic::unsupported(message)
                        .at(*span)
                        .with_hint("Use two statements.")
                        .err();
                }
                AlterTableAction::SetOptions { .. } => {
                    return Diagnostic::internal("options are set by a statement of their own")
                        .err();
                }
                AlterTableAction::AddColumn { column, if_not_exists } => {
                    let is_there = changed.schema.find_column(&column.name.text).is_some();
                    if !is_there || !if_not_exists {
                        let is_empty = entry.table.row_count() == 0;
                        self.add_column(&mut changed, column, is_empty)?;
                    }
                }
                AlterTableAction::AddPrimaryKey(key) => add_primary_key(&mut changed.schema, key)?,
                AlterTableAction::DropColumn { column, if_exists } => {
                    let is_there = changed.schema.find_column(&column.text).is_some();
                    if is_there || !if_exists {
                        changed.drop(column)?;
                    }
                }
                AlterTableAction::RenameColumn { column, to } => changed.rename(column, to)?,
            }
        }
        debug_assert_eq!(
            changed.schema.columns.len(),
            changed.sources.len(),
            "each column has values"
        );
        Ok(changed)
    }

    fn add_column(
        &self,
        changed: &mut ChangedColumns,
        definition: &ColumnDefinition,
        is_empty: bool,
    ) -> Result<()> {
        changed.check_free(&definition.name)?;
        let column = column(definition, self.settings())?;
        if !column.nullable && column.default.is_none() && !is_empty {
            let name = &definition.name;
            let message =
                format!("existing rows have no value for NOT NULL column `{}`", name.text);
            return Diagnostic::new(code::NOT_NULL_VIOLATION, message)
                .at(name.span)
                .with_hint("Add a DEFAULT to the column, or omit NOT NULL.")
                .err();
        }
        let value = column.default.clone().unwrap_or(Value::Null);
        changed.sources.push(ValueSource::Constant(value));
        changed.schema.columns.push(column);
        Ok(())
    }
}

impl ChangedColumns {
    /// Returns the columns as they are.
    fn of(schema: TableSchema) -> Self {
        let sources = (0..schema.columns.len()).map(ValueSource::Column).collect();
        Self { schema, sources }
    }

    /// Finds a column that an action names.
    fn find(&self, name: &Ident) -> Result<usize> {
        if let Some(position) = self.schema.find_column(&name.text) {
            return Ok(position);
        }
        let names = self.schema.columns.iter().map(|column| column.name.as_str());
        Diagnostic::new(code::UNDEFINED_COLUMN, format!("column `{}` does not exist", name.text))
            .at(name.span)
            .with_nearest_or_all(&name.text, "The columns are", names)
            .err()
    }

    fn check_free(&self, name: &Ident) -> Result<()> {
        if self.schema.find_column(&name.text).is_none() {
            return Ok(());
        }
        let message = format!("column `{}` already exists", name.text);
        Diagnostic::new(code::DUPLICATE_OBJECT, message).at(name.span).err()
    }

    fn rename(&mut self, name: &Ident, to: &Ident) -> Result<()> {
        let position = self.find(name)?;
        if name.text != to.text {
            self.check_free(to)?;
        }
        to.text.clone_into(&mut self.schema.columns[position].name);
        Ok(())
    }

    fn drop(&mut self, name: &Ident) -> Result<()> {
        let position = self.find(name)?;
        let reads = |index: &&IndexSpec| {
            index.keys.contains(&position) || index.event_time == Some(position)
        };
        if let Some(index) = self.schema.indexes.iter().find(reads) {
            let message = format!("column `{}` is part of index `{}`", name.text, index.name);
            return Diagnostic::new(code::DEPENDENT_OBJECTS, message)
                .at(name.span)
                .with_hint("Drop the index first with DROP INDEX.")
                .err();
        }
        if self.schema.columns.len() == 1 {
            let message =
                format!("cannot drop column `{}`: it is the only column of the table", name.text);
            return Diagnostic::new(code::INVALID_TABLE_DEFINITION, message)
                .at(name.span)
                .with_hint("Use DROP TABLE to remove the table.")
                .err();
        }
        self.schema.columns.remove(position);
        self.sources.remove(position);
        let after = |column: &mut usize| *column -= usize::from(*column > position);
        for index in &mut self.schema.indexes {
            index.keys.iter_mut().for_each(after);
            index.event_time.iter_mut().for_each(after);
        }
        Ok(())
    }
}

/// Fails where an index counts the time that it keeps a row from the row's arrival, which a copy would
/// begin again.
fn check_times(schema: &TableSchema, name: &ObjectName) -> Result<()> {
    let counts = |index: &&IndexSpec| {
        index.event_time.is_none()
            && !matches!(index.retention, Retention::Forever | Retention::Latest { .. })
    };
    let Some(index) = schema.indexes.iter().find(counts) else { return Ok(()) };
    let message =
        format!("cannot change columns: index `{}` expires rows by arrival time", index.name);
    Diagnostic::unsupported(message)
        .at(name.name.span)
        .with_detail("The rows would be copied, which would restart their TTL.")
        .with_hint("Use CREATE TABLE … AS SELECT to create a table with other columns.")
        .err()
}
