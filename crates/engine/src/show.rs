//! SHOW, DESC and EXPLAIN: answers that are made, not computed.

use lockstep_diagnostic::Result;
use lockstep_row::{DataType, Datum, IndexSpec, Retention, TableSchema, arrow::ColumnBuilder};

use crate::{DeploymentInfo, Output, request::output_batch};

/// A table of texts; `None` is NULL.
pub(crate) fn texts(names: &[&str], rows: &[Vec<Option<String>>]) -> Result<Output> {
    let columns: Vec<(String, DataType)> =
        names.iter().map(|name| ((*name).to_owned(), DataType::String)).collect();
    let mut builders: Vec<ColumnBuilder> =
        columns.iter().map(|(_, data_type)| ColumnBuilder::new(data_type, rows.len())).collect();
    for row in rows {
        for (builder, value) in builders.iter_mut().zip(row) {
            builder.push(value.as_deref().map_or(Datum::Null, Datum::String));
        }
    }
    let batch = output_batch(&columns, builders, rows.len())?;
    Ok(Output { columns, batches: vec![batch], ..Output::default() })
}

/// One column of texts.
pub(crate) fn list<'a>(name: &str, values: impl Iterator<Item = &'a str>) -> Result<Output> {
    let rows: Vec<_> = values.map(|value| vec![Some(value.to_owned())]).collect();
    texts(&[name], &rows)
}

/// DESC: the columns, with the indexes that each takes part in.
pub(crate) fn describe(schema: &TableSchema) -> Result<Output> {
    let rows: Vec<_> = schema
        .columns
        .iter()
        .enumerate()
        .map(|(position, column)| {
            let role = |index: &IndexSpec| {
                if index.keys.contains(&position) {
                    Some(format!("{} key", index.name))
                } else if index.event_time == Some(position) {
                    Some(format!("{} event time, {}", index.name, retention(index.retention)))
                } else {
                    None
                }
            };
            let roles: Vec<String> = schema.indexes.iter().filter_map(role).collect();
            vec![
                Some(column.name.clone()),
                Some(column.data_type.to_string()),
                Some(if column.nullable { "YES" } else { "NO" }.to_owned()),
                column.default.as_ref().map(literal),
                Some(roles.join("; ")),
            ]
        })
        .collect();
    texts(&["column", "type", "null", "default", "indexes"], &rows)
}

/// SHOW CREATE TABLE.
pub(crate) fn create_table(name: &str, schema: &TableSchema) -> String {
    let mut items: Vec<String> = schema
        .columns
        .iter()
        .map(|column| {
            let not_null = if column.nullable { "" } else { " NOT NULL" };
            let default = match &column.default {
                Some(value) => format!(" DEFAULT {}", literal(value)),
                None => String::new(),
            };
            format!("`{}` {}{not_null}{default}", column.name, column.data_type)
        })
        .collect();
    items.extend(schema.indexes.iter().filter(|index| index.declared).map(|index| {
        let name = |position: &usize| format!("`{}`", schema.columns[*position].name);
        let keys: Vec<String> = index.keys.iter().map(name).collect();
        let ts = index.event_time.as_ref().map(|at| format!(", TS={}", name(at)));
        let ttl = match index.retention {
            Retention::Forever => String::new(),
            other => format!(", {}", retention(other)),
        };
        format!("INDEX(KEY=({}){}{ttl})", keys.join(", "), ts.unwrap_or_default())
    }));
    format!("CREATE TABLE `{name}` (\n    {}\n);", items.join(",\n    "))
}

fn literal(value: &lockstep_row::Value) -> String {
    let settings = lockstep_function::Settings::default();
    match value {
        lockstep_row::Value::Null => "NULL".to_owned(),
        lockstep_row::Value::String(text) => format!("'{}'", text.replace('\'', "\\'")),
        lockstep_row::Value::Timestamp(value) => value.to_string(),
        lockstep_row::Value::Date(_) => {
            let datum = value.as_scalar().unwrap_or_default();
            format!("'{}'", lockstep_function::cast::print_datum(datum, &settings))
        }
        other => {
            let datum = other.as_scalar().unwrap_or_default();
            lockstep_function::cast::print_datum(datum, &settings)
        }
    }
}

/// A retention as its INDEX options.
pub(crate) fn retention(retention: Retention) -> String {
    let minutes = |ttl_ms: i64| ttl_ms / 60_000;
    match retention {
        Retention::Forever => "no TTL".to_owned(),
        Retention::Absolute { ttl_ms } => format!("TTL={}m, TTL_TYPE=absolute", minutes(ttl_ms)),
        Retention::Latest { latest } => format!("TTL={latest}, TTL_TYPE=latest"),
        Retention::AbsOrLat { ttl_ms, latest } => {
            format!("TTL=({}m, {latest}), TTL_TYPE=absorlat", minutes(ttl_ms))
        }
        Retention::AbsAndLat { ttl_ms, latest } => {
            format!("TTL=({}m, {latest}), TTL_TYPE=absandlat", minutes(ttl_ms))
        }
    }
}

/// SHOW DEPLOYMENT: the text, the request row and the answer, and what they are under.
pub(crate) fn deployment(found: &DeploymentInfo) -> Result<Output> {
    let shape = |columns: &[(String, DataType)]| {
        let columns: Vec<String> =
            columns.iter().map(|(name, data_type)| format!("`{name}` {data_type}")).collect();
        columns.join(", ")
    };
    let options: Vec<String> =
        found.options.iter().map(|(name, value)| format!("{name}='{value}'")).collect();
    let row = [
        found.database.clone(),
        found.name.clone(),
        found.sql.clone(),
        shape(&found.input),
        shape(&found.output),
        found.compatibility.to_owned(),
        found.time_zone.to_owned(),
        options.join(", "),
    ];
    let names = [
        "database",
        "deployment",
        "sql",
        "input",
        "output",
        "compatibility",
        "time_zone",
        "options",
    ];
    texts(&names, &[row.map(Some).to_vec()])
}

/// SHOW FUNCTIONS: the library, from its declarations.
pub(crate) fn functions() -> Result<Output> {
    let scalars = lockstep_function::scalar::all()
        .filter(|function| !function.name.starts_with("op_"))
        .map(|function| (function.name, function.signature, "scalar", function.doc));
    let aggregates = lockstep_function::aggregate::all()
        .map(|function| (function.name, function.signature, "aggregate", function.doc));
    let mut rows: Vec<_> = scalars.chain(aggregates).collect();
    rows.sort_unstable();
    let rows: Vec<_> = rows
        .into_iter()
        .map(|(name, signature, kind, doc)| {
            [name, signature, kind, doc].map(|text| Some(text.to_owned())).to_vec()
        })
        .collect();
    texts(&["name", "signature", "kind", "description"], &rows)
}
