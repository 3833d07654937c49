//! What Flight SQL asks about the database: catalogs, schemas, tables, types, the server itself.
//!
//! There is one catalog, `lockstep`; its schemas are the databases. Each user sees what it may see.

use std::sync::LazyLock;

use arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::{DataType as ArrowType, Field, Schema, SchemaRef},
};
use arrow_flight::error::FlightError;
use arrow_flight::sql::{
    Command, CommandGetDbSchemas, CommandGetTables, Nullable, Searchable, SqlInfo,
    SqlSupportedTransaction, XdbcDataType,
    metadata::{
        GetCatalogsBuilder, SqlInfoData, SqlInfoDataBuilder, XdbcTypeInfo, XdbcTypeInfoData,
        XdbcTypeInfoDataBuilder,
    },
};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_engine::Session;
use lockstep_row::DataType;

use super::{
    arrow_bytes::schema_of,
    call::{CallDeadline, FlightCall},
    rows::FlightDataStream,
    status::malformed,
};
use crate::work_pool::WorkClass;

/// The name of the one catalog.
pub(crate) const CATALOG: &str = "lockstep";

/// The type of tables that users make.
const TABLE: &str = "TABLE";

/// The type of views.
const VIEW: &str = "VIEW";

/// The type of the tables of the database `lockstep`.
const SYSTEM_TABLE: &str = "SYSTEM TABLE";

/// The tables and views that the caller sees.
const TABLES_SQL: &str = "
    SELECT database_name, name, 'TABLE' AS kind FROM lockstep.tables
    UNION ALL SELECT database_name, name, 'VIEW' AS kind FROM lockstep.views
    ORDER BY database_name, name";

/// Returns the columns of the answer to a question about the catalog; `None` where the command is none.
pub(crate) fn catalog_schema(command: &Command) -> Option<SchemaRef> {
    Some(match command {
        Command::CommandGetCatalogs(_) => GetCatalogsBuilder::new().schema(),
        Command::CommandGetDbSchemas(command) => command.clone().into_builder().schema(),
        Command::CommandGetTables(command) => command.clone().into_builder().schema(),
        Command::CommandGetTableTypes(command) => command.into_builder().schema(),
        Command::CommandGetSqlInfo(_) => SQL_INFO.schema(),
        Command::CommandGetXdbcTypeInfo(_) => TYPE_INFO.schema(),
        Command::CommandGetPrimaryKeys(_) => primary_keys(),
        Command::CommandGetExportedKeys(_)
        | Command::CommandGetImportedKeys(_)
        | Command::CommandGetCrossReference(_) => foreign_keys(),
        _ => return None,
    })
}

impl FlightCall {
    /// Answers a question about the catalog.
    pub(crate) async fn catalog(
        &self,
        command: Command,
    ) -> std::result::Result<FlightDataStream, tonic::Status> {
        let Some(schema) = catalog_schema(&command) else {
            let message = format!("DoGet does not support command {}", command.type_url());
            return Err(self.status(&Diagnostic::unsupported(message)));
        };
        let answer = move |session: &Session| answer(session, command);
        let batch = self.run(WorkClass::Writes, CallDeadline::Request, answer).await?;
        let batches = futures::stream::iter(batch.map(Ok::<_, FlightError>));
        let data = arrow_flight::encode::FlightDataEncoderBuilder::new().with_schema(schema);
        let data = futures::StreamExt::map(data.build(batches), |item| item.map_err(Into::into));
        Ok(Box::pin(data))
    }
}

/// Answers a question; `None` where the answer has no rows.
fn answer(session: &Session, command: Command) -> Result<Option<RecordBatch>> {
    let batch = match command {
        Command::CommandGetCatalogs(command) => {
            let mut builder = command.into_builder();
            builder.append(CATALOG);
            builder.build()
        }
        Command::CommandGetDbSchemas(command) => return db_schemas(session, command).map(Some),
        Command::CommandGetTables(command) => return tables(session, command).map(Some),
        Command::CommandGetTableTypes(command) => {
            let mut builder = command.into_builder();
            builder.append(SYSTEM_TABLE);
            builder.append(TABLE);
            builder.append(VIEW);
            builder.build()
        }
        Command::CommandGetSqlInfo(command) => command.into_builder(&SQL_INFO).build(),
        Command::CommandGetXdbcTypeInfo(command) => command.into_builder(&TYPE_INFO).build(),
        _ => return Ok(None),
    };
    batch.map(Some).map_err(malformed)
}

fn db_schemas(session: &Session, command: CommandGetDbSchemas) -> Result<RecordBatch> {
    let is_other = command.catalog.as_deref().is_some_and(|catalog| catalog != CATALOG);
    let mut builder = command.into_builder();
    let databases = if is_other { Vec::new() } else { texts(session, "SHOW DATABASES")? };
    for database in &databases {
        builder.append(CATALOG, &database[0]);
    }
    builder.build().map_err(malformed)
}

fn tables(session: &Session, command: CommandGetTables) -> Result<RecordBatch> {
    let has_columns = command.include_schema;
    let is_other = command.catalog.as_deref().is_some_and(|catalog| catalog != CATALOG);
    let found = if is_other { Vec::new() } else { texts(session, TABLES_SQL)? };
    let mut builder = command.into_builder();
    for row in &found {
        let [database, name, kind] = row.as_slice() else { continue };
        let is_view = kind == VIEW;
        // One that was dropped meanwhile is left out.
        let found = match (has_columns, is_view) {
            (false, _) => Ok(Vec::new()),
            (true, false) => session.table_columns(&format!("{database}.{name}")),
            (true, true) => session.view_columns(database, name),
        };
        let Ok(columns) = found else { continue };
        let table_type = match database.as_str() {
            CATALOG => SYSTEM_TABLE,
            _ if is_view => VIEW,
            _ => TABLE,
        };
        let schema = schema_of(&columns);
        builder.append(CATALOG, database, name, table_type, &schema).map_err(malformed)?;
    }
    builder.build().map_err(malformed)
}

/// Runs a statement and returns its rows as texts.
fn texts(session: &Session, sql: &str) -> Result<Vec<Vec<String>>> {
    let output = session.execute(sql)?;
    let mut rows = Vec::new();
    for batch in &output.batches {
        let columns: Vec<_> =
            batch.columns().iter().filter_map(|column| column.as_string_opt::<i32>()).collect();
        rows.extend((0..batch.num_rows()).map(|at| {
            let cell = |column: &&arrow::array::StringArray| {
                if column.is_valid(at) { column.value(at).to_owned() } else { String::new() }
            };
            columns.iter().map(cell).collect::<Vec<String>>()
        }));
    }
    rows.retain(|row| !row.is_empty());
    Ok(rows)
}

/// What the server says about its abilities.
static SQL_INFO: LazyLock<SqlInfoData> = LazyLock::new(|| {
    let mut builder = SqlInfoDataBuilder::new();
    builder.append(SqlInfo::FlightSqlServerName, "Lockstep");
    builder.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    builder.append(SqlInfo::FlightSqlServerArrowVersion, arrow::ARROW_VERSION);
    builder.append(SqlInfo::FlightSqlServerReadOnly, false);
    builder.append(SqlInfo::FlightSqlServerSql, true);
    builder.append(SqlInfo::FlightSqlServerSubstrait, false);
    let none = SqlSupportedTransaction::None as i32;
    builder.append(SqlInfo::FlightSqlServerTransaction, none);
    builder.append(SqlInfo::FlightSqlServerCancel, true);
    builder.append(SqlInfo::FlightSqlServerBulkIngestion, true);
    builder.append(SqlInfo::FlightSqlServerIngestTransactionsSupported, false);
    builder.append(SqlInfo::FlightSqlServerStatementTimeout, 0i32);
    builder.append(SqlInfo::FlightSqlServerTransactionTimeout, 0i32);
    builder.append(SqlInfo::SqlDdlCatalog, false);
    builder.append(SqlInfo::SqlDdlSchema, true);
    builder.append(SqlInfo::SqlDdlTable, true);
    builder.append(SqlInfo::SqlIdentifierQuoteChar, "`");
    builder.append(SqlInfo::SqlAllTablesAreSelectable, false);
    builder.append(SqlInfo::SqlSchemaTerm, "database");
    builder.append(SqlInfo::SqlCatalogTerm, "catalog");
    builder.append(SqlInfo::SqlProcedureTerm, "procedure");
    builder.build().expect("the entries have the types that Flight SQL has for them")
});

/// A type for clients of the kind of ODBC.
struct TypeEntry {
    data_type: DataType,
    xdbc: XdbcDataType,
    size: i32,
    quote: Option<&'static str>,
}

/// The types of columns.
static TYPE_INFO: LazyLock<XdbcTypeInfoData> = LazyLock::new(|| {
    let number = |data_type, xdbc, size| TypeEntry { data_type, xdbc, size, quote: None };
    let text = |data_type, xdbc, size| TypeEntry { data_type, xdbc, size, quote: Some("'") };
    let entries = [
        number(DataType::BigInt, XdbcDataType::XdbcBigint, 19),
        number(DataType::Int, XdbcDataType::XdbcInteger, 10),
        number(DataType::SmallInt, XdbcDataType::XdbcSmallint, 5),
        number(DataType::Float, XdbcDataType::XdbcReal, 7),
        number(DataType::Double, XdbcDataType::XdbcDouble, 15),
        number(DataType::Bool, XdbcDataType::XdbcBit, 1),
        text(DataType::String, XdbcDataType::XdbcVarchar, i32::MAX),
        text(DataType::Date, XdbcDataType::XdbcDate, 10),
        text(DataType::Timestamp, XdbcDataType::XdbcTimestamp, 23),
    ];
    let mut builder = XdbcTypeInfoDataBuilder::new();
    for TypeEntry { data_type, xdbc, size, quote } in entries {
        builder.append(XdbcTypeInfo {
            type_name: data_type.to_string(),
            data_type: xdbc,
            column_size: Some(size),
            literal_prefix: quote.map(str::to_owned),
            literal_suffix: quote.map(str::to_owned),
            nullable: Nullable::NullabilityNullable,
            case_sensitive: data_type == DataType::String,
            searchable: Searchable::Full,
            unsigned_attribute: Some(false),
            auto_increment: Some(false),
            local_type_name: Some(data_type.to_string()),
            sql_data_type: xdbc,
            ..XdbcTypeInfo::default()
        });
    }
    builder.build().expect("the entries have all fields")
});

/// Returns the columns of primary keys, of which there are none.
fn primary_keys() -> SchemaRef {
    let text = |name, nullable| Field::new(name, ArrowType::Utf8, nullable);
    Schema::new(vec![
        text("catalog_name", true),
        text("db_schema_name", true),
        text("table_name", false),
        text("column_name", false),
        Field::new("key_sequence", ArrowType::Int32, false),
        text("key_name", true),
    ])
    .into()
}

/// Returns the columns of foreign keys, of which there are none.
fn foreign_keys() -> SchemaRef {
    let text = |name: &str, nullable| Field::new(name, ArrowType::Utf8, nullable);
    let mut fields = Vec::new();
    for side in ["pk", "fk"] {
        fields.push(text(&format!("{side}_catalog_name"), true));
        fields.push(text(&format!("{side}_db_schema_name"), true));
        fields.push(text(&format!("{side}_table_name"), false));
        fields.push(text(&format!("{side}_column_name"), false));
    }
    fields.push(Field::new("key_sequence", ArrowType::Int32, false));
    fields.push(text("fk_key_name", true));
    fields.push(text("pk_key_name", true));
    fields.push(Field::new("update_rule", ArrowType::UInt8, false));
    fields.push(Field::new("delete_rule", ArrowType::UInt8, false));
    Schema::new(fields).into()
}
