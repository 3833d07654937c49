//! The harness on this build: kills, failpoints, replays; each finds nothing. `make nightly` runs more.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use lockstep_crash::{
    bugs::{BUGS, FoundBy},
    failpoints,
    files::{self, FILE_BUGS, FILE_FAILPOINTS},
    group::{self, GROUP_BUGS, GROUP_FAILPOINTS},
    kafka::{self, KAFKA_BUGS, KAFKA_FAILPOINTS},
    kill::{self, KillOptions},
    replay::{self, ReplayOptions},
    report::Report,
    streams::{self, STREAM_BUGS, STREAM_FAILPOINTS},
    work::WorkKillOptions,
};

const SEED: u64 = 1;

/// Makes a folder on a disk.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("crash").join(name);
    std::fs::create_dir_all(&folder).expect("the target directory is writable");
    folder
}

fn options(name: &str, cycles: u64) -> KillOptions {
    KillOptions {
        program: env!("CARGO_BIN_EXE_lockstep-crash").into(),
        directory: folder(name),
        cycles,
        seed: SEED,
        bug: None,
        stops_early: true,
    }
}

/// Checks that nothing was found, and that something was done.
fn check(report: &Report) {
    assert_eq!(report.violation_count(), 0, "{report}");
    assert!(report.rows_compared > 0, "{report}");
}

#[test]
fn kills_at_random_moments_lose_nothing() {
    let report = kill::run(&options("kill", 50));
    check(&report);
    assert!(report.kills > 25, "{report}");
    assert!(report.rows_from_nodes > 1_000, "{report}");
}

#[test]
fn a_kill_at_a_failpoint_loses_nothing() {
    let (report, unreached) = failpoints::run(&options("failpoints", 0), &[1]);
    check(&report);
    assert_eq!(unreached, [""; 0], "{report}");
}

#[test]
fn a_directory_that_is_opened_again_is_as_before() {
    let directory = folder("replay");
    let options = ReplayOptions { directory, cases: 300, seed: SEED, stops_early: true };
    check(&replay::run(&options));
}

fn stream_options(name: &str, cycles: u64) -> WorkKillOptions {
    let KillOptions { program, directory, seed, .. } = options(name, 0);
    let failpoints = STREAM_FAILPOINTS;
    WorkKillOptions { program, directory, cycles, seed, failpoints, bug: None }
}

#[test]
fn streams_that_are_killed_give_each_row_once() {
    let report = streams::run(&stream_options("streams", 40));
    assert!(report.violations.is_empty(), "{report}");
    assert!(report.results > 200 && report.late > 0, "{report}");
}

#[test]
fn bugs_of_streams_are_found() {
    for bug in STREAM_BUGS {
        let bug = Some((*bug).to_owned());
        let report = streams::run(&WorkKillOptions { bug, ..stream_options("stream-bugs", 200) });
        assert!(!report.violations.is_empty(), "{report}");
    }
}

#[test]
fn sources_and_sinks_that_are_killed_move_each_row_once() {
    // How many of the kills meet a sink that has written depends on how fast the machine is.
    let mut had_written = 0;
    for run in 0..3 {
        let options = stream_options("kafka", 20);
        let seed = options.seed + run;
        let report = kafka::run(&WorkKillOptions { failpoints: KAFKA_FAILPOINTS, seed, ..options });
        assert!(report.violations.is_empty(), "{report}");
        assert!(report.written > 200 && report.bad > 0, "{report}");
        assert!(2 * report.had_read > report.kills, "{report}");
        had_written += report.had_written;
        if had_written > 5 {
            return;
        }
    }
    panic!("{had_written} kills of sinks that had written");
}

#[test]
fn bugs_of_sources_and_sinks_are_found() {
    for bug in KAFKA_BUGS {
        let (bug, failpoints) = (Some((*bug).to_owned()), KAFKA_FAILPOINTS);
        let options = stream_options("kafka-bugs", 200);
        let report = kafka::run(&WorkKillOptions { bug, failpoints, ..options });
        assert!(!report.violations.is_empty(), "{report}");
    }
}

#[test]
fn sources_and_sinks_of_files_that_are_killed_move_each_row_once() {
    let options = stream_options("files", 20);
    let report = files::run(&WorkKillOptions { failpoints: FILE_FAILPOINTS, ..options });
    assert!(report.violations.is_empty(), "{report}");
    assert!(report.written > 200 && report.bad > 0 && report.files > 20, "{report}");
}

#[test]
fn bugs_of_sources_and_sinks_of_files_are_found() {
    for bug in FILE_BUGS {
        let (bug, failpoints) = (Some((*bug).to_owned()), FILE_FAILPOINTS);
        let options = stream_options("file-bugs", 200);
        let report = files::run(&WorkKillOptions { bug, failpoints, ..options });
        assert!(!report.violations.is_empty(), "{report}");
    }
}

#[test]
fn processes_with_one_group_that_are_killed_give_each_row_one_result() {
    let options = stream_options("group", 8);
    let report = group::run(&WorkKillOptions { failpoints: GROUP_FAILPOINTS, ..options });
    assert!(report.violations.is_empty(), "{report}");
    assert!(report.results > 200, "{report}");
}

/// Those that take many kills are found by `lockstep-crash group --bug`.
#[test]
fn bugs_of_processes_with_one_group_are_found() {
    for bug in ["group_rows_first", "group_progress_of_process"] {
        assert!(GROUP_BUGS.contains(&bug), "{bug} is one of them");
        let (bug, failpoints) = (Some(bug.to_owned()), GROUP_FAILPOINTS);
        let options = stream_options("group-bugs", 200);
        let report = group::run(&WorkKillOptions { bug, failpoints, ..options });
        assert!(!report.violations.is_empty(), "{report}");
    }
}

/// A bug is given to other processes: this one runs other tests.
fn check_bug(name: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_lockstep-crash"))
        .args(["bug", name, "--directory"])
        .arg(folder(name))
        .output()
        .expect("the program runs");
    let report = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{name} is not found: {report}");
    std::fs::remove_dir_all(folder(name)).expect("it was made above");
}

#[test]
fn bugs_that_kills_find_are_found() {
    let is_found_by = |found_by| found_by == FoundBy::Kill;
    BUGS.iter()
        .filter(|(_, found_by)| is_found_by(*found_by))
        .for_each(|(name, _)| check_bug(name));
}

#[test]
fn bugs_that_others_find_are_found() {
    let is_found_by = |found_by| !matches!(found_by, FoundBy::Kill | FoundBy::ManyKills);
    BUGS.iter()
        .filter(|(_, found_by)| is_found_by(*found_by))
        .for_each(|(name, _)| check_bug(name));
}
