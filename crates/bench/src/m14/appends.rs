//! M14's appends: rows of M6 into a table over the network, by COPY and by Flight.
//!
//! One connection sends all rows in one statement: as the text format of COPY in PostgreSQL's protocol, or
//! as Arrow batches over Flight. The bytes are made before the time begins, and it ends when the server has
//! acknowledged the rows, which are counted then. Beside them the same batches in this process.

use std::{io::Write as _, net::TcpStream, sync::Arc};

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use lockstep_client::RemoteClient;
use lockstep_engine::Database;
use lockstep_host::{Clock, SystemClock};

use super::{
    connection::{Endpoint, Framing, ListenAddress},
    postgres,
    server_step::{AppendProtocol, ServedSystem, ServerProcess},
};
use crate::{
    arguments::BenchOptions,
    error::{Error, Result, Trying},
    m1::moment,
    m6::{M6_TABLE, M6Shape, Put, put},
    result_table::{MeasurementTable, ResultCell},
    suite::say,
};

/// Rows of an Arrow batch.
const BATCH_ROWS: usize = 65_536;
/// Bytes of a message of COPY.
const COPY_BYTES: usize = 64 * 1024;
/// The table, which [`M6_TABLE`] creates.
const TABLE: &str = "puts";
const SHAPE: M6Shape = M6Shape { indexes: 1, late_percent: 0, batch: 1 };

/// Measures the appends. Rows/s are of each run.
pub(super) fn run(options: &BenchOptions) -> Result<MeasurementTable> {
    let rows = if options.quick { 200_000 } else { 2_000_000 };
    say(&format!("{rows} rows by COPY, by Flight and in process"));
    let (mut copied, mut sent, mut in_process) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.runs() {
        copied.push(copy(rows)?);
        sent.push(send_by_flight(rows)?);
        in_process.push(append_in_process(rows)?);
    }
    let named = [
        ("COPY FROM STDIN, text", copied),
        ("Flight, Arrow batches", sent),
        ("in process, Arrow batches", in_process),
    ];
    let rows = named
        .map(|(name, per_s)| vec![ResultCell::Text(name.to_owned()), ResultCell::Numbers(per_s)]);
    Ok(MeasurementTable {
        title: "Appends of rows of eight columns, one connection".to_owned(),
        columns: vec!["method", "rows/s"],
        rows: rows.into(),
    })
}

/// Sends the rows with COPY. Returns rows/s.
fn copy(rows: usize) -> Result<f64> {
    let process = ServerProcess::start(ServedSystem::Appends(AppendProtocol::Copy))?;
    let messages = copy_messages(rows);
    let trying = || "send rows".to_owned();
    let mut stream = TcpStream::connect(process.address()).trying(trying)?;
    let endpoint = Endpoint {
        address: ListenAddress::Tcp(process.address()),
        framing: Framing::Postgres,
        setup: Vec::new(),
    };
    stream.write_all(&postgres::startup()).trying(trying)?;
    endpoint.receive(&mut stream)?;
    let clock = SystemClock::new();
    // The server answers with CopyInResponse, which is read with the end of the statement.
    let statement = postgres::query(&format!("COPY {TABLE} FROM STDIN"));
    stream.write_all(&statement).trying(trying)?;
    for message in &messages {
        stream.write_all(message).trying(trying)?;
    }
    endpoint.receive(&mut stream)?;
    let elapsed_ns = clock.monotonic_ns();
    let mut count = TcpStream::connect(process.address()).trying(trying)?;
    count.write_all(&postgres::startup()).trying(trying)?;
    endpoint.receive(&mut count)?;
    count.write_all(&postgres::query(&format!("SELECT count(*) FROM {TABLE}"))).trying(trying)?;
    let answer = endpoint.receive(&mut count)?;
    check_count(postgres::first_value(&answer).as_deref(), rows)?;
    Ok(per_second(rows, elapsed_ns))
}

/// Sends the rows over Flight. Returns rows/s.
fn send_by_flight(rows: usize) -> Result<f64> {
    let process = ServerProcess::start(ServedSystem::Appends(AppendProtocol::Flight))?;
    let batches = batches(rows)?;
    let client = RemoteClient::connect(&format!("lockstep://bench:secret@{}", process.address()))?;
    let clock = SystemClock::new();
    client.append(TABLE, &batches, None)?;
    let elapsed_ns = clock.monotonic_ns();
    let counted = client.query(&format!("SELECT count(*) AS n FROM {TABLE}"), None)?.collect()?;
    let counted = counted.batches.iter().find(|batch| batch.num_rows() > 0);
    let counted = counted.and_then(|batch| {
        let column = batch.column(0).as_any().downcast_ref::<Int64Array>()?;
        Some(column.value(0).to_string())
    });
    check_count(counted.as_deref(), rows)?;
    Ok(per_second(rows, elapsed_ns))
}

/// Appends the same batches in this process. Returns rows/s.
fn append_in_process(rows: usize) -> Result<f64> {
    let session = Database::in_memory().session();
    session.execute(M6_TABLE)?;
    let batches = batches(rows)?;
    let clock = SystemClock::new();
    let appended = session.append(TABLE, &batches)?;
    let elapsed_ns = clock.monotonic_ns();
    check_count(Some(&appended.to_string()), rows)?;
    Ok(per_second(rows, elapsed_ns))
}

fn per_second(rows: usize, elapsed_ns: u64) -> f64 {
    rows as f64 * 1e9 / elapsed_ns.max(1) as f64
}

fn check_count(found: Option<&str>, rows: usize) -> Result<()> {
    if found == Some(&rows.to_string()) {
        return Ok(());
    }
    let message = format!("the table has {} of {rows} rows", found.unwrap_or("no"));
    Err(Error::peer("lockstep", message))
}

/// Returns the rows as messages of COPY, the end included.
fn copy_messages(rows: usize) -> Vec<Vec<u8>> {
    let cycle = SHAPE.cycle();
    let mut messages = Vec::new();
    let mut text = Vec::with_capacity(COPY_BYTES + 256);
    for number in 0..rows {
        write_line(&mut text, &put(&cycle, number));
        if text.len() >= COPY_BYTES || number + 1 == rows {
            messages.push(postgres::copy_data(&text));
            text.clear();
        }
    }
    messages.push(postgres::copy_done());
    messages
}

fn write_line(text: &mut Vec<u8>, put: &Put) {
    let time = moment(put.time_ms);
    let [k0, k1, k2] = [0, 1, 2].map(|key| put.key(key));
    let ([d0, d1], [i0, i1]) = (put.doubles, put.ints);
    writeln!(text, "{k0}\t{k1}\t{k2}\t{time}\t{d0}\t{d1}\t{i0}\t{i1}")
        .expect("a vector takes everything");
}

/// Returns the rows as Arrow batches. Times are numbers, as they are in the table.
fn batches(rows: usize) -> Result<Vec<RecordBatch>> {
    let cycle = SHAPE.cycle();
    (0..rows)
        .step_by(BATCH_ROWS)
        .map(|begin| {
            let end = rows.min(begin + BATCH_ROWS);
            let puts: Vec<Put> = (begin..end).map(|number| put(&cycle, number)).collect();
            batch(&puts)
        })
        .collect()
}

fn batch(puts: &[Put]) -> Result<RecordBatch> {
    let key = |key: usize| -> ArrayRef {
        Arc::new(puts.iter().map(|put| Some(put.key(key))).collect::<StringArray>())
    };
    let double = |of: usize| -> ArrayRef {
        Arc::new(puts.iter().map(|put| Some(put.doubles[of])).collect::<Float64Array>())
    };
    let int = |of: fn(&Put) -> i64| -> ArrayRef {
        Arc::new(puts.iter().map(|put| Some(of(put))).collect::<Int64Array>())
    };
    let time = arrow::array::TimestampMillisecondArray::from_iter(
        puts.iter().map(|put| Some(put.time_ms)),
    );
    let columns = [
        ("k0", key(0)),
        ("k1", key(1)),
        ("k2", key(2)),
        ("ts", Arc::new(time) as ArrayRef),
        ("d0", double(0)),
        ("d1", double(1)),
        ("i0", int(|put| put.ints[0])),
        ("i1", int(|put| put.ints[1])),
    ];
    RecordBatch::try_from_iter(columns).map_err(|error| Error::peer("lockstep", error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::{BATCH_ROWS, batches, copy_messages};

    #[test]
    fn all_rows_are_in_the_batches_and_in_the_text() {
        let rows = BATCH_ROWS + 3;
        let batches = batches(rows).unwrap();
        assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), rows);
        let messages = copy_messages(rows);
        let lines = messages.iter().flatten().filter(|byte| **byte == b'\n').count();
        assert!(lines >= rows, "{lines}");
        let first = String::from_utf8_lossy(&messages[0][5..]).into_owned();
        assert_eq!(first.lines().next().unwrap().split('\t').count(), 8);
    }
}
