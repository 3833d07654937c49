//! PostgreSQL's extended protocol and COPY.

use pgwire::messages::PgWireBackendMessage;

use crate::{
    postgres_client::{PgClient, Reply, frame, packet, texts},
    support::TestServer,
};

const SETUP: &str = "
    CREATE TABLE orders (user STRING NOT NULL, price DOUBLE, ts TIMESTAMP, INDEX(KEY=user, TS=ts));
    INSERT INTO orders VALUES ('ann', 1.5, 1000), ('bob', NULL, 2000), ('cid', 3, 3000);
    DEPLOY total AS SELECT user, sum(price) OVER w AS spent FROM orders WINDOW w AS
        (PARTITION BY user ORDER BY ts ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW);";

fn server() -> TestServer {
    TestServer::start(&[], SETUP)
}

/// Makes a Parse.
fn parse(name: &str, sql: &str, types: &[u32]) -> Vec<u8> {
    let mut body = texts(&[name, sql]);
    body.extend(u16::try_from(types.len()).unwrap().to_be_bytes());
    types.iter().for_each(|number| body.extend(number.to_be_bytes()));
    frame(b'P', &body)
}

/// Makes a Bind whose values all have one format, and the results another.
fn bind(portal: &str, name: &str, values: &[Option<&[u8]>], formats: (u16, u16)) -> Vec<u8> {
    let mut body = texts(&[portal, name]);
    body.extend([0, 1]);
    body.extend(formats.0.to_be_bytes());
    body.extend(u16::try_from(values.len()).unwrap().to_be_bytes());
    for value in values {
        let length = value.map_or(-1, |bytes| i32::try_from(bytes.len()).unwrap());
        body.extend(length.to_be_bytes());
        body.extend(value.unwrap_or_default());
    }
    body.extend([0, 1]);
    body.extend(formats.1.to_be_bytes());
    frame(b'B', &body)
}

fn describe(kind: &str, name: &str) -> Vec<u8> {
    frame(b'D', &[kind.as_bytes(), &texts(&[name])].concat())
}

fn execute(portal: &str, rows_max: i32) -> Vec<u8> {
    frame(b'E', &[&texts(&[portal])[..], &rows_max.to_be_bytes()].concat())
}

fn sync() -> Vec<u8> {
    frame(b'S', b"")
}

fn send(client: &mut PgClient, messages: &[Vec<u8>]) -> Reply {
    client.send(&messages.concat());
    client.reply()
}

/// Runs a statement with text values.
pub(crate) fn run(client: &mut PgClient, sql: &str, values: &[&str]) -> Reply {
    let values: Vec<Option<&[u8]>> = values.iter().map(|value| Some(value.as_bytes())).collect();
    let messages = [parse("", sql, &[]), bind("", "", &values, (0, 0)), execute("", 0), sync()];
    send(client, &messages)
}

#[test]
fn parameters_have_the_types_of_their_columns() {
    let server = server();
    let mut client = server.session_postgres(&[]);
    for (sql, types, columns) in [
        ("SELECT user, price FROM orders WHERE ts > $1 AND user = $2", &[1184, 25][..], 2),
        ("INSERT INTO orders VALUES ($1, $2, $3)", &[25, 701, 1184], 0),
        ("SELECT price FROM orders LIMIT $1", &[20], 1),
        ("SELECT $1::int + 1 AS a, $2", &[23, 25], 2),
        ("SELECT spent FROM total(ts => $1, user => $2, price => $3)", &[1184, 25, 701], 1),
        ("SHOW TABLES", &[], 1),
        ("", &[], 0),
    ] {
        let described = send(
            &mut client,
            &[parse("s", sql, &[]), describe("S", "s"), frame(b'C', b"Ss\0"), sync()],
        );
        assert_eq!(described.parameters, types, "{sql}: {described:?}");
        assert_eq!(described.columns.len(), columns, "{sql}");
        assert_eq!(described.others, if columns == 0 { "1n3" } else { "13" }, "{sql}");
    }
}

#[test]
fn values_go_both_ways_in_both_formats() {
    let server = server();
    let mut client = server.session_postgres(&[]);
    let found = run(
        &mut client,
        "SELECT user FROM orders WHERE price = $1 OR ts = $2",
        &["1.5", "1970-01-01 00:00:02"],
    );
    assert_eq!(found.rows.len(), 2, "{found:?}");
    let price = 4.5_f64.to_be_bytes();
    let ts = (4_000_000_i64 - 946_684_800_000_000).to_be_bytes();
    let insert = "INSERT INTO orders VALUES ($1, $2, $3)";
    let values: [Option<&[u8]>; 3] = [Some(b"dan"), Some(&price), Some(&ts)];
    let done = send(
        &mut client,
        &[
            parse("", insert, &[25, 701, 1184]),
            bind("", "", &values, (1, 1)),
            execute("", 0),
            sync(),
        ],
    );
    assert_eq!(done.tags, ["INSERT 0 1"], "{done:?}");
    let select =
        "SELECT price, ts, user, price > 1 AS more, NULL AS none FROM orders WHERE user = $1";
    let found = send(
        &mut client,
        &[
            parse("", select, &[]),
            bind("", "", &[Some(b"dan")], (0, 1)),
            describe("P", ""),
            execute("", 0),
            sync(),
        ],
    );
    let expected: [Option<Vec<u8>>; 5] =
        [Some(price.to_vec()), Some(ts.to_vec()), Some(b"dan".to_vec()), Some(vec![1]), None];
    assert_eq!(found.rows, [expected]);
    let types: Vec<u32> = found.columns.iter().map(|(_, number)| *number).collect();
    assert_eq!(types[..4], [701, 1184, 25, 16]);
    let small = 2_i16.to_be_bytes();
    let found = send(
        &mut client,
        &[
            parse("", "SELECT count(*) FROM orders WHERE price > $1", &[21]),
            bind("", "", &[Some(&small)], (1, 0)),
            execute("", 0),
            sync(),
        ],
    );
    assert_eq!(found.value(), "2");
}

#[test]
fn a_portal_returns_rows_in_parts() {
    let server = server();
    let mut client = server.session_postgres(&[]);
    client.query("BEGIN");
    let begun = send(
        &mut client,
        &[
            parse("", "SELECT user FROM orders", &[]),
            bind("p", "", &[], (0, 0)),
            execute("p", 2),
            sync(),
        ],
    );
    assert_eq!((begun.rows.len(), begun.others.as_str(), begun.status), (2, "12s", 'T'));
    let rest = send(&mut client, &[execute("p", 2), execute("p", 2), sync()]);
    assert_eq!(
        (rest.rows.len(), rest.tags),
        (1, vec!["SELECT 1".to_owned(), "SELECT 0".to_owned()])
    );
    send(
        &mut client,
        &[
            bind("q", "", &[], (0, 0)),
            parse("a", "CLOSE p", &[]),
            bind("c", "a", &[], (0, 0)),
            sync(),
        ],
    );
    assert_eq!(send(&mut client, &[execute("c", 0), sync()]).tags, ["CLOSE CURSOR"]);
    assert_eq!(send(&mut client, &[execute("p", 2), sync()]).code(), "34000");
    client.query("COMMIT");
    assert_eq!(send(&mut client, &[execute("q", 2), sync()]).code(), "34000");
    // What a pool of asyncpg sends before it gives a connection to somebody else.
    let reset = "SELECT pg_advisory_unlock_all();\nCLOSE ALL;\nUNLISTEN *;\nRESET ALL;";
    let done = client.query(reset);
    assert_eq!(done.tags, ["SELECT 1", "CLOSE CURSOR ALL", "UNLISTEN", "RESET"], "{done:?}");
}

#[test]
fn after_an_error_messages_are_skipped_up_to_sync() {
    let server = server();
    let mut client = server.session_postgres(&[]);
    let failed = send(
        &mut client,
        &[
            parse("a", "SELECT nothing", &[]),
            bind("", "a", &[], (0, 0)),
            execute("", 0),
            parse("b", "SELECT 1", &[]),
            sync(),
        ],
    );
    assert_eq!((failed.code(), failed.error(b'P'), failed.errors.len()), ("42703", "8", 1));
    let missing = send(&mut client, &[bind("", "b", &[], (0, 0)), execute("", 0), sync()]);
    assert_eq!(missing.code(), "26000");
    // An error arrives before the client asks for it, and a Flush behind it is skipped.
    client
        .send(&[parse("", "SELECT nothing", &[]), frame(b'D', b"S\0"), frame(b'H', b"")].concat());
    let message = (0..2).find_map(|_| match client.message() {
        Some(PgWireBackendMessage::ErrorResponse(error)) => Some(error),
        _ => None,
    });
    assert!(message.is_some_and(|error| error.fields.contains(&(b'C', "42703".to_owned()))));
    client.send(&sync());
    assert_eq!(client.reply().status, 'I');
    // Groups of messages may be sent without waiting.
    let mut many = Vec::new();
    for number in 0..50 {
        many.extend([
            parse("", &format!("SELECT {number}"), &[]),
            bind("", "", &[], (0, 0)),
            execute("", 0),
            sync(),
        ]);
    }
    client.send(&many.concat());
    for number in 0..50 {
        assert_eq!(client.reply().value(), number.to_string());
    }
}

#[test]
fn what_a_bind_lacks_is_an_error() {
    let server = server();
    let mut client = server.session_postgres(&[]);
    send(
        &mut client,
        &[parse("s", "SELECT price FROM orders WHERE ts = $1 AND price < $2", &[]), sync()],
    );
    let bound = |client: &mut PgClient, values: &[Option<&[u8]>]| {
        send(client, &[bind("", "s", values, (0, 0)), execute("", 0), sync()])
    };
    assert_eq!(bound(&mut client, &[None]).code(), "08P01");
    let wrong = bound(&mut client, &[Some(b"today"), None]);
    assert_eq!((wrong.code(), wrong.error(b'D')), ("42804", "The value belongs to parameter $1."));
    assert_eq!(bound(&mut client, &[None, Some(b"x")]).code(), "22P02");
    assert_eq!(bound(&mut client, &[None, None]).tags, ["SELECT 0"]);
    let several = send(&mut client, &[parse("", "SELECT 1; SELECT 2", &[]), sync()]);
    assert_eq!(several.code(), "42601");
    assert_eq!(send(&mut client, &[parse("s", "SELECT 1", &[]), sync()]).code(), "42P05");
    assert_eq!(run(&mut client, "SELECT $0", &[]).code(), "22023");
}

#[test]
fn a_deployment_takes_parameters() {
    let server = server();
    let mut client = server.session_postgres(&[]);
    let sql = "SELECT spent, user FROM total(user => $1, price => $2, ts => $3)";
    send(&mut client, &[parse("d", sql, &[]), sync()]);
    for price in [1.0_f64, 2.5] {
        let bytes = price.to_be_bytes();
        let ts = (2_000_000_i64 - 946_684_800_000_000).to_be_bytes();
        let values: [Option<&[u8]>; 3] = [Some(b"ann"), Some(&bytes), Some(&ts)];
        let found = send(
            &mut client,
            &[bind("", "d", &values, (1, 1)), describe("P", ""), execute("", 0), sync()],
        );
        let spent = (1.5 + price).to_be_bytes().to_vec();
        assert_eq!(found.rows, [[Some(spent), Some(b"ann".to_vec())]], "{found:?}");
        assert_eq!(found.tags, ["SELECT 1"]);
    }
    // A deployment that was replaced has other columns.
    let session = server.database.session();
    session
        .execute("DROP DEPLOYMENT total; DEPLOY total AS SELECT user, 1 AS spent FROM orders")
        .unwrap();
    let found =
        run(&mut client, "SELECT spent FROM total($1, $2, $3)", &["ann", "1", "1970-01-01"]);
    assert_eq!(found.value(), "1");
}

#[test]
fn a_replaced_deployment_has_the_types_that_were_described_or_is_refused() {
    let server = server();
    let mut client = server.session_postgres(&[]);
    let call = "SELECT * FROM total(user => 'ann', price => 2, ts => 2000)";
    let columns = |client: &mut PgClient, messages: &[Vec<u8>]| {
        send(client, messages).columns.iter().map(|(_, number)| *number).collect::<Vec<_>>()
    };
    let prepared = [parse("s", call, &[]), describe("S", "s"), sync()];
    assert_eq!(columns(&mut client, &prepared), [25, 701]);
    let replace = |select: &str| {
        let sql = format!(
            "DEPLOY OR REPLACE total AS SELECT {select} FROM orders WINDOW w AS (PARTITION BY \
             user ORDER BY ts ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW)"
        );
        server.session_postgres(&[]).query(&sql)
    };
    for select in ["user, count(price) OVER w AS spent", "user", "user, sum(price) OVER w AS s, ts"]
    {
        replace(select);
        let bound = [bind("", "s", &[], (0, 1)), execute("", 0), sync()];
        let refused = send(&mut client, &bound);
        assert_eq!(refused.code(), "0A000", "{select}: {refused:?}");
        assert_eq!(refused.error(b'M'), "cached plan must not change result type");
        assert_eq!(refused.error(b'R'), "RevalidateCachedQuery");
    }
    replace("user, sum(price) OVER w AS spent");
    // Parse, bind and describe are answered before the deployment is replaced.
    let unnamed =
        [parse("", call, &[]), bind("p", "", &[], (0, 1)), describe("P", "p"), frame(b'H', b"")];
    client.send(&unnamed.concat());
    for _ in 0..3 {
        client.message().unwrap();
    }
    replace("user, count(price) OVER w AS spent");
    assert_eq!(send(&mut client, &[execute("p", 0), sync()]).code(), "0A000");
    replace("user, sum(price) OVER w AS spent");
    let found = send(&mut client, &[bind("", "s", &[], (0, 1)), execute("", 0), sync()]);
    assert_eq!(found.rows[0][1], Some(3.5_f64.to_be_bytes().to_vec()));
}

#[test]
fn rows_are_copied_in_and_out() {
    let server = server();
    let mut client = server.session_postgres(&[]);
    assert_eq!(client.query("COPY orders (user, ts, price) FROM STDIN").status, 'G');
    let mut data = Vec::new();
    for part in ["eve\t1970-01-01 00:00:05\t5.5\nfa", "y\\tx\t\\N\t\\N\n\\.\n"] {
        data.extend(frame(b'd', part.as_bytes()));
    }
    data.extend(frame(b'c', b""));
    client.send(&data);
    let done = client.reply();
    assert_eq!((done.tags, done.status), (vec!["COPY 2".to_owned()], 'I'));
    let out = client
        .query("COPY (SELECT user, price, ts FROM orders WHERE ts IS NULL OR price > 5) TO STDOUT");
    let text = String::from_utf8(out.copied).unwrap();
    assert_eq!(text, "eve\t5.5\t1970-01-01 00:00:05+00\nfay\\tx\t\\N\t\\N\n");
    assert_eq!(out.tags, ["COPY 2"]);
    let csv = client.query("COPY orders (user, price) TO STDOUT WITH (FORMAT csv, HEADER)");
    assert!(csv.copied.starts_with(b"user,price\nann,1.5\nbob,\n"), "{:?}", csv.copied);
    // What was written in the binary format is read again.
    let binary = client.query("COPY orders TO STDOUT (FORMAT binary)");
    client.query("CREATE TABLE other (user STRING, price DOUBLE, ts TIMESTAMP)");
    let begun = client.query("COPY other FROM STDIN (FORMAT binary)");
    assert_eq!((begun.status, begun.others.as_str()), ('G', "B"));
    let parts = binary.copied.chunks(7).map(|part| frame(b'd', part));
    client.send(&parts.chain([frame(b'c', b"")]).collect::<Vec<_>>().concat());
    assert_eq!(client.reply().tags, ["COPY 5"]);
    let sum = |client: &mut PgClient, table: &str| {
        client.query(&format!("SELECT sum(price) FROM {table}")).value().to_owned()
    };
    assert_eq!(sum(&mut client, "other"), sum(&mut client, "orders"));
}

#[test]
fn a_copy_that_fails_leaves_the_session_as_it_was() {
    let server = server();
    let mut client = server.session_postgres(&[]);
    let copy = |client: &mut PgClient, end: Vec<u8>, data: &str| {
        assert_eq!(client.query("COPY orders FROM STDIN CSV").status, 'G');
        client.send(&[frame(b'd', data.as_bytes()), end].concat());
        client.reply()
    };
    let wrong = copy(&mut client, frame(b'c', b""), "a,1,1970-01-01\nb,x,1970-01-01\n");
    assert_eq!(wrong.code(), "22P02");
    assert_eq!(wrong.error(b'D'), "COPY orders, line 2, column `price`");
    let few = copy(&mut client, frame(b'c', b""), "a,1\n");
    assert_eq!((few.code(), few.error(b'M')), ("22P04", "missing data for column `ts`"));
    let given_up = copy(&mut client, frame(b'f', b"no more\0"), "a,1,1970-01-01\n");
    assert_eq!(
        (given_up.code(), given_up.error(b'M')),
        ("57014", "COPY from stdin failed: no more")
    );
    assert_eq!(client.query("SELECT count(*) FROM orders").value(), "3");
    for (sql, code) in [
        ("COPY nothing FROM STDIN", "42P01"),
        ("COPY orders (nothing) FROM STDIN", "42703"),
        ("COPY orders FROM '/etc/passwd'", "0A000"),
        ("COPY (SELECT x FROM orders) TO STDOUT", "42703"),
    ] {
        assert_eq!(client.query(sql).code(), code, "{sql}");
    }
}

#[test]
fn a_copy_is_cancelled_and_is_in_the_list_of_sessions() {
    let server = server();
    let mut client = server.session_postgres(&[]);
    let (process, secret) = client.key.unwrap();
    client.send(&frame(b'Q', &texts(&["COPY orders FROM STDIN"])));
    assert_eq!(client.reply().status, 'G');
    client.send(&frame(b'd', b"dan\t1\t1970-01-01 00:00:04+00\n"));
    let running = server.session_postgres(&[]).query(
        "SELECT running FROM lockstep.sessions WHERE running LIKE 'COPY%' AND NOT in_process",
    );
    assert_eq!(running.value(), "COPY orders FROM STDIN", "{running:?}");
    let body = [process.to_be_bytes(), secret.to_be_bytes()].concat();
    let mut canceller = server.connect_postgres();
    canceller.send(&packet(80_877_102, &body));
    assert!(canceller.message().is_none());
    client.send(&frame(b'd', b"eve\t1\t1970-01-01 00:00:04+00\n"));
    client.send(&frame(b'c', b""));
    let ended = client.reply();
    assert_eq!((ended.code(), ended.status), ("57014", 'I'), "{ended:?}");
    assert_eq!(client.query("SELECT count(*) FROM orders").value(), "3");
    let running = client.query("SELECT count(*) FROM lockstep.sessions WHERE running LIKE 'COPY%'");
    assert_eq!(running.value(), "0");
}

#[test]
fn many_rows_are_copied_and_read_in_parts() {
    let server = TestServer::start(&[], "CREATE TABLE n (a BIGINT, b STRING)");
    let mut client = server.session_postgres(&[]);
    assert_eq!(client.query("COPY n FROM STDIN").status, 'G');
    let rows = 200_000;
    for first in (0..rows).step_by(1_000) {
        let text: String =
            (first..first + 1_000).map(|n| format!("{n}\t{}\n", "x".repeat(60))).collect();
        client.send(&frame(b'd', text.as_bytes()));
    }
    client.send(&frame(b'c', b""));
    assert_eq!(client.reply().tags, [format!("COPY {rows}")]);
    let all = client.query("SELECT a FROM n");
    assert_eq!(all.rows.len(), rows);
    assert_eq!(all.tags, [format!("SELECT {rows}")]);
    assert_eq!(client.query("SELECT sum(a) FROM n").value(), "19999900000");
}

const FOLLOWED: &str = "
    CREATE TABLE t (a INT, b STRING);
    INSERT INTO t VALUES (1, 'x'), (2, NULL), (3, 'z');";

#[test]
fn a_subscription_is_taken_in_parts() {
    let server = TestServer::start(&[], FOLLOWED);
    let (mut client, mut writer) = (server.session_postgres(&[]), server.session_postgres(&[]));
    assert_eq!(client.query("BEGIN").status, 'T');
    let messages = [
        parse("s", "SUBSCRIBE TO t OPTIONS(start='earliest')", &[]),
        describe("S", "s"),
        bind("p", "s", &[], (0, 0)),
        execute("p", 2),
        sync(),
    ];
    let begun = send(&mut client, &messages);
    assert_eq!(begun.columns, [("a".to_owned(), 23), ("b".to_owned(), 25)]);
    assert_eq!(begun.texts(), [[Some("1"), Some("x")], [Some("2"), None]]);
    assert!(begun.others.ends_with('s') && begun.status == 'T', "{begun:?}");
    let more =
        |client: &mut PgClient, rows_max: i32| send(client, &[execute("p", rows_max), sync()]);
    assert_eq!(more(&mut client, 2).texts(), [[Some("3"), Some("z")]]);
    assert_eq!(writer.query("INSERT INTO t VALUES (4, 'w')").errors, [] as [Vec<_>; 0]);
    assert_eq!(more(&mut client, 1).texts(), [[Some("4"), Some("w")]]);
    // It waits for the next row.
    client.send(&[execute("p", 5), sync()].concat());
    writer.query("INSERT INTO t VALUES (5, 'v')");
    assert_eq!(client.reply().texts(), [[Some("5"), Some("v")]]);
    // Other statements run between.
    assert_eq!(run(&mut client, "SELECT count(*) AS n FROM t", &[]).value(), "5");
    writer.query("DROP TABLE t");
    let dropped = more(&mut client, 1);
    assert!(dropped.error(b'M').contains("was dropped"), "{dropped:?}");
    client.query("ROLLBACK");
    let missing = run(&mut client, "SUBSCRIBE TO t", &[]);
    assert_eq!((missing.code(), missing.error(b'P')), ("42P01", "14"), "{missing:?}");
}

#[test]
fn a_subscription_is_sent_as_rows_come_until_it_is_cancelled() {
    let server = TestServer::start(&[], FOLLOWED);
    let (mut client, mut writer) = (server.session_postgres(&[]), server.session_postgres(&[]));
    let statements: [Vec<u8>; 2] = [
        frame(b'Q', &texts(&["SUBSCRIBE TO t"])),
        [
            parse("", "SUBSCRIBE TO t", &[]),
            bind("", "", &[], (0, 0)),
            describe("P", ""),
            execute("", 0),
            sync(),
        ]
        .concat(),
    ];
    for (at, statement) in statements.into_iter().enumerate() {
        client.send(&statement);
        // It begins with the rows that come after it has answered.
        while !matches!(client.message(), Some(PgWireBackendMessage::RowDescription(_))) {}
        for row in 0..3 {
            writer.query(&format!("INSERT INTO t VALUES ({}, 'new')", 10 * at + row));
            match client.message() {
                Some(PgWireBackendMessage::DataRow(found)) => {
                    let expected = (10 * at + row).to_string();
                    assert_eq!(&found.data[4..4 + expected.len()], expected.as_bytes());
                }
                other => panic!("{other:?}"),
            }
        }
        let ended = cancel(&server, &mut client);
        assert_eq!((ended.code(), ended.status), ("57014", 'I'), "{ended:?}");
        assert_eq!(client.query("SELECT 1 AS a").value(), "1");
    }
}

#[test]
fn a_subscription_is_copied() {
    let server = TestServer::start(&[], FOLLOWED);
    let (mut client, mut writer) = (server.session_postgres(&[]), server.session_postgres(&[]));
    let copy = "COPY (SUBSCRIBE TO t OPTIONS(start='earliest')) TO STDOUT (FORMAT csv)";
    client.send(&frame(b'Q', &texts(&[copy])));
    assert!(matches!(client.message(), Some(PgWireBackendMessage::CopyOutResponse(_))));
    for expected in ["1,x\n", "2,\n", "3,z\n", "4,new\n"] {
        match client.message() {
            Some(PgWireBackendMessage::CopyData(found)) => assert_eq!(found.data, expected),
            other => panic!("{other:?}"),
        }
        if expected.starts_with('3') {
            writer.query("INSERT INTO t VALUES (4, 'new')");
        }
    }
    assert_eq!(cancel(&server, &mut client).code(), "57014");
}

/// Cancels what a client runs, and returns what it is told.
fn cancel(server: &TestServer, client: &mut PgClient) -> Reply {
    let (process, secret) = client.key.unwrap();
    let key = [process.to_be_bytes(), secret.to_be_bytes()].concat();
    let mut canceller = server.connect_postgres();
    canceller.send(&packet(80_877_102, &key));
    assert!(canceller.message().is_none());
    client.reply()
}
