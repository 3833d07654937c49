//! Claims about aggregates: values on small frames, and the laws of their states.

mod categories;
mod laws;

use lockstep_row::{Arena, DataType, Datum, Value};

use super::{
    AggregateFunction, BoundAggregate, RowsEnd, SAMPLE, StateUse, all, find, state::AggregateState,
};
use crate::{
    CallArguments, Compatibility, Settings, SignatureError,
    cast::{cast_form, print_datum},
    testing::{TestEvaluator, Typed, evaluate},
};

/// The role of an argument in the forms that functions take.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ArgumentRole {
    Value,
    RowCondition,
    Category,
    Number,
    Flag,
    Delimiter,
    Share,
}

const FORMS: &[&[ArgumentRole]] = &[
    &[],
    &[ArgumentRole::Value],
    &[ArgumentRole::RowCondition],
    &[ArgumentRole::Value, ArgumentRole::Number],
    &[ArgumentRole::Value, ArgumentRole::RowCondition],
    &[ArgumentRole::Value, ArgumentRole::Flag],
    &[ArgumentRole::Value, ArgumentRole::Number, ArgumentRole::Flag],
    &[ArgumentRole::Value, ArgumentRole::Category],
    &[ArgumentRole::Value, ArgumentRole::RowCondition, ArgumentRole::Category],
    &[
        ArgumentRole::Value,
        ArgumentRole::RowCondition,
        ArgumentRole::Category,
        ArgumentRole::Number,
    ],
    &[ArgumentRole::Value, ArgumentRole::Number, ArgumentRole::RowCondition],
    &[ArgumentRole::Value, ArgumentRole::Delimiter],
    &[ArgumentRole::Value, ArgumentRole::Delimiter, ArgumentRole::Delimiter],
    &[ArgumentRole::Value, ArgumentRole::Share],
];

const TYPES: &[DataType] = &[
    DataType::Bool,
    DataType::SmallInt,
    DataType::Int,
    DataType::BigInt,
    DataType::Float,
    DataType::Double,
    DataType::String,
    DataType::Timestamp,
    DataType::Date,
];

/// A function bound for some form; each argument is a constant or comes from the rows.
struct BoundCase {
    function: &'static AggregateFunction,
    bound: BoundAggregate,
    constants: Vec<Option<Value>>,
}

fn settings(compatibility: Compatibility) -> Settings {
    Settings { compatibility, ..Settings::default() }
}

fn bind(
    function: &AggregateFunction,
    types: &[DataType],
    constants: &[Option<Value>],
    compatibility: Compatibility,
) -> Result<BoundAggregate, SignatureError> {
    let settings = settings(compatibility);
    (function.bind)(&CallArguments { types, constants, settings: &settings })
}

/// Returns every form that a function takes, for one type of value and category and one constant number.
fn forms(
    function: &'static AggregateFunction,
    [value, category]: [&DataType; 2],
    number: i32,
    compatibility: Compatibility,
) -> Vec<BoundCase> {
    let mut found = Vec::new();
    for form in FORMS {
        let argument = |role: &ArgumentRole| match role {
            ArgumentRole::Value => (value.clone(), None),
            ArgumentRole::RowCondition => (DataType::Bool, None),
            ArgumentRole::Category => (category.clone(), None),
            ArgumentRole::Number => (DataType::Int, Some(Value::Int(number))),
            ArgumentRole::Flag => (DataType::Bool, Some(Value::Bool(number % 2 == 1))),
            ArgumentRole::Delimiter => (DataType::String, Some(Value::String(",".into()))),
            ArgumentRole::Share => (DataType::Double, Some(Value::Double(f64::from(number) * 0.3))),
        };
        let (types, constants): (Vec<_>, Vec<_>) = form.iter().map(argument).unzip();
        if let Ok(bound) = bind(function, &types, &constants, compatibility) {
            found.push(BoundCase { function, bound, constants });
        }
    }
    found
}

fn small(data_type: &DataType, choice: u8) -> Value {
    let index = usize::from(choice % 8);
    let integer = [-3_i16, 0, 1, 2, 2, 40, 32_767][index.max(1) - 1];
    let float = [f32::NAN, -0.0, 0.0, f32::INFINITY, 0.1, 7.25, -1e-30][index.max(1) - 1];
    if index == 0 {
        return Value::Null;
    }
    match data_type {
        DataType::Bool => Value::Bool(choice.is_multiple_of(2)),
        DataType::SmallInt => Value::SmallInt(integer),
        DataType::Int => Value::Int(i32::from(integer) * 65_537),
        DataType::BigInt => Value::BigInt(i64::from(integer) * 281_474_976_710_657),
        DataType::Float => Value::Float(float),
        DataType::Double => {
            let doubles = [f64::NAN, -0.0, 1e300, f64::NEG_INFINITY, f64::from(float), 0.1, 1e-300];
            Value::Double(doubles[index - 1])
        }
        DataType::String => Value::String(
            ["", "a", "b", "a,b", "a text that is not short", "ž", "a:1,b:2"][index - 1].into(),
        ),
        DataType::Timestamp => Value::Timestamp(i64::from(integer) * 1000),
        DataType::Date => Value::Date(i32::from(integer)),
        _ => Value::Null,
    }
}

fn rows(bound: &BoundCase, choices: &[u8]) -> Vec<Vec<Value>> {
    let width = bound.constants.len();
    let row = |row: usize| {
        let cell = |column: usize| match &bound.constants[column] {
            Some(Value::Int(number)) if bound.bound.parameters[column] == DataType::Double => {
                Value::Double((*number).into())
            }
            Some(Value::Int(number)) => Value::BigInt((*number).into()),
            Some(constant) => constant.clone(),
            None => {
                let choice = choices[(row * width + column) % choices.len()];
                small(&bound.bound.parameters[column], choice)
            }
        };
        (0..width).map(cell).collect()
    };
    (0..40).map(row).collect()
}

fn with_row(row: &[Value], take: impl FnOnce(&[Datum<'_>])) {
    let datums: Vec<Datum<'_>> = row.iter().map(|value| value.as_scalar().unwrap()).collect();
    take(&datums);
}

/// Returns a state with these rows, added at an end.
fn state_of(bound: &BoundAggregate, rows: &[Vec<Value>], end: RowsEnd) -> AggregateState {
    let mut state = bound.new_state(StateUse::Fold);
    let mut add = |row: &Vec<Value>| with_row(row, |row| bound.add(&mut state, row, end));
    match end {
        RowsEnd::Newest => rows.iter().for_each(&mut add),
        RowsEnd::Oldest => rows.iter().rev().for_each(&mut add),
    }
    state
}

#[test]
fn every_function_takes_some_form() {
    for function in all() {
        let types = [&DataType::Int, &DataType::String];
        let taken = types.iter().any(|each| {
            !forms(function, [each, &DataType::String], 1, Compatibility::Standard).is_empty()
        });
        assert!(taken, "{}", function.name);
        assert!(find(&function.name.to_uppercase()).is_some_and(|it| it.name == function.name));
        assert!(function.doc.ends_with('.'), "{}", function.name);
        assert!(function.signature.starts_with(function.name), "{}", function.name);
    }
}

#[test]
fn names_are_unique() {
    let names: Vec<&str> = all().flat_map(AggregateFunction::names).collect();
    for (position, name) in names.iter().enumerate() {
        assert!(!names[..position].contains(name), "{name}");
    }
}

/// Binds with one row's types (and the constants at `constant`), feeds the rows oldest first and
/// compares the text of the result.
struct AggregateCase {
    compatibility: Compatibility,
    constant: &'static [usize],
}

const PLAIN: AggregateCase =
    AggregateCase { compatibility: Compatibility::Standard, constant: &[] };
const OPENMLDB: AggregateCase =
    AggregateCase { compatibility: Compatibility::OpenMldb, constant: &[] };
const SECOND: AggregateCase =
    AggregateCase { compatibility: Compatibility::Standard, constant: &[1] };
const REFERENCE_SECOND: AggregateCase =
    AggregateCase { compatibility: Compatibility::OpenMldb, constant: &[1] };
const REFERENCE_FOURTH: AggregateCase =
    AggregateCase { compatibility: Compatibility::OpenMldb, constant: &[3] };
const FOURTH: AggregateCase =
    AggregateCase { compatibility: Compatibility::Standard, constant: &[3] };

impl AggregateCase {
    fn check(&self, name: &str, rows: &[&[Datum<'_>]], expected: Datum<'_>) {
        let function = find(name).unwrap();
        let width = rows[0].len();
        let type_of = |column: usize| {
            let typed = rows.iter().find(|row| !row[column].is_null());
            typed.map_or(DataType::Null, |row| row[column].data_type())
        };
        let types: Vec<DataType> = (0..width).map(type_of).collect();
        let constant =
            |column: usize| self.constant.contains(&column).then(|| rows[0][column].to_value());
        let constants: Vec<Option<Value>> = (0..width).map(constant).collect();
        let bound = bind(function, &types, &constants, self.compatibility).unwrap();
        let rows: Vec<Vec<Value>> =
            rows.iter().map(|row| row.iter().map(Datum::to_value).collect()).collect();
        for end in [RowsEnd::Newest, RowsEnd::Oldest] {
            let arena = Arena::new();
            let found = bound.value(&state_of(&bound, &rows, end), &arena);
            assert!(found.is_bit_equal(&expected), "{name}: {found:?}, expected {expected:?}");
        }
    }
}

fn column<'a>(values: &'a [Datum<'a>]) -> Vec<&'a [Datum<'a>]> {
    values.iter().map(std::slice::from_ref).collect()
}

#[test]
fn totals_are_exact() {
    let wide = [Datum::SmallInt(i16::MAX), Datum::Null, Datum::SmallInt(1)];
    PLAIN.check("sum", &column(&wide), Datum::BigInt(32_768));
    OPENMLDB.check("sum", &column(&wide), Datum::SmallInt(i16::MIN));
    let ends = [Datum::BigInt(i64::MAX), Datum::BigInt(1)];
    PLAIN.check("sum", &column(&ends), Datum::Null);
    OPENMLDB.check("sum", &column(&ends), Datum::BigInt(i64::MIN));
    PLAIN.check("avg", &column(&ends), Datum::Double(4_611_686_018_427_387_904.0));
    PLAIN.check("sum", &column(&[Datum::Double(0.1); 10]), Datum::Double(1.0));
    PLAIN.check("sum", &column(&[Datum::Null]), Datum::Null);
    PLAIN.check("count", &column(&wide), Datum::BigInt(2));
    PLAIN.check("distinct_count", &column(&wide), Datum::BigInt(2));
    OPENMLDB.check("distinct_count", &column(&wide), Datum::BigInt(3));
}

#[test]
fn floats_have_one_order() {
    let floats = [Datum::Double(0.0), Datum::Double(f64::NAN), Datum::Double(-0.0)];
    PLAIN.check("min", &column(&floats), Datum::Double(-0.0));
    PLAIN.check("max", &column(&floats), Datum::Double(f64::NAN));
    PLAIN.check("median", &column(&floats), Datum::Double(0.0));
    PLAIN.check("distinct_count", &column(&floats), Datum::BigInt(2));
}

#[test]
fn statistics_of_known_samples() {
    let four = [2, 4, 4, 6].map(Datum::Int);
    PLAIN.check("var_pop", &column(&four), Datum::Double(2.0));
    PLAIN.check("stddev", &column(&four[..1]), Datum::Null);
    PLAIN.check("stddev_pop", &column(&four[..1]), Datum::Double(0.0));
    PLAIN.check("median", &column(&four), Datum::Double(4.0));
    PLAIN.check("entropy", &column(&four), Datum::Double(1.5));
    PLAIN.check("top1_ratio", &column(&four), Datum::Double(0.5));
    let path = [8.0, 2.0, 4.0, 1.0].map(Datum::Double);
    PLAIN.check("drawdown", &column(&path), Datum::Double(0.875));
    PLAIN.check("drawdown", &column(&[-1.0, -3.0].map(Datum::Double)), Datum::Null);
    let weighted = [4.0, 2.0, 1.0].map(|value| [Datum::Double(value), Datum::Double(0.5)]);
    let weighted: Vec<&[Datum<'_>]> = weighted.iter().map(<[_; 2]>::as_slice).collect();
    SECOND.check("ew_avg", &weighted, Datum::Double(3.0 / 1.75));
}

#[test]
fn lists_are_in_their_order() {
    let two = Datum::Int(2);
    let pairs = |values: [f64; 4]| values.map(|value| [Datum::Double(value), two]);
    let values = pairs([1.5, 7.0, 1.5, -0.25]);
    let values: Vec<&[Datum<'_>]> = values.iter().map(<[_; 2]>::as_slice).collect();
    SECOND.check("top", &values, Datum::String("7,1.5"));
    REFERENCE_SECOND.check("top", &values, Datum::String("7.000000,1.500000"));
    REFERENCE_SECOND.check("topn_frequency", &values, Datum::String("1.500000,-0.250000"));
    SECOND.check("topn_frequency", &values[..1], Datum::String("1.5"));
    REFERENCE_SECOND.check("topn_frequency", &values[..1], Datum::String("1.500000,NULL"));
    let yes = Datum::Bool(true);
    let row =
        |value, condition, category| [Datum::Int(value), condition, Datum::String(category), two];
    let rows = [
        row(1, yes, "a"),
        row(5, Datum::Null, "a"),
        row(2, yes, "b"),
        row(9, yes, "c"),
        [Datum::Null, yes, Datum::String("d"), two],
    ];
    let all: Vec<&[Datum<'_>]> = rows.iter().map(<[_; 4]>::as_slice).collect();
    FOURTH.check("top_n_key_sum_cate_where", &all, Datum::String("c:9,b:2"));
    let averages = Datum::String("c:9.000000,b:2.000000");
    REFERENCE_FOURTH.check("top_n_value_avg_cate_where", &all, averages);
    FOURTH.check("top_n_key_ratio_cate", &all[..3], Datum::String("b:1,a:0.5"));
    let three: Vec<&[Datum<'_>]> = rows.iter().map(|row| &row[..3]).collect();
    PLAIN.check("sum_cate_where", &three, Datum::String("a:1,b:2,c:9"));
}

#[test]
fn rows_are_found_by_position() {
    let rows = |number: i32| {
        [10, 20, 30].map(|value| [Datum::Int(value), Datum::Int(number), Datum::Bool(value != 20)])
    };
    let cases = [("lag", 0, Datum::Int(30)), ("lag", 2, Datum::Int(10)), ("at", 3, Datum::Null)];
    for (name, number, expected) in cases {
        let rows = rows(number);
        let rows: Vec<&[Datum<'_>]> = rows.iter().map(|row| &row[..2]).collect();
        SECOND.check(name, &rows, expected);
    }
    for (number, expected) in [(1, 10), (2, 30), (-1, 30), (-2, 10)] {
        let rows = rows(number);
        let rows: Vec<&[Datum<'_>]> = rows.iter().map(<[_; 3]>::as_slice).collect();
        SECOND.check("nth_value_where", &rows, Datum::Int(expected));
    }
    let values = [Datum::Null, Datum::Int(1), Datum::Int(2)];
    PLAIN.check("first_value", &column(&values), Datum::Null);
    PLAIN.check("last_value", &column(&values), Datum::Int(2));
    let flagged = values.map(|value| [value, Datum::Bool(true)]);
    let flagged: Vec<&[Datum<'_>]> = flagged.iter().map(<[_; 2]>::as_slice).collect();
    SECOND.check("first_value", &flagged, Datum::Int(1));
}

#[test]
fn windows_split_newest_first() {
    let rows = ["a,b", "c"].map(|text| [Datum::String(text), Datum::String(",")]);
    let rows: Vec<&[Datum<'_>]> = rows.iter().map(<[_; 2]>::as_slice).collect();
    let expected = ["c", "a", "b"].map(Datum::String);
    SECOND.check("window_split", &rows, Datum::Array(&expected));
}

fn check_refused(name: &str, types: &[DataType], expected: &str) {
    let constants = vec![None; types.len()];
    let error = bind(find(name).unwrap(), types, &constants, Compatibility::Standard).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn wrong_arguments_are_named() {
    check_refused("sum", &[DataType::Date], "argument 1 must be a number or a TIMESTAMP, not DATE");
    check_refused("sum", &[], "requires 1 argument, not 0");
    check_refused("avg_where", &[DataType::Int, DataType::Int], "argument 2 must be BOOL, not INT");
    check_refused(
        "sum_cate",
        &[DataType::Int, DataType::Double],
        "argument 2 must be an integer, a TIMESTAMP, a DATE or a STRING, not DOUBLE",
    );
    check_refused("lag", &[DataType::Int, DataType::Int], "argument 2 must be a constant integer");
}

/// Returns the rows of the sample, oldest first.
fn sample() -> Vec<Vec<(&'static str, Typed)>> {
    let cell = |(text, (name, data_type)): (&&'static str, &(&'static str, DataType))| {
        let (from, value) = evaluate(text, Settings::default()).unwrap();
        let form = cast_form(&from, data_type, &Settings::default()).unwrap();
        let arena = Arena::new();
        let value = form(&[value.as_datum(&arena)], &arena).to_value();
        (*name, (data_type.clone(), value))
    };
    SAMPLE.rows.iter().map(|row| row.iter().zip(&SAMPLE.columns).map(cell).collect()).collect()
}

/// Returns the arguments of one call in one row: types and values, and whether each names a column.
fn arguments_in(text: &str, row: &[(&'static str, Typed)]) -> Vec<(Typed, bool)> {
    let mut evaluator = TestEvaluator::new(text, Settings::default());
    evaluator.row = row;
    let mut arguments = Vec::new();
    evaluator.eat("*");
    while !evaluator.eat(")") {
        evaluator.names_column = false;
        let argument = evaluator.expression().unwrap();
        arguments.push((argument, evaluator.names_column));
        evaluator.eat(",");
    }
    arguments
}

/// Returns the text of an aggregate over the sample.
fn over_sample(sql: &str) -> String {
    let (name, arguments) = sql.split_once('(').unwrap();
    let rows: Vec<_> = sample().iter().map(|row| arguments_in(arguments, row)).collect();
    let types: Vec<DataType> = rows[0].iter().map(|((of, _), _)| of.clone()).collect();
    let constant = |((_, value), is_column): &(Typed, bool)| (!is_column).then(|| value.clone());
    let constants: Vec<Option<Value>> = rows[0].iter().map(constant).collect();
    let bound = bind(find(name).unwrap(), &types, &constants, Compatibility::Standard).unwrap();
    let values: Vec<Vec<Value>> = rows
        .into_iter()
        .map(|row| row.into_iter().map(|((_, value), _)| value).collect())
        .collect();
    let arena = Arena::new();
    let found = bound.value(&state_of(&bound, &values, RowsEnd::Newest), &arena);
    let value = bound.value(&state_of(&bound, &values, RowsEnd::Oldest), &arena);
    assert!(found.is_bit_equal(&value), "{sql}: the order of additions does not matter");
    print_datum(found, &Settings::default())
}

#[test]
fn every_example_gives_what_it_says() {
    for function in all() {
        assert!(!function.examples.is_empty(), "`{}` has an example", function.name);
        for (sql, expected) in function.examples {
            assert_eq!(over_sample(sql), *expected, "{sql}");
        }
    }
}
