//! Steps: statements of every kind that changes something, at every level of durability.

use lockstep_engine::Durability;

use crate::random::Random;

/// When a workload begins, in milliseconds since the epoch.
pub const START_MS: i64 = 1_700_000_000_000;

/// What is done with a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkloadAction {
    /// A statement is run.
    Execute(String),
    /// A statement is run in offline mode.
    ExecuteOffline(String),
    /// The rows of queries are appended to several tables at once.
    AppendTables(Vec<(String, String)>),
    /// Time goes on.
    Advance {
        /// By so many milliseconds.
        milliseconds: u32,
    },
}

/// An action, and what it waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadStep {
    /// How durable it is when it is acknowledged.
    pub level: Durability,
    /// What is done.
    pub action: WorkloadAction,
}

impl WorkloadStep {
    fn new(level: Durability, sql: &str) -> Self {
        Self { level, action: WorkloadAction::Execute(sql.to_owned()) }
    }

    fn advance(milliseconds: u32) -> Self {
        Self { level: Durability::Memory, action: WorkloadAction::Advance { milliseconds } }
    }

    fn offline(sql: &str) -> Self {
        Self { level: Durability::Disk, action: WorkloadAction::ExecuteOffline(sql.to_owned()) }
    }

    /// Makes a step from `table: query; table: query`.
    fn append_tables(level: Durability, rows: &str) -> Self {
        let of_table = |part: &str| {
            let (table, query) = part.split_once(": ").expect("a table and its rows");
            (table.to_owned(), query.to_owned())
        };
        Self {
            level,
            action: WorkloadAction::AppendTables(rows.split("; ").map(of_table).collect()),
        }
    }

    /// Returns whether the step runs a statement.
    pub fn is_statement(&self) -> bool {
        !matches!(self.action, WorkloadAction::Advance { .. })
    }

    /// Returns whether the step writes a checkpoint, which changes nothing that is shown.
    pub fn is_checkpoint(&self) -> bool {
        matches!(&self.action, WorkloadAction::Execute(sql) if sql == "CHECKPOINT")
    }
}

/// Two files of rows that the steps load.
pub const FILES: [(&str, &str); 2] = [
    ("one.csv", "k,n,v,ts\nf,11,0.1,1000\ng,12,0.2,2000\n"),
    ("two.csv", "k,n,v,ts\nh,13,0.30000000000000004,3000\n"),
];

/// Makes every kind of step once, in an order in which each has an effect. The files are in `folder`.
pub fn each_kind(folder: &str) -> Vec<WorkloadStep> {
    let level = |sql: &str| match sql.split_once(": ") {
        Some(("os", sql)) => WorkloadStep::new(Durability::Os, sql),
        Some(("memory", sql)) => WorkloadStep::new(Durability::Memory, sql),
        Some(("append", rows)) => WorkloadStep::append_tables(Durability::Disk, rows),
        Some(("append os", rows)) => WorkloadStep::append_tables(Durability::Os, rows),
        Some(("offline", sql)) => WorkloadStep::offline(&sql.replace("{folder}", folder)),
        Some(("load", sql)) => {
            WorkloadStep::new(Durability::Disk, &sql.replace("{folder}", folder))
        }
        _ if sql == "1h" => WorkloadStep::advance(3_600_000),
        _ => WorkloadStep::new(Durability::Disk, sql),
    };
    EACH_KIND.iter().map(|sql| level(sql)).collect()
}

/// Makes the steps of [`each_kind`] with disk tables, which move into memory and back, and are flushed after every
/// third step.
pub fn each_kind_on_disk(folder: &str) -> Vec<WorkloadStep> {
    let mut steps = Vec::new();
    for (at, mut step) in each_kind(folder).into_iter().enumerate() {
        if let WorkloadAction::Execute(sql) = &mut step.action
            && sql.starts_with("CREATE TABLE")
        {
            sql.push_str(ON_DISK);
        }
        steps.push(step);
        if at % 3 == 2 {
            steps.push(WorkloadStep::new(Durability::Disk, "CHECKPOINT"));
        }
        let moved = [(20, "memory"), (26, "disk"), (38, "memory"), (42, "disk")];
        for (_, mode) in moved.iter().filter(|(after, _)| *after == at) {
            let sql = format!("ALTER TABLE t SET OPTIONS(storage_mode='{mode}')");
            steps.push(WorkloadStep::new(Durability::Disk, &sql));
        }
    }
    steps
}

const ON_DISK: &str = " OPTIONS(storage_mode='disk')";

/// The tables of [`each_kind`].
pub const EACH_KIND_TABLES: [&str; 4] = ["t", "other.u", "kept", "hourly"];

const EACH_KIND: &[&str] = &[
    "CREATE TABLE t (k STRING, n INT, v DOUBLE, ts TIMESTAMP,
        INDEX(KEY=k, TS=ts, TTL=3, TTL_TYPE=latest))",
    "os: INSERT INTO t VALUES ('a', 1, 0.1, 1000), ('a', 2, 0.2, 2000), ('b', 3, NULL, 3000)",
    "INSERT INTO t VALUES ('a', 4, 1e300, 2500)",
    "CREATE DATABASE other",
    "CREATE TABLE other.u (k STRING NOT NULL, v INT DEFAULT 7)",
    "memory: INSERT INTO other.u (k) VALUES ('x')",
    "append: t: SELECT 'a' AS k, 5 AS n, 0.5 AS v, timestamp(1600) AS ts; other.u: SELECT 'y' AS k",
    "DEPLOY d AS SELECT k, sum(v) OVER w AS s FROM t WINDOW w AS (PARTITION BY k ORDER BY ts
        ROWS_RANGE BETWEEN 1h PRECEDING AND CURRENT ROW)",
    "DEPLOY e AS SELECT n, count(k) OVER w AS c FROM t WINDOW w AS (PARTITION BY n ORDER BY ts
        ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)",
    "CREATE PROCEDURE p (k STRING, n INT, v DOUBLE, ts TIMESTAMP) BEGIN SELECT k, v FROM t; END",
    "memory: INSERT INTO t VALUES ('a', 2, 4.0, 1500)",
    "os: DELETE FROM t WHERE k = 'b'",
    "CHECKPOINT",
    "CREATE INDEX i ON t (n) OPTIONS (ts=ts, ttl=0m, ttl_type=absolute)",
    "CREATE USER alice OPTIONS(password='secret')",
    "GRANT SELECT ON *.* TO alice",
    "SET GLOBAL statement_timeout = '30s'",
    "CREATE TABLE gone (k STRING)",
    "memory: INSERT INTO gone VALUES ('x')",
    "DROP TABLE gone",
    "os: TRUNCATE TABLE other.u",
    "INSERT INTO other.u VALUES ('z', 1)",
    "CREATE TABLE kept (k STRING, ts TIMESTAMP, INDEX(KEY=k, TS=ts, TTL=1, TTL_TYPE=latest))",
    "os: INSERT INTO kept VALUES ('a', 1), ('a', 2)",
    "DEPLOY f AS SELECT count(k) OVER w AS c FROM kept WINDOW w AS (PARTITION BY k ORDER BY ts
        ROWS BETWEEN 5 PRECEDING AND CURRENT ROW)",
    "INSERT INTO kept VALUES ('a', 3)",
    "append os: kept: SELECT 'b' AS k, timestamp(3) AS ts; other.u: SELECT 'w' AS k, 2 AS v; \
        t: SELECT 'b' AS k, 6 AS n, 0.25 AS v, timestamp(2600) AS ts",
    "CREATE TABLE hourly (k STRING, ts TIMESTAMP, INDEX(KEY=k, TS=ts, TTL=90m, TTL_TYPE=absolute))",
    "os: INSERT INTO hourly VALUES ('a', 1699996400000), ('b', 1700000000000)",
    "1h",
    "INSERT INTO hourly VALUES ('a', 1700003600000)",
    "CHECKPOINT",
    "DEPLOY gone AS SELECT k FROM t",
    "DROP DEPLOYMENT gone",
    "offline: LOAD DATA INFILE '{folder}/one.csv' INTO TABLE t",
    "offline: LOAD DATA INFILE '{folder}/two.csv' INTO TABLE t OPTIONS(mode='append')",
    "ALTER TABLE t ADD offline_path 'nowhere.parquet'",
    "ALTER TABLE t DROP offline_path 'nowhere.parquet'",
    "offline: LOAD DATA INFILE '{folder}/two.csv' INTO TABLE t OPTIONS(mode='overwrite')",
    "load: LOAD DATA INFILE '{folder}' INTO TABLE t",
    "DROP INDEX t.i",
    "1h",
    "memory: INSERT INTO hourly VALUES ('c', 1700007200000)",
    "DROP PROCEDURE p",
    "DROP USER alice",
    "CREATE DATABASE empty",
    "DROP DATABASE empty",
    "os: INSERT INTO t VALUES ('c', 5, -0.0, 9000)",
];

/// Statements that [`drawn`] picks; `{t}` is a table, `{k}` a key, `{n}` a number.
const TEMPLATES: &[&str] = &[
    "CREATE TABLE {t} (k STRING, n INT, v DOUBLE, ts TIMESTAMP,
        INDEX(KEY=k, TS=ts, TTL=2, TTL_TYPE=latest))",
    "CREATE TABLE {t} (k STRING, n INT, v DOUBLE, ts TIMESTAMP,
        INDEX(KEY=k, TS=ts, TTL=90m, TTL_TYPE=absolute))",
    "CREATE TABLE {t} (k STRING, n INT, v DOUBLE, ts TIMESTAMP)",
    "DROP TABLE {t}",
    "TRUNCATE TABLE {t}",
    "DELETE FROM {t} WHERE k = '{k}'",
    "DELETE FROM {t} WHERE n = {n}",
    "CREATE INDEX i ON {t} (n) OPTIONS (ts=ts, ttl=0m, ttl_type=absolute)",
    "DROP INDEX {t}.i",
    "DEPLOY d{t} AS SELECT k, sum(v) OVER w AS s FROM {t} WINDOW w AS (PARTITION BY k ORDER BY ts
        ROWS BETWEEN {n} PRECEDING AND CURRENT ROW)",
    "DEPLOY e{t} AS SELECT n, count(k) OVER w AS s FROM {t} WINDOW w AS (PARTITION BY n ORDER BY ts
        ROWS_RANGE BETWEEN {n}h PRECEDING AND CURRENT ROW)",
    "DROP DEPLOYMENT d{t}",
    "DROP DEPLOYMENT e{t}",
    "CREATE USER user{n} OPTIONS(password='secret')",
    "DROP USER user{n}",
    "GRANT SELECT ON *.* TO user{n}",
    "SET GLOBAL statement_timeout = '{n}s'",
    "CREATE DATABASE base{n}",
    "DROP DATABASE base{n}",
    "CHECKPOINT",
    "CHECKPOINT",
    "ALTER TABLE {t} SET OPTIONS(storage_mode='disk')",
    "ALTER TABLE {t} SET OPTIONS(storage_mode='memory')",
];

/// The tables that drawn steps create and use.
pub const TABLES: [&str; 3] = ["t", "t2", "t3"];

/// Draws `count` steps. Those that cannot be done, with a table that there is not, are part of it.
pub fn drawn(seed: u64, count: usize, folder: &str) -> Vec<WorkloadStep> {
    let mut random = Random::new(seed);
    let mut now_ms = START_MS;
    (0..count).map(|at| draw(&mut random, at, folder, &mut now_ms)).collect()
}

fn draw(random: &mut Random, at: usize, folder: &str, now_ms: &mut i64) -> WorkloadStep {
    let level = *random.pick(&[Durability::Disk, Durability::Os, Durability::Memory]);
    let table = *random.pick(&TABLES);
    // The first steps make the tables, in most cases.
    if at < TABLES.len() {
        let sql = TEMPLATES[at].replace("{t}", TABLES[at]);
        return WorkloadStep::new(level, &maybe_on_disk(random, &sql));
    }
    match random.below(20) {
        0 => {
            let milliseconds = 1_800_000;
            *now_ms += i64::from(milliseconds);
            WorkloadStep::advance(milliseconds)
        }
        1 => {
            let (file, _) = FILES[random.below(FILES.len())];
            let mode = *random.pick(&["append", "overwrite", "error_if_exists"]);
            WorkloadStep::offline(&format!(
                "LOAD DATA INFILE '{folder}/{file}' INTO TABLE {table} OPTIONS(mode='{mode}')"
            ))
        }
        2 => append_tables(random, level, *now_ms),
        3..10 => WorkloadStep::new(level, &insert(random, table, *now_ms)),
        _ => {
            let sql = random.pick(TEMPLATES).replace("{t}", table);
            let key = *random.pick(&["a", "b", "c"]);
            let sql = maybe_on_disk(random, &sql.replace("{k}", key));
            WorkloadStep::new(level, &sql.replace("{n}", &(1 + random.below(4)).to_string()))
        }
    }
}

/// Makes the table of CREATE TABLE a disk table, or not.
fn maybe_on_disk(random: &mut Random, sql: &str) -> String {
    let is_on_disk = sql.starts_with("CREATE TABLE") && random.chance(50);
    format!("{sql}{}", if is_on_disk { ON_DISK } else { "" })
}

/// Draws an append of some rows to tables, one of which may be named twice.
fn append_tables(random: &mut Random, level: Durability, now_ms: i64) -> WorkloadStep {
    let rows = (0..2 + random.below(2)).map(|_| {
        let table = *random.pick(&TABLES);
        let key = *random.pick(&["a", "b", "c"]);
        let (n, ts) = (1 + random.below(4), now_ms);
        (
            table.to_owned(),
            format!("SELECT '{key}' AS k, {n} AS n, 0.5 AS v, timestamp({ts}) AS ts"),
        )
    });
    WorkloadStep { level, action: WorkloadAction::AppendTables(rows.collect()) }
}

fn insert(random: &mut Random, table: &str, now_ms: i64) -> String {
    let rows: Vec<String> = (0..=random.below(5))
        .map(|_| {
            let key = random.pick(&["'a'", "'b'", "'c'", "NULL"]);
            let value = random.pick(&["0.1", "0.2", "NULL", "1e300", "-1e300", "-0.0"]);
            let before_ms = i64::try_from(random.below(100)).unwrap_or(0) * 60_000;
            format!("({key}, {}, {value}, {})", 1 + random.below(4), now_ms - before_ms)
        })
        .collect();
    assert!(!rows.is_empty(), "an INSERT has rows");
    // Sometimes so many that a segment of the log does not hold them.
    let times = if random.chance(5) { 40 } else { 1 };
    format!("INSERT INTO {table} VALUES {}", vec![rows.join(", "); times].join(", "))
}

/// Lists steps that a database with any content may be given.
pub fn after_opening() -> Vec<WorkloadStep> {
    let statements = [
        "INSERT INTO t VALUES ('a', 1, 0.5, 1000), ('zz', 9, NULL, 2000)",
        "INSERT INTO kept VALUES ('a', 9)",
        "CREATE TABLE fresh (k STRING, ts TIMESTAMP, INDEX(KEY=k, TS=ts))",
        "INSERT INTO fresh VALUES ('a', 9)",
        "DELETE FROM t WHERE k = 'a'",
        "CHECKPOINT",
        "INSERT INTO fresh VALUES ('b', 10)",
    ];
    statements.iter().map(|sql| WorkloadStep::new(Durability::Disk, sql)).collect()
}
