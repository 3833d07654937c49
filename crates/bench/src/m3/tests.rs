//! Lockstep and the speed of light give the same answers while rows come in.

use super::{Lockstep, Shape, Twin};
use crate::{
    cell::{Closeness, difference},
    system::System,
};

#[test]
fn the_speed_of_light_gives_lockstep_s_answers() {
    for (windows, columns) in [(1, 1), (3, 2), (10, 8)] {
        let shape = Shape { windows, columns, keys: 3, rows_per_key: 60 };
        let (lockstep, twin) = (Lockstep::new(shape).unwrap(), Twin::new(shape));
        let (mut lockstep, mut twin) = (lockstep.connect().unwrap(), twin.connect().unwrap());
        for operation in 0..30 {
            let expected = lockstep.answer(0).unwrap();
            let found = twin.answer(0).unwrap();
            let difference = difference(&expected, &found, Closeness::Exact);
            assert_eq!(difference, None, "{shape:?}, {operation}");
        }
    }
}
