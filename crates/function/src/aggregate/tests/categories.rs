//! Categories of a sliding frame: more of them come and go than are kept without rows.

use lockstep_row::{Arena, DataType, Datum};

use super::{bind, find};
use crate::{
    Compatibility,
    aggregate::{AggregateState, BoundAggregate, RowsEnd, StateUse},
    cast::print_datum,
};

/// The rows of a frame.
const FRAME: usize = 20;

/// Returns the result of rows that are added to a new state.
fn folded(bound: &BoundAggregate, rows: &[[Datum<'_>; 3]]) -> String {
    let mut state = bound.new_state(StateUse::Fold);
    rows.iter().for_each(|row| bound.add(&mut state, row, RowsEnd::Newest));
    print_datum(bound.value(&state, &Arena::new()), &super::settings(Compatibility::Standard))
}

fn slides(name: &str, category: &DataType, values: &[Datum<'_>]) {
    let function = find(name).expect("it is a function");
    let types = [DataType::BigInt, DataType::Bool, category.clone()];
    let bound = bind(function, &types, &[None, None, None], Compatibility::Standard);
    let bound = bound.expect("it takes the types");
    let rows: Vec<[Datum<'_>; 3]> = (0..)
        .zip(values)
        .map(|(at, category)| [Datum::BigInt(at % 11), Datum::Bool(at % 7 != 3), *category])
        .collect();
    let mut state: AggregateState = bound.new_state(StateUse::Slide);
    let mut greatest = 0;
    for at in 0..rows.len() {
        bound.add(&mut state, &rows[at], RowsEnd::Newest);
        if at >= FRAME {
            bound.remove(&mut state, &rows[at - FRAME]);
        }
        let frame = &rows[(at + 1).saturating_sub(FRAME)..=at];
        let arena = Arena::new();
        let found = bound.value(&state, &arena);
        let settings = super::settings(Compatibility::Standard);
        assert_eq!(print_datum(found, &settings), folded(&bound, frame), "{name} at row {at}");
        if let Some(next) = rows.get(at + 1) {
            let with = [frame, &[*next]].concat();
            let found = bound.value_with(&mut state, next, &arena);
            assert_eq!(print_datum(found, &settings), folded(&bound, &with), "{name} with {at}");
        }
        greatest = greatest.max(state.heap_bytes());
    }
    // Not the memory of all categories that there were.
    let few = 200 * FRAME * 10;
    assert!(greatest < few, "{name}: {greatest} bytes for a frame of {FRAME} rows");
}

#[test]
fn categories_that_leave_are_forgotten_and_may_come_back() {
    let texts: Vec<String> = (0..1_500)
        .map(|n| format!("{}{}", n % 700, if n % 3 == 0 { " is a long category" } else { "" }))
        .collect();
    let texts: Vec<Datum<'_>> = texts.iter().map(|text| Datum::String(text)).collect();
    let integers: Vec<Datum<'_>> = (0..1_500).map(|n| Datum::BigInt(n * 7 % 311)).collect();
    for statistic in ["count", "sum", "avg", "min", "max"] {
        slides(&format!("{statistic}_cate_where"), &DataType::String, &texts);
        slides(&format!("{statistic}_cate_where"), &DataType::BigInt, &integers);
    }
}
