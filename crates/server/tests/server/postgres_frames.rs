//! Bytes that are no PostgreSQL protocol: the server answers or closes, and goes on serving others.

use std::io::{Read, Write};

use crate::{
    postgres_client::{PgClient, frame, packet, startup, texts},
    support::TestServer,
};

fn server() -> TestServer {
    TestServer::start(&[("limits.body_bytes_max", "100000")], "CREATE TABLE t (a INT)")
}

/// Sends bytes and reads until the server closes, with nothing else from the client.
fn is_closed_after(client: &mut PgClient, bytes: &[u8]) -> bool {
    // The server may have closed before everything was sent.
    let _sent = client.stream.write_all(bytes);
    let _shut = client.stream.shutdown(std::net::Shutdown::Write);
    let mut rest = Vec::new();
    // A reset is a close, too.
    client.stream.read_to_end(&mut rest).map_or(true, |_| true)
}

fn is_serving(server: &TestServer) -> bool {
    let mut client = server.session_postgres(&[]);
    loop {
        let reply = client.query("SELECT 1");
        // What was cancelled may still wait for a thread.
        if reply.errors.is_empty() || reply.code() != "53300" {
            return reply.value() == "1";
        }
    }
}

#[test]
fn packets_before_a_session_are_checked() {
    let server = server();
    let begin = startup(&[("user", "ann")]);
    for bytes in [
        &b""[..],
        b"\0",
        b"\0\0\0\x03",
        b"\0\0\0\x04",
        b"\0\0\0\x08\0\0",
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff\0\0\0\0",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\0\x05hello",
        &packet(196_608, b""),
        &packet(196_608, b"user\0ann"),
        &packet(196_608, b"user\0ann\0\0trailing"),
        &packet(196_608, b"\xff\0\xfe\0\0"),
        &packet(196_608, b"\0"),
        &packet(80_877_102, b"\0\0"),
        &packet(0, b""),
        &packet(80_877_104, b"").repeat(9),
        &begin[..begin.len() - 3],
    ] {
        assert!(is_closed_after(&mut server.connect_postgres(), bytes), "{bytes:?}");
    }
    assert!(is_serving(&server));
}

#[test]
fn frames_of_a_session_are_checked() {
    let server = server();
    for (bytes, code) in [
        (vec![b'Q', 0, 0, 0, 3], "08P01"),
        (vec![b'Q', 0xff, 0xff, 0xff, 0xff], "08P01"),
        (vec![b'Q', 0, 2, 0, 0], "08P01"),
        (frame(b'?', b""), "08P01"),
        (frame(0, b"x"), "08P01"),
        (frame(b'p', b"secret\0"), "08P01"),
    ] {
        let mut client = server.session_postgres(&[]);
        client.send(&bytes);
        let reply = client.reply();
        assert_eq!(
            (reply.code(), reply.error(b'S'), reply.status),
            (code, "FATAL", ' '),
            "{bytes:?}"
        );
    }
    assert!(is_serving(&server));
}

#[test]
fn a_wrong_body_is_an_error_of_its_message() {
    let server = server();
    let mut client = server.session_postgres(&[]);
    for body in [&b"no end"[..], b"", b"a\0b\0"] {
        client.send(&frame(b'Q', body));
        let reply = client.reply();
        assert_eq!((reply.code(), reply.status), ("08P01", 'I'), "{body:?}");
    }
    client.send(&frame(b'Q', b"SELECT '\xff'\0"));
    assert_eq!(client.reply().code(), "22021");
    for (kind, body) in [
        (b'P', &b"\0SELECT 1\0\xff\xff"[..]),
        (b'B', b"\0\0\0\0\0\x01\x7f\xff\xff\xff"),
        (b'B', b"\0\0\0\x01\0\x09\0\0\0\0"),
        (b'D', b"?\0"),
        (b'E', b"\0\0"),
        (b'C', b"S"),
    ] {
        client.send(&[frame(kind, body), frame(b'E', b"\0\0\0\0\0"), frame(b'S', b"")].concat());
        let reply = client.reply();
        assert_eq!((reply.code(), reply.errors.len()), ("08P01", 1), "{kind} {body:?}");
    }
    // What is left of a COPY that has failed is skipped.
    client.send(&[frame(b'd', b"x"), frame(b'f', b"x\0"), frame(b'c', b"")].concat());
    assert_eq!(client.query("SELECT 1").value(), "1");
}

#[test]
fn a_session_that_is_cut_anywhere_ends() {
    let server = server();
    let mut parse = texts(&["s", "SELECT a FROM t WHERE a = $1"]);
    parse.extend([0, 0]);
    let bind = b"\0s\0\0\0\0\x01\0\0\0\x011\0\0";
    let session = [
        startup(&[("user", "ann")]),
        frame(b'P', &parse),
        frame(b'B', bind),
        frame(b'E', b"\0\0\0\0\0"),
        frame(b'S', b""),
        frame(b'Q', b"COPY t FROM STDIN\0"),
        frame(b'd', b"1\n2"),
        frame(b'c', b""),
    ]
    .concat();
    for length in 0..=session.len() {
        assert!(is_closed_after(&mut server.connect_postgres(), &session[..length]), "{length}");
    }
    assert!(is_serving(&server));
    while server.database.sessions().len() > 1 {
        std::thread::yield_now();
    }
}

#[test]
fn bytes_that_are_changed_do_no_harm() {
    let server = server();
    let mut session = [
        frame(b'Q', b"SELECT a + 1 FROM t WHERE a < 7 AND 'x' <> 'y'\0"),
        frame(b'P', b"\0SELECT $1::int, 'a''b'\0\0\x01\0\0\0\x17"),
        frame(b'B', b"\0\0\0\x01\0\x01\0\x01\0\0\0\x04\0\0\0\x07\0\x01\0\x01"),
        frame(b'D', b"P\0"),
        frame(b'E', b"\0\0\0\0\x01"),
        frame(b'S', b""),
    ]
    .concat();
    let begin = startup(&[("user", "ann")]);
    // A linear congruential generator: the same bytes in each run.
    let mut state = 7_u32;
    let mut next = |most: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % most
    };
    for _ in 0..300 {
        let at = next(session.len());
        let before = std::mem::replace(&mut session[at], u8::try_from(next(256)).unwrap());
        let mut client = server.connect_postgres();
        client.send(&begin);
        assert!(is_closed_after(&mut client, &session), "byte {at}");
        session[at] = before;
    }
    assert!(is_serving(&server));
}

#[test]
fn a_client_that_never_reads_is_dropped() {
    let settings = [("limits.write_timeout_ms", "200")];
    let setup = "CREATE TABLE n (a STRING)";
    let server = TestServer::start(&settings, setup);
    let session = server.database.session();
    let row = format!("('{}')", "x".repeat(10_000));
    for _ in 0..20 {
        session
            .execute(&format!("INSERT INTO n VALUES {}", vec![row.as_str(); 100].join(",")))
            .unwrap();
    }
    drop(session);
    let mut client = server.session_postgres(&[]);
    for _ in 0..4 {
        client.send(&frame(b'Q', b"SELECT a FROM n\0"));
    }
    while !server.database.sessions().is_empty() {
        std::thread::yield_now();
    }
}
