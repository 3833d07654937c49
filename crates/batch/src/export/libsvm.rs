//! The writer of LibSVM files: a line `label slot:value …` for each row.
//!
//! The columns have roles, which feature signatures gave them, and slots count from 1 in the order of
//! the select list: a continuous feature takes one slot, a discrete one as many as it has buckets. A
//! NULL feature is left out and keeps its slots. A query with one STRING column without a role, such as
//! `libsvm(…)`, has the lines themselves.

use std::{
    fmt::Write as _,
    io::{self, Write},
};

use arrow::{
    array::RecordBatch,
    datatypes::{DataType, SchemaRef},
};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_function::{Compatibility, cast::Printer, scalar::feature_role::FeatureRole};
use lockstep_row::{Arena, Datum, arrow::ColumnReader};

use super::ExportOptions;

/// The greatest number of a slot that readers take.
const SLOT_MAX: u64 = i32::MAX.unsigned_abs() as u64;

/// A writer of rows as lines of LibSVM.
#[derive(Debug)]
pub(super) struct LibsvmWriter {
    layout: Layout,
    printer: Printer,
    compatibility: Compatibility,
    line: String,
    row_count: u64,
}

/// Where the parts of a line come from.
#[derive(Debug)]
enum Layout {
    /// The one column is the line.
    Text,
    /// The columns of the label and of the features.
    Columns { label: usize, features: Vec<SlottedColumn> },
}

/// The column of a feature, with its first slot.
#[derive(Debug)]
struct SlottedColumn {
    column: usize,
    slot: u64,
    is_bucket: bool,
}

impl LibsvmWriter {
    /// Makes a writer. Fails where the columns do not say what a line has.
    pub(super) fn new(schema: &SchemaRef, options: &ExportOptions) -> Result<Self> {
        Ok(Self {
            layout: layout(schema, &options.roles)?,
            printer: Printer::new(&options.settings),
            compatibility: options.settings.compatibility,
            line: String::new(),
            row_count: 0,
        })
    }

    /// Writes the rows of a batch; `failed` makes the error of the file.
    pub(super) fn write(
        &mut self,
        batch: &RecordBatch,
        out: &mut impl Write,
        failed: impl Fn(&io::Error) -> Box<Diagnostic>,
    ) -> Result<()> {
        let readers: Vec<_> =
            batch.columns().iter().map(|column| ColumnReader::new(column)).collect();
        let mut arena = Arena::new();
        for row in 0..batch.num_rows() {
            self.row_count += 1;
            self.line.clear();
            self.push_row(&readers, row, &arena)?;
            self.line.push('\n');
            out.write_all(self.line.as_bytes()).map_err(|error| failed(&error))?;
            arena.reset();
        }
        Ok(())
    }

    fn push_row(&mut self, readers: &[ColumnReader<'_>], row: usize, arena: &Arena) -> Result<()> {
        let Self { layout, printer, compatibility, line, row_count } = self;
        let (label, features) = match layout {
            Layout::Text => {
                return match readers[0].get(row, arena) {
                    Datum::String(text) if !text.contains(['\n', '\r']) => {
                        line.push_str(text);
                        Ok(())
                    }
                    _ => {
                        let detail = "The string is NULL or contains a line break.";
                        row_error(*row_count, "is not a valid line", detail)
                    }
                };
            }
            Layout::Columns { label, features } => (*label, features),
        };
        let push = |line: &mut String, value: Datum<'_>| {
            let written = match value {
                Datum::Float(value) if *compatibility == Compatibility::OpenMldb => {
                    write!(line, "{value:.6}")
                }
                Datum::Double(value) if *compatibility == Compatibility::OpenMldb => {
                    write!(line, "{value:.6}")
                }
                other => printer.write(other, line),
            };
            written.expect("writing to memory does not fail");
        };
        match readers[label].get(row, arena) {
            Datum::Null => {
                let detail = "A line starts with the label, which is NULL in this row.";
                return row_error(*row_count, "has no label", detail);
            }
            value => push(line, value),
        }
        for SlottedColumn { column, slot, is_bucket } in features {
            match readers[*column].get(row, arena) {
                Datum::Null => {}
                bucket if *is_bucket => {
                    let bucket = u64::try_from(bucket.as_i64().unwrap_or(0)).unwrap_or(0);
                    write!(line, " {}:1", *slot + bucket).expect("writing to memory does not fail");
                }
                value => {
                    write!(line, " {slot}:").expect("writing to memory does not fail");
                    push(line, value);
                }
            }
        }
        Ok(())
    }
}

fn row_error(row: u64, what: &str, detail: &str) -> Result<()> {
    Diagnostic::new(code::INVALID_PARAMETER, format!("libsvm: row {row} {what}"))
        .with_kind(Kind::FixData)
        .with_detail(detail)
        .with_hint("Exclude such rows with WHERE.")
        .err()
}

fn layout(schema: &SchemaRef, roles: &[Option<FeatureRole>]) -> Result<Layout> {
    let role = |column: usize| roles.get(column).copied().flatten();
    let fields = schema.fields();
    if let [field] = &**fields
        && role(0).is_none()
        && *field.data_type() == DataType::Utf8
    {
        return Ok(Layout::Text);
    }
    let (mut label, mut features, mut slot) = (None, Vec::new(), 1_u64);
    for (column, field) in fields.iter().enumerate() {
        let name = field.name();
        let width = match role(column) {
            Some(FeatureRole::Label) => {
                if label.replace(column).is_some() {
                    return refused(
                        &format!("column `{name}` is a second label"),
                        "Select exactly one label.",
                    );
                }
                continue;
            }
            // The line has no place for it.
            Some(FeatureRole::Index) => continue,
            Some(FeatureRole::Continuous) => 1,
            Some(FeatureRole::Discrete { bucket_count: Some(count) }) => count,
            Some(FeatureRole::Discrete { bucket_count: None }) => {
                let message = format!("column `{name}` has no bucket count");
                return refused(&message, "Use discrete(value, bucket_count).");
            }
            None => {
                let message = format!("column `{name}` is neither a label nor a feature");
                let hint = "Wrap the column in continuous(…), discrete(…, buckets), binary_label(…), \
                            multiclass_label(…) or regression_label(…), or omit it.";
                return refused(&message, hint);
            }
        };
        let is_bucket = role(column) != Some(FeatureRole::Continuous);
        features.push(SlottedColumn { column, slot, is_bucket });
        slot = slot.saturating_add(width);
        if slot - 1 > SLOT_MAX {
            let message = format!("column `{name}` exceeds the limit of {SLOT_MAX} slots");
            return refused(&message, "Use fewer buckets for discrete features.");
        }
    }
    match label {
        Some(label) => Ok(Layout::Columns { label, features }),
        None => refused(
            "the query has no label",
            "Wrap a column in binary_label(…), multiclass_label(…) or regression_label(…).",
        ),
    }
}

fn refused(message: &str, hint: &str) -> Result<Layout> {
    Diagnostic::new(code::INVALID_PARAMETER, format!("libsvm: {message}")).with_hint(hint).err()
}
