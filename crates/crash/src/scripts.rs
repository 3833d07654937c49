//! Makes every table and every deployment again from what SHOW CREATE TABLE and SHOW DEPLOYMENT say,
//! in a database in memory, and compares what is shown of both.

use lockstep_engine::{Database, Session};
use lockstep_row::Value;
use lockstep_testkit::rows::of_output;

use crate::difference::{Violation, ViolationKind};

/// Checks that the statements that are shown make the same objects.
pub fn check(database: &Database) -> Vec<Violation> {
    let (session, again) = (database.session(), Database::in_memory().session());
    let mut violations = Vec::new();
    let databases = column(&session, "SHOW DATABASES", 0);
    for name in &databases {
        // The database `default` is there.
        drop(again.execute(&format!("CREATE DATABASE IF NOT EXISTS `{name}`")));
        for session in [&session, &again] {
            session.execute(&format!("USE `{name}`")).expect("it is listed");
        }
        for table in column(&session, "SHOW TABLES", 0) {
            let show = format!("SHOW CREATE TABLE `{table}`");
            let script = column(&session, &show, 1).concat();
            violations.extend(difference(&session, &again, &show, &script));
        }
    }
    for name in &databases {
        for session in [&session, &again] {
            session.execute(&format!("USE `{name}`")).expect("it is listed");
        }
        // None of the workload reads another one.
        for view in column(&session, "SHOW VIEWS", 0) {
            let show = format!("SHOW CREATE VIEW `{view}`");
            let script = column(&session, &show, 1).concat();
            violations.extend(difference(&session, &again, &show, &script));
        }
    }
    for name in &databases {
        session.execute(&format!("USE `{name}`")).expect("it is listed");
        for deployment in column(&session, "SHOW DEPLOYMENTS", 1) {
            let show = format!("SHOW DEPLOYMENT `{name}`.`{deployment}`");
            let script = column(&session, &show, SCRIPT).concat();
            violations.extend(difference(&session, &again, &show, &script));
        }
    }
    violations
}

/// The column of SHOW DEPLOYMENT with the script.
const SCRIPT: usize = 9;

/// Runs a script, and compares what both sessions show then.
fn difference(session: &Session, again: &Session, show: &str, script: &str) -> Option<Violation> {
    assert!(!script.is_empty(), "{show} gives a script");
    let what = match again.execute(script) {
        Err(error) => format!("{show}: {script}: {}", error.message),
        Ok(_) => {
            let shown =
                [session, again].map(|session| session.execute(show).map(|o| of_output(&o)));
            if shown[0].is_ok() && shown[0] == shown[1] {
                return None;
            }
            format!("{show}: {shown:?}")
        }
    };
    Some(Violation::new(ViolationKind::Object, what))
}

/// Returns a column of texts.
fn column(session: &Session, sql: &str, column: usize) -> Vec<String> {
    let rows = session.execute(sql).map(|output| of_output(&output)).unwrap_or_default();
    let text = |row: &Vec<Value>| match row.get(column) {
        Some(Value::String(text)) => text.to_string(),
        other => panic!("{sql} gives {other:?} for a text"),
    };
    rows.iter().map(text).collect()
}
