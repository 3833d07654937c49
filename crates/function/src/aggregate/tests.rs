//! Claims about aggregates: values on small frames, and that both ways of feeding give the same
//! bits.

use lockstep_row::{Arena, DataType, Datum, ShortText, Value};
use proptest::{collection, prelude::any, proptest};

use super::{
    Accumulator, AggregateFunction, BoundAggregate, Feeding, SAMPLE, all, find,
    fold::{Fold, FoldState, ValueLane},
};
use crate::{
    CallArguments, Compatibility, Settings, SignatureError,
    cast::{cast_form, print_datum},
    testing::{Evaluator, Typed, evaluate},
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

fn newest_first(accumulator: &mut dyn Accumulator, rows: &[Vec<Value>]) -> Value {
    accumulator.reset();
    rows.iter().rev().for_each(|row| with_row(row, |row| accumulator.add(row)));
    accumulator.value(&Arena::new()).to_value()
}

/// Returns the same by the fold, in blocks of three rows, newest first; `None` where there is no
/// fold.
fn folded(bound: &BoundCase, rows: &[Vec<Value>]) -> Option<Value> {
    let fold = bound.bound.fold.as_ref()?;
    let mut state = FoldState::new(fold.state);
    let newest_first: Vec<&Vec<Value>> = rows.iter().rev().collect();
    for _ in 0..2 {
        // Again after a reset, with the memory of the first time.
        state.reset();
        for block in newest_first.chunks(3) {
            if fold.state.picks() {
                let value = fold.value.expect("a value is picked");
                state.pick(block.len(), |row| block[row][value].as_scalar().unwrap());
            } else {
                add_lane(&mut state, fold, block, &bound.bound.parameters);
            }
        }
    }
    Some(state.answer(&fold.answer, &Arena::new()).to_value())
}

fn add_lane(state: &mut FoldState, fold: &Fold, block: &[&Vec<Value>], parameters: &[DataType]) {
    let counts = |row: &&&Vec<Value>| {
        let Some(condition) = fold.condition else { return true };
        let value = fold.value.map(|value| row[value].as_scalar().unwrap());
        let is_zero = value.is_some_and(|value| value.as_f64().is_some_and(|value| value == 0.0));
        row[condition.argument] == Value::Bool(true) && !(condition.excludes_zero && is_zero)
    };
    let rows: Vec<&&Vec<Value>> = block.iter().filter(counts).collect();
    let Some(value) = fold.value else { return state.add(ValueLane::Rows(rows.len())) };
    let values = rows.iter().map(|row| row[value].as_scalar().unwrap());
    let values: Vec<Datum<'_>> = values.filter(|value| !value.is_null()).collect();
    match &parameters[value] {
        DataType::String => {
            let texts: Vec<&str> = values.iter().map(|value| value.as_str().unwrap()).collect();
            // As a reader of rows gives them, or as one of records does.
            let short: Option<Vec<ShortText>> =
                texts.iter().map(|text| ShortText::new(text)).collect();
            match short {
                Some(short) if short.len() % 2 == 0 => state.add(ValueLane::ShortTexts(&short)),
                _ => state.add(ValueLane::Texts(&texts)),
            }
        }
        DataType::Float | DataType::Double => {
            let floats: Vec<f64> = values.iter().map(|value| value.as_f64().unwrap()).collect();
            state.add(ValueLane::Floats(&floats));
        }
        _ => {
            let integer = |value: &Datum<'_>| match value {
                Datum::Bool(value) => i64::from(*value),
                other => other.as_i64().unwrap(),
            };
            let integers: Vec<i64> = values.iter().map(integer).collect();
            state.add(ValueLane::Integers(&integers));
        }
    }
}

/// Slides over the rows as `steps` say and compares every frame with the same one fed newest
/// first.
fn check_feedings(bound: &BoundCase, choices: &[u8], steps: &[bool]) {
    let rows = rows(bound, choices);
    let mut sliding = (bound.bound.make)(Feeding::Sliding);
    let mut fresh = (bound.bound.make)(Feeding::NewestFirst);
    let (mut from, mut to) = (0, 0);
    for grow in steps {
        if *grow && to < rows.len() {
            with_row(&rows[to], |row| sliding.add(row));
            to += 1;
        } else if from < to {
            with_row(&rows[from], |row| sliding.remove(row));
            from += 1;
        }
        let expected = newest_first(fresh.as_mut(), &rows[from..to]);
        let arena = Arena::new();
        if let Some(folded) = folded(bound, &rows[from..to]) {
            assert!(
                folded.as_datum(&arena).is_bit_equal(&expected.as_datum(&arena)),
                "{} {:?} over {:?}: {folded:?} folded, {expected:?} newest first",
                bound.function.name,
                bound.bound,
                &rows[from..to],
            );
        }
        let found = sliding.value(&arena);
        assert!(
            found.is_bit_equal(&expected.as_datum(&arena)),
            "{} {:?} over {:?}: {found:?} sliding, {expected:?} newest first",
            bound.function.name,
            bound.bound,
            &rows[from..to],
        );
        if !found.is_null() && !matches!(bound.bound.returns, DataType::Array(_)) {
            assert_eq!(found.data_type(), bound.bound.returns, "{}", bound.function.name);
        }
    }
}

proptest! {
    #[test]
    fn the_feeding_does_not_matter(
        choices in collection::vec(any::<u8>(), 1..160),
        steps in collection::vec(proptest::bool::weighted(0.6), 1..60),
        (value, category) in (0..TYPES.len(), 0..TYPES.len()),
        (number, is_reference) in (-1..4, any::<bool>()),
    ) {
        let compatibility =
            if is_reference { Compatibility::OpenMldb } else { Compatibility::Standard };
        for function in all() {
            for bound in forms(function, [&TYPES[value], &TYPES[category]], number, compatibility) {
                check_feedings(&bound, &choices, &steps);
            }
        }
    }
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
        for feeding in [Feeding::Sliding, Feeding::NewestFirst] {
            let mut accumulator = (bound.make)(feeding);
            match feeding {
                Feeding::Sliding => rows.iter().for_each(|row| accumulator.add(row)),
                Feeding::NewestFirst => rows.iter().rev().for_each(|row| accumulator.add(row)),
            }
            let arena = Arena::new();
            let found = accumulator.value(&arena);
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
    check_refused("sum", &[DataType::Date], "argument 1 must be a number or a timestamp, not DATE");
    check_refused("sum", &[], "takes 1 argument, not 0");
    check_refused(
        "avg_where",
        &[DataType::Int, DataType::Int],
        "argument 2 must be a BOOL, not INT",
    );
    check_refused(
        "sum_cate",
        &[DataType::Int, DataType::Double],
        "argument 2 must be an integer, a timestamp, a date or a string, not DOUBLE",
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
    let mut evaluator = Evaluator::new(text, Settings::default());
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

/// Returns the text of an aggregate over the sample, the same in both ways of feeding.
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
    let mut sliding = (bound.make)(Feeding::Sliding);
    values.iter().for_each(|row| with_row(row, |row| sliding.add(row)));
    let arena = Arena::new();
    let value = newest_first((bound.make)(Feeding::NewestFirst).as_mut(), &values);
    let found = sliding.value(&arena);
    assert!(found.is_bit_equal(&value.as_datum(&arena)), "{sql}: both feedings agree");
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
