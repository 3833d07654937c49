//! Compiles what a scan reads of the rows of one source, and of the current row.

use datafusion::logical_expr::Expr;
use lockstep_diagnostic::Result;
use lockstep_row::{IncludedColumn, Projection, RowCodec, TableSchema};

use super::{aggregates::AggregatesBuilder, lane::LaneCompiler};
use crate::{
    inputs::{CurrentInputs, PrefetchPlan, RecordInputs, SourceInputs},
    lane::{LaneClass, RowInput, ScanLane},
    record_row::RecordColumns,
    row_context::{BoundExpr, ColumnLayout, ValueLocation},
    trace,
};

impl<'c> AggregatesBuilder<'c> {
    /// Binds what is read of the rows of a source. `codec` is that of the rows, when they are stored.
    pub(super) fn source_inputs(
        &self,
        layout: ColumnLayout<'_>,
        codec: Option<&RowCodec>,
    ) -> Result<SourceInputs> {
        let mut lanes = Vec::with_capacity(self.values.len());
        for (value, lane) in self.values.iter().zip(&self.aggregates.lanes) {
            let compiler = self.lane_compiler(*value, lane, layout);
            let codec_for_code = codec.filter(|_| self.machine_code);
            let machine = codec_for_code.and_then(|codec| compiler.row_input(codec));
            lanes.push(match (machine, value) {
                (Some(input), _) => input,
                (None, None) => RowInput::Nothing,
                (None, Some(value)) => in_place(BoundExpr::bind(value, layout)?, lane.class, codec),
            });
        }
        let prefetch = PrefetchPlan::of(&lanes, codec);
        Ok(SourceInputs {
            lanes,
            records: None,
            conditions: layout.bind_all(self.conditions.iter().copied())?,
            picks: layout.bind_all(self.picks.iter().copied())?,
            arguments: layout.bind_all(self.arguments.iter().copied())?,
            prefetch,
        })
    }

    /// Binds what is read of the current row.
    pub(super) fn current_inputs(&self, layout: ColumnLayout<'_>) -> Result<CurrentInputs> {
        let bind = |expr: &Expr| BoundExpr::bind(expr, layout);
        let lanes = self.values.iter().map(|value| value.map(bind).transpose());
        Ok(CurrentInputs {
            lanes: lanes.collect::<Result<_>>()?,
            conditions: layout.bind_all(self.conditions.iter().copied())?,
            picks: layout.bind_all(self.picks.iter().copied())?,
            arguments: layout.bind_all(self.arguments.iter().copied())?,
        })
    }

    /// Lists the columns that an index has to include so that no row is read; `None` when rows are
    /// read whatever it includes.
    pub(super) fn included_columns(&self, layout: ColumnLayout<'_>) -> Option<Vec<IncludedColumn>> {
        let lists = self.lane_compilers(layout).map(LaneCompiler::included_columns);
        let of_lanes = lists.collect::<Option<Vec<_>>>()?.concat();
        let of_calls = self.call_columns(layout)?.into_iter();
        let of_calls = of_calls.map(|column| IncludedColumn { column, values: true });
        Some(of_lanes.into_iter().chain(of_calls).collect())
    }

    /// Compiles lanes and calls for the records of an index. Returns `None` when the records do not have
    /// what all of them read.
    pub(super) fn record_inputs(
        &self,
        layout: ColumnLayout<'_>,
        schema: &TableSchema,
        projection: &Projection,
        codec: &RowCodec,
    ) -> Option<RecordInputs> {
        let lanes = self.lane_compilers(layout);
        let lanes = lanes.map(|lane| lane.record_input(projection, codec));
        let lanes = lanes.collect::<Option<_>>()?;
        let columns = self.call_columns(layout)?;
        let columns = RecordColumns::find(columns, schema, projection, codec)?;
        Some(RecordInputs::new(lanes, columns))
    }

    /// Lists the columns of the stored row that the arguments of calls are over; `None` when one of
    /// them is computed.
    fn call_columns(&self, layout: ColumnLayout<'_>) -> Option<Vec<usize>> {
        let mut read = vec![false; layout.schema.fields().len()];
        for argument in &self.arguments {
            trace::mark_columns(argument, layout.schema, &mut read);
        }
        let read = (0..read.len()).filter(|column| read[*column]);
        read.map(|column| layout.leaf_column(column)).collect()
    }

    fn lane_compilers<'l>(
        &'l self,
        layout: ColumnLayout<'l>,
    ) -> impl Iterator<Item = LaneCompiler<'l>> {
        let lanes = self.values.iter().zip(&self.aggregates.lanes);
        lanes.map(move |(value, lane)| self.lane_compiler(*value, lane, layout))
    }

    fn lane_compiler<'l>(
        &'l self,
        value: Option<&'l Expr>,
        lane: &'l ScanLane,
        layout: ColumnLayout<'l>,
    ) -> LaneCompiler<'l> {
        let condition = lane.condition.map(|condition| self.conditions[condition]);
        LaneCompiler { lane, value, condition, layout }
    }
}

/// Chooses how the values of an expression are read that is not machine code: in place where it is a
/// column of a stored row.
fn in_place(expr: BoundExpr, class: LaneClass, codec: Option<&RowCodec>) -> RowInput {
    let (BoundExpr::Column(ValueLocation::Leaf(column)), Some(codec)) = (&expr, codec) else {
        return RowInput::Expr(expr);
    };
    match codec.fixed_column(*column) {
        Some(fixed) => RowInput::Fixed(fixed),
        None if class == LaneClass::Rows => RowInput::Presence(*column),
        None => match codec.text_column(*column) {
            Some(text) if class == LaneClass::Texts => RowInput::Text(text),
            _ => RowInput::Expr(expr),
        },
    }
}

/// The most offsets that are prefetched: beyond them, prefetching costs more than it saves.
const OFFSETS_MAX: usize = 6;
/// Offsets that are nearer than this are prefetched once.
const NEAR_BYTES: usize = 24;

impl PrefetchPlan {
    /// Lists what the lanes read of a stored row.
    fn of(lanes: &[RowInput], codec: Option<&RowCodec>) -> Self {
        let Some(codec) = codec else { return Self::default() };
        let mut plan = Self::default();
        for input in lanes {
            match input {
                RowInput::Fixed(column) => plan.offsets.push(column.at()),
                RowInput::Text(column) => {
                    plan.offsets.push(codec.variable_at());
                    plan.texts.push(*column);
                }
                RowInput::Machine { program, .. } => {
                    plan.offsets.extend(program.columns().map(|column| column.at()));
                }
                RowInput::Expr(_) | RowInput::Presence(_) | RowInput::Nothing => {}
            }
        }
        plan.offsets.sort_unstable();
        // A row begins anywhere in a cache line, so two offsets are in one line only when they are
        // very near. The first bytes are in a line that was read to find the row.
        let mut last = NEAR_BYTES;
        plan.offsets.retain(|offset| {
            let is_far = *offset >= last + NEAR_BYTES;
            last = if is_far { *offset } else { last };
            is_far
        });
        plan.offsets.truncate(OFFSETS_MAX);
        plan
    }
}
