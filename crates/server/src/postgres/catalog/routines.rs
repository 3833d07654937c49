//! Deployments as functions of PostgreSQL's catalogs.

use lockstep_diagnostic::Result;
use lockstep_engine::Session;
use lockstep_row::{DataType, Value};

use super::{
    objects::{FIRST_ROUTINE, PUBLIC, ROOT_OID, number, query, text},
    relation::{CatalogField, CatalogRelation},
    value::CatalogValue,
};
use crate::postgres::types::{oid, oid_of, type_name};

/// The number of the type `record`.
const RECORD: i64 = 2_249;

/// A deployment that the session sees.
#[derive(Debug, Default)]
pub(super) struct Routine {
    number: i64,
    pub(super) name: String,
    pub(super) input: Vec<(String, DataType)>,
    pub(super) output: Vec<(String, DataType)>,
    pub(super) sql: String,
}

/// Returns the deployments of the session's database.
pub(super) fn routines(session: &Session) -> Result<Vec<Routine>> {
    let database = session.current_database();
    let mut seen = Vec::new();
    let found = query(session, "SELECT database_name, name FROM lockstep.deployments")?;
    for (number, row) in (FIRST_ROUTINE..).zip(&found) {
        let [Value::String(of), Value::String(name)] = row.as_slice() else { continue };
        // One that was dropped meanwhile is not there any more.
        let Ok(found) = session.deployment(&format!("{of}.{name}")) else { continue };
        if **of == *database {
            let (name, input, output) = (name.to_string(), found.input, found.output);
            seen.push(Routine { number, name, input, output, sql: found.sql });
        }
    }
    Ok(seen)
}

/// Makes `pg_proc`.
pub(super) fn functions(session: &Session) -> Result<CatalogRelation> {
    Ok(CatalogRelation::listing(&routines(session)?, routine_fields))
}

/// Returns columns as PostgreSQL writes arguments.
fn argument_list(columns: &[(String, DataType)]) -> String {
    let column =
        |(name, data_type): &(String, DataType)| format!("{name} {}", type_name(data_type));
    columns.iter().map(column).collect::<Vec<_>>().join(", ")
}

fn routine_fields(routine: &Routine) -> Vec<CatalogField> {
    let (input, output) = (&routine.input, &routine.output);
    let types = |columns: &[(String, DataType)]| -> Vec<CatalogValue> {
        columns.iter().map(|(_, data_type)| number(oid_of(data_type).into())).collect()
    };
    let names = |columns: &[(String, DataType)]| -> Vec<CatalogValue> {
        columns.iter().map(|(name, _)| text(name)).collect()
    };
    let modes = [vec![text("i"); input.len()], vec![text("t"); output.len()]].concat();
    let (arguments, result) = (argument_list(input), format!("TABLE({})", argument_list(output)));
    let definition = format!(
        "CREATE FUNCTION public.{}({arguments}) RETURNS {result} AS $$ {} $$",
        routine.name, routine.sql
    );
    vec![
        ("oid", oid::OID, number(routine.number)),
        ("proname", oid::NAME, text(&routine.name)),
        ("pronamespace", oid::OID, number(PUBLIC)),
        ("proowner", oid::OID, number(ROOT_OID)),
        ("prolang", oid::OID, number(14)),
        ("procost", oid::FLOAT4, number(1)),
        ("prorows", oid::FLOAT4, number(1)),
        ("provariadic", oid::OID, number(0)),
        ("prosupport", oid::TEXT, text("-")),
        ("prokind", oid::CHAR, text("f")),
        ("prosecdef", oid::BOOL, CatalogValue::Bool(false)),
        ("proleakproof", oid::BOOL, CatalogValue::Bool(false)),
        ("proisstrict", oid::BOOL, CatalogValue::Bool(false)),
        ("proretset", oid::BOOL, CatalogValue::Bool(true)),
        ("provolatile", oid::CHAR, text("s")),
        ("proparallel", oid::CHAR, text("s")),
        ("pronargs", oid::INT2, CatalogValue::count(input.len())),
        ("pronargdefaults", oid::INT2, number(0)),
        ("prorettype", oid::OID, number(RECORD)),
        ("proargtypes", oid::TEXT, CatalogValue::vector(types(input))),
        (
            "proallargtypes",
            oid::OID_ARRAY,
            CatalogValue::array([types(input), types(output)].concat()),
        ),
        ("proargmodes", oid::CHAR_ARRAY, CatalogValue::array(modes)),
        (
            "proargnames",
            oid::TEXT_ARRAY,
            CatalogValue::array([names(input), names(output)].concat()),
        ),
        ("proargdefaults", oid::TEXT, CatalogValue::Null),
        ("prosrc", oid::TEXT, text(&routine.sql)),
        ("probin", oid::TEXT, CatalogValue::Null),
        ("proconfig", oid::TEXT_ARRAY, CatalogValue::Null),
        ("proacl", oid::TEXT_ARRAY, CatalogValue::Null),
        // What pg_get_function_arguments and its like return.
        ("arguments", oid::TEXT, text(&arguments)),
        ("result", oid::TEXT, text(&result)),
        ("definition", oid::TEXT, text(&definition)),
    ]
}

/// Makes `pg_language`.
pub(super) fn languages() -> CatalogRelation {
    let fields = |name: &&str| -> Vec<CatalogField> {
        vec![
            ("oid", oid::OID, number(14)),
            ("lanname", oid::NAME, text(name)),
            ("lanowner", oid::OID, number(ROOT_OID)),
            ("lanispl", oid::BOOL, CatalogValue::Bool(false)),
            ("lanpltrusted", oid::BOOL, CatalogValue::Bool(true)),
        ]
    };
    CatalogRelation::listing(&["sql"], fields)
}
