//! Lockstep and the speed of light hold the same rows.

use super::{Lockstep, Shape, Twin};
use crate::system::System;

#[test]
fn each_put_adds_a_row_to_its_key() {
    let shape = Shape { indexes: 3, late_percent: 20, batch: 1 };
    let (lockstep, twin) = (Lockstep::new(shape).unwrap(), Twin::new(shape));
    let (mut lockstep_client, mut twin_client) =
        (lockstep.connect().unwrap(), twin.connect().unwrap());
    for _ in 0..200 {
        assert_eq!(lockstep_client.answer(0).unwrap(), twin_client.answer(0).unwrap());
    }
    assert!(lockstep.bytes_per_row().is_some_and(|bytes| bytes > 64.0));
}
