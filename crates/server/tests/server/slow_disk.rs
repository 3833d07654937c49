//! A disk that does not answer: the deadline of a request holds, and others are answered.

use std::{path::Path, sync::Arc};

use lockstep_engine::{Database, OpenOptions};
use lockstep_host::Host;
use lockstep_sim::SimulatedDisk;

use crate::support::{TestServer, post};

const SETUP: [&str; 7] = [
    "CREATE TABLE on_disk (k STRING, v BIGINT, ts TIMESTAMP, INDEX(KEY=k, TS=ts))
        OPTIONS(storage_mode='disk')",
    "CREATE TABLE in_memory (k STRING, v BIGINT, ts TIMESTAMP, INDEX(KEY=k, TS=ts))",
    "INSERT INTO on_disk VALUES ('a', 1, 1000), ('b', 2, 2000)",
    "INSERT INTO in_memory VALUES ('a', 1, 1000), ('b', 2, 2000)",
    "DEPLOY slow AS SELECT sum(v) OVER w AS s FROM on_disk
        WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)",
    "DEPLOY fast AS SELECT sum(v) OVER w AS s FROM in_memory
        WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)",
    "CHECKPOINT",
];

#[test]
fn a_deadline_holds_while_the_disk_does_not_answer() {
    let disk = SimulatedDisk::new();
    let host = Host { disk: Arc::new(disk.clone()), ..Host::default() };
    let options = OpenOptions { host, ..OpenOptions::default() };
    // The server looks for the folder on the machine, too.
    let database = Database::open_with(Path::new("/tmp"), &options).unwrap();
    let session = database.session();
    for statement in SETUP {
        session.execute(statement).unwrap();
    }
    let server = TestServer::of(database, &[]);
    let request = r#"{"k": "a", "v": 10, "ts": "1970-01-01T00:00:05Z"}"#;
    let stalled = disk.stall_reads();
    let reply = server.send(post("/v1/deployments/slow?timeout_ms=50", request));
    assert_eq!(reply.status, 504, "{}", reply.text());
    assert!(reply.text().contains("57014"), "{}", reply.text());
    let others = server.send(post("/v1/deployments/fast", request));
    assert_eq!((others.status, others.text().contains("11")), (200, true), "{}", others.text());
    drop(stalled);
    let reply = server.send(post("/v1/deployments/slow", request));
    assert_eq!((reply.status, reply.text().contains("11")), (200, true), "{}", reply.text());
}
