//! A server on free ports for tests.

use std::net::SocketAddr;

use arrow::array::{Array, AsArray, RecordBatch};
use lockstep_client::RemoteClient;
use lockstep_engine::Database;
use lockstep_host::JoinHandle;
use lockstep_server::{DrainOutcome, RunningServer, ServerHandle, ServerSettings};

/// A running server, which is ended when it is dropped.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) handle: ServerHandle,
    pub(crate) database: Database,
    pub(crate) start_token: Option<String>,
    waiting: Option<JoinHandle<DrainOutcome>>,
}

impl TestServer {
    /// Starts a server with these settings and after these statements. It asks nobody for a password,
    /// unless the settings say so.
    pub(crate) fn start(pairs: &[(&str, &str)], setup: &str) -> Self {
        let database = Database::in_memory();
        database.session().execute(setup).unwrap();
        let mut settings = ServerSettings::default();
        settings.set("http.listen", "127.0.0.1:0").unwrap();
        settings.set("postgres.listen", "off").unwrap();
        settings.set("flight.listen", "127.0.0.1:0").unwrap();
        settings.set("server.authentication", "none").unwrap();
        for (key, value) in pairs {
            settings.set(key, value).unwrap();
        }
        let server = RunningServer::start(database.clone(), settings).unwrap();
        let (address, handle) = (server.flight_address().unwrap(), server.handle());
        let http = server.http_address();
        let start_token = server.start_token().map(str::to_owned);
        let waiting = lockstep_host::spawn("waits", move || server.wait()).unwrap();
        Self { address, http, handle, database, start_token, waiting: Some(waiting) }
    }

    /// Returns the address of the server with what stands before the host and behind the port.
    pub(crate) fn url(&self, login: &str, rest: &str) -> String {
        format!("lockstep://{login}{}{rest}", self.address)
    }

    /// Connects.
    pub(crate) fn connect(&self) -> RemoteClient {
        RemoteClient::connect(&self.url("", "")).unwrap()
    }

    /// Waits for the end of the server.
    pub(crate) fn wait(mut self) -> DrainOutcome {
        self.waiting.take().unwrap().join().unwrap()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(waiting) = self.waiting.take() {
            self.handle.drain();
            self.handle.stop();
            waiting.join().unwrap();
        }
    }
}

/// Runs a statement and returns its rows as text: cells with blanks between, rows with semicolons.
pub(crate) fn rows(client: &RemoteClient, sql: &str) -> String {
    text_of(&client.execute(sql, None).unwrap().collect().unwrap().batches)
}

/// Returns rows as text.
pub(crate) fn text_of(batches: &[RecordBatch]) -> String {
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let cell = |column: &arrow::array::ArrayRef| {
                if column.is_null(row) {
                    return "NULL".to_owned();
                }
                let text = arrow::compute::cast(column, &arrow::datatypes::DataType::Utf8).unwrap();
                text.as_string::<i32>().value(row).to_owned()
            };
            rows.push(batch.columns().iter().map(cell).collect::<Vec<_>>().join(" "));
        }
    }
    rows.join("; ")
}

/// Makes a batch of one row of parameters from the rows of a query without a table.
pub(crate) fn row_of(select: &str) -> RecordBatch {
    let output = Database::in_memory().session().execute(select).unwrap();
    output.batches.into_iter().next().unwrap()
}
