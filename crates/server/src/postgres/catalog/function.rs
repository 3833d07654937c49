//! The functions of catalog queries, and casts.

use lockstep_diagnostic::{Diagnostic, Result, code};

use super::{
    evaluation::Evaluator,
    from::unsupported,
    limits::{JOINED_ROWS_MAX, check_row_count},
    object_name::ObjectPath,
    static_type::{type_number, type_word},
    text_function::{call_on_texts, text_parts},
    types::{type_of_number, type_of_word},
    value::{CatalogValue, row_bytes},
};
use crate::postgres::{client_settings::VERSION, session_start::zone_name, types::oid};

impl Evaluator<'_> {
    /// Calls a function.
    pub(super) fn call(&mut self, name: &str, values: &[CatalogValue]) -> Result<CatalogValue> {
        // What the function reads.
        self.work(row_bytes(values))?;
        let found = match call_on_values(name, values) {
            None => call_on_texts(name, values)?,
            found => found,
        };
        if let Some(found) = found {
            return Ok(found);
        }
        let first = values.first();
        Ok(match name {
            "current_user" | "session_user" | "user" | "current_role" => {
                CatalogValue::text(self.session.user())
            }
            "current_database" | "current_catalog" => {
                CatalogValue::text(&self.session.current_database())
            }
            "current_setting" => self.setting(first)?,
            "pg_get_viewdef" => self.view_definition(first)?,
            "pg_get_indexdef" => self.index_definition(values)?,
            "pg_get_function_result" => self.routine(first, "result")?,
            "pg_get_function_arguments" | "pg_get_function_identity_arguments" => {
                self.routine(first, "arguments")?
            }
            "pg_get_functiondef" => self.routine(first, "definition")?,
            "pg_get_userbyid" => self.name_of("pg_roles", first)?,
            "to_regclass" | "to_regtype" | "to_regnamespace" | "to_regproc" => {
                let Some(text) = first.filter(|text| !text.is_null()) else {
                    return Ok(CatalogValue::Null);
                };
                match self.object(&text.display(), &name[3..]) {
                    Err(error) if is_missing(&error) => CatalogValue::Null,
                    found => found?,
                }
            }
            name if name.starts_with("has_") && name.ends_with("_privilege") => {
                self.has_privilege(name, values)?
            }
            name if name.ends_with("_is_visible") => CatalogValue::Bool(true),
            "row_security_active" | "pg_relation_is_updatable" | "pg_has_role" => {
                CatalogValue::Bool(name == "pg_has_role")
            }
            name if is_without_value(name) => CatalogValue::Null,
            _ => {
                let message = format!("catalog function {name} is not supported");
                return Diagnostic::unsupported(message).err();
            }
        })
    }

    /// Returns a setting as `pg_settings` has it.
    fn setting(&mut self, name: Option<&CatalogValue>) -> Result<CatalogValue> {
        let name = name.map(CatalogValue::display).unwrap_or_default().to_lowercase();
        let settings = self.relation("pg_settings")?;
        let row = settings.rows.iter().find(|row| row[0].display() == name);
        Ok(match row {
            Some(row) => row[1].clone(),
            None if name == "timezone" => CatalogValue::text(&zone_name(self.session)),
            None => {
                let variable = self.session.variable(&name);
                variable.map_or(CatalogValue::Null, |value| CatalogValue::text(&value))
            }
        })
    }

    /// Returns the elements of what a function that returns a set gives, which are counted as kept.
    pub(super) fn set(&mut self, name: &str, values: &[CatalogValue]) -> Result<Vec<CatalogValue>> {
        let elements = self.elements_of(name, values)?;
        self.work(elements.len().saturating_mul(size_of::<CatalogValue>()))?;
        self.hold(row_bytes(&elements))?;
        Ok(elements)
    }

    fn elements_of(&mut self, name: &str, values: &[CatalogValue]) -> Result<Vec<CatalogValue>> {
        let array = || -> Result<(Vec<CatalogValue>, i64)> {
            Ok(match values.first() {
                Some(CatalogValue::Array(array)) => (array.items.clone(), array.first),
                Some(value) => (value.elements()?.unwrap_or_default(), 1),
                None => (Vec::new(), 1),
            })
        };
        Ok(match name {
            "generate_series" => series(values)?,
            "generate_subscripts" => {
                let (items, first) = array()?;
                (first..).take(items.len()).map(CatalogValue::Number).collect()
            }
            "_pg_expandarray" => {
                let (items, _) = array()?;
                let record = |(at, item): (usize, CatalogValue)| {
                    CatalogValue::Record([("x", item), ("n", CatalogValue::count(at + 1))].into())
                };
                items.into_iter().enumerate().map(record).collect()
            }
            "unnest" => array()?.0,
            "string_to_table" | "regexp_split_to_table" => {
                let text = values.first().map(CatalogValue::shown).unwrap_or_default();
                let by = values.get(1).map(CatalogValue::shown).unwrap_or_default();
                let parts = text_parts(&text, &by).take(JOINED_ROWS_MAX + 1);
                let elements: Vec<CatalogValue> = parts.collect();
                check_row_count(elements.len())?;
                elements
            }
            // There are no privileges of objects and no options in these catalogs.
            "aclexplode" | "pg_options_to_table" | "pg_get_keywords" => Vec::new(),
            // A function of one value is a set of one.
            other => vec![self.call(other, values)?],
        })
    }

    /// Converts a value to a type, which is a word such as `text`.
    pub(super) fn cast(&mut self, value: CatalogValue, word: &str) -> Result<CatalogValue> {
        if value.is_null() {
            return Ok(value);
        }
        if word.starts_with("reg") {
            return match value.number() {
                Some(number) => self.object_of_number(number, word),
                None => self.object(&value.display(), word),
            };
        }
        if word.ends_with("[]") || word.ends_with("vector") {
            return Ok(match value.elements()? {
                Some(items) if !matches!(value, CatalogValue::Array(_)) => {
                    CatalogValue::array(items)
                }
                _ => value,
            });
        }
        Ok(match type_number(word) {
            Some(oid::OID | oid::INT2 | oid::INT4 | oid::INT8) => match value.number() {
                Some(number) => CatalogValue::Number(number),
                None => return super::invalid_number(&value.display()),
            },
            Some(oid::FLOAT4 | oid::FLOAT8) => match value.real() {
                Some(number) => CatalogValue::Real(number),
                None => return super::invalid_number(&value.display()),
            },
            Some(oid::BOOL) => match &value {
                CatalogValue::Bool(_) => value,
                CatalogValue::Number(number) => CatalogValue::Bool(*number != 0),
                other => CatalogValue::Bool(other.display().starts_with(['t', 'T', '1', 'y', 'o'])),
            },
            Some(oid::CHAR) => {
                CatalogValue::text(&value.display().chars().take(1).collect::<String>())
            }
            Some(oid::TEXT | oid::NAME | oid::VARCHAR | oid::BPCHAR) => match value {
                CatalogValue::Bool(value) => {
                    CatalogValue::text(if value { "true" } else { "false" })
                }
                other => CatalogValue::text(&other.display()),
            },
            _ => value,
        })
    }

    /// Returns the object with a number; where there is none, its name is the number.
    fn object_of_number(&mut self, number: i64, word: &str) -> Result<CatalogValue> {
        if word == "regtype" {
            return Ok(CatalogValue::Object(number, type_of_number(number).as_str().into()));
        }
        let name = self.name_of(catalog_of(word), Some(&CatalogValue::Number(number)))?;
        let name = match name {
            CatalogValue::Text(name) => name,
            _ => number.to_string().as_str().into(),
        };
        Ok(CatalogValue::Object(number, name))
    }

    /// Returns the object that a text names.
    fn object(&mut self, text: &str, word: &str) -> Result<CatalogValue> {
        if let Ok(number) = text.parse() {
            return self.object_of_number(number, word);
        }
        if word == "regtype" {
            return self.type_of_name(text);
        }
        // A function may be named with its arguments.
        let name = if catalog_of(word) == "pg_proc" { text.split('(').next() } else { None };
        let path = ObjectPath::read(name.unwrap_or(text))?;
        if catalog_of(word) != "pg_class" {
            return self.other_object(&path, word);
        }
        let (number, name) = self.relation_of_name(&path)?;
        Ok(CatalogValue::Object(number, name.as_str().into()))
    }

    /// Returns the type that a text names.
    fn type_of_name(&mut self, text: &str) -> Result<CatalogValue> {
        let name = match text.rsplit_once('.') {
            Some((schema, name)) => {
                // A type is in `pg_catalog`, if there is such a schema.
                let path = ObjectPath::read(&format!("{schema}.name"))?;
                self.check_schema(&path)?;
                schema.trim_matches('"').eq_ignore_ascii_case("pg_catalog").then_some(name)
            }
            None => Some(text),
        };
        let number = name.and_then(|name| type_of_word(&type_word_of(name.trim_matches('"'))));
        if let Some(number) = number {
            return self.object_of_number(number.into(), "regtype");
        }
        let message = format!("type \"{text}\" does not exist");
        Diagnostic::new(code::UNDEFINED_OBJECT, message).err()
    }

    /// Returns the name of the row of a catalog that has a number.
    pub(super) fn name_of(
        &mut self,
        table: &str,
        number: Option<&CatalogValue>,
    ) -> Result<CatalogValue> {
        let number = number.cloned().unwrap_or(CatalogValue::Null);
        let relation = self.relation(table)?;
        let at = relation.lookup(0, &number).first();
        Ok(at.map_or(CatalogValue::Null, |at| relation.rows[*at][1].clone()))
    }

    /// Returns the query of a view, which is given by its number or its name.
    fn view_definition(&mut self, view: Option<&CatalogValue>) -> Result<CatalogValue> {
        let number = match view {
            Some(CatalogValue::Text(name)) => self.object(name, "regclass")?,
            Some(other) => other.clone(),
            None => CatalogValue::Null,
        };
        let texts = self.relation("lockstep_views")?;
        let found = texts.lookup(0, &number).first();
        Ok(found.map_or(CatalogValue::Null, |at| texts.rows[*at][1].clone()))
    }

    /// Returns the definition of an index, or one of its columns.
    fn index_definition(&mut self, values: &[CatalogValue]) -> Result<CatalogValue> {
        let indexes = self.relation("lockstep_indexes")?;
        let number = values.first().cloned().unwrap_or(CatalogValue::Null);
        let Some(at) = indexes.lookup(0, &number).first() else { return Ok(CatalogValue::Null) };
        let row = &indexes.rows[*at];
        let column = values.get(1).and_then(CatalogValue::number);
        Ok(match column.and_then(|at| usize::try_from(at).ok()) {
            Some(at) if at > 0 => {
                let columns = row[2].elements()?.unwrap_or_default();
                columns.get(at - 1).cloned().unwrap_or(CatalogValue::Null)
            }
            _ => row[1].clone(),
        })
    }

    /// Returns what there is about a deployment.
    fn routine(&mut self, number: Option<&CatalogValue>, column: &str) -> Result<CatalogValue> {
        let routines = self.relation("lockstep_routines")?;
        let number = number.cloned().unwrap_or(CatalogValue::Null);
        let at = routines.lookup(0, &number).first();
        let column = routines.columns.position(column);
        Ok(match (at, column) {
            (Some(at), Some(column)) => routines.rows[*at][column].clone(),
            _ => CatalogValue::Null,
        })
    }
}

/// Returns whether an error says that a name is one of nothing.
fn is_missing(error: &Diagnostic) -> bool {
    let codes = [code::UNDEFINED_TABLE, code::UNDEFINED_OBJECT, code::UNDEFINED_FUNCTION];
    codes.contains(&error.code) || error.code == code::UNDEFINED_SCHEMA
}

/// Returns a type that is written as a name as one word.
fn type_word_of(name: &str) -> String {
    let custom = sqlparser::ast::ObjectName::from(vec![sqlparser::ast::Ident::new(name)]);
    type_word(&sqlparser::ast::DataType::Custom(custom, Vec::new()))
}

/// Returns the number that a table of the catalogs has in PostgreSQL.
pub(super) fn catalog_number(name: &str) -> Option<i64> {
    Some(match name {
        "pg_am" => 2_601,
        "pg_attrdef" => 2_604,
        "pg_attribute" => 1_249,
        "pg_authid" | "pg_roles" => 1_260,
        "pg_class" => 1_259,
        "pg_collation" => 3_456,
        "pg_constraint" => 2_606,
        "pg_database" => 1_262,
        "pg_description" => 2_609,
        "pg_event_trigger" => 3_466,
        "pg_extension" => 3_079,
        "pg_foreign_data_wrapper" => 2_328,
        "pg_foreign_server" => 1_417,
        "pg_index" => 2_610,
        "pg_language" => 2_612,
        "pg_namespace" => 2_615,
        "pg_opclass" => 2_616,
        "pg_operator" => 2_617,
        "pg_policy" => 3_256,
        "pg_proc" => 1_255,
        "pg_rewrite" => 2_618,
        "pg_tablespace" => 1_213,
        "pg_trigger" => 2_620,
        "pg_ts_config" => 3_602,
        "pg_type" => 1_247,
        _ => return None,
    })
}

/// Returns the table whose names a type of objects has.
pub(super) fn catalog_of(word: &str) -> &'static str {
    match word {
        "regproc" | "regprocedure" => "pg_proc",
        "regnamespace" => "pg_namespace",
        "regrole" => "pg_roles",
        _ => "pg_class",
    }
}

/// Returns the whole numbers from the first to the last: `generate_series(first, last, step)`. There are
/// none where an argument is NULL.
fn series(values: &[CatalogValue]) -> Result<Vec<CatalogValue>> {
    if values.iter().any(CatalogValue::is_null) {
        return Ok(Vec::new());
    }
    let numbers: Option<Vec<i64>> = values.iter().map(CatalogValue::number).collect();
    let (first, last, step) = match numbers.as_deref() {
        Some([first, last]) => (*first, *last, 1),
        Some([first, last, step]) => (*first, *last, *step),
        _ => return unsupported("generate_series without two or three whole-number arguments"),
    };
    if step == 0 {
        let message = "step size cannot equal zero";
        return Diagnostic::new(code::INVALID_PARAMETER, message).err();
    }
    let (first_wide, last_wide) = (i128::from(first), i128::from(last));
    let distance = if step > 0 { last_wide - first_wide } else { first_wide - last_wide };
    if distance < 0 {
        return Ok(Vec::new());
    }
    let count = distance / i128::from(step.unsigned_abs()) + 1;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    check_row_count(count)?;
    let at = |at: i64| CatalogValue::Number(first.wrapping_add(at.wrapping_mul(step)));
    Ok((0..).take(count).map(at).collect())
}

/// Calls a function that looks at its arguments only.
fn call_on_values(name: &str, values: &[CatalogValue]) -> Option<CatalogValue> {
    let first = values.first();
    Some(match name {
        "format_type" => first
            .and_then(CatalogValue::number)
            .map_or(CatalogValue::Null, |number| CatalogValue::text(&type_of_number(number))),
        "current_schema" => CatalogValue::text("public"),
        "current_schemas" => {
            let mut schemas = vec![CatalogValue::text("public")];
            if first.is_some_and(CatalogValue::is_true) {
                schemas.insert(0, CatalogValue::text("pg_catalog"));
            }
            CatalogValue::array(schemas)
        }
        "version" => CatalogValue::text(&format!("PostgreSQL {VERSION}")),
        "pg_encoding_to_char" | "pg_client_encoding" | "getdatabaseencoding" => {
            CatalogValue::text("UTF8")
        }
        "pg_char_to_encoding" => CatalogValue::Number(6),
        "nullif" => match values {
            [a, b] if a.compare(b) == Some(std::cmp::Ordering::Equal) => CatalogValue::Null,
            _ => first.cloned().unwrap_or(CatalogValue::Null),
        },
        "greatest" | "least" => {
            let present = values.iter().filter(|value| !value.is_null());
            let by_order = |a: &&CatalogValue, b: &&CatalogValue| {
                let ordering = a.compare(b).unwrap_or(std::cmp::Ordering::Equal);
                if name == "least" { ordering.reverse() } else { ordering }
            };
            present.max_by(by_order).cloned().unwrap_or(CatalogValue::Null)
        }
        "pg_table_size"
        | "pg_total_relation_size"
        | "pg_relation_size"
        | "pg_database_size"
        | "pg_tablespace_size"
        | "pg_indexes_size"
        | "pg_my_temp_schema"
        | "inet_server_port" => CatalogValue::Number(0),
        "pg_backend_pid" | "txid_current" | "pg_current_xact_id" | "age" | "mxid_age" => {
            CatalogValue::Number(1)
        }
        "pg_is_in_recovery" | "pg_is_other_temp_schema" | "pg_is_wal_replay_paused" => {
            CatalogValue::Bool(false)
        }
        "now" | "pg_postmaster_start_time" | "pg_conf_load_time" | "date_trunc" => {
            CatalogValue::Null
        }
        _ => return None,
    })
}

/// Returns whether a function says something that there is nothing of here.
fn is_without_value(name: &str) -> bool {
    const NAMES: [&str; 23] = [
        "array_ndims",
        "col_description",
        "inet_client_addr",
        "inet_server_addr",
        "obj_description",
        "pg_column_is_updatable",
        "pg_describe_object",
        "pg_get_constraintdef",
        "pg_get_expr",
        "pg_get_function_arg_default",
        "pg_get_function_sqlbody",
        "pg_get_partkeydef",
        "pg_get_partition_constraintdef",
        "pg_get_ruledef",
        "pg_get_serial_sequence",
        "pg_get_statisticsobjdef_columns",
        "pg_get_triggerdef",
        "pg_last_wal_receive_lsn",
        "pg_relation_is_publishable",
        "pg_sequence_last_value",
        "pg_stat_get_numscans",
        "pg_tablespace_location",
        "shobj_description",
    ];
    NAMES.contains(&name) || name.starts_with("pg_stat_get_")
}
