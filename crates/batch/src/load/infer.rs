//! Inference of a table's columns from files.

use std::fmt::Display;

use ::arrow::datatypes::SchemaRef;
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_function::Settings;
use lockstep_row::{
    Column, DataType, Datum, TableSchema,
    arrow::{arrow_schema, importable},
};

use super::{
    AbsentColumns, CsvOptions, FileFormat, InputFile, LoadOptions, arrow_file,
    columns::ColumnIdentity, csv, csv_records::read_text, json::JsonObjects, parquet, paths,
};

/// The number of rows of a text file that are examined.
const SAMPLE_ROWS: usize = 10_000;

/// Infers the columns of a file, or of the first of several. A Parquet or Arrow file has types. A
/// column of CSV gets the first of BOOL, BIGINT, DOUBLE, DATE and TIMESTAMP that all of its first
/// values are, else STRING, as for whole numbers that BIGINT does not hold; without a header the columns are called `c1`, `c2`, …. A column of JSON
/// gets its type in the same way; an array or object in it is STRING. Every column takes NULL, and
/// there are no indexes.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "settings are passed alike everywhere")]
pub fn infer_schema(path: &str, options: &LoadOptions, settings: &Settings) -> Result<TableSchema> {
    let first = paths::expand(path)?;
    let first = first.first().expect("a path that means no file is an error");
    let inferred = infer_columns(first, options, *settings)?;
    if let Some((name, found)) = inferred.left_out.first() {
        let message = format!("column `{name}` of file `{first}` has an unsupported type");
        return Diagnostic::new(code::DATATYPE_MISMATCH, message)
            .with_kind(Kind::FixData)
            .with_detail(format!("The type of the column is {found}."))
            .err();
    }
    unique(TableSchema { columns: inferred.columns, indexes: Vec::new() }, first)
}

/// Files whose columns were inferred, which a query reads.
#[derive(Debug)]
pub(crate) struct InferredFiles {
    pub(crate) files: Vec<InputFile>,
    /// The columns of the first file, then those that only the names of folders give.
    pub(crate) schema: TableSchema,
    pub(crate) arrow_schema: SchemaRef,
    /// The positions of the columns that only the names of folders give.
    pub(crate) folder_columns: Vec<usize>,
    pub(crate) options: LoadOptions,
    pub(crate) settings: Settings,
    pub(crate) absent: AbsentColumns,
    /// The names and types of the columns that have no type of the dialect.
    pub(crate) left_out: Vec<(String, String)>,
    /// The file or the table that has the columns, for messages.
    pub(crate) shown: String,
    /// What to do where one of the files does not exist.
    pub(crate) missing_hint: Option<&'static str>,
    /// What the columns of files are known by.
    pub(crate) identity: ColumnIdentity,
}

/// Finds the files that some paths name, in the order of the paths, and infers their columns from
/// the first of them.
pub(crate) fn infer_files(
    paths: &[String],
    options: LoadOptions,
    settings: Settings,
    absent: AbsentColumns,
) -> Result<InferredFiles> {
    let mut files = Vec::new();
    for path in paths {
        files.extend(paths::expand(path)?);
    }
    let first = files.first().expect("a path that means no file is an error");
    let InferredColumns { mut columns, left_out } = infer_columns(first, &options, settings)?;
    let mut folder_columns = Vec::new();
    for (name, _) in &first.partition {
        let is_of_all = files.iter().all(|file| file.folder_value(name).is_some());
        let is_new = columns.iter().all(|column| !column.name.eq_ignore_ascii_case(name));
        if is_of_all && is_new {
            let mut guess = Guess::default();
            let values = files.iter().filter_map(|file| file.folder_value(name).flatten());
            values.for_each(|text| guess.look_at(text, settings));
            folder_columns.push(columns.len());
            columns.push(Column::new(name, guess.data_type()));
        }
    }
    let schema = unique(TableSchema { columns, indexes: Vec::new() }, first)?;
    debug_assert!(
        folder_columns.iter().all(|column| *column < schema.columns.len()),
        "the folders' columns follow those of the file"
    );
    let arrow_schema = arrow_schema(&schema);
    let shown = first.to_string();
    Ok(InferredFiles {
        files,
        schema,
        arrow_schema,
        folder_columns,
        options,
        settings,
        absent,
        left_out,
        shown,
        missing_hint: None,
        identity: ColumnIdentity::Name,
    })
}

/// Returns a schema whose columns have names of their own.
pub(super) fn unique(schema: TableSchema, file: &dyn Display) -> Result<TableSchema> {
    let is_second =
        |(at, column): (usize, &Column)| schema.find_column(&column.name).is_some_and(|of| of < at);
    if let Some(at) = schema.columns.iter().enumerate().position(is_second) {
        let name = &schema.columns[at].name;
        let message = format!("column `{name}` occurs more than once in file `{file}`");
        return Diagnostic::new(code::BAD_COPY_FORMAT, message).with_kind(Kind::FixData).err();
    }
    Ok(schema)
}

/// The columns of a file.
#[derive(Debug, Default)]
struct InferredColumns {
    columns: Vec<Column>,
    /// The names and types of the columns that have no type of the dialect.
    left_out: Vec<(String, String)>,
}

fn infer_columns(
    file: &InputFile,
    options: &LoadOptions,
    settings: Settings,
) -> Result<InferredColumns> {
    let of_text = |columns| InferredColumns { columns, left_out: Vec::new() };
    match options.format {
        FileFormat::Csv => {
            let lines = csv::CsvLines::open(file.clone(), &options.csv)?;
            infer_csv(lines, &options.csv, settings).map(of_text)
        }
        FileFormat::Json => infer_json(JsonObjects::open(file.clone())?, settings).map(of_text),
        FileFormat::Parquet => Ok(of_arrow(parquet::open_file(file)?.schema())),
        FileFormat::Arrow => Ok(of_arrow(&arrow_file::schema_of(file)?)),
    }
}

/// Returns the columns of Arrow's types.
fn of_arrow(schema: &SchemaRef) -> InferredColumns {
    let mut inferred = InferredColumns::default();
    for field in schema.fields() {
        match importable(field.data_type()) {
            Some(data_type) if is_storable(&data_type) => {
                inferred.columns.push(Column::new(field.name(), data_type));
            }
            _ => {
                inferred.left_out.push((field.name().clone(), field.data_type().to_string()));
            }
        }
    }
    inferred
}

fn infer_json(mut objects: JsonObjects, settings: Settings) -> Result<Vec<Column>> {
    let mut guesses: Vec<(String, Guess)> = Vec::new();
    for _ in 0..SAMPLE_ROWS {
        if !objects.advance()? {
            break;
        }
        for (name, value) in objects.members()?.0 {
            let at = guesses.iter().position(|(known, _)| *known == name);
            let at = at.unwrap_or_else(|| {
                guesses.push((name.into_owned(), Guess::default()));
                guesses.len() - 1
            });
            let (name, guess) = &mut guesses[at];
            match (objects.text_of(name, value)?, value.get()) {
                (_, "null") => {}
                (Some(text), _) => guess.look_at_text(&text, settings),
                (None, written) => guess.look_at(written, settings),
            }
        }
    }
    Ok(guesses.into_iter().map(|(name, guess)| Column::new(name, guess.data_type())).collect())
}

/// Returns whether a column of a table may have a type, which may be a MAP of single values.
pub(super) fn is_storable(data_type: &DataType) -> bool {
    let is_scalar =
        |of: &DataType| !matches!(of, DataType::Null | DataType::Array(_) | DataType::Map(..));
    match data_type {
        DataType::Map(key, value) => is_scalar(key) && is_scalar(value),
        other => is_scalar(other),
    }
}

fn infer_csv(
    mut lines: csv::CsvLines,
    options: &CsvOptions,
    settings: Settings,
) -> Result<Vec<Column>> {
    let mut names = Vec::new();
    if options.header && lines.advance()? {
        names = lines.names()?;
        lines.records().set_width(names.len());
    }
    let mut guesses: Vec<Guess> = names.iter().map(|_| Guess::default()).collect();
    for _ in 0..SAMPLE_ROWS {
        if !lines.advance()? {
            break;
        }
        lines.check()?;
        let records = lines.records();
        if names.is_empty() {
            names = (1..=records.width()).map(|number| format!("c{number}")).collect();
            guesses.resize_with(names.len(), Guess::default);
            records.set_width(names.len());
        }
        for (field, guess) in guesses.iter_mut().enumerate() {
            let Some(text) = records.text(field) else { continue };
            let is_null = text.trim().is_empty() || text == options.null_value;
            // A quoted one is a text.
            if !is_null || records.is_quoted(field) {
                guess.look_at(text.trim(), settings);
            }
        }
    }
    let columns = names.into_iter().zip(guesses);
    Ok(columns.map(|(name, guess)| Column::new(name, guess.data_type())).collect())
}

/// The floats that are not written as digits.
const FLOAT_WORDS: &[&str] = &["NaN", "Infinity", "-Infinity"];

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

    /// Looks at a text of JSON, where numbers and truth values are written without quotes, except for
    /// the floats that are words.
    fn look_at_text(&mut self, text: &str, settings: Settings) {
        let is_float = FLOAT_WORDS.contains(&text);
        self.candidates.retain(|known| match known {
            DataType::Date | DataType::Timestamp => true,
            DataType::Double => is_float,
            _ => false,
        });
        self.look_at(text, settings);
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
                && !is_inexact_integer(text)
                && digits.starts_with(|next: char| next.is_ascii_digit() || next == '.')
                || FLOAT_WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
        }
        DataType::Date => text.len() >= 10 && !text.contains([' ', 'T']),
        _ => text.contains('-'),
    };
    looks_right && read_text(text, data_type, &settings).is_some_and(|value| value != Datum::Null)
}

/// Returns whether a text is a whole number that neither BIGINT nor, exactly, DOUBLE holds: as DOUBLE,
/// different ones could become equal.
fn is_inexact_integer(text: &str) -> bool {
    let digits = text.trim_start_matches(['-', '+']);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    !text.parse::<i64>().is_ok_and(|whole| whole.unsigned_abs() <= EXACT_INTEGER_MAX)
}

/// The largest integer up to which DOUBLE holds all of them.
const EXACT_INTEGER_MAX: u64 = 1 << 53;
