//! Checks that `cargo xtask fuzz` finds each simulated way to end or stall a process.

use std::process::Command;

fn check(canary: &str, expected: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["fuzz", "--seconds", "120", "--canary", canary])
        .output()
        .expect("xtask runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_panic_is_found() {
    check("panic", "panic: ");
}

#[test]
fn a_stack_that_is_too_small_is_found() {
    check("stack", "the process died: signal");
}

#[test]
fn memory_without_end_is_found() {
    check("memory", "the process died: signal");
}

#[test]
fn an_input_that_never_ends_is_found() {
    check("hang", "hang: ");
}
