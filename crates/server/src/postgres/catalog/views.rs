//! The views that a session sees, as PostgreSQL's catalogs have them: relations of kind `v`.
//!
//! The columns are found by binding the view, since they are those of its query; of a view of files they
//! are those that it was made with. One that the caller may not read, or whose tables are gone, has none.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use lockstep_diagnostic::Result;
use lockstep_engine::Session;
use lockstep_row::Value;

use super::{
    objects::{VisibleColumn, number, query, text},
    relation::{CatalogField, CatalogRelation},
};
use crate::postgres::types::oid;

/// The first number of views: there are 2²⁸ of them, up to the first of an index.
const FIRST_VIEW: i64 = 1 << 28;

/// A view that the session sees.
#[derive(Debug, Default)]
pub(super) struct VisibleView {
    pub(super) number: i64,
    pub(super) name: String,
    /// The query.
    statement: String,
    pub(super) columns: Vec<VisibleColumn>,
}

/// Returns the views of the session's database.
pub(super) fn views(session: &Session) -> Result<Vec<VisibleView>> {
    let database = session.current_database();
    let mut seen = Vec::new();
    let mut numbers = BTreeSet::new();
    let sql = "SELECT database_name, name, statement FROM lockstep.views ORDER BY name";
    for row in query(session, sql)? {
        let [Value::String(of), Value::String(name), Value::String(statement)] = row.as_slice()
        else {
            continue;
        };
        if **of != *database {
            continue;
        }
        let mut number = number_of(name);
        while !numbers.insert(number) {
            number += 1;
        }
        let columns = session.view_columns(&database, name).unwrap_or_default();
        let column =
            |(name, data_type)| VisibleColumn { name, data_type, ..VisibleColumn::default() };
        seen.push(VisibleView {
            number,
            name: name.to_string(),
            statement: statement.to_string(),
            columns: columns.into_iter().map(column).collect(),
        });
    }
    Ok(seen)
}

/// Returns the number of a view: views have none, and a client may ask for one again.
fn number_of(name: &str) -> i64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    FIRST_VIEW + i64::from(u32::try_from(hasher.finish() & 0x07ff_ffff).unwrap_or(0))
}

/// Makes `pg_views`.
pub(super) fn view_list(session: &Session) -> Result<CatalogRelation> {
    let fields = |view: &VisibleView| -> Vec<CatalogField> {
        vec![
            ("schemaname", oid::NAME, text("public")),
            ("viewname", oid::NAME, text(&view.name)),
            ("viewowner", oid::NAME, text("root")),
            ("definition", oid::TEXT, text(&view.statement)),
        ]
    };
    Ok(CatalogRelation::listing(&views(session)?, fields))
}

/// Makes the table of which `pg_get_viewdef` takes its texts.
pub(super) fn view_texts(session: &Session) -> Result<CatalogRelation> {
    let fields = |view: &VisibleView| -> Vec<CatalogField> {
        vec![("oid", oid::OID, number(view.number)), ("text", oid::TEXT, text(&view.statement))]
    };
    Ok(CatalogRelation::listing(&views(session)?, fields))
}

/// Makes `information_schema.views`.
pub(super) fn information_views(session: &Session) -> Result<CatalogRelation> {
    let database = session.current_database();
    let fields = |view: &VisibleView| -> Vec<CatalogField> {
        let no = || text("NO");
        vec![
            ("table_catalog", oid::NAME, text(&database)),
            ("table_schema", oid::NAME, text("public")),
            ("table_name", oid::NAME, text(&view.name)),
            ("view_definition", oid::TEXT, text(&view.statement)),
            ("check_option", oid::TEXT, text("NONE")),
            ("is_updatable", oid::TEXT, no()),
            ("is_insertable_into", oid::TEXT, no()),
            ("is_trigger_updatable", oid::TEXT, no()),
            ("is_trigger_deletable", oid::TEXT, no()),
            ("is_trigger_insertable_into", oid::TEXT, no()),
        ]
    };
    Ok(CatalogRelation::listing(&views(session)?, fields))
}
