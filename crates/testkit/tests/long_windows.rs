//! Pre-aggregates on a short run with a fixed seed; `cargo xtask long-windows --cases N --seed S` draws
//! more, and its tests find each bug that a process is given.

use lockstep_testkit::long_windows::{self, CASES_FOR_ALL_CONSTRUCTS};

#[test]
fn answers_have_the_same_bits_with_and_without_pre_aggregates() {
    let report = long_windows::run(7, CASES_FOR_ALL_CONSTRUCTS);
    assert!(report.failures.is_empty(), "{}\n{report}", report.failures.join("\n"));
    assert_eq!(report.blindness(), None, "{report}");
    assert!(report.oracle_values > CASES_FOR_ALL_CONSTRUCTS, "{report}");
    assert!(report.repeated > CASES_FOR_ALL_CONSTRUCTS, "{report}");
}
