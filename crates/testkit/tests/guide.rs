//! Every example of docs/guide, docs/concepts and docs/capacity.md, against the engine.

use std::path::Path;

use lockstep_testkit::guide;

#[test]
fn documents_show_the_results() {
    let folders = ["../../docs/guide", "../../docs/concepts", "../../docs/capacity.md"];
    let files: Vec<_> =
        folders.iter().flat_map(|folder| guide::files_below(Path::new(folder))).collect();
    let outcomes: Vec<Result<usize, String>> = files.iter().map(|file| guide::run(file)).collect();
    let reports: Vec<&String> =
        outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert!(reports.is_empty(), "{reports:#?}");
    let blocks: usize = outcomes.iter().flatten().sum();
    assert!(blocks > 20, "{blocks} blocks in {} files", files.len());
}
