//! A client's connection, whatever its protocol.

use std::{io, net::SocketAddr};

use arrow::temporal_conversions::timestamp_ms_to_datetime;
use lockstep_client::RemoteClient;
use lockstep_engine::Diagnostic;
use serde_json::{Value as Json, json};

use super::{
    http::{SoakHttp, cells_in_answer, cells_in_array, json_of},
    postgres::SoakPostgres,
    row::{CellRows, CellType, SoakRow, batch_of, cells_of},
    server::ServerPorts,
};

/// The types of the columns of an answer of the deployment.
pub const FEATURE_TYPES: [CellType; 7] = [
    CellType::Text,
    CellType::Whole,
    CellType::Whole,
    CellType::Whole,
    CellType::Double,
    CellType::Whole,
    CellType::Double,
];

/// The codes of errors that a server answers in time of need: too many, shutting down, cancelled.
const REFUSALS: [&str; 4] = ["53300", "57P01", "57014", "08003"];

/// A protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SoakProtocol {
    /// HTTP with JSON.
    Http,
    /// That of PostgreSQL.
    Postgres,
    /// Flight SQL.
    Flight,
}

/// All protocols.
pub const PROTOCOLS: [SoakProtocol; 3] =
    [SoakProtocol::Http, SoakProtocol::Postgres, SoakProtocol::Flight];

impl SoakProtocol {
    /// Returns its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "HTTP",
            Self::Postgres => "PostgreSQL",
            Self::Flight => "Flight",
        }
    }
}

/// Why a call has no answer, or not the expected one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallFailure {
    /// The connection has ended: what was sent may have been done.
    Ended,
    /// The server has answered with an error.
    Refused {
        /// Its SQLSTATE.
        code: String,
        /// Its text.
        message: String,
    },
    /// The answer is none.
    Wrong(String),
}

impl CallFailure {
    /// Returns whether a server may refuse so at any time.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if REFUSALS.contains(&code.as_str()))
    }
}

impl From<io::Error> for CallFailure {
    fn from(_: io::Error) -> Self {
        Self::Ended
    }
}

impl From<Box<Diagnostic>> for CallFailure {
    fn from(error: Box<Diagnostic>) -> Self {
        // Those of the client itself: not connected, and broken.
        if ["08001", "08006"].contains(&error.code) {
            return Self::Ended;
        }
        Self::Refused { code: error.code.to_owned(), message: error.message.clone() }
    }
}

/// A connection.
#[derive(Debug)]
pub enum SoakConnection {
    /// Over HTTP.
    Http(SoakHttp),
    /// Over PostgreSQL's protocol.
    Postgres(SoakPostgres),
    /// Over Flight.
    Flight(RemoteClient),
}

impl SoakConnection {
    /// Connects.
    pub fn connect(protocol: SoakProtocol, ports: ServerPorts) -> Result<Self, CallFailure> {
        Ok(match protocol {
            SoakProtocol::Http => Self::Http(SoakHttp::connect(ports.http)?),
            SoakProtocol::Postgres => Self::Postgres(SoakPostgres::connect(ports.postgres)?),
            SoakProtocol::Flight => Self::Flight(connect_flight(ports.flight)?),
        })
    }

    /// Appends rows, which are acknowledged as `durability` says where the protocol can say it.
    pub fn append(&mut self, rows: &[SoakRow], durability: &str) -> Result<(), CallFailure> {
        match self {
            Self::Http(http) => {
                let path = format!("/v1/tables/events?durability={durability}");
                let body = Json::Array(rows.iter().map(json_of).collect());
                http.call(&path, &body).map(drop)
            }
            Self::Postgres(postgres) if rows.len() > 3 => {
                postgres.copy("COPY events FROM STDIN", &copy_lines(rows))
            }
            Self::Postgres(postgres) => postgres.query(&insertion(rows), &[]).map(drop),
            Self::Flight(flight) => {
                flight.append("events", &[batch_of(rows)], Some(durability))?;
                Ok(())
            }
        }
    }

    /// Answers request rows.
    pub fn request(&mut self, rows: &[SoakRow]) -> Result<CellRows, CallFailure> {
        match self {
            Self::Http(http) => {
                let body = Json::Array(rows.iter().map(json_of).collect());
                let answer = http.call("/v1/deployments/features", &body)?;
                cells_in_array(&answer, &FEATURE_TYPES)
            }
            Self::Postgres(postgres) => {
                let mut answers = CellRows::new();
                for row in rows {
                    let values = values_of(row);
                    let sql = format!("SELECT * FROM features({values})");
                    answers.extend(postgres.query(&sql, &FEATURE_TYPES)?);
                }
                Ok(answers)
            }
            Self::Flight(flight) => {
                Ok(cells_of(&flight.request("features", &[batch_of(rows)])?.batches))
            }
        }
    }

    /// Runs a script and returns the rows of its last statement.
    pub fn query(&mut self, sql: &str, types: &[CellType]) -> Result<CellRows, CallFailure> {
        match self {
            Self::Http(http) => {
                let answer = http.call("/v1/sql", &json!({ "sql": sql }))?;
                if types.is_empty() {
                    return Ok(CellRows::new());
                }
                cells_in_answer(&answer, types)
            }
            Self::Postgres(postgres) => postgres.query(sql, types),
            Self::Flight(flight) => {
                let answer = flight.execute(sql, None)?.collect()?;
                Ok(if types.is_empty() { CellRows::new() } else { cells_of(&answer.batches) })
            }
        }
    }

    /// Sends a script, or begins to read its answer, and ends the connection.
    pub fn send_and_end(self, sql: &str) {
        // Whether it arrives is not known.
        match self {
            Self::Http(mut http) => {
                let _sent = http.send("/v1/sql", &json!({ "sql": sql }).to_string());
            }
            Self::Postgres(mut postgres) => {
                let _sent = postgres.send(sql);
            }
            Self::Flight(flight) => {
                let _begun = flight.execute(sql, None);
            }
        }
    }
}

fn connect_flight(address: SocketAddr) -> Result<RemoteClient, CallFailure> {
    Ok(RemoteClient::connect(&format!("lockstep://{address}"))?)
}

/// Writes rows as an INSERT.
pub fn insertion(rows: &[SoakRow]) -> String {
    let rows: Vec<String> = rows.iter().map(|row| format!("({})", values_of(row))).collect();
    format!("INSERT INTO events VALUES {}", rows.join(", "))
}

/// Writes the values of a row as SQL.
fn values_of(row: &SoakRow) -> String {
    let SoakRow { key, id, x, d, batch, ts } = row;
    let null = || "NULL".to_owned();
    let x = x.map_or_else(null, |x| x.to_string());
    let d = d.map_or_else(null, |d| format!("{d:e}"));
    format!("'{key}', {id}, {x}, {d}, {batch}, {ts}")
}

/// Writes rows as the lines of COPY.
fn copy_lines(rows: &[SoakRow]) -> String {
    let line = |row: &SoakRow| {
        let SoakRow { key, id, x, d, batch, ts } = row;
        let null = || "\\N".to_owned();
        let x = x.map_or_else(null, |x| x.to_string());
        let d = d.map_or_else(null, |d| format!("{d:e}"));
        let ts = timestamp_ms_to_datetime(*ts).map_or_else(null, |time| time.to_string());
        format!("{key}\t{id}\t{x}\t{d}\t{batch}\t{ts}\n")
    };
    rows.iter().map(line).collect()
}
