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

Every column, parameter and expression has one of these types.
Type names are not case-sensitive.

- `VARCHAR(n)`, `CHAR(n)` and their synonyms are STRING of at most `n` characters: a longer value of a column is an error (22001), and CAST truncates it. No blanks are added.
- `FLOAT(1)` to `FLOAT(24)` are FLOAT, and `FLOAT(25)` to `FLOAT(53)` are DOUBLE, as in standard SQL.
- `TIMESTAMP WITH TIME ZONE` and `TIMESTAMP WITHOUT TIME ZONE` are TIMESTAMP, an instant. `TIMESTAMP(3)` and higher precisions have milliseconds; lower precisions are an error.
- The width of an integer, as in `INT(11)`, has no effect.

With `SET compatibility = 'openmldb'` the length of a STRING is not enforced.
NULL is a value of every type; a NULL literal has the type that its context requires.
The page [Values](../guide/values.md) describes how values of programs and files are converted to these types.
";

const SIZES: &str = "
The bytes are the size of a value in a stored row; a NULL of a type of fixed size uses the same.
A column cannot be an ARRAY: arrays exist in expressions only.
";

const LITERALS: &str = "
## Literals

A number without a fraction, exponent or suffix is INT if it is in the range of INT, otherwise BIGINT.
A value in quotes is a STRING; if it is compared with or stored as another type, it is converted to that type.
";

const CONVERSIONS: &str = "
## Conversions

`CAST(x AS type)`, `x::type` and the function with the name of the type, such as `int(x)`, are equivalent.
A conversion between types that is not supported is an error before the query runs.
A value that the target type cannot represent becomes NULL when the query runs; it is not an error.
With `SET compatibility = 'openmldb'` numbers that are out of range are truncated instead: see [Compatibility with OpenMLDB](../compatibility.md).

- A number is converted to an integer without its fraction; a number that is out of range or NaN becomes NULL.
- A number is converted to a TIMESTAMP as milliseconds since 1970-01-01 00:00:00 UTC; a number that is negative, out of range or NaN becomes NULL.
- A DOUBLE is converted to the nearest FLOAT; a DOUBLE that is out of range becomes an infinity.
- A TIMESTAMP is converted to a number as milliseconds, and a DATE to a TIMESTAMP as the instant at which the day begins in the session's `time_zone`.
- A DATE cannot be represented as a number or a BOOL, and becomes NULL.
- A STRING is converted if all of it has the form of the target type, and becomes NULL otherwise. An integer may also be hexadecimal after `0x`; a BOOL is `true`, `t`, `yes`, `y`, `1` or their opposites; a TIMESTAMP has the form `YYYY-MM-DD HH:MM:SS` or ISO 8601, with or without seconds, with a fraction of any length, and with `Z`, `UTC` or an offset; a DATE may also be `YYYYMMDD`. Blanks around a number, TIMESTAMP or DATE are ignored. With `compatibility = 'openmldb'` years must be 1900 or later.
- Every other value is converted to the STRING that is printed for it; a FLOAT or DOUBLE has the fewest digits that read back as the same value.
- An ARRAY or MAP is converted item by item, and cannot be converted to a STRING.

In the following table the type of the row is converted to the type of the column: `yes` means every value of the second table, `some` means some of them, `NULL` means that every value becomes NULL, and `—` is an error.
";

const VALUES: &str = "
Each value, converted to each type:
";

const COMMON: &str = "
## Common types

The branches of a CASE, the arguments of `coalesce` and the items of an ARRAY have one type.
If two types differ, it is the type in this table; NULL has the type of the other value.
";

const COMPARED: &str = "
## Comparisons

Values of these types are compared with `=`, `<` and the other operators; `—` is an error.
A STRING constant is converted to the type of the other side; a STRING that is stored or computed can be compared only with a STRING.
With `SET compatibility = 'openmldb'` a STRING can be compared with every type: see [Compatibility with OpenMLDB](../compatibility.md).
";

const ADDED: &str = "
## Sums

The type of `a + b`, with `a` as the row and `b` as the column; `—` is an error.
The other operators are described in [Functions and operators](functions.md#operator).
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
        DataType::Array(_) => "items of one type; each may be NULL".to_owned(),
        DataType::Map(..) => {
            "keys of one type and values of one type; each value may be NULL".to_owned()
        }
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
        DataType::String => format!("size of the string plus {size} to 4"),
        DataType::Array(_) | DataType::Map(..) => format!("size of the items plus {size} to 4"),
        _ => size.to_string(),
    }
}

fn postgres_of(data_type: &DataType) -> String {
    match data_type {
        DataType::Array(_) => "an array; `json` for arrays of arrays or maps".to_owned(),
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
