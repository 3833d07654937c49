//! What a user is told who is refused, word for word.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use lockstep_engine::{CallOptions, ClientInfo, Database, Proof, Session};

fn engine() -> (Database, Session) {
    let database = Database::in_memory();
    let root = database.session();
    root.execute(
        "CREATE TABLE t (k STRING); INSERT INTO t VALUES ('a'), ('b');
         CREATE USER ann OPTIONS(password='x'); CREATE USER bob OPTIONS(password='x')",
    )
    .unwrap();
    (database, root)
}

fn login(database: &Database, user: &str) -> Session {
    database.authenticate(user, Proof::Password("x"), ClientInfo::default()).unwrap()
}

/// Runs a statement that is refused.
fn refused(session: &Session, sql: &str) -> String {
    session.execute(sql).unwrap_err().message
}

#[test]
fn what_a_user_lacks_is_named() {
    let (database, root) = engine();
    let ann = login(&database, "ann");
    let lacks = "permission denied for default.t";
    assert_eq!(refused(&ann, "SELECT k FROM t"), lacks);
    root.execute("GRANT SELECT ON t TO ann").unwrap();
    let may_not = "permission denied to grant or revoke SELECT on default.t";
    assert_eq!(refused(&ann, "GRANT SELECT ON t TO bob"), may_not);
    let file = "permission denied to access this file on the server";
    root.execute("GRANT INSERT ON t TO ann").unwrap();
    assert_eq!(refused(&ann, "LOAD DATA INFILE '/etc/passwd' INTO TABLE t"), file);
    let temporary = "permission denied to write temporary files in this directory";
    assert_eq!(refused(&ann, "SET temp_directory = '/etc'"), temporary);
}

#[test]
fn an_object_whose_owner_may_not_read_names_both() {
    let (database, root) = engine();
    let ann = login(&database, "ann");
    root.execute("GRANT SELECT ON t TO ann; GRANT CREATE ON *.* TO ann").unwrap();
    ann.execute("CREATE VIEW v AS SELECT k FROM t").unwrap();
    root.execute("REVOKE SELECT ON t FROM ann").unwrap();
    let message = "permission denied for view `default.v`: owner `ann` lacks privileges on the \
                   objects that it reads";
    assert_eq!(refused(&root, "SELECT k FROM v"), message);
}

#[test]
fn the_end_of_a_session_says_why() {
    let (database, root) = engine();
    let (ann, bob) = (login(&database, "ann"), login(&database, "bob"));
    root.execute(&format!("KILL {}", ann.id())).unwrap();
    assert_eq!(refused(&ann, "SELECT 1"), "session terminated by KILL");
    root.execute("DROP USER bob").unwrap();
    assert_eq!(refused(&bob, "SELECT 1"), "user `bob` was dropped");
    let ann = login(&database, "ann");
    ann.check_password().unwrap();
    root.execute("ALTER USER ann SET OPTIONS(password='y')").unwrap();
    let message = "the password of user `ann` was changed";
    assert_eq!(ann.check_password().unwrap_err().message, message);
}

#[test]
fn tokens_are_named_once_and_are_gone_when_dropped() {
    let (database, root) = engine();
    let made = root.execute("CREATE TOKEN ci FOR ann").unwrap();
    let text = arrow::util::display::array_value_to_string(made.batches[0].column(0), 0).unwrap();
    let session = database.authenticate_token(&text, ClientInfo::default()).unwrap();
    let twice = "user `ann` already has a token `ci`";
    assert_eq!(refused(&root, "CREATE TOKEN ci FOR ann"), twice);
    root.execute("DROP TOKEN ci FOR ann").unwrap();
    let gone = "the token of user `ann` was dropped or has expired";
    assert_eq!(refused(&session, "SELECT 1"), gone);
    let refused_at = (0..10_000).find_map(|number| {
        let made = root.execute(&format!("CREATE TOKEN t{number} FOR ann"));
        made.err().map(|error| (number, error.message))
    });
    let (most, message) = refused_at.expect("a user has only so many tokens");
    assert_eq!(message, format!("user `ann` already has {most} tokens"));
}

#[test]
fn the_limits_of_a_call_say_how_much_is_too_much() {
    let (database, root) = engine();
    let call = CallOptions { rows_max: Some(1), ..CallOptions::default() };
    let error = call.run(&root, || root.execute("SELECT k FROM t")).unwrap_err();
    assert_eq!(error.message, "result exceeds the limit of 1 rows");
    database.set_query_memory(Some(10));
    let call = CallOptions { memory_bytes: Some(11), ..CallOptions::default() };
    let error = call.run(&root, || root.execute("SELECT k FROM t")).unwrap_err();
    let message = "cannot reserve 11 bytes of query memory";
    assert_eq!(error.message, message);
}
