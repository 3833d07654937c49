//! Lockstep and the speed of light give the same answers while rows come in.

use super::{M3Baseline, M3Lockstep, M3Shape};
use crate::{
    answer::{Closeness, difference},
    system::System,
};

#[test]
fn the_speed_of_light_gives_lockstep_s_answers() {
    for (windows, columns) in [(1, 1), (3, 2), (10, 8)] {
        let shape = M3Shape { windows, columns, keys: 3, rows_per_key: 60 };
        let (lockstep, baseline) = (M3Lockstep::new(shape).unwrap(), M3Baseline::new(shape));
        let (mut lockstep, mut baseline) =
            (lockstep.connect().unwrap(), baseline.connect().unwrap());
        for operation in 0..30 {
            let expected = lockstep.answer(0).unwrap();
            let found = baseline.answer(0).unwrap();
            let difference = difference(&expected, &found, Closeness::Exact);
            assert_eq!(difference, None, "{shape:?}, {operation}");
        }
    }
}
