//! The statements that are written in the tests and documents of the project.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Returns the scripts of the golden files, of tests/sql and of the documents.
pub(crate) fn texts() -> Vec<String> {
    let mut texts = Vec::new();
    for file in files_below(Path::new("tests/golden"), &["txt"]) {
        let text = text_of(&file);
        let cases = text.split("\n\n").filter_map(|case| case.split_once("\n----"));
        let without_remarks = |sql: &str| {
            sql.lines().filter(|line| !line.starts_with("##")).collect::<Vec<_>>().join("\n")
        };
        texts.extend(cases.map(|(sql, _)| without_remarks(sql)));
    }
    for file in files_below(Path::new("../../tests/sql"), &["slt"]) {
        let text = text_of(&file);
        for block in text.split("\n\n") {
            let is_command =
                |line: &&str| line.starts_with("statement") || line.starts_with("query");
            let lines = block.lines().skip_while(|line| !is_command(line)).skip(1);
            let lines: Vec<&str> = lines.take_while(|line| *line != "----").collect();
            texts.push(lines.join("\n"));
        }
    }
    for file in files_below(Path::new("../../docs"), &["md"]) {
        let text = text_of(&file);
        let blocks = text.split("```sql\n").skip(1).filter_map(|block| block.split_once("```"));
        texts.extend(blocks.map(|(sql, _)| sql.to_owned()));
    }
    texts
}

/// Returns the statements of OpenMLDB's cases; none where those are absent.
#[expect(clippy::print_stdout, reason = "says why the test is smaller")]
pub(crate) fn texts_of_openmldb() -> Vec<String> {
    let folder = Path::new("../../../shared/conformance");
    if !folder.is_dir() {
        println!("without OpenMLDB's cases: {} is absent", folder.display());
        return Vec::new();
    }
    let mut texts = Vec::new();
    for file in files_below(folder, &["jsonl"]) {
        for line in text_of(&file).lines() {
            let case: serde_json::Value = serde_json::from_str(line).expect("a line is a case");
            let sqls = case["sqls"].as_array().into_iter().flatten();
            texts.extend(sqls.filter_map(|sql| sql.as_str().map(str::to_owned)));
        }
    }
    texts
}

fn text_of(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Returns the files below a folder that have one of the extensions.
fn files_below(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.expect("the folder is readable").path();
        if path.is_dir() {
            files.extend(files_below(&path, extensions));
        } else if path.extension().is_some_and(|e| extensions.iter().any(|known| e == *known)) {
            files.push(path);
        }
    }
    files
}
