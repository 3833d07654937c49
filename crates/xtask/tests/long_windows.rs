//! Checks that `cargo xtask long-windows` finds each bug that a process is given. The run without a bug is
//! a test of `lockstep-testkit`.

use std::process::Command;

use lockstep_testkit::long_windows::BUGS;

/// Cases among which each bug is found.
const CASES: &str = "300";

/// A process is given at most one bug.
#[test]
fn each_bug_of_nodes_is_found() {
    for bug in BUGS {
        let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args(["long-windows", "--cases", CASES, "--seed", "7", "--bug", bug])
            .output()
            .expect("xtask runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        assert!(text.contains(&format!("{bug}: found")), "{text}");
    }
}
