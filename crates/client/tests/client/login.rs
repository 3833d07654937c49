//! Logging in: passwords, tokens, privileges, TLS, and servers that are not there.

use lockstep_client::RemoteClient;

use crate::support::{TestServer, rows};

const USERS: &str = "
    CREATE TABLE t (a INT); INSERT INTO t VALUES (1);
    CREATE USER ann OPTIONS(password='p@ss'); GRANT SELECT ON TABLE t TO ann;
    CREATE USER bob OPTIONS(password='secret');
";

fn server() -> TestServer {
    TestServer::start(&[("server.authentication", "users")], USERS)
}

#[test]
fn a_user_has_its_privileges_and_no_more() {
    let server = server();
    let ann = RemoteClient::connect(&server.url("ann:p%40ss@", "")).unwrap();
    assert_eq!(rows(&ann, "SELECT a FROM t"), "1");
    assert_eq!(ann.execute("DELETE FROM t WHERE a = 1", None).unwrap_err().code, "42501");
    let bob = RemoteClient::connect(&server.url("bob:secret@", "")).unwrap();
    assert_eq!(bob.execute("SELECT a FROM t", None).unwrap_err().code, "42501");
    // What is revoked holds for the next call.
    server.database.session().execute("REVOKE SELECT ON TABLE t FROM ann").unwrap();
    assert_eq!(ann.execute("SELECT a FROM t", None).unwrap_err().code, "42501");
    server.database.session().execute("DROP USER ann").unwrap();
    assert!(ann.execute("SELECT 1", None).unwrap_err().code.starts_with("28"));
}

#[test]
fn wrong_proofs_are_refused_with_one_error() {
    let server = server();
    let code = |login: &str| RemoteClient::connect(&server.url(login, "")).unwrap_err().code;
    assert_eq!(code("ann:wrong@"), "28P01");
    assert_eq!(code("nobody:wrong@"), "28P01");
    assert_eq!(code(""), "28000");
    let forged = format!("?token=lockstep_session_{}", "A".repeat(43));
    assert_eq!(RemoteClient::connect(&server.url("", &forged)).unwrap_err().code, "28000");
}

#[test]
fn tokens_log_in_and_handles_are_their_users() {
    let server = server();
    let setup = server.database.session();
    let made = setup.execute("CREATE TOKEN app FOR ann").unwrap();
    let token = format!("{:?}", made.batches);
    let token = token.split('"').find(|part| part.starts_with("lockstep_")).unwrap();
    let ann = RemoteClient::connect(&server.url("", &format!("?token={token}"))).unwrap();
    assert_eq!(rows(&ann, "SELECT a FROM t"), "1");
    let fresh = TestServer::start(&[("server.authentication", "users")], "");
    let start = fresh.start_token.clone().unwrap();
    let root = RemoteClient::connect(&fresh.url("", &format!("?token={start}"))).unwrap();
    assert_eq!(rows(&root, "SELECT 1 AS a"), "1");
}

/// The token of a session stands for the password that was sent for it.
#[test]
fn a_session_ends_when_its_password_is_changed() {
    let server = server();
    let root = server.database.session();
    let made = root.execute("CREATE TOKEN app FOR ann").unwrap();
    let token = format!("{:?}", made.batches);
    let token = token.split('"').find(|part| part.starts_with("lockstep_")).unwrap();
    let by_token = RemoteClient::connect(&server.url("", &format!("?token={token}"))).unwrap();
    let ann = RemoteClient::connect(&server.url("ann:p%40ss@", "")).unwrap();
    let bob = RemoteClient::connect(&server.url("bob:secret@", "")).unwrap();
    root.execute("CREATE USER eve; GRANT SELECT ON TABLE t TO eve").unwrap();
    assert_eq!(rows(&ann, "SELECT a FROM t"), "1", "other users have changed");
    for change in ["password='other'", "password=''"] {
        let ann = RemoteClient::connect(&server.url("ann:p%40ss@", "")).unwrap();
        root.execute(&format!("ALTER USER ann SET OPTIONS({change})")).unwrap();
        let ended = ann.execute("SELECT 1", None).unwrap_err();
        assert_eq!(ended.code, "28000", "{ended:?}");
        assert_eq!(ended.message, "the password of user `ann` was changed");
        root.execute("ALTER USER ann SET OPTIONS(password='p@ss')").unwrap();
    }
    assert_eq!(ann.execute("SELECT 1", None).unwrap_err().code, "28000");
    assert_eq!(rows(&by_token, "SELECT a FROM t"), "1", "its token is as it was");
    assert_eq!(rows(&bob, "SELECT 1 AS a"), "1");
}

#[test]
fn a_session_that_was_ended_is_an_error() {
    let server = server();
    let ann = RemoteClient::connect(&server.url("ann:p%40ss@", "")).unwrap();
    let session = server.database.session();
    assert!(server.database.sessions().iter().any(|info| info.user == "ann"));
    for info in server.database.sessions().iter().filter(|info| info.user == "ann") {
        session.execute(&format!("KILL {}", info.id)).unwrap();
    }
    assert_eq!(ann.execute("SELECT 1", None).unwrap_err().code, "57P01");
    // KILL has ended what the server had kept of the login, too: the next attempt is verified again.
    let connect = || RemoteClient::connect(&server.url("ann:p%40ss@", ""));
    assert_eq!(connect().unwrap_err().code, "57P01");
    let other = connect().unwrap();
    other.close().unwrap();
    other.close().unwrap();
    assert_eq!(other.execute("SELECT 1", None).unwrap_err().code, "08003");
}

#[test]
fn sessions_are_limited() {
    let server = TestServer::start(&[("flight.sessions_max", "2")], "");
    let (first, _second) = (server.connect(), server.connect());
    assert_eq!(RemoteClient::connect(&server.url("", "")).unwrap_err().code, "53300");
    first.close().unwrap();
    assert!(RemoteClient::connect(&server.url("", "")).is_ok());
}

#[test]
fn a_connection_is_encrypted_and_the_certificate_is_checked() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../server/tests/server/certificate");
    let (certificate, key) = (format!("{folder}/certificate.pem"), format!("{folder}/key.pem"));
    let settings = [("tls.certificate", certificate.as_str()), ("tls.key", key.as_str())];
    let server = TestServer::start(&settings, "");
    let port = server.address.port();
    let url = |rest: &str| format!("lockstep://localhost:{port}{rest}");
    let client = RemoteClient::connect(&url(&format!("?ca={certificate}"))).unwrap();
    assert_eq!(rows(&client, "SELECT 1 AS a"), "1");
    let other = RemoteClient::connect(&url("?tls=true")).unwrap_err();
    assert!(["08001", "58P01"].contains(&other.code), "{other:?}");
    assert_eq!(RemoteClient::connect(&url("")).unwrap_err().code, "08001");
    let missing = RemoteClient::connect(&url("?ca=/nowhere.pem")).unwrap_err();
    assert_eq!(missing.code, "58P01");
}

#[test]
fn a_server_that_is_not_there_is_said_so() {
    let server = TestServer::start(&[], "");
    let (url, client) = (server.url("", ""), server.connect());
    drop(server);
    let error = RemoteClient::connect(&url).unwrap_err();
    assert_eq!(error.code, "08001");
    assert!(error.message.contains("cannot connect to lockstep://127.0.0.1"), "{error:?}");
    let error = client.execute("SELECT 1", None).unwrap_err();
    assert!(["08006", "08001"].contains(&error.code), "{error:?}");
}
