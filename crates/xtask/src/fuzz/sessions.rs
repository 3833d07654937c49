//! The conversations that are changed: what real clients have sent to a server.
//!
//! Those of `crates/xtask/corpus` were recorded from curl, psql, psycopg, pyarrow and the ADBC driver,
//! with no authentication. Lockstep's own client is recorded each time, since what it sends has handles
//! that only this server knows. [`TABLES`] are the tables for all of them.

use std::{fs, net::SocketAddr, path::Path, sync::Arc};

use arrow::{
    array::{
        ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray,
    },
    record_batch::RecordBatchOptions,
};
use lockstep_client::RemoteClient;
use lockstep_engine::Diagnostic;

use super::recording::RecordingProxy;
use crate::workspace_dir;

/// The tables and deployments of the server. A table keeps few rows, so that a long run has no more.
pub(super) const TABLES: &str = "
    CREATE TABLE t (k STRING, v BIGINT, d DOUBLE, ts TIMESTAMP,
        INDEX(KEY=k, TS=ts, TTL=8, TTL_TYPE=latest));
    CREATE TABLE u (k STRING, v BIGINT, d DOUBLE, ts TIMESTAMP,
        INDEX(KEY=k, TS=ts, TTL=8, TTL_TYPE=latest));
    INSERT INTO t VALUES ('fixed', 1, 0.5, 1000), ('fixed', 2, 1.5, 2000);
    DEPLOY features AS SELECT k, v, sum(v) OVER w AS total, avg(d) OVER w AS mean FROM u
        WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW);
    DEPLOY plain AS SELECT k, v, v + 1 AS next FROM t;";

/// Reads the recorded conversations of a protocol.
pub(super) fn recorded(protocol: &str) -> Result<Vec<Vec<u8>>, String> {
    let folder = workspace_dir().join("crates/xtask/corpus").join(protocol);
    let failed =
        |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let entries = fs::read_dir(&folder).map_err(|error| failed(&folder, &error))?;
    let mut files: Vec<_> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    files.sort();
    let read = |path| fs::read(path).map_err(|error| failed(path, &error));
    files.iter().map(|path| read(path.as_path())).collect()
}

/// Records Lockstep's own client, one connection for each kind of call.
pub(super) fn of_own_client(flight: SocketAddr) -> Result<Vec<Vec<u8>>, String> {
    let proxy = RecordingProxy::start(flight).map_err(|error| error.to_string())?;
    let url = format!("lockstep://{}", proxy.address());
    for call in CALLS {
        let client = RemoteClient::connect(&url).map_err(|error| error.message.clone())?;
        call(&client).map_err(|error| format!("{}: {}", error.code, error.message))?;
        // What it has prepared stays: its conversation is to find it.
        let _kept = Box::leak(Box::new(client));
    }
    Ok(proxy.conversations().into_iter().filter(|bytes| !bytes.is_empty()).collect())
}

/// A call of a client.
type ClientUse = fn(&RemoteClient) -> Result<(), Box<Diagnostic>>;

const CALLS: [ClientUse; 7] = [
    |client| {
        client.execute("SELECT k, v FROM t WHERE v > 0; SHOW TABLES", None)?.collect()?;
        client.query("SELECT k, sum(v) AS s FROM t GROUP BY k", None)?.collect().map(drop)
    },
    |client| {
        let rows = client.execute("SELECT ? AS a, v FROM t WHERE k = ?", Some(&parameters()))?;
        rows.collect().map(drop)
    },
    |client| client.append("t", &[rows(3), rows(2)], Some("memory")).map(drop),
    |client| client.append_tables(&[("t", &[rows(1)]), ("u", &[rows(4)])], None).map(drop),
    |client| client.request("features", &[rows(2)]).map(drop),
    |client| {
        let prepared = client.prepare_request("plain")?;
        prepared.answer(&[rows(1)])?;
        // Its handle is not closed.
        let _kept = Box::leak(Box::new(prepared));
        Ok(())
    },
    |client| {
        client.describe("SELECT * FROM t WHERE k = ?", Some(&parameters_of_one()))?;
        client.table_columns("t")?;
        client.deployment("features")?;
        client.complete("SEL")?;
        client.create_table("made_by_client", &rows(1).schema()).map(drop)
    },
];

/// Makes rows for the tables.
fn rows(count: i64) -> RecordBatch {
    let texts: StringArray =
        (0..count).map(|row| (row != 1).then(|| format!("key {row}"))).collect();
    let columns: [(&str, ArrayRef); 4] = [
        ("k", Arc::new(texts)),
        ("v", Arc::new((0..count).map(|row| Some(row * 3)).collect::<Int64Array>())),
        ("d", Arc::new((0..count).map(|row| (row != 0).then_some(0.5)).collect::<Float64Array>())),
        ("ts", Arc::new((0..count).map(Some).collect::<TimestampMillisecondArray>())),
    ];
    RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, column)| (name, column, true)),
    )
    .expect("columns have one length")
}

fn parameters() -> RecordBatch {
    let columns: [(&str, ArrayRef); 2] = [
        ("1", Arc::new(Int64Array::from(vec![7]))),
        ("2", Arc::new(StringArray::from(vec!["fixed"]))),
    ];
    RecordBatch::try_from_iter(columns).expect("columns have one length")
}

fn parameters_of_one() -> RecordBatch {
    let batch = parameters();
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let schema = Arc::new(batch.schema().project(&[1]).expect("it has two columns"));
    RecordBatch::try_new_with_options(schema, vec![Arc::clone(batch.column(1))], &options)
        .expect("it is a part of a batch")
}
