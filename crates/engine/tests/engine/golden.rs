//! The directories of format 1 that are checked in: they open with the answers that they had.
//!
//! `golden/NAME.sql` has the statements that made a directory, `golden/NAME.txt` what it shows, and
//! `golden/NAME.tokens` the tokens that its statements printed. That they have every kind of record is a
//! test beside `CatalogRecord`. None is made again: a newer format, or a new kind of record, gets a
//! directory of its own.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use krafka::testing::FakeBroker;
use lockstep_engine::{ClientInfo, Database, OpenOptions, Proof, Session, StorageTuning, code};
use lockstep_host::{Host, ManualClock, Threads};
use tokio::runtime::Runtime;

use crate::test_directory::TestDirectory;

/// When it was made.
const NOW_MS: i64 = 1_700_000_000_000;

/// A directory that is checked in.
struct GoldenDirectory {
    name: &'static str,
    /// The statements that made it.
    statements: &'static str,
    /// What shows all of it.
    shows: &'static [&'static str],
    /// Statements that change it.
    writes: &'static [&'static str],
}

/// What makes the directories that are not there yet.
const MAKE: &str = "cargo test -p lockstep-engine --test engine golden -- --ignored";

const DIRECTORIES: [GoldenDirectory; 10] = [
    GoldenDirectory {
        name: "format-1",
        statements: include_str!("../golden/format-1.sql"),
        shows: SHOWS,
        writes: &[
            "INSERT INTO t VALUES ('a', 9, 9.5, 9000)",
            "INSERT INTO other.u (k) VALUES ('more')",
            "CREATE TABLE added (k STRING)",
        ],
    },
    // Views, tables that took the place of others, ALTER TABLE, roles and tokens.
    GoldenDirectory {
        name: "format-1-views",
        statements: include_str!("../golden/format-1-views.sql"),
        shows: &[
            "SELECT * FROM t",
            "SELECT * FROM replaced",
            "SELECT * FROM large",
            "SELECT * FROM other.small",
            "SELECT * FROM lockstep.views",
            "SHOW VIEWS",
            "SHOW CREATE VIEW larger",
            "SHOW CREATE TABLE t",
            "SHOW DEPLOYMENT d",
            "SHOW DATABASES",
            "SHOW TABLES",
            "SHOW USERS",
            "SHOW ROLES",
            "SHOW GRANTS FOR alice",
            "CALL d ('a', 3000, 7)",
        ],
        writes: &[
            "INSERT INTO t VALUES ('a', 9000, 8)",
            "CREATE OR REPLACE VIEW small AS SELECT k FROM t",
            "CREATE TABLE added (k STRING)",
            "ALTER TABLE added ADD COLUMN n INT",
        ],
    },
    // Views of files, which are away when some of them are opened.
    GoldenDirectory {
        name: "format-1-files",
        statements: include_str!("../golden/format-1-files.sql"),
        shows: &[
            "SELECT * FROM t",
            "SELECT * FROM rows",
            "SELECT * FROM joined",
            "SELECT * FROM external",
            "DESC joined",
            "DESC gone",
            "SHOW INDEXES FROM gone",
            "SHOW TABLES",
            "SHOW VIEWS",
            "SHOW CREATE VIEW joined",
            "SHOW CREATE TABLE external",
            "SHOW CREATE TABLE gone",
        ],
        writes: &[
            "INSERT INTO t VALUES ('l', 7)",
            "CREATE EXTERNAL TABLE added STORED AS CSV LOCATION 'tests/golden/rows/one.csv'",
        ],
    },
    // Jobs with a record of their beginning.
    GoldenDirectory {
        name: "format-1-jobs",
        statements: include_str!("../golden/format-1-jobs.sql"),
        shows: &[
            "SELECT * FROM t",
            "SELECT * FROM u",
            "offline SELECT * FROM t",
            "SHOW JOB 1",
            "SHOW JOB 3",
            "SHOW JOB 4",
            "SHOW JOB 5",
        ],
        writes: &["LOAD DATA INFILE 'tests/golden/rows' INTO TABLE t"],
    },
    // Disk tables.
    GoldenDirectory {
        name: "format-1-disk",
        statements: include_str!("../golden/format-1-disk.sql"),
        shows: &[
            "SELECT * FROM t",
            "SELECT * FROM latest",
            "SELECT * FROM moved",
            "SHOW CREATE TABLE latest",
            "SHOW CREATE TABLE moved",
            "SHOW INDEXES FROM t",
            "CALL d ('a', 1, 1.0, 2500)",
            "CALL d ('c', 1, 1.0, 2500)",
        ],
        writes: &["INSERT INTO t VALUES ('d', 4, 0.5, 4000)", "DELETE FROM t WHERE k = 'a'"],
    },
    // Files with bounds of event times: of a disk table, and of a table in memory.
    GoldenDirectory {
        name: "format-1-times",
        statements: include_str!("../golden/format-1-times.sql"),
        shows: &[
            "SELECT * FROM t",
            "SELECT * FROM t WHERE ts >= '1970-01-01 00:00:03'",
            "SELECT * FROM t WHERE ts < '1970-01-01 00:00:02' OR other = 9000",
            "SELECT * FROM t WHERE other > 9000",
            "SELECT * FROM m",
            "SELECT * FROM m WHERE ts = 2000",
        ],
        writes: &["INSERT INTO t VALUES ('d', 4, 4000, 1)", "DELETE FROM t WHERE k = 'a'"],
    },
    // Streams: with rows in the log and in files, changed, stopped and dropped.
    GoldenDirectory {
        name: "format-1-streams",
        statements: include_str!("../golden/format-1-streams.sql"),
        shows: &[
            "SELECT * FROM sums",
            "SELECT * FROM counts",
            "SELECT * FROM last",
            "SELECT stream, source, event_time, source_row FROM late",
            "SHOW CREATE STREAM s",
            "SHOW CREATE STREAM c",
            "SELECT name, target, statement FROM lockstep.streams",
            "SHOW TABLES",
        ],
        writes: &["INSERT INTO t VALUES (8, 'a', 20000, 1), (9, 'a', 1000, 1)", "START STREAM c"],
    },
    // Sources and sinks: changed, stopped and dropped, alone and with their tables.
    GoldenDirectory {
        name: "format-1-connectors",
        statements: include_str!("../golden/format-1-connectors.sql"),
        shows: &[
            "SELECT * FROM counts",
            "SHOW CREATE SOURCE into_t",
            "SHOW CREATE SINK of_stream",
            "SHOW CREATE SINK of_table",
            "SELECT name, target, topic, messages_read, messages_bad FROM lockstep.sources",
            "SELECT name, source, topic, messages_written FROM lockstep.sinks",
            "SHOW TABLES",
        ],
        writes: &[
            "ALTER SOURCE into_t SET OPTIONS(on_error='stop')",
            "INSERT INTO t VALUES (6, 'b', 9000)",
            "START SINK of_stream",
        ],
    },
    // Sources and sinks of files.
    GoldenDirectory {
        name: "format-1-file-connectors",
        statements: include_str!("../golden/format-1-file-connectors.sql"),
        shows: &[
            "SHOW CREATE SOURCE into_t",
            "SHOW CREATE SOURCE of_known",
            "SHOW CREATE SINK of_t",
            "SHOW CREATE SINK of_u",
            "SELECT name, target, topic, path, messages_read, messages_bad FROM lockstep.sources",
            "SELECT name, source, path, messages_written FROM lockstep.sinks",
            "SHOW TABLES",
        ],
        writes: &[
            "ALTER SOURCE into_t SET OPTIONS(on_error='stop')",
            "INSERT INTO t VALUES (6, 'b', 9000)",
            "START SINK of_t",
        ],
    },
    // Users with all that they may have: passwords, grants, roles and tokens.
    GoldenDirectory {
        name: USERS,
        statements: include_str!("../golden/format-1-users.sql"),
        shows: &[
            "SELECT * FROM t",
            "SELECT * FROM shop.orders",
            "SELECT name, has_password, roles FROM lockstep.users",
            "SHOW USERS",
            "SHOW ROLES",
            "SHOW GRANTS FOR ann",
            "SHOW GRANTS FOR bob",
            "SHOW GRANTS FOR readers",
            "SHOW GRANTS FOR writers",
            "SHOW TOKENS FOR ann",
            "SHOW TOKENS FOR bob",
            "SHOW TOKENS FOR gone",
        ],
        writes: &[
            "INSERT INTO t VALUES ('d', 4, 4000)",
            "CREATE USER carl OPTIONS(password='third')",
            "GRANT writers TO ann",
            "DROP TOKEN early FOR ann",
        ],
    },
];

/// The directory with the tokens.
const USERS: &str = "format-1-users";

/// What shows all of the first one.
const SHOWS: &[&str] = &[
    "SELECT * FROM t",
    "SELECT * FROM types",
    "SELECT * FROM other.u",
    "offline SELECT * FROM t",
    "offline SELECT * FROM linked",
    "SHOW CREATE TABLE t",
    "SHOW CREATE TABLE types",
    "SHOW CREATE TABLE other.u",
    "SHOW INDEXES FROM t",
    "SHOW DEPLOYMENTS",
    "SHOW DEPLOYMENT d",
    "SHOW DEPLOYMENT e",
    "SHOW CREATE PROCEDURE p",
    "SHOW TABLES",
    "SHOW DATABASES",
    "SHOW GLOBAL VARIABLES",
    "SHOW USERS",
    "SHOW GRANTS FOR alice",
    "SHOW JOB 2",
    "SHOW JOB 3",
    "CALL first ('a', 1, 1.0, 2500)",
    "CALL d ('a', 1, 1.0, 2500)",
    "CALL e ('a', 2, 2.5, 2500)",
];

impl GoldenDirectory {
    fn path(&self) -> PathBuf {
        Path::new("tests/golden").join(self.name)
    }

    /// Returns the file of what it showed when it was made.
    fn shown(&self) -> PathBuf {
        Path::new("tests/golden").join(format!("{}.txt", self.name))
    }

    fn expected(&self) -> String {
        fs::read_to_string(self.shown()).unwrap()
    }

    /// Returns the file of the tokens that its statements printed.
    fn tokens(&self) -> PathBuf {
        Path::new("tests/golden").join(format!("{}.tokens", self.name))
    }

    /// Runs the statements that make it. Returns the tokens that they print: a line for each, with its
    /// name and its text.
    fn make(&self, sessions: &Sessions) -> String {
        let runtime = Runtime::new().unwrap();
        let broker = runtime.block_on(FakeBroker::start()).unwrap();
        assert!(broker.create_topic("in", 2) && broker.create_topic("out", 2));
        let mut tokens = String::new();
        for statement in self.statements.lines().filter(|line| !line.starts_with("--")) {
            let statement = statement.replace("{brokers}", &broker.bootstrap_servers());
            let shown = sessions.run(&statement);
            if let Some(rest) = statement.strip_prefix("CREATE TOKEN ") {
                let name = rest.split(' ').next().unwrap();
                let text = shown.split('"').find(|part| part.starts_with("lockstep_")).unwrap();
                tokens.push_str(&format!("{name} {text}\n"));
            }
        }
        tokens
    }

    /// Copies it for a test.
    fn copy(&self, name: &str) -> TestDirectory {
        let copy = TestDirectory::new(&format!("{name}-{}", self.name));
        assert!(self.path().exists(), "{} is made by `{MAKE}`", self.name);
        copy_directory(&self.path(), &copy.0);
        copy
    }
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_directory(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Opens a directory at the time at which it was made, with small files.
fn open(path: &Path, read_only: bool) -> Database {
    let options = OpenOptions {
        read_only,
        host: Host {
            clock: Arc::new(ManualClock::new(NOW_MS)),
            threads: Threads::None,
            ..Host::default()
        },
        tuning: StorageTuning { segment_bytes: 8 << 10, part_bytes: 1, ..StorageTuning::default() },
        ..OpenOptions::default()
    };
    Database::open_with(path, &options).unwrap_or_else(|error| panic!("{error:?}"))
}

/// A session in each mode.
struct Sessions {
    online: Session,
    offline: Session,
}

impl Sessions {
    fn of(database: &Database) -> Self {
        let offline = database.session();
        offline.execute("SET @@execute_mode = 'offline'").unwrap();
        Self { online: database.session(), offline }
    }

    /// Runs a statement; returns what it answers.
    fn run(&self, statement: &str) -> String {
        let (session, sql) = match statement.strip_prefix("offline ") {
            Some(sql) => (&self.offline, sql),
            None => (&self.online, statement),
        };
        let executed = session.execute(sql);
        session.database().settle_streams();
        match executed {
            Ok(output) => output
                .batches
                .iter()
                .map(|batch| format!("{:?}", batch.columns()))
                .collect::<Vec<_>>()
                .join("\n"),
            Err(error) => panic!("{statement}: {error:?}"),
        }
    }

    fn show(&self, golden: &GoldenDirectory) -> String {
        let shown = |sql: &&str| format!("> {sql}\n{}\n\n", self.run(sql));
        golden.shows.iter().map(shown).collect()
    }
}

/// Compares answer by answer.
fn check(shown: &str, expected: &str) {
    for (shown, expected) in shown.split("\n\n").zip(expected.split("\n\n")) {
        assert_eq!(shown, expected);
    }
    assert_eq!(shown.len(), expected.len());
}

#[test]
#[ignore = "makes the directories that are not there yet"]
fn make_the_golden_directories() {
    // A directory is never made again.
    for golden in DIRECTORIES.iter().filter(|golden| !golden.path().exists()) {
        let database = open(&golden.path(), false);
        let sessions = Sessions::of(&database);
        let tokens = golden.make(&sessions);
        if !tokens.is_empty() {
            fs::write(golden.tokens(), tokens).unwrap();
        }
        fs::write(golden.shown(), sessions.show(golden)).unwrap();
        database.close().unwrap();
    }
}

#[test]
fn the_golden_directories_open_and_answer_as_they_did() {
    for golden in &DIRECTORIES {
        let directory = golden.copy("opens");
        check(&Sessions::of(&open(&directory.0, false)).show(golden), &golden.expected());
    }
}

#[test]
fn the_golden_directories_open_for_reading_and_stay_as_they_are() {
    for golden in &DIRECTORIES {
        let directory = golden.copy("reads");
        let database = open(&directory.0, true);
        let sessions = Sessions::of(&database);
        check(&sessions.show(golden), &golden.expected());
        let refused = sessions.online.execute(golden.writes[0]).unwrap_err();
        assert_eq!(refused.code, code::READ_ONLY);
        drop((sessions, database));
        check(&Sessions::of(&open(&directory.0, true)).show(golden), &golden.expected());
    }
}

#[test]
fn the_golden_directories_take_writes_and_checkpoints() {
    for golden in &DIRECTORIES {
        let directory = golden.copy("writes");
        let written = {
            let database = open(&directory.0, false);
            let sessions = Sessions::of(&database);
            golden.writes.iter().for_each(|statement| drop(sessions.run(statement)));
            sessions.show(golden)
        };
        assert_ne!(written, golden.expected());
        for _ in 0..2 {
            let database = open(&directory.0, false);
            let sessions = Sessions::of(&database);
            check(&sessions.show(golden), &written);
            sessions.run("CHECKPOINT");
        }
    }
}

/// Returns which user each token opens a session of, by the names of the tokens.
fn users_of_tokens(database: &Database, tokens: &str) -> Vec<(String, Option<String>)> {
    let of_line = |line: &str| {
        let (name, token) = line.split_once(' ').unwrap();
        let session = database.authenticate_token(token, ClientInfo::default());
        (name.to_owned(), session.ok().map(|session| session.user().to_owned()))
    };
    tokens.lines().map(of_line).collect()
}

#[test]
fn the_users_of_a_golden_directory_log_in_with_what_they_had() {
    let golden = DIRECTORIES.iter().find(|golden| golden.name == USERS).unwrap();
    let directory = golden.copy("logins");
    let tokens = fs::read_to_string(golden.tokens()).unwrap();
    let expected = [
        ("early", Some("ann")),
        ("dropped", None),
        ("forever", Some("bob")),
        ("late", Some("bob")),
    ];
    let owned = |(name, user): (&str, Option<&str>)| (name.to_owned(), user.map(str::to_owned));
    // From the log, and then from a checkpoint.
    for _ in 0..2 {
        let database = open(&directory.0, false);
        let login = |user, proof| database.authenticate(user, proof, ClientInfo::default());
        for (user, password) in [("ann", "first"), ("bob", ""), ("gone", "gone"), ("readers", "")] {
            assert!(login(user, Proof::Password(password)).is_err(), "{user}");
        }
        let ann = login("ann", Proof::Password("second")).unwrap();
        ann.execute("SELECT * FROM shop.orders").unwrap();
        assert!(ann.execute("INSERT INTO t VALUES ('x', 1, 1)").is_err());
        assert_eq!(users_of_tokens(&database, &tokens), expected.map(owned));
        let bob = login("bob", Proof::Checked).unwrap();
        bob.execute("INSERT INTO shop.orders VALUES ('b', 2.5, 2000)").unwrap();
        bob.execute("CALL shop.price ('a', 1.0, 1000)").unwrap();
        assert!(bob.execute("SELECT * FROM t").is_err(), "the role was revoked");
        drop((ann, bob));
        Sessions::of(&database).run("CHECKPOINT");
    }
}
