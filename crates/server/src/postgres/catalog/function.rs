//! The functions of catalog queries.

use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_row::Value;

use super::{
    evaluation::{Evaluator, compare, display, integer},
    expression::CatalogExpr,
    tables::{ROOT_OID, type_of_number},
};

/// The functions of all rows.
const AGGREGATES: [&str; 5] = ["array_agg", "count", "max", "min", "string_agg"];

/// Returns whether an expression is a function of all rows.
pub(super) fn is_aggregate(expr: &CatalogExpr) -> bool {
    match expr {
        CatalogExpr::Call { name, .. } => AGGREGATES.contains(&name.as_str()),
        CatalogExpr::Cast { operand, .. } => is_aggregate(operand),
        _ => false,
    }
}

/// Computes a function of all rows.
pub(super) fn aggregate(name: &str, values: &[Value]) -> Value {
    let present = || values.iter().filter(|value| **value != Value::Null);
    let by_order = |a: &&Value, b: &&Value| compare(a, b).unwrap_or(std::cmp::Ordering::Equal);
    match name {
        "count" => count(present().count()),
        "max" => present().max_by(by_order).cloned().unwrap_or_default(),
        "min" => present().min_by(by_order).cloned().unwrap_or_default(),
        "string_agg" => {
            let texts: Vec<String> = present().map(display).collect();
            Value::String(texts.join(",").into())
        }
        _ => Value::Array(values.to_vec()),
    }
}

/// Calls a function.
pub(super) fn call(evaluator: &mut Evaluator<'_>, name: &str, values: &[Value]) -> Result<Value> {
    let first = values.first();
    if let Some(found) = call_on_values(name, values) {
        return Ok(found);
    }
    Ok(match name {
        "current_user" | "session_user" | "user" => text(evaluator.session.user()),
        "current_database" | "current_catalog" => text(&evaluator.session.current_database()),
        "pg_get_indexdef" => index_definition(evaluator, values)?,
        "pg_get_function_result" => routine(evaluator, first, 4)?,
        "pg_get_function_arguments" | "pg_get_function_identity_arguments" => {
            routine(evaluator, first, 5)?
        }
        name if name.ends_with("_is_visible") || name.starts_with("has_") => Value::Bool(true),
        name if is_without_value(name) => Value::Null,
        _ => {
            let message = format!("function {name} of the catalogs is not served");
            return Diagnostic::unsupported(message).err();
        }
    })
}

fn text(text: &str) -> Value {
    Value::String(text.into())
}

/// Calls a function that looks at its arguments only.
fn call_on_values(name: &str, values: &[Value]) -> Option<Value> {
    let first = values.first();
    Some(match name {
        "format_type" => first.and_then(integer).map_or(Value::Null, |n| text(type_of_number(n))),
        "pg_get_userbyid" => {
            let is_root = first.and_then(integer) == Some(ROOT_OID);
            text(if is_root { "root" } else { "unknown" })
        }
        "current_schema" => text("public"),
        "current_schemas" => Value::Array(vec![text("pg_catalog"), text("public")]),
        "version" => text("PostgreSQL 16.0 (Lockstep)"),
        "pg_encoding_to_char" => text("UTF8"),
        "is_true" => Value::Bool(first == Some(&Value::Bool(true))),
        "coalesce" => {
            values.iter().find(|value| **value != Value::Null).cloned().unwrap_or_default()
        }
        "nullif" => match values {
            [a, b] if compare(a, b) == Some(std::cmp::Ordering::Equal) => Value::Null,
            _ => first.cloned().unwrap_or_default(),
        },
        "pg_table_size"
        | "pg_total_relation_size"
        | "pg_relation_size"
        | "pg_database_size"
        | "pg_indexes_size" => Value::BigInt(0),
        "pg_backend_pid" | "txid_current" => Value::BigInt(1),
        "pg_is_in_recovery" | "pg_is_other_temp_schema" => Value::Bool(false),
        "now" | "pg_postmaster_start_time" | "to_regclass" | "to_regtype" => Value::Null,
        _ => return call_on_texts(name, values),
    })
}

/// Calls a function of texts and arrays.
fn call_on_texts(name: &str, values: &[Value]) -> Option<Value> {
    let first = values.first().map(display).unwrap_or_default();
    Some(match (name, values) {
        ("lower", _) => text(&first.to_lowercase()),
        ("upper", _) => text(&first.to_uppercase()),
        ("quote_ident" | "quote_literal" | "btrim" | "trim", _) => text(first.trim()),
        ("length" | "char_length", _) => count(first.chars().count()),
        ("concat", _) => text(&values.iter().map(display).collect::<String>()),
        ("pg_size_pretty", _) => text(&format!("{first} bytes")),
        // Another character before those of a pattern that stand for themselves.
        ("like_escape", [_, escape]) => text(&first.replace(&display(escape), "\\")),
        ("replace", [_, from, to]) => text(&first.replace(&display(from), &display(to))),
        ("array_to_string", [Value::Array(items), by, ..]) => {
            let texts: Vec<String> = items.iter().map(display).collect();
            text(&texts.join(&display(by)))
        }
        ("array_length" | "array_upper" | "cardinality", [Value::Array(items), ..])
            if !items.is_empty() =>
        {
            count(items.len())
        }
        ("array_position", [Value::Array(items), wanted]) => {
            items.iter().position(|item| item == wanted).map_or(Value::Null, |at| count(at + 1))
        }
        (
            "like_escape" | "replace" | "array_to_string" | "array_length" | "array_upper"
            | "cardinality" | "array_position",
            _,
        ) => Value::Null,
        _ => return None,
    })
}

fn count(count: usize) -> Value {
    Value::BigInt(i64::try_from(count).unwrap_or(i64::MAX))
}

/// Returns whether a function says something that there is nothing of here.
fn is_without_value(name: &str) -> bool {
    const NAMES: [&str; 14] = [
        "col_description",
        "obj_description",
        "pg_get_constraintdef",
        "pg_get_expr",
        "pg_get_function_sqlbody",
        "pg_get_partkeydef",
        "pg_get_ruledef",
        "pg_get_serial_sequence",
        "pg_get_statisticsobjdef_columns",
        "pg_get_triggerdef",
        "pg_get_viewdef",
        "pg_relation_is_publishable",
        "pg_tablespace_location",
        "shobj_description",
    ];
    NAMES.contains(&name)
}

/// Returns the definition of an index, or one of its columns.
fn index_definition(evaluator: &mut Evaluator<'_>, values: &[Value]) -> Result<Value> {
    let indexes = evaluator.table("lockstep_indexes")?;
    let wanted = values.first().and_then(integer);
    let row = indexes.rows.iter().find(|row| integer(&row[0]) == wanted);
    let Some(row) = row else { return Ok(Value::Null) };
    let column = values.get(1).and_then(integer).and_then(|at| usize::try_from(at).ok());
    Ok(match column {
        Some(at) if at > 0 => {
            let columns = display(&row[2]);
            columns.split(", ").nth(at - 1).map_or(Value::Null, |name| Value::String(name.into()))
        }
        _ => row[1].clone(),
    })
}

/// Returns what there is about a deployment.
fn routine(evaluator: &mut Evaluator<'_>, number: Option<&Value>, at: usize) -> Result<Value> {
    let routines = evaluator.table("lockstep_routines")?;
    let wanted = number.and_then(integer);
    let row = routines.rows.iter().find(|row| integer(&row[0]) == wanted);
    Ok(row.map(|row| row[at].clone()).unwrap_or_default())
}
