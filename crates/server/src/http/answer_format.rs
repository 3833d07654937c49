//! The formats of bodies: which one a body has, which one a client accepts, and the rows of an output
//! in each of them.

use arrow::{array::RecordBatch, ipc::writer::StreamWriter};
use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use lockstep_diagnostic::{Diagnostic, Kind, code};
use lockstep_engine::{
    Output,
    json_text::{write_json_array, write_json_object},
    text_rows::JsonRowForm,
};
use lockstep_row::{
    Arena, DataType, Datum,
    arrow::{ColumnReader, read_stream},
};

use super::{
    csv_text::{write_csv, write_csv_text},
    error::{HttpError, HttpResult},
};

/// A format of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFormat {
    /// One JSON text.
    Json,
    /// A JSON text in each line.
    NdJson,
    /// RFC 4180, with a header.
    Csv,
    /// A stream of Arrow's interprocess format.
    Arrow,
}

/// The media types, the one that answers have first among those of a format.
const MEDIA_TYPES: &[(&str, BodyFormat)] = &[
    ("application/json", BodyFormat::Json),
    ("application/x-ndjson", BodyFormat::NdJson),
    ("application/jsonl", BodyFormat::NdJson),
    ("text/csv", BodyFormat::Csv),
    ("application/vnd.apache.arrow.stream", BodyFormat::Arrow),
    ("*/*", BodyFormat::Json),
    ("application/*", BodyFormat::Json),
    ("text/*", BodyFormat::Csv),
];

impl BodyFormat {
    fn of_media_type(text: &str) -> Option<Self> {
        let found = MEDIA_TYPES.iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
        found.map(|(_, format)| *format)
    }

    /// Returns the format of a request's body by `Content-Type`: JSON where there is none, and where
    /// it is that of a form, which curl sends unless it is told otherwise.
    pub(crate) fn of_body(headers: &HeaderMap) -> HttpResult<Self> {
        let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(Self::Json) };
        let text = value.to_str().unwrap_or_default();
        let media_type = text.split(';').next().unwrap_or_default().trim();
        if media_type.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Ok(Self::Json);
        }
        Self::of_media_type(media_type).ok_or_else(|| {
            let message = format!("unsupported Content-Type: {media_type}");
            HttpError::protocol(StatusCode::UNSUPPORTED_MEDIA_TYPE, message)
        })
    }

    /// Returns the format that a client prefers by `Accept`: JSON where there is none.
    pub(crate) fn of_answer(headers: &HeaderMap) -> HttpResult<Self> {
        let Some(value) = headers.get(header::ACCEPT) else { return Ok(Self::Json) };
        let text = value.to_str().unwrap_or_default();
        let mut best: Option<(f32, Self)> = None;
        for part in text.split(',') {
            let mut fields = part.split(';').map(str::trim);
            let format = fields.next().and_then(Self::of_media_type);
            let quality = fields.find_map(|field| field.strip_prefix("q=")?.parse().ok());
            let quality: f32 = quality.unwrap_or(1.0);
            let Some(format) = format.filter(|_| quality > 0.0) else { continue };
            if best.is_none_or(|(other, _)| quality > other) {
                best = Some((quality, format));
            }
        }
        best.map(|(_, format)| format).ok_or_else(|| {
            let message = format!("no supported media type in Accept: {text}");
            HttpError::protocol(StatusCode::NOT_ACCEPTABLE, message)
        })
    }

    /// Makes a response with a body of this format.
    pub(crate) fn response(self, body: Vec<u8>) -> Response {
        let name = MEDIA_TYPES.iter().find(|(_, format)| *format == self);
        let name = name.map_or("application/json", |(name, _)| *name);
        let mut response = Response::new(Body::from(body));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(name));
        response
    }
}

/// Reads a body of Arrow's stream format.
pub(crate) fn read_arrow(body: &[u8]) -> HttpResult<Vec<RecordBatch>> {
    let read = read_stream(body).map(|(_, batches)| batches);
    read.map_err(|error| {
        let message = format!("the body is not a valid Arrow stream: {error}");
        HttpError::from(Diagnostic::new(code::BAD_COPY_FORMAT, message).with_kind(Kind::FixData))
    })
}

/// Writes rows in one format, up to a limit.
#[derive(Debug)]
pub(crate) struct RowWriter<'o> {
    out: Vec<u8>,
    columns: &'o [(String, DataType)],
    bytes_max: u64,
}

impl<'o> RowWriter<'o> {
    /// Makes a writer of rows with these columns, whose names are unique where they become keys.
    pub(crate) fn new(columns: &'o [(String, DataType)], bytes_max: u64) -> Self {
        Self { out: Vec::new(), columns, bytes_max }
    }

    /// Writes the rows of an output as a JSON array.
    pub(crate) fn json_array(mut self, output: &Output, form: JsonRowForm) -> HttpResult<Vec<u8>> {
        self.out.push(b'[');
        let mut is_first = true;
        self.each_row(output, |writer, row| {
            if !std::mem::replace(&mut is_first, false) {
                writer.out.push(b',');
            }
            writer.json_row(row, form);
        })?;
        self.out.push(b']');
        Ok(self.out)
    }

    /// Writes the rows of an output as lines of JSON.
    pub(crate) fn json_lines(mut self, output: &Output, form: JsonRowForm) -> HttpResult<Vec<u8>> {
        self.each_row(output, |writer, row| {
            writer.json_row(row, form);
            writer.out.push(b'\n');
        })?;
        Ok(self.out)
    }

    /// Writes a header and the rows of an output as CSV.
    pub(crate) fn csv(mut self, output: &Output) -> HttpResult<Vec<u8>> {
        for (at, (name, _)) in self.columns.iter().enumerate() {
            if at > 0 {
                self.out.push(b',');
            }
            write_csv_text(&mut self.out, name);
        }
        self.out.extend_from_slice(b"\r\n");
        self.each_row(output, |writer, row| {
            for (at, value) in row.iter().enumerate() {
                if at > 0 {
                    writer.out.push(b',');
                }
                write_csv(&mut writer.out, value);
            }
            writer.out.extend_from_slice(b"\r\n");
        })?;
        Ok(self.out)
    }

    /// Writes the rows of an output in a format that is rows only.
    pub(crate) fn rows(
        self,
        output: &Output,
        format: BodyFormat,
        form: JsonRowForm,
    ) -> HttpResult<Vec<u8>> {
        match format {
            BodyFormat::Json => self.json_array(output, form),
            BodyFormat::NdJson => self.json_lines(output, form),
            BodyFormat::Csv => self.csv(output),
            BodyFormat::Arrow => write_arrow(output),
        }
    }

    fn json_row(&mut self, row: &[Datum<'_>], form: JsonRowForm) {
        if form == JsonRowForm::Arrays {
            return write_json_array(&mut self.out, row);
        }
        let names = self.columns.iter().map(|(name, _)| name.as_str());
        write_json_object(&mut self.out, names.zip(row.iter().copied()));
    }

    /// Calls `write` for each row; fails once there are more bytes than may be.
    fn each_row(
        &mut self,
        output: &Output,
        mut write: impl FnMut(&mut Self, &[Datum<'_>]),
    ) -> HttpResult<()> {
        for_each_row(output, |row| {
            write(self, row);
            check_size(self.out.len(), self.bytes_max)
        })
    }
}

/// Passes the values of each row of an output to `give`.
pub(crate) fn for_each_row(
    output: &Output,
    mut give: impl FnMut(&[Datum<'_>]) -> HttpResult<()>,
) -> HttpResult<()> {
    let mut arena = Arena::new();
    for batch in &output.batches {
        let readers: Vec<ColumnReader<'_>> =
            batch.columns().iter().map(|column| ColumnReader::new(column.as_ref())).collect();
        for at in 0..batch.num_rows() {
            {
                let row: Vec<Datum<'_>> =
                    readers.iter().map(|reader| reader.get(at, &arena)).collect();
                give(&row)?;
            }
            arena.reset();
        }
    }
    Ok(())
}

/// Fails where an answer is larger than it may be.
pub(crate) fn check_size(bytes: usize, bytes_max: u64) -> HttpResult<()> {
    if u64::try_from(bytes).is_ok_and(|bytes| bytes <= bytes_max) {
        return Ok(());
    }
    let message = format!("response exceeds limits.answer_bytes_max ({bytes_max} bytes)");
    let diagnostic = Diagnostic::new(code::VALUE_TOO_LARGE, message).with_kind(Kind::FreeResources);
    Err(diagnostic.with_hint("Use LIMIT to return fewer rows.").into())
}

/// Writes an output as a stream of Arrow.
fn write_arrow(output: &Output) -> HttpResult<Vec<u8>> {
    let wrong = |error: arrow::error::ArrowError| {
        HttpError::from(Diagnostic::internal(format!("could not write Arrow data: {error}")))
    };
    let mut out = Vec::new();
    let mut writer = StreamWriter::try_new(&mut out, &output.schema()).map_err(wrong)?;
    output.batches.iter().try_for_each(|batch| writer.write(batch)).map_err(wrong)?;
    writer.finish().map_err(wrong)?;
    drop(writer);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderValue, header};

    use super::BodyFormat;

    #[test]
    fn the_preferred_format_is_chosen() {
        let choose = |accept: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            BodyFormat::of_answer(&headers).ok()
        };
        assert_eq!(BodyFormat::of_answer(&HeaderMap::new()), Ok(BodyFormat::Json));
        assert_eq!(choose("*/*"), Some(BodyFormat::Json));
        assert_eq!(choose("text/csv, application/json;q=0.5"), Some(BodyFormat::Csv));
        assert_eq!(choose("text/html, application/x-ndjson;q=0.3"), Some(BodyFormat::NdJson));
        assert_eq!(choose("application/vnd.apache.arrow.stream"), Some(BodyFormat::Arrow));
        assert_eq!(choose("application/json;q=0"), None);
        assert_eq!(choose("image/png"), None);
    }
}
