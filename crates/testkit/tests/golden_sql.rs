//! Every file of tests/sql, against the engine.

use std::path::Path;

use lockstep_testkit::slt;

#[test]
fn golden_files_come_out_as_written() {
    let root = Path::new("../../tests/sql");
    let files = slt::files_below(root);
    assert!(!files.is_empty(), "there are golden files below {}", root.display());
    let reports: Vec<String> = files.iter().filter_map(|file| slt::run(file).err()).collect();
    assert!(reports.is_empty(), "\n{}", reports.join("\n"));
}
