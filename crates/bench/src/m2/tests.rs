//! Lockstep and the speed of light give the same answers, and there are as many features as said.

use super::{M2Baseline, M2Lockstep, M2Shape};
use crate::{
    answer::{Closeness, difference},
    system::System,
};

#[test]
fn the_speed_of_light_gives_lockstep_s_answers_bit_for_bit() {
    for (columns, features) in [(10, 20), (100, 210)] {
        let shape = M2Shape { columns };
        assert_eq!(shape.features(), features);
        let requests = shape.requests();
        let lockstep = M2Lockstep::new(shape, &requests[..10]).unwrap();
        let baseline = M2Baseline::new(shape, &requests[..10]);
        let (mut lockstep, mut baseline) =
            (lockstep.connect().unwrap(), baseline.connect().unwrap());
        for request in 0..10 {
            let expected = lockstep.answer(request).unwrap();
            let found = baseline.answer(request).unwrap();
            assert_eq!(expected.len(), 1 + features);
            assert_eq!(difference(&expected, &found, Closeness::Exact), None, "{shape:?}");
        }
    }
    assert_eq!(M2Shape { columns: 1_000 }.features(), 2_100);
}
