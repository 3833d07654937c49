//! Continuous queries give what the oracle and batch mode give over all rows that are not late.
//!
//! `cargo xtask streams --cases N --seed S` draws others.

use lockstep_testkit::streams;

const CASES: u32 = 300;
const SEED: u64 = 1;

#[test]
fn streams_give_what_batch_mode_gives() {
    let counts = streams::run(CASES, SEED).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{counts}");
    assert!(counts.missing().is_empty(), "not drawn: {:?}\n{counts}", counts.missing());
}
