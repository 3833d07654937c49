//! Files of the machine for users: what is named in a statement, and what is found on the way, is opened
//! below the listed folders only.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    fs,
    os::unix::{fs::symlink, net::UnixListener},
    path::{Path, PathBuf},
    process::Command,
};

use lockstep_engine::{ClientInfo, Database, Proof, Session, code};

/// A folder with `in`, which is listed, and `out`, which is not; removed at the end.
struct Folders(PathBuf);

impl Folders {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("lockstep-folders-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(path.join("in")).unwrap();
        fs::create_dir_all(path.join("out/day=2")).unwrap();
        let folders = Self(path.canonicalize().unwrap());
        folders.write("in/a.csv", "k\ninside\n");
        folders.write("out/secret.csv", "k\nsecret\n");
        folders.write("out/day=2/secret.csv", "k\nsecret\n");
        folders
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Makes an engine with a table, and a session of a user of few rights; `~` is the folder.
    fn session(&self) -> (Database, FolderSession<'_>) {
        let database = Database::in_memory();
        let script = "CREATE TABLE t (k STRING); CREATE USER ann OPTIONS(password='x');
            GRANT SELECT, INSERT ON default.t TO ann";
        database.session().execute(script).unwrap();
        database.set_file_folders(&[self.at("in")]).unwrap();
        let session = database.authenticate("ann", Proof::Password("x"), ClientInfo::default());
        (database, FolderSession { folders: self, session: session.unwrap() })
    }

    /// Lists all that is in `out`.
    fn outside(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.at("out")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path.clone());
                }
                found.push(path);
            }
        }
        found.sort();
        found
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

struct FolderSession<'f> {
    folders: &'f Folders,
    session: Session,
}

impl FolderSession<'_> {
    fn rows(&self, sql: &str) -> usize {
        let sql = sql.replace('~', self.folders.0.to_str().unwrap());
        let output = self.session.execute(&sql);
        output.unwrap_or_else(|error| panic!("{sql}: {error}")).row_count()
    }

    /// Fails a statement; returns its code and message.
    fn refused(&self, sql: &str) -> (&'static str, String) {
        let sql = sql.replace('~', self.folders.0.to_str().unwrap());
        let error = self.session.execute(&sql).expect_err(&sql);
        (error.code, error.message.replace(self.folders.0.to_str().unwrap(), "~"))
    }

    fn refused_as_outside(&self, sql: &str) {
        let (found, message) = self.refused(sql);
        assert_eq!(found, code::INSUFFICIENT_PRIVILEGE, "{sql}: {message}");
    }
}

#[test]
fn the_query_of_load_data_has_no_other_rights_than_the_statement() {
    let folders = Folders::new("load");
    let (database, ann) = folders.session();
    let load =
        |sql: &str| format!("LOAD DATA INFILE '~/in/a.csv' INTO TABLE t OPTIONS(sql=\"{sql}\")");
    ann.rows(&load("SELECT * FROM file"));
    ann.rows(&load("SELECT upper(k) AS k FROM file UNION ALL SELECT k FROM '~/in/a.csv'"));
    assert_eq!(ann.rows("SELECT * FROM t"), 3);
    for query in [
        "SELECT k FROM '~/out/secret.csv'",
        "SELECT f.k FROM file AS f LAST JOIN '~/out/secret.csv' AS s ON f.k = s.k",
        "WITH s AS (SELECT k FROM '~/out/*.csv') SELECT k FROM s",
        "SELECT k FROM read_csv('/etc/passwd', header = false)",
    ] {
        ann.refused_as_outside(&load(query));
    }
    // It names nothing of the catalog, neither what the user may read nor what it may not.
    database.session().execute("CREATE TABLE other (k STRING)").unwrap();
    for table in ["other", "t", "default.t"] {
        let (found, message) = ann.refused(&load(&format!("SELECT k FROM {table}")));
        assert_eq!(found, code::UNDEFINED_TABLE, "{message}");
    }
    let (found, _) = ann.refused(&load("SELECT k FROM file INTO OUTFILE '~/out/x.csv'"));
    assert_eq!(found, code::SYNTAX_ERROR);
    let (found, _) = ann.refused(&load("DROP TABLE file"));
    assert_eq!(found, code::SYNTAX_ERROR);
    // What users are is what the caller sees of this engine.
    database.session().execute("CREATE USER eve").unwrap();
    ann.rows("SELECT * FROM t WHERE k = 'none'");
    let before = ann.rows("SELECT * FROM t");
    ann.rows(&load("SELECT name AS k FROM lockstep.users"));
    assert_eq!(ann.rows("SELECT * FROM t") - before, ann.rows("SELECT * FROM lockstep.users"));
}

#[test]
fn the_query_of_load_data_ends_with_its_statement_and_its_memory() {
    let folders = Folders::new("limits");
    let rows: String = (0..200_000).map(|row| format!("{row}\n")).collect();
    folders.write("in/long.csv", &format!("k\n{rows}"));
    let (_database, ann) = folders.session();
    let load = "LOAD DATA INFILE '~/in/long.csv' INTO TABLE t OPTIONS(sql='SELECT string(k) AS k FROM file')";
    ann.rows("SET memory_limit = '1MB'");
    let (found, message) = ann.refused(load);
    assert_eq!(found, code::OUT_OF_MEMORY, "{message}");
    ann.rows("SET memory_limit = '0'; SET statement_timeout = '1ms'");
    assert_eq!(ann.refused(load).0, code::QUERY_CANCELED);
    ann.rows("SET statement_timeout = '0'");
    assert_eq!(ann.rows("SELECT * FROM t"), 0);
}

#[test]
fn links_lead_out_of_no_folder_at_any_depth() {
    let folders = Folders::new("links");
    let at = |path: &str| folders.at(path);
    for folder in ["in/parts/day=1", "in/linked", "in/deep/day=1/hour=1", "in/good/day=1"] {
        fs::create_dir_all(at(folder)).unwrap();
    }
    folders.write("in/parts/day=1/a.csv", "k\ninside\n");
    symlink(at("out/day=2"), at("in/parts/day=2")).unwrap();
    symlink(at("out/secret.csv"), at("in/linked/b.csv")).unwrap();
    symlink(at("out/secret.csv"), at("in/deep/day=1/hour=1/b.csv")).unwrap();
    symlink("../../a.csv", at("in/good/b.csv")).unwrap();
    symlink(at("in/a.csv"), at("in/good/day=1/b.csv")).unwrap();
    let (_database, ann) = folders.session();
    for folder in ["parts", "linked", "deep", "parts/day=2", "deep/day=1"] {
        ann.refused_as_outside(&format!("SELECT * FROM read_csv('~/in/{folder}')"));
        ann.refused_as_outside(&format!(
            "LOAD DATA INFILE '~/in/{folder}' INTO TABLE t OPTIONS(format='csv')"
        ));
    }
    ann.refused_as_outside("SELECT * FROM '~/in/linked/b.csv'");
    fs::remove_file(at("in/good/b.csv")).unwrap();
    symlink("../a.csv", at("in/good/b.csv")).unwrap();
    assert_eq!(ann.rows("SELECT k FROM read_csv('~/in/good', union_by_name = true)"), 2);
    // A pattern of a view is the view's, and each file its reader's.
    let pattern = at("in/**/*.csv");
    let view = format!("CREATE VIEW v AS SELECT k FROM '{}'", pattern.display());
    let (database, ann) = folders.session();
    database.session().execute(&format!("{view}; GRANT SELECT ON default.v TO ann")).unwrap();
    ann.refused_as_outside("SELECT * FROM v");
}

#[test]
fn a_link_that_is_made_after_the_file_was_named_is_not_followed() {
    let folders = Folders::new("later");
    let (database, ann) = folders.session();
    database.session().execute("GRANT ALTER ON default.t TO ann").unwrap();
    ann.rows("SET @@execute_mode = 'offline'");
    ann.rows("LOAD DATA INFILE '~/in/a.csv' INTO TABLE t OPTIONS(deep_copy=false)");
    assert_eq!(ann.rows("SELECT * FROM t"), 1);
    fs::remove_file(folders.at("in/a.csv")).unwrap();
    symlink(folders.at("out/secret.csv"), folders.at("in/a.csv")).unwrap();
    ann.refused_as_outside("SELECT * FROM t");
    // The owner of the machine reads what it may.
    let root = database.session();
    assert_eq!(
        root.execute("SET @@execute_mode = 'offline'; SELECT * FROM t").unwrap().row_count(),
        1
    );
}

/// Writes a Delta table of one Parquet file that its log names.
fn delta(folders: &Folders, database: &Database, table: &str, path: &str) {
    let log = folders.at(table).join("_delta_log");
    fs::create_dir_all(&log).unwrap();
    let data = folders.at(table).join("part.parquet");
    let export =
        format!("SELECT 'x' AS k INTO OUTFILE '{}' OPTIONS(mode='overwrite')", data.display());
    database.session().execute(&export).unwrap();
    let schema = r#"{\"type\":\"struct\",\"fields\":[{\"name\":\"k\",\"type\":\"string\",\"nullable\":true,\"metadata\":{}}]}"#;
    let size = fs::metadata(&data).unwrap().len();
    let commit = format!(
        "{{\"protocol\":{{\"minReaderVersion\":1,\"minWriterVersion\":2}}}}\n\
         {{\"metaData\":{{\"id\":\"1\",\"format\":{{\"provider\":\"parquet\",\"options\":{{}}}},\
         \"schemaString\":\"{schema}\",\"partitionColumns\":[],\"configuration\":{{}}}}}}\n\
         {{\"add\":{{\"path\":\"{path}\",\"partitionValues\":{{}},\"size\":{size},\
         \"modificationTime\":1,\"dataChange\":true}}}}\n"
    );
    fs::write(log.join("00000000000000000000.json"), commit).unwrap();
}

#[test]
fn the_metadata_of_a_lake_leads_out_of_no_folder() {
    let folders = Folders::new("lake");
    let (database, ann) = folders.session();
    delta(&folders, &database, "in/good", "part.parquet");
    assert_eq!(ann.rows("SELECT * FROM read_delta('~/in/good')"), 1);
    delta(&folders, &database, "out/lake", "part.parquet");
    let outside = folders.at("out/lake/part.parquet");
    for (name, path) in [
        ("absolute", outside.display().to_string()),
        ("url", format!("file://{}", outside.display())),
        ("above", "../../out/lake/part.parquet".to_owned()),
        ("encoded", "%2e%2e/%2e%2e/out/lake/part.parquet".to_owned()),
    ] {
        delta(&folders, &database, &format!("in/{name}"), &path);
        ann.refused_as_outside(&format!("SELECT * FROM read_delta('~/in/{name}')"));
    }
    delta(&folders, &database, "in/linked", "sub/part.parquet");
    symlink(folders.at("out/lake"), folders.at("in/linked/sub")).unwrap();
    ann.refused_as_outside("SELECT * FROM read_delta('~/in/linked')");
    // The log itself.
    fs::create_dir_all(folders.at("in/log")).unwrap();
    symlink(folders.at("out/lake/_delta_log"), folders.at("in/log/_delta_log")).unwrap();
    ann.refused("SELECT * FROM read_delta('~/in/log')");
}

#[test]
fn nothing_is_written_through_a_link() {
    let folders = Folders::new("write");
    let (database, ann) = folders.session();
    database
        .session()
        .execute("INSERT INTO t VALUES ('a'), ('b'); GRANT ADMIN ON *.* TO ann")
        .unwrap();
    let before = folders.outside();
    fs::create_dir_all(folders.at("in/parts")).unwrap();
    symlink(folders.at("out"), folders.at("in/parts/k=a")).unwrap();
    let outfile = |path: &str, options: &str| {
        format!("SELECT k, 1 AS v FROM t INTO OUTFILE '~/in/{path}' OPTIONS(format='csv'{options})")
    };
    ann.refused_as_outside(&outfile("parts", ", partition_by='k'"));
    ann.refused_as_outside(&outfile("parts", ", partition_by='k', mode='overwrite'"));
    ann.refused_as_outside(&outfile("parts", ", partition_by='k', mode='append'"));
    ann.refused_as_outside(&outfile("parts/k=a/x.csv", ""));
    fs::create_dir_all(folders.at("in/marked")).unwrap();
    symlink(folders.at("out/marker"), folders.at("in/marked/_SUCCESS")).unwrap();
    ann.refused(&outfile("marked", ""));
    fs::create_dir_all(folders.at("in/old")).unwrap();
    symlink(folders.at("out/secret.csv"), folders.at("in/old/part-00000.csv")).unwrap();
    ann.refused_as_outside(&outfile("old", ", mode='overwrite'"));
    symlink(folders.at("out"), folders.at("in/link")).unwrap();
    ann.refused_as_outside("BACKUP TO '~/in/link/backup'");
    ann.refused_as_outside("BACKUP TO '~/in/link'");
    let (_, message) = ann.refused("BACKUP TO '~/in/none/backup'");
    assert_eq!(message, "permission denied to write a backup to this directory");
    ann.rows(&outfile("fine", ", partition_by='k'"));
    assert_eq!(ann.rows("SELECT * FROM read_csv('~/in/fine')"), 2);
    ann.rows(&outfile("fine", ", partition_by='k', mode='overwrite'"));
    assert_eq!(folders.outside(), before, "nothing was added or removed");
}

#[test]
fn special_files_are_refused_before_they_are_opened() {
    let folders = Folders::new("special");
    for folder in ["in/pipes", "in/sockets/day=1", "in/outfile"] {
        fs::create_dir_all(folders.at(folder)).unwrap();
    }
    for pipe in ["in/pipe.csv", "in/pipes/b.csv", "in/pipe.parquet", "in/outfile/_SUCCESS"] {
        assert!(Command::new("mkfifo").arg(folders.at(pipe)).status().unwrap().success());
    }
    folders.write("in/pipes/a.csv", "k\ninside\n");
    let _socket = UnixListener::bind(folders.at("in/sockets/day=1/b.csv")).unwrap();
    let (database, ann) = folders.session();
    delta(&folders, &database, "in/lake", "part.parquet");
    fs::remove_file(folders.at("in/lake/part.parquet")).unwrap();
    assert!(
        Command::new("mkfifo").arg(folders.at("in/lake/part.parquet")).status().unwrap().success()
    );
    let refused = |sql: &str, expected: &str| {
        assert_eq!(ann.refused(sql), (code::WRONG_OBJECT_TYPE, expected.to_owned()), "{sql}");
    };
    refused("SELECT * FROM '~/in/pipe.csv'", "file `~/in/pipe.csv` is a pipe");
    refused("SELECT * FROM '~/in/pipe.parquet'", "file `~/in/pipe.parquet` is a pipe");
    refused("SELECT * FROM read_csv('~/in/pipes')", "file `~/in/pipes/b.csv` is a pipe");
    refused(
        "SELECT * FROM read_csv('~/in/sockets')",
        "file `~/in/sockets/day=1/b.csv` is a socket",
    );
    refused("LOAD DATA INFILE '~/in/pipe.csv' INTO TABLE t", "file `~/in/pipe.csv` is a pipe");
    refused("SELECT * FROM read_delta('~/in/lake')", "file `~/in/lake/part.parquet` is a pipe");
    refused(
        "SELECT k FROM t INTO OUTFILE '~/in/pipe.csv' OPTIONS(mode='overwrite')",
        "file `~/in/pipe.csv` is not a regular file",
    );
    refused(
        "SELECT k FROM t INTO OUTFILE '~/in/outfile' OPTIONS(format='csv', mode='overwrite')",
        "file `~/in/outfile/_SUCCESS` is not a regular file",
    );
    let device = database.session().execute("SELECT * FROM read_csv('/dev/zero')").unwrap_err();
    assert_eq!(device.message, "file `/dev/zero` is a device");
}

#[test]
fn a_folder_that_contains_itself_has_an_end() {
    let folders = Folders::new("cycle");
    fs::create_dir_all(folders.at("in/loop")).unwrap();
    for name in ["a=1", "a=2", "a=3"] {
        symlink(".", folders.at("in/loop").join(name)).unwrap();
    }
    let (_database, ann) = folders.session();
    let (found, message) = ann.refused("SELECT * FROM read_csv('~/in/loop')");
    assert_eq!(found, code::WRONG_OBJECT_TYPE);
    assert_eq!(
        message,
        "directory `~/in/loop/a=1` is a symbolic link to one of its parent directories"
    );
}

/// Opens the directory of a database.
fn open(path: &Path) -> Database {
    Database::open(path).unwrap()
}

#[test]
fn what_a_deployment_is_called_is_no_statement_when_the_directory_is_opened() {
    let folders = Folders::new("script");
    let path = folders.at("features.lockstep");
    let database = open(&path);
    let script = "CREATE TABLE t (k STRING); CREATE USER ann OPTIONS(password='x');
        GRANT ALL ON default.* TO ann";
    database.session().execute(script).unwrap();
    let ann = database.authenticate("ann", Proof::Password("x"), ClientInfo::default()).unwrap();
    let more = "CREATE USER eve";
    let table = format!("a'') SELECT k FROM t; {more}; -- ");
    ann.execute(&format!("DEPLOY d OPTIONS(log_answers='{table}') SELECT k FROM t")).unwrap();
    let name = format!("b`` AS SELECT k FROM t; {more}; -- ");
    ann.execute(&format!("CREATE VIEW `{name}` AS SELECT k FROM t")).unwrap();
    ann.execute(&format!("DEPLOY `{name}` AS SELECT k FROM t")).unwrap();
    drop(ann);
    database.close().unwrap();
    drop(database);
    let database = open(&path);
    let ann = database.authenticate("ann", Proof::Password("x"), ClientInfo::default()).unwrap();
    database.session().execute("DROP USER eve").expect_err("no user was created");
    assert_eq!(ann.execute("SHOW DEPLOYMENTS").unwrap().row_count(), 2);
    assert_eq!(ann.execute("SHOW VIEWS").unwrap().row_count(), 1);
}

/// The directory of the database may be below a listed folder, and is none of the files of users all the
/// same: neither is what a link to it leads to.
#[test]
fn the_directory_of_the_database_is_closed() {
    let folders = Folders::new("own");
    let database = Database::open(folders.at("in/own.lockstep")).unwrap();
    let root = database.session();
    root.execute(
        "CREATE TABLE t (k STRING); CREATE USER ann OPTIONS(password='x');
         GRANT SELECT, INSERT ON default.t TO ann",
    )
    .unwrap();
    database.set_file_folders(&[folders.at("in")]).unwrap();
    let session = database.authenticate("ann", Proof::Password("x"), ClientInfo::default());
    let ann = FolderSession { folders: &folders, session: session.unwrap() };
    symlink(folders.at("in/own.lockstep"), folders.at("in/alias")).unwrap();
    folders.write("in/own.lockstep/data/x.csv", "k\na\n");
    for sql in [
        "SELECT * FROM '~/in/own.lockstep/data/x.csv'",
        "SELECT * FROM '~/in/own.lockstep'",
        "SELECT * FROM '~/in/alias/data/x.csv'",
        "LOAD DATA INFILE '~/in/own.lockstep/data/x.csv' INTO TABLE t",
        "SELECT * FROM t INTO OUTFILE '~/in/own.lockstep/MANIFEST' OPTIONS(mode='overwrite')",
        "SELECT * FROM t INTO OUTFILE '~/in/alias/y.csv'",
        "SELECT * FROM t INTO OUTFILE '~/in/own.lockstep' OPTIONS(mode='overwrite')",
    ] {
        ann.refused_as_outside(sql);
    }
    folders.write("in/beside.csv", "k\na\n");
    assert_eq!(ann.rows("SELECT * FROM '~/in/beside.csv'"), 1);
}
