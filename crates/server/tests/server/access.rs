//! Who may call the server and what: passwords, tokens, privileges, and what is refused.

use crate::support::{Reply, TestServer, get, post};
use lockstep_engine::Database;
use serde_json::json;

const SETUP: &str = "
    CREATE TABLE orders (user STRING NOT NULL, price DOUBLE, ts TIMESTAMP, INDEX(KEY=user, TS=ts));
    CREATE TABLE secrets (v INT);
    DEPLOY price AS SELECT user, price FROM orders;
    DEPLOY other AS SELECT ts FROM orders;
    CREATE USER ann OPTIONS(password='secret');
    GRANT EXECUTE ON DEPLOYMENT default.price TO ann;
    GRANT INSERT ON default.orders TO ann;";

const PRICE: &str = "/v1/deployments/price";

const ROW: &str = r#"["a",1.5,1]"#;

/// `ann:secret`.
const ANN: &str = "Basic YW5uOnNlY3JldA==";

/// `ann:wrong`.
const ANN_WRONG: &str = "Basic YW5uOndyb25n";

/// `eve:secret`, who does not exist.
const EVE: &str = "Basic ZXZlOnNlY3JldA==";

const USERS: &[(&str, &str)] = &[("server.authentication", "users")];

fn server() -> TestServer {
    TestServer::start(USERS, SETUP)
}

/// Calls as somebody; an empty text is nobody.
fn call(server: &TestServer, authorization: &str, path: &str, body: &str) -> Reply {
    let headers = [("Authorization", authorization)];
    let headers = if authorization.is_empty() { &[][..] } else { &headers[..] };
    server.send(post(path, body).with(headers))
}

fn sql(server: &TestServer, authorization: &str, sql: &str) -> Reply {
    call(server, authorization, "/v1/sql", &json!({"sql": sql}).to_string())
}

/// Makes a token of a user, as the header has it.
fn token_of(server: &TestServer, user: &str) -> String {
    let session = server.database.session();
    let made = session.execute(&format!("CREATE TOKEN t FOR {user}")).unwrap();
    let text = format!("{made:?}");
    let begin = text.find("lockstep_").unwrap();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let token: String = text[begin..].chars().take_while(|c| is_part(*c)).collect();
    format!("Bearer {token}")
}

#[test]
fn a_user_calls_what_it_may() {
    let server = server();
    assert_eq!(server.start_token, None, "somebody can log in");
    for authorization in [ANN.to_owned(), token_of(&server, "ann")] {
        let calls = |path: &str, body: &str| call(&server, &authorization, path, body).status;
        assert_eq!(call(&server, &authorization, PRICE, ROW).text(), r#"["a",1.5]"#);
        assert_eq!(calls(PRICE, &format!("[{ROW}]")), 200);
        assert_eq!(calls("/v1/tables/orders", ROW), 200);
        assert_eq!(calls("/v1/deployments/other", ROW), 403);
        assert_eq!(calls("/v1/deployments/none", ROW), 403, "what is hidden may not be there");
        assert_eq!(calls("/v1/tables/secrets", "[1]"), 403);
        let refused = sql(&server, &authorization, "SELECT * FROM secrets");
        assert_eq!((refused.status, refused.code().as_str()), (403, "42501"));
        let hint = refused.json()["error"]["hint"].to_string();
        assert!(hint.contains("GRANT SELECT"), "{hint}");
        assert_eq!(sql(&server, &authorization, "SELECT 1").status, 200);
    }
}

#[test]
fn monitors_need_no_user_and_figures_do() {
    let server = server();
    for open in ["/healthz", "/readyz", "/openapi.json", "/"] {
        assert_eq!(server.send(get(open)).status, 200, "{open}");
    }
    assert_eq!(server.send(get("/metrics")).status, 401);
    call(&server, ANN, PRICE, ROW);
    let figures = server.send(get("/metrics").with(&[("Authorization", ANN)]));
    assert!(figures.text().contains("deployment=\"price\""), "{}", figures.text());
    assert!(figures.text().contains("table=\"default.orders\""), "{}", figures.text());
    assert!(!figures.text().contains("secrets"), "{}", figures.text());
}

/// Whoever guesses learns nothing of which users there are.
#[test]
fn all_wrong_proofs_have_one_answer() {
    let server = server();
    server.database.session().execute("CREATE USER keyless; CREATE ROLE analyst").unwrap();
    let mut answers = Vec::new();
    // `keyless:` and `analyst:` have no password.
    for wrong in [ANN_WRONG, EVE, "Basic a2V5bGVzczo=", "Basic YW5hbHlzdDo=", "Bearer lockstep_x"] {
        let reply = call(&server, wrong, PRICE, ROW);
        assert_eq!((reply.status, reply.code().as_str()), (401, "28P01"), "{wrong}");
        let mut error = reply.json()["error"].clone();
        error["request_id"].take();
        answers.push(error);
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{answers:?}");
    let nobody = call(&server, "", PRICE, ROW);
    assert_eq!((nobody.status, nobody.code().as_str()), (401, "28000"));
    let schemes = nobody.headers.iter().filter(|(name, _)| name == "www-authenticate");
    assert_eq!(schemes.count(), 2);
    assert_eq!(call(&server, "Digest x", PRICE, ROW).code(), "28000");
    assert_eq!(call(&server, ANN, PRICE, ROW).status, 200, "a right password waits its turn");
}

/// So many attempts at once would wait for too long: they are refused, right or wrong.
#[test]
fn who_guesses_on_is_refused() {
    let server = server();
    assert_eq!(call(&server, ANN, PRICE, ROW).status, 200);
    assert_eq!(call(&server, ANN_WRONG, PRICE, ROW).status, 401);
    let request = post(PRICE, ROW).with(&[("Authorization", EVE)]).bytes();
    let mut clients: Vec<_> = (0..250).map(|_| server.connect()).collect();
    for client in &mut clients {
        std::io::Write::write_all(client.stream.get_mut(), &request).unwrap();
    }
    // Which attempts have a turn depends on the threads; that most have none does not.
    let mut replies = clients.iter_mut().rev().filter_map(|client| client.reply());
    let refused = replies.find(|reply| reply.status != 401).unwrap();
    assert_eq!((refused.status, refused.code().as_str()), (429, "53300"));
    drop(clients);
    assert_eq!(call(&server, ANN, PRICE, ROW).status, 200, "who has logged in does not wait");
}

#[test]
fn what_is_revoked_is_gone_at_once() {
    let server = server();
    let root = server.database.session();
    let mut client = server.connect();
    let headers = [("Authorization", ANN)];
    let mut ask = || client.send(post(PRICE, ROW).with(&headers)).status;
    assert_eq!((ask(), ask()), (200, 200));
    root.execute("REVOKE EXECUTE ON DEPLOYMENT default.price FROM ann").unwrap();
    assert_eq!(ask(), 403);
    root.execute("GRANT EXECUTE ON DEPLOYMENT default.price TO ann").unwrap();
    assert_eq!(ask(), 200);
    root.execute("ALTER USER ann SET OPTIONS(password='other')").unwrap();
    assert_eq!(ask(), 401);
    root.execute("ALTER USER ann SET OPTIONS(password='secret')").unwrap();
    assert_eq!(ask(), 200);
    root.execute("DROP USER ann").unwrap();
    assert_eq!(ask(), 401);
}

#[test]
fn a_token_that_was_dropped_is_refused() {
    let server = server();
    let token = token_of(&server, "ann");
    assert_eq!(call(&server, &token, PRICE, ROW).status, 200);
    server.database.session().execute("DROP TOKEN t FOR ann").unwrap();
    assert_eq!(call(&server, &token, PRICE, ROW).status, 401);
}

#[test]
fn a_deployment_that_is_replaced_answers_in_its_new_form() {
    let server = server();
    let root = server.database.session();
    assert_eq!(call(&server, ANN, PRICE, ROW).text(), r#"["a",1.5]"#);
    root.execute("DROP DEPLOYMENT price").unwrap();
    assert_eq!(call(&server, ANN, PRICE, ROW).status, 404);
    root.execute("DEPLOY price AS SELECT price FROM orders").unwrap();
    assert_eq!(call(&server, ANN, PRICE, ROW).text(), "[1.5]");
}

#[test]
fn without_users_the_start_token_is_root_s() {
    let server = TestServer::start(USERS, "CREATE TABLE t (v INT)");
    let token = format!("Bearer {}", server.start_token.as_ref().unwrap());
    assert_eq!(sql(&server, "", "SELECT 1").status, 401);
    assert_eq!(sql(&server, &token, "SELECT * FROM t").status, 200);
    let set = "ALTER USER root SET OPTIONS(password='secret')";
    assert_eq!(sql(&server, &token, set).status, 200);
    // `root:secret`.
    assert_eq!(sql(&server, "Basic cm9vdDpzZWNyZXQ=", "SELECT * FROM t").status, 200);
    let again = TestServer::of(server.database.clone(), USERS);
    assert_eq!(again.start_token, None);
    assert_eq!(sql(&again, &token, "SELECT 1").status, 401, "it ended with its server");
}

#[test]
fn files_are_opened_in_listed_folders_only() {
    let folder = std::env::temp_dir().join(format!("lockstep-server-files-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("t.csv").into_os_string().into_string().unwrap();
    let out = format!("SELECT 1 AS a INTO OUTFILE '{path}'");
    let refused = TestServer::start(&[], "");
    let reply = sql(&refused, "", &out);
    assert_eq!((reply.status, reply.code().as_str()), (403, "42501"));
    let listed = [("server.file_folders", folder.to_str().unwrap())];
    let server = TestServer::start(&listed, "");
    assert_eq!(sql(&server, "", &out).status, 200);
    let outside = "SELECT 1 AS a INTO OUTFILE '/etc/lockstep.csv'";
    assert_eq!(sql(&server, "", outside).status, 403);
    std::fs::remove_dir_all(&folder).unwrap();
    let mut settings = lockstep_server::ServerSettings::default();
    settings.set("postgres.listen", "off").unwrap();
    settings.set("server.file_folders", &path).unwrap();
    let error = lockstep_server::RunningServer::start(Database::in_memory(), settings).unwrap_err();
    assert!(error.to_string().contains("server.file_folders"), "{error}");
}

#[test]
fn temporary_files_are_in_listed_folders_only() {
    let name = format!("lockstep-server-temporary-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(folder.join("in/deep")).unwrap();
    let folder = folder.canonicalize().unwrap();
    let set = |path: &str| format!("SET temp_directory = '{}{path}'", folder.display());
    let refused = TestServer::start(&[], "");
    let reply = sql(&refused, "", &set("/in"));
    assert_eq!((reply.status, reply.code().as_str()), (403, "42501"));
    assert!(reply.text().contains("server.temp_folders lists no directory"), "{}", reply.text());
    assert_eq!(sql(&refused, "", "SET temp_directory = ''").status, 200);
    let inside = folder.join("in").into_os_string().into_string().unwrap();
    let server = TestServer::start(&[("server.temp_folders", &inside)], "");
    for path in ["/in", "/in/deep"] {
        assert_eq!(sql(&server, "", &set(path)).status, 200, "{path}");
    }
    for path in ["", "/in/../in", "/in/missing"] {
        assert_ne!(sql(&server, "", &set(path)).status, 200, "{path}");
    }
    let global = set("").replace("SET", "SET GLOBAL");
    assert_eq!(sql(&server, "", &global).status, 403);
    std::fs::remove_dir_all(&folder).unwrap();
    let mut settings = lockstep_server::ServerSettings::default();
    settings.set("postgres.listen", "off").unwrap();
    settings.set("server.temp_folders", &inside).unwrap();
    let error = lockstep_server::RunningServer::start(Database::in_memory(), settings).unwrap_err();
    assert!(error.to_string().contains("server.temp_folders"), "{error}");
}

#[test]
fn sessions_and_the_audit_record_say_who_called() {
    let server = server();
    let headers =
        [("Authorization", ANN), ("User-Agent", "tests/1"), ("X-Request-Id", "request-7")];
    let body = json!({"sql": "SELECT * FROM secrets"}).to_string();
    assert_eq!(server.send(post("/v1/sql", &body).with(&headers)).status, 403);
    let sessions = server.database.sessions();
    let ann = sessions.iter().find(|session| session.user == "ann").unwrap();
    assert_eq!(ann.client.address.as_deref(), Some("127.0.0.1"));
    assert_eq!(ann.client.application.as_deref(), Some("tests/1"));
    assert_eq!(ann.client.protocol.as_deref(), Some("http"));
    let audit = "SELECT user_name FROM lockstep.audit WHERE request_id = 'request-7'";
    let rows = server.database.session().execute(audit).unwrap().row_count();
    assert!(rows >= 1, "{rows}");
}

#[test]
fn a_session_that_was_ended_logs_in_again() {
    let server = server();
    assert_eq!(sql(&server, ANN, "SELECT 1").status, 200);
    let ann = server.database.sessions().into_iter().find(|session| session.user == "ann");
    let kill = format!("KILL {}", ann.unwrap().id);
    server.database.session().execute(&kill).unwrap();
    assert_eq!(sql(&server, ANN, "SELECT 1").status, 503);
    assert_eq!(sql(&server, ANN, "SELECT 1").status, 200);
}

/// A request of one row has no session of its own: KILL of the session in which its deployment was
/// prepared ends it at the next call all the same.
#[test]
fn a_request_of_one_row_ends_with_its_session() {
    let server = server();
    let mut client = server.connect();
    let headers = [("Authorization", ANN)];
    let mut ask = || client.send(post(PRICE, ROW).with(&headers)).status;
    assert_eq!((ask(), ask()), (200, 200));
    let ann = server.database.sessions().into_iter().find(|session| session.user == "ann");
    server.database.session().execute(&format!("KILL {}", ann.unwrap().id)).unwrap();
    assert_eq!((ask(), ask()), (503, 200), "it ends once, and the client logs in again");
}

/// A monitor asks often, and must not fill the audit record.
#[test]
fn figures_are_not_audited() {
    let server = server();
    let headers = [("Authorization", ANN)];
    let figures = || server.send(get("/metrics").with(&headers)).status;
    assert_eq!(figures(), 200);
    let events = || {
        let session = server.database.session();
        session.execute("SELECT * FROM lockstep.audit").unwrap().row_count()
    };
    let before = events();
    assert_eq!((figures(), figures()), (200, 200));
    assert_eq!(events(), before);
}
