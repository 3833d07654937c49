//! Operations on deployments, procedures, users and variables.

use lockstep_testkit::random::Random;

use super::{Draft, Writer, pick};
use crate::{
    objects::{Effect, SHARED_READ},
    rows::COLUMNS,
};

/// Queries over a table `{t}`.
const QUERIES: &[&str] = &[
    "SELECT k, n, sum(v) OVER x AS a, count(n) OVER x AS b, max(f) OVER x AS c FROM {t} \
     WINDOW x AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 25d PRECEDING AND CURRENT ROW)",
    "SELECT k, n, avg(v) OVER x AS a, min(n) OVER x AS b FROM {t} \
     WINDOW x AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 6 PRECEDING AND CURRENT ROW)",
    "SELECT n, sum(f) OVER x AS a, lag(n, 1) OVER x AS b FROM {t} \
     WINDOW x AS (PARTITION BY w, k ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)",
    "SELECT {t}.n AS n, {s}.n AS m, {s}.v AS u FROM {t} LAST JOIN {s} ORDER BY {s}.ts \
     ON {t}.k = {s}.k",
];

/// Groups over a table `{t}` that has an index over `k` and `ts`, which both read as long as it exists: in any
/// order, and in order of arrival.
const GROUPS: &[&str] = &[
    "SELECT k, sum(v) AS a, count(n) AS b, max(f) AS c FROM {t} GROUP BY k",
    "SELECT k, first_value(n) AS a, last_value(v) AS b, sum(f) AS c FROM {t} GROUP BY k",
];

/// The options of a deployment.
const OPTIONS: &[&str] = &[
    "",
    " OPTIONS(pre_aggregation='always')",
    " OPTIONS(pre_aggregation='always')",
    " OPTIONS(pre_aggregation='off')",
];

/// OpenMLDB's option, which the first [`LONG_QUERIES`] queries may have.
const LONG_WINDOWS: &str = " OPTIONS(long_windows='x:1d')";
const LONG_QUERIES: usize = 2;

/// The number of deployments, and of procedures, of a writer.
const NAMES: usize = 4;

/// Draws a query over one of the writer's tables or a shared one.
fn query(writer: &Writer, random: &mut Random) -> (String, String) {
    let own = writer.own_table(random).filter(|_| random.chance(75));
    let is_grouped = random.chance(25);
    let has_event_time =
        own.as_ref().is_none_or(|table| writer.objects.tables[table].has_event_time);
    if is_grouped && has_event_time {
        let table = own.unwrap_or_else(|| SHARED_READ.to_owned());
        return (table, (*random.pick(GROUPS)).to_owned());
    }
    // A query over two tables has two names for them.
    let queries = if own.is_some() { QUERIES } else { &QUERIES[..QUERIES.len() - 1] };
    let table = own.unwrap_or_else(|| SHARED_READ.to_owned());
    let template = *random.pick(queries);
    (table, template.to_owned())
}

/// Writes a query of a session whose current database is that of the table.
fn text(template: &str, table: &str) -> (String, String) {
    let (database, plain) = table.split_once('.').unwrap_or(("default", table));
    let shared = if database == "default" || !template.contains("{s}") {
        SHARED_READ.to_owned()
    } else {
        return (
            "default".to_owned(),
            QUERIES[0].replace("FROM {t}", &format!("FROM {database}.{plain}")),
        );
    };
    (database.to_owned(), template.replace("{t}", plain).replace("{s}", &shared))
}

pub(super) fn deploy(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let name = format!("w{}_d{}", writer.number, random.below(NAMES));
    if writer.objects.deployments.contains_key(&name) {
        return None;
    }
    Some(deployment("DEPLOY", &name, writer, random))
}

/// Draws a DEPLOY OR REPLACE of a deployment that there is.
pub(super) fn replace_deployment(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let name = pick(writer.objects.deployments.keys(), random)?;
    Some(deployment("DEPLOY OR REPLACE", &name, writer, random))
}

/// Draws a deployment of this name.
fn deployment(verb: &str, name: &str, writer: &Writer, random: &mut Random) -> Draft {
    let (table, template) = query(writer, random);
    let (database, query) = text(&template, &table);
    let is_long = QUERIES[..LONG_QUERIES].contains(&template.as_str());
    let options = if is_long && random.chance(20) { LONG_WINDOWS } else { *random.pick(OPTIONS) };
    let sql =
        format!("USE `{database}`; {verb} `default`.{name}{options} AS {query}; USE `default`");
    let draft = Draft::script(sql).with_effect(Effect::Deployment(name.to_owned(), table));
    draft.seen_in(format!("SHOW DEPLOYMENT {name}"), "")
}

/// Returns a view over a table, as the statement that makes it.
fn view(verb: &str, name: &str, table: String, random: &mut Random) -> Draft {
    let at_least = random.below(1_000);
    let sql = format!("{verb} {name} AS SELECT k, n, v, ts FROM {table} WHERE n >= {at_least}");
    let seen = format!("SHOW CREATE VIEW {name}");
    Draft::script(sql).with_effect(Effect::View(name.to_owned(), table)).seen_in(seen, "")
}

pub(super) fn create_view(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let name = format!("w{}_v{}", writer.number, random.below(NAMES));
    if writer.objects.views.contains_key(&name) {
        return None;
    }
    let table = writer.own_table(random)?;
    Some(view("CREATE VIEW", &name, table, random))
}

/// Draws a CREATE OR REPLACE VIEW of a view that nothing reads.
pub(super) fn replace_view(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let name = pick(writer.objects.views.keys(), random)?;
    let table = writer.own_table(random).filter(|_| !writer.objects.is_read(&name))?;
    Some(view("CREATE OR REPLACE VIEW", &name, table, random))
}

pub(super) fn drop_view(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let name = pick(writer.objects.views.keys(), random)?;
    if writer.objects.is_read(&name) {
        return None;
    }
    let seen = format!("SHOW CREATE VIEW {name}");
    Some(
        Draft::script(format!("DROP VIEW {name}"))
            .with_effect(Effect::DropView(name))
            .seen_in(seen, ""),
    )
}

/// Draws a DEPLOY of a query over a view.
pub(super) fn deploy_view(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let name = format!("w{}_d{}", writer.number, random.below(NAMES));
    let view = pick(writer.objects.views.keys(), random)?;
    if writer.objects.deployments.contains_key(&name) {
        return None;
    }
    let sql = format!(
        "DEPLOY {name} AS SELECT k, sum(v) OVER x AS a FROM {view} \
         WINDOW x AS (PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 9d PRECEDING AND CURRENT ROW)"
    );
    let draft = Draft::script(sql).with_effect(Effect::Deployment(name.clone(), view));
    Some(draft.seen_in(format!("SHOW DEPLOYMENT {name}"), ""))
}

/// Draws a DEPLOY over a table that there is not.
pub(super) fn deploy_refused(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let name = format!("w{}_d{}", writer.number, random.below(NAMES));
    Some(Draft::script(format!("DEPLOY {name} AS SELECT k FROM nowhere")))
}

pub(super) fn drop_deployment(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let name = pick(writer.objects.deployments.keys(), random)?;
    let draft = Draft::script(format!("DROP DEPLOYMENT {name}"));
    let seen = format!("SHOW DEPLOYMENT {name}");
    Some(draft.with_effect(Effect::DropDeployment(name)).seen_in(seen, ""))
}

pub(super) fn create_procedure(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let name = format!("w{}_p{}", writer.number, random.below(NAMES));
    if writer.objects.procedures.contains_key(&name) {
        return None;
    }
    let (table, template) = query(writer, random);
    let (database, query) = text(&template, &table);
    let columns = COLUMNS.replace(" NOT NULL", "");
    let create = format!("CREATE PROCEDURE `default`.{name} ({columns}) BEGIN {query}; END");
    let sql = format!("USE `{database}`; {create}; USE `default`");
    let draft = Draft::script(sql).with_effect(Effect::Procedure(name.clone(), table));
    Some(draft.seen_in("SHOW PROCEDURES", format!("\"{name}\"")))
}

pub(super) fn drop_procedure(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let name = pick(writer.objects.procedures.keys(), random)?;
    let draft = Draft::script(format!("DROP PROCEDURE {name}"));
    let seen = format!("\"{name}\"");
    Some(draft.with_effect(Effect::DropProcedure(name)).seen_in("SHOW PROCEDURES", seen))
}

pub(super) fn create_user(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let name = format!("w{}_u{}", writer.number, random.below(2));
    if writer.objects.users.contains(&name) {
        return None;
    }
    let password = random.pick(&["", " OPTIONS(password='secret')"]);
    let draft = Draft::script(format!("CREATE USER {name}{password}"));
    let seen = format!("\"{name}\"");
    Some(draft.with_effect(Effect::User(name)).seen_in("SHOW USERS", seen))
}

pub(super) fn grant(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let name = pick(writer.objects.users.iter(), random)?;
    let privilege = random.pick(&["SELECT", "INSERT", "DELETE"]);
    let draft = Draft::script(format!("GRANT {privilege} ON *.* TO {name}"));
    Some(draft.seen_in(format!("SHOW GRANTS FOR {name}"), ""))
}

pub(super) fn revoke(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let name = pick(writer.objects.users.iter(), random)?;
    let privilege = random.pick(&["SELECT", "INSERT", "DELETE"]);
    let draft = Draft::script(format!("REVOKE {privilege} ON *.* FROM {name}"));
    Some(draft.seen_in(format!("SHOW GRANTS FOR {name}"), ""))
}

pub(super) fn drop_user(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let name = pick(writer.objects.users.iter(), random)?;
    let draft = Draft::script(format!("DROP USER {name}"));
    let seen = format!("\"{name}\"");
    Some(draft.with_effect(Effect::DropUser(name)).seen_in("SHOW USERS", seen))
}

/// Draws a value for the one variable that this writer sets.
pub(super) fn set_global(writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let number = 30 + random.below(60);
    let (name, value) = match writer.number {
        0 => ("statement_timeout", format!("'{number}s'")),
        1 => ("memory_alert_ratio", format!("0.{number}")),
        _ => ("job_timeout", format!("'{number}s'")),
    };
    let draft = Draft::script(format!("SET GLOBAL {name} = {value}"));
    Some(draft.seen_in("SHOW GLOBAL VARIABLES", format!("\"{name}\"")))
}

/// Draws a level for the writer's session.
pub(super) fn set_durability(_writer: &mut Writer, random: &mut Random) -> Option<Draft> {
    let level = random.pick(&["disk", "os", "memory"]);
    let draft = Draft::script(format!("SET durability = '{level}'"));
    Some(Draft { needs_directory: true, ..draft })
}
