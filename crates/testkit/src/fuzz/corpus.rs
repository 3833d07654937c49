//! The corpus of fuzzing: golden SQL, the demonstration, the documents.
//!
//! `xtask` adds the conformance cases.

use std::{fs, path::Path};

use crate::slt::files_with;

/// A text and the statements that create its tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seed {
    /// Statements before the text, which are seldom mutated.
    pub prelude: String,
    /// The text that is mutated.
    pub text: String,
}

/// The seeds of a run.
#[derive(Debug, Clone, Default)]
pub struct Corpus {
    /// The seeds, in an order that depends only on the files.
    pub seeds: Vec<Seed>,
}

impl Corpus {
    /// Collects the seeds of the workspace at `root`: tests/sql, the demonstration, blocks of the
    /// documents.
    pub fn of_workspace(root: &Path) -> Self {
        let mut corpus = Self::default();
        for path in files_with(&root.join("tests/sql"), "slt") {
            corpus.add_golden(&read(&path));
        }
        for path in files_with(&root.join("python/lockstep/demo"), "sql") {
            corpus.add("", &read(&path));
        }
        for path in files_with(&root.join("docs"), "md") {
            corpus.add_document(&read(&path));
        }
        for text in HOSTILE {
            corpus.add("", text);
        }
        corpus
    }

    /// Adds a seed.
    pub fn add(&mut self, prelude: &str, text: &str) {
        self.seeds.push(Seed { prelude: prelude.to_owned(), text: text.to_owned() });
    }

    /// Adds every record of a golden file as a seed, with the statements that create its tables.
    fn add_golden(&mut self, file: &str) {
        let mut prelude = String::new();
        for record in file.split("\n\n") {
            let lines = record.lines().skip_while(|line| line.starts_with('#')).skip(1);
            let sql: Vec<&str> = lines.take_while(|line| *line != "----").collect();
            let sql = sql.join("\n");
            if sql.starts_with("CREATE TABLE") {
                prelude = format!("{prelude}{sql};\n");
            } else if !sql.is_empty() {
                self.add(&prelude, &sql);
            }
        }
    }

    fn add_document(&mut self, file: &str) {
        let mut prelude = String::new();
        for block in file.split("```sql\n").skip(1) {
            let sql = block.split("```").next().unwrap_or_default();
            if sql.starts_with("CREATE TABLE") {
                prelude = format!("{prelude}{sql};\n");
            }
            self.add(&prelude, sql);
        }
    }
}

/// Texts that no document has.
const HOSTILE: &[&str] = &[
    "SELECT CASE WHEN c3 > 1 THEN c4 ELSE NULL END, CAST(c6 AS INT), c1 LIKE '%x' FROM t1 WHERE f",
    "SELECT k, count(*), sum(c4) FROM t1 GROUP BY k HAVING count(*) > 1 ORDER BY k LIMIT 3",
    "SELECT sum(c3) OVER w FROM t1 WINDOW w AS (UNION t2 PARTITION BY k ORDER BY ts \
     ROWS_RANGE BETWEEN 3s OPEN PRECEDING AND CURRENT ROW MAXSIZE 2 EXCLUDE CURRENT_ROW)",
    "SELECT t1.id, t2.c4 FROM t1 LAST JOIN t2 ORDER BY t2.ts ON t1.k = t2.k AND t2.ts <= t1.ts",
    "WITH a AS (SELECT id, k FROM t1), b AS (SELECT id FROM a) SELECT * FROM b UNION ALL \
     SELECT id FROM t2",
    "SELECT id FROM t1 CONFIG(execute_mode='request', values=(1,'a','b',1,2,3.0,4.0,5,'2020-01-01',true,1))",
    "INSERT INTO t1 (id, k) VALUES (1, 'a'), (NULL, '\\x41\\u00fc')",
    "CREATE TABLE t (a INT NOT NULL DEFAULT 1, b STRING, ts TIMESTAMP, \
     INDEX(KEY=(a, b), TS=ts, TTL=(10m, 5), TTL_TYPE=absandlat)) OPTIONS (PARTITIONNUM=4)",
    "DEPLOY d OPTIONS(long_windows='w:1d') SELECT sum(c3) OVER w FROM t1 WINDOW w AS \
     (PARTITION BY k ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)",
    "SELECT map('a', 1)['a'], [1, 2, 3][1], ARRAY<INT>[1], split('a,b', ','), c3 RLIKE '[a-z]+' FROM t1",
    "SELECT /* a comment */ `id` -- another\n, \"text\", 0x1f, 1e400, 99999999999999999999 FROM t1 # x",
    "SELECT c1 || 'a', c3 XOR f, NOT f, - - c3, ~c3, c3 & 1 | 2 ^ 3, c3 DIV 0, c4 % 0 FROM t1",
];

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
