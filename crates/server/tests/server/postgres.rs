//! PostgreSQL's protocol: startup, logging in, scripts, settings, transactions and cancelling.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use lockstep_engine::Database;
use sha2::{Digest, Sha256};

use crate::{
    postgres_client::{PgClient, Reply, frame, packet, startup, texts},
    support::{TestServer, get},
};

const SETUP: &str = "
    CREATE TABLE orders (user STRING NOT NULL, price FLOAT, ts TIMESTAMP, INDEX(KEY=user, TS=ts));
    INSERT INTO orders VALUES ('ann', 1.5, 1000), ('bob', NULL, 2000);
    DEPLOY total AS SELECT user, sum(price) OVER w AS spent, ts FROM orders WINDOW w AS
        (PARTITION BY user ORDER BY ts ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW);";

const USERS: &[(&str, &str)] = &[("server.authentication", "users")];

fn server() -> TestServer {
    TestServer::start(&[], SETUP)
}

#[test]
fn a_session_begins_with_what_clients_follow() {
    let server = server();
    let mut client =
        server.session_postgres(&[("application_name", "tests"), ("client_encoding", "utf-8")]);
    let setting = |name: &str| {
        let found = client.settings.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_else(|| panic!("{name}"))
    };
    assert!(setting("server_version").starts_with("16.0 (Lockstep "));
    for (name, value) in [
        ("application_name", "tests"),
        ("client_encoding", "UTF8"),
        ("DateStyle", "ISO, MDY"),
        ("integer_datetimes", "on"),
        ("server_encoding", "UTF8"),
        ("session_authorization", "root"),
        ("standard_conforming_strings", "on"),
        ("TimeZone", "UTC"),
    ] {
        assert_eq!(setting(name), value, "{name}");
    }
    assert!(client.key.is_some());
    let sessions = client.query(
        "SELECT user_name, protocol, application FROM lockstep.sessions WHERE NOT in_process",
    );
    assert_eq!(sessions.texts(), [[Some("root"), Some("postgresql"), Some("tests")]]);
    client.send(&frame(b'X', b""));
    assert!(client.message().is_none());
}

#[test]
fn options_and_the_database_of_the_startup_packet_hold() {
    let server =
        TestServer::start(&[], "CREATE DATABASE shop; USE shop; CREATE TABLE goods (a INT)");
    let options = [("database", "shop"), ("options", "-c TimeZone=Asia/Kolkata -c jit=on")];
    let mut client = server.session_postgres(&options);
    assert_eq!(client.query("SELECT count(*) FROM goods").value(), "0");
    assert_eq!(client.query("SHOW TimeZone").value(), "Asia/Kolkata");
    assert_eq!(client.query("SELECT current_database()").value(), "shop");
    assert_eq!(
        client.query("SELECT TIMESTAMP('2020-01-01 00:00:00')").value(),
        "2020-01-01 00:00:00+05:30"
    );
    let mut missing = server.connect_postgres();
    missing.send(&startup(&[("user", "ann"), ("database", "nothing")]));
    assert_eq!(missing.reply().code(), "3D000");
    assert!(missing.message().is_none());
}

#[test]
fn encryption_is_refused_where_there_is_no_certificate() {
    let server = server();
    let mut client = server.connect_postgres();
    for code in [80_877_103, 80_877_104] {
        client.send(&packet(code, b""));
        let mut answer = [0];
        std::io::Read::read_exact(&mut client.stream, &mut answer).unwrap();
        assert_eq!(&answer, b"N");
    }
    client.send(&startup(&[("user", "ann")]));
    assert_eq!(client.reply().status, 'I');
}

#[test]
fn a_later_version_is_negotiated_and_another_one_refused() {
    let server = server();
    let mut client = server.connect_postgres();
    client.send(&packet(196_610, b"user\0ann\0_pq_.x\0yes\0\0"));
    let message = client.message().unwrap();
    let pgwire::messages::PgWireBackendMessage::NegotiateProtocolVersion(version) = message else {
        panic!("{message:?}")
    };
    assert_eq!(version.newest_minor_protocol, 196_608);
    assert_eq!(version.unsupported_options, ["_pq_.x"]);
    assert_eq!(client.reply().status, 'I');
    let mut old = server.connect_postgres();
    old.send(&packet(131_072, b"user\0ann\0\0"));
    assert_eq!(old.reply().code(), "0A000");
}

fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let with = |mask: u8| block.map(|byte| byte ^ mask);
    let inner = Sha256::new().chain_update(with(0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(with(0x5c)).chain_update(inner).finalize().into()
}

/// Logs in by SCRAM-SHA-256, and checks the proof of the server.
pub(crate) fn scram(client: &mut PgClient, user: &str, password: &str) -> Reply {
    use pgwire::messages::{PgWireBackendMessage as Message, startup::Authentication};
    client.send(&startup(&[("user", user), ("database", "default")]));
    let message = client.message().unwrap();
    let Message::Authentication(Authentication::SASL(mechanisms)) = message else {
        panic!("{message:?}")
    };
    assert_eq!(mechanisms, ["SCRAM-SHA-256"]);
    let first = b"n,,n=,r=nonce";
    let length = i32::try_from(first.len()).unwrap().to_be_bytes();
    client.send(&frame(b'p', &[b"SCRAM-SHA-256\0", &length[..], first].concat()));
    let Message::Authentication(Authentication::SASLContinue(server_first)) =
        client.message().unwrap()
    else {
        panic!("the exchange goes on")
    };
    let server_first = std::str::from_utf8(&server_first).unwrap();
    let mut parts = server_first.split(',');
    let nonce = parts.next().unwrap().strip_prefix("r=").unwrap();
    let salt = STANDARD.decode(parts.next().unwrap().strip_prefix("s=").unwrap()).unwrap();
    let iterations: u32 = parts.next().unwrap().strip_prefix("i=").unwrap().parse().unwrap();
    assert!(nonce.starts_with("nonce") && nonce.len() > 20);
    let mut round = hmac(password.as_bytes(), &[&salt[..], &[0, 0, 0, 1]].concat());
    let mut salted = round;
    for _ in 1..iterations {
        round = hmac(password.as_bytes(), &round);
        salted.iter_mut().zip(round).for_each(|(byte, other)| *byte ^= other);
    }
    let client_key = hmac(&salted, b"Client Key");
    let unsigned = format!("c=biws,r={nonce}");
    let auth_message = format!("n=,r=nonce,{server_first},{unsigned}");
    let signature = hmac(&Sha256::digest(client_key), auth_message.as_bytes());
    let proof: Vec<u8> = client_key.iter().zip(signature).map(|(key, s)| key ^ s).collect();
    client.send(&frame(b'p', format!("{unsigned},p={}", STANDARD.encode(proof)).as_bytes()));
    let message = client.message().unwrap();
    let Message::Authentication(Authentication::SASLFinal(server_last)) = message else {
        let Message::ErrorResponse(error) = message else { panic!("{message:?}") };
        assert!(client.message().is_none(), "the connection ends");
        return Reply { errors: vec![error.fields], status: ' ', ..Reply::default() };
    };
    let expected = hmac(&hmac(&salted, b"Server Key"), auth_message.as_bytes());
    assert_eq!(server_last, format!("v={}", STANDARD.encode(expected)).as_bytes());
    client.reply()
}

#[test]
fn a_password_is_proved_by_scram() {
    let setup = "CREATE TABLE t (a INT); CREATE USER ann OPTIONS(password='secret'); GRANT SELECT ON default.t TO ann";
    let server = TestServer::start(USERS, setup);
    let mut client = server.connect_postgres();
    assert_eq!(scram(&mut client, "ann", "secret").status, 'I');
    assert_eq!(client.query("SELECT current_user").value(), "ann");
    assert_eq!(client.query("SELECT count(*) FROM t").value(), "0");
    assert_eq!(client.query("INSERT INTO t VALUES (1)").code(), "42501");
    for (user, password) in [("ann", "wrong"), ("eve", "secret"), ("root", "")] {
        let refused = scram(&mut server.connect_postgres(), user, password);
        assert_eq!(refused.code(), "28P01", "{user}");
        assert_eq!(refused.error(b'S'), "FATAL");
        assert_eq!(refused.error(b'M'), "authentication failed", "{user}");
    }
    server.database.session().execute("DROP USER ann").unwrap();
    assert_eq!(client.query("SELECT 1").code(), "28000");
    let ended = client.reply();
    assert_eq!((ended.code(), ended.error(b'S'), ended.status), ("28000", "FATAL", ' '));
}

#[test]
fn a_token_is_a_password_where_the_client_says_so() {
    let server = TestServer::start(USERS, SETUP);
    let token = server.start_token.clone().unwrap();
    let log_in = |user: &str, token: &str| {
        let mut client = server.connect_postgres();
        let options = [("user", user), ("options", "-c lockstep.authentication=token")];
        client.send(&startup(&options));
        client.send(&frame(b'p', &texts(&[token])));
        use pgwire::messages::{PgWireBackendMessage as Message, startup::Authentication};
        let message = client.message().unwrap();
        assert!(matches!(message, Message::Authentication(Authentication::CleartextPassword)));
        client.reply()
    };
    assert_eq!(log_in("root", "lockstep_wrong").code(), "28P01");
    assert_eq!(log_in("ann", &token).code(), "28P01");
    assert_eq!(log_in("root", &token).status, 'I');
}

#[test]
fn values_are_printed_as_postgresql_prints_them() {
    let server = server();
    let mut client = server.session_postgres(&[]);
    let found = client.query("SELECT user, price, ts FROM orders WHERE price IS NOT NULL");
    let columns = [("user", 25), ("price", 700), ("ts", 1184)].map(|(n, t)| (n.to_owned(), t));
    assert_eq!(found.columns, columns);
    assert_eq!(found.texts(), [[Some("ann"), Some("1.5"), Some("1970-01-01 00:00:01+00")]]);
    assert_eq!(found.tags, ["SELECT 1"]);
    let found = client
        .query("SELECT true AS a, NULL AS b, 1e20 AS c, 'x''y\\' AS d, DATE('2020-02-03') AS e");
    let expected = [Some("t"), None, Some("1e+20"), Some("x'y\\"), Some("2020-02-03")];
    assert_eq!(found.texts(), [expected]);
    assert_eq!(client.query("SELECT '7'::int + 1 AS a").value(), "8");
}

#[test]
fn a_script_has_an_answer_for_each_statement_up_to_an_error() {
    let server = server();
    let mut client = server.session_postgres(&[]);
    let sql = "CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2); SELECT a FROM t; DELETE FROM t WHERE a = 1;";
    let done = client.query(sql);
    assert_eq!(done.tags, ["CREATE TABLE", "INSERT 0 2", "SELECT 2", "DELETE 1"], "{done:?}");
    assert_eq!(client.query(" ; -- nothing\n").others, "I");
    let failed = client.query("SELECT 'é'; SELECT nothing FROM t; SELECT 2");
    assert_eq!(failed.tags, ["SELECT 1"]);
    assert_eq!((failed.code(), failed.error(b'P'), failed.status), ("42703", "20", 'I'));
    let failed = client.query("SELEC 1");
    assert_eq!((failed.code(), failed.error(b'P')), ("42601", "1"));
    let hinted = client.query("SELECT pric FROM orders");
    assert_eq!(hinted.error(b'H'), "Did you mean `price`?");
    assert_eq!(client.query("SELECT 'a").error(b'P'), "8");
}

#[test]
fn a_transaction_block_is_told_and_not_kept() {
    let server = TestServer::start(&[], "CREATE TABLE t (a INT)");
    let mut client = server.session_postgres(&[]);
    let begun = client.query("BEGIN");
    assert_eq!((begun.tags, begun.status, begun.notices.len()), (vec!["BEGIN".to_owned()], 'T', 1));
    assert_eq!(client.query("SAVEPOINT a; INSERT INTO t VALUES (1); RELEASE a").status, 'T');
    assert_eq!(client.query("SELECT x FROM t").status, 'E');
    let refused = client.query("SELECT 1");
    assert_eq!((refused.code(), refused.status), ("25P02", 'E'));
    let ended = client.query("COMMIT");
    assert_eq!((ended.tags, ended.status), (vec!["ROLLBACK".to_owned()], 'I'));
    assert!(ended.notices[0].contains("stay done"), "{:?}", ended.notices);
    assert_eq!(client.query("SELECT count(*) FROM t").value(), "1");
    assert_eq!(client.query("BEGIN").notices.len(), 0, "it was said once");
    let done = client.query("SELECT 1; COMMIT");
    assert_eq!((done.status, done.notices.len()), ('I', 0));
    assert!(client.query("ROLLBACK").notices[0].contains("no transaction"));
    assert_eq!(client.query("BEGIN; SELECT x; SELECT 2").status, 'E');
    assert_eq!(client.query("ROLLBACK TO SAVEPOINT a").status, 'T');
    assert_eq!(client.query("ROLLBACK").status, 'I');
}

#[test]
fn settings_of_postgresql_and_of_the_engine_are_set() {
    let server = server();
    let mut client = server.session_postgres(&[]);
    client.settings.clear();
    assert_eq!(client.query("SET TIME ZONE 'America/New_York'").tags, ["SET"]);
    assert_eq!(client.settings, [("TimeZone".to_owned(), "America/New_York".to_owned())]);
    assert_eq!(
        client.query("SELECT ts FROM orders WHERE price = 1.5").value(),
        "1969-12-31 19:00:01-05"
    );
    for (sql, tag) in [
        ("SET extra_float_digits = 3", "SET"),
        ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "SET"),
        ("SET statement_timeout TO '5s'", "SET"),
        ("SET compatibility = 'standard'", "SET"),
        ("SET application_name TO DEFAULT", "SET"),
        ("RESET ALL", "RESET"),
        ("DISCARD ALL", "DISCARD ALL"),
        ("DEALLOCATE ALL", "DEALLOCATE ALL"),
        ("UNLISTEN *", "UNLISTEN"),
        ("CLOSE ALL", "CLOSE CURSOR ALL"),
    ] {
        let done = client.query(sql);
        assert_eq!(done.tags, [tag], "{done:?}");
    }
    for (sql, code) in [
        ("SET client_encoding = 'latin1'", "22023"),
        ("SET nothing_like_it = 1", "42704"),
        ("SET x", "42601"),
        ("DEALLOCATE nothing", "26000"),
        ("CLOSE nothing", "34000"),
        ("CLOSE", "42601"),
        ("CLOSE ALL a", "42601"),
        ("DECLARE c CURSOR FOR SELECT 1", "0A000"),
    ] {
        assert_eq!(client.query(sql).code(), code, "{sql}");
    }
    assert_eq!(client.query("SHOW standard_conforming_strings").value(), "on");
    assert_eq!(client.query("SHOW TRANSACTION ISOLATION LEVEL").value(), "read committed");
    assert!(client.query("SHOW ALL").rows.len() > 20);
    assert!(client.query("SHOW TABLES").texts().concat().contains(&Some("orders")));
    let known = client.query("SELECT version() AS v, current_schema(), pg_backend_pid()");
    assert_eq!(known.columns[0].0, "v");
    assert!(known.texts()[0][0].unwrap().starts_with("PostgreSQL 16.0 (Lockstep"));
}

#[test]
fn parts_are_discarded_and_variables_are_shown() {
    let server = server();
    let mut client = server.session_postgres(&[]);
    for (sql, tag) in [
        ("DISCARD TEMP", "DISCARD TEMP"),
        ("DISCARD PLANS", "DISCARD PLANS"),
        ("DISCARD SEQUENCES", "DISCARD SEQUENCES"),
    ] {
        client.query("SET timezone = 'Asia/Tokyo'");
        assert_eq!(client.query(sql).tags, [tag]);
        assert_eq!(client.query("SHOW timezone").value(), "Asia/Tokyo", "{sql}");
    }
    for sql in ["DISCARD", "DISCARD everything", "DISCARD ALL now"] {
        assert_eq!(client.query(sql).code(), "42601", "{sql}");
    }
    assert_eq!(client.query("BEGIN; DISCARD ALL").code(), "25001");
    client.query("ROLLBACK");
    client.query("SET statement_timeout = '7s'");
    for (name, value) in [
        ("statement_timeout", "7s"),
        ("STATEMENT_TIMEOUT", "7s"),
        ("time_zone", "Asia/Tokyo"),
        ("durability", "none"),
        ("transaction_read_only", "off"),
    ] {
        assert_eq!(client.query(&format!("SHOW {name}")).value(), value, "{name}");
        let sql = format!("SELECT current_setting('{name}')");
        assert_eq!(client.query(&sql).value(), value, "{sql}");
    }
    assert_eq!(client.query("SELECT current_setting('a.b', true)").texts(), [[None]]);
    assert_eq!(client.query("SELECT current_setting('nothing_like_it')").code(), "42704");
}

#[test]
fn set_local_holds_until_the_block_ends() {
    let server = server();
    let mut client = server.session_postgres(&[]);
    let shown = |client: &mut PgClient| {
        let names = ["statement_timeout", "TimeZone", "application_name", "memory_limit"];
        names.map(|name| client.query(&format!("SHOW {name}")).value().to_owned())
    };
    client.query("SET statement_timeout = '9s'; SET application_name = 'before'");
    let before = shown(&mut client);
    for end in ["COMMIT", "ROLLBACK", "COMMIT AND CHAIN"] {
        client.query("BEGIN");
        client.query("SET LOCAL statement_timeout = '1s'; SET LOCAL statement_timeout = '2s'");
        client.query("SET LOCAL TIME ZONE 'Asia/Tokyo'; SET LOCAL memory_limit = '2GB'");
        client.query("SELECT set_config('application_name', 'inside', true)");
        assert_eq!(shown(&mut client), ["2s", "Asia/Tokyo", "inside", "2GB"]);
        client.settings.clear();
        client.query(end);
        assert!(client.settings.contains(&("TimeZone".to_owned(), "UTC".to_owned())), "{end}");
        assert_eq!(shown(&mut client), before, "{end}");
    }
    // SET in the block keeps its value, and after an error the block ends as well.
    client.query("SET LOCAL application_name = 'a'; SET application_name = 'kept'; SELECT x");
    client.query("ROLLBACK");
    assert_eq!(client.query("SHOW application_name").value(), "kept");
    let outside = client.query("SET LOCAL application_name = 'b'");
    assert_eq!((outside.notices.len(), outside.tags), (1, vec!["SET".to_owned()]));
    client.query("SELECT set_config('application_name', 'c', true)");
    assert_eq!(client.query("SHOW application_name").value(), "kept");
}

#[test]
fn a_chained_block_begins_another_one() {
    let server = TestServer::start(&[], "CREATE TABLE t (a INT)");
    let mut client = server.session_postgres(&[]);
    let refused = client.query("COMMIT AND CHAIN");
    assert_eq!((refused.code(), refused.status), ("25P01", 'I'));
    client.query("BEGIN READ ONLY");
    assert_eq!(client.query("COMMIT AND CHAIN").status, 'T');
    assert_eq!(client.query("SHOW transaction_read_only").value(), "on");
    assert_eq!(client.query("SELECT x").status, 'E');
    assert_eq!(client.query("ROLLBACK AND CHAIN").status, 'T');
    assert_eq!(client.query("ROLLBACK AND NO CHAIN").status, 'I');
    assert_eq!(client.query("COMMIT AND").code(), "42601");
}

#[test]
fn a_transaction_that_is_read_only_writes_nothing() {
    let server = TestServer::start(&[], "CREATE TABLE t (a INT); INSERT INTO t VALUES (1)");
    let mut client = server.session_postgres(&[]);
    for (begin, end) in [
        ("BEGIN READ ONLY", "ROLLBACK"),
        ("START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY", "ROLLBACK"),
        ("BEGIN; SET TRANSACTION READ ONLY", "ROLLBACK"),
        ("BEGIN; SET transaction_read_only = true", "ROLLBACK"),
        ("SET default_transaction_read_only = on", "RESET default_transaction_read_only"),
        (
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
        ),
    ] {
        for sql in [
            "INSERT INTO t VALUES (2)",
            "DELETE FROM t WHERE a = 1",
            "CREATE TABLE u (a INT)",
            "DEPLOY d AS SELECT a FROM t",
            "SET GLOBAL max_memory = '1GB'",
            "COPY t FROM STDIN",
        ] {
            client.query(begin);
            assert_eq!(client.query("SHOW transaction_read_only").value(), "on", "{begin}");
            let reads = client.query("SELECT a FROM t; SHOW TABLES; SET time_zone = 'UTC'; DESC t");
            assert!(reads.errors.is_empty(), "{begin}: {reads:?}");
            let refused = client.query(sql);
            assert_eq!(refused.code(), "25006", "{begin}: {sql}: {refused:?}");
            client.query(end);
        }
    }
    assert_eq!(client.query("SHOW transaction_read_only").value(), "off");
    assert_eq!(client.query("SHOW default_transaction_read_only").value(), "off");
    assert_eq!(client.query("BEGIN READ ONLY; SET TRANSACTION READ WRITE").status, 'T');
    assert_eq!(client.query("INSERT INTO t VALUES (2)").tags, ["INSERT 0 1"]);
    client.query("COMMIT");
    assert_eq!(client.query("SET TRANSACTION READ ONLY").notices.len(), 1);
    assert_eq!(client.query("INSERT INTO t VALUES (3)").tags, ["INSERT 0 1"]);
    let mut reader = server.session_postgres(&[("options", "-c default_transaction_read_only=on")]);
    assert_eq!(reader.query("INSERT INTO t VALUES (4)").code(), "25006");
    assert_eq!(reader.query("BEGIN READ WRITE; INSERT INTO t VALUES (4)").status, 'T');
    assert_eq!(reader.query("SELECT count(*) FROM t").value(), "4");
}

#[test]
fn a_parameter_of_a_script_has_no_value() {
    let server = server();
    let mut client = server.session_postgres(&[]);
    for sql in [
        "INSERT INTO orders (user) VALUES ($1)",
        "SELECT * FROM total('ann', $1, 2000)",
        "SELECT relname FROM pg_class WHERE oid = $1",
        "SELECT 1; SELECT $1",
    ] {
        let failed = client.query(sql);
        let at = (sql.find('$').unwrap() + 1).to_string();
        assert_eq!((failed.code(), failed.error(b'P')), ("42P02", at.as_str()), "{sql}");
        assert_eq!(failed.error(b'M'), "there is no parameter $1");
    }
    assert_eq!(client.query("SELECT '$1', $$a$$").rows.len(), 1);
}

#[test]
fn a_deployment_is_a_function() {
    let server = server();
    let mut client = server.session_postgres(&[]);
    for sql in [
        "SELECT * FROM total(user => 'ann', price => 2.25, ts => '1970-01-01 00:00:02')",
        "SELECT * FROM total('ann', 2.25, 2000)",
    ] {
        let found = client.query(sql);
        assert_eq!(
            found.texts(),
            [[Some("ann"), Some("3.75"), Some("1970-01-01 00:00:02+00")]],
            "{found:?}"
        );
        assert_eq!(found.tags, ["SELECT 1"]);
    }
    let chosen = client.query("SELECT spent AS s FROM default.total('ann', NULL, 2000) AS t");
    assert_eq!((chosen.value(), chosen.columns[0].0.as_str()), ("1.5", "s"));
    for (sql, code, position) in [
        ("SELECT * FROM totl('ann', 1, 2)", "42704", "15"),
        ("SELECT * FROM total('ann', 1)", "42703", "15"),
        ("SELECT * FROM total('ann', 'x', 2)", "22P02", "28"),
        ("SELECT spend FROM total('ann', 1, 2)", "42703", "8"),
        ("SELECT * FROM total(NULL, 1, 2)", "23502", ""),
    ] {
        let failed = client.query(sql);
        assert_eq!((failed.code(), failed.error(b'P')), (code, position), "{failed:?}");
    }
    let metrics = server.send(get("/metrics"));
    assert!(
        metrics.text().contains("lockstep_deployment_rows_total{deployment=\"total\"} 2\n"),
        "{}",
        metrics.text()
    );
    server
        .database
        .session()
        .execute("DROP DEPLOYMENT total; DEPLOY total AS SELECT price FROM orders")
        .unwrap();
    assert_eq!(client.query("SELECT * FROM total('ann', 7, 2)").value(), "7");
}

/// Makes a database with a query that lasts.
fn busy() -> (TestServer, &'static str) {
    let database = Database::in_memory();
    let session = database.session();
    session.execute("CREATE TABLE n (a INT)").unwrap();
    let rows: Vec<String> = (0..3_000).map(|number| format!("({number})")).collect();
    session.execute(&format!("INSERT INTO n VALUES {}", rows.join(","))).unwrap();
    let sql = "SELECT sum(x.a * y.a * z.a) FROM n x, n y, n z WHERE x.a + y.a <> z.a";
    (TestServer::of(database, &[]), sql)
}

/// Waits until the server runs a statement.
fn wait_until_running(server: &TestServer) {
    let is_running = || server.database.sessions().iter().any(|session| session.running.is_some());
    while !is_running() {
        std::thread::yield_now();
    }
}

#[test]
fn a_statement_is_cancelled_by_its_key() {
    let (server, sql) = busy();
    let mut client = server.session_postgres(&[]);
    let (process, secret) = client.key.unwrap();
    client.send(&frame(b'Q', &texts(&[sql])));
    wait_until_running(&server);
    let cancel = |secret: i32| {
        let body = [process.to_be_bytes(), secret.to_be_bytes()].concat();
        let mut canceller = server.connect_postgres();
        canceller.send(&packet(80_877_102, &body));
        assert!(canceller.message().is_none());
    };
    cancel(secret.wrapping_add(1));
    assert!(server.database.sessions().iter().any(|session| session.running.is_some()));
    cancel(secret);
    let reply = client.reply();
    assert_eq!((reply.code(), reply.status), ("57014", 'I'));
    assert_eq!(client.query("SELECT 1").value(), "1");
}

#[test]
fn a_statement_whose_client_has_gone_is_cancelled() {
    let (server, sql) = busy();
    let mut client = server.session_postgres(&[]);
    client.send(&frame(b'Q', &texts(&[sql])));
    wait_until_running(&server);
    drop(client);
    while !server.database.sessions().iter().all(|session| session.running.is_none()) {
        std::thread::yield_now();
    }
}

#[test]
fn a_server_that_drains_tells_its_clients() {
    let server = server();
    let mut client = server.session_postgres(&[]);
    assert_eq!(client.query("SELECT 1").status, 'I');
    server.handle.drain();
    let reply = client.reply();
    assert_eq!((reply.code(), reply.error(b'S'), reply.status), ("57P01", "FATAL", ' '));
    assert_eq!(server.wait(), lockstep_server::DrainOutcome::Finished);
}

#[test]
fn an_idle_connection_is_closed_and_a_slow_login_told() {
    let server = TestServer::start(
        &[("limits.idle_timeout_ms", "50"), ("limits.header_timeout_ms", "100")],
        "",
    );
    let mut idle = server.session_postgres(&[]);
    assert!(idle.message().is_none());
    let mut silent = server.connect_postgres();
    assert_eq!(silent.reply().code(), "08P01");
    let mut slow = server.session_postgres(&[]);
    slow.send(&[b'Q', 0, 0]);
    assert!(slow.message().is_none());
}

#[test]
fn connections_count_with_those_of_http() {
    let server = TestServer::start(&[("limits.connections_max", "2")], "");
    let _first = server.session_postgres(&[]);
    let _second = server.session_postgres(&[]);
    let mut third = server.connect_postgres();
    third.stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert!(third.message().is_none());
}
