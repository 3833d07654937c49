//! PostgreSQL: tables in shared buffers, no waiting for the disk, prepared statements.
//!
//! Settings are those of its users for a store that must answer fast: all data fits the shared
//! buffers, `synchronous_commit` is off, statements keep their generic plan (planning this query
//! takes longer than running it), nothing is compiled just in time, and indexes carry the columns
//! that are read, so that a window reads an index only.

mod wire;

use std::{os::unix::fs::chown, path::Path, process::Command};

use lockstep_host::disk;
use wire::PostgresWire;

use super::{
    NextLines, SqlConnection, SqlPeer,
    folder::TemporaryFolder,
    server::{Server, finish, program},
};
use crate::{
    answer::AnswerValue,
    error::{Result, Trying},
    statement::{Dialect, PeerStatement},
};

const NAME: &str = "postgres";

const SETTINGS: [&str; 12] = [
    "listen_addresses=",
    "shared_buffers=4GB",
    "synchronous_commit=off",
    "fsync=off",
    "full_page_writes=off",
    "max_wal_size=16GB",
    "jit=off",
    "plan_cache_mode=force_generic_plan",
    "work_mem=64MB",
    "maintenance_work_mem=512MB",
    "random_page_cost=1.0",
    "timezone=UTC",
];

/// A running server.
#[derive(Debug)]
pub(crate) struct Postgres {
    server: Server,
}

/// The user that the server runs as when we are root, since it refuses to run as root.
struct ServerUser {
    user: u32,
    group: u32,
}

impl Postgres {
    /// Creates a data folder and starts a server on it.
    pub(crate) fn start() -> Result<Self> {
        let (initdb, postgres) = (program(NAME, "initdb")?, program(NAME, "postgres")?);
        let scratch = TemporaryFolder::new(NAME)?;
        let account = account();
        if let Some(ServerUser { user, group }) = &account {
            chown(scratch.path(), Some(*user), Some(*group))
                .trying(|| "give the data folder to the user postgres".to_owned())?;
        }
        let data = scratch.path().join("data");
        let locale =
            ["--no-sync", "--auth=trust", "--username=bench", "--locale=C", "--encoding=UTF8"];
        finish(NAME, command_as(account.as_ref(), &initdb).args(locale).arg("-D").arg(&data))?;
        let mut command = command_as(account.as_ref(), &postgres);
        command.arg("-D").arg(&data).arg("-k").arg(scratch.path());
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        command.current_dir(scratch.path());
        let socket = scratch.path().join(".s.PGSQL.5432");
        Ok(Self { server: Server::start(NAME, &mut command, socket, scratch)? })
    }
}

/// Returns the account `postgres`, when we are root.
fn account() -> Option<ServerUser> {
    // SAFETY: it only reads the process's own user.
    if unsafe { libc::geteuid() } != 0 {
        return None;
    }
    let users = disk::read_to_string(Path::new("/etc/passwd")).ok()?;
    let line = users.lines().find(|line| line.starts_with("postgres:"))?;
    let mut numbers = line.split(':').skip(2);
    let (user, group) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
    Some(ServerUser { user, group })
}

fn command_as(account: Option<&ServerUser>, program: &Path) -> Command {
    use std::os::unix::process::CommandExt as _;
    let mut command = Command::new(program);
    if let Some(ServerUser { user, group }) = account {
        command.uid(*user).gid(*group).current_dir("/");
    }
    command
}

impl SqlPeer for Postgres {
    fn name(&self) -> &'static str {
        NAME
    }

    fn connect(&self) -> Result<Box<dyn SqlConnection + '_>> {
        Ok(Box::new(PostgresConnection { wire: PostgresWire::start(self.server.connect()?)? }))
    }
}

struct PostgresConnection {
    wire: PostgresWire,
}

impl SqlConnection for PostgresConnection {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn execute(&mut self, sql: &str) -> Result<Vec<Vec<AnswerValue>>> {
        self.wire.query(sql)
    }

    fn prepare(&mut self, statement: &PeerStatement) -> Result<usize> {
        self.wire.prepare(&statement.sql)
    }

    fn run(
        &mut self,
        prepared: usize,
        values: &mut dyn Iterator<Item = &AnswerValue>,
    ) -> Result<Vec<Vec<AnswerValue>>> {
        self.wire.run(prepared, values)
    }

    fn create_time_index(
        &mut self,
        table: &str,
        key: &str,
        time: &str,
        included: &[&str],
    ) -> Result<()> {
        let include = match included {
            [] => String::new(),
            columns => format!(" INCLUDE ({})", columns.join(", ")),
        };
        self.execute(&format!("CREATE INDEX ON {table} ({key}, {time} DESC){include}")).map(drop)
    }

    fn copy_in(&mut self, table: &str, _order: &str, next: &mut NextLines<'_>) -> Result<()> {
        self.wire.copy_in(&format!("COPY {table} FROM STDIN"), next)
    }

    fn settle(&mut self, table: &str) -> Result<()> {
        self.execute(&format!("VACUUM (ANALYZE) {table}")).map(drop)
    }

    fn table_bytes(&mut self, tables: &[String]) -> Result<Option<u64>> {
        let mut total = 0;
        for table in tables {
            let rows = self.execute(&format!("SELECT pg_total_relation_size('{table}')"))?;
            if let Some(AnswerValue::Int(bytes)) = rows.first().and_then(|row| row.first()) {
                total += u64::try_from(*bytes).unwrap_or_default();
            }
        }
        Ok(Some(total))
    }
}
