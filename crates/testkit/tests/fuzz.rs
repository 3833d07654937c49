//! Fuzzing in a short run with a fixed seed: no input ends or stalls the engine.
//!
//! `cargo xtask fuzz --seconds N --seed S` runs longer, in a process of its own, and limits time
//! and memory too.

use std::path::Path;

use lockstep_testkit::fuzz::{
    self, FuzzOptions, FuzzStage, corpus::Corpus, entry, memory::Counting,
};

/// Ends this process before an input takes the machine's memory.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

const EXECUTIONS: u64 = 400;

#[test]
fn no_input_breaks_the_engine() {
    let corpus = Corpus::of_workspace(Path::new("../.."));
    assert!(corpus.seeds.len() > 50, "{} seeds", corpus.seeds.len());
    let options = FuzzOptions {
        seed: 5,
        first: 0,
        executions_max: EXECUTIONS,
        time_ms_max: u64::MAX,
        without: &[],
        before: &|_, _| {},
        canary: None,
    };
    let report = fuzz::run(&corpus, &options);
    // Slow calls are not judged here: other tests run at the same time.
    let broken: Vec<_> = report.findings.iter().filter(|f| !f.what.starts_with("slow")).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    assert_eq!(report.executions, EXECUTIONS);
    // A run that never gets past the parser proves little.
    let compiled = report.reached.get(&FuzzStage::Compiled).copied().unwrap_or_default();
    assert!(compiled > EXECUTIONS / 20, "{:?}", report.reached);
    for entry in entry::ENTRIES {
        assert!(
            report.calls.counts.contains_key(entry),
            "{entry} was never called: {:?}",
            report.calls
        );
    }
}
