//! M8 at a small size: all systems of this process answer alike, and the tables are complete.

use std::collections::BTreeSet;

use super::{
    M8Shape,
    data::{DataPart, KeySet},
    run_shape,
};
use crate::{arguments::BenchOptions, publish::section, result_table::MeasurementTable};

const SHORT: KeySet = KeySet { window_rows: 900, keys: 1 };
const LONG: KeySet = KeySet { window_rows: 6_000, keys: 1 };

#[test]
fn each_row_arrives_once_and_some_are_late() {
    for (late_percent, is_ordered) in [(0, true), (5, false)] {
        let part = |part| LONG.arrivals(0, late_percent, part).collect::<Vec<usize>>();
        let (mut all, further) = (part(DataPart::Early), part(DataPart::Further));
        assert_eq!(all.len(), LONG.key_rows() * 98 / 100);
        all.extend(further);
        assert_eq!(all.is_sorted(), is_ordered, "{late_percent} % late");
        let late = all.windows(2).filter(|pair| pair[1] < pair[0]).count();
        assert_eq!(late > 3, !is_ordered, "{late} late rows begin");
        all.sort_unstable();
        assert_eq!(all, (0..LONG.key_rows()).collect::<Vec<usize>>());
    }
}

#[test]
fn a_window_holds_the_rows_of_its_set() {
    let times: BTreeSet<i64> =
        (0..SHORT.key_rows()).map(|number| SHORT.row(0, number).time_ms).collect();
    for request in SHORT.requests(8) {
        let rows = times.range(request.since_ms()..=request.time_ms).count();
        assert!(rows.abs_diff(SHORT.window_rows) <= 1, "{rows} rows");
    }
}

#[test]
fn the_workload_compares_and_measures() {
    let line = ["M8", "--quick", "--peers", "none"].map(str::to_owned);
    let options = BenchOptions::read(line.into()).unwrap_or_else(|_| panic!("arguments of M8"));
    let many = KeySet { window_rows: 2_000, keys: 3 };
    let shape = M8Shape { single: vec![SHORT, LONG], many, written: many, requests: 4 };
    // An answer that differs is an error.
    let outcome = run_shape(&options, &shape).unwrap();
    let rows: Vec<usize> = outcome.tables.iter().map(|table| table.rows.len()).collect();
    // Five families, two windows, three systems; sums of many keys; inserts into five
    // tables, one by one and in batches.
    assert_eq!(rows, [30, 30, 3, 21, 10, 11, 11, 10]);
    let ratios = &outcome.point.ratios;
    assert!(ratios["lockstep/speed_of_light, min_max"].as_f64().unwrap() > 0.0, "{ratios:?}");
    assert!(ratios["growth, topn_frequency"].as_f64().unwrap() > 0.0, "{ratios:?}");
    let tables: Vec<_> = outcome.tables.iter().map(MeasurementTable::json).collect();
    let result = serde_json::json!({ "workload": "M8", "tables": tables });
    let text = section("M8", &result);
    assert!(text.contains("| sum_avg_count | 900 | lockstep_off |"), "{text}");
}
