//! The soak for some seconds, and bugs that it has to find. `make nightly` runs half an hour.

use std::path::Path;

use lockstep_crash::soak::{self, ANSWER_DIGIT, ROW_DROPPED, SoakOptions, SoakReport};

/// Runs for so many seconds with a bug. `number` tells runs apart that are at the same time.
fn run(number: u64, seconds: u64, bug: Option<&str>) -> SoakReport {
    let options = SoakOptions {
        program: env!("CARGO_BIN_EXE_lockstep-crash").into(),
        directory: Path::new(env!("CARGO_TARGET_TMPDIR")).join("soak"),
        seconds,
        kill_ms_max: 2_000,
        seed: number,
        bug: bug.map(str::to_owned),
    };
    soak::run(&options).expect("the server starts")
}

#[test]
fn mixed_load_with_kills_has_right_answers_and_loses_nothing() {
    let report = run(1, 15, None);
    assert_eq!(report.violations, 0, "{report}");
    assert!(report.kills >= 2, "{report}");
    assert!(report.answers_compared > 100, "{report}");
    assert!(report.rows_acknowledged > 100, "{report}");
    for protocol in ["HTTP", "PostgreSQL", "Flight"] {
        let calls = report.calls.get(&format!("{protocol} append"));
        assert!(calls.is_some_and(|count| *count > 3), "{report}");
    }
    println!("{report}");
}

#[test]
fn a_changed_answer_is_found() {
    let report = run(2, 60, Some(ANSWER_DIGIT));
    assert!(report.violations > 0, "{report}");
}

#[test]
fn a_dropped_row_is_found() {
    let report = run(3, 60, Some(ROW_DROPPED));
    assert!(report.violations > 0, "{report}");
}
