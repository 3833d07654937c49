//! The names and the types that columns of a result have before there is a value.

use sqlparser::ast::{AccessExpr, BinaryOperator, DataType, Expr, UnaryOperator, Value};

use super::{
    analysis::function_name,
    from::folded,
    scope::{BoundTable, Scope, column_type},
};
use crate::postgres::types::{Oid, array_of, oid};

/// Returns the name of a column without AS, as PostgreSQL gives it.
pub(super) fn column_name(expr: &Expr) -> String {
    match expr {
        Expr::Identifier(name) => folded(name),
        Expr::CompoundIdentifier(parts) => parts.last().map(folded).unwrap_or_default(),
        Expr::Function(function) => function_name(function),
        Expr::Cast { expr, data_type, .. } => match column_name(expr).as_str() {
            "?column?" => type_word(data_type),
            name => name.to_owned(),
        },
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => column_name(inner),
        Expr::CompoundFieldAccess { root, access_chain } => match access_chain.last() {
            Some(AccessExpr::Dot(Expr::Identifier(name))) => folded(name),
            _ => match access_chain.first() {
                Some(AccessExpr::Dot(Expr::Identifier(name))) => folded(name),
                _ => column_name(root),
            },
        },
        Expr::Case { else_result, .. } => match else_result.as_deref().map(column_name) {
            Some(name) if name != "?column?" => name,
            _ => "case".to_owned(),
        },
        Expr::Exists { .. } => "exists".to_owned(),
        Expr::Array(_) => "array".to_owned(),
        Expr::Value(value) if matches!(value.value, Value::Boolean(_)) => "bool".to_owned(),
        Expr::Subquery(query) => match query.body.as_ref() {
            sqlparser::ast::SetExpr::Select(select) => select
                .projection
                .first()
                .and_then(super::projection::item_name)
                .unwrap_or_else(|| "?column?".to_owned()),
            _ => "?column?".to_owned(),
        },
        Expr::Substring { .. } => "substring".to_owned(),
        Expr::Trim { .. } => "btrim".to_owned(),
        Expr::Position { .. } => "position".to_owned(),
        _ => "?column?".to_owned(),
    }
}

/// Returns a type as one word in lower case: `text`, `regclass`, `int4[]`.
pub(super) fn type_word(data_type: &DataType) -> String {
    let text = data_type.to_string().to_lowercase().replace('"', "");
    let text = text.strip_prefix("pg_catalog.").unwrap_or(&text);
    let (word, is_array) = match text.strip_suffix("[]") {
        Some(element) => (element, "[]"),
        None => (text, ""),
    };
    let word = word.split('(').next().unwrap_or_default().trim();
    let word = match word {
        "int" | "integer" | "signed" => "int4",
        "bigint" => "int8",
        "smallint" => "int2",
        "boolean" => "bool",
        "real" => "float4",
        "double precision" | "double" | "float" => "float8",
        "character varying" | "varchar" => "varchar",
        "character" | "bpchar" => "bpchar",
        "timestamp with time zone" => "timestamptz",
        "timestamp without time zone" => "timestamp",
        "decimal" => "numeric",
        other => other,
    };
    format!("{word}{is_array}")
}

/// Returns the number of a type that has this word.
pub(super) fn type_number(word: &str) -> Option<Oid> {
    Some(match word {
        "bool" => oid::BOOL,
        "int2" => oid::INT2,
        "int4" => oid::INT4,
        "int8" | "xid" => oid::INT8,
        "oid" => oid::OID,
        "float4" => oid::FLOAT4,
        "float8" | "numeric" => oid::FLOAT8,
        "name" | "sql_identifier" => oid::NAME,
        "varchar" => oid::VARCHAR,
        "bpchar" => oid::BPCHAR,
        "char" => oid::CHAR,
        "timestamp" => oid::TIMESTAMP,
        "timestamptz" => oid::TIMESTAMPTZ,
        "date" => oid::DATE,
        "json" | "jsonb" => oid::JSON,
        word if word.ends_with("[]") => {
            array_of(type_number(&word[..word.len() - 2]).unwrap_or(oid::TEXT))
        }
        "text" | "regclass" | "regtype" | "regproc" | "regnamespace" | "regrole"
        | "regprocedure" | "character_data" => oid::TEXT,
        _ => return None,
    })
}

/// Returns the type of an expression, where it does not depend on values.
pub(super) fn static_type(
    expr: &Expr,
    tables: &[BoundTable],
    outer: Option<&Scope<'_>>,
) -> Option<Oid> {
    let inner = |expr: &Expr| static_type(expr, tables, outer);
    match expr {
        Expr::Identifier(name) => name_type(tables, outer, None, &name.value),
        Expr::CompoundIdentifier(parts) => {
            let [.., table, name] = parts.as_slice() else { return None };
            name_type(tables, outer, Some(&table.value), &name.value)
        }
        Expr::Nested(expr) | Expr::Collate { expr, .. } => inner(expr),
        Expr::Cast { data_type, .. } => type_number(&type_word(data_type)),
        Expr::UnaryOp { op: UnaryOperator::Not, .. }
        | Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsTrue(_)
        | Expr::IsNotTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsNotFalse(_)
        | Expr::IsDistinctFrom(..)
        | Expr::IsNotDistinctFrom(..)
        | Expr::InList { .. }
        | Expr::InSubquery { .. }
        | Expr::Between { .. }
        | Expr::Like { .. }
        | Expr::ILike { .. }
        | Expr::AnyOp { .. }
        | Expr::AllOp { .. }
        | Expr::Exists { .. } => Some(oid::BOOL),
        Expr::BinaryOp { op, .. } => operator_type(op),
        Expr::Case { conditions, else_result, .. } => {
            let results = conditions.iter().map(|when| &when.result);
            results.chain(else_result.as_deref()).find_map(inner)
        }
        Expr::Value(value) => match &value.value {
            Value::Null | Value::Placeholder(_) | Value::Number(..) => None,
            Value::Boolean(_) => Some(oid::BOOL),
            _ => Some(oid::TEXT),
        },
        Expr::Function(function) => {
            let name = function_name(function);
            let first = || {
                let sqlparser::ast::FunctionArguments::List(list) = &function.args else {
                    return None;
                };
                super::source::arguments_of(&list.args).ok()?.into_iter().find_map(inner)
            };
            match name.as_str() {
                "coalesce" | "nullif" | "max" | "min" | "greatest" | "least" => first(),
                "array_agg" => first().map(array_of),
                name => function_type(name),
            }
        }
        Expr::Substring { .. } | Expr::Trim { .. } => Some(oid::TEXT),
        Expr::Position { .. } => Some(oid::INT4),
        _ => None,
    }
}

/// Returns the type of a name of a query or of one around it.
fn name_type(
    tables: &[BoundTable],
    outer: Option<&Scope<'_>>,
    table: Option<&str>,
    name: &str,
) -> Option<Oid> {
    let mut found = column_type(tables, table, name);
    let mut scope = outer;
    while let (None, Some(around)) = (found, scope) {
        found = column_type(around.tables, table, name);
        scope = around.outer;
    }
    found.filter(|number| *number != oid::UNKNOWN)
}

fn operator_type(operator: &BinaryOperator) -> Option<Oid> {
    use BinaryOperator as Op;
    Some(match operator {
        Op::StringConcat => oid::TEXT,
        Op::And
        | Op::Or
        | Op::Eq
        | Op::NotEq
        | Op::Lt
        | Op::LtEq
        | Op::Gt
        | Op::GtEq
        | Op::PGRegexMatch
        | Op::PGRegexIMatch
        | Op::PGRegexNotMatch
        | Op::PGRegexNotIMatch
        | Op::PGLikeMatch
        | Op::PGILikeMatch
        | Op::PGNotLikeMatch
        | Op::PGNotILikeMatch => oid::BOOL,
        _ => return None,
    })
}

/// Returns the type of what a function returns, where it is always the same.
fn function_type(name: &str) -> Option<Oid> {
    Some(match name {
        "count"
        | "row_number"
        | "rank"
        | "dense_rank"
        | "pg_table_size"
        | "pg_relation_size"
        | "pg_total_relation_size"
        | "pg_database_size"
        | "pg_indexes_size" => oid::INT8,
        "current_schemas" | "string_to_array" | "regexp_split_to_array" => oid::TEXT_ARRAY,
        "current_user"
        | "session_user"
        | "user"
        | "current_role"
        | "current_database"
        | "current_catalog"
        | "current_schema"
        | "pg_get_userbyid"
        | "pg_encoding_to_char"
        | "pg_client_encoding" => oid::NAME,
        "format_type" | "string_agg" | "lower" | "upper" | "concat" | "concat_ws" | "replace"
        | "quote_ident" | "quote_literal" | "array_to_string" | "substring" | "split_part"
        | "version" | "current_setting" | "obj_description" | "col_description"
        | "shobj_description" | "regexp_replace" | "translate" | "btrim" | "pg_size_pretty" => {
            oid::TEXT
        }
        "bool_and" | "bool_or" | "every" | "pg_is_in_recovery" => oid::BOOL,
        name if name.starts_with("pg_get_") && name != "pg_get_userbyid" => oid::TEXT,
        name if name.starts_with("has_") || name.ends_with("_is_visible") => oid::BOOL,
        "array_length"
        | "array_upper"
        | "array_lower"
        | "cardinality"
        | "length"
        | "char_length"
        | "strpos"
        | "generate_subscripts"
        | "pg_backend_pid" => oid::INT4,
        "now" | "pg_postmaster_start_time" | "current_timestamp" => oid::TIMESTAMPTZ,
        _ => return None,
    })
}
