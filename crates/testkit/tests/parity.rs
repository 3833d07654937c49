//! Promise L2 on drawn scenarios: oracle, batch mode and request mode give the same bits.
//!
//! The seed is fixed; `cargo xtask parity --cases N` draws more of the same sequence.

use std::cell::RefCell;

use lockstep_testkit::{
    replay,
    scenario::{constructs::ScenarioCounts, draw},
};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

#[test]
fn oracle_batch_and_request_agree() {
    let config = Config { failure_persistence: None, ..Config::default() };
    let seed = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let counts = RefCell::new(ScenarioCounts::default());
    let outcome = TestRunner::new_with_rng(config, seed).run(&draw::scenario(), |scenario| {
        counts.borrow_mut().add(&scenario);
        replay::check(&scenario).map_err(TestCaseError::fail)
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
    let counts = counts.into_inner();
    println!("{counts}");
    assert!(counts.missing().is_empty(), "not drawn: {:?}\n{counts}", counts.missing());
}
