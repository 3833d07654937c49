//! Every example of docs/guide, against the engine.

use std::path::Path;

use lockstep_testkit::guide;

#[test]
fn the_guide_shows_what_comes() {
    let files = guide::files_below(Path::new("../../docs/guide"));
    let outcomes: Vec<Result<usize, String>> = files.iter().map(|file| guide::run(file)).collect();
    let reports: Vec<&String> =
        outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert!(reports.is_empty(), "{reports:#?}");
    let blocks: usize = outcomes.iter().flatten().sum();
    assert!(blocks > 20, "{blocks} blocks in {} files", files.len());
}
