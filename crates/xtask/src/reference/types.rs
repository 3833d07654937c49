//! The page of the types, `docs/reference/types.md`.
//!
//! Names, sizes and the types of other systems are those of the declarations. What a literal is, what a
//! CAST gives and which types go together is what the engine answers while the page is written.

use lockstep_engine::{Database, Output, Session};
use lockstep_row::{
    Arena, Column, DataType, Datum, RowCodec, TableSchema,
    arrow::{ColumnReader, arrow_type},
};
use lockstep_server::postgres_type_name;

use super::{code, push};

const INTRODUCTION: &str = "\
# Types

<!-- Written by `cargo xtask reference` from crates/row/src/data_type.rs and from statements that it runs. -->

A column, a parameter and every expression has one of these types.
Names are matched without regard to capitals.

- `VARCHAR(n)`, `CHAR(n)` and their other names are STRING of at most n characters: a longer value of a column is an error (22001), and CAST cuts it off. No blanks are added.
- `FLOAT(1)` to `FLOAT(24)` is FLOAT and `FLOAT(25)` to `FLOAT(53)` is DOUBLE, as in standard SQL.
- `TIMESTAMP WITH TIME ZONE` and `TIMESTAMP WITHOUT TIME ZONE` are TIMESTAMP, an instant; `TIMESTAMP(3)` and higher precisions have milliseconds, lower ones are an error.
- The width of an integer, as in `INT(11)`, has no effect.

With `SET compatibility = 'openmldb'` a length of a text is not enforced.
NULL is a value of every type; by itself it takes the type that its place needs.
How values of programs and files become values of these types is on the page [Values](../guide/values.md).
";

const SIZES: &str = "
The bytes are those of a value in a stored row; a NULL of a fixed size takes the same.
An ARRAY exists in expressions only: no column is one.
";

const LITERALS: &str = "
## Literals

A number is the smallest of INT and BIGINT that holds it, unless its form says more.
A text in quotes is a STRING; in a comparison with another type, and where it is stored, it is read as a value of that type.
";

const CONVERSIONS: &str = "
## Conversions

`CAST(x AS type)`, `x::type` and the function of the type's name, as `int(x)`, are the same.
A pair of types that has no conversion is an error before the query runs.
A value that the other type does not hold becomes NULL when the query runs; it is no error.
With `SET compatibility = 'openmldb'` numbers that do not fit are cut off instead: see [compatibility](../compatibility.md).

- A number becomes an integer without its fraction, and NULL where it is out of range or NaN.
- A number becomes a TIMESTAMP as milliseconds since 1970-01-01 00:00:00 UTC; a negative one and NaN become NULL, and a FLOAT or DOUBLE that is too large the last TIMESTAMP.
- A DOUBLE becomes the nearest FLOAT, and one that is too large an infinity.
- A TIMESTAMP becomes a number as its milliseconds, a DATE a TIMESTAMP as the instant at which its day begins in the session's `time_zone`.
- A DATE has no number: as one, and as a BOOL, it is NULL.
- A text becomes what the whole of it says, or NULL: an integer also in hexadecimal digits behind `0x`, a BOOL from `true`, `t`, `yes`, `y`, `1` and their opposites, a TIMESTAMP from `YYYY-MM-DD HH:MM:SS` or ISO 8601, with or without seconds, a fraction of any length, and `Z`, `UTC` or an offset, a DATE also from `YYYYMMDD`; blanks around it do not matter. With `compatibility = 'openmldb'` years are 1900 and later.
- Every value becomes the text that is printed of it; a FLOAT or DOUBLE with the fewest digits that read back as the same value.
- An ARRAY or a MAP is converted item by item, and does not become a text.

In this table a row is converted to a column: `yes` stands for every value of the table below, `some` for some of them, `NULL` where each becomes NULL, and `—` for an error.
";

const VALUES: &str = "
The values, each converted to each type:
";

const COMMON: &str = "
## Common types

The branches of a CASE, the arguments of `coalesce` and the items of an ARRAY have one type.
Where two of them differ it is this one, and NULL takes the type of the other.
";

const COMPARED: &str = "
## Comparisons

Values of these types are compared with `=`, `<` and the other operators; `—` is an error.
A text constant is read as a value of the other side's type; a STRING that is stored or computed is compared with a STRING only.
With `SET compatibility = 'openmldb'` texts are compared with every type: see [compatibility](../compatibility.md).
";

const ADDED: &str = "
## Sums

The type of `a + b`, where `a` is the row and `b` the column; `—` is an error.
The other operators are on the page [Functions and operators](functions.md#operator).
";

/// Literals, one of each form.
const FORMS: &[&str] = &[
    "true",
    "42",
    "3000000000",
    "7L",
    "2.5",
    "1e3",
    "2.5f",
    "'pen'",
    "DATE '2024-05-01'",
    "TIMESTAMP '2024-05-01 12:00:00'",
    "TIMESTAMP '2024-05-01T12:00:00.250+02:00'",
    "INTERVAL '5' MINUTE",
    "[1, 2]",
    "ARRAY<DOUBLE>[1, 2]",
    "map('a', 1)",
];

/// Values of each type, which are converted to the other types.
const SAMPLES: &[(DataType, &[&str])] = &[
    (DataType::Bool, &["true"]),
    (DataType::SmallInt, &["smallint(7)", "smallint(-7)"]),
    (DataType::Int, &["42", "100000"]),
    (DataType::BigInt, &["7L", "3000000000"]),
    (DataType::Float, &["2.5f", "1e20f"]),
    (DataType::Double, &["2.5", "-0.5", "1e300", "double('NaN')"]),
    (
        DataType::String,
        &["'42'", "'2.5'", "'true'", "'pen'", "'2024-05-01'", "'2024-05-01 12:00:00'"],
    ),
    (DataType::Timestamp, &["TIMESTAMP '2024-05-01 12:00:00'"]),
    (DataType::Date, &["DATE '2024-05-01'"]),
];

/// Writes the page.
pub(super) fn types() -> String {
    let session = Database::in_memory().session();
    let mut page = String::from(INTRODUCTION);
    push_types(&mut page);
    page.push_str(SIZES);
    push_literals(&mut page, &session);
    push_conversions(&mut page, &session);
    let columns: Vec<String> = DataType::named()
        .map(|data_type| format!("{} {data_type}", column_of(&data_type)))
        .collect();
    let create = format!("CREATE TABLE every_type ({})", columns.join(", "));
    run(&session, &create).expect("every type is that of a column");
    page.push_str(COMMON);
    push_pairs(&mut page, &session, |a, b| format!("CASE WHEN true THEN {a} ELSE {b} END"));
    page.push_str(COMPARED);
    push_pairs(&mut page, &session, |a, b| format!("{a} = {b}"));
    page.push_str(ADDED);
    push_pairs(&mut page, &session, |a, b| format!("{a} + {b}"));
    page
}

fn push_types(page: &mut String) {
    page.push_str("\n| type | other names | values | bytes | Arrow | PostgreSQL | Python |\n");
    page.push_str("|---|---|---|---|---|---|---|\n");
    let item = || Box::new(DataType::Int);
    let nested = [DataType::Array(item()), DataType::Map(Box::new(DataType::String), item())];
    for data_type in DataType::named().chain(nested) {
        let names: Vec<String> =
            data_type.names().iter().skip(1).map(|name| code(&name.to_uppercase())).collect();
        push(
            page,
            format_args!(
                "| `{}` | {} | {} | {} | {} | {} | {} |\n",
                data_type,
                names.join(", "),
                values_of(&data_type),
                size_of(&data_type),
                code(&arrow_type(&data_type).to_string()),
                postgres_of(&data_type),
                python_of(&data_type),
            ),
        );
    }
}

/// Returns which values a type has.
fn values_of(data_type: &DataType) -> String {
    match data_type {
        DataType::Null => "NULL".to_owned(),
        DataType::Bool => "`true` and `false`".to_owned(),
        DataType::SmallInt => format!("{} to {}", i16::MIN, i16::MAX),
        DataType::Int => format!("{} to {}", i32::MIN, i32::MAX),
        DataType::BigInt => format!("{} to {}", i64::MIN, i64::MAX),
        DataType::Float => "numbers of IEEE 754 with 32 bits, infinities and one NaN".to_owned(),
        DataType::Double => "numbers of IEEE 754 with 64 bits, infinities and one NaN".to_owned(),
        DataType::String => "text in UTF-8".to_owned(),
        DataType::Timestamp => "an instant: milliseconds since 1970-01-01 00:00:00 UTC".to_owned(),
        DataType::Date => "a day".to_owned(),
        DataType::Array(_) => "items of one type, of which each may be NULL".to_owned(),
        DataType::Map(..) => "keys of one type, each with a value, which may be NULL".to_owned(),
    }
}

/// Returns the bytes of a value in a row, beside those that every row has.
fn size_of(data_type: &DataType) -> String {
    let column = Column::new("a", data_type.clone());
    let codec = RowCodec::new(&TableSchema { columns: vec![column], indexes: Vec::new() });
    let (mut empty, mut row) = (Vec::new(), Vec::new());
    RowCodec::new(&TableSchema::default()).encode(&[], &mut empty).expect("no value is no error");
    codec.encode(&[Datum::Null], &mut row).expect("NULL is a value of every type");
    // One byte says which columns are NULL.
    let size = row.len() - empty.len() - 1;
    match data_type {
        DataType::String => format!("those of the text, and {size} to 4"),
        DataType::Array(_) | DataType::Map(..) => format!("those of the items, and {size} to 4"),
        _ => size.to_string(),
    }
}

fn postgres_of(data_type: &DataType) -> String {
    match data_type {
        DataType::Array(_) => "an array; of arrays and maps `json`".to_owned(),
        _ => code(postgres_type_name(data_type)),
    }
}

/// Returns what a value is in Python's `fetchall` and `request`.
fn python_of(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Null => "`None`",
        DataType::Bool => "`bool`",
        DataType::SmallInt | DataType::Int | DataType::BigInt => "`int`",
        DataType::Float | DataType::Double => "`float`",
        DataType::String => "`str`",
        DataType::Timestamp => "`datetime`, naive, in UTC",
        DataType::Date => "`date`",
        DataType::Array(_) => "`list`",
        DataType::Map(..) => "`dict`",
    }
}

fn push_literals(page: &mut String, session: &Session) {
    page.push_str(LITERALS);
    page.push_str("\n| literal | type |\n|---|---|\n");
    for form in FORMS {
        let output = run(session, &format!("SELECT {form} AS x"));
        let output = output.unwrap_or_else(|error| panic!("{form}: {error}"));
        let data_type = output.columns[0].1.to_string();
        push(page, format_args!("| {} | {} |\n", code(form), code(&data_type)));
    }
}

fn push_conversions(page: &mut String, session: &Session) {
    page.push_str(CONVERSIONS);
    push_heads(page, "from");
    for (from, samples) in SAMPLES {
        push(page, format_args!("| {from} |"));
        for to in DataType::named() {
            let results = samples.iter().map(|sample| converted(session, sample, &to));
            let results: Vec<CastOutcome> = results.collect();
            push(page, format_args!(" {} |", summary(&results)));
        }
        page.push('\n');
    }
    page.push_str(VALUES);
    push_heads(page, "value");
    for sample in SAMPLES.iter().flat_map(|(_, samples)| *samples) {
        push(page, format_args!("| {} |", code(sample)));
        for to in DataType::named() {
            let cell = match converted(session, sample, &to) {
                CastOutcome::Refused => "—".to_owned(),
                CastOutcome::Null => "NULL".to_owned(),
                CastOutcome::Value(text) => code(&text),
            };
            push(page, format_args!(" {cell} |"));
        }
        page.push('\n');
    }
}

/// Writes the head of a table that has a column for each type.
fn push_heads(page: &mut String, first: &str) {
    let heads: Vec<String> = DataType::named().map(|data_type| data_type.to_string()).collect();
    push(page, format_args!("\n| {first} | {} |\n", heads.join(" | ")));
    push(page, format_args!("|---|{}\n", "---|".repeat(heads.len())));
}

/// What a CAST gives.
enum CastOutcome {
    /// There is no CAST between the types.
    Refused,
    Null,
    /// The text of the value.
    Value(String),
}

fn converted(session: &Session, sample: &str, to: &DataType) -> CastOutcome {
    let sql = format!("SELECT CAST(CAST({sample} AS {to}) AS STRING) AS x");
    let Ok(output) = run(session, &sql) else { return CastOutcome::Refused };
    let rows = output.batches.iter().find(|batch| batch.num_rows() > 0).expect("a row is selected");
    let arena = Arena::new();
    match ColumnReader::new(rows.column(0).as_ref()).get(0, &arena) {
        Datum::String(text) => CastOutcome::Value(text.to_owned()),
        _ => CastOutcome::Null,
    }
}

fn summary(results: &[CastOutcome]) -> &'static str {
    let count = |is_counted: fn(&CastOutcome) -> bool| {
        results.iter().filter(|result| is_counted(result)).count()
    };
    let refused = count(|result| matches!(result, CastOutcome::Refused));
    let nulls = count(|result| matches!(result, CastOutcome::Null));
    assert!(refused == 0 || refused == results.len(), "a CAST is refused by its types");
    match (refused, nulls) {
        (0, 0) => "yes",
        (0, nulls) if nulls == results.len() => "NULL",
        (0, _) => "some",
        _ => "—",
    }
}

/// Writes the type of an expression over each pair of types.
fn push_pairs(page: &mut String, session: &Session, expression: fn(&str, &str) -> String) {
    push_heads(page, "");
    for left in DataType::named() {
        push(page, format_args!("| {left} |"));
        for right in DataType::named() {
            let expression = expression(&column_of(&left), &column_of(&right));
            let output = run(session, &format!("SELECT {expression} AS x FROM every_type"));
            let cell =
                output.map_or_else(|_| "—".to_owned(), |output| output.columns[0].1.to_string());
            push(page, format_args!(" {cell} |"));
        }
        page.push('\n');
    }
}

fn column_of(data_type: &DataType) -> String {
    format!("a_{}", data_type.to_string().to_lowercase())
}

/// Runs a statement; the error is its message. Panics where the error is no answer about types.
fn run(session: &Session, sql: &str) -> Result<Output, String> {
    session.execute(sql).map_err(|error| {
        assert_ne!(error.code, "XX000", "{sql}: {}", error.message);
        assert_ne!(error.code, "42601", "{sql}: {}", error.message);
        error.message.clone()
    })
}
