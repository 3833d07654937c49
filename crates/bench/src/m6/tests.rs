//! Lockstep and the speed of light hold the same rows.

use super::{M6Baseline, M6Lockstep, M6Shape};
use crate::system::System;

#[test]
fn each_put_adds_a_row_to_its_key() {
    let shape = M6Shape { indexes: 3, late_percent: 20, batch: 1 };
    let (lockstep, baseline) = (M6Lockstep::new(shape).unwrap(), M6Baseline::new(shape));
    let (mut lockstep_client, mut baseline_client) =
        (lockstep.connect().unwrap(), baseline.connect().unwrap());
    for _ in 0..200 {
        assert_eq!(lockstep_client.answer(0).unwrap(), baseline_client.answer(0).unwrap());
    }
    assert!(lockstep.bytes_per_row().is_some_and(|bytes| bytes > 64.0));
}
