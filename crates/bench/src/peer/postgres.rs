//! PostgreSQL: tables in shared buffers, no waiting for the disk, prepared statements; and for the
//! workloads about durability a server that loses nothing.
//!
//! Settings of the first are those of its users for a store that must answer fast: all data fits the shared
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

/// Settings under which nothing that was acknowledged is lost: `fsync` and `full_page_writes` are on
/// by default. Each use adds its `synchronous_commit`.
const DURABLE_SETTINGS: [&str; 6] = [
    "listen_addresses=",
    "shared_buffers=2GB",
    "jit=off",
    "plan_cache_mode=force_generic_plan",
    "random_page_cost=1.0",
    "timezone=UTC",
];

/// What a durable server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PostgresDurability {
    /// Commits wait for the disk (`synchronous_commit=on`).
    Synchronous,
    /// Commits wait for nothing (`synchronous_commit=off`).
    Asynchronous,
    /// Commits wait for the disk, and no checkpoint is written while it runs.
    WithoutCheckpoints,
}

impl PostgresDurability {
    fn settings(self) -> Vec<String> {
        let own: &[&str] = match self {
            Self::Synchronous => &["synchronous_commit=on", "max_wal_size=4GB"],
            Self::Asynchronous => &["synchronous_commit=off", "max_wal_size=4GB"],
            Self::WithoutCheckpoints => {
                &["synchronous_commit=on", "max_wal_size=64GB", "checkpoint_timeout=1d"]
            }
        };
        DURABLE_SETTINGS.iter().chain(own).map(ToString::to_string).collect()
    }
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Postgres {
    server: Server,
    settings: Vec<String>,
}

/// The user that the server runs as when we are root, since it refuses to run as root.
struct ServerUser {
    user: u32,
    group: u32,
}

impl Postgres {
    /// Creates a data folder and starts a server on it.
    pub(crate) fn start() -> Result<Self> {
        Self::start_with(SETTINGS.map(str::to_owned).to_vec())
    }

    /// Does the same for a server that loses nothing, or as little as it is told to.
    pub(crate) fn start_durable(durability: PostgresDurability) -> Result<Self> {
        Self::start_with(durability.settings())
    }

    /// Does the same for a server that keeps so many bytes of its tables in memory, and writes its log as
    /// [`PostgresDurability::Asynchronous`] does.
    pub(crate) fn start_with_cache(bytes: u64) -> Result<Self> {
        debug_assert!(bytes >= 1 << 20, "PostgreSQL needs some pages");
        let mut settings = PostgresDurability::Asynchronous.settings();
        // The last one counts.
        settings.push(format!("shared_buffers={}kB", bytes / 1024));
        Self::start_with(settings)
    }

    fn start_with(settings: Vec<String>) -> Result<Self> {
        let initdb = program(NAME, "initdb")?;
        let scratch = TemporaryFolder::new(NAME)?;
        let account = account();
        if let Some(ServerUser { user, group }) = &account {
            chown(scratch.path(), Some(*user), Some(*group))
                .trying(|| "change the owner of the data directory to postgres".to_owned())?;
        }
        let locale =
            ["--no-sync", "--auth=trust", "--username=bench", "--locale=C", "--encoding=UTF8"];
        let data = scratch.path().join("data");
        finish(NAME, command_as(account.as_ref(), &initdb).args(locale).arg("-D").arg(&data))?;
        let mut command = server_command(scratch.path(), &settings)?;
        let socket = scratch.path().join(".s.PGSQL.5432");
        // It listens before it takes sessions.
        let answer = |stream| PostgresWire::start(stream).ok().map(drop);
        let server = Server::start(NAME, &mut command, socket, scratch, answer)?;
        Ok(Self { server, settings })
    }

    /// Ends the server as `pg_ctl stop -m immediate` does: at once, without a checkpoint. A killed
    /// process would leave children that the next server waits for.
    pub(crate) fn crash(&mut self) -> Result<()> {
        self.server.crash(libc::SIGQUIT)
    }

    /// Starts the server again and waits until `answer` gives a value: while it recovers, it
    /// refuses connections.
    pub(crate) fn restart<T>(
        &mut self,
        answer: impl Fn(&mut dyn SqlConnection) -> Result<T>,
    ) -> Result<T> {
        let mut command = server_command(self.server.folder(), &self.settings)?;
        self.server.restart(&mut command, |stream| {
            let mut connection = PostgresConnection { wire: PostgresWire::start(stream).ok()? };
            answer(&mut connection).ok()
        })
    }

    /// Returns the folder of its data.
    pub(crate) fn folder(&self) -> &Path {
        self.server.folder()
    }
}

/// Returns the command that starts a server on a folder that has its data.
fn server_command(folder: &Path, settings: &[String]) -> Result<Command> {
    let mut command = command_as(account().as_ref(), &program(NAME, "postgres")?);
    command.arg("-D").arg(folder.join("data")).arg("-k").arg(folder);
    for setting in settings {
        command.args(["-c", setting.as_str()]);
    }
    command.current_dir(folder);
    Ok(command)
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
