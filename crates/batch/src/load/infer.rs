//! Inference of a table's columns from a file.

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_function::Settings;
use lockstep_row::{Column, DataType, Datum, TableSchema, arrow::importable};

use super::{CsvOptions, FileFormat, LoadOptions, csv, parquet, paths};

/// The number of rows of a CSV file that are examined.
const SAMPLE_ROWS: usize = 10_000;

/// Infers the columns of a file, or of the first of several. A Parquet file has types. A column of
/// CSV gets the first of BOOL, BIGINT, DOUBLE, DATE and TIMESTAMP that all of its first values are,
/// else STRING; without a header the columns are called `c1`, `c2`, …. Every column takes NULL, and
/// there are no indexes.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "settings are passed alike everywhere")]
pub fn infer_schema(path: &str, options: &LoadOptions, settings: &Settings) -> Result<TableSchema> {
    let files = paths::expand(path)?;
    let first = files.into_iter().next().expect("a path that means no file is an error");
    let columns = match options.format {
        FileFormat::Csv => {
            infer_csv(csv::CsvRecords::open(first.clone(), &options.csv)?, &options.csv, *settings)?
        }
        FileFormat::Parquet => {
            let builder = parquet::open_file(&first)?;
            let fields =
                builder.schema().fields().iter().map(|field| match importable(field.data_type()) {
                    Some(data_type) if is_storable(&data_type) => {
                        Ok(Column::new(field.name(), data_type))
                    }
                    _ => {
                        let message = format!(
                            "column `{}` of file `{}` has no type of the dialect",
                            field.name(),
                            first.display()
                        );
                        Diagnostic::new(code::DATATYPE_MISMATCH, message)
                            .with_kind(Kind::FixData)
                            .with_detail(format!("Its type is {}.", field.data_type()))
                            .err()
                    }
                });
            fields.collect::<Result<Vec<_>>>()?
        }
    };
    let schema = TableSchema { columns, indexes: Vec::new() };
    let is_second =
        |(at, column): (usize, &Column)| schema.find_column(&column.name).is_some_and(|of| of < at);
    if let Some(at) = schema.columns.iter().enumerate().position(is_second) {
        let name = &schema.columns[at].name;
        let message = format!("file `{}` names column `{name}` twice", first.display());
        return Diagnostic::new(code::BAD_COPY_FORMAT, message).with_kind(Kind::FixData).err();
    }
    Ok(schema)
}

fn is_storable(data_type: &DataType) -> bool {
    !matches!(data_type, DataType::Null | DataType::Array(_) | DataType::Map(..))
}

fn infer_csv(
    mut lines: csv::CsvRecords,
    options: &CsvOptions,
    settings: Settings,
) -> Result<Vec<Column>> {
    let mut names = Vec::new();
    if options.header && lines.advance()? {
        names = lines.names();
    }
    let mut guesses: Vec<Guess> = names.iter().map(|_| Guess::default()).collect();
    for _ in 0..SAMPLE_ROWS {
        if !lines.advance()? {
            break;
        }
        if names.is_empty() {
            names = (1..=lines.width()).map(|number| format!("c{number}")).collect();
            guesses.resize_with(names.len(), Guess::default);
        }
        for (field, guess) in guesses.iter_mut().enumerate() {
            if let Some(text) = lines.text(field)
                && text != options.null_value
                && !text.trim().is_empty()
            {
                guess.look_at(text.trim(), settings);
            }
        }
    }
    let columns = names.into_iter().zip(guesses);
    Ok(columns.map(|(name, guess)| Column::new(name, guess.data_type())).collect())
}

/// The types that the values of a column seen so far allow.
#[derive(Debug)]
struct Guess {
    candidates: Vec<DataType>,
    has_values: bool,
}

impl Default for Guess {
    fn default() -> Self {
        use DataType::{BigInt, Bool, Date, Double, Timestamp};
        Self { candidates: vec![Bool, BigInt, Double, Date, Timestamp], has_values: false }
    }
}

impl Guess {
    fn look_at(&mut self, text: &str, settings: Settings) {
        self.has_values = true;
        self.candidates.retain(|candidate| is_plainly(text, candidate, settings));
    }

    fn data_type(self) -> DataType {
        let found = self.candidates.into_iter().next().filter(|_| self.has_values);
        found.unwrap_or(DataType::String)
    }
}

/// Returns whether a text looks like a value of the type, which is stricter than whether it can be
/// read as one: `00123` is an article number, and `1` is not a BOOL.
fn is_plainly(text: &str, data_type: &DataType, settings: Settings) -> bool {
    let digits = text.trim_start_matches(['-', '+']);
    let looks_right = match data_type {
        DataType::Bool => ["true", "false"].iter().any(|word| text.eq_ignore_ascii_case(word)),
        DataType::BigInt => {
            digits.bytes().all(|byte| byte.is_ascii_digit())
                && (digits == "0" || !digits.starts_with('0'))
        }
        DataType::Double => {
            let has_leading_zero = digits.starts_with('0')
                && digits[1..].starts_with(|next: char| next.is_ascii_digit());
            !has_leading_zero
                && digits.starts_with(|next: char| next.is_ascii_digit() || next == '.')
                || text.eq_ignore_ascii_case("nan")
        }
        DataType::Date => text.len() == 10,
        _ => text.contains('-'),
    };
    looks_right && csv::parse(text, data_type, settings).is_some_and(|value| value != Datum::Null)
}
