//! Gathers the values of a column of fixed width, from stored rows or from records.

use lockstep_row::{FixedColumn, FixedKind};
use lockstep_table::Records;

use super::{LANE_ROWS, LaneBuffers, LaneClass, ScanLane};

/// Where the values of a column of fixed width are.
#[derive(Clone, Copy)]
pub(super) enum FixedWidthValues<'r> {
    /// In the bytes of stored rows.
    Rows(&'r [&'r [u8]]),
    Records(Records<'r>),
}

/// Gathers the values of a lane of numbers, without zeros where it skips them. Returns how many there
/// are.
#[inline]
pub(super) fn gather_numbers(
    column: FixedColumn,
    lane: &ScanLane,
    values: FixedWidthValues<'_>,
    buffers: &mut LaneBuffers<'_>,
) -> usize {
    match lane.class {
        LaneClass::Integers => {
            let integers = buffers.integers.of_rows();
            let count = gather_integers(column, values, integers);
            lane.counted(integers, count).len()
        }
        LaneClass::Floats => {
            let floats = buffers.floats.of_rows();
            let count = gather_floats(column, values, floats);
            lane.counted(floats, count).len()
        }
        LaneClass::Rows | LaneClass::Texts => {
            debug_assert!(false, "the lane is of numbers");
            0
        }
    }
}

/// Gathers integers, and BOOLs as 0 and 1. Returns how many there are.
fn gather_integers(
    column: FixedColumn,
    values: FixedWidthValues<'_>,
    out: &mut [i64; LANE_ROWS],
) -> usize {
    match column.kind() {
        FixedKind::I64 => gather(column, values, out, i64::from_le_bytes),
        FixedKind::I32 => gather(column, values, out, |bytes| i32::from_le_bytes(bytes).into()),
        FixedKind::I16 => gather(column, values, out, |bytes| i16::from_le_bytes(bytes).into()),
        FixedKind::Bool => gather(column, values, out, |[byte]| i64::from(byte != 0)),
        FixedKind::F32 | FixedKind::F64 => {
            debug_assert!(false, "a float is not in a lane of integers");
            0
        }
    }
}

/// Gathers floats. Returns how many there are.
fn gather_floats(
    column: FixedColumn,
    values: FixedWidthValues<'_>,
    out: &mut [f64; LANE_ROWS],
) -> usize {
    match column.kind() {
        FixedKind::F64 => gather(column, values, out, f64::from_le_bytes),
        FixedKind::F32 => gather(column, values, out, |bytes| f32::from_le_bytes(bytes).into()),
        FixedKind::Bool | FixedKind::I16 | FixedKind::I32 | FixedKind::I64 => {
            debug_assert!(false, "an integer is not in a lane of floats");
            0
        }
    }
}

/// Gathers the values that are not NULL, of at most [`LANE_ROWS`] rows. Returns how many there are.
#[inline]
fn gather<T, const SIZE: usize>(
    column: FixedColumn,
    values: FixedWidthValues<'_>,
    out: &mut [T; LANE_ROWS],
    read: impl Fn([u8; SIZE]) -> T,
) -> usize {
    match values {
        FixedWidthValues::Rows(rows) => {
            let nulls = rows.iter().fold(false, |any, bytes| any | column.is_null(bytes));
            if !nulls {
                let values = rows.iter().map(|bytes| read(column.bytes(bytes)));
                out.iter_mut().zip(values).for_each(|(out, value)| *out = value);
                return rows.len();
            }
            // Each value is written and a NULL is overwritten by the next one, so that no branch is
            // mispredicted.
            let mut count = 0;
            for bytes in rows {
                out[count] = read(column.bytes(bytes));
                count += usize::from(!column.is_null(bytes));
            }
            count
        }
        FixedWidthValues::Records(records) => {
            let values = records.field(column.at(), SIZE).as_chunks().0;
            let values = values.iter().map(|bytes| read(*bytes));
            let nulls = NullBits::of(records, column.null_bit());
            if nulls.any() {
                return nulls.leave_out(values, out);
            }
            out.iter_mut().zip(values).for_each(|(out, value)| *out = value);
            records.len()
        }
    }
}

/// The NULL bits of a column in some records: a byte of each record, oldest first, and the bit of
/// the column in it.
#[derive(Clone, Copy)]
pub(crate) struct NullBits<'s> {
    bytes: &'s [u8],
    mask: u8,
}

impl<'s> NullBits<'s> {
    /// Reads the bits at an offset in each record.
    pub(crate) fn of(records: Records<'s>, (byte, mask): (usize, u8)) -> Self {
        debug_assert_eq!(mask.count_ones(), 1, "a column has one NULL bit");
        Self { bytes: records.field(byte, 1), mask }
    }

    /// Returns whether the value of a record is NULL; 0 is the oldest.
    #[inline]
    pub(crate) fn is_null(self, record: usize) -> bool {
        self.bytes[record] & self.mask != 0
    }

    /// Returns whether there is a NULL.
    pub(super) fn any(self) -> bool {
        self.bytes.iter().fold(0, |all, byte| all | byte) & self.mask != 0
    }

    /// Counts the values that are not NULL.
    pub(super) fn count_present(self) -> usize {
        // So many fit a byte, in which the compiler adds many at once.
        let count = |bytes: &[u8]| {
            let counted = bytes
                .iter()
                .fold(0_u8, |count, byte| count.wrapping_add(u8::from(byte & self.mask == 0)));
            usize::from(counted)
        };
        self.bytes.chunks(usize::from(u8::MAX)).map(count).sum()
    }

    /// Writes the values that are not NULL and returns how many there are. Each value is written, and
    /// overwritten by the next one when it is NULL, so that no branch is mispredicted.
    #[inline]
    pub(super) fn leave_out<T>(
        self,
        values: impl Iterator<Item = T>,
        out: &mut [T; LANE_ROWS],
    ) -> usize {
        let mut count = 0;
        for (value, byte) in values.zip(self.bytes) {
            out[count] = value;
            count += usize::from(byte & self.mask == 0);
        }
        count
    }
}
