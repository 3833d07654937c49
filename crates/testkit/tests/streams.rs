//! Continuous queries give what the oracle and batch mode give over all rows that are not late.
//!
//! The seed is fixed; `cargo xtask streams --cases N` draws more of the same sequence.

use lockstep_testkit::streams;

#[test]
fn streams_give_what_batch_mode_gives() {
    let counts = streams::run().unwrap_or_else(|failure| panic!("{failure}"));
    println!("{counts}");
    assert!(counts.missing().is_empty(), "not drawn: {:?}\n{counts}", counts.missing());
}
