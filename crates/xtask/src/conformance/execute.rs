//! Runs one case in one mode against an engine of its own.
//!
//! The modes are those of the data's README; each creates a database, so that cases and modes are
//! independent.

use std::path::Path;

use lockstep_engine::{Database, Diagnostic, Parameter, Session, code};
use lockstep_host::{Clock, SystemClock};
use lockstep_sql::ast::{ObjectName, Query, SetExpr, Statement, TableRef};
use lockstep_testkit::rows::to_batch;

use super::{
    case::{CaseInput, ConformanceCase, Expectation},
    compare::{CaseOutcome, Choice, ResultComparison, ResultTable, Tolerance, check},
    database::{CaseDatabase, outcome_of},
    folder::ScratchFolder,
    objects::{self, Exception},
    tables,
};

/// The checks that were skipped, or the difference.
pub(crate) type Verdict = Result<Vec<Exception>, String>;

/// The result of a case, and the session it ran in if its objects can be checked.
type Ran = Result<(CaseOutcome, Option<Session>), String>;

/// The result of a case in one mode.
#[derive(Debug)]
pub(crate) struct CaseRun {
    /// The result; an error when the case could not be completed.
    pub(crate) outcome: Result<CaseOutcome, String>,
    /// The verdict on it.
    pub(crate) verdict: Verdict,
}

/// How the cases are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Setting {
    /// With `SET compatibility = 'openmldb'`.
    OpenMldb,
    /// With it, and with every table on a disk.
    OnDisk,
    /// Without it.
    Default,
}

/// Runs a case in a mode and compares.
pub(crate) fn run(case: &ConformanceCase, mode: &str, setting: Setting) -> CaseRun {
    let case = &*case.as_of(SystemClock::new().now_ms());
    let tolerance = if case.is_loose { Tolerance::Loose } else { Tolerance::Ulp };
    let expectation = expectation_in(case, mode);
    let (outcome, session) = match run_in(case, mode, setting) {
        Ok(ran) => ran,
        Err(reason) => return CaseRun { outcome: Err(reason.clone()), verdict: Err(reason) },
    };
    let choice = choice(case, &outcome, mode, setting);
    let verdict = check(&expectation, &outcome, &ResultComparison { tolerance, choice })
        .and_then(|()| objects::check(&expectation, &outcome, session.as_ref()));
    CaseRun { outcome: Ok(outcome), verdict }
}

/// Returns whether the case expects success.
pub(crate) fn expects_success(case: &ConformanceCase, mode: &str) -> bool {
    case.expectation_in(mode).is_success
}

/// Returns the rows that the case's query allows. The rows among which a LIMIT chooses are found by
/// running the case without it.
fn choice(case: &ConformanceCase, outcome: &CaseOutcome, mode: &str, setting: Setting) -> Choice {
    let CaseOutcome::Table(outcome) = outcome else { return Choice::Listed };
    let unlimited: Vec<Option<String>> =
        case.statements.iter().map(|sql| without_limit(sql)).collect();
    if unlimited.iter().any(Option::is_some) {
        let statements = case.statements.iter().zip(unlimited);
        let statements = statements.map(|(sql, other)| other.unwrap_or_else(|| sql.clone()));
        let statements = statements.collect();
        let mut unlimited = case.clone();
        unlimited.statements = statements;
        // A batch request answers the last row, while the LIMIT of the case applies to all rows.
        let all_mode = if mode == "batch-request" { "request" } else { mode };
        if let Ok((CaseOutcome::Table(all), _)) = run_in(&unlimited, all_mode, setting) {
            let expected = expectation_in(case, mode).rows.map_or(outcome.rows.len(), |r| r.len());
            // A request has one row, which LIMIT 2 keeps.
            let count = if mode == "request" { all.rows.len() } else { expected };
            return Choice::Among { all: all.rows, count };
        }
    }
    let is_ordered = case.statements.last().and_then(|sql| query_of(sql));
    match is_ordered {
        Some(query) if query.order_by.is_empty() && matches!(mode, "batch" | "offline") => {
            Choice::Unordered
        }
        _ => Choice::Listed,
    }
}

fn query_of(sql: &str) -> Option<Query> {
    match lockstep_sql::parse(sql).ok()?.pop()?.statement {
        Statement::Query(query) => Some(*query),
        _ => None,
    }
}

/// Removes the LIMIT of a query if no ORDER BY says which rows it keeps. `None` for LIMIT 0, which
/// keeps none.
fn without_limit(sql: &str) -> Option<String> {
    let query = query_of(sql)?;
    let limit = query.limit.filter(|limit| query.order_by.is_empty() && limit.count > 0)?;
    let at = sql[..limit.span.end].to_ascii_lowercase().rfind("limit")?;
    Some(format!("{}{}", &sql[..at], &sql[limit.span.end..]))
}

fn run_in(case: &ConformanceCase, mode: &str, setting: Setting) -> Ran {
    let alone = |outcome: Result<CaseOutcome, String>| outcome.map(|outcome| (outcome, None));
    match mode {
        "batch" => alone(batch(case, setting)),
        "offline" => alone(offline(case, setting)),
        "request" => alone(request_by_request(case, setting)),
        "batch-request" => alone(batch_request(case, setting)),
        "statements" => statements(case, setting),
        "deploy-request" => deploy_request(case, setting),
        "parse" => alone(Ok(parse(case, setting))),
        other => Err(format!("mode `{other}` has no runner")),
    }
}

/// Returns the expected result in a mode; a batch request of the table's own rows answers only the
/// last of them.
fn expectation_in(case: &ConformanceCase, mode: &str) -> Expectation {
    let mut expectation = case.expectation_in(mode).clone();
    if let Some(first) = case.steps.first() {
        // The requests answer the first step; the later steps are checked as they run.
        return first.expectation.clone();
    }
    if mode == "batch-request" && case.batch_request.is_none() {
        expectation.count = None;
        if let Some(rows) = &mut expectation.rows {
            rows.drain(..rows.len().saturating_sub(1));
        }
    }
    expectation
}

fn batch(case: &ConformanceCase, setting: Setting) -> Result<CaseOutcome, String> {
    let database = CaseDatabase::open(case, setting)?;
    database.fill(case.inputs.iter())?;
    in_batch_mode(case, &database)
}

/// Runs batch mode over offline data, which is loaded from files: each table is filled in another
/// database, exported, and loaded in offline mode.
fn offline(case: &ConformanceCase, setting: Setting) -> Result<CaseOutcome, String> {
    let database = CaseDatabase::open(case, setting)?;
    let folder = ScratchFolder::make(&format!("{} offline {setting:?}", case.id))?;
    database.execute("SET @@execute_mode = 'offline'")?;
    for (number, input) in case.inputs.iter().enumerate() {
        let file = folder.path.join(format!("{number}.parquet"));
        if export_rows(case, input, setting, &file)? {
            let table = stored_name(input);
            let file = file.to_string_lossy();
            database.execute(&format!(
                "LOAD DATA INFILE '{file}' INTO TABLE {table} OPTIONS(format='parquet')"
            ))?;
        }
    }
    in_batch_mode(case, &database)
}

/// Writes the rows of a table to a file; returns whether there are any. The table has no retention,
/// since offline data does not expire.
fn export_rows(
    case: &ConformanceCase,
    input: &CaseInput,
    setting: Setting,
    file: &Path,
) -> Result<bool, String> {
    let failed = |error: Box<Diagnostic>| format!("export of `{}`: {error}", input.name);
    let (session, table) = if input.inserts.is_empty() {
        let rows = input.repeated_rows();
        if rows.is_empty() {
            return Ok(false);
        }
        let session = Database::in_memory().session();
        let rows = to_batch(&input.columns, &rows);
        session.create_table("rows", &rows.schema()).map_err(failed)?;
        session.append("rows", &[rows]).map_err(failed)?;
        (session, "`rows`".to_owned())
    } else {
        let database = CaseDatabase::open(case, setting)?;
        database.fill(std::iter::once(input))?;
        (database.session, stored_name(input))
    };
    let file = file.to_string_lossy();
    let export = format!("SELECT * FROM {table} INTO OUTFILE '{file}' OPTIONS(format='parquet')");
    session.execute(&export).map_err(failed)?;
    Ok(true)
}

/// Returns the table that an input's own statement creates, whose name may differ from the
/// record's.
fn stored_name(input: &CaseInput) -> String {
    let script = input.create.as_ref().and_then(|create| lockstep_sql::parse(create).ok());
    match script.as_ref().and_then(|script| script.first()).map(|parsed| &parsed.statement) {
        Some(Statement::CreateTable(create)) if create.name.database.is_none() => {
            let database = input.database.as_ref().map(|name| format!("`{name}`."));
            format!("{}`{}`", database.unwrap_or_default(), create.name.name.text)
        }
        _ => input.quoted_name(),
    }
}

fn in_batch_mode(case: &ConformanceCase, database: &CaseDatabase) -> Result<CaseOutcome, String> {
    let Some(given) = &case.parameters else {
        return Ok(database.run_statements(&case.statements));
    };
    let sql = only_statement(case)?;
    let values = given.rows.first().cloned().unwrap_or_default();
    let types = given.columns.iter().map(|(_, data_type)| data_type.clone());
    let parameters: Vec<Parameter> = values.into_iter().zip(types).collect();
    Ok(outcome_of(database.session.execute_with(sql, &parameters), sql))
}

fn request_by_request(case: &ConformanceCase, setting: Setting) -> Result<CaseOutcome, String> {
    let database = CaseDatabase::open(case, setting)?;
    let sql = only_statement(case)?;
    let mut table = match database.requested_table(sql) {
        Ok(table) => table,
        Err(outcome) => return Ok(outcome),
    };
    let (requests, is_stored) = match (&case.batch_request, request_input(case, sql)) {
        (Some(requests), _) => {
            database.fill(case.inputs.iter())?;
            (requests, false)
        }
        (None, Some(requests)) => {
            database.fill(case.inputs.iter().filter(|input| !std::ptr::eq(*input, requests)))?;
            (requests, true)
        }
        (None, None) => return database.request_without_table(sql),
    };
    let ResultTable { columns, rows } = request_rows(case, requests, database.setting)?;
    for row in rows {
        let row = to_batch(&columns, &[row]);
        match database.session.request(sql, std::slice::from_ref(&row)) {
            Ok(output) => table.rows.extend(ResultTable::from(&output).rows),
            Err(diagnostic) => return Ok(outcome_of(Err(diagnostic), sql)),
        }
        if is_stored {
            database.append(requests, row)?;
        }
    }
    Ok(CaseOutcome::Table(table))
}

fn batch_request(case: &ConformanceCase, setting: Setting) -> Result<CaseOutcome, String> {
    let database = CaseDatabase::open(case, setting)?;
    let sql = only_statement(case)?;
    if let Err(outcome) = database.requested_table(sql) {
        return Ok(outcome);
    }
    if let Some(requests) = &case.batch_request {
        database.fill(case.inputs.iter())?;
        let rows = to_batch(&requests.columns, &requests.repeated_rows());
        return Ok(outcome_of(database.session.request(sql, &[rows]), sql));
    }
    let Some(requests) = request_input(case, sql) else {
        return database.request_without_table(sql);
    };
    database.fill(case.inputs.iter().filter(|input| !std::ptr::eq(*input, requests)))?;
    let ResultTable { columns, rows } = request_rows(case, requests, database.setting)?;
    let (stored, last) = rows.split_at(rows.len().saturating_sub(1));
    database.append(requests, to_batch(&columns, stored))?;
    Ok(outcome_of(database.session.request(sql, &[to_batch(&columns, last)]), sql))
}

fn statements(case: &ConformanceCase, setting: Setting) -> Ran {
    let database = CaseDatabase::open(case, setting)?;
    database.fill(case.inputs.iter())?;
    let folder = ScratchFolder::make(&format!("{} {setting:?}", case.id))?;
    let statements: Vec<String> =
        case.statements.iter().map(|statement| folder.resolve(statement)).collect();
    let outcome = database.run_statements(&statements);
    if let (CaseOutcome::Table(_), Some(last)) = (&outcome, statements.last()) {
        let checks = case.expectation.object_checks.iter();
        for (name, expected) in checks.filter(|(name, _)| tables::CHECKS.contains(&name.as_str())) {
            let resolve = |text: &str| folder.resolve_path(text);
            tables::check(&database.session, last, name, expected, &resolve)?;
        }
    }
    Ok((outcome, Some(database.session)))
}

fn deploy_request(case: &ConformanceCase, setting: Setting) -> Ran {
    let database = CaseDatabase::open(case, setting)?;
    let outcome = deployed_requests(case, &database)?;
    for step in case.steps.iter().skip(1) {
        let after = database.run_statements(std::slice::from_ref(&step.statement));
        check(
            &step.expectation,
            &after,
            &ResultComparison { tolerance: Tolerance::Ulp, choice: Choice::Listed },
        )?;
        objects::check(&step.expectation, &after, Some(&database.session))?;
    }
    Ok((outcome, Some(database.session)))
}

fn deployed_requests(
    case: &ConformanceCase,
    database: &CaseDatabase,
) -> Result<CaseOutcome, String> {
    let sql = match case.steps.first() {
        Some(step) => step.statement.as_str(),
        None => only_statement(case)?,
    };
    let options =
        case.long_windows.as_ref().map(|windows| format!("OPTIONS(long_windows='{windows}')"));
    let deploy = format!("DEPLOY {} {} {sql}", case.deployment, options.unwrap_or_default());
    if let Err(diagnostic) = database.session.execute(&deploy) {
        return Ok(outcome_of(Err(diagnostic), &deploy));
    }
    let mut table = match database.requested_table(&case.deployment) {
        Ok(table) => table,
        Err(outcome) => return Ok(outcome),
    };
    let Some((requests, others)) = case.inputs.split_first() else {
        return database.request_without_table(&case.deployment);
    };
    database.fill(others.iter())?;
    let ResultTable { columns, rows } = request_rows(case, requests, database.setting)?;
    for row in rows {
        let row = to_batch(&columns, &[row]);
        match database.session.request(&case.deployment, std::slice::from_ref(&row)) {
            Ok(output) => table.rows.extend(ResultTable::from(&output).rows),
            Err(diagnostic) => return Ok(outcome_of(Err(diagnostic), sql)),
        }
        database.append(requests, row)?;
    }
    Ok(CaseOutcome::Table(table))
}

/// Parses the statements. OpenMLDB stops after planning without a catalog, so a statement that must
/// fail may fail when it is bound, but not because its tables do not exist.
fn parse(case: &ConformanceCase, setting: Setting) -> CaseOutcome {
    let mut last = CaseOutcome::Table(ResultTable::default());
    for sql in &case.statements {
        last = match lockstep_sql::parse(sql) {
            Err(diagnostic) => outcome_of(Err(diagnostic), sql),
            Ok(_) if case.expectation.is_success => CaseOutcome::Table(ResultTable::default()),
            Ok(_) => bind_without_tables(case, sql, setting),
        };
    }
    last
}

/// Binds a statement over substitutes for its tables, whose columns are all words of the text.
fn bind_without_tables(case: &ConformanceCase, sql: &str, setting: Setting) -> CaseOutcome {
    /// Errors about the substitutes, not about the statement.
    const ABOUT_TABLES: &[&str] = &[
        code::UNDEFINED_TABLE,
        code::UNDEFINED_DATABASE,
        code::UNDEFINED_COLUMN,
        code::AMBIGUOUS_COLUMN,
        code::DATATYPE_MISMATCH,
        code::DUPLICATE_TABLE,
    ];
    let Ok(database) = CaseDatabase::open(case, setting) else {
        return CaseOutcome::Table(ResultTable::default());
    };
    let mut words: Vec<&str> = sql
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
        .collect();
    words.sort_unstable();
    words.dedup();
    let columns: Vec<String> = words.iter().map(|word| format!("`{word}` BIGINT")).collect();
    let columns = columns.join(", ");
    loop {
        let explained = database.session.execute(&format!("EXPLAIN {sql}"));
        let Err(error) = explained else { return CaseOutcome::Table(ResultTable::default()) };
        if !ABOUT_TABLES.contains(&error.code) {
            return outcome_of(Err(error), sql);
        }
        let missing = words.iter().find(|word| error.message.contains(&format!("`{word}`")));
        let made = (error.code == code::UNDEFINED_TABLE)
            .then_some(missing)
            .flatten()
            .map(|name| database.session.execute(&format!("CREATE TABLE `{name}` ({columns})")));
        if !matches!(made, Some(Ok(_))) {
            return CaseOutcome::Table(ResultTable::default());
        }
    }
}

fn only_statement(case: &ConformanceCase) -> Result<&str, String> {
    match case.statements.as_slice() {
        [statement] => Ok(statement),
        statements => Err(format!("{} statements where one is requested", statements.len())),
    }
}

/// Returns the request rows. If a case has statements that create and fill the table, these run in
/// another database and give the rows.
fn request_rows(
    case: &ConformanceCase,
    requests: &CaseInput,
    setting: Setting,
) -> Result<ResultTable, String> {
    if requests.inserts.is_empty() {
        let columns = requests.columns.clone();
        return Ok(ResultTable { columns, rows: requests.repeated_rows() });
    }
    let elsewhere = CaseDatabase::open(case, setting)?;
    elsewhere.fill(std::iter::once(requests))?;
    let select = format!("SELECT * FROM {}", requests.qualified_name());
    let stored = elsewhere.session.execute(&select);
    stored.map(|output| ResultTable::from(&output)).map_err(|error| error.render(Some(&select)))
}

/// Returns the input whose rows are the requests: the leftmost table of the query.
fn request_input<'a>(case: &'a ConformanceCase, sql: &str) -> Option<&'a CaseInput> {
    let script = lockstep_sql::parse(sql).ok()?;
    let Statement::Query(query) = &script.first()?.statement else { return None };
    let name = leftmost_of_query(query)?;
    let database = name.database.as_ref().map_or(&case.database, |database| &database.text);
    let is_named = |input: &&CaseInput| {
        input.name == name.name.text
            && input.database.as_ref().unwrap_or(&case.database) == database
    };
    case.inputs.iter().find(is_named)
}

fn leftmost_of_query(query: &Query) -> Option<&ObjectName> {
    let mut set = &query.body;
    let select = loop {
        match set {
            SetExpr::Select(select) => break select,
            SetExpr::Union { sources, .. } => set = sources.first()?,
            SetExpr::Query(query) => return leftmost_of_query(query),
        }
    };
    let mut table = select.from.as_ref()?;
    loop {
        match table {
            TableRef::Join(join) => table = &join.left,
            TableRef::Renamed { table: renamed, .. } => table = renamed,
            TableRef::Subquery { query, .. } => return leftmost_of_query(query),
            TableRef::Files { .. } => return None,
            TableRef::Table { name, .. } => {
                let common = query.with.iter().find(|common| common.name.text == name.name.text);
                return match common {
                    Some(common) if name.database.is_none() => leftmost_of_query(&common.query),
                    _ => Some(name),
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lockstep_sql::ast::Statement;

    use super::leftmost_of_query;

    fn check(sql: &str, expected: Option<&str>) {
        let script = lockstep_sql::parse(sql).unwrap();
        let Statement::Query(query) = &script[0].statement else { panic!("{sql} is not a query") };
        assert_eq!(leftmost_of_query(query).map(|name| name.name.text.as_str()), expected, "{sql}");
    }

    #[test]
    fn a_limit_that_chooses_freely_is_taken_off() {
        let check = |sql: &str, expected: Option<&str>| {
            assert_eq!(super::without_limit(sql).as_deref(), expected, "{sql}");
        };
        check("SELECT a FROM t LIMIT 2;", Some("SELECT a FROM t ;"));
        check(
            "SELECT a FROM t limit 2 INTO OUTFILE 'x'",
            Some("SELECT a FROM t  INTO OUTFILE 'x'"),
        );
        check("SELECT a FROM t LIMIT 0", None);
        check("SELECT a FROM t ORDER BY a LIMIT 2", None);
        check("SELECT a FROM t", None);
    }

    #[test]
    fn the_leftmost_table_plays_the_request_row() {
        check("SELECT 1", None);
        check("SELECT * FROM a LAST JOIN b ON a.x = b.x", Some("a"));
        check("SELECT * FROM (SELECT x FROM a) LAST JOIN b ON a.x = b.x", Some("a"));
        check("WITH q AS (SELECT * FROM a) SELECT * FROM q", Some("a"));
        check("SELECT x FROM a UNION ALL SELECT x FROM b", Some("a"));
    }
}
