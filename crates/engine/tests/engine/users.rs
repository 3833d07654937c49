//! Logging in with passwords, SCRAM and tokens; the list of sessions and KILL; the limits of a call; the
//! audit record, slow requests and the other system tables.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use lockstep_engine::{CallOptions, ClientInfo, Database, Proof, QueryContext, Session, code};
use lockstep_host::{Clock, ManualClock, sync::Mutex};

fn login(database: &Database, user: &str, proof: Proof<'_>) -> Option<Session> {
    match database.authenticate(user, proof, ClientInfo::default()) {
        Ok(session) => Some(session),
        Err(error) => {
            assert_eq!(error.code, code::INVALID_PASSWORD);
            assert_eq!(error.message, "authentication failed");
            None
        }
    }
}

fn text(session: &Session, sql: &str) -> String {
    let output = session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let columns = output.batches.iter().flat_map(|batch| batch.columns().to_vec());
    columns.map(|column| format!("{column:?}")).collect()
}

fn first_text(session: &Session, sql: &str) -> String {
    let output = session.execute(sql).unwrap();
    let column = Arc::clone(output.batches[0].column(0));
    let texts = column.as_any().downcast_ref::<arrow::array::StringArray>().unwrap();
    texts.value(0).to_owned()
}

#[test]
fn only_the_password_of_a_user_opens_a_session() {
    let database = Database::in_memory();
    let root = database.session();
    root.execute("CREATE USER ann OPTIONS(password='x'); CREATE USER none; CREATE ROLE r").unwrap();
    assert_eq!(login(&database, "ann", Proof::Password("x")).unwrap().user(), "ann");
    for (user, password) in
        [("ann", "y"), ("ann", ""), ("bob", "x"), ("none", ""), ("root", ""), ("r", ""), ("", "")]
    {
        assert!(login(&database, user, Proof::Password(password)).is_none(), "{user}");
    }
    root.execute("ALTER USER ann SET OPTIONS(password='z')").unwrap();
    assert!(login(&database, "ann", Proof::Password("x")).is_none());
    let ann = login(&database, "ann", Proof::Password("z")).unwrap();
    ann.execute("ALTER USER ann SET OPTIONS(password='own')").unwrap();
    assert!(login(&database, "ann", Proof::Password("own")).is_some());
}

#[test]
fn a_scram_exchange_tells_nothing_about_who_exists() {
    let database = Database::in_memory();
    database.session().execute("CREATE USER ann OPTIONS(password='x')").unwrap();
    let (ann, bob) = (database.scram_verifier("ann"), database.scram_verifier("bob"));
    assert_eq!(ann.iterations(), bob.iterations());
    assert_eq!(ann.salt().len(), bob.salt().len());
    assert_eq!(bob.salt(), database.scram_verifier("bob").salt());
    assert_ne!(bob.salt(), database.scram_verifier("carl").salt());
    assert_ne!(ann.server_signature(b"m"), bob.server_signature(b"m"));
    for (user, verifier) in [("ann", &ann), ("bob", &bob)] {
        for client_proof in [&[0; 32][..], &[], &[7; 31]] {
            let proof = Proof::Scram { verifier, auth_message: b"m", client_proof };
            assert!(login(&database, user, proof).is_none(), "{user}");
        }
    }
    assert_eq!(format!("{ann:?}"), "ScramVerifier");
}

#[test]
fn a_token_opens_sessions_until_it_expires_or_is_dropped() {
    let clock = Arc::new(ManualClock::new(1_000_000));
    let database = Database::with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    let root = database.session();
    root.execute("CREATE USER ann OPTIONS(password='x'); CREATE USER bob").unwrap();
    let token = first_text(&root, "CREATE TOKEN ci FOR ann OPTIONS(expires_in='1h')");
    assert!(token.starts_with("lockstep_") && token.len() > 50, "{token}");
    let session = database.authenticate_token(&token, ClientInfo::default()).unwrap();
    assert_eq!(session.user(), "ann");
    assert!(login(&database, "ann", Proof::Token(&token)).is_some());
    assert!(login(&database, "bob", Proof::Token(&token)).is_none());
    assert!(login(&database, "ann", Proof::Token(&token[..50])).is_none());
    assert!(login(&database, "ann", Proof::Token("")).is_none());
    for refused in ["CREATE TOKEN more", "ALTER USER ann SET OPTIONS(password='y')"] {
        let error = session.execute(refused).unwrap_err();
        assert_eq!(error.code, code::INSUFFICIENT_PRIVILEGE, "a token cannot outlive itself");
    }
    clock.set_ms(1_000_000 + 3_600_000);
    assert_eq!(session.execute("SELECT 1").unwrap_err().code, code::INVALID_AUTHORIZATION);
    assert!(database.authenticate_token(&token, ClientInfo::default()).is_err());
    let forever = first_text(&root, "CREATE TOKEN forever FOR ann OPTIONS(expires_in='never')");
    let session = database.authenticate_token(&forever, ClientInfo::default()).unwrap();
    session.execute("SELECT 1").unwrap();
    assert!(!text(&root, "SHOW TOKENS FOR ann").contains(&forever));
    root.execute("DROP TOKEN forever FOR ann").unwrap();
    assert_eq!(session.execute("SELECT 1").unwrap_err().code, code::INVALID_AUTHORIZATION);
    for (wrong, code) in [
        ("CREATE TOKEN ci FOR ann", code::DUPLICATE_OBJECT),
        ("CREATE TOKEN x FOR carl", code::UNDEFINED_OBJECT),
        ("CREATE TOKEN x FOR ann OPTIONS(expires_in='0')", code::INVALID_PARAMETER),
        ("CREATE TOKEN x FOR ann OPTIONS(until='1h')", code::INVALID_PARAMETER),
        ("DROP TOKEN x FOR ann", code::UNDEFINED_OBJECT),
    ] {
        assert_eq!(root.execute(wrong).unwrap_err().code, code, "{wrong}");
    }
    root.execute("DROP TOKEN IF EXISTS x FOR ann").unwrap();
}

#[test]
fn users_roles_and_tokens_are_there_after_a_restart() {
    let folder = std::env::temp_dir().join(format!("lockstep-users-{}", std::process::id()));
    drop(std::fs::remove_dir_all(&folder));
    let shows = ["SHOW USERS", "SHOW ROLES", "SHOW GRANTS FOR ann", "SHOW TOKENS FOR ann"];
    let (token, salt, before) = {
        let database = Database::open(&folder).unwrap();
        let root = database.session();
        root.execute(
            "CREATE USER ann OPTIONS(password='x'); CREATE ROLE r; CREATE ROLE gone; GRANT r TO ann;
             GRANT gone TO ann; GRANT EXECUTE ON DEPLOYMENT * TO r; DROP ROLE gone; CREATE ROLE gone",
        )
        .unwrap();
        let token = first_text(&root, "CREATE TOKEN t FOR ann");
        let salt = database.scram_verifier("nobody").salt().to_vec();
        (token, salt, shows.map(|show| text(&root, show)))
    };
    assert!(!before[2].contains("gone"));
    for step in ["log", "checkpoint"] {
        let database = Database::open(&folder).unwrap();
        let root = database.session();
        assert_eq!(shows.map(|show| text(&root, show)), before, "{step}");
        assert_eq!(database.scram_verifier("nobody").salt(), salt);
        assert!(database.authenticate_token(&token, ClientInfo::default()).is_ok());
        assert!(login(&database, "ann", Proof::Password("x")).is_some());
        root.execute("CHECKPOINT").unwrap();
    }
    let files = walk(&folder);
    assert!(!files.is_empty());
    let contains = |bytes: &[u8]| bytes.windows(token.len()).any(|part| part == token.as_bytes());
    assert!(!files.iter().any(|bytes| contains(bytes)), "only the hash of a token is stored");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Reads all files of a folder.
fn walk(folder: &std::path::Path) -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(walk(&path));
        } else {
            files.push(std::fs::read(path).unwrap());
        }
    }
    files
}

/// Makes an engine with users `ann`, who may read `db.t`, and `eve`, who may do nothing.
fn engine() -> Database {
    let database = Database::in_memory();
    let script =
        "CREATE DATABASE db; USE db; CREATE TABLE t (k STRING); CREATE TABLE hidden (k STRING);
        INSERT INTO t VALUES ('a'), ('b'), ('c'); DEPLOY d AS SELECT k FROM t;
        CREATE USER ann OPTIONS(password='x'); CREATE USER eve OPTIONS(password='x');
        GRANT SELECT ON db.t TO ann";
    database.session().execute(script).unwrap();
    database
}

#[test]
fn sessions_are_listed_and_killed() {
    let database = engine();
    let root = database.session();
    let client = ClientInfo { address: Some("10.0.0.1:5".to_owned()), ..ClientInfo::default() };
    let ann = database.authenticate("ann", Proof::Password("x"), client).unwrap();
    let eve = login(&database, "eve", Proof::Password("x")).unwrap();
    let listed = database.sessions();
    assert!(listed.iter().any(|session| session.id == ann.id() && session.user == "ann"));
    assert!(text(&root, "SELECT address FROM lockstep.sessions").contains("10.0.0.1:5"));
    let seen = ann.execute("SELECT id FROM lockstep.sessions").unwrap();
    assert_eq!(seen.row_count(), 1, "its own");
    let running = text(&ann, "SELECT running FROM lockstep.sessions");
    assert!(running.contains("SELECT running FROM"), "{running}");
    let kill = format!("KILL {}", ann.id());
    assert_eq!(eve.execute(&kill).unwrap_err().code, code::INSUFFICIENT_PRIVILEGE);
    root.execute(&format!("KILL QUERY {}", ann.id())).unwrap();
    ann.execute("SELECT 1").unwrap();
    root.execute(&kill).unwrap();
    assert_eq!(ann.execute("SELECT 1").unwrap_err().code, code::SESSION_ENDED);
    assert_eq!(root.execute("KILL 999").unwrap_err().code, code::UNDEFINED_OBJECT);
    let id = eve.id();
    drop(eve);
    assert!(database.sessions().iter().all(|session| session.id != id));
}

#[test]
fn a_running_call_is_cancelled_from_another_thread() {
    let database = engine();
    let root = database.session();
    let ann = login(&database, "ann", Proof::Password("x")).unwrap();
    let id = ann.id();
    // Kills its own query at the first checkpoint, as another connection would.
    let clock = Arc::new(lockstep_host::SystemClock::new());
    let killed = Arc::new(Mutex::new(false));
    let done = Arc::clone(&killed);
    let kill = move || {
        if database.sessions().iter().any(|session| session.id == id && session.running.is_some()) {
            *done.lock() = true;
            // In a context of its own, as on another connection.
            let kill = || root.execute(&format!("KILL QUERY {id}"));
            QueryContext::new().run(kill).unwrap();
        }
        false
    };
    let context = QueryContext::polling(clock, 0, kill);
    let script = "SELECT k FROM db.t";
    let outcome = context.run(|| {
        for _ in 0..1_000 {
            if let Err(error) = ann.execute(script) {
                return Some(error.code);
            }
        }
        None
    });
    assert!(*killed.lock());
    assert_eq!(outcome, Some(code::QUERY_CANCELED));
}

#[test]
fn a_call_has_limits_of_rows_time_and_memory() {
    let database = engine();
    let ann = login(&database, "ann", Proof::Password("x")).unwrap();
    let rows = |most: u64, sql: &str| {
        let call = CallOptions { rows_max: Some(most), ..CallOptions::default() };
        call.run(&ann, || ann.execute(sql)).map(|output| output.row_count())
    };
    let all = "SELECT k FROM db.t ORDER BY k";
    assert_eq!(rows(3, all).unwrap(), 3);
    assert_eq!(rows(2, all).unwrap_err().code, code::VALUE_TOO_LARGE);
    assert_eq!(rows(2, "SELECT k FROM db.t LIMIT 2").unwrap(), 2);
    assert_eq!(rows(0, all).unwrap_err().code, code::VALUE_TOO_LARGE);
    let late = CallOptions { timeout_ms: Some(0), ..CallOptions::default() };
    assert_eq!(late.run(&ann, || ann.execute(all)).unwrap_err().code, code::QUERY_CANCELED);
    database.set_query_memory(Some(1_000));
    let small = CallOptions { memory_bytes: Some(600), ..CallOptions::default() };
    let nested = small.run(&ann, || Ok(small.run(&ann, || Ok(())).unwrap_err().code)).unwrap();
    assert_eq!(nested, code::OUT_OF_MEMORY);
    small.run(&ann, || Ok(())).unwrap();
    assert!(text(&ann, "SELECT query_bytes_reserved FROM lockstep.memory").contains('0'));
}

#[test]
fn the_audit_record_says_who_did_what_and_no_values() {
    let database = engine();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&heard);
    database.set_audit_listener(Some(Arc::new(move |event| sink.lock().push(event.clone()))));
    assert!(login(&database, "ann", Proof::Password("wrong")).is_none());
    let ann = login(&database, "ann", Proof::Password("x")).unwrap();
    let call = CallOptions { request_id: Some("r-1".to_owned()), ..CallOptions::default() };
    call.run(&ann, || ann.execute("SELECT k FROM db.t WHERE k = 'secret'")).unwrap();
    ann.execute("INSERT INTO db.t VALUES ('secret')").unwrap_err();
    ann.request("db.d", &[]).unwrap_err();
    ann.execute("ALTER USER ann SET OPTIONS(password='secret')").unwrap();
    let events = database.audit_events();
    assert_eq!(*heard.lock(), events);
    let short: Vec<String> = events
        .iter()
        .map(|event| {
            let objects = event.objects.join(",");
            format!("{} {} {objects} {}", event.user, event.action, event.outcome)
        })
        .collect();
    assert_eq!(
        short,
        [
            "ann LOGIN  28P01",
            "ann LOGIN  00000",
            "ann SELECT db.t 00000",
            "ann INSERT db.t 42501",
            "ann REQUEST DEPLOYMENT db.d 42501",
            "ann ALTER USER  00000",
        ]
    );
    assert_eq!(events[2].request_id.as_deref(), Some("r-1"));
    assert!(!format!("{events:?}").contains("secret"));
    let eve = login(&database, "eve", Proof::Password("x")).unwrap();
    let own = eve.execute("SELECT * FROM lockstep.audit WHERE user_name <> 'eve'").unwrap();
    assert_eq!(own.row_count(), 0);
}

/// A clock that moves by ten milliseconds whenever a duration is measured.
#[derive(Debug, Default)]
struct TickingClock(AtomicU64);

impl Clock for TickingClock {
    fn now_ms(&self) -> i64 {
        1_000
    }

    fn monotonic_ns(&self) -> u64 {
        // Relaxed: one thread reads it.
        self.0.fetch_add(10_000_000, Ordering::Relaxed)
    }
}

#[test]
fn slow_requests_are_recorded_with_their_plan() {
    let database = Database::with_clock(Arc::new(TickingClock::default()));
    let root = database.session();
    root.execute("CREATE TABLE t (k STRING); SELECT k FROM t").unwrap();
    root.execute("SET GLOBAL slow_request_ms = 3600000; SELECT k FROM t").unwrap();
    assert!(database.slow_requests().is_empty());
    root.execute("SET GLOBAL slow_request_ms = 5; SELECT k FROM t").unwrap();
    root.execute("CREATE USER ann OPTIONS(password='hush')").unwrap();
    let slow = database.slow_requests();
    let found = slow.iter().find(|slow| slow.text == "SELECT k FROM t").unwrap();
    assert!(found.elapsed_ns >= 5_000_000);
    assert!(found.plan.as_ref().unwrap().contains("TableScan"), "{:?}", found.plan);
    assert!(!format!("{slow:?}").contains("hush"));
    assert!(text(&root, "SELECT statement FROM lockstep.slow_requests").contains("SELECT k"));
}

#[test]
fn system_tables_show_each_user_what_it_may_see() {
    let database = engine();
    let (root, ann) = (database.session(), login(&database, "ann", Proof::Password("x")).unwrap());
    let tables = [
        ("audit", 0, 1),
        ("deployments", 1, 0),
        ("indexes", 0, 0),
        ("jobs", 0, 0),
        ("memory", 1, 1),
        ("page_cache", 1, 1),
        ("pre_aggregates", 0, 0),
        ("sessions", 2, 1),
        ("sinks", 0, 0),
        ("slow_requests", 0, 0),
        ("sources", 0, 0),
        ("storage", 2, 1),
        ("streams", 0, 0),
        ("tables", 2, 1),
        ("users", 3, 1),
        ("views", 0, 0),
    ];
    for (table, of_root, of_ann) in tables {
        let sql = format!("SELECT * FROM lockstep.{table}");
        let count = |session: &Session| session.execute(&sql).unwrap().row_count();
        assert!(count(&root) >= of_root, "{table}");
        if table == "audit" {
            assert!(count(&ann) >= of_ann, "{table}");
        } else {
            assert_eq!(count(&ann), of_ann, "{table}");
        }
        assert!(ann.execute(&format!("DESC lockstep.{table}")).unwrap().row_count() > 1);
    }
    ann.execute("USE lockstep").unwrap();
    assert_eq!(ann.execute("SHOW TABLES").unwrap().row_count(), tables.len() + 1);
    assert!(text(&ann, "SELECT value FROM settings WHERE name = 'durability'").contains("none"));
    let joined = "SELECT s.id, u.name FROM lockstep.sessions s JOIN lockstep.users u \
                  ON s.user_name = u.name";
    assert!(root.execute(joined).unwrap().row_count() >= 2);
    root.execute("SET @@execute_mode = 'offline'").unwrap();
    assert!(root.execute("SELECT * FROM lockstep.users").unwrap().row_count() >= 3);
    root.execute("SET @@execute_mode = 'online'").unwrap();
}

#[test]
fn no_statement_changes_a_system_table() {
    let database = engine();
    let root = database.session();
    for (statement, code) in [
        ("INSERT INTO lockstep.users VALUES ('x')", code::INSUFFICIENT_PRIVILEGE),
        ("DELETE FROM lockstep.users WHERE name = 'ann'", code::INSUFFICIENT_PRIVILEGE),
        ("TRUNCATE TABLE lockstep.audit", code::INSUFFICIENT_PRIVILEGE),
        ("DROP TABLE lockstep.audit", code::UNDEFINED_DATABASE),
        ("CREATE INDEX i ON lockstep.audit (action)", code::INSUFFICIENT_PRIVILEGE),
        ("DEPLOY x AS SELECT name FROM lockstep.users", code::INSUFFICIENT_PRIVILEGE),
        ("CREATE DATABASE lockstep", code::DUPLICATE_DATABASE),
        ("DROP DATABASE lockstep", code::UNDEFINED_DATABASE),
        ("CREATE TABLE lockstep.x (k STRING)", code::UNDEFINED_DATABASE),
        ("SELECT * FROM lockstep.nothing", code::UNDEFINED_TABLE),
    ] {
        assert_eq!(root.execute(statement).unwrap_err().code, code, "{statement}");
    }
    assert!(root.appender("lockstep.users").is_err());
    assert!(root.append("lockstep.users", &[]).is_err());
    let request = root.prepare_request("SELECT name FROM lockstep.users").unwrap_err();
    assert_eq!(request.code, code::INSUFFICIENT_PRIVILEGE);
}
