//! Checking columns of other programs before anything reads them.
//!
//! Arrow's readers trust the layout of an array: the text of a string is not checked again, and an
//! offset or a dictionary key is not compared with what it points into. Columns that reach the process
//! through the C data interface are as another program has made them. The Python package calls
//! [`check_batch`] for each batch that it takes; Arrow's readers of IPC messages and of Parquet make the
//! same checks themselves.

use arrow::{
    array::{Array, ArrayData, AsArray, GenericStringArray, OffsetSizeTrait, RecordBatch},
    datatypes::DataType as ArrowType,
};

/// The error of a column whose values do not have the layout of its type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column `{column}`{}: {}", shown_row(*row), self.problem())]
pub struct InvalidColumn {
    /// The name of the column.
    pub column: String,
    /// The row within the batch, from 0; `None` where it is not the fault of one row.
    pub row: Option<usize>,
    /// Whether a text is not UTF-8.
    pub is_text: bool,
    /// What Arrow says of it.
    pub detail: String,
}

impl InvalidColumn {
    fn problem(&self) -> &'static str {
        match self.is_text {
            true => "the string is not valid UTF-8",
            false => "the Arrow data is invalid",
        }
    }
}

fn shown_row(row: Option<usize>) -> String {
    row.map_or_else(String::new, |row| format!(", row {}", row + 1))
}

/// Fails where the values of a column do not have the layout of its type: a text that is not UTF-8, an
/// offset or a dictionary key out of range, a wrong number of NULLs. Reads each text, offset and key once;
/// numbers are not read.
pub fn check_batch(batch: &RecordBatch) -> Result<(), InvalidColumn> {
    let schema = batch.schema_ref();
    debug_assert_eq!(schema.fields().len(), batch.num_columns(), "a column for each field");
    for (field, array) in schema.fields().iter().zip(batch.columns()) {
        let checked = match array.data_type() {
            ArrowType::Utf8 => check_text(array.as_string::<i32>()),
            ArrowType::LargeUtf8 => check_text(array.as_string::<i64>()),
            _ => check_data(&array.to_data()),
        };
        checked.map_err(|fault| InvalidColumn {
            column: field.name().clone(),
            row: fault.row,
            is_text: fault.is_text,
            detail: fault.detail,
        })?;
    }
    Ok(())
}

/// What is wrong with a column; as in [`InvalidColumn`].
struct ColumnFault {
    row: Option<usize>,
    is_text: bool,
    detail: String,
}

/// Checks a column of text. Arrow's own check reads all bytes that the column shares with others, for
/// each of the slices in which a large column may arrive.
fn check_text<O: OffsetSizeTrait>(array: &GenericStringArray<O>) -> Result<(), ColumnFault> {
    let fault = |row, is_text, detail: String| Err(ColumnFault { row, is_text, detail });
    if let Err(error) = array.to_data().validate_nulls() {
        return fault(None, false, error.to_string());
    }
    // A negative offset becomes a large one.
    debug_assert_eq!(
        array.value_offsets().len(),
        array.len() + 1,
        "a text lies between two offsets"
    );
    let offsets = || array.value_offsets().iter().map(|offset| offset.as_usize());
    let bytes = array.value_data();
    let start = offsets().next().unwrap_or(0);
    let text = bytes.get(start..offsets().last().unwrap_or(start));
    if let Some(Ok(text)) = text.map(str::from_utf8)
        && offsets().is_sorted()
        && offsets().all(|offset| text.is_char_boundary(offset - start))
    {
        return Ok(());
    }
    for (row, (from, to)) in offsets().zip(offsets().skip(1)).enumerate() {
        let Some(value) = bytes.get(from..to) else {
            return fault(Some(row), false, "an offset is out of range".to_owned());
        };
        if let Err(error) = str::from_utf8(value) {
            return fault(Some(row), true, error.to_string());
        }
    }
    Ok(())
}

/// Checks a column of any type.
fn check_data(data: &ArrayData) -> Result<(), ColumnFault> {
    data.validate_full().map_err(|error| ColumnFault {
        row: first_invalid_row(data),
        is_text: has_invalid_text(data),
        detail: error.to_string(),
    })
}

/// Finds the first row without which a column would be valid up to there; `None` where the column has a
/// fault that is not one of its rows.
fn first_invalid_row(data: &ArrayData) -> Option<usize> {
    let has_rows = match data.data_type() {
        ArrowType::List(_) | ArrowType::LargeList(_) | ArrowType::Map(..) => true,
        ArrowType::Dictionary(..) => true,
        _ => data.child_data().is_empty(),
    };
    let is_valid = |rows: usize| data.slice(0, rows).validate_full().is_ok();
    if !has_rows || !is_valid(0) {
        return None;
    }
    // The first rows are valid, the others are not: the longest valid prefix, by halving.
    let (mut valid, mut invalid) = (0, data.len());
    while invalid - valid > 1 {
        let middle = valid + (invalid - valid) / 2;
        match is_valid(middle) {
            true => valid = middle,
            false => invalid = middle,
        }
    }
    debug_assert!(valid <= data.len(), "a prefix is of the rows");
    (valid < data.len()).then_some(valid)
}

/// Whether a column of text, or one within the column, is valid as bytes and not as text.
fn has_invalid_text(data: &ArrayData) -> bool {
    let bytes = match data.data_type() {
        ArrowType::Utf8 => ArrowType::Binary,
        ArrowType::LargeUtf8 => ArrowType::LargeBinary,
        ArrowType::Utf8View => ArrowType::BinaryView,
        _ => return data.child_data().iter().any(has_invalid_text),
    };
    let as_bytes = data.clone().into_builder().data_type(bytes).build();
    as_bytes.is_ok() && data.validate_full().is_err()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::{
            Array, ArrayData, ArrayRef, BinaryArray, BinaryViewArray, Int8Array, RecordBatch,
            StringArray, make_array,
        },
        buffer::Buffer,
        datatypes::DataType as ArrowType,
    };

    use super::check_batch;

    /// Makes an array that nobody has checked, as the C data interface does.
    fn unchecked(data: ArrayData, data_type: ArrowType) -> ArrayRef {
        let builder = data.into_builder().data_type(data_type);
        // SAFETY: the arrays are given to the check and nothing else reads their values.
        make_array(unsafe { builder.build_unchecked() })
    }

    fn message(array: ArrayRef) -> String {
        let batch = RecordBatch::try_from_iter([("a", array)]).unwrap();
        check_batch(&batch).map_or_else(|error| error.to_string(), |()| "valid".to_owned())
    }

    #[test]
    fn a_text_that_is_not_utf_8_is_found_with_its_row() {
        let bytes: Vec<&[u8]> = vec![b"ok", b"caf\xe9", b"", b"\xff"];
        let text = BinaryArray::from(bytes.clone()).into_data();
        let expected = "column `a`, row 2: the string is not valid UTF-8";
        assert_eq!(message(unchecked(text.clone(), ArrowType::Utf8)), expected);
        let behind = unchecked(text, ArrowType::Utf8).slice(2, 2);
        assert_eq!(message(behind), expected);
        let views = BinaryViewArray::from_iter_values(bytes).into_data();
        assert_eq!(message(unchecked(views, ArrowType::Utf8View)), expected);
        // Two halves of a character.
        let halves = BinaryArray::from(vec![&b"\xc3"[..], b"\xa9"]).into_data();
        let expected = "column `a`, row 1: the string is not valid UTF-8";
        assert_eq!(message(unchecked(halves, ArrowType::Utf8)), expected);
    }

    #[test]
    fn a_text_of_a_dictionary_is_checked() {
        let values = BinaryArray::from(vec![&b"caf\xe9"[..]]).into_data();
        let values = unchecked(values, ArrowType::Utf8).into_data();
        let keys = Int8Array::from(vec![0, 0]).into_data();
        let of_text = ArrowType::Dictionary(Box::new(ArrowType::Int8), Box::new(ArrowType::Utf8));
        let builder = keys.into_builder().child_data(vec![values]).data_type(of_text);
        // SAFETY: as above.
        let array = make_array(unsafe { builder.build_unchecked() });
        assert_eq!(message(array), "column `a`: the string is not valid UTF-8");
    }

    #[test]
    fn keys_and_offsets_out_of_range_are_found() {
        let values = StringArray::from(vec!["x", "y"]).into_data();
        let keys = Int8Array::from(vec![Some(1), None, Some(2)]).into_data();
        let of_text = ArrowType::Dictionary(Box::new(ArrowType::Int8), Box::new(ArrowType::Utf8));
        let builder = keys.into_builder().child_data(vec![values]).data_type(of_text);
        // SAFETY: as above.
        let array = make_array(unsafe { builder.build_unchecked() });
        assert_eq!(message(array), "column `a`, row 3: the Arrow data is invalid");

        let offsets = Buffer::from_slice_ref([0_i32, 2, 1, 3]);
        let builder = ArrayData::builder(ArrowType::Utf8).len(3);
        let builder = builder.add_buffer(offsets).add_buffer(Buffer::from(b"abc"));
        // SAFETY: as above.
        let array = make_array(unsafe { builder.build_unchecked() });
        assert_eq!(message(array), "column `a`, row 2: the Arrow data is invalid");
    }

    #[test]
    fn other_columns_are_valid() {
        assert_eq!(message(Arc::new(StringArray::from(vec![Some("žluť"), None]))), "valid");
        assert_eq!(message(Arc::new(StringArray::from(Vec::<&str>::new()))), "valid");
        assert_eq!(message(Arc::new(Int8Array::from(vec![1, 2]).slice(1, 1))), "valid");
    }
}
