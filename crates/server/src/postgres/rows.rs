//! The rows of an answer, of which some were sent.

use std::sync::Arc;

use arrow::{
    array::RecordBatch,
    datatypes::{Field, Schema},
};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_engine::Output;
use lockstep_row::{
    Arena, DataType, Datum, Value,
    arrow::{ColumnBuilder, ColumnReader, arrow_type},
};

use super::{
    response::ResultColumn,
    types::{Oid, element_oid, oid, type_of_oid},
};

/// The rows of an answer and how many of them were sent.
#[derive(Debug)]
pub(crate) struct RowCursor {
    pub(crate) columns: Arc<[ResultColumn]>,
    batches: Vec<RecordBatch>,
    /// For each column that of the batches.
    positions: Vec<usize>,
    batch: usize,
    row: usize,
    pub(crate) sent: u64,
}

impl RowCursor {
    /// Makes it of an output.
    pub(crate) fn of_output(output: Output) -> Self {
        let columns = ResultColumn::of(&output.columns);
        let positions = (0..columns.len()).collect();
        Self::new(columns, output.batches, positions)
    }

    /// Makes it of a batch that has these columns.
    pub(crate) fn of_batch(columns: &Arc<[ResultColumn]>, batch: RecordBatch) -> Self {
        debug_assert_eq!(columns.len(), batch.num_columns(), "a column has a position");
        let (columns, positions) = (Arc::clone(columns), (0..batch.num_columns()).collect());
        Self { columns, batches: vec![batch], positions, batch: 0, row: 0, sent: 0 }
    }

    /// Makes it of some columns of an output, which get other names.
    pub(crate) fn of_columns(output: Output, chosen: &[(usize, String)]) -> Self {
        let all = ResultColumn::of(&output.columns);
        let columns =
            chosen.iter().map(|(at, name)| ResultColumn { name: name.clone(), ..all[*at].clone() });
        let positions = chosen.iter().map(|(at, _)| *at).collect();
        Self::new(columns.collect(), output.batches, positions)
    }

    /// Makes it of values, whose columns have types of PostgreSQL.
    pub(crate) fn of_values(names: &[(&str, Oid)], rows: &[Vec<Value>]) -> Result<Self> {
        let column = |(name, number): &(&str, Oid)| {
            // The number of an object has four bytes.
            let of_oid = |number: Oid| match number {
                oid::OID => Some(DataType::Int),
                number => type_of_oid(number),
            };
            let data_type = match element_oid(*number) {
                Some(element) => of_oid(element).map(|element| DataType::Array(Box::new(element))),
                None => of_oid(*number),
            };
            let data_type = data_type.unwrap_or(DataType::String);
            ResultColumn { name: (*name).to_owned(), data_type, oid: *number }
        };
        let columns: Vec<ResultColumn> = names.iter().map(column).collect();
        let mut builders: Vec<ColumnBuilder> = columns
            .iter()
            .map(|column| ColumnBuilder::new(&column.data_type, rows.len()))
            .collect();
        let arena = Arena::new();
        for row in rows {
            debug_assert_eq!(row.len(), columns.len(), "a row has a value for each column");
            for (builder, value) in builders.iter_mut().zip(row) {
                builder.push(value.as_datum(&arena));
            }
        }
        let fields = columns
            .iter()
            .enumerate()
            .map(|(at, column)| Field::new(format!("{at}"), arrow_type(&column.data_type), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let arrays = builders.iter_mut().map(ColumnBuilder::finish).collect();
        let batch = RecordBatch::try_new(schema, arrays)
            .map_err(|error| Box::new(Diagnostic::internal(error.to_string())))?;
        let positions = (0..columns.len()).collect();
        Ok(Self::new(columns, vec![batch], positions))
    }

    fn new(columns: Vec<ResultColumn>, batches: Vec<RecordBatch>, positions: Vec<usize>) -> Self {
        debug_assert_eq!(columns.len(), positions.len(), "a column has a position in the batches");
        Self { columns: columns.into(), batches, positions, batch: 0, row: 0, sent: 0 }
    }

    /// Returns whether all rows were sent.
    pub(crate) fn is_end(&self) -> bool {
        self.batches[self.batch.min(self.batches.len())..]
            .iter()
            .enumerate()
            .all(|(at, batch)| batch.num_rows() <= if at == 0 { self.row } else { 0 })
    }

    /// Calls `write` for the next rows until it says that it has enough, which is after each row.
    pub(crate) fn send(
        &mut self,
        mut write: impl FnMut(&[Datum<'_>]) -> Result<SendMore>,
    ) -> Result<()> {
        let mut arena = Arena::new();
        while let Some(batch) = self.batches.get(self.batch) {
            let columns = self.positions.iter().map(|at| batch.column(*at));
            let readers: Vec<ColumnReader<'_>> =
                columns.map(|column| ColumnReader::new(column.as_ref())).collect();
            while self.row < batch.num_rows() {
                let more = {
                    let row: Vec<Datum<'_>> =
                        readers.iter().map(|reader| reader.get(self.row, &arena)).collect();
                    write(&row)?
                };
                arena.reset();
                self.row += 1;
                self.sent += 1;
                if more == SendMore::No {
                    return Ok(());
                }
            }
            self.batch += 1;
            self.row = 0;
        }
        Ok(())
    }
}

/// Whether the next row is wanted at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendMore {
    Yes,
    No,
}

#[cfg(test)]
mod tests {
    use lockstep_engine::Database;
    use lockstep_row::Datum;

    use super::{RowCursor, SendMore};

    #[test]
    fn rows_are_sent_in_parts() {
        let session = Database::in_memory().session();
        let output =
            session.execute("SELECT 1 AS a, 'x' AS b UNION ALL SELECT 2 AS a, 'y' AS b").unwrap();
        let mut cursor = RowCursor::of_columns(output, &[(1, "c".to_owned())]);
        assert_eq!(cursor.columns[0].name, "c");
        let mut texts = Vec::new();
        for _ in 0..2 {
            assert!(!cursor.is_end());
            let write = |row: &[Datum<'_>]| {
                texts.push(row[0].as_str().unwrap().to_owned());
                Ok(SendMore::No)
            };
            cursor.send(write).unwrap();
        }
        assert!(cursor.is_end());
        cursor.send(|_| panic!("there is no row")).unwrap();
        texts.sort();
        assert_eq!((texts, cursor.sent), (vec!["x".to_owned(), "y".to_owned()], 2));
    }
}
