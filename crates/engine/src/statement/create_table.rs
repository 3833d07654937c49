//! CREATE TABLE: from column definitions, from the columns of a file, or from an Arrow schema.

mod options;

use std::{collections::HashSet, sync::Arc};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use lockstep_batch::load::{FileFormat, LoadOptions, infer_schema};
use lockstep_diagnostic::{Diagnostic, Kind, Result, Span, code};
use lockstep_function::{Compatibility, Settings};
use lockstep_plan::{BindOptions, bind_constant, type_of};
use lockstep_row::{Column, DataType, TableSchema, Value, arrow::importable};
use lockstep_sql::ast::{ColumnDefinition, CreateLike, CreateTable, ObjectName, OptionItem, Query};
use lockstep_table::{Appended, Durability, Table, with_durability};

pub use options::StorageMode;
pub(crate) use options::TableOptions;

use super::{
    create_index::{
        add_default_index, add_index, add_primary_key, declare_index, definition_error,
    },
    insert::renamed,
    outcome,
};
use crate::{
    Output, Parameter, Session,
    access::{Needs, Requirement},
    append::{self, AppendRule, table_error},
    catalog::{CatalogCommand, CatalogRecord, check_name},
    context::checkpoint,
    entrance::{CallDescription, no_plan},
    literal::{ConstantPosition, coerce},
    session::object_name,
    user::{Privilege, Securable},
    variables::no_effect,
};

/// The most indexes of a table.
const INDEXES_MAX: usize = 200;

impl Session {
    /// Creates a table with the columns of an Arrow schema. A column whose type no column of a table
    /// has is an error that names it, and so is a column without a type.
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
            check_name("a table", &name.name.text)?;
            let schema = schema_of_arrow(table, schema)?;
            let created =
                NewTable { name: &name, options: TableOptions::default(), rule: NameRule::Free };
            self.add_table(created, schema)
        })
    }

    /// Creates a table with the columns of an Arrow schema and these rows. Nobody sees the table without
    /// its rows, also after a crash.
    ///
    /// ```
    /// # use lockstep_engine::{CreationOptions, Database, IfExists};
    /// let session = Database::in_memory().session();
    /// let rows = session.execute("SELECT 'a' AS k, 1 AS n")?.batches;
    /// let options = CreationOptions { if_exists: IfExists::Replace, ..CreationOptions::default() };
    /// for _ in 0..2 {
    ///     let mut batches = rows.iter().cloned().map(Ok);
    ///     session.create_table_of("t", &rows[0].schema(), &mut batches, options)?;
    /// }
    /// assert_eq!(session.execute("SELECT * FROM t")?.row_count(), 1);
    /// # Ok::<(), Box<lockstep_engine::Diagnostic>>(())
    /// ```
    pub fn create_table_of(
        &self,
        table: &str,
        schema: &SchemaRef,
        batches: &mut dyn Iterator<Item = Result<RecordBatch>>,
        options: CreationOptions,
    ) -> Result<Output> {
        let CreationOptions { if_exists, durability, storage_mode } = options;
        let name = object_name(table);
        let mut privileges = vec![Privilege::Create, Privilege::Insert];
        if if_exists == IfExists::Replace {
            privileges.push(Privilege::Drop);
        }
        let operation = || {
            let object = Securable::Table(self.qualified(&name));
            let of = |privilege: &Privilege| Requirement::new(*privilege, object.clone());
            CallDescription {
                action: "CREATE TABLE",
                text: table,
                needs: Needs::of(privileges.iter().map(of).collect()),
                is_audited: true,
                plan: &no_plan,
            }
        };
        let rule = match if_exists {
            IfExists::Fail => NameRule::Free,
            IfExists::Replace => NameRule::Replaced,
        };
        let create = || {
            self.check_insert_memory()?;
            check_name("a table", &name.name.text)?;
            let schema = schema_of_arrow(table, schema)?;
            let options = TableOptions::of_storage_mode(storage_mode);
            let warnings = self.storage_warning(&[], &options).into_iter().collect();
            let new = NewTable { name: &name, options, rule };
            Ok((self.add_table_with_rows(new, schema, batches)?, warnings))
        };
        let durability = durability.unwrap_or_else(|| self.durability());
        let (appended, warnings) = self.enter(operation, || with_durability(durability, create))?;
        let rows_affected = Some(appended.rows);
        Ok(Output { rows_affected, warnings, ..Output::of_message("APPEND") })
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
            return self.create_table_as(create, query, parameters);
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
        let (options, warnings) = self.read_table_options(&create.options)?;
        self.add_table(NewTable::of(create, options), schema)?;
        Ok(Output { warnings, ..Output::of_message("CREATE TABLE") })
    }

    /// Creates a table of the columns and rows of a query, which runs before.
    fn create_table_as(
        &self,
        create: &CreateTable,
        query: &Query,
        parameters: &[Parameter],
    ) -> Result<Output> {
        self.require_online("CREATE TABLE … AS", create.name.name.span)?;
        let rows = self.relation(query, parameters, None)?.collect(None)?;
        let schema = schema_of_query(&rows.columns, query.span)?;
        let names: Vec<String> = rows.columns.iter().map(|(name, _)| name.clone()).collect();
        let (options, mut warnings) = self.read_table_options(&create.options)?;
        let batches = rows.batches.iter().map(|batch| renamed(batch, &names));
        let new = NewTable::of(create, options);
        let appended = self.add_table_with_rows(new, schema, batches)?;
        warnings.extend(rows.warnings);
        let rows_affected = Some(appended.rows);
        Ok(Output { rows_affected, warnings, ..Output::of_message("CREATE TABLE") })
    }

    /// Reads the options of CREATE TABLE; the warnings are the second value.
    fn read_table_options(&self, items: &[OptionItem]) -> Result<(TableOptions, Vec<Diagnostic>)> {
        let (options, mut warnings) = TableOptions::read(items)?;
        warnings.extend(self.storage_warning(items, &options));
        Ok((options, warnings))
    }

    /// Returns the warning that rows stay in memory although the options say otherwise.
    pub(super) fn storage_warning(
        &self,
        items: &[OptionItem],
        options: &TableOptions,
    ) -> Option<Diagnostic> {
        if !options.is_on_disk() || self.database.has_directory() {
            return None;
        }
        let hint = "Connect to a directory for tables on a disk; this database is in memory.";
        let warning = no_effect("option `storage_mode`").with_hint(hint);
        Some(match items.iter().find(|item| item.key.text == "storage_mode") {
            Some(item) => warning.at(item.span),
            None => warning,
        })
    }

    /// Adds an empty table to the catalog.
    pub(super) fn add_table(&self, new: NewTable<'_>, schema: TableSchema) -> Result<()> {
        let table = self.make_shared_table(schema, &new.options)?;
        self.name_table(new, table)
    }

    /// Adds a table with rows to the catalog, or takes the place of another with it, at once: nobody
    /// sees it without its rows, also after a crash.
    fn add_table_with_rows(
        &self,
        new: NewTable<'_>,
        schema: TableSchema,
        batches: impl Iterator<Item = Result<RecordBatch>>,
    ) -> Result<Appended> {
        let table = self.make_unnamed_table(schema, &new.options)?;
        let conversion = self.conversion();
        let load = || append::load(batches, &table, AppendRule::Any, conversion);
        let appended = match new.options.durability() {
            Some(durability) => with_durability(durability, load),
            None => load(),
        }?;
        self.name_table(new, Arc::clone(&table))?;
        Ok(appended)
    }

    /// Makes a table that is not in the catalog, whose rows are logged all the same.
    pub(super) fn make_unnamed_table(
        &self,
        schema: TableSchema,
        options: &TableOptions,
    ) -> Result<Arc<Table>> {
        let table = self.make_shared_table(schema, options)?;
        let (id, schema) = (table.log_id().unwrap_or(0), TableSchema::clone(&table.schema()));
        let record = CatalogRecord::CreateOfflineRows { id, schema };
        self.database.log_unnamed_table(id, &table, &record)?;
        Ok(table)
    }

    /// Makes a table whose rows will be where the options say: before there are some, which may be more than fit
    /// into memory.
    fn make_shared_table(&self, schema: TableSchema, options: &TableOptions) -> Result<Arc<Table>> {
        debug_assert!(!schema.columns.is_empty(), "a table has columns");
        let table = self.database.make_table(schema).map_err(|error| table_error(&error))?;
        if options.is_on_disk() {
            table.move_to_disk().map_err(|error| table_error(&error))?;
        }
        Ok(table.shared(self.database().host().threads))
    }

    /// Gives a table its name in the catalog.
    pub(super) fn name_table(&self, new: NewTable<'_>, table: Arc<Table>) -> Result<()> {
        let NewTable { name, options, rule } = new;
        let or_replace = rule == NameRule::Replaced;
        let tolerated = (rule == NameRule::Tolerated).then_some(code::DUPLICATE_TABLE);
        let name_of_table = self.qualified(name);
        let command =
            CatalogCommand::CreateTable { name: name_of_table, table, options, or_replace };
        outcome(self.database.commit(&command), tolerated, name, "CREATE TABLE").map(|_| ())
    }
}

/// How [`Session::create_table_of`] creates its table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CreationOptions {
    /// What becomes of a table of the same name.
    pub if_exists: IfExists,
    /// How durable the rows must be before the call returns; `None`: as the session says.
    pub durability: Option<Durability>,
    /// Where the rows lie; `None`: in memory.
    pub storage_mode: Option<StorageMode>,
}

/// What becomes of a table whose name a new one is to have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IfExists {
    /// The call fails.
    #[default]
    Fail,
    /// It is replaced.
    Replace,
}

/// The name and options of a table that is created.
pub(super) struct NewTable<'n> {
    pub(super) name: &'n ObjectName,
    pub(super) options: TableOptions,
    pub(super) rule: NameRule,
}

/// What becomes of a table that has the name already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameRule {
    /// There must be none.
    Free,
    /// It stays, and nothing is created.
    Tolerated,
    /// It is replaced.
    Replaced,
}

impl<'n> NewTable<'n> {
    fn of(create: &'n CreateTable, options: TableOptions) -> Self {
        let rule = match (create.or_replace, create.if_not_exists) {
            (true, _) => NameRule::Replaced,
            (false, true) => NameRule::Tolerated,
            (false, false) => NameRule::Free,
        };
        Self { name: &create.name, options, rule }
    }
}

/// Returns the schema that the definitions of a CREATE TABLE describe.
fn schema_of_definitions(create: &CreateTable, settings: Settings) -> Result<TableSchema> {
    let mut schema = TableSchema::default();
    let mut names = HashSet::new();
    for definition in &create.columns {
        checkpoint()?;
        if !names.insert(definition.name.text.as_str()) {
            let message = format!("column `{}` is specified more than once", definition.name.text);
            return Diagnostic::new(code::DUPLICATE_OBJECT, message).at(definition.name.span).err();
        }
        schema.columns.push(column(definition, settings)?);
    }
    if create.indexes.len() + create.primary_keys.len() > INDEXES_MAX {
        let message = format!("tables can have at most {INDEXES_MAX} indexes");
        return definition_error(message, create.name.name.span);
    }
    for definition in &create.indexes {
        let index = declare_index(definition, &schema)?;
        add_index(&mut schema, index, definition.span)?;
    }
    for key in &create.primary_keys {
        add_primary_key(&mut schema, key)?;
    }
    Ok(schema)
}

/// Returns the column of a definition, its DEFAULT converted to its type.
pub(super) fn column(definition: &ColumnDefinition, settings: Settings) -> Result<Column> {
    let data_type = type_of(&definition.data_type)?;
    if matches!(data_type, DataType::Array(_) | DataType::Null) {
        let message = format!("a column cannot be of type {data_type}");
        return definition_error(message, definition.data_type.name.span);
    }
    let default = match &definition.default {
        None => None,
        Some(expr) => {
            let options = BindOptions { settings, ..BindOptions::default() };
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
    // OpenMLDB reads a length and does not enforce it.
    let is_enforced = settings.compatibility == Compatibility::Standard;
    let length_max = definition.data_type.length.filter(|_| is_enforced);
    let column = Column {
        name: definition.name.text.clone(),
        data_type,
        nullable: !definition.not_null,
        default,
        length_max,
    };
    if let Some(Value::String(text)) = &column.default {
        let checked = column.check_length(text);
        checked.or_else(|error| definition_error(error.to_string(), definition.name.span))?;
    }
    Ok(column)
}

/// Returns the schema of a query's columns.
pub(super) fn schema_of_query(columns: &[(String, DataType)], span: Span) -> Result<TableSchema> {
    let mut schema = TableSchema::default();
    let mut names = HashSet::new();
    for (name, data_type) in columns {
        if !names.insert(name.as_str()) {
            let message = format!("the query has more than one column named `{name}`");
            return Diagnostic::new(code::DUPLICATE_OBJECT, message)
                .at(span)
                .with_hint("Rename one of the columns with AS.")
                .err();
        }
        if is_untyped(data_type) || matches!(data_type, DataType::Array(_)) {
            let message = format!("column `{name}` has type {data_type}, which cannot be stored");
            return Diagnostic::new(code::DATATYPE_MISMATCH, message)
                .at(span)
                .with_hint("Convert it to another type with CAST.")
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
            .with_hint("Use LIKE PARQUET 'path' to copy the columns of a Parquet file.")
            .err();
    };
    let options = LoadOptions { format, ..LoadOptions::default() };
    infer_schema(&like.path, &options, &settings).map_err(|error| Box::new(error.at(like.span)))
}

/// Refuses a column of a type that CREATE TABLE does not take.
fn check_columns(columns: &[Column]) -> Result<()> {
    let refused = columns.iter().find(|column| matches!(column.data_type, DataType::Array(_)));
    let Some(Column { name, data_type, .. }) = refused else { return Ok(()) };
    let message = format!("column `{name}` cannot be of type {data_type}");
    Diagnostic::new(code::INVALID_TABLE_DEFINITION, message)
        .with_kind(Kind::FixData)
        .with_hint("Omit the column, or store one row per array element.")
        .err()
}

/// Returns the schema of an Arrow schema's columns.
fn schema_of_arrow(table: &str, schema: &SchemaRef) -> Result<TableSchema> {
    check_name("a table", &object_name(table).name.text)?;
    if schema.fields().is_empty() {
        let message = format!("table `{table}` does not exist, and the data has no columns");
        return Diagnostic::new(code::UNDEFINED_TABLE, message)
            .with_hint("Create the table first with CREATE TABLE.")
            .err();
    }
    let mut columns = Vec::new();
    for field in schema.fields() {
        check_name("a column", field.name())?;
        let Some(data_type) = importable(field.data_type()) else {
            let message = format!("column `{}` has a type that cannot be stored", field.name());
            return Diagnostic::new(code::DATATYPE_MISMATCH, message)
                .with_detail(format!("Its Arrow type is {}.", field.data_type()))
                .err();
        };
        if is_untyped(&data_type) {
            let message =
                format!("cannot determine the type of column `{}`: it has no value", field.name());
            return Diagnostic::new(code::DATATYPE_MISMATCH, message)
                .with_kind(Kind::FixData)
                .with_hint(
                    "Create the table first with CREATE TABLE, or specify the type of the column.",
                )
                .err();
        }
        columns.push(Column::new(field.name(), data_type));
    }
    check_columns(&columns)?;
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
