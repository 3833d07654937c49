//! CREATE TABLE and CREATE INDEX: from definitions to a table schema.

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::Settings;
use lockstep_plan::{BindOptions, bind_constant, type_of};
use lockstep_row::{Column, DataType, IndexSpec, Retention, TableSchema, Value};
use lockstep_sql::ast::{
    ColumnDefinition, CreateIndex, CreateTable, IntervalUnit, Literal, OptionItem, OptionValue,
};

use crate::literal::{Place, coerce};
use crate::table_options::ignored;

/// The longest absolute TTL: 30 years.
const TTL_MINUTES_MAX: i64 = 15_768_000;
/// The greatest latest TTL.
const TTL_LATEST_MAX: i64 = 1_000;
const MINUTE_MS: i64 = 60_000;
/// Most indexes of a table.
const INDEXES_MAX: usize = 200;

/// The schema that a CREATE TABLE describes.
pub(crate) fn schema(create: &CreateTable, settings: Settings) -> Result<TableSchema> {
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
        let generated = || format!("index{}", schema.indexes.len());
        let name = definition.name.as_ref().map_or_else(generated, |name| name.text.clone());
        let index = index(name, &definition.options, None, definition.span, &schema)?;
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
            let place = Place { column: &definition.name.text, span: Some(expr.span) };
            Some(coerce(&value, &data_type, settings, &place)?)
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

/// The index that a CREATE INDEX describes; the schema has the declared indexes only.
pub(crate) fn created_index(
    create: &CreateIndex,
    schema: &TableSchema,
    warnings: &mut Vec<Diagnostic>,
) -> Result<IndexSpec> {
    warnings.extend(create.options.iter().filter_map(stray_option));
    let mut keys = Vec::new();
    for column in &create.columns {
        keys.push(find_column(schema, &column.text, column.span)?);
    }
    let span = create.name.span;
    let index = index(create.name.text.clone(), &create.options, Some(keys), span, schema)?;
    if schema.find_index(&index.keys, index.event_time).is_some() {
        return definition_error("an index with these columns and ts exists already", span);
    }
    Ok(index)
}

/// The warning for an option that does not exist.
fn stray_option(item: &OptionItem) -> Option<Diagnostic> {
    const KNOWN: &[&str] = &["key", "ckey", "skey", "ts", "ttl", "ttl_type", "version", "type"];
    let name = item.key.text.as_str();
    (!KNOWN.contains(&name)).then(|| ignored(item, KNOWN))
}

/// What the options of an index say so far.
#[derive(Default)]
struct IndexOptions<'a> {
    keys: Option<Vec<usize>>,
    event_time: Option<usize>,
    ttl: Option<&'a OptionItem>,
    ttl_type: Option<&'a OptionItem>,
}

fn index(
    name: String,
    options: &[OptionItem],
    keys: Option<Vec<usize>>,
    span: Span,
    schema: &TableSchema,
) -> Result<IndexSpec> {
    let mut found = IndexOptions { keys, ..IndexOptions::default() };
    for item in options {
        match item.key.text.as_str() {
            "key" | "ckey" | "skey" => found.keys = Some(key_columns(item, schema)?),
            "ts" => {
                let name = word(&item.value).unwrap_or_default();
                found.event_time = Some(find_column(schema, name, item.span)?);
            }
            "ttl" => found.ttl = Some(item),
            "ttl_type" => found.ttl_type = Some(item),
            // Options that mean nothing here, such as VERSION, are accepted.
            _ => {}
        }
    }
    check_event_time(found.event_time, schema, span)?;
    let keys = match found.keys {
        Some(keys) => keys,
        None => vec![default_key(schema, found.event_time, span)?],
    };
    check_keys(&keys, schema, span)?;
    let retention = retention(found.ttl, found.ttl_type)?;
    Ok(IndexSpec { name, keys, event_time: found.event_time, retention, declared: true })
}

fn key_columns(item: &OptionItem, schema: &TableSchema) -> Result<Vec<usize>> {
    let names: Vec<&str> = match &item.value {
        OptionValue::List(items) => items.iter().filter_map(word).collect(),
        other => word(other).into_iter().collect(),
    };
    names.into_iter().map(|name| find_column(schema, name, item.span)).collect()
}

fn word(value: &OptionValue) -> Option<&str> {
    match value {
        OptionValue::Word(word) | OptionValue::Literal(Literal::String(word)) => Some(word),
        _ => None,
    }
}

/// The position of a column; an error at `span`, with the nearest name, when there is none.
pub(crate) fn find_column(schema: &TableSchema, name: &str, span: Span) -> Result<usize> {
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
    let message =
        format!("TS must be BIGINT or TIMESTAMP, `{}` is {}", column.name, column.data_type);
    definition_error(message, span)
}

fn check_keys(keys: &[usize], schema: &TableSchema, span: Span) -> Result<()> {
    for (position, key) in keys.iter().enumerate() {
        let column = &schema.columns[*key];
        if keys[..position].contains(key) {
            return definition_error(format!("KEY has `{}` twice", column.name), span);
        }
        if column.data_type.is_float() || matches!(column.data_type, DataType::Map(..)) {
            let message = format!("KEY cannot be {}, as `{}` is", column.data_type, column.name);
            return definition_error(message, span);
        }
    }
    Ok(())
}

/// The reference's tables have an index: over the first column that can be a key, in order of
/// arrival, which keeps every row. Makes no difference to what a query gives.
pub(crate) fn add_default_index(schema: &mut TableSchema) {
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

/// An index without KEY is over the first column that can be one.
fn default_key(schema: &TableSchema, event_time: Option<usize>, span: Span) -> Result<usize> {
    let usable = |(position, column): &(usize, &Column)| {
        Some(*position) != event_time
            && !column.data_type.is_float()
            && !matches!(column.data_type, DataType::Map(..))
    };
    match schema.columns.iter().enumerate().find(usable) {
        Some((position, _)) => Ok(position),
        None => definition_error("no column can be the KEY of this index", span),
    }
}

/// One component of a TTL.
#[derive(Debug, Clone, Copy)]
enum Ttl {
    Time(i64),
    Count(i64),
}

/// Reads TTL and `TTL_TYPE`; absolute is the default type.
fn retention(ttl: Option<&OptionItem>, ttl_type: Option<&OptionItem>) -> Result<Retention> {
    let kind = match ttl_type {
        None => "absolute".to_owned(),
        Some(item) => match word(&item.value).map(str::to_ascii_lowercase) {
            Some(kind)
                if ["absolute", "latest", "absorlat", "absandlat"].contains(&kind.as_str()) =>
            {
                kind
            }
            _ => {
                return definition_error(
                    "TTL_TYPE is absolute, latest, absorlat or absandlat",
                    item.span,
                );
            }
        },
    };
    let Some(ttl) = ttl else { return Ok(Retention::Forever) };
    let parts = match &ttl.value {
        OptionValue::List(items) => items.iter().map(|item| component(item, ttl.span)).collect(),
        other => component(other, ttl.span).map(|part| vec![part]),
    }?;
    match (kind.as_str(), parts.as_slice()) {
        ("absolute", [Ttl::Time(ttl_ms)]) => Ok(absolute(*ttl_ms)),
        ("latest", [Ttl::Count(latest)]) => Ok(match count(*latest) {
            0 => Retention::Forever,
            latest => Retention::Latest { latest },
        }),
        ("absorlat", [Ttl::Time(ttl_ms), Ttl::Count(latest)]) => {
            Ok(Retention::AbsOrLat { ttl_ms: *ttl_ms, latest: count(*latest) })
        }
        ("absandlat", [Ttl::Time(ttl_ms), Ttl::Count(latest)]) => {
            Ok(Retention::AbsAndLat { ttl_ms: *ttl_ms, latest: count(*latest) })
        }
        _ => Diagnostic::new(
            code::INVALID_TABLE_DEFINITION,
            format!("this TTL does not go with TTL_TYPE={kind}"),
        )
        .at(ttl.span)
        .with_hint(
            "absolute takes a duration (30d), latest a number (10), the other two a pair (30d, 10).",
        )
        .err(),
    }
}

fn absolute(ttl_ms: i64) -> Retention {
    if ttl_ms == 0 { Retention::Forever } else { Retention::Absolute { ttl_ms } }
}

fn count(latest: i64) -> u64 {
    u64::try_from(latest).expect("a component of a TTL is not negative")
}

fn component(value: &OptionValue, span: Span) -> Result<Ttl> {
    match value {
        OptionValue::Literal(Literal::Interval(interval)) => {
            let minutes = match interval.unit {
                // Seconds are rounded up to minutes.
                IntervalUnit::Second => Some(interval.amount.saturating_add(59).div_euclid(60)),
                IntervalUnit::Minute => Some(interval.amount),
                IntervalUnit::Hour => interval.amount.checked_mul(60),
                IntervalUnit::Day => interval.amount.checked_mul(1_440),
            };
            match minutes {
                Some(minutes) if (0..=TTL_MINUTES_MAX).contains(&minutes) => {
                    Ok(Ttl::Time(minutes * MINUTE_MS))
                }
                _ => definition_error("a TTL is between 0 and 30 years", span),
            }
        }
        OptionValue::Literal(Literal::Int(latest)) => {
            let latest = i64::from(*latest);
            if (0..=TTL_LATEST_MAX).contains(&latest) {
                return Ok(Ttl::Count(latest));
            }
            definition_error(format!("a latest TTL is between 0 and {TTL_LATEST_MAX}"), span)
        }
        _ => definition_error("a TTL is a duration such as 30d, or a number of rows", span),
    }
}

fn definition_error<T>(message: impl Into<String>, span: Span) -> Result<T> {
    Diagnostic::new(code::INVALID_TABLE_DEFINITION, message).at(span).err()
}
