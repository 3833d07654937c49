//! Sources and sinks of files: each line is one row and each row is in one file, however often the directory is opened.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use lockstep_engine::{ClientInfo, Database, Proof, Session, code};

use crate::{
    kafka::{number, rows, text, wait, wait_for_rows},
    test_directory::TestDirectory,
};

const TABLE: &str =
    "CREATE TABLE t (id INT, k STRING, ts TIMESTAMP, x DOUBLE, INDEX(KEY=k, TS=ts))";

/// A folder with files for sources, and of sinks.
struct TestFiles(TestDirectory);

impl TestFiles {
    fn new(name: &str) -> Self {
        let folder = TestDirectory::new(name);
        fs::create_dir_all(&folder.0).unwrap();
        Self(folder)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.0.join(name)
    }

    /// Writes a file that appears when it is complete.
    fn write(&self, name: &str, content: &str) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let hidden = path.with_file_name(".new");
        fs::write(&hidden, content).unwrap();
        fs::rename(hidden, path).unwrap();
    }

    /// Writes a CSV file with rows of these numbers.
    fn write_rows(&self, name: &str, ids: impl IntoIterator<Item = i64>) {
        let mut content = "id,k,ts,x\n".to_owned();
        for id in ids {
            content.push_str(&format!("{id},k{},{},{id}.5\n", id % 3, 1_000 * id));
        }
        self.write(name, &content);
    }

    /// Returns the statement that makes the source `s` of the table `t`.
    fn source(&self, path: &str, more: &str) -> String {
        let path = self.at(path);
        format!(
            "CREATE SOURCE s INTO TABLE t FROM FILES OPTIONS(path='{}', settle_after='0s'{more})",
            path.display()
        )
    }

    /// Returns the statement that makes the sink `out` of the table `t`.
    fn sink(&self, more: &str) -> String {
        format!(
            "CREATE SINK out FROM TABLE t INTO FILES OPTIONS(path='{}'{more})",
            self.0.0.display()
        )
    }

    /// Returns the names of the files that a reader sees, in their order.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0.0).unwrap().map(|entry| entry.unwrap().file_name());
        let names = entries.map(|name| name.to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort_unstable();
        names
    }

    /// Returns the lines of all files, in the order of the files' names.
    fn lines(&self) -> Vec<String> {
        let texts =
            self.names().into_iter().map(|name| fs::read_to_string(self.at(&name)).unwrap());
        texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
    }
}

fn state(session: &Session) -> String {
    text(session, "SELECT state FROM lockstep.sources")
}

fn error(session: &Session) -> String {
    text(session, "SELECT coalesce(error, '') FROM lockstep.sources")
}

fn wait_for_error(session: &Session, what: &str) {
    wait(what, || error(session).contains(what));
}

fn wait_for_written(session: &Session, count: i64) {
    let sql = "SELECT messages_written FROM lockstep.sinks";
    wait(&format!("{count} rows in files"), || number(session, sql) >= count);
}

fn insert(session: &Session, ids: impl IntoIterator<Item = i64>) {
    let values: Vec<String> = ids
        .into_iter()
        .map(|id| format!("({id}, 'k{}', {}, {id}.5)", id % 3, 1_000 * id))
        .collect();
    session.execute(&format!("INSERT INTO t VALUES {}", values.join(", "))).unwrap();
}

#[test]
fn each_line_is_one_row_however_often_the_directory_is_opened() {
    let (files, directory) = (TestFiles::new("files-source"), TestDirectory::new("files-db"));
    files.write_rows("b.csv", 50..100);
    files.write_rows("a.csv", 0..50);
    let session = directory.open();
    session.execute(TABLE).unwrap();
    session.execute(&files.source("*.csv", "")).unwrap();
    wait_for_rows(&session, "t", 100);
    assert_eq!(number(&session, "SELECT id FROM t LIMIT 1"), 0, "in the order of the names");
    drop(session);
    for round in 2..8 {
        let ids = 50 * round..50 * (round + 1);
        if round % 2 == 0 {
            files.write_rows(&format!("{round}.csv"), ids.clone());
        }
        let session = directory.open();
        if round % 2 == 1 {
            files.write_rows(&format!("{round}.csv"), ids);
        }
        if round == 3 {
            session.execute("CHECKPOINT").unwrap();
        }
        wait_for_rows(&session, "t", 50 * (round + 1));
        assert_eq!(number(&session, "SELECT count(DISTINCT id) FROM t"), 50 * (round + 1));
    }
    let session = directory.open();
    assert_eq!(number(&session, "SELECT messages_read FROM lockstep.sources"), 400);
    assert_eq!(number(&session, "SELECT sum(id) FROM t"), (0..400).sum::<i64>());
    let path = text(&session, "SELECT path FROM lockstep.sources");
    assert_eq!(path, files.at("*.csv").display().to_string());
}

#[test]
fn a_file_is_continued_behind_its_last_stored_line() {
    let (files, directory) = (TestFiles::new("files-large"), TestDirectory::new("files-large-db"));
    let session = directory.open();
    session.execute(TABLE).unwrap();
    session.execute(&files.source("*.csv", "")).unwrap();
    session.execute("STOP SOURCE s").unwrap();
    files.write_rows("a.csv", 0..60_000);
    for _ in 0..200 {
        session.execute("START SOURCE s").unwrap();
        let before = number(&session, "SELECT count(*) FROM t");
        wait("some rows", || {
            number(&session, "SELECT count(*) FROM t") > before || before == 60_000
        });
        session.execute("STOP SOURCE s").unwrap();
        if before == 0 {
            session.execute("CREATE INDEX by_id ON t (id) OPTIONS(TS=ts)").unwrap();
        }
        if before == 60_000 {
            break;
        }
    }
    assert_eq!(number(&session, "SELECT count(DISTINCT id) FROM t"), 60_000);
    assert_eq!(number(&session, "SELECT count(*) FROM t"), 60_000);
    drop(session);
    let session = directory.open();
    session.execute("START SOURCE s").unwrap();
    files.write_rows("b.csv", 60_000..60_010);
    wait_for_rows(&session, "t", 60_010);
}

#[test]
fn all_formats_are_read() {
    let files = TestFiles::new("files-formats");
    let database = Database::in_memory();
    let session = database.session();
    session.execute(TABLE).unwrap();
    session.execute("CREATE TABLE original (id INT, k STRING, ts TIMESTAMP, x DOUBLE)").unwrap();
    session
        .execute("INSERT INTO original VALUES (1, 'a', 1000, 1.5), (2, NULL, 2000, NULL)")
        .unwrap();
    let export = |name: &str| {
        let path = files.at(name);
        let sql = format!("SELECT * FROM original INTO OUTFILE '{}'", path.display());
        session.execute(&sql).unwrap();
    };
    let expected = rows(&session, "SELECT * FROM original");
    for (at, (name, more)) in [
        ("a.csv", ""),
        ("a.csv.gz", ""),
        ("a.json", ""),
        ("a.parquet", ""),
        ("a.arrow", ", format='arrow'"),
        ("a.txt", ", format='csv', match_by='position', quote='\"'"),
    ]
    .into_iter()
    .enumerate()
    {
        export(name);
        session
            .execute(&files.source(name, more))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        wait(name, || {
            number(&session, "SELECT count(*) FROM t") == 2 || state(&session) == "failed"
        });
        assert_eq!(rows(&session, "SELECT * FROM t"), expected, "{at} {name}: {}", error(&session));
        session.execute("DROP SOURCE s; TRUNCATE TABLE t").unwrap();
    }
    files.write("plain/x", "3;c;3000;\n4;NULL;4000;4.5\n");
    let more = ", format='csv', header=false, delimiter=';', null_value='NULL'";
    session.execute(&files.source("plain", more)).unwrap();
    wait_for_rows(&session, "t", 2);
    assert_eq!(number(&session, "SELECT count(*) FROM t WHERE k IS NULL AND x = 4.5"), 1);
    session.execute("DROP SOURCE s; TRUNCATE TABLE t").unwrap();
    files.write("days/k=monday/x.csv", "id,ts,x\n5,5000,1\n");
    session.execute(&files.source("days", ", format='csv'")).unwrap();
    wait_for_rows(&session, "t", 1);
    assert_eq!(text(&session, "SELECT k FROM t"), "monday");
}

#[test]
fn a_line_that_is_no_row_is_stored_with_the_reason() {
    let (files, database) = (TestFiles::new("files-bad"), Database::in_memory());
    let session = database.session();
    session
        .execute("CREATE TABLE t (id INT NOT NULL, k STRING, ts TIMESTAMP DEFAULT 7000)")
        .unwrap();
    files.write("a.csv", "id,k\n1,a\nx,b\n2\n3,\"c\n4,d\n");
    files.write("b.csv", "id,other\n5,e\n");
    files.write("c.csv", "id,k\n6,f\n,g\n");
    session.execute(&files.source("*.csv", ", on_error='skip into bad'")).unwrap();
    wait("the lines", || number(&session, "SELECT messages_read FROM lockstep.sources") == 7);
    assert_eq!(number(&session, "SELECT sum(id) FROM t"), 7);
    assert_eq!(number(&session, "SELECT messages_bad FROM lockstep.sources"), 5);
    assert_eq!(state(&session), "running");
    let shown =
        rows(&session, "SELECT source, file_row, line, message FROM bad ORDER BY file, file_row");
    for expected in ["\"x,b\"", "\"2\"", "\",g\""] {
        assert!(shown.contains(expected), "{shown}");
    }
    let reasons = rows(&session, "SELECT reason FROM bad ORDER BY file, file_row");
    for expected in [
        "column `id`: invalid input syntax for type INT: 'x'",
        "expected 2 fields, found 1",
        "unterminated quoted field",
        "other",
        "null value in column `id` violates not-null constraint",
    ] {
        assert!(reasons.contains(expected), "{expected}: {reasons}");
    }
    assert_eq!(number(&session, "SELECT max(line) FROM bad WHERE file_row = 3"), 4);
}

#[test]
fn the_rest_of_a_damaged_file_counts_as_one_line() {
    let (files, database) = (TestFiles::new("files-damaged"), Database::in_memory());
    let session = database.session();
    session.execute(TABLE).unwrap();
    session.execute("CREATE TABLE many (id INT, k STRING, ts TIMESTAMP, x DOUBLE)").unwrap();
    insert(&session, 0..20_000);
    session.execute("INSERT INTO many SELECT * FROM t; TRUNCATE TABLE t").unwrap();
    for name in ["a.csv.gz", "b.csv.zst", "c.csv"] {
        let path = files.at(name);
        let sql = format!("SELECT * FROM many INTO OUTFILE '{}'", path.display());
        session.execute(&sql).unwrap();
        if name != "c.csv" {
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, &bytes[..bytes.len() - 9]).unwrap();
        }
    }
    // What begins as Zstandard does, and is nothing.
    fs::write(files.at("d.csv.zst"), [[0x28, 0xb5, 0x2f, 0xfd], [0xff; 4]].concat()).unwrap();
    let more = ", format='csv', on_error='skip into bad'";
    session.execute(&files.source("", more)).unwrap();
    wait("the files", || {
        number(&session, "SELECT messages_bad FROM lockstep.sources") == 3
            && number(&session, "SELECT lag FROM lockstep.sources") == 0
            && number(&session, "SELECT count(*) FROM t") >= 20_000
    });
    assert_eq!(state(&session), "running");
    let reasons = rows(&session, "SELECT reason FROM bad ORDER BY file");
    for name in ["a.csv.gz", "b.csv.zst", "d.csv.zst"] {
        assert!(reasons.contains(&files.at(name).display().to_string()), "{reasons}");
    }
    assert_eq!(number(&session, "SELECT count(*) FROM bad WHERE line IS NULL"), 3);
}

#[test]
fn a_source_stops_at_a_line_that_is_no_row_and_continues_as_it_is_told() {
    let (files, directory) = (TestFiles::new("files-stop"), TestDirectory::new("files-stop-db"));
    let session = directory.open();
    session.execute(TABLE).unwrap();
    files.write("a.json", "{\"id\": 1}\n{\"id\": 2}\n{\"id\": \"x\"}\n{\"id\": 4}\n");
    session.execute(&files.source("*.json", "")).unwrap();
    wait_for_error(&session, "line 3 of file");
    assert_eq!(
        (state(&session).as_str(), number(&session, "SELECT sum(id) FROM t")),
        ("failed", 3)
    );
    assert!(
        error(&session).contains("is not a row of table `t`: column `id`"),
        "{}",
        error(&session)
    );
    assert_eq!(number(&session, "SELECT lag FROM lockstep.sources"), 1, "the file is not read");
    session.execute("START SOURCE s").unwrap();
    wait("it fails again", || state(&session) == "failed");
    drop(session);
    let session = directory.open();
    wait("it fails again", || state(&session) == "failed");
    session.execute("ALTER SOURCE s SET OPTIONS(on_error='skip')").unwrap();
    wait_for_rows(&session, "t", 3);
    assert_eq!(number(&session, "SELECT sum(id) FROM t"), 7);
    assert_eq!(number(&session, "SELECT messages_bad FROM lockstep.sources"), 1);
}

#[test]
fn the_place_of_a_row_is_in_columns() {
    let (files, database) = (TestFiles::new("files-parts"), Database::in_memory());
    let session = database.session();
    session.execute("CREATE TABLE t (file STRING, id INT, row_number BIGINT, k STRING)").unwrap();
    files.write("a.csv", "1,a\nx\n3,c\n");
    let more = ", header=false, file_column='file', row_column='row_number', on_error='skip'";
    session.execute(&files.source("*.csv", more)).unwrap();
    wait_for_rows(&session, "t", 2);
    assert_eq!(number(&session, "SELECT row_number FROM t WHERE id = 3 AND k = 'c'"), 3);
    assert_eq!(
        text(&session, "SELECT file FROM t WHERE id = 1"),
        files.at("a.csv").display().to_string()
    );
}

#[test]
fn a_file_that_changes_is_handled_as_it_is_told() {
    let (files, directory) =
        (TestFiles::new("files-change"), TestDirectory::new("files-change-db"));
    let session = directory.open();
    session.execute(TABLE).unwrap();
    files.write_rows("a.csv", 0..10);
    session.execute(&files.source("*.csv", "")).unwrap();
    wait_for_rows(&session, "t", 10);
    files.write_rows("a.csv", 10..21);
    wait_for_error(&session, "has changed after it was read");
    assert_eq!(state(&session), "failed");
    session.execute("ALTER SOURCE s SET OPTIONS(on_change='skip')").unwrap();
    files.write_rows("b.csv", 21..30);
    wait_for_rows(&session, "t", 19);
    session.execute("ALTER SOURCE s SET OPTIONS(on_change='read')").unwrap();
    wait_for_rows(&session, "t", 30);
    drop(session);
    let session = directory.open();
    files.write_rows("c.csv", 30..40);
    wait_for_rows(&session, "t", 40);
    // A file that is gone is no error; its rows stay.
    fs::remove_file(files.at("b.csv")).unwrap();
    files.write_rows("d.csv", 40..50);
    wait_for_rows(&session, "t", 50);
    assert_eq!(number(&session, "SELECT count(DISTINCT id) FROM t"), 50);
}

#[test]
fn a_file_that_is_gone_before_it_is_read_is_no_error() {
    let (files, database) = (TestFiles::new("files-vanish"), Database::in_memory());
    let session = database.session();
    session.execute(TABLE).unwrap();
    session.execute(&files.source("*.csv", "")).unwrap();
    let mut stored = 0;
    for round in 0..60 {
        // Found together; the later ones are gone or others when their turn comes.
        files.write_rows(&format!("{round}-a.csv"), round * 100..round * 100 + 40);
        for name in ["b", "c", "d"] {
            files.write(&format!("{round}-{name}.csv"), "id\n");
        }
        lockstep_host::pause(u32::try_from(round % 7).unwrap());
        for name in ["b", "c", "d"] {
            fs::remove_file(files.at(&format!("{round}-{name}.csv"))).unwrap();
        }
        stored += 40;
    }
    wait_for_rows(&session, "t", stored);
    assert_eq!(state(&session), "running");
}

#[test]
fn a_file_is_read_when_it_has_settled() {
    let (files, database) = (TestFiles::new("files-settle"), Database::in_memory());
    let session = database.session();
    session.execute(TABLE).unwrap();
    let path = files.at("a.csv");
    let create = files.source("*.csv", "").replace("settle_after='0s'", "settle_after='3s'");
    session.execute(&create).unwrap();
    let mut content = "id,k,ts,x\n".to_owned();
    for id in 0..4 {
        for part in [&format!("{id},a,{id},"), "1.5\n"] {
            content.push_str(part);
            fs::write(&path, &content).unwrap();
            lockstep_host::pause(100);
        }
    }
    wait_for_rows(&session, "t", 4);
    assert_eq!(number(&session, "SELECT count(*) FROM t WHERE x = 1.5"), 4);
    assert_eq!(state(&session), "running");
}

#[test]
fn only_new_files_are_read_from_the_latest_on() {
    let (files, directory) =
        (TestFiles::new("files-latest"), TestDirectory::new("files-latest-db"));
    files.write_rows("a.csv", 0..10);
    files.write_rows("b.csv", 10..20);
    let session = directory.open();
    session.execute(TABLE).unwrap();
    session.execute(&files.source("*.csv", ", start='latest'")).unwrap();
    files.write_rows("c.csv", 20..30);
    wait_for_rows(&session, "t", 10);
    drop(session);
    let session = directory.open();
    files.write_rows("d.csv", 30..40);
    wait_for_rows(&session, "t", 20);
    assert_eq!(number(&session, "SELECT min(id) FROM t"), 20);
}

#[test]
fn a_source_waits_for_a_folder_that_is_gone() {
    let (files, database) = (TestFiles::new("files-gone"), Database::in_memory());
    let session = database.session();
    session.execute(TABLE).unwrap();
    files.write_rows("in/a.csv", 0..10);
    session.execute(&files.source("in/*.csv", "")).unwrap();
    wait_for_rows(&session, "t", 10);
    fs::rename(files.at("in"), files.at("elsewhere")).unwrap();
    wait("it waits", || state(&session) == "waiting");
    assert!(error(&session).contains("does not exist"), "{}", error(&session));
    fs::rename(files.at("elsewhere"), files.at("in")).unwrap();
    files.write_rows("in/b.csv", 10..20);
    wait_for_rows(&session, "t", 20);
    wait("it runs", || state(&session) == "running");
}

#[test]
fn each_row_is_in_one_file_however_often_the_directory_is_opened() {
    let (files, directory) = (TestFiles::new("files-sink"), TestDirectory::new("files-sink-db"));
    let session = directory.open();
    session.execute(TABLE).unwrap();
    insert(&session, 0..100);
    session
        .execute(&files.sink(", format='csv', header=false, rows_per_file=40, roll_after='1h'"))
        .unwrap();
    wait_for_written(&session, 80);
    assert_eq!(files.names().len(), 2);
    wait("the rest is read", || number(&session, "SELECT lag_ms FROM lockstep.sinks") > 0);
    session.execute("STOP SINK out").unwrap();
    wait("the rest", || files.names().len() == 3);
    drop(session);
    for round in 2..6 {
        let session = directory.open();
        session.execute("START SINK out").unwrap();
        insert(&session, 50 * round..50 * (round + 1));
        if round == 3 {
            session.execute("CHECKPOINT").unwrap();
        }
        let written = || files.lines().len();
        let least = usize::try_from(50 * round).unwrap();
        wait("whole files", || written() >= least);
    }
    // What the last process had not read yet.
    let session = directory.open();
    session.execute("ALTER SINK out SET OPTIONS(roll_after='0s')").unwrap();
    wait("all rows", || files.lines().len() >= 300);
    drop(session);
    let expected: Vec<String> = (0..300).map(|id| format!("{id},k{},", id % 3)).collect();
    let lines = files.lines();
    assert_eq!(lines.len(), 300, "each is written once");
    for (line, expected) in lines.iter().zip(&expected) {
        assert!(line.starts_with(expected), "{line}: in the order of the rows");
    }
    let session = directory.open();
    assert_eq!(number(&session, "SELECT messages_written FROM lockstep.sinks"), 300);
    assert!(files.names().iter().all(|name| name.starts_with("part-") && name.ends_with(".csv")));
}

#[test]
fn a_file_is_complete_after_a_while() {
    let (files, database) = (TestFiles::new("files-roll"), Database::in_memory());
    let session = database.session();
    session.execute(TABLE).unwrap();
    session.execute(&files.sink(", format='json', roll_after='200ms'")).unwrap();
    insert(&session, 0..3);
    wait("a file", || files.names().len() == 1);
    let first = r#"{"id":0,"k":"k0","ts":"1970-01-01T00:00:00.000Z","x":0.5}"#;
    assert_eq!(files.lines()[0], first);
    session.execute("ALTER SINK out SET OPTIONS(roll_after='1h')").unwrap();
    insert(&session, 3..5);
    wait("the rows are read", || number(&session, "SELECT lag_ms FROM lockstep.sinks") > 0);
    assert_eq!(number(&session, "SELECT messages_written FROM lockstep.sinks"), 3);
    // What is changed completes its file.
    session.execute("ALTER SINK out SET OPTIONS(rows_per_file=2)").unwrap();
    wait("two files", || files.lines().len() == 5);
    insert(&session, 5..8);
    wait("three files", || files.lines().len() == 7);
    wait("the last row is read", || number(&session, "SELECT lag_ms FROM lockstep.sinks") > 0);
    session.execute("DROP SINK out").unwrap();
    assert_eq!(files.lines().len(), 8);
}

#[test]
fn a_stream_becomes_files_of_every_format() {
    let (files, database) = (TestFiles::new("files-stream"), Database::in_memory());
    let session = database.session();
    session.execute(TABLE).unwrap();
    session
        .execute(
            "CREATE STREAM c INTO TABLE counted OPTIONS(emit='arrival') AS SELECT id, k, ts, \
             count(id) OVER w AS n FROM t WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 9 \
             PRECEDING AND CURRENT ROW)",
        )
        .unwrap();
    let formats = ["parquet", "arrow", "csv", "json"];
    for format in formats {
        fs::create_dir_all(files.at(format)).unwrap();
        let path = files.at(format);
        let options = format!("path='{}', format='{format}', roll_after='100ms'", path.display());
        let compression = if format == "csv" { ", compression='gzip'" } else { "" };
        let sql = format!(
            "CREATE SINK of_{format} FROM STREAM c INTO FILES OPTIONS({options}{compression})"
        );
        session.execute(&sql).unwrap();
    }
    insert(&session, 0..30);
    wait("all sinks", || {
        number(&session, "SELECT sum(messages_written) FROM lockstep.sinks") == 120
    });
    let expected = rows(&session, "SELECT * FROM counted ORDER BY id");
    for format in formats {
        let pattern = files.at(format).join("*");
        let sql = match format {
            "json" | "csv" => format!(
                "SELECT CAST(id AS INT) AS id, k, CAST(ts AS TIMESTAMP) AS ts, CAST(n AS BIGINT) AS n \
                 FROM '{}' ORDER BY id",
                pattern.display()
            ),
            _ => format!("SELECT * FROM '{}' ORDER BY id", pattern.display()),
        };
        let extension = if format == "csv" { "csv.gz" } else { format };
        let sql = sql.replace("/*'", &format!("/*.{extension}'"));
        assert_eq!(rows(&session, &sql), expected, "{format}");
    }
}

#[test]
fn rows_that_are_removed_before_their_file_is_complete_are_written() {
    let (files, database) = (TestFiles::new("files-removed"), Database::in_memory());
    let session = database.session();
    session.execute(TABLE).unwrap();
    let options = ", format='csv', header=false, roll_after='1h', rows_per_file=10";
    session.execute(&files.sink(options)).unwrap();
    insert(&session, 0..6);
    wait("the rows are read", || number(&session, "SELECT lag_ms FROM lockstep.sinks") > 0);
    session.execute("DELETE FROM t WHERE k = 'k0'").unwrap();
    // The file cannot be completed; its rows are read again.
    fs::rename(&files.0.0, files.0.0.with_extension("gone")).unwrap();
    insert(&session, 6..10);
    wait("it waits", || text(&session, "SELECT state FROM lockstep.sinks") == "waiting");
    let error = text(&session, "SELECT error FROM lockstep.sinks");
    assert!(error.contains("does not exist"), "{error}");
    fs::rename(files.0.0.with_extension("gone"), &files.0.0).unwrap();
    wait_for_written(&session, 10);
    assert_eq!(files.lines().len(), 10);
}

#[test]
fn what_is_not_complete_is_removed_and_another_sink_is_left_alone() {
    let (files, directory) = (TestFiles::new("files-stale"), TestDirectory::new("files-stale-db"));
    let session = directory.open();
    session.execute(TABLE).unwrap();
    session.execute(&files.sink(", format='csv', roll_after='0s'")).unwrap();
    insert(&session, 0..3);
    wait("a file", || files.names().len() == 1);
    drop(session);
    let own = files.names().remove(0);
    let begin = own.split_inclusive('-').take(2).collect::<String>();
    let stale = files.at(&format!(".{begin}0000000000000009.csv.1-0.tmp"));
    let foreign = files.at(".part-0123456789ab-0000000000000009.csv.1-0.tmp");
    fs::write(&stale, "part of a file").unwrap();
    fs::write(&foreign, "of another sink").unwrap();
    let session = directory.open();
    insert(&session, 3..6);
    wait("another file", || files.names().len() == 2);
    assert!(!stale.exists() && foreign.exists());
    let ids: BTreeSet<String> = files.lines().into_iter().collect();
    assert_eq!(ids.len(), 7, "six rows and a header");
}

#[test]
fn a_user_opens_the_files_of_listed_folders_only() {
    let (files, directory) = (TestFiles::new("files-user"), TestDirectory::new("files-user-db"));
    files.write_rows("in/a.csv", 0..10);
    files.write_rows("out/secret.csv", 10..20);
    let log_in = |database: &Database| {
        database.set_file_folders(&[files.at("in")]).unwrap();
        database.authenticate("ann", Proof::Password("x"), ClientInfo::default()).unwrap()
    };
    let database = Database::open(&directory.0).unwrap();
    database
        .session()
        .execute(&format!(
            "{TABLE}; CREATE USER ann OPTIONS(password='x'); GRANT ADMIN, SELECT ON *.* TO ann"
        ))
        .unwrap();
    let ann = log_in(&database);
    let refused = |sql: String| ann.execute(&sql).unwrap_err().code;
    assert_eq!(refused(files.source("out/*.csv", "")), code::INSUFFICIENT_PRIVILEGE);
    assert_eq!(refused(files.sink("")), code::INSUFFICIENT_PRIVILEGE);
    ann.execute(&files.source("in/*.csv", "")).unwrap();
    wait_for_rows(&ann, "t", 10);
    // Neither now nor after the directory was opened again, at first without the listed folders.
    symlink(files.at("out/secret.csv"), files.at("in/b.csv")).unwrap();
    wait("it waits", || state(&ann) == "waiting");
    drop((ann, database));
    let database = Database::open(&directory.0).unwrap();
    let session = database.session();
    wait("it waits", || state(&session) == "waiting");
    let ann = log_in(&database);
    fs::remove_file(files.at("in/b.csv")).unwrap();
    files.write_rows("in/c.csv", 20..25);
    wait_for_rows(&ann, "t", 15);
    assert_eq!(number(&ann, "SELECT count(*) FROM t WHERE id >= 10 AND id < 20"), 0);
}

#[test]
fn what_is_wrong_is_said_and_leaves_nothing() {
    let (files, database) = (TestFiles::new("files-wrong"), Database::in_memory());
    let session = database.session();
    session.execute(TABLE).unwrap();
    files.write("a.csv", "id\n1\n");
    let fails = |sql: &str, expected: &str| {
        let error = session.execute(sql).expect_err(sql).to_string();
        assert!(error.contains(expected), "{sql}: {error}");
    };
    fails(&files.source("nowhere/*.csv", ""), "nowhere` does not exist");
    fails(&files.source("nowhere/deep/a.csv", ""), "does not exist");
    fails(&files.source("", ""), "option `format` is required");
    fails(&files.source("*.csv", ", file_column='k2'"), "column `k2` does not exist");
    fails(&files.source("*.csv", ", row_column='id'"), "but must be BIGINT");
    fails(&files.sink("/a.csv").replace(")", ""), "syntax error");
    let into_file = files.sink("").replace("')", "/a.csv')");
    fails(&into_file, "is not a directory");
    let into_nowhere = files.sink("").replace("')", "/nowhere')");
    fails(&into_nowhere, "does not exist");
    assert_eq!(number(&session, "SELECT count(*) FROM lockstep.sources"), 0);
    assert_eq!(number(&session, "SELECT count(*) FROM lockstep.sinks"), 0);
    assert_eq!(files.names(), ["a.csv"]);
    assert!(Path::new(&files.at("a.csv")).is_file());
}
