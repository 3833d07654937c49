//! Golden plans and golden errors: each file under `golden/` holds cases of a query, a line `----`,
//! and the bound plan (or the rendered error), with an empty line between cases. The ignored test
//! writes what comes out; read the difference before keeping it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_plan::{BindOptions, Catalog, CatalogTable, bind};
use lockstep_row::{Column, DataType, IndexSpec, Retention, TableSchema, arrow::arrow_schema};
use lockstep_sql::{
    ast::{FileTable, ObjectName, Statement},
    parse,
};

struct Tables(Vec<Arc<CatalogTable>>);

impl Catalog for Tables {
    fn current_database(&self) -> &'static str {
        "db"
    }

    fn find_table(&self, database: &str, name: &str) -> Option<Arc<CatalogTable>> {
        self.0.iter().find(|table| table.database == database && table.name == name).cloned()
    }

    fn find_files(&self, files: &FileTable, _: &[ObjectName]) -> Result<Arc<CatalogTable>> {
        Diagnostic::unsupported("files").at(files.span).err()
    }

    fn has_database(&self, database: &str) -> bool {
        database == "db"
    }

    fn table_names(&self, _database: &str) -> Vec<String> {
        self.0.iter().map(|table| table.name.clone()).collect()
    }
}

/// Returns the tables of the cases: `t1` and `t2` have the same columns, and `t2` has an index over
/// (k, ts); `items` has others.
fn tables() -> Tables {
    let events = |indexes| TableSchema {
        columns: vec![
            Column::new("k", DataType::String),
            Column::new("a", DataType::Int),
            Column::new("d", DataType::Double),
            Column::new("ts", DataType::Timestamp),
        ],
        indexes,
    };
    let index = IndexSpec {
        name: "by_k".to_owned(),
        keys: vec![0],
        event_time: Some(3),
        retention: Retention::Forever,
        declared: true,
    };
    let items = TableSchema {
        columns: vec![
            Column::new("id", DataType::BigInt),
            Column::new("price", DataType::Double),
            Column::new("day", DataType::Date),
        ],
        indexes: Vec::new(),
    };
    let table = |id, name: &str, schema: TableSchema| {
        Arc::new(CatalogTable {
            id,
            database: "db".to_owned(),
            name: name.to_owned(),
            arrow_schema: arrow_schema(&schema),
            schema: Arc::new(schema),
            source: None,
        })
    };
    Tables(vec![
        table(1, "t1", events(Vec::new())),
        table(2, "t2", events(vec![index])),
        table(3, "items", items),
    ])
}

fn outcome(sql: &str) -> String {
    let statement = match parse(sql) {
        Ok(mut statements) => statements.remove(0).statement,
        Err(error) => return error.render(Some(sql)),
    };
    let Statement::Query(query) = statement else { panic!("not a query: {sql}") };
    match bind(&query, &tables(), &BindOptions::default()) {
        Err(error) => error.render(Some(sql)),
        Ok(bound) => {
            let columns: Vec<String> = bound
                .columns
                .iter()
                .map(|(name, data_type)| format!("{name} {data_type}"))
                .collect();
            format!("[{}]\n{}", columns.join(", "), bound.plan.display_indent())
        }
    }
}

#[test]
fn every_golden_case_comes_out_as_written() {
    let mut cases = 0;
    for (path, text) in files() {
        for case in text.trim_end().split("\n\n") {
            let (sql, expected) = case.split_once("\n----").unwrap_or((case, ""));
            assert_eq!(outcome(sql), expected.trim_start(), "in {}:\n{sql}", path.display());
            cases += 1;
        }
    }
    assert!(cases >= 30, "only {cases} golden cases were found");
}

#[test]
#[ignore = "it writes the golden files"]
fn write_golden_files() {
    for (path, text) in files() {
        let mut written = String::new();
        for case in text.trim_end().split("\n\n") {
            let sql = case.split_once("\n----").map_or(case, |(sql, _)| sql);
            written.push_str(&format!("{sql}\n----\n{}\n\n", outcome(sql)));
        }
        fs::write(&path, format!("{}\n", written.trim_end())).expect("the file can be written");
    }
}

fn files() -> Vec<(PathBuf, String)> {
    let folder = Path::new("tests/golden");
    let entries = fs::read_dir(folder).expect("the golden folder is part of the crate");
    entries
        .map(|entry| {
            let path = entry.expect("the folder can be listed").path();
            let text = fs::read_to_string(&path).expect("a golden file is text");
            (path, text)
        })
        .collect()
}
