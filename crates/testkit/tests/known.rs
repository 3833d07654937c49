//! As-known training sets are what requests were answered, and what the oracle says.
//!
//! `cargo test -p lockstep-testkit --test known -- --nocapture` prints how often each construct was drawn.

use std::cell::Cell;

use lockstep_testkit::{
    known::{self, FORMS, KnownFault},
    l3::constructs,
    scenario::draw,
};
use proptest::{
    prelude::any,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner},
};

const CASES: u64 = 600;

/// Queries in which each fault has to be found.
const CASES_WITH_FAULT: u64 = 100;

/// Constructs of requests and deployments, which are not drawn here.
const OF_REQUESTS: [&str; 2] = ["request", "program"];

#[test]
fn each_row_has_what_its_request_was_answered() {
    let report = known::run(7, CASES, None);
    println!("{report}");
    assert!(report.failures.is_empty(), "{}", report.failures.join("\n\n"));
    assert!(report.compared * 10 > CASES * 9, "{report}");
    assert!(report.answers * 2 > report.requests, "{report}");
    for form in FORMS {
        let count = report.forms.get(form).copied().unwrap_or_default();
        assert!(count * 3 > report.compared, "{form}\n{report}");
    }
    let drawn = |construct: &str| report.features.get(construct).is_some_and(|count| *count > 0);
    let missing: Vec<_> = constructs::all()
        .filter(|(section, construct)| !OF_REQUESTS.contains(section) && !drawn(construct))
        .filter(|(section, _)| *section != "function")
        .collect();
    assert!(missing.is_empty(), "not drawn: {missing:?}\n{report}");
}

#[test]
fn another_order_of_arrival_is_found() {
    for fault in [KnownFault::OthersComeFirst, KnownFault::MainIsReversed] {
        let report = known::run(7, CASES_WITH_FAULT, Some(fault));
        assert!(!report.failures.is_empty(), "{fault:?} was not found\n{report}");
    }
}

#[test]
fn the_oracle_says_the_same() {
    let config = Config { failure_persistence: None, ..Config::default() };
    let seed = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let rows = Cell::new(0);
    let cases = (draw::scenario(), any::<u64>());
    let outcome = TestRunner::new_with_rng(config, seed).run(&cases, |(scenario, seed)| {
        let compared = known::check(&scenario, seed).map_err(TestCaseError::fail)?;
        rows.set(rows.get() + compared);
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
    println!("{} rows compared with the oracle and with requests", rows.get());
    assert!(rows.get() > 500, "{} rows", rows.get());
}
