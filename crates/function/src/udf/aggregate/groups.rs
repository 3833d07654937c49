//! The states of the groups of a GROUP BY, between Arrow's columns.
//!
//! The rows of a group come in event order, which the plan makes. A partial state is the encoding of
//! the aggregate's state, so that the result does not depend on how rows were split into phases. An
//! aggregate that depends on the order of rows has no partial state here, since phases do not keep
//! the order of their inputs.

use arrow::array::{Array, ArrayRef, AsArray, BinaryBuilder, BooleanArray};
use datafusion::{
    common::{Result, ScalarValue, exec_err, not_impl_err},
    logical_expr::{Accumulator as DataFusionAccumulator, EmitTo, GroupsAccumulator},
};
use lockstep_row::{
    Arena,
    arrow::{ColumnBuilder, ColumnReader},
};

use super::AggregateUdf;
use crate::{
    StateUse,
    aggregate::{StateReader, groups::GroupStates},
    udf::scalar::check_limits,
};

/// The arena of results is reset when it has allocated more bytes than this.
const ARENA_BYTES_MAX: usize = 1 << 20;

/// One aggregate for all groups.
pub(super) struct GroupedAggregate {
    udf: AggregateUdf,
    states: GroupStates,
}

impl GroupedAggregate {
    pub(super) fn new(udf: &AggregateUdf) -> Self {
        Self { udf: udf.clone(), states: GroupStates::new(&udf.bound) }
    }

    /// Adds the rows for which `counts` returns true.
    fn add(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        counts: impl Fn(usize) -> bool,
    ) {
        let readers: Vec<ColumnReader<'_>> =
            values.iter().map(|column| ColumnReader::new(column as &dyn Array)).collect();
        let readers = &readers[..self.udf.bound.parameters.len()];
        let arena = Arena::new();
        let mut arguments = Vec::with_capacity(readers.len());
        let aggregate = &self.udf.bound;
        for (row, group) in group_indices.iter().enumerate().filter(|(row, _)| counts(*row)) {
            if let [only] = readers {
                let value = only.get(row, &arena);
                self.states.add(aggregate, *group, &[value]);
            } else {
                arguments.clear();
                arguments.extend(readers.iter().map(|reader| reader.get(row, &arena)));
                self.states.add(aggregate, *group, &arguments);
            }
        }
    }

    fn taken(&self, emit_to: EmitTo) -> usize {
        match emit_to {
            EmitTo::All => self.states.len(),
            EmitTo::First(count) => count,
        }
    }
}

impl GroupsAccumulator for GroupedAggregate {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.states.resize(&self.udf.bound, total_num_groups);
        match opt_filter {
            None => self.add(values, group_indices, |_| true),
            Some(filter) => {
                self.add(values, group_indices, |row| filter.is_valid(row) && filter.value(row));
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let count = self.taken(emit_to);
        let aggregate = &self.udf.bound;
        let mut results = ColumnBuilder::new(&aggregate.returns, count);
        let mut arena = Arena::new();
        self.states.take(count, |state| {
            results.push(aggregate.value(state, &arena));
            if arena.allocated_bytes() > ARENA_BYTES_MAX {
                arena.reset();
            }
        });
        check_limits()?;
        Ok(results.finish())
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.udf.check_partial()?;
        let count = self.taken(emit_to);
        let mut encoded = BinaryBuilder::with_capacity(count, count * size_of::<u64>());
        let (mut bytes, mut is_encoded) = (Vec::new(), true);
        self.states.take(count, |state| {
            bytes.clear();
            is_encoded &= state.encode(&mut bytes);
            encoded.append_value(&bytes);
        });
        debug_assert!(is_encoded, "every grouped state is encoded");
        Ok(vec![std::sync::Arc::new(encoded.finish())])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.states.resize(&self.udf.bound, total_num_groups);
        let mut state = self.udf.bound.new_state(StateUse::Fold);
        for (bytes, group) in values[0].as_binary::<i32>().iter().zip(group_indices) {
            let Some(bytes) = bytes else { continue };
            state.reset();
            let mut reader = StateReader::new(bytes);
            if state.decode(&mut reader).is_none() || !reader.is_at_end() {
                return exec_err!("a partial state of {} is damaged", self.udf.function.name);
            }
            let is_merged = self.states.merge(*group, &state);
            debug_assert!(is_merged, "every grouped state is merged");
        }
        Ok(())
    }

    fn convert_to_state(
        &self,
        _values: &[ArrayRef],
        _opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        not_impl_err!("{} cannot be converted from rows to states", self.udf.function.name)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.states.heap_bytes()
    }
}

/// One aggregate for all rows, as one group.
pub(super) struct WholeAggregate(GroupedAggregate);

impl std::fmt::Debug for WholeAggregate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.0.udf.function.name;
        f.debug_struct("WholeAggregate").field("function", &name).finish_non_exhaustive()
    }
}

impl WholeAggregate {
    pub(super) fn new(udf: &AggregateUdf) -> Self {
        let mut grouped = GroupedAggregate::new(udf);
        grouped.states.resize(&udf.bound, 1);
        Self(grouped)
    }
}

impl DataFusionAccumulator for WholeAggregate {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let rows = values.first().map_or(0, |column| column.len());
        self.0.update_batch(values, &vec![0; rows], None, 1)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::try_from_array(&self.0.evaluate(EmitTo::All)?, 0)
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let columns = self.0.state(EmitTo::All)?;
        columns.iter().map(|column| ScalarValue::try_from_array(column, 0)).collect()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let rows = states.first().map_or(0, |column| column.len());
        self.0.merge_batch(states, &vec![0; rows], 1)
    }
}
