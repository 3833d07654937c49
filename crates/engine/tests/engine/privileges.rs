//! Every pair of something that a user does and a grant, both ways: with the grant it is done, without
//! it is refused with 42501. And what GRANT, REVOKE and roles change of open sessions.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;

use arrow::{
    array::{RecordBatch, StringArray},
    datatypes::{DataType as ArrowType, Field, Schema},
};
use lockstep_engine::{
    ClientInfo, Database, Proof, Result, Session, SubscriptionStart, TrainingSetOptions, code,
};

/// What a user does, and the grants each of which is enough. An empty list: nobody needs a grant; the
/// words `AND` join grants that are all needed.
struct Deed {
    text: &'static str,
    run: fn(&Session, &str) -> Result<()>,
    enough: &'static [&'static str],
}

/// Grants that are tried with every deed.
const GRANTS: &[&str] = &[
    "SELECT ON db.t",
    "SELECT ON db.u",
    "SELECT ON db.v",
    "SELECT ON db.*",
    "SELECT ON *.*",
    "SELECT ON other.*",
    "INSERT ON db.t",
    "INSERT ON db.*",
    "INSERT ON *.*",
    "DELETE ON db.t",
    "DELETE ON db.*",
    "CREATE ON db.*",
    "CREATE ON db.t",
    "CREATE ON *.*",
    "DROP ON db.t",
    "DROP ON db.*",
    "ALTER ON db.t",
    "INDEX ON db.t",
    "TRUNCATE ON db.t",
    "DEPLOY ON db.*",
    "DDL ON db.t",
    "DDL ON db.*",
    "DDL ON *.*",
    "ALL ON db.t",
    "ALL ON db.*",
    "ALL ON *.*",
    "ALL ON other.*",
    "EXECUTE ON db.*",
    "EXECUTE ON *.*",
    "EXECUTE ON DEPLOYMENT *",
    "EXECUTE ON DEPLOYMENT db.*",
    "EXECUTE ON DEPLOYMENT db.d",
    "EXECUTE ON DEPLOYMENT db.e",
    "EXECUTE ON DEPLOYMENT other.*",
    "DROP ON DEPLOYMENT db.d",
    "ALL ON DEPLOYMENT db.d",
    "CREATE USER ON *.*",
    "ALTER USER ON *.*",
    "DROP USER ON *.*",
    "ADMIN ON db.*",
    "ADMIN ON *.*",
];

const SELECT: &[&str] = &[
    "SELECT ON db.t",
    "SELECT ON db.*",
    "SELECT ON *.*",
    "ALL ON db.t",
    "ALL ON db.*",
    "ALL ON *.*",
];
const SELECT_OF_VIEW: &[&str] =
    &["SELECT ON db.v", "SELECT ON db.*", "SELECT ON *.*", "ALL ON db.*", "ALL ON *.*"];
const INSERT: &[&str] = &[
    "INSERT ON db.t",
    "INSERT ON db.*",
    "INSERT ON *.*",
    "ALL ON db.t",
    "ALL ON db.*",
    "ALL ON *.*",
];
const ALL_OF_TABLE: [&str; 3] = ["ALL ON db.t", "ALL ON db.*", "ALL ON *.*"];
const DDL_OF_TABLE: [&str; 6] =
    ["DDL ON db.t", "DDL ON db.*", "DDL ON *.*", ALL_OF_TABLE[0], ALL_OF_TABLE[1], ALL_OF_TABLE[2]];
const EXECUTE: &[&str] = &[
    "EXECUTE ON db.*",
    "EXECUTE ON *.*",
    "EXECUTE ON DEPLOYMENT *",
    "EXECUTE ON DEPLOYMENT db.*",
    "EXECUTE ON DEPLOYMENT db.d",
    "ALL ON DEPLOYMENT db.d",
    "ALL ON db.*",
    "ALL ON *.*",
];
const ADMIN: &[&str] = &["ADMIN ON *.*"];

fn sql(session: &Session, text: &str) -> Result<()> {
    session.execute(text).map(drop)
}

fn row() -> RecordBatch {
    let schema = Schema::new(vec![Field::new("k", ArrowType::Utf8, true)]);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(StringArray::from(vec!["a"]))]).unwrap()
}

const fn plus<const N: usize, const M: usize>(
    one: &'static str,
    others: [&'static str; N],
) -> [&'static str; M] {
    let mut all = [one; M];
    let mut at = 0;
    while at < N {
        all[at + 1] = others[at];
        at += 1;
    }
    all
}

const INDEX: [&str; 7] = plus("INDEX ON db.t", DDL_OF_TABLE);
const ALTER: [&str; 7] = plus("ALTER ON db.t", DDL_OF_TABLE);
const TRUNCATE: [&str; 7] = plus("TRUNCATE ON db.t", DDL_OF_TABLE);

const DEEDS: &[Deed] = &[
    Deed { text: "SELECT * FROM db.t", run: sql, enough: SELECT },
    Deed { text: "SELECT 1", run: sql, enough: &[] },
    Deed { text: "EXPLAIN SELECT k FROM db.t", run: sql, enough: SELECT },
    Deed {
        text: "WITH c AS (SELECT k FROM db.t) SELECT 1 AS one FROM c",
        run: sql,
        enough: SELECT,
    },
    Deed {
        text: "SELECT a.k FROM db.t a LAST JOIN db.u b ON a.k = b.k",
        run: sql,
        enough: &["SELECT ON db.*", "SELECT ON *.*", "ALL ON db.*", "ALL ON *.*"],
    },
    Deed {
        text: "SELECT * FROM db.t",
        run: |session, text| session.query(text)?.collect(None).map(drop),
        enough: SELECT,
    },
    Deed {
        text: "SELECT k FROM db.t",
        run: |session, text| session.request(text, &[row()]).map(drop),
        enough: SELECT,
    },
    Deed {
        text: "SELECT k FROM db.t",
        run: |session, text| session.prepare_request(text).map(drop),
        enough: SELECT,
    },
    Deed { text: "db.t", run: |session, text| session.arrivals_of(text), enough: SELECT },
    Deed {
        text: "db.t",
        run: |session, text| session.subscribe(text, SubscriptionStart::Latest).map(drop),
        enough: SELECT,
    },
    Deed { text: "INSERT INTO db.t VALUES ('b')", run: sql, enough: INSERT },
    Deed {
        text: "db.t",
        run: |session, text| session.append(text, &[row()]).map(drop),
        enough: INSERT,
    },
    Deed {
        text: "db.t",
        run: |session, text| {
            session.appender(text)?.append([[lockstep_row::Datum::String("c")]]).map(drop)
        },
        enough: INSERT,
    },
    Deed {
        text: "DELETE FROM db.t WHERE k = 'a'",
        run: sql,
        enough: &["DELETE ON db.t", "DELETE ON db.*", "ALL ON db.t", "ALL ON db.*", "ALL ON *.*"],
    },
    Deed { text: "TRUNCATE TABLE db.t", run: sql, enough: &TRUNCATE },
    Deed { text: "ALTER TABLE db.t DROP OFFLINE_PATH 'x'", run: sql, enough: &ALTER },
    Deed { text: "CREATE INDEX i ON db.t (k)", run: sql, enough: &INDEX },
    Deed {
        text: "CREATE TABLE db.new (k STRING)",
        run: sql,
        enough: &[
            "CREATE ON db.*",
            "CREATE ON *.*",
            "DDL ON db.*",
            "DDL ON *.*",
            "ALL ON db.*",
            "ALL ON *.*",
        ],
    },
    Deed {
        text: "DROP TABLE db.u",
        run: sql,
        enough: &["DROP ON db.*", "DDL ON db.*", "DDL ON *.*", "ALL ON db.*", "ALL ON *.*"],
    },
    // Who may read a view needs nothing on the table that it reads, and the other way around.
    Deed { text: "SELECT * FROM db.v", run: sql, enough: SELECT_OF_VIEW },
    Deed {
        text: "SELECT k FROM db.v",
        run: |session, text| session.query(text)?.collect(None).map(drop),
        enough: SELECT_OF_VIEW,
    },
    Deed {
        text: "SELECT k FROM db.v",
        run: |session, text| {
            let arena = lockstep_row::Arena::new();
            let request = session.prepare_request(text)?;
            request.answer(&[lockstep_row::Datum::String("a")], &arena).map(drop)
        },
        enough: SELECT_OF_VIEW,
    },
    Deed {
        text: "SELECT k FROM db.v WHERE k IN (SELECT k FROM db.u)",
        run: sql,
        enough: &["SELECT ON db.*", "SELECT ON *.*", "ALL ON db.*", "ALL ON *.*"],
    },
    Deed {
        text: "CREATE VIEW db.new AS SELECT 1 AS one",
        run: sql,
        enough: &[
            "CREATE ON db.*",
            "CREATE ON *.*",
            "DDL ON db.*",
            "DDL ON *.*",
            "ALL ON db.*",
            "ALL ON *.*",
        ],
    },
    Deed {
        text: "CREATE VIEW db.new AS SELECT k FROM db.t",
        run: sql,
        enough: &["ALL ON db.*", "ALL ON *.*"],
    },
    Deed {
        text: "CREATE OR REPLACE VIEW db.v AS SELECT 1 AS one",
        run: sql,
        enough: &["DDL ON db.*", "DDL ON *.*", "ALL ON db.*", "ALL ON *.*"],
    },
    Deed {
        text: "DROP VIEW db.v",
        run: sql,
        enough: &["DROP ON db.*", "DDL ON db.*", "DDL ON *.*", "ALL ON db.*", "ALL ON *.*"],
    },
    Deed { text: "SHOW VIEWS", run: sql, enough: &[] },
    Deed {
        text: "ALTER TABLE db.u ADD COLUMN n INT",
        run: sql,
        enough: &["DDL ON db.*", "DDL ON *.*", "ALL ON db.*", "ALL ON *.*"],
    },
    Deed {
        text: "CREATE DATABASE third",
        run: sql,
        enough: &["CREATE ON *.*", "DDL ON *.*", "ALL ON *.*"],
    },
    Deed {
        text: "db.d",
        run: |session, text| session.request(text, &[row()]).map(drop),
        enough: EXECUTE,
    },
    Deed {
        text: "db.d",
        run: |session, text| session.prepare_request(text).map(drop),
        enough: EXECUTE,
    },
    Deed { text: "CALL db.d('a')", run: sql, enough: EXECUTE },
    Deed {
        text: "db.d",
        run: |session, text| session.verify(text).map(drop),
        enough: &["ALL ON db.*", "ALL ON *.*"],
    },
    Deed {
        text: "VERIFY DEPLOYMENT db.d OPTIONS(sample = 1)",
        run: sql,
        enough: &["ALL ON db.*", "ALL ON *.*"],
    },
    Deed {
        text: "db.d",
        run: |session, text| {
            let options = TrainingSetOptions { as_known: true, ..TrainingSetOptions::default() };
            session.training_set(text, &options)?.collect(None).map(drop)
        },
        enough: &["ALL ON db.*", "ALL ON *.*"],
    },
    Deed { text: "SELECT k FROM db.t AS KNOWN AT ARRIVAL", run: sql, enough: SELECT },
    Deed {
        text: "DROP DEPLOYMENT db.d",
        run: sql,
        enough: &[
            "DROP ON db.*",
            "DDL ON db.*",
            "DDL ON *.*",
            "ALL ON db.*",
            "ALL ON *.*",
            "DROP ON DEPLOYMENT db.d",
            "ALL ON DEPLOYMENT db.d",
        ],
    },
    Deed {
        text: "DEPLOY db.new AS SELECT 1 AS one",
        run: sql,
        enough: &["DEPLOY ON db.*", "DDL ON db.*", "DDL ON *.*", "ALL ON db.*", "ALL ON *.*"],
    },
    // The query needs SELECT as well.
    Deed {
        text: "DEPLOY db.new AS SELECT k FROM db.t",
        run: sql,
        enough: &["ALL ON db.*", "ALL ON *.*"],
    },
    Deed { text: "CREATE USER bob", run: sql, enough: &["CREATE USER ON *.*", "ADMIN ON *.*"] },
    Deed { text: "ALTER USER eve", run: sql, enough: &["ALTER USER ON *.*", "ADMIN ON *.*"] },
    Deed { text: "DROP USER eve", run: sql, enough: &["DROP USER ON *.*", "ADMIN ON *.*"] },
    Deed { text: "ALTER USER root", run: sql, enough: ADMIN },
    Deed { text: "ALTER USER chief", run: sql, enough: ADMIN },
    // Who may set the password of somebody may be that one.
    Deed { text: "ALTER USER keeper", run: sql, enough: ADMIN },
    Deed { text: "CREATE TOKEN x FOR keeper", run: sql, enough: ADMIN },
    Deed { text: "DROP USER chief", run: sql, enough: ADMIN },
    Deed { text: "CREATE TOKEN x FOR chief", run: sql, enough: ADMIN },
    Deed {
        text: "CREATE TOKEN x FOR eve",
        run: sql,
        enough: &["ALTER USER ON *.*", "ADMIN ON *.*"],
    },
    Deed { text: "CREATE TOKEN x", run: sql, enough: &[] },
    Deed { text: "CREATE ROLE r2", run: sql, enough: ADMIN },
    Deed { text: "DROP ROLE r", run: sql, enough: ADMIN },
    Deed { text: "GRANT r TO ann", run: sql, enough: ADMIN },
    Deed { text: "REVOKE r FROM eve", run: sql, enough: ADMIN },
    Deed {
        text: "GRANT SELECT ON db.t TO eve",
        run: sql,
        enough: &["ADMIN ON db.*", "ADMIN ON *.*"],
    },
    Deed { text: "GRANT ADMIN ON *.* TO ann", run: sql, enough: ADMIN },
    Deed { text: "GRANT ALL ON *.* TO ann", run: sql, enough: ADMIN },
    Deed { text: "REVOKE SELECT ON other.* FROM eve", run: sql, enough: ADMIN },
    Deed { text: "SET GLOBAL memory_limit = '1GB'", run: sql, enough: ADMIN },
    Deed { text: "SET memory_limit = '1GB'", run: sql, enough: &[] },
    Deed { text: "CHECKPOINT", run: sql, enough: ADMIN },
    Deed { text: "KILL 1", run: sql, enough: ADMIN },
    Deed { text: "SHOW USERS", run: sql, enough: ADMIN },
    Deed { text: "SHOW ROLES", run: sql, enough: ADMIN },
    Deed { text: "SHOW GRANTS", run: sql, enough: &[] },
    Deed { text: "SHOW GRANTS FOR eve", run: sql, enough: ADMIN },
    Deed { text: "SHOW TOKENS FOR eve", run: sql, enough: ADMIN },
    Deed { text: "SHOW JOBS", run: sql, enough: ADMIN },
    Deed { text: "SHOW MEMORY", run: sql, enough: ADMIN },
    Deed { text: "SHOW TABLES", run: sql, enough: &[] },
    Deed { text: "SELECT * FROM lockstep.users", run: sql, enough: &[] },
];

/// Reads the arrivals of a table.
trait Arrivals {
    fn arrivals_of(&self, table: &str) -> Result<()>;
}

impl Arrivals for Session {
    fn arrivals_of(&self, table: &str) -> Result<()> {
        self.arrivals(table).map(drop)
    }
}

/// Makes an engine with a user `ann` who has nothing, and the objects of the deeds.
fn engine() -> Database {
    let database = Database::in_memory();
    let script = "CREATE DATABASE db; CREATE DATABASE other; USE db;
        CREATE TABLE t (k STRING); CREATE TABLE u (k STRING);
        CREATE VIEW v AS SELECT k FROM t; INSERT INTO t VALUES ('a'); DEPLOY d AS SELECT k FROM t;
        CREATE USER ann OPTIONS(password='x'); CREATE USER eve; CREATE USER chief;
        GRANT ADMIN ON *.* TO chief; CREATE USER keeper; CREATE ROLE keepers;
        GRANT ADMIN ON db.* TO keepers; GRANT keepers TO keeper; CREATE ROLE r";
    database.session().execute(script).unwrap();
    database
}

fn ann(database: &Database) -> Session {
    database.authenticate("ann", Proof::Password("x"), ClientInfo::default()).unwrap()
}

#[test]
fn every_deed_needs_its_grant_and_no_other_is_enough() {
    let mut pairs = 0;
    for deed in DEEDS {
        let without = (deed.run)(&ann(&engine()), deed.text);
        match deed.enough {
            [] => without.unwrap(),
            _ => {
                assert_eq!(
                    without.unwrap_err().code,
                    code::INSUFFICIENT_PRIVILEGE,
                    "{}",
                    deed.text
                );
            }
        }
        for enough in deed.enough {
            assert!(GRANTS.contains(enough), "{enough}");
        }
        for grant in GRANTS {
            let database = engine();
            let session = ann(&database);
            database.session().execute(&format!("GRANT {grant} TO ann")).unwrap();
            let done = (deed.run)(&session, deed.text);
            let is_refused =
                done.as_ref().is_err_and(|error| error.code == code::INSUFFICIENT_PRIVILEGE);
            let is_enough = deed.enough.is_empty() || deed.enough.contains(grant);
            assert_eq!(!is_refused, is_enough, "{} with {grant}: {done:?}", deed.text);
            pairs += 1;
        }
    }
    assert_eq!(pairs, DEEDS.len() * GRANTS.len());
    assert!(pairs > 2_000, "{pairs}");
}

#[test]
fn an_error_names_what_is_missing_and_the_grant_that_gives_it() {
    for deed in DEEDS {
        let database = engine();
        let session = ann(&database);
        let Err(mut error) = (deed.run)(&session, deed.text) else { continue };
        // What the error asks for is granted until the deed is done: at most one grant for each table.
        for _ in 0..3 {
            assert_eq!(error.code, code::INSUFFICIENT_PRIVILEGE, "{}", deed.text);
            assert!(error.message.starts_with("permission denied "), "{}", error.message);
            let hint = error.hint.clone().unwrap();
            let Some(grant) = hint.strip_prefix("GRANT ") else { break };
            database.session().execute(&format!("GRANT {grant}")).unwrap();
            match (deed.run)(&session, deed.text) {
                Err(next) if next.code == code::INSUFFICIENT_PRIVILEGE => error = next,
                _ => break,
            }
        }
    }
}

#[test]
fn what_is_revoked_is_gone_at_once_from_all_that_was_prepared() {
    let database = engine();
    let (root, session) = (database.session(), ann(&database));
    root.execute("GRANT SELECT, INSERT ON db.t TO ann; GRANT EXECUTE ON DEPLOYMENT db.d TO ann")
        .unwrap();
    let arena = lockstep_row::Arena::new();
    let request = session.prepare_request("db.d").unwrap();
    let appender = session.appender("db.t").unwrap();
    let relation = session.query("SELECT * FROM db.t").unwrap();
    let row = [lockstep_row::Datum::String("a")];
    request.answer(&row, &arena).unwrap();
    appender.append([row]).unwrap();
    relation.collect(None).unwrap();
    root.execute("REVOKE SELECT ON db.t FROM ann").unwrap();
    assert_eq!(relation.collect(None).unwrap_err().code, code::INSUFFICIENT_PRIVILEGE);
    request.answer(&row, &arena).unwrap();
    root.execute("REVOKE ALL ON db.t FROM ann; REVOKE ALL ON DEPLOYMENT db.d FROM ann").unwrap();
    assert_eq!(appender.append([row]).unwrap_err().code, code::INSUFFICIENT_PRIVILEGE);
    assert_eq!(request.answer(&row, &arena).unwrap_err().code, code::INSUFFICIENT_PRIVILEGE);
    root.execute("GRANT EXECUTE ON DEPLOYMENT db.d TO ann").unwrap();
    request.answer(&row, &arena).unwrap();
    root.execute("DROP USER ann; CREATE USER ann OPTIONS(password='x'); GRANT ALL ON *.* TO ann")
        .unwrap();
    for refused in [
        request.answer(&row, &arena).map(drop),
        appender.append([row]).map(drop),
        relation.collect(None).map(drop),
        session.execute("SELECT 1").map(drop),
    ] {
        assert_eq!(refused.unwrap_err().code, code::INVALID_AUTHORIZATION);
    }
}

#[test]
fn a_prepared_query_over_a_view_needs_the_view_only_and_ends_with_it() {
    let database = engine();
    let (root, session) = (database.session(), ann(&database));
    root.execute("GRANT SELECT ON db.v TO ann").unwrap();
    let arena = lockstep_row::Arena::new();
    let row = [lockstep_row::Datum::String("a")];
    let request = session.prepare_request("SELECT k FROM db.v").unwrap();
    let relation = session.query("SELECT k FROM db.v").unwrap();
    request.answer(&row, &arena).unwrap();
    relation.collect(None).unwrap();
    root.execute("CREATE OR REPLACE VIEW db.v AS SELECT k, 1 AS one FROM db.t").unwrap();
    assert_eq!(request.answer(&row, &arena).unwrap_err().code, code::STALE_DEFINITION);
    assert_eq!(relation.collect(None).unwrap_err().code, code::STALE_DEFINITION);
    let (request, relation) = (
        session.prepare_request("SELECT k FROM db.v").unwrap(),
        session.query("SELECT k FROM db.v").unwrap(),
    );
    root.execute("REVOKE SELECT ON db.v FROM ann; GRANT SELECT ON db.t TO ann").unwrap();
    assert_eq!(request.answer(&row, &arena).unwrap_err().code, code::INSUFFICIENT_PRIVILEGE);
    assert_eq!(relation.collect(None).unwrap_err().code, code::INSUFFICIENT_PRIVILEGE);
}

/// Views, deployments and procedures read with the privileges of the user who made them.
#[test]
fn objects_stop_when_their_owner_may_no_longer_read() {
    let database = engine();
    let (root, session) = (database.session(), ann(&database));
    root.execute(
        "USE db; CREATE USER bob OPTIONS(password='x'); GRANT SELECT ON db.t TO ann;
         GRANT CREATE, DEPLOY ON db.* TO ann; GRANT EXECUTE ON DEPLOYMENT db.* TO bob",
    )
    .unwrap();
    session.execute("USE db; CREATE VIEW mine AS SELECT k FROM t").unwrap();
    root.execute("GRANT SELECT ON db.mine TO ann, bob").unwrap();
    session.execute("CREATE VIEW upper AS SELECT k FROM mine").unwrap();
    root.execute("GRANT SELECT ON db.upper TO ann, bob").unwrap();
    session
        .execute(
            "DEPLOY own AS SELECT k FROM t; DEPLOY over_view AS SELECT k FROM upper;
             CREATE PROCEDURE call_me (k STRING) BEGIN SELECT k FROM t; END",
        )
        .unwrap();
    let bob = database.authenticate("bob", Proof::Password("x"), ClientInfo::default()).unwrap();
    let prepared = bob.query("SELECT * FROM db.upper").unwrap();
    let request = bob.prepare_request("db.own").unwrap();
    let arena = lockstep_row::Arena::new();
    let row = [lockstep_row::Datum::String("a")];
    let uses: [&dyn Fn() -> Result<()>; 8] = [
        &|| bob.execute("SELECT * FROM db.mine").map(drop),
        &|| root.execute("SELECT * FROM db.upper").map(drop),
        &|| prepared.collect(None).map(drop),
        &|| request.answer(&row, &arena).map(drop),
        &|| bob.request("db.over_view", &[self::row()]).map(drop),
        &|| root.request("db.own", &[self::row()]).map(drop),
        &|| bob.execute("CALL db.call_me('a')").map(drop),
        &|| root.execute("CREATE VIEW third AS SELECT * FROM db.mine").map(drop),
    ];
    for of_now in &uses[..7] {
        of_now().unwrap();
    }
    root.execute("REVOKE SELECT ON db.t FROM ann").unwrap();
    for (at, of_now) in uses.iter().enumerate() {
        let error = of_now().unwrap_err();
        assert_eq!(error.code, code::INSUFFICIENT_PRIVILEGE, "{at}: {error:?}");
        let expected = "permission denied for … `…`: owner `ann` lacks privileges on the objects that it reads";
        let parts: Vec<&str> = expected.split('…').collect();
        assert!(error.message.starts_with(parts[0]), "{at}: {error:?}");
        assert!(error.message.ends_with(parts[2]), "{at}: {error:?}");
        assert_eq!(error.detail.as_deref(), Some("User `ann` lacks SELECT on db.t."));
    }
    // What root has made goes on, and so does what has no owner.
    root.execute("SELECT * FROM db.v").unwrap();
    root.request("db.d", &[self::row()]).unwrap();
    root.execute("GRANT SELECT ON db.t TO ann").unwrap();
    for of_now in &uses {
        of_now().unwrap();
    }
    root.execute("DROP USER ann; CREATE USER ann; GRANT ALL ON *.* TO ann").unwrap();
    for of_now in &uses[..7] {
        let error = of_now().unwrap_err();
        assert_eq!(error.code, code::INSUFFICIENT_PRIVILEGE, "{error:?}");
        assert_eq!(error.detail.as_deref(), Some("User `ann` was dropped."));
    }
    root.execute("CREATE OR REPLACE PROCEDURE call_me (k STRING) BEGIN SELECT k FROM t; END")
        .unwrap();
    uses[6]().unwrap();
}

/// A deployment that ALTER TABLE compiles again keeps its owner.
#[test]
fn an_altered_table_leaves_its_deployments_their_owners() {
    let database = engine();
    let (root, session) = (database.session(), ann(&database));
    root.execute(
        "CREATE TABLE db.secret (k STRING, s INT); GRANT SELECT ON db.t TO ann;
         GRANT SELECT ON db.secret TO ann; GRANT DEPLOY ON db.* TO ann",
    )
    .unwrap();
    let own = "DEPLOY own AS SELECT t.k, secret.s FROM t LAST JOIN secret ON t.k = secret.k";
    session.execute(&format!("USE db; {own}")).unwrap();
    root.execute("REVOKE SELECT ON db.secret FROM ann").unwrap();
    let refused = || root.request("db.own", &[row()]).unwrap_err().code;
    assert_eq!(refused(), code::INSUFFICIENT_PRIVILEGE);
    root.execute("ALTER TABLE db.secret ADD COLUMN other INT").unwrap();
    assert_eq!(refused(), code::INSUFFICIENT_PRIVILEGE);
}

/// DROP … CASCADE needs DROP on all that it drops, and drops nothing otherwise.
#[test]
fn a_cascade_drops_what_the_caller_may_drop() {
    let database = engine();
    let (root, session) = (database.session(), ann(&database));
    root.execute("GRANT DROP ON db.t TO ann; GRANT DROP ON db.v TO ann").unwrap();
    let refused = session.execute("DROP TABLE db.t CASCADE").unwrap_err();
    assert_eq!(refused.code, code::INSUFFICIENT_PRIVILEGE, "{refused:?}");
    assert!(refused.message.contains("DEPLOYMENT db.d"), "{refused:?}");
    root.execute("SELECT * FROM db.v").unwrap();
    root.execute("CREATE TABLE db.first (k INT); GRANT DROP ON db.first TO ann").unwrap();
    let refused = session.execute("DROP TABLE db.first, db.t CASCADE").unwrap_err();
    assert_eq!(refused.code, code::INSUFFICIENT_PRIVILEGE, "{refused:?}");
    root.execute("SELECT * FROM db.first").unwrap();
    root.execute("GRANT DROP ON DEPLOYMENT db.d TO ann").unwrap();
    let dropped = session.execute("DROP TABLE db.t CASCADE").unwrap();
    let warnings: Vec<String> = dropped.warnings.into_iter().map(|w| w.message).collect();
    assert_eq!(warnings, ["drop cascades to view `db.v`", "drop cascades to deployment `db.d`"]);
    assert_eq!(root.execute("SELECT * FROM db.v").unwrap_err().code, code::UNDEFINED_TABLE);
}

/// DEPLOY adds columns to a table of answers with ALTER on it.
#[test]
fn a_table_of_answers_grows_for_who_may_alter_it() {
    let database = engine();
    let (root, session) = (database.session(), ann(&database));
    root.execute(
        "USE db; DEPLOY logged OPTIONS(log_answers='answers') AS SELECT k FROM t;
         GRANT SELECT ON db.t TO ann; GRANT INSERT ON db.answers TO ann; GRANT DEPLOY ON db.* TO ann;
         GRANT DROP ON DEPLOYMENT db.logged TO ann",
    )
    .unwrap();
    let more = "USE db; DEPLOY OR REPLACE logged OPTIONS(log_answers='answers') AS \
                SELECT k, k AS other FROM t";
    let refused = session.execute(more).unwrap_err();
    assert_eq!(refused.code, code::INSUFFICIENT_PRIVILEGE, "{refused:?}");
    assert_eq!(refused.detail.as_deref(), Some("User `ann` lacks ALTER."), "{refused:?}");
    root.execute("SELECT answer_k FROM db.answers").unwrap();
    root.execute("GRANT ALTER ON db.answers TO ann").unwrap();
    session.execute(more).unwrap();
    root.execute("SELECT answer_other FROM db.answers").unwrap();
}

#[test]
fn roles_give_what_they_have_to_their_members() {
    let database = engine();
    let (root, session) = (database.session(), ann(&database));
    root.execute("CREATE ROLE reader; CREATE ROLE team; GRANT SELECT ON db.t TO reader").unwrap();
    root.execute("GRANT reader TO team; GRANT team TO ann").unwrap();
    session.execute("SELECT * FROM db.t").unwrap();
    assert_eq!(root.execute("GRANT team TO reader").unwrap_err().code, code::INVALID_GRANT);
    assert_eq!(root.execute("GRANT team TO team").unwrap_err().code, code::INVALID_GRANT);
    let refused = database.authenticate("team", Proof::Checked, ClientInfo::default());
    assert_eq!(refused.unwrap_err().code, code::INVALID_PASSWORD);
    // A role of the same name later is another one.
    root.execute("DROP ROLE team; CREATE ROLE team; GRANT ALL ON *.* TO team").unwrap();
    let refused = session.execute("SELECT * FROM db.t").unwrap_err();
    assert_eq!(refused.code, code::INSUFFICIENT_PRIVILEGE);
    assert_eq!(root.execute("DROP USER reader").unwrap_err().code, code::INVALID_GRANT);
    assert_eq!(root.execute("CREATE TOKEN x FOR reader").unwrap_err().code, code::INVALID_GRANT);
}

#[test]
fn a_grant_option_passes_on_what_it_is_about_and_no_more() {
    let database = engine();
    let (root, session) = (database.session(), ann(&database));
    root.execute("GRANT SELECT ON db.t TO ann WITH GRANT OPTION").unwrap();
    session.execute("GRANT SELECT ON db.t TO eve; REVOKE SELECT ON db.t FROM eve").unwrap();
    for wrong in [
        "GRANT INSERT ON db.t TO eve",
        "GRANT SELECT ON db.* TO eve",
        "GRANT SELECT ON db.u TO eve",
        "GRANT ALL ON db.t TO eve",
        "GRANT GRANT OPTION ON db.t TO eve",
    ] {
        let refused = session.execute(wrong).unwrap_err();
        assert_eq!(refused.code, code::INSUFFICIENT_PRIVILEGE, "{wrong}");
    }
}

#[test]
fn names_that_look_like_other_objects_are_not_them() {
    let database = engine();
    let (root, session) = (database.session(), ann(&database));
    root.execute(
        "CREATE DATABASE `db.t`; CREATE TABLE `db.t`.x (k STRING); CREATE TABLE db.`t.x` (k STRING);
         CREATE TABLE db.`*` (k STRING); GRANT SELECT ON db.`t.x` TO ann; GRANT SELECT ON db.`*` TO ann",
    )
    .unwrap();
    session.execute("SELECT * FROM db.`t.x`").unwrap();
    session.execute("SELECT * FROM db.`*`").unwrap();
    for other in ["SELECT * FROM `db.t`.x", "SELECT * FROM db.t"] {
        let refused = session.execute(other).unwrap_err();
        assert_eq!(refused.code, code::INSUFFICIENT_PRIVILEGE, "{other}");
    }
}

#[test]
fn a_name_that_a_user_may_not_see_is_refused_like_one_that_does_not_exist() {
    let database = engine();
    let session = ann(&database);
    for (hidden, missing) in [
        ("SELECT * FROM db.t", "SELECT * FROM db.z"),
        ("INSERT INTO db.t VALUES ('a')", "INSERT INTO db.z VALUES ('a')"),
        ("DESC db.t", "DESC db.z"),
        ("SHOW DEPLOYMENT db.d", "SHOW DEPLOYMENT db.z"),
        ("CALL db.d('a')", "CALL db.z('a')"),
        ("USE db", "USE dz"),
    ] {
        let errors = [hidden, missing].map(|sql| session.execute(sql).unwrap_err());
        let [hidden, missing] = errors;
        assert_eq!(hidden.code, missing.code);
        assert_eq!(hidden.code, code::INSUFFICIENT_PRIVILEGE);
        assert_eq!(hidden.span, missing.span);
        let renamed = hidden.message.replace("db.t", "db.z").replace("db.d", "db.z");
        assert_eq!(renamed.replace("db.*", "dz.*"), missing.message.replace("db.*", "dz.*"));
    }
    for list in ["SHOW TABLES", "SHOW DEPLOYMENTS", "SHOW TABLE STATUS LIKE '%'"] {
        assert_eq!(session.execute(list).unwrap().row_count(), 0, "{list}");
    }
    assert!(session.complete("k").iter().all(|word| word != "k"));
}

#[test]
fn files_of_the_server_are_opened_in_listed_folders_only() {
    let database = engine();
    let (root, session) = (database.session(), ann(&database));
    root.execute("GRANT ALL ON *.* TO ann; GRANT ADMIN ON *.* TO ann").unwrap();
    let folder = std::env::temp_dir().join(format!("lockstep-privileges-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("in")).unwrap();
    let folder = folder.canonicalize().unwrap();
    let (inside, outside) = (folder.join("in/a.csv"), folder.join("a.csv"));
    for file in [&inside, &outside] {
        std::fs::write(file, "k\nz\n").unwrap();
    }
    let statements = |path: &std::path::Path| {
        let (path, new) = (path.display(), format!("{}.new", path.display()));
        [
            format!("LOAD DATA INFILE '{path}' INTO TABLE db.t"),
            format!("SELECT * FROM db.t INTO OUTFILE '{new}'"),
            format!("ALTER TABLE db.t ADD OFFLINE_PATH '{path}'"),
        ]
    };
    for statement in statements(&inside) {
        let refused = session.execute(&statement).unwrap_err();
        assert_eq!(refused.code, code::INSUFFICIENT_PRIVILEGE, "{statement}");
    }
    database.set_file_folders(&[folder.join("in")]).unwrap();
    for statement in statements(&inside) {
        session.execute(&statement).unwrap();
    }
    let others = [
        format!("BACKUP TO '{}'", folder.join("backup").display()),
        format!("CREATE TABLE db.l LIKE PARQUET '{}'", outside.display()),
        format!("LOAD DATA INFILE '{}/in/../a.csv' INTO TABLE db.t", folder.display()),
    ];
    for statement in statements(&outside).iter().chain(&others) {
        let refused = session.execute(statement).unwrap_err();
        assert_eq!(refused.code, code::INSUFFICIENT_PRIVILEGE, "{statement}");
    }
    assert!(!folder.join("a.csv.new").exists());
    root.execute(&statements(&outside)[0]).unwrap();
    // A view opens no file that its user may not.
    for (name, path) in [("inside", &inside), ("outside", &outside)] {
        let location = path.display();
        let made = format!("CREATE EXTERNAL TABLE db.{name} STORED AS CSV LOCATION '{location}'");
        root.execute(&made).unwrap();
        root.execute(&format!("CREATE VIEW db.of_{name} AS SELECT * FROM db.{name}")).unwrap();
    }
    assert_eq!(session.execute("SELECT * FROM db.of_inside").unwrap().row_count(), 1);
    for sql in ["SELECT * FROM db.outside", "SELECT * FROM db.of_outside"] {
        let refused = session.execute(sql).unwrap_err();
        assert_eq!(refused.code, code::INSUFFICIENT_PRIVILEGE, "{sql}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
