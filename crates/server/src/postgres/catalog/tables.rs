//! Which tables the catalogs have.
//!
//! Tables of what there is nothing of (triggers, comments, inheritance) are empty, and have every column.

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_engine::Session;

use super::{cluster, information, objects, relation::CatalogRelation, routines, types, views};

/// Tables without rows.
const EMPTY: &[&str] = &[
    "information_schema.applicable_roles",
    "information_schema.check_constraints",
    "information_schema.column_domain_usage",
    "information_schema.column_privileges",
    "information_schema.constraint_column_usage",
    "information_schema.constraint_table_usage",
    "information_schema.domain_constraints",
    "information_schema.domains",
    "information_schema.element_types",
    "information_schema.enabled_roles",
    "information_schema.key_column_usage",
    "information_schema.parameters",
    "information_schema.referential_constraints",
    "information_schema.role_column_grants",
    "information_schema.role_table_grants",
    "information_schema.sequences",
    "information_schema.table_constraints",
    "information_schema.table_privileges",
    "information_schema.triggers",
    "information_schema.udt_privileges",
    "information_schema.user_defined_types",
    "information_schema.view_column_usage",
    "information_schema.view_table_usage",
    "pg_aggregate",
    "pg_amop",
    "pg_amproc",
    "pg_attrdef",
    "pg_auth_members",
    "pg_available_extension_versions",
    "pg_available_extensions",
    "pg_cast",
    "pg_collation",
    "pg_constraint",
    "pg_conversion",
    "pg_cursors",
    "pg_db_role_setting",
    "pg_default_acl",
    "pg_depend",
    "pg_description",
    "pg_enum",
    "pg_event_trigger",
    "pg_extension",
    "pg_foreign_data_wrapper",
    "pg_foreign_server",
    "pg_foreign_table",
    "pg_inherits",
    "pg_init_privs",
    "pg_largeobject_metadata",
    "pg_locks",
    "pg_matviews",
    "pg_opclass",
    "pg_operator",
    "pg_opfamily",
    "pg_parameter_acl",
    "pg_partitioned_table",
    "pg_policies",
    "pg_policy",
    "pg_prepared_statements",
    "pg_prepared_xacts",
    "pg_publication",
    "pg_publication_namespace",
    "pg_publication_rel",
    "pg_publication_tables",
    "pg_range",
    "pg_replication_slots",
    "pg_rewrite",
    "pg_rules",
    "pg_seclabel",
    "pg_seclabels",
    "pg_sequence",
    "pg_sequences",
    "pg_shdepend",
    "pg_shdescription",
    "pg_shseclabel",
    "pg_stat_activity",
    "pg_stat_all_indexes",
    "pg_stat_all_tables",
    "pg_stat_database",
    "pg_stat_replication",
    "pg_stat_ssl",
    "pg_stat_user_functions",
    "pg_stat_user_indexes",
    "pg_statio_user_indexes",
    "pg_statio_user_tables",
    "pg_statistic",
    "pg_statistic_ext",
    "pg_statistic_ext_data",
    "pg_stats",
    "pg_stats_ext",
    "pg_subscription",
    "pg_subscription_rel",
    "pg_timezone_abbrevs",
    "pg_timezone_names",
    "pg_transform",
    "pg_trigger",
    "pg_ts_config",
    "pg_ts_config_map",
    "pg_ts_dict",
    "pg_ts_parser",
    "pg_ts_template",
    "pg_user_mapping",
    "pg_user_mappings",
];

/// Makes a table of the catalogs.
pub(super) fn make_table(session: &Session, name: &str) -> Result<CatalogRelation> {
    if EMPTY.contains(&name) {
        return Ok(CatalogRelation::empty());
    }
    Ok(match name {
        "pg_namespace" => cluster::namespaces(),
        "pg_class" => objects::classes(session)?,
        "pg_attribute" => objects::attributes(session)?,
        "pg_type" => types::types(),
        "pg_index" => objects::indexes(session)?,
        "pg_indexes" => objects::index_list(session)?,
        "pg_proc" | "lockstep_routines" => routines::functions(session)?,
        "pg_language" => routines::languages(),
        "lockstep_indexes" => objects::index_texts(session)?,
        "pg_database" => cluster::databases(session)?,
        "pg_roles" | "pg_user" | "pg_authid" | "pg_shadow" | "pg_group" => cluster::roles(session)?,
        "pg_am" => cluster::access_methods(),
        "pg_tablespace" => cluster::tablespaces(),
        "pg_settings" => cluster::settings(),
        "pg_views" => views::view_list(session)?,
        "lockstep_views" => views::view_texts(session)?,
        "information_schema.views" => views::information_views(session)?,
        "pg_tables" => objects::table_list(session)?,
        "pg_stat_user_tables" => objects::table_statistics(session)?,
        "information_schema.schemata" => information::schemata(session),
        "information_schema.tables" => information::table_views(session)?,
        "information_schema.columns" => information::columns(session)?,
        "information_schema.routines" => information::routine_views(session)?,
        _ if name.starts_with("pg_") || name.starts_with("information_schema.") => {
            let message = format!("catalog relation {name} is not supported");
            return Diagnostic::unsupported(message)
                .with_hint("Use DESC, SHOW and the tables of the database `lockstep`.")
                .err();
        }
        _ => {
            let message = format!("relation \"{name}\" does not exist");
            return Diagnostic::new(code::UNDEFINED_TABLE, message)
                .with_hint(
                    "Read other tables in a separate query: a catalog query can read only \
                     catalogs.",
                )
                .err();
        }
    })
}
