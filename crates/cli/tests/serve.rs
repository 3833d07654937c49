//! `lockstep serve` as a process: its arguments, its signals and its exit codes.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Output, Stdio},
};

fn lockstep(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
    command.arg("serve").args(arguments);
    command
}

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = lockstep(arguments).output().unwrap();
    let text = String::from_utf8([stdout, stderr].concat()).unwrap();
    (status.code(), text)
}

/// A process that serves.
struct Serving {
    child: Child,
    address: String,
}

impl Serving {
    fn start(arguments: &[&str]) -> Self {
        let mut command = lockstep(arguments);
        command.args(["--http", "127.0.0.1:0", "--postgres", "off", "--flight", "off"]);
        command.args(["--set", "server.authentication=none"]);
        Self::of(command)
    }

    /// Starts a server that asks who calls.
    fn with_users(arguments: &[&str]) -> Self {
        let mut command = lockstep(arguments);
        command.args(["--http", "127.0.0.1:0", "--postgres", "off", "--flight", "off"]);
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("listening on ").unwrap().to_owned();
        Self { child, address }
    }

    fn sql(&self, sql: &str) -> String {
        self.sql_as("", sql)
    }

    /// Sends a statement with further headers, each of which ends its line.
    fn sql_as(&self, headers: &str, sql: &str) -> String {
        let body = format!("{{\"sql\":\"{sql}\"}}");
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "POST /v1/sql HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    /// Waits for the end, and returns the exit code and what was logged.
    fn wait(self) -> (Option<i32>, String) {
        let Output { status, stderr, .. } = self.child.wait_with_output().unwrap();
        (status.code(), String::from_utf8(stderr).unwrap())
    }
}

#[test]
fn a_directory_is_served_until_a_signal_and_served_again() {
    let folder = std::env::temp_dir().join(format!("lockstep-serve-{}", std::process::id()));
    let path = folder.join("db.lockstep").into_os_string().into_string().unwrap();
    std::fs::create_dir_all(&folder).unwrap();
    let first = Serving::start(&[&path]);
    assert!(first.sql("CREATE TABLE t (v INT); INSERT INTO t VALUES (7)").contains("200 OK"));
    first.signal("TERM");
    assert_eq!(first.wait().0, Some(0));
    let second = Serving::start(&[&path, "--read-only"]);
    assert!(second.sql("SELECT v FROM t").ends_with("\"rows\":[[7]]}"));
    assert!(second.sql("INSERT INTO t VALUES (8)").contains("403 Forbidden"));
    second.signal("INT");
    assert_eq!(second.wait().0, Some(0));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_configuration_is_read_again_and_a_second_signal_ends_it_at_once() {
    let path = std::env::temp_dir().join(format!("lockstep-serve-{}.toml", std::process::id()));
    std::fs::write(&path, "[server]\ndrain_delay_ms = 3600000\n").unwrap();
    let file = path.to_str().unwrap();
    let serving = Serving::start(&[":memory:", "--config", file]);
    assert!(serving.sql("SELECT 1").contains("200 OK"));
    std::fs::write(&path, "[server]\ndrain_delay_ms = 3600000\n[limits]\nbody_bytes_max = 2\n")
        .unwrap();
    serving.signal("HUP");
    while !serving.sql("SELECT 1").contains("413 Payload Too Large") {
        lockstep_host::pause(1);
    }
    // A wrong file changes nothing.
    std::fs::write(&path, "[limits]\nbody_byte_max = 2\n").unwrap();
    serving.signal("HUP");
    serving.signal("TERM");
    let is_draining = || {
        let mut stream = TcpStream::connect(&serving.address).unwrap();
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply.contains("draining")
    };
    while !is_draining() {
        lockstep_host::pause(1);
    }
    serving.signal("TERM");
    let (code, log) = serving.wait();
    assert_eq!(code, Some(0), "nothing was running: {log}");
    assert!(log.contains("did you mean limits.body_bytes_max?"), "{log}");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn the_start_token_is_printed_and_taken() {
    let mut serving = Serving::with_users(&[":memory:"]);
    let mut lines = BufReader::new(serving.child.stderr.take().unwrap()).lines();
    let token = lines.find_map(|line| {
        let line = line.unwrap();
        line.trim().strip_prefix("Authorization: Bearer ").map(str::to_owned)
    });
    let header = format!("Authorization: Bearer {}\r\n", token.unwrap());
    assert!(serving.sql("SELECT 1").contains("401 Unauthorized"));
    assert!(serving.sql_as(&header, "SELECT 1").contains("200 OK"));
    serving.signal("TERM");
    assert_eq!(serving.child.wait().unwrap().code(), Some(0));
}

#[test]
fn what_cannot_be_served_is_said() {
    let (code, text) = run(&["--print-config"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("[limits]") && text.contains("connections_max = 10000"), "{text}");
    for (arguments, expected) in [
        (&[":memory:", "--http", "0.0.0.0:0"][..], "TLS (tls.certificate and tls.key)"),
        (
            &[":memory:", "--http", "0.0.0.0:0", "--set", "server.authentication=none"],
            "server.authentication = \"users\"",
        ),
        (&[":memory:", "--postgres", "0.0.0.0:0"], "postgres.listen 0.0.0.0:0"),
        (&[":memory:", "--set", "postgres.listen=nowhere"], "such as 127.0.0.1:7432"),
        (&[":memory:", "--set", "server.authentication=nobody"], "one of users, none"),
        (&[":memory:", "--set", "limits.connection_max=1"], "did you mean limits.connections_max?"),
        (&[":memory:", "--set", "limits"], "KEY=VALUE"),
        (&[":memory:", "--config", "/nowhere.toml"], "/nowhere.toml"),
        (&[], "required"),
    ] {
        let (code, text) = run(arguments);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(expected), "{text}");
    }
    let (code, text) = run(&[
        "/dev/null/db.lockstep",
        "--http",
        "127.0.0.1:0",
        "--postgres",
        "off",
        "--flight",
        "off",
    ]);
    assert_eq!(code, Some(1), "{text}");
}
