//! CREATE INDEX, DROP INDEX, and the INDEX definitions of CREATE TABLE.

mod ttl;

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::Compatibility;
use lockstep_row::{Column, DataType, IndexSpec, Retention, TableSchema};
use lockstep_sql::ast::{
    self, Ident, IndexDefinition, ObjectName, OptionItem, OptionValue, PrimaryKey,
};
use lockstep_table::TableError;

use crate::{
    Output, Session,
    append::table_error,
    inspect::declared_schema,
    options::{OptionArgument, OptionSpec, OptionTable, UnknownOption, word},
};

impl Session {
    /// Runs CREATE INDEX.
    pub(crate) fn create_index(&self, create: &ast::CreateIndex) -> Result<Output> {
        let warnings = self.find_entry(&create.table)?.write(|table| {
            let (index, warnings) = created_index(create, &declared_schema(table))?;
            table.add_declared_index(index).map_err(|error| table_error(&error))?;
            Ok(warnings)
        })?;
        Ok(Output { warnings, ..Output::of_message("CREATE INDEX") })
    }

    /// Runs DROP INDEX.
    pub(crate) fn drop_index(&self, name: &ObjectName, index: &Ident) -> Result<Output> {
        self.find_entry(name)?.write(|table| {
            let schema = declared_schema(table);
            // A table of OpenMLDB has at least one index; here, one without indexes has every row.
            let is_last = schema.indexes.iter().all(|declared| declared.name == index.text);
            if self.settings().compatibility == Compatibility::OpenMldb
                && is_last
                && !schema.indexes.is_empty()
            {
                let message = format!(
                    "cannot drop index `{}`: it is the last index of the table",
                    index.text
                );
                return Diagnostic::new(code::DEPENDENT_OBJECTS, message).at(index.span).err();
            }
            table.drop_declared_index(&index.text).map_err(|error| match error {
                TableError::IndexMissing { .. } => Box::new(
                    Diagnostic::new(code::UNDEFINED_OBJECT, error.to_string())
                        .at(index.span)
                        .with_nearest(&index.text, schema.indexes.iter().map(|i| i.name.as_str())),
                ),
                _ => table_error(&error),
            })
        })?;
        Ok(Output::of_message("DROP INDEX"))
    }
}

/// Returns the index that a CREATE INDEX describes, and the warnings. `schema` has the declared
/// indexes only.
fn created_index(
    create: &ast::CreateIndex,
    schema: &TableSchema,
) -> Result<(IndexSpec, Vec<Diagnostic>)> {
    let mut keys = Vec::new();
    for column in &create.columns {
        keys.push(find_column(schema, &column.text, column.span)?);
    }
    let span = create.name.span;
    let mut options = IndexOptions::new(schema);
    options.keys = Some(keys);
    let warnings = options.read(&create.options, UnknownOption::Warning)?;
    let index = options.into_index(create.name.text.clone(), span)?;
    if schema.find_index(&index.keys, index.event_time).is_some() {
        return definition_error("an index with these columns and TS already exists", span);
    }
    Ok((index, warnings))
}

/// Returns the index that an INDEX of a CREATE TABLE describes. One without a name gets one by its
/// position.
pub(super) fn declare_index(
    definition: &IndexDefinition,
    schema: &TableSchema,
) -> Result<IndexSpec> {
    let generated = || format!("index{}", schema.indexes.len());
    let name = definition.name.as_ref().map_or_else(generated, |name| name.text.clone());
    let mut options = IndexOptions::new(schema);
    options.read(&definition.options, UnknownOption::Ignored)?;
    options.into_index(name, definition.span)
}

/// Adds an index to a schema.
pub(super) fn add_index(schema: &mut TableSchema, index: IndexSpec, span: Span) -> Result<()> {
    if schema.find_index(&index.keys, index.event_time).is_some() {
        return definition_error("an index with this KEY and TS already exists", span);
    }
    schema.indexes.push(index);
    Ok(())
}

/// Adds the index of a primary key to a schema, whose columns become NOT NULL. Fails where the schema has
/// one: of two keys, each would keep rows that the other replaces.
pub(super) fn add_primary_key(schema: &mut TableSchema, key: &PrimaryKey) -> Result<()> {
    let is_key = |index: &&IndexSpec| {
        let has_nulls = index.keys.iter().any(|column| schema.columns[*column].nullable);
        index.keeps_one_row() && index.event_time.is_none() && !has_nulls
    };
    if let Some(index) = schema.indexes.iter().find(is_key) {
        let message = format!("index `{}` already keeps one row per key", index.name);
        return Diagnostic::new(code::INVALID_TABLE_DEFINITION, message)
            .at(key.index.span)
            .with_hint("A table can have only one PRIMARY KEY; use INDEX(KEY=k) for another key.")
            .err();
    }
    let index = declare_index(&key.index, schema)?;
    for column in &index.keys {
        schema.columns[*column].nullable = false;
    }
    add_index(schema, index, key.index.span)
}

/// Adds the index that a table without indexes has in OpenMLDB: over the first column that can be
/// a key, in order of arrival, keeping every row. It changes no result of a query.
pub(super) fn add_default_index(schema: &mut TableSchema) {
    if !schema.indexes.is_empty() {
        return;
    }
    if let Ok(key) = default_key(schema, None, Span::default()) {
        schema.indexes.push(IndexSpec {
            name: "index0".to_owned(),
            keys: vec![key],
            event_time: None,
            retention: Retention::Forever,
            declared: true,
        });
    }
}

/// The values of an index's options.
struct IndexOptions<'s> {
    schema: &'s TableSchema,
    keys: Option<Vec<usize>>,
    event_time: Option<usize>,
    ttl: Option<OptionItem>,
    ttl_type: Option<OptionItem>,
}

impl<'s> IndexOptions<'s> {
    fn new(schema: &'s TableSchema) -> Self {
        Self { schema, keys: None, event_time: None, ttl: None, ttl_type: None }
    }

    /// Returns the options of an index. `version` and `type` are accepted from scripts for
    /// OpenMLDB, and have no effect.
    fn specs() -> [OptionSpec<Self>; 8] {
        let set_keys = |options: &mut Self, argument: &mut OptionArgument<'_>| {
            options.keys = Some(key_columns(argument.item(), options.schema)?);
            Ok(())
        };
        let accept = |_: &mut Self, _: &mut OptionArgument<'_>| Ok(());
        [
            OptionSpec { name: "key", set: set_keys },
            OptionSpec { name: "ckey", set: set_keys },
            OptionSpec { name: "skey", set: set_keys },
            OptionSpec {
                name: "ts",
                set: |options, argument| {
                    let name = word(argument.value()).unwrap_or_default();
                    let span = argument.item().span;
                    options.event_time = Some(find_column(options.schema, name, span)?);
                    Ok(())
                },
            },
            OptionSpec {
                name: "ttl",
                set: |options, argument| {
                    options.ttl = Some(argument.item().clone());
                    Ok(())
                },
            },
            OptionSpec {
                name: "ttl_type",
                set: |options, argument| {
                    options.ttl_type = Some(argument.item().clone());
                    Ok(())
                },
            },
            OptionSpec { name: "version", set: accept },
            OptionSpec { name: "type", set: accept },
        ]
    }

    fn read(&mut self, items: &[OptionItem], unknown: UnknownOption) -> Result<Vec<Diagnostic>> {
        let error_code = code::INVALID_TABLE_DEFINITION;
        OptionTable { specs: &Self::specs(), unknown, error_code }.read(items, self)
    }

    /// Checks the values together, and makes the index of them.
    fn into_index(self, name: String, span: Span) -> Result<IndexSpec> {
        let Self { schema, keys, event_time, ttl, ttl_type } = self;
        check_event_time(event_time, schema, span)?;
        let keys = match keys {
            Some(keys) => keys,
            None => vec![default_key(schema, event_time, span)?],
        };
        check_keys(&keys, schema, span)?;
        let retention = ttl::retention(ttl.as_ref(), ttl_type.as_ref())?;
        debug_assert!(
            keys.iter().chain(&event_time).all(|column| *column < schema.columns.len()),
            "columns were looked up in the schema"
        );
        Ok(IndexSpec { name, keys, event_time, retention, declared: true })
    }
}

fn key_columns(item: &OptionItem, schema: &TableSchema) -> Result<Vec<usize>> {
    let values = match &item.value {
        OptionValue::List(items) => items.as_slice(),
        other => std::slice::from_ref(other),
    };
    let Some(names) = values.iter().map(word).collect::<Option<Vec<&str>>>() else {
        let message = format!("{} must be a list of column names", item.key.text.to_uppercase());
        return Diagnostic::new(code::INVALID_TABLE_DEFINITION, message).at(item.span).err();
    };
    names.into_iter().map(|name| find_column(schema, name, item.span)).collect()
}

/// Returns the position of a column; an error at `span`, with the nearest name, where the table
/// does not have it.
pub(super) fn find_column(schema: &TableSchema, name: &str, span: Span) -> Result<usize> {
    if let Some(position) = schema.find_column(name) {
        return Ok(position);
    }
    Diagnostic::new(code::UNDEFINED_COLUMN, format!("column `{name}` does not exist"))
        .at(span)
        .with_nearest(name, schema.columns.iter().map(|column| column.name.as_str()))
        .err()
}

fn check_event_time(event_time: Option<usize>, schema: &TableSchema, span: Span) -> Result<()> {
    let Some(position) = event_time else { return Ok(()) };
    let column = &schema.columns[position];
    if matches!(column.data_type, DataType::BigInt | DataType::Timestamp) {
        return Ok(());
    }
    let message = format!(
        "TS must be of type BIGINT or TIMESTAMP, but column `{}` is of type {}",
        column.name, column.data_type
    );
    definition_error(message, span)
}

fn check_keys(keys: &[usize], schema: &TableSchema, span: Span) -> Result<()> {
    for (position, key) in keys.iter().enumerate() {
        let column = &schema.columns[*key];
        if keys[..position].contains(key) {
            return definition_error(
                format!("column `{}` appears more than once in KEY", column.name),
                span,
            );
        }
        if !can_be_key(column) {
            let message = format!(
                "type {} of column `{}` cannot be used in KEY",
                column.data_type, column.name
            );
            return definition_error(message, span);
        }
    }
    Ok(())
}

/// Returns the key of an index without KEY: the first column that can be one.
fn default_key(schema: &TableSchema, event_time: Option<usize>, span: Span) -> Result<usize> {
    let is_usable =
        |(position, column): &(usize, &Column)| Some(*position) != event_time && can_be_key(column);
    match schema.columns.iter().enumerate().find(is_usable) {
        Some((position, _)) => Ok(position),
        None => definition_error("no column can be used as the KEY of this index", span),
    }
}

fn can_be_key(column: &Column) -> bool {
    !column.data_type.is_float() && !matches!(column.data_type, DataType::Map(..))
}

/// Fails with the error of a definition that no table can have.
pub(super) fn definition_error<T>(message: impl Into<String>, span: Span) -> Result<T> {
    Diagnostic::new(code::INVALID_TABLE_DEFINITION, message).at(span).err()
}
