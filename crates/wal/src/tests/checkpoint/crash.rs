//! Crashes at every call of drawn workloads of checkpoints, in every state that each can leave.

use super::harness::check_workload;

fn check_seeds(seeds: std::ops::Range<u64>, steps: usize) -> u64 {
    seeds.map(|seed| check_workload(seed, steps).unwrap_or_else(|what| panic!("{what}"))).sum()
}

#[test]
fn a_whole_checkpoint_is_there_after_a_crash_at_any_call() {
    let states = check_seeds(0..12, 8);
    println!("crash states: {states}");
    assert!(states > 5_000, "{states}");
}

#[test]
#[ignore = "takes minutes; part of the nightly run"]
fn a_whole_checkpoint_is_there_after_a_crash_at_any_call_of_many_workloads() {
    for first in (1_000..1_200).step_by(20) {
        println!("seeds from {first}: {} crash states", check_seeds(first..first + 20, 16));
    }
}
