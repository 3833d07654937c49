//! TLS: certificates of clients, logins that are bound to their connection, and old versions.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use lockstep_server::ServerSettings;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};

use crate::{
    postgres_client::{PgClient, packet, startup},
    support::{Client, TestServer, get, post},
};

const SETUP: &str = "CREATE TABLE t (v INT); CREATE USER ann; GRANT SELECT ON t TO ann;
    CREATE USER bob OPTIONS(password='secret');";

/// Returns the path of a file of certificates.
fn file(name: &str) -> String {
    format!("{}/tests/server/certificate/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Makes the settings of a server that takes certificates of clients.
fn settings(pairs: &[(&str, &str)]) -> ServerSettings {
    let mut settings = ServerSettings::default();
    for (key, value) in [
        ("tls.certificate", file("certificate.pem").as_str()),
        ("tls.key", &file("key.pem")),
        ("tls.client_ca", &file("client_ca.pem")),
    ]
    .iter()
    .chain(pairs)
    {
        settings.set(key, value).unwrap();
    }
    settings
}

fn server(pairs: &[(&str, &str)]) -> TestServer {
    let (certificate, key, ca) = (file("certificate.pem"), file("key.pem"), file("client_ca.pem"));
    let all = [
        ("server.authentication", "users"),
        ("tls.certificate", &certificate),
        ("tls.key", &key),
        ("tls.client_ca", &ca),
    ];
    TestServer::start(&[&all, pairs].concat(), SETUP)
}

type Encrypted = StreamOwned<ClientConnection, TcpStream>;

/// Begins TLS on a stream, with the certificate and key of a client by the begin of their names.
fn encrypt(stream: TcpStream, client: Option<&str>) -> Encrypted {
    let read = |name: &str| std::fs::read(file(name)).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&read("certificate.pem")).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match client {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let chain = CertificateDer::from_pem_slice(&read(&format!("{name}.pem"))).unwrap();
            let key = name.replace("client", "");
            let key = if key.is_empty() { "client_key.pem" } else { "other_key.pem" };
            let key = PrivateKeyDer::from_pem_slice(&read(key)).unwrap();
            builder.with_client_auth_cert(vec![chain], key).unwrap()
        }
    };
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
}

/// Returns the status and the body of a call of SQL; `None` where the server ends the connection.
fn call(address: SocketAddr, client: Option<&str>, login: &str) -> Option<(u16, String)> {
    let mut client = Client::new(encrypt(TcpStream::connect(address).unwrap(), client));
    let headers = [("Authorization", login)];
    let call = post("/v1/sql", r#"{"sql": "SELECT v FROM t"}"#);
    let call = if login.is_empty() { call } else { call.with(&headers) };
    client.stream.get_mut().write_all(&call.bytes()).ok()?;
    let reply = client.reply()?;
    Some((reply.status, reply.text().to_owned()))
}

fn status(address: SocketAddr, client: Option<&str>, login: &str) -> Option<u16> {
    call(address, client, login).map(|(status, _)| status)
}

/// `bob:secret`.
const BOB: &str = "Basic Ym9iOnNlY3JldA==";

#[test]
fn a_certificate_says_who_calls_over_http() {
    let server = server(&[]);
    let at = server.address;
    assert_eq!(status(at, Some("client"), ""), Some(200));
    assert_eq!(status(at, Some("client"), ""), Some(200), "the login is kept");
    assert_eq!(status(at, None, ""), Some(401), "another connection's is not");
    assert_eq!(status(at, Some("client"), BOB), Some(403), "a password is another user's");
    assert_eq!(status(at, Some("other_client"), ""), None, "nobody knows its authority");
    assert_eq!(status(at, None, BOB), Some(403));
    server.database.session().execute("DROP USER ann").unwrap();
    assert_eq!(status(at, Some("client"), ""), Some(401));
    // An alternative name of the certificate.
    let made = "CREATE USER `ann@example.com`; GRANT SELECT ON t TO `ann@example.com`";
    server.database.session().execute(made).unwrap();
    assert_eq!(status(at, Some("client"), ""), Some(200));
}

#[test]
fn a_certificate_may_be_required() {
    let server = server(&[("tls.client_certificates", "required")]);
    let at = server.address;
    assert_eq!(status(at, None, BOB), None);
    assert_eq!(status(at, Some("other_client"), BOB), None);
    assert_eq!(status(at, Some("client"), BOB), Some(403));
    assert_eq!(status(at, Some("client"), ""), Some(200));
}

/// Opens a session of PostgreSQL's protocol over TLS; returns what the server asks for.
fn session(server: &TestServer, client: Option<&str>, user: &str) -> (PgClient<Encrypted>, String) {
    let mut stream = TcpStream::connect(server.postgres).unwrap();
    stream.write_all(&packet(80_877_103, b"")).unwrap();
    let mut answer = [0];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"S");
    let mut client = PgClient::new(encrypt(stream, client));
    client.send(&startup(&[("user", user), ("database", "default")]));
    let first = format!("{:?}", client.message());
    (client, first)
}

#[test]
fn a_certificate_says_who_calls_over_postgresql() {
    let server = server(&[]);
    let (mut ann, first) = session(&server, Some("client"), "ann");
    assert!(first.contains("Authentication(Ok)"), "{first}");
    let reply = ann.reply();
    assert_eq!(reply.status, 'I', "{reply:?}");
    assert!(ann.query("SELECT v FROM t").errors.is_empty());
    // Another user than the certificate names, and no certificate: a password is needed.
    for (certificate, user) in [(Some("client"), "bob"), (None, "ann")] {
        let (_, first) = session(&server, certificate, user);
        assert!(first.contains("SCRAM-SHA-256-PLUS"), "{user}: {first}");
    }
}

/// The binding is offered over TLS only; the exchange itself is a test of `postgres::login` and of
/// psycopg's.
#[test]
fn logins_are_bound_over_tls_only() {
    let server = TestServer::start(&[("server.authentication", "users")], SETUP);
    let mut client = server.connect_postgres();
    client.send(&startup(&[("user", "bob")]));
    let first = format!("{:?}", client.message());
    assert!(first.contains("SCRAM-SHA-256") && !first.contains("PLUS"), "{first}");
}

/// Makes the first message of a client that offers a version of TLS, by its number.
fn client_hello(version: [u8; 2]) -> Vec<u8> {
    let suites = [0xc0, 0x2b, 0xc0, 0x2f, 0xc0, 0x09, 0xc0, 0x0a, 0xc0, 0x13, 0xc0, 0x14];
    let groups = [0, 10, 0, 6, 0, 4, 0, 29, 0, 23];
    let points = [0, 11, 0, 2, 1, 0];
    let schemes = [0, 13, 0, 6, 0, 4, 4, 3, 8, 4];
    let extensions = [&groups[..], &points, &schemes].concat();
    let length = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap().to_be_bytes();
    let body = [
        &version[..],
        &[7; 32],
        &[0],
        &length(&suites),
        &suites,
        &[1, 0],
        &length(&extensions),
        &extensions,
    ]
    .concat();
    let message = [&[1, 0][..], &length(&body), &body].concat();
    [&[22, 3, 1][..], &length(&message), &message].concat()
}

#[test]
fn old_versions_of_tls_are_refused() {
    let server = server(&[]);
    let answer = |version| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.write_all(&client_hello(version)).unwrap();
        let mut answer = [0; 7];
        stream.read_exact(&mut answer).unwrap();
        answer
    };
    // A fatal alert: the version.
    for version in [[3, 0], [3, 1], [3, 2]] {
        let found = answer(version);
        assert_eq!((found[0], &found[5..]), (21, &[2, 70][..]), "{version:?}: {found:?}");
    }
    // The same message with TLS 1.2 is answered with a handshake.
    assert_eq!(answer([3, 3])[0], 22);
}

#[test]
fn authorities_are_read_again() {
    let server = server(&[]);
    let at = server.address;
    assert_eq!(status(at, Some("other_client"), ""), None);
    let other = file("other_client.pem");
    server.handle.reload(settings(&[("tls.client_ca", &other)])).unwrap();
    // A certificate that is an authority of its own.
    assert_eq!(status(at, Some("client"), ""), None);
    let error = server.handle.reload(settings(&[("tls.client_ca", "/nowhere")])).unwrap_err();
    assert!(error.contains("/nowhere"), "{error}");
    server.handle.reload(settings(&[])).unwrap();
    assert_eq!(status(at, Some("client"), ""), Some(200));
}

#[test]
fn settings_of_clients_need_a_certificate_of_the_server() {
    let error = |pairs: &[(&str, &str)]| {
        let mut settings = ServerSettings::default();
        pairs.iter().for_each(|(key, value)| settings.set(key, value).unwrap());
        settings.validate().unwrap_err().to_string()
    };
    let ca = ("tls.client_ca", "ca.pem");
    assert!(error(&[ca]).contains("tls.client_ca requires tls.certificate"));
    let needed = [("tls.client_certificates", "required")];
    assert!(error(&needed).contains("requires tls.client_ca"));
    let other = server(&[]);
    let mut plain = other.connect();
    let sent = plain.stream.get_mut().write_all(&get("/healthz").bytes());
    assert!(sent.is_err() || plain.reply().is_none_or(|reply| reply.status != 200));
}
