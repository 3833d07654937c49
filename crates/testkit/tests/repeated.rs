//! One expression in several clauses gives what a column of a sub-query gives.
//!
//! `cargo test -p lockstep-testkit --test repeated -- --nocapture` prints how often each construct was drawn.

use lockstep_testkit::repeated::{self, CONSTRUCTS};

const CASES: u64 = 1_200;

#[test]
fn an_expression_in_several_clauses_is_that_of_a_sub_query() {
    let report = repeated::run(11, CASES);
    println!("{report}");
    assert!(report.failures.is_empty(), "{}", report.failures.join("\n\n"));
    assert!(report.compared * 10 > CASES * 9, "{report}");
    for construct in CONSTRUCTS {
        assert!(report.constructs.contains_key(construct), "{construct:?} was not drawn\n{report}");
    }
}
