//! CREATE TABLE: from column definitions, from the columns of a file, or from an Arrow schema.

mod options;

use arrow::datatypes::SchemaRef;
use lockstep_batch::load::{FileFormat, LoadOptions, infer_schema};
use lockstep_diagnostic::{Diagnostic, Kind, Result, Span, code};
use lockstep_function::{Compatibility, Settings};
use lockstep_host::QueryContext;
use lockstep_plan::{BindOptions, bind_constant, type_of};
use lockstep_row::{Column, DataType, TableSchema, Value, arrow::importable};
use lockstep_sql::ast::{ColumnDefinition, CreateLike, CreateTable, ObjectName, Query};
use lockstep_table::Table;

pub(crate) use options::TableOptions;

use super::{
    create_index::{add_default_index, declare_index, definition_error},
    insert::renamed,
    outcome,
};
use crate::{
    Output, Parameter, Session,
    access::Needs,
    append::{self, AppendRule, table_error},
    catalog::CatalogCommand,
    entrance::{CallDescription, no_plan},
    literal::{ConstantPosition, coerce},
    session::object_name,
    user::{Privilege, Securable},
};

/// The most indexes of a table.
const INDEXES_MAX: usize = 200;

impl Session {
    /// Creates a table with the columns of an Arrow schema. A column whose type the dialect does
    /// not have is an error that names it, and so is a column without a type.
    pub fn create_table(&self, table: &str, schema: &SchemaRef) -> Result<()> {
        let name = object_name(table);
        let operation = || CallDescription {
            action: "CREATE TABLE",
            text: table,
            needs: Needs::one(
                Privilege::Create,
                Securable::Table(self.qualified(&name)),
                name.name.span,
            ),
            is_audited: true,
            plan: &no_plan,
        };
        self.enter(operation, || {
            let schema = schema_of_arrow(table, schema)?;
            self.add_table(&name, schema, TableOptions::default(), false)
        })
    }

    /// Runs CREATE TABLE.
    pub(crate) fn run_create_table(
        &self,
        create: &CreateTable,
        parameters: &[Parameter],
    ) -> Result<Output> {
        if create.if_not_exists && self.find_table(&create.name).is_ok() {
            return Ok(Output::of_message("CREATE TABLE"));
        }
        if let Some(query) = &create.query {
            return self.create_table_of(create, query, parameters);
        }
        let mut schema = match &create.like {
            Some(like) => schema_of_file(like, self.settings())?,
            None => schema_of_definitions(create, self.settings())?,
        };
        if schema.columns.is_empty() {
            let message = format!("table `{}` has no columns", create.name.name.text);
            return Diagnostic::new(code::INVALID_TABLE_DEFINITION, message)
                .at(create.name.name.span)
                .err();
        }
        if self.settings().compatibility == Compatibility::OpenMldb {
            add_default_index(&mut schema);
        }
        let (options, warnings) = TableOptions::read(&create.options)?;
        self.add_table(&create.name, schema, options, create.if_not_exists)?;
        Ok(Output { warnings, ..Output::of_message("CREATE TABLE") })
    }

    /// Creates a table of the columns and rows of a query, which runs before. A table that cannot
    /// take the rows is dropped again.
    fn create_table_of(
        &self,
        create: &CreateTable,
        query: &Query,
        parameters: &[Parameter],
    ) -> Result<Output> {
        self.require_online("CREATE TABLE … AS", create.name.name.span)?;
        let rows = self.relation(query, parameters, None)?.collect(None)?;
        let schema = schema_of_query(&rows, query.span)?;
        let names: Vec<String> = rows.columns.iter().map(|(name, _)| name.clone()).collect();
        let (options, mut warnings) = TableOptions::read(&create.options)?;
        self.add_table(&create.name, schema, options, create.if_not_exists)?;
        let entry = self.find_entry(&create.name)?;
        let batches = rows.batches.iter().map(|batch| renamed(batch, &names));
        let load = |table: &Table| append::load(batches, table, AppendRule::Any, self.conversion());
        match entry.write(load) {
            Ok(appended) => {
                warnings.extend(rows.warnings);
                let rows_affected = Some(appended.rows);
                Ok(Output { rows_affected, warnings, ..Output::of_message("CREATE TABLE") })
            }
            Err(error) => {
                // Also where the statement was cancelled.
                QueryContext::new().run(|| self.drop_table(&create.name, true))?;
                Err(error)
            }
        }
    }

    fn add_table(
        &self,
        name: &ObjectName,
        schema: TableSchema,
        options: TableOptions,
        if_not_exists: bool,
    ) -> Result<()> {
        let table = self.database.make_table(schema).map_err(|error| table_error(&error))?;
        let table = table.shared(self.database().host().threads);
        let command = CatalogCommand::CreateTable { name: self.qualified(name), table, options };
        let tolerated = if_not_exists.then_some(code::DUPLICATE_TABLE);
        outcome(self.database.commit(&command), tolerated, name, "CREATE TABLE").map(|_| ())
    }
}

/// Returns the schema that the definitions of a CREATE TABLE describe.
fn schema_of_definitions(create: &CreateTable, settings: Settings) -> Result<TableSchema> {
    let mut schema = TableSchema::default();
    for definition in &create.columns {
        if schema.find_column(&definition.name.text).is_some() {
            let message = format!("column `{}` is defined twice", definition.name.text);
            return Diagnostic::new(code::DUPLICATE_OBJECT, message).at(definition.name.span).err();
        }
        schema.columns.push(column(definition, settings)?);
    }
    if create.indexes.len() > INDEXES_MAX {
        let message = format!("a table has at most {INDEXES_MAX} indexes");
        return definition_error(message, create.name.name.span);
    }
    for definition in &create.indexes {
        let index = declare_index(definition, &schema)?;
        if schema.find_index(&index.keys, index.event_time).is_some() {
            return definition_error(
                "an index with this KEY and TS exists already",
                definition.span,
            );
        }
        schema.indexes.push(index);
    }
    Ok(schema)
}

/// Returns the column of a definition, its DEFAULT converted to its type.
fn column(definition: &ColumnDefinition, settings: Settings) -> Result<Column> {
    let data_type = type_of(&definition.data_type)?;
    if matches!(data_type, DataType::Array(_) | DataType::Null) {
        let message = format!("a column cannot be {data_type}");
        return definition_error(message, definition.data_type.name.span);
    }
    let default = match &definition.default {
        None => None,
        Some(expr) => {
            let options = BindOptions { settings, parameters: Vec::new() };
            let Some(value) = bind_constant(expr, &options) else {
                return definition_error("a DEFAULT must be a constant", expr.span);
            };
            let position =
                ConstantPosition { column: &definition.name.text, span: Some(expr.span) };
            Some(coerce(&value, &data_type, settings, &position)?)
        }
    };
    if definition.not_null && default == Some(Value::Null) {
        return definition_error("a NOT NULL column cannot default to NULL", definition.name.span);
    }
    Ok(Column {
        name: definition.name.text.clone(),
        data_type,
        nullable: !definition.not_null,
        default,
    })
}

/// Returns the schema of a query's columns.
fn schema_of_query(rows: &Output, span: Span) -> Result<TableSchema> {
    let mut schema = TableSchema::default();
    for (name, data_type) in &rows.columns {
        if schema.find_column(name).is_some() {
            let message = format!("the query has two columns `{name}`");
            return Diagnostic::new(code::DUPLICATE_OBJECT, message)
                .at(span)
                .with_hint("Give one of them another name with AS.")
                .err();
        }
        if is_untyped(data_type) || matches!(data_type, DataType::Array(_)) {
            let message = format!("column `{name}` is {data_type}, which is not stored");
            return Diagnostic::new(code::DATATYPE_MISMATCH, message)
                .at(span)
                .with_hint("CAST gives it another type.")
                .err();
        }
        schema.columns.push(Column::new(name, data_type.clone()));
    }
    Ok(schema)
}

/// Returns the schema of a file's columns.
fn schema_of_file(like: &CreateLike, settings: Settings) -> Result<TableSchema> {
    let Some(format) = FileFormat::from_name(&like.format) else {
        return Diagnostic::unsupported(format!("LIKE {} is not supported", like.format))
            .at(like.span)
            .with_hint("LIKE PARQUET 'path' takes the columns of a Parquet file.")
            .err();
    };
    let options = LoadOptions { format, ..LoadOptions::default() };
    infer_schema(&like.path, &options, &settings).map_err(|error| Box::new(error.at(like.span)))
}

/// Returns the schema of an Arrow schema's columns.
fn schema_of_arrow(table: &str, schema: &SchemaRef) -> Result<TableSchema> {
    if schema.fields().is_empty() {
        let message = format!("table `{table}` does not exist, and the data has no columns");
        return Diagnostic::new(code::UNDEFINED_TABLE, message)
            .with_hint("CREATE TABLE first.")
            .err();
    }
    let mut columns = Vec::new();
    for field in schema.fields() {
        let Some(data_type) = importable(field.data_type()) else {
            let message = format!("column `{}` has a type that cannot be stored", field.name());
            return Diagnostic::new(code::DATATYPE_MISMATCH, message)
                .with_detail(format!("Its Arrow type is {}.", field.data_type()))
                .err();
        };
        if is_untyped(&data_type) {
            let message = format!("column `{}` has no value that gives it a type", field.name());
            return Diagnostic::new(code::DATATYPE_MISMATCH, message)
                .with_kind(Kind::FixData)
                .with_hint("CREATE TABLE first, or give the column a type.")
                .err();
        }
        columns.push(Column::new(field.name(), data_type));
    }
    Ok(TableSchema { columns, indexes: Vec::new() })
}

/// Whether a column of this type could hold nothing but NULL.
fn is_untyped(data_type: &DataType) -> bool {
    match data_type {
        DataType::Null => true,
        DataType::Array(element) => is_untyped(element),
        DataType::Map(key, value) => is_untyped(key) || is_untyped(value),
        _ => false,
    }
}
