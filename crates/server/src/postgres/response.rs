//! The messages of the server, written into an output buffer.

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_function::Zone;
use lockstep_row::{DataType, Datum};

use super::{
    types::{Oid, oid_of, type_size},
    value_binary::{write_binary, write_field},
    value_input::WireFormat,
    value_text::write_typed_text,
};

/// A message that is being written: its length is set when the body is there.
pub(crate) fn message(out: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    end_message(out, start);
}

fn end_message(out: &mut [u8], start: usize) {
    debug_assert!(start > 0 && out.len() >= start + 4, "a message has a kind and a length");
    let length = i32::try_from(out.len() - start).expect("a body has less than 2 GiB");
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends a text and the zero that ends it. A text of a user cannot have one.
pub(crate) fn push_text(out: &mut Vec<u8>, text: &str) {
    out.extend(text.bytes().filter(|byte| *byte != 0));
    out.push(0);
}

fn push_count(out: &mut Vec<u8>, count: usize) {
    debug_assert!(u16::try_from(count).is_ok(), "a row has fewer columns, {count} were checked");
    out.extend_from_slice(&u16::try_from(count).unwrap_or(u16::MAX).to_be_bytes());
}

/// A column of an answer, as the client is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResultColumn {
    pub(crate) name: String,
    pub(crate) data_type: DataType,
    pub(crate) oid: Oid,
}

impl ResultColumn {
    /// Makes the columns of an output.
    pub(crate) fn of(columns: &[(String, DataType)]) -> Vec<Self> {
        let column = |(name, data_type): &(String, DataType)| Self {
            name: name.clone(),
            data_type: data_type.clone(),
            oid: oid_of(data_type),
        };
        columns.iter().map(column).collect()
    }
}

/// Returns the format of a value from a list, which may have one for all or be empty.
pub(crate) fn format_at(formats: &[WireFormat], at: usize) -> WireFormat {
    match formats {
        [] => WireFormat::Text,
        [one] => *one,
        many => many.get(at).copied().unwrap_or(WireFormat::Text),
    }
}

/// Writes the columns of an answer.
pub(crate) fn row_description(out: &mut Vec<u8>, columns: &[ResultColumn], formats: &[WireFormat]) {
    message(out, b'T', |out| {
        push_count(out, columns.len());
        for (at, column) in columns.iter().enumerate() {
            push_text(out, &column.name);
            // The number of the table and that of its column: an answer's columns have none.
            out.extend_from_slice(&[0; 6]);
            out.extend_from_slice(&column.oid.to_be_bytes());
            out.extend_from_slice(&type_size(column.oid).to_be_bytes());
            out.extend_from_slice(&(-1_i32).to_be_bytes());
            out.extend_from_slice(&format_at(formats, at).code().to_be_bytes());
        }
    });
}

/// How the rows of an answer are written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowFormat<'a> {
    pub(crate) columns: &'a [ResultColumn],
    pub(crate) formats: &'a [WireFormat],
    pub(crate) zone: Zone,
}

impl RowFormat<'_> {
    /// Writes a row, or nothing where it fails.
    pub(crate) fn data_row(self, out: &mut Vec<u8>, row: &[Datum<'_>]) -> Result<()> {
        let before = out.len();
        let written = self.row_message(out, row);
        if written.is_err() {
            out.truncate(before);
        }
        written
    }

    fn row_message(self, out: &mut Vec<u8>, row: &[Datum<'_>]) -> Result<()> {
        debug_assert_eq!(row.len(), self.columns.len(), "a row has a value for each column");
        out.push(b'D');
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        push_count(out, row.len());
        for (at, (value, column)) in row.iter().zip(self.columns).enumerate() {
            let format = format_at(self.formats, at);
            write_field(out, value, |out| match format {
                WireFormat::Text => {
                    write_typed_text(out, value, &column.data_type, self.zone);
                    Ok(())
                }
                WireFormat::Binary => write_binary(out, value, &column.data_type, self.zone),
            })?;
        }
        if i32::try_from(out.len() - start).is_err() {
            return Diagnostic::new(code::VALUE_TOO_LARGE, "row exceeds the limit of 2 GiB").err();
        }
        end_message(out, start);
        Ok(())
    }
}

/// Writes the types of parameters.
pub(crate) fn parameter_description(out: &mut Vec<u8>, types: &[Oid]) {
    message(out, b't', |out| {
        push_count(out, types.len());
        types.iter().for_each(|number| out.extend_from_slice(&number.to_be_bytes()));
    });
}

/// Writes that a command was done.
pub(crate) fn command_complete(out: &mut Vec<u8>, tag: &str) {
    message(out, b'C', |out| push_text(out, tag));
}

/// Writes a message without a body.
pub(crate) fn bare(out: &mut Vec<u8>, kind: u8) {
    message(out, kind, |_| {});
}

/// Writes that the next group of messages may come.
pub(crate) fn ready_for_query(out: &mut Vec<u8>, status: u8) {
    debug_assert!(matches!(status, b'I' | b'T' | b'E'), "idle, in a transaction, or failed");
    message(out, b'Z', |out| out.push(status));
}

/// Writes the value of a setting that clients follow.
pub(crate) fn parameter_status(out: &mut Vec<u8>, name: &str, value: &str) {
    message(out, b'S', |out| {
        push_text(out, name);
        push_text(out, value);
    });
}

/// How severe an error or a notice is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// The connection ends.
    Fatal,
    Error,
    Warning,
    Notice,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Self::Fatal => "FATAL",
            Self::Error => "ERROR",
            Self::Warning => "WARNING",
            Self::Notice => "NOTICE",
        }
    }
}

/// The message of an answer that has other columns than were described.
pub(crate) const STALE_PLAN: &str = "cached plan must not change result type";

/// Writes an error or a notice. `position` is that of its first character in the script, from 1.
pub(crate) fn report(
    out: &mut Vec<u8>,
    severity: Severity,
    diagnostic: &Diagnostic,
    position: Option<usize>,
) {
    let kind = match severity {
        Severity::Fatal | Severity::Error => b'E',
        Severity::Warning | Severity::Notice => b'N',
    };
    message(out, kind, |out| {
        let mut field = |kind: u8, text: &str| {
            out.push(kind);
            push_text(out, text);
        };
        field(b'S', severity.name());
        field(b'V', severity.name());
        field(b'C', diagnostic.code);
        field(b'M', &diagnostic.message);
        if let Some(detail) = &diagnostic.detail {
            field(b'D', detail);
        }
        if let Some(hint) = &diagnostic.hint {
            field(b'H', hint);
        }
        if let Some(position) = position {
            field(b'P', &position.to_string());
        }
        if diagnostic.message == STALE_PLAN {
            // By the function of PostgreSQL asyncpg and pgJDBC know that they may prepare again.
            field(b'R', "RevalidateCachedQuery");
        }
        out.push(0);
    });
    if diagnostic.kind == Kind::ReportBug && kind == b'E' {
        let (code, message) = (diagnostic.code, &diagnostic.message);
        tracing::error!(code, %message, protocol = "postgresql", "internal error");
    }
}

/// Returns the position of an offset of a text in characters, from 1.
pub(crate) fn character_position(sql: &str, offset: usize) -> usize {
    debug_assert!(offset <= sql.len(), "a position is in its text");
    let before = sql.get(..offset).unwrap_or(sql);
    before.chars().count() + 1
}
