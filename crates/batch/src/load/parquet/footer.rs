//! The footer of a Parquet file, checked before Parquet's reader sees it.
//!
//! That reader reserves memory for as many row groups and fields as the footer claims to have, and
//! calls itself once for each level of the schema: a damaged or hostile footer would end the process.
//! A footer that is read has lists that its bytes bear out, a schema of bounded depth, and row groups
//! with as many values as rows in each column that is not a list.

use std::io;

use ::parquet::{
    errors::{ParquetError, Result as ParquetResult},
    file::{
        metadata::{FooterTail, ParquetMetaData, ParquetMetaDataReader},
        reader::{ChunkReader, Length},
    },
};

use super::thrift::{ThriftType, ThriftWalk, damage};
use crate::load::location::FileChunks;

/// Bytes after the footer: its size, and the mark of the format.
const TAIL_BYTES: usize = 8;

/// Bytes before the first row group.
const MAGIC_BYTES: u64 = 4;

/// Maximum depth of a schema.
const SCHEMA_DEPTH_MAX: usize = 100;

/// Numbers of the footer's fields.
const SCHEMA_FIELD: i64 = 2;
const ROW_GROUPS_FIELD: i64 = 4;

/// Number of the field of a schema's element that has the number of its children.
const CHILDREN_FIELD: i64 = 5;

/// Reads the footer of a file.
pub(super) fn read_footer(chunks: &FileChunks) -> ParquetResult<ParquetMetaData> {
    let tail_bytes = u64::try_from(TAIL_BYTES).unwrap_or(u64::MAX);
    let size = chunks.len();
    let Some(end) = size.checked_sub(tail_bytes).filter(|end| *end >= MAGIC_BYTES) else {
        return Err(ParquetError::EOF(format!("a file of {size} bytes is too short for Parquet")));
    };
    let tail = chunks.get_bytes(end, TAIL_BYTES)?;
    let tail = FooterTail::try_from(tail.as_ref())?;
    if tail.is_encrypted_footer() {
        return Err(ParquetError::NYI("the file is encrypted".to_owned()));
    }
    let length = tail.metadata_length();
    let start = u64::try_from(length).ok().and_then(|length| end.checked_sub(length));
    let Some(start) = start.filter(|start| *start >= MAGIC_BYTES) else {
        return Err(ParquetError::EOF(format!("a footer of {length} bytes is truncated")));
    };
    let footer = chunks.get_bytes(start, length)?;
    check_footer(&footer)
        .map_err(|error| ParquetError::General(format!("invalid footer: {error}")))?;
    let metadata = ParquetMetaDataReader::decode_metadata(&footer)?;
    check_row_counts(&metadata)?;
    Ok(metadata)
}

/// Checks the lists and the schema of a footer.
fn check_footer(footer: &[u8]) -> io::Result<()> {
    let size = u64::try_from(footer.len()).unwrap_or(u64::MAX);
    ThriftWalk::new(footer, size).fields(&mut |walk, number, of| match (number, of) {
        (SCHEMA_FIELD, ThriftType::List) => {
            let (element, count) = walk.list()?;
            if element != ThriftType::Struct {
                return Err(damage("the schema has no fields"));
            }
            let children = (0..count).map(|_| children_of(walk));
            check_schema(&children.collect::<io::Result<Vec<_>>>()?)
        }
        // Its elements are not more than the bytes that are left.
        (ROW_GROUPS_FIELD, ThriftType::List) => {
            let (element, count) = walk.list()?;
            if element != ThriftType::Struct {
                return Err(damage("the row groups have no fields"));
            }
            (0..count).try_for_each(|_| walk.skip(ThriftType::Struct))
        }
        _ => walk.skip(of),
    })
}

/// Returns the number of children of the next element of a schema.
fn children_of<R: io::Read>(walk: &mut ThriftWalk<R>) -> io::Result<i64> {
    let mut children = 0;
    walk.fields(&mut |walk, number, of| match (number, of) {
        (CHILDREN_FIELD, ThriftType::Integer) => {
            children = walk.integer()?;
            Ok(())
        }
        _ => walk.skip(of),
    })?;
    Ok(children)
}

/// Checks a schema by the number of children of each of its elements, which are in depth-first order.
fn check_schema(children: &[i64]) -> io::Result<()> {
    // The numbers of elements that are still to come on each level.
    let mut open: Vec<u64> = Vec::new();
    for count in children {
        while open.last() == Some(&0) {
            open.pop();
        }
        if let Some(left) = open.last_mut() {
            *left -= 1;
        }
        let count = u64::try_from(*count).ok().filter(|count| {
            usize::try_from(*count).is_ok_and(|count| count < children.len()) || *count == 0
        });
        let count = count.ok_or_else(|| damage("a group of the schema is truncated"))?;
        open.push(count);
        if open.len() > SCHEMA_DEPTH_MAX {
            return Err(damage(format!(
                "the schema exceeds the limit of {SCHEMA_DEPTH_MAX} levels"
            )));
        }
    }
    Ok(())
}

/// Checks that each column of a row group that is not a list has a value for each row. The number of
/// rows of the whole file is not used: some writers left it 0.
fn check_row_counts(metadata: &ParquetMetaData) -> ParquetResult<()> {
    for (at, group) in metadata.row_groups().iter().enumerate() {
        let rows = group.num_rows();
        let differs = group.columns().iter().find(|column| {
            column.column_descr().max_rep_level() == 0 && column.num_values() != rows
        });
        let problem = match differs {
            Some(column) => {
                let (name, values) = (column.column_path().string(), column.num_values());
                format!("{rows} rows but {values} values of column `{name}`")
            }
            None if rows < 0 => format!("{rows} rows"),
            None => continue,
        };
        return Err(ParquetError::General(format!("row group {} has {problem}", at + 1)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{SCHEMA_DEPTH_MAX, check_footer, check_schema};

    #[test]
    fn a_schema_is_bounded() {
        let chain = |depth: usize| {
            let mut children = vec![1; depth];
            children.push(0);
            children
        };
        for (children, is_right) in [
            (vec![2, 0, 1, 0], true),
            (vec![0], true),
            (vec![-1], false),
            (vec![1_000_000, 0], false),
            (vec![i64::MAX, 0], false),
            (chain(SCHEMA_DEPTH_MAX - 1), true),
            (chain(SCHEMA_DEPTH_MAX), false),
        ] {
            assert_eq!(check_schema(&children).is_ok(), is_right, "{children:?}");
        }
    }

    #[test]
    fn a_list_has_as_many_elements_as_bytes() {
        // Field 4, a list of 2^28 structs.
        let groups = [0x49, 0xfc, 0x80, 0x80, 0x80, 0x80, 0x01, 0x00];
        let error = check_footer(&groups).unwrap_err().to_string();
        assert_eq!(error, "a list of 268435456 elements is truncated");
        // Field 9, a struct in a struct in a struct…
        let deep = [vec![0x9c], vec![0x1c; 1_000]].concat();
        let error = check_footer(&deep).unwrap_err().to_string();
        assert_eq!(error, "values are nested too deeply");
    }
}
