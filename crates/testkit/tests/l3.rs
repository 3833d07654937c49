//! Promise L3 on a short run with a fixed seed; `cargo xtask l3 --cases N --seed S` draws more.

use lockstep_testkit::l3::{self, Fault, constructs};

const CASES: u64 = 1_000;

/// Queries in which each fault has to be found.
const CASES_WITH_FAULT: u64 = 1_000;

#[test]
fn what_batch_mode_accepts_deploys_and_agrees() {
    let report = l3::run(3, CASES);
    assert!(report.failures.is_empty(), "{}", report.failures.join("\n"));
    // Most drawn queries must be accepted, or little is compared.
    assert!(report.compared * 10 > CASES * 9, "{report}");
    assert!(report.answered * 2 > report.compared, "{report}");
    assert!(report.replayed > report.compared, "{report}");
    for (section, construct) in constructs::all() {
        let count = report.count(construct);
        assert!(count.compared > 0, "{section}: {construct}\n{report}");
    }
}

#[test]
fn a_fault_in_request_mode_is_found() {
    for fault in Fault::ALL {
        let report = l3::run_with(5, CASES_WITH_FAULT, Some(fault));
        assert!(!report.failures.is_empty(), "{fault:?} was not found\n{report}");
    }
}
