//! Streams in directories: each main row has one result however often the engine ends, and nothing is lost without an
//! error.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use lockstep_engine::{ClientInfo, Database, Proof, Session, Subscription, code};

use crate::test_directory::TestDirectory;

const TABLES: &str =
    "CREATE TABLE orders (id INT, k INT, ts TIMESTAMP, x DOUBLE, INDEX(KEY=k, TS=ts));
     CREATE TABLE events (id INT, k INT, ts TIMESTAMP, x DOUBLE, INDEX(KEY=k, TS=ts))";

const QUERY: &str = "SELECT id, sum(x) OVER w AS s, count(x) OVER w AS n FROM orders WINDOW w AS \
    (UNION events PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 10s PRECEDING AND 5s FOLLOWING)";

/// Each order with the newest event of its key that is not newer, and a window over these rows.
const JOINED: &str = "SELECT orders.id, e.x AS joined, sum(e.x) OVER w AS s FROM orders \
    LAST JOIN events AS e ORDER BY e.ts ON orders.k = e.k AND e.ts <= orders.ts \
    WINDOW w AS (PARTITION BY orders.k ORDER BY orders.ts ROWS_RANGE BETWEEN 10s PRECEDING AND \
    CURRENT ROW)";

/// Returns the rows of a query as text.
fn rows(session: &Session, sql: &str) -> String {
    let batches = session.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}")).batches;
    batches.iter().map(|batch| format!("{:?}", batch.columns())).collect()
}

/// Returns a value of the only stream.
fn shown(session: &Session, column: &str) -> String {
    let text =
        rows(session, &format!("SELECT CAST({column} AS STRING) AS c FROM lockstep.streams"));
    let line = text.lines().find(|line| line.starts_with("  ")).unwrap_or_default();
    line.trim().trim_end_matches(',').trim_matches('"').to_owned()
}

/// Inserts a row of each table with this number.
fn insert(session: &Session, number: i32) {
    // Disorder within the lateness.
    let ts = i64::from(number) * 700 - i64::from(number % 4) * 1_000 + 100_000;
    let (k, x) = (number % 3, f64::from(number) / 7.0);
    let values = format!("({number}, {k}, {ts}, {x})");
    session.execute(&format!("INSERT INTO orders VALUES {values}")).unwrap();
    session.execute(&format!("INSERT INTO events VALUES {values}")).unwrap();
}

#[test]
fn each_row_has_one_result_however_often_the_directory_is_opened() {
    let of_rows = QUERY.replace(
        "ROWS_RANGE BETWEEN 10s PRECEDING AND 5s FOLLOWING",
        "ROWS BETWEEN 3 PRECEDING AND 2 FOLLOWING",
    );
    for query in [QUERY, &of_rows, JOINED] {
        let directory = TestDirectory::new("streams-reopened");
        directory.open().execute(TABLES).unwrap();
        let create =
            format!("CREATE STREAM s INTO TABLE results OPTIONS(lateness='4s') AS {query}");
        directory.open().execute(&create).unwrap();
        for number in 0..60 {
            let session = directory.open();
            for part in 0..3 {
                insert(&session, 3 * number + part);
            }
            if number % 5 == 4 {
                let joiners = 1 + number / 5 % 4;
                let alter = format!("ALTER STREAM s SET OPTIONS(joiners={joiners})");
                session.execute(&alter).unwrap();
            }
            if number % 3 == 0 {
                session.database().settle_streams();
            }
            if number % 10 == 0 {
                session.execute("CHECKPOINT").unwrap();
            }
            if number % 7 == 0 {
                session.database().close().unwrap();
            }
        }
        let session = directory.open();
        // The watermark passes the last windows.
        let row = |number: i32| {
            format!("({}, {}, {}, 1)", 1_000 + number, number % 3, 900_000 + 10_000 * number)
        };
        let last = (0..9).map(row).collect::<Vec<_>>().join(", ");
        session.execute(&format!("INSERT INTO orders VALUES {last}")).unwrap();
        session.execute(&format!("INSERT INTO events VALUES {last}")).unwrap();
        session.database().settle_streams();
        let results = rows(&session, "SELECT * FROM results WHERE id < 1000 ORDER BY id");
        let expected =
            rows(&session, &format!("SELECT * FROM ({query}) AS q WHERE id < 180 ORDER BY id"));
        assert_eq!(results, expected, "{query}");
        assert_eq!(shown(&session, "rows_late"), "0");
        assert_eq!(shown(&session, "rows_read"), "378", "each row is counted once");
        assert_eq!(shown(&session, "state"), "running");
    }
}

#[test]
fn a_frequent_key_is_shared_by_several_joiners() {
    let session = Database::in_memory().session();
    session.execute(TABLES).unwrap();
    // Nine of ten rows are of one key.
    let fill = "SELECT CAST(n AS INT) AS id, CAST(if(n % 10 = 0, n % 100, 0) AS INT) AS k, \
        CAST(n * 3 AS TIMESTAMP) AS ts, n / 7.0 AS x FROM numbers";
    session.execute("CREATE TABLE numbers (n BIGINT)").unwrap();
    let rows_of = (0..50_000_i64).map(|number| [lockstep_row::Datum::BigInt(number)]);
    session.appender("numbers").unwrap().append(rows_of).unwrap();
    for table in ["orders", "events"] {
        session.execute(&format!("INSERT INTO {table} {fill}")).unwrap();
    }
    let query = "SELECT id, k, sum(x) OVER w AS s, max(x) OVER w AS m, count(*) OVER w AS n FROM orders \
        WINDOW w AS (UNION events PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 1s PRECEDING AND \
        500 FOLLOWING)";
    let create =
        format!("CREATE STREAM s INTO TABLE results OPTIONS(lateness='1s', joiners=3) AS {query}");
    session.execute(&create).unwrap();
    session.database().settle_streams();
    assert_eq!(shown(&session, "joiners"), "3");
    assert_ne!(shown(&session, "teams"), "0", "the frequent key is shared");
    let imbalance: f64 = shown(&session, "imbalance").parse().unwrap();
    assert!(imbalance < 0.5, "{imbalance}");
    let is_true = |sql: &str| rows(&session, sql) == rows(&session, "SELECT true AS c");
    assert!(
        is_true("SELECT count(*) > 49000 AS c FROM results"),
        "but for the last ones all are final"
    );
    let differ = format!(
        "SELECT count(*) = 0 AS c FROM results AS r LAST JOIN ({query}) AS q ON r.id = q.id \
         WHERE r.s != q.s OR r.m != q.m OR r.n != q.n OR q.id IS NULL"
    );
    assert!(is_true(&differ), "they are those of batch mode");
}

#[test]
fn joiners_are_an_option_of_streams_that_wait() {
    let session = Database::in_memory().session();
    session.execute(TABLES).unwrap();
    let create = |options: &str| {
        session
            .execute(&format!("CREATE STREAM s INTO TABLE results OPTIONS({options}) AS {QUERY}"))
    };
    for (options, message) in [
        ("joiners=0", "must be an integer from 1 to 64"),
        ("joiners=65", "must be an integer from 1 to 64"),
        ("joiners='all'", "must be an integer from 1 to 64"),
        ("emit='arrival', joiners=2", "option `joiners` cannot be used with emit='arrival'"),
    ] {
        let error = create(options).unwrap_err();
        assert!(error.to_string().contains(message), "{options}: {error}");
    }
    create("joiners=2").unwrap();
    assert!(rows(&session, "SHOW CREATE STREAM s").contains("joiners=2"));
    session.database().settle_streams();
    assert_eq!((shown(&session, "joiners"), shown(&session, "teams")), ("2".into(), "0".into()));
    session.execute("ALTER STREAM s SET OPTIONS(joiners=1)").unwrap();
    assert!(!rows(&session, "SHOW CREATE STREAM s").contains("joiners"));
    session.database().settle_streams();
    assert_eq!(shown(&session, "joiners"), "1");
}

#[test]
fn a_row_that_is_given_at_arrival_has_the_values_that_were_known() {
    let query = "SELECT orders.id, sum(orders.x) OVER w AS s, count(*) OVER w AS n, e.id AS last_event \
        FROM orders LAST JOIN events AS e ORDER BY e.ts ON orders.k = e.k AND e.ts <= orders.ts \
        WINDOW w AS (PARTITION BY orders.k ORDER BY orders.ts ROWS_RANGE BETWEEN 3s PRECEDING AND \
        CURRENT ROW)";
    let directory = TestDirectory::new("streams-known");
    directory.open().execute(TABLES).unwrap();
    let create = format!("CREATE STREAM s INTO TABLE results OPTIONS(emit='arrival') AS {query}");
    directory.open().execute(&create).unwrap();
    for number in 0..40 {
        let session = directory.open();
        for part in 0..3 {
            insert(&session, 3 * number + part);
        }
        if number % 3 == 0 {
            session.database().settle_streams();
        }
    }
    let session = directory.open();
    session.database().settle_streams();
    let known = format!("SELECT * FROM ({query}) AS q AS KNOWN AT ARRIVAL");
    let results = rows(&session, "SELECT * FROM results");
    assert_eq!(results, rows(&session, &known));
    assert_ne!(results, rows(&session, &format!("SELECT * FROM ({query}) AS q")), "rows come late");
    assert_eq!(
        (shown(&session, "rows_read"), shown(&session, "rows_written")),
        ("120".to_owned(), "120".to_owned())
    );
}

#[test]
fn late_rows_are_stored_once() {
    let directory = TestDirectory::new("streams-late");
    let session = directory.open();
    session.execute(TABLES).unwrap();
    let create = format!("CREATE STREAM s INTO TABLE results OPTIONS(late_rows='late') AS {QUERY}");
    session.execute(&create).unwrap();
    session.execute("INSERT INTO orders VALUES (1, 1, 2000, 1), (2, 1, 1000, 2)").unwrap();
    session.database().settle_streams();
    drop(session);
    let session = directory.open();
    session.execute("INSERT INTO orders VALUES (3, 1, 1999, 3), (4, 1, 2000, 4)").unwrap();
    session.database().settle_streams();
    assert_eq!(shown(&session, "rows_late"), "2");
    let late = rows(&session, "SELECT source_row FROM late");
    let late = late.replace('\\', "");
    assert!(late.contains(r#"{"id":2,"k":1,"ts":1000,"x":2.0}"#), "{late}");
    assert_eq!(late.matches("\"id\"").count(), 2, "{late}");
}

#[test]
fn a_row_of_a_wrong_clock_is_late_and_makes_no_other_late() {
    let directory = TestDirectory::new("streams-ahead");
    let session = directory.open();
    session.execute(TABLES).unwrap();
    let create = format!(
        "CREATE STREAM s INTO TABLE results OPTIONS(max_ahead='1h', late_rows='late') AS {QUERY}"
    );
    session.execute(&create).unwrap();
    // The year 2100.
    session.execute("INSERT INTO orders VALUES (1, 1, 1000, 1), (2, 1, 4102444800000, 2)").unwrap();
    session.database().settle_streams();
    drop(session);
    let session = directory.open();
    session.execute("INSERT INTO events VALUES (7, 1, 1000, 1), (8, 1, 4102444800000, 2)").unwrap();
    session.execute("INSERT INTO orders VALUES (3, 1, 90000, 3), (4, 1, 95000, 4)").unwrap();
    session.execute("INSERT INTO events VALUES (9, 1, 96000, 1)").unwrap();
    session.database().settle_streams();
    assert_eq!(shown(&session, "rows_late"), "2");
    assert_eq!(shown(&session, "rows_written"), "1", "the result of the first order is final");
    let late = rows(&session, "SELECT source_row FROM late").replace('\\', "");
    assert!(late.contains(r#"{"id":2,"#) && late.contains(r#"{"id":8,"#), "{late}");
    let error = session.execute("ALTER STREAM s SET OPTIONS(max_ahead='2h')").unwrap_err();
    assert_eq!(error.message, "option `max_ahead` of a stream cannot be changed");
    assert!(rows(&session, "SHOW CREATE STREAM s").contains("max_ahead=3600000"));
}

#[test]
fn rows_that_are_gone_are_an_error() {
    let directory = TestDirectory::new("streams-gone");
    let session = directory.open();
    session.execute(TABLES).unwrap();
    session.execute(&format!("CREATE STREAM s INTO TABLE results AS {QUERY}")).unwrap();
    insert(&session, 1);
    session.database().settle_streams();
    session.execute("STOP STREAM s; TRUNCATE TABLE events; START STREAM s").unwrap();
    session.database().settle_streams();
    assert_eq!(shown(&session, "state"), "failed");
    let error = shown(&session, "error");
    assert!(error.contains("rows of table `default.events` were removed"), "{error}");
    // It fails again, and loses nothing by that.
    session.execute("START STREAM s").unwrap();
    session.database().settle_streams();
    assert_eq!(shown(&session, "state"), "failed");
}

#[test]
fn a_last_join_goes_on_without_rows_that_newer_ones_have_replaced() {
    let directory = TestDirectory::new("streams-joined");
    let mut session = directory.open();
    session.execute(TABLES).unwrap();
    let joined = "CREATE TABLE prices (k INT, x DOUBLE, ts TIMESTAMP, \
        INDEX(KEY=k, TS=ts, TTL=1, TTL_TYPE=latest))";
    session.execute(joined).unwrap();
    let query = "SELECT orders.id, p.x AS price FROM orders \
        LAST JOIN prices AS p ORDER BY p.ts ON orders.k = p.k AND p.ts <= orders.ts";
    session.execute(&format!("CREATE STREAM s INTO TABLE results AS {query}")).unwrap();
    let price = |session: &Session, k: i32, seconds: i32| {
        let row = format!("({k}, {seconds}, {seconds}000)");
        session.execute(&format!("INSERT INTO prices VALUES {row}")).unwrap();
    };
    // Each makes the one before it one that is removed, and a key of its own moves the watermark.
    for seconds in 1..20 {
        price(&session, seconds % 2, seconds);
        price(&session, 2, seconds);
        let row = format!("({seconds}, {}, {seconds}000, 0)", seconds % 2);
        session.execute(&format!("INSERT INTO orders VALUES {row}")).unwrap();
        session.database().settle_streams();
        session.execute("STOP STREAM s; CHECKPOINT").unwrap();
        session.database().close().unwrap();
        session = directory.open();
        session.execute("START STREAM s").unwrap();
        session.database().settle_streams();
        assert_eq!(shown(&session, "state"), "running", "{}", shown(&session, "error"));
    }
    let expected =
        rows(&session, "SELECT id, CAST(id AS DOUBLE) AS price FROM orders WHERE id < 19");
    assert_eq!(rows(&session, "SELECT * FROM results ORDER BY id"), expected);
    // The row that the next one would be joined with is gone.
    session.execute("STOP STREAM s; DELETE FROM prices WHERE k = 0; START STREAM s").unwrap();
    session.database().settle_streams();
    assert_eq!(shown(&session, "state"), "failed");
    let error = shown(&session, "error");
    assert!(error.contains("rows of table `default.prices` were removed"), "{error}");
}

#[test]
fn a_stream_waits_for_memory() {
    let session = Database::in_memory().session();
    session.execute(TABLES).unwrap();
    session.execute("CREATE TABLE results (id INT, s DOUBLE, n BIGINT, INDEX(KEY=id))").unwrap();
    session.execute("INSERT INTO orders VALUES (1, 1, 1000, 1), (2, 1, 90000, 1)").unwrap();
    session.execute("INSERT INTO events VALUES (1, 1, 1000, 1), (2, 1, 90000, 1)").unwrap();
    session.execute("SET GLOBAL max_memory = '1kB'").unwrap();
    session.execute(&format!("CREATE STREAM s INTO TABLE results AS {QUERY}")).unwrap();
    while shown(&session, "state") != "waiting" {
        lockstep_host::pause(1);
    }
    assert!(shown(&session, "error").contains("max_memory exceeded"));
    session.execute("SET GLOBAL max_memory = 0").unwrap();
    while shown(&session, "rows_written") != "1" {
        lockstep_host::pause(1);
    }
    session.database().settle_streams();
    assert_eq!(shown(&session, "state"), "running");
    assert_eq!(shown(&session, "error"), "null");
}

#[test]
fn a_stream_has_the_privileges_of_its_owner() {
    let database = Database::in_memory();
    let root = database.session();
    root.execute(TABLES).unwrap();
    root.execute("CREATE USER ann OPTIONS(password='p')").unwrap();
    let ann = database.authenticate("ann", Proof::Checked, ClientInfo::default()).unwrap();
    let create = format!("CREATE STREAM s INTO TABLE results AS {QUERY}");
    for (needed, on) in [
        ("CREATE", "default.s"),
        ("SELECT", "default.orders"),
        ("SELECT", "default.events"),
        ("INSERT", "default.results"),
        ("CREATE", "default.results"),
    ] {
        let error = ann.execute(&create).unwrap_err();
        assert_eq!(error.code, code::INSUFFICIENT_PRIVILEGE, "{needed} {on}: {error}");
        root.execute(&format!("GRANT {needed} ON {on} TO ann")).unwrap();
    }
    ann.execute(&create).unwrap();
    assert_eq!(shown(&ann, "state"), "running");
    let refused = ann.execute("STOP STREAM s").unwrap_err();
    assert_eq!(refused.code, code::INSUFFICIENT_PRIVILEGE);
    root.execute("REVOKE SELECT ON default.events FROM ann").unwrap();
    insert(&root, 1);
    root.database().settle_streams();
    assert_eq!(shown(&root, "state"), "failed");
    assert!(shown(&root, "error").contains("owner `ann` lacks privileges"));
}

#[test]
fn a_subscriber_that_would_keep_too_many_removed_rows_is_told() {
    let session = Database::in_memory().session();
    session.execute(TABLES).unwrap();
    let mut rows = Subscription::holding(&session, "orders", 0).unwrap();
    insert(&session, 1);
    session.execute("TRUNCATE TABLE orders").unwrap();
    let error = rows.next_batch().unwrap_err();
    assert_eq!(error.message, "rows of table `default.orders` were not given");
    let hint =
        "Read the rows sooner, or remove them later; subscribe again to continue behind them.";
    assert_eq!((error.code, error.hint.as_deref()), (code::OUT_OF_MEMORY, Some(hint)));
    // It goes on behind them.
    insert(&session, 2);
    assert_eq!(rows.next_batch().unwrap().map(|batch| batch.num_rows()), Some(1));
    assert!(rows.next_batch().unwrap().is_none());
}

#[test]
fn subscriptions_begin_where_they_are_told() {
    let session = Database::in_memory().session();
    session.execute(TABLES).unwrap();
    insert(&session, 1);
    let count = |sql: &str| {
        let mut rows = session.subscription(sql).unwrap().unwrap();
        let batch = rows.next_batch().unwrap();
        (batch.map_or(0, |batch| batch.num_rows()), rows.position())
    };
    let (all, position) = count("SUBSCRIBE TO orders OPTIONS(start='earliest')");
    assert_eq!((all, count("subscribe to default.orders").0), (1, 0));
    insert(&session, 2);
    let behind = format!("SUBSCRIBE TO orders OPTIONS(start='{position}')");
    assert_eq!(count(&behind).0, 1);
    let refused = session.subscription("SUBSCRIBE TO orders OPTIONS(start='now')").unwrap_err();
    assert_eq!(refused.message, "option `start` must be 'latest', 'earliest' or a position");
    let missing = session.subscription("SUBSCRIBE TO missing").unwrap_err();
    assert!(missing.span.is_some(), "{missing}");
    assert!(session.subscription("SELECT 1").unwrap().is_none());
}

#[test]
fn what_is_given_at_arrival_beside_many_writers_is_what_was_known() {
    let query = "SELECT id, sum(x) OVER w AS s, count(*) OVER w AS n FROM orders WINDOW w AS \
        (UNION events PARTITION BY k ORDER BY ts ROWS_RANGE BETWEEN 10s PRECEDING AND CURRENT ROW)";
    let database = Database::in_memory();
    let session = database.session();
    session.execute(TABLES).unwrap();
    let create = format!("CREATE STREAM s INTO TABLE results OPTIONS(emit='arrival') AS {query}");
    session.execute(&create).unwrap();
    let write = |writer: i32| {
        let session = database.session();
        for number in 0..200 {
            let table = if (number + writer) % 3 == 0 { "orders" } else { "events" };
            let (id, k, ts) = (1_000 * writer + number, number % 2, 100_000 + 10 * number);
            let sql = format!("INSERT INTO {table} VALUES ({id}, {k}, {ts}, 0.5)");
            session.execute(&sql).unwrap();
        }
    };
    std::thread::scope(|scope| {
        for writer in 0..4 {
            scope.spawn(move || write(writer));
        }
    });
    database.settle_streams();
    let known = rows(&session, &format!("SELECT * FROM ({query}) AS q AS KNOWN AT ARRIVAL"));
    assert_eq!(rows(&session, "SELECT * FROM results"), known);
}
