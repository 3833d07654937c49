//! MariaDB with its MEMORY engine: rows in memory, an ordered index on (key, event time).
//!
//! Text is one byte a character and compares as bytes; statements are prepared; nothing is logged.
//! In the workloads about durability and disks it runs with InnoDB instead, in M16 also with `MyRocks`.

mod wire;

use std::{path::Path, process::Command};

use wire::MariaDbWire;

use super::{
    NextLines, SqlConnection, SqlPeer,
    folder::TemporaryFolder,
    server::{Server, program},
};
use crate::{
    answer::AnswerValue,
    error::Result,
    statement::{Dialect, PeerStatement, PeerType},
};

const NAME: &str = "mariadb";

const SETTINGS: [&str; 13] = [
    "--skip-networking",
    "--skip-grant-tables",
    "--local-infile=1",
    "--max-heap-table-size=2G",
    "--tmp-table-size=1G",
    "--character-set-server=latin1",
    "--collation-server=latin1_bin",
    "--default-time-zone=+00:00",
    "--skip-log-bin",
    "--skip-performance-schema",
    "--query-cache-type=0",
    "--sort-buffer-size=16M",
    "--max-allowed-packet=64M",
];

/// The storage engine of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MariaDbEngine {
    /// MEMORY: nothing is written.
    Memory,
    /// InnoDB, whose log is on the disk when a commit returns.
    InnoDbSynced,
    /// InnoDB, whose log is in the page cache when a commit returns.
    InnoDbWritten,
    /// The same, with a buffer pool of so many bytes.
    InnoDbWithCache(u64),
    /// `MyRocks`, whose log is in the page cache when a commit returns, with a block cache of so many bytes.
    RocksDbWithCache(u64),
}

impl MariaDbEngine {
    fn settings(self) -> Vec<String> {
        let settings: &[&str] = match self {
            Self::Memory => &["--innodb-buffer-pool-size=64M"],
            Self::InnoDbSynced => &[POOL, LOG, "--innodb-flush-log-at-trx-commit=1"],
            Self::InnoDbWritten => &[POOL, LOG, "--innodb-flush-log-at-trx-commit=2"],
            Self::InnoDbWithCache(_) => &[LOG, "--innodb-flush-log-at-trx-commit=2"],
            Self::RocksDbWithCache(_) => &[
                "--innodb-buffer-pool-size=64M",
                "--plugin-load-add=ha_rocksdb",
                "--rocksdb-flush-log-at-trx-commit=2",
            ],
        };
        let cache = match self {
            Self::InnoDbWithCache(bytes) => {
                Some(format!("--innodb-buffer-pool-size={}", bytes.max(POOL_BYTES_MIN)))
            }
            Self::RocksDbWithCache(bytes) => Some(format!("--rocksdb-block-cache-size={bytes}")),
            Self::Memory | Self::InnoDbSynced | Self::InnoDbWritten => None,
        };
        settings.iter().map(ToString::to_string).chain(cache).collect()
    }

    /// Returns the name that CREATE TABLE has for it.
    fn name(self) -> &'static str {
        match self {
            Self::Memory => "MEMORY",
            Self::InnoDbSynced | Self::InnoDbWritten | Self::InnoDbWithCache(_) => "InnoDB",
            Self::RocksDbWithCache(_) => "ROCKSDB",
        }
    }
}

/// InnoDB does not start with less.
const POOL_BYTES_MIN: u64 = 6 << 20;
const POOL: &str = "--innodb-buffer-pool-size=2G";
const LOG: &str = "--innodb-log-file-size=1G";

/// A running server.
#[derive(Debug)]
pub(crate) struct MariaDb {
    server: Server,
    engine: MariaDbEngine,
}

impl MariaDb {
    /// Starts a server on an empty data folder.
    pub(crate) fn start() -> Result<Self> {
        Self::start_with(MariaDbEngine::Memory)
    }

    /// Starts a server whose tables have this engine.
    pub(crate) fn start_with(engine: MariaDbEngine) -> Result<Self> {
        let program = program(NAME, "mariadbd")?;
        let scratch = TemporaryFolder::new(NAME)?;
        let socket = scratch.path().join("socket");
        let mut command = Command::new(program);
        command.arg("--no-defaults").args(SETTINGS).args(engine.settings());
        let data = scratch.path().join("data");
        std::fs::create_dir_all(&data).unwrap_or_default();
        command.arg(format!("--datadir={}", data.display()));
        command.arg(format!("--socket={}", socket.display()));
        // SAFETY: it only reads the process's own user.
        if unsafe { libc::geteuid() } == 0 {
            command.arg("--user=root");
        }
        let server = Server::start(NAME, &mut command, socket, scratch, |_| Some(()))?;
        let mariadb = Self { server, engine };
        MariaDbWire::start(mariadb.server.connect()?)?.query("CREATE DATABASE bench")?;
        Ok(mariadb)
    }

    /// Returns the folder of its data.
    pub(crate) fn folder(&self) -> &Path {
        self.server.folder()
    }
}

impl SqlPeer for MariaDb {
    fn name(&self) -> &'static str {
        NAME
    }

    fn connect(&self) -> Result<Box<dyn SqlConnection + '_>> {
        let mut wire = MariaDbWire::start(self.server.connect()?)?;
        wire.query("USE bench")?;
        Ok(Box::new(MariaDbConnection { wire, engine: self.engine }))
    }
}

struct MariaDbConnection {
    wire: MariaDbWire,
    engine: MariaDbEngine,
}

impl SqlConnection for MariaDbConnection {
    fn dialect(&self) -> Dialect {
        Dialect::MariaDb
    }

    fn execute(&mut self, sql: &str) -> Result<Vec<Vec<AnswerValue>>> {
        self.wire.query(sql)
    }

    fn prepare(&mut self, statement: &PeerStatement) -> Result<usize> {
        self.wire.prepare(&statement.sql, &statement.kinds)
    }

    fn run(
        &mut self,
        prepared: usize,
        values: &mut dyn Iterator<Item = &AnswerValue>,
    ) -> Result<Vec<Vec<AnswerValue>>> {
        self.wire.run(prepared, values)
    }

    fn create_table(
        &mut self,
        name: &str,
        columns: &[(String, PeerType)],
        rows: usize,
    ) -> Result<()> {
        let columns: Vec<String> = columns
            .iter()
            .map(|(name, kind)| format!("{name} {}", Dialect::MariaDb.type_name(*kind)))
            .collect();
        let columns = columns.join(", ");
        let engine = self.engine.name();
        let expected = match self.engine {
            // The engine sizes its blocks by the number of rows it is told to expect.
            MariaDbEngine::Memory => format!(" MAX_ROWS={rows}"),
            _ => String::new(),
        };
        self.execute(&format!("CREATE TABLE {name} ({columns}) ENGINE={engine}{expected}"))
            .map(drop)
    }

    fn create_time_index(
        &mut self,
        table: &str,
        key: &str,
        time: &str,
        _included: &[&str],
    ) -> Result<()> {
        let name = format!("{table}_{key}");
        self.execute(&format!("CREATE INDEX {name} USING BTREE ON {table} ({key}, {time})"))
            .map(drop)
    }

    fn copy_in(&mut self, table: &str, _order: &str, next: &mut NextLines<'_>) -> Result<()> {
        self.wire.load(&format!("LOAD DATA LOCAL INFILE 'rows' INTO TABLE {table}"), next)
    }

    fn settle(&mut self, table: &str) -> Result<()> {
        self.execute(&format!("ANALYZE TABLE {table}")).map(drop)
    }

    fn table_bytes(&mut self, tables: &[String]) -> Result<Option<u64>> {
        let mut total = 0;
        for table in tables {
            let rows = self.execute(&format!(
                "SELECT CAST(data_length + index_length AS SIGNED) FROM information_schema.tables \
                 WHERE table_schema = 'bench' AND table_name = '{table}'"
            ))?;
            if let Some(AnswerValue::Int(bytes)) = rows.first().and_then(|row| row.first()) {
                total += u64::try_from(*bytes).unwrap_or_default();
            }
        }
        Ok(Some(total))
    }
}
