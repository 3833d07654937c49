//! Fuzzing of the server's protocols in a short run with a fixed seed, and the bug of each, which has to
//! be found. `cargo xtask fuzz --target http` runs longer, in a process of its own.

use std::process::Command;

use lockstep_testkit::fuzz::{FuzzOptions, FuzzStage};
use lockstep_xtask::fuzz::listener::{FuzzedProtocol, ListenerInputs};

const EXECUTIONS: u64 = 150;

/// One test: what panics anywhere in the process is a finding.
#[test]
fn no_input_harms_a_listener() {
    for protocol in [FuzzedProtocol::Http, FuzzedProtocol::Postgres, FuzzedProtocol::Flight] {
        let inputs = ListenerInputs::new(protocol, false).unwrap();
        assert!(inputs.conversation_count() >= 6, "{protocol:?}");
        assert_eq!(
            inputs.unanswered(),
            [0; 0],
            "{protocol:?}: recorded conversations are answered"
        );
        let report = inputs.run(&FuzzOptions {
            seed: 3,
            first: 0,
            executions_max: EXECUTIONS,
            time_ms_max: u64::MAX,
            without: &[],
            before: &|_, _| {},
            canary: None,
        });
        // Slow inputs are not judged here: other tests run at the same time.
        let broken: Vec<_> =
            report.findings.iter().filter(|found| !found.what.starts_with("slow")).collect();
        assert!(broken.is_empty(), "{protocol:?}: {broken:#?}");
        assert_eq!(report.executions, EXECUTIONS);
        let answered = report.reached.get(&FuzzStage::Compiled).copied().unwrap_or_default();
        assert!(answered > EXECUTIONS / 10, "{protocol:?}: {:?}", report.reached);
        let others = EXECUTIONS - answered;
        assert!(others > EXECUTIONS / 10, "{protocol:?}: {:?}", report.reached);
    }
}

/// Checks that the bug of a listener is found, in a process that has it. Most seeds find it within
/// seconds, a few take minutes.
fn check_bug(target: &str, seed: &str, expected: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["fuzz", "--seconds", "1800", "--seed", seed, "--target", target, "--canary", "bug"])
        .output()
        .expect("xtask runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_bug_behind_http_is_found() {
    check_bug("http", "1", "a value without a column");
}

#[test]
fn a_bug_behind_the_protocol_of_postgresql_is_found() {
    check_bug("postgres", "3", "panic: ");
}

#[test]
fn a_bug_behind_flight_is_found() {
    check_bug("flight", "3", "rows without a table");
}
