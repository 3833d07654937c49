//! Lockstep and the speed of light give the same answers, and a row is what its text says.

use super::{Data, M1Baseline, M1Lockstep, M1Shape};
use crate::{
    answer::{Closeness, difference},
    system::System,
};

fn check(shape: M1Shape) {
    let data = Data { shape };
    let requests = data.requests();
    let lockstep = M1Lockstep::new(data, &requests[..50]).unwrap();
    let baseline = M1Baseline::new(data, &requests[..50]);
    let (mut lockstep, mut baseline) = (lockstep.connect().unwrap(), baseline.connect().unwrap());
    for request in 0..50 {
        let (expected, found) =
            (lockstep.answer(request).unwrap(), baseline.answer(request).unwrap());
        assert_eq!(difference(&expected, &found, Closeness::Exact), None, "{shape:?}, {request}");
    }
}

#[test]
fn the_speed_of_light_gives_lockstep_s_answers_bit_for_bit() {
    let small = M1Shape { windows: 2, window_rows: 20, joins: 2, hot_keys: 5, background_keys: 3 };
    check(small);
    check(M1Shape { windows: 10, joins: 3, ..small });
    check(M1Shape { windows: 1, joins: 0, window_rows: 3, ..small });
}

#[test]
fn a_row_is_a_line_of_its_thirty_values() {
    let data = Data { shape: M1Shape { hot_keys: 2, window_rows: 3, ..M1Shape::default() } };
    for row in data.rows(super::data::TableName::Main) {
        let mut line = String::new();
        row.write_line(&mut line);
        let cells: Vec<&str> = line.trim_end_matches('\n').split('\t').collect();
        assert_eq!(cells.len(), 30);
        assert!(cells[0].starts_with("k10") && cells[1].starts_with("k11"));
        assert_eq!(cells[15].parse::<f64>().ok(), row.doubles[0]);
        assert_eq!(cells[28] == "\\N", row.ints[3].is_none());
    }
}
