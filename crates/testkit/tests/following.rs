//! Frames that extend past the current row: oracle and batch mode agree, and request mode refuses them.
//!
//! The seed is fixed; `cargo xtask following --cases N` draws more of the same sequence.

use lockstep_testkit::following;

#[test]
fn oracle_and_batch_mode_agree_on_rows_ahead() {
    let counts = following::run().unwrap_or_else(|failure| panic!("{failure}"));
    println!("{counts}");
    assert!(counts.missing().is_empty(), "not drawn: {:?}\n{counts}", counts.missing());
}
