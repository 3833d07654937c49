//! VERIFY finds no difference on drawn scenarios: late rows, equal times, retention, unions, joins.
//! What it must find is tested beside it (`crates/engine/src/verify/tests.rs`).

use lockstep_testkit::{replay, scenario::draw};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

#[test]
fn the_deployed_program_agrees_with_batch_mode_row_by_row() {
    let config = Config { failure_persistence: None, ..Config::default() };
    let seed = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let outcome = TestRunner::new_with_rng(config, seed)
        .run(&draw::scenario(), |scenario| replay::verify(&scenario).map_err(TestCaseError::fail));
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}
