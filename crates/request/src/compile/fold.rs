//! Compiles the calls of a scan: which lanes there are, and which calls share a state.

use std::{collections::HashMap, ops::Range, sync::Arc};

use datafusion::{common::DFSchema, logical_expr::Expr};
use lockstep_diagnostic::Result;
use lockstep_function::aggregate::fold::{Fold, StateKind};
use lockstep_plan::{AggregateCall, Frame, Window};
use lockstep_row::{DataType, IncludedColumn, Projection, RowCodec, TextColumn};

use super::{lane::Wish, window::Wanted};
use crate::{
    fold::{Call, CurrentInputs, Folding, GroupAnswer, Pick, SourceInputs},
    frame::{BoundExpr, Place},
    lane::{Class, Input, Lane, RecordInput},
    program::Options,
};

/// What a scan computes, and the expressions that it reads, which are bound for each source.
#[derive(Default)]
pub(super) struct Folded<'c> {
    pub(super) folding: Folding,
    /// Whether lanes may be machine code.
    machine: bool,
    /// The value of each lane.
    values: Vec<Option<&'c Expr>>,
    lane_of: HashMap<LaneKey<'c>, usize>,
    conditions: Vec<&'c Expr>,
    picks: Vec<&'c Expr>,
    /// The calls without a fold, each with the nest of its groups; parallel to the folding's until
    /// those are sorted.
    accumulated: Vec<(usize, &'c AggregateCall)>,
    /// Their arguments, equal lists once.
    arguments: Vec<&'c Expr>,
    lists: Vec<(&'c [Expr], usize)>,
    /// For each state its nest.
    nest_of_state: Vec<usize>,
}

/// A window of the scan.
#[derive(Clone, Copy)]
struct Asking {
    group: usize,
    /// The windows that begin at the same row, by the first of them.
    nest: usize,
}

impl Asking {
    fn bit(self) -> u64 {
        1 << self.group
    }
}

/// Value, condition, and whether zeros are passed over.
type LaneKey<'c> = (Option<&'c Expr>, Option<usize>, bool);

impl<'c> Folded<'c> {
    pub(super) fn new(sharing: &[&Wanted<'c>], options: Options) -> Self {
        let mut folded = Self { machine: options.machine_code, ..Self::default() };
        let window = |wanted: &Wanted<'c>| &wanted.group.window;
        let nest_of = |of: &Wanted<'c>| {
            let mut others = sharing.iter();
            let first = others.position(|other| begin_together(window(other), window(of)));
            first.expect("a window begins where it begins")
        };
        let mut nests = vec![0_u64; sharing.len()];
        for (group, wanted) in sharing.iter().enumerate() {
            let asking = Asking { group, nest: nest_of(wanted) };
            nests[asking.nest] |= asking.bit();
            for (call, slot) in wanted.group.calls.iter().zip(&wanted.slots) {
                let Some(slot) = *slot else { continue };
                match &call.bound.fold {
                    Some(fold) if options.folds => folded.fold(asking, call, fold, slot),
                    _ => folded.accumulate(asking, call, slot),
                }
            }
        }
        nests.retain(|groups| groups.count_ones() > 1);
        folded.folding.nests = nests;
        // Calls that take the same arguments stand together and are fed together.
        folded.folding.calls.sort_by_key(|call| call.arguments.start);
        folded.order_by_condition();
        folded
    }

    /// Every expression that rows are asked for.
    pub(super) fn exprs(&self) -> impl Iterator<Item = &'c Expr> {
        let values = self.values.iter().flatten();
        values.chain(&self.conditions).chain(&self.picks).chain(&self.arguments).copied()
    }

    fn fold(&mut self, asking: Asking, call: &'c AggregateCall, fold: &Fold, slot: usize) {
        let value = fold.value.map(|argument| &call.arguments[argument]);
        let state = match value {
            Some(value) if fold.state.picks() => self.pick(asking, value, fold.state),
            _ => {
                let data_type = fold.value.map(|argument| &call.bound.parameters[argument]);
                let class = match data_type {
                    Some(data_type) if fold.state != StateKind::Count => class(data_type),
                    _ => Class::Rows,
                };
                let lane = self.lane(call, fold, class);
                self.state(asking, lane, fold.state)
            }
        };
        let answer = fold.answer.clone();
        self.folding.answers.push(GroupAnswer { group: asking.group, state, answer, slot });
    }

    fn lane(&mut self, call: &'c AggregateCall, fold: &Fold, class: Class) -> usize {
        let value = fold.value.map(|argument| &call.arguments[argument]);
        let condition = fold
            .condition
            .map(|condition| position(&mut self.conditions, &call.arguments[condition.argument]));
        let passes_zero = fold.condition.is_some_and(|condition| condition.excludes_zero);
        let next = self.values.len();
        let at = *self.lane_of.entry((value, condition, passes_zero)).or_insert(next);
        if let Some(lane) = self.folding.lanes.get_mut(at) {
            if lane.class == Class::Rows {
                lane.class = class;
            }
            return at;
        }
        let lane = Lane { class, condition, passes_zero, groups: 0, states: Vec::new() };
        self.folding.lanes.push(lane);
        self.values.push(value);
        at
    }

    /// The state of a kind that the windows of a nest have over a lane.
    fn state(&mut self, asking: Asking, lane: usize, kind: StateKind) -> usize {
        let Folding { lanes, states, .. } = &mut self.folding;
        let lane = &mut lanes[lane];
        lane.groups |= asking.bit();
        let nest_of_state = &self.nest_of_state;
        let is_same = |(_, state): &&mut (u64, usize)| {
            nest_of_state[*state] == asking.nest && states[*state] == kind
        };
        if let Some((groups, state)) = lane.states.iter_mut().find(is_same) {
            *groups |= asking.bit();
            return *state;
        }
        lane.states.push((asking.bit(), states.len()));
        self.new_state(asking, kind)
    }

    fn pick(&mut self, asking: Asking, value: &'c Expr, kind: StateKind) -> usize {
        let input = position(&mut self.picks, value);
        let Folding { picks, states, .. } = &mut self.folding;
        let nest_of_state = &self.nest_of_state;
        let is_same = |pick: &&mut Pick| {
            let nest = nest_of_state[pick.state];
            nest == asking.nest && pick.input == input && states[pick.state] == kind
        };
        if let Some(pick) = picks.iter_mut().find(is_same) {
            pick.groups |= asking.bit();
            return pick.state;
        }
        picks.push(Pick { groups: asking.bit(), state: states.len(), input });
        self.new_state(asking, kind)
    }

    fn new_state(&mut self, asking: Asking, kind: StateKind) -> usize {
        self.folding.states.push(kind);
        self.nest_of_state.push(asking.nest);
        self.folding.states.len() - 1
    }

    /// A call without a fold.
    fn accumulate(&mut self, asking: Asking, call: &'c AggregateCall, slot: usize) {
        let is_same = |(nest, other): &(usize, &AggregateCall)| {
            *nest == asking.nest && computes_the_same(other, call)
        };
        if let Some(same) = self.accumulated.iter().position(is_same) {
            let same = &mut self.folding.calls[same];
            same.groups |= asking.bit();
            same.outputs.push((asking.group, slot));
            return;
        }
        self.accumulated.push((asking.nest, call));
        let arguments = self.range(&call.arguments);
        self.folding.calls.push(Call {
            name: call.function.name,
            groups: asking.bit(),
            make: Arc::clone(&call.bound.make),
            arguments,
            outputs: vec![(asking.group, slot)],
        });
    }

    /// Where the values of an argument list are.
    fn range(&mut self, list: &'c [Expr]) -> Range<usize> {
        let found = self.lists.iter().find(|(seen, _)| *seen == list);
        let start = found.map_or(self.arguments.len(), |(_, start)| *start);
        if found.is_none() {
            self.lists.push((list, start));
            self.arguments.extend(list);
        }
        start..start + list.len()
    }

    /// Lanes with the same condition follow each other, so that it is evaluated once for a block.
    fn order_by_condition(&mut self) {
        let lanes = std::mem::take(&mut self.folding.lanes);
        let values = std::mem::take(&mut self.values);
        let mut pairs: Vec<_> = lanes.into_iter().zip(values).collect();
        pairs.sort_by_key(|(lane, _)| lane.condition);
        (self.folding.lanes, self.values) = pairs.into_iter().unzip();
    }

    /// What the rows of a source are asked for. `layout` has the places of the columns of `schema`;
    /// `codec` is that of the rows, when they are stored.
    pub(super) fn source_inputs(
        &self,
        schema: &DFSchema,
        layout: &[Place],
        codec: Option<&RowCodec>,
    ) -> Result<SourceInputs> {
        let bind = |expr: &Expr| BoundExpr::bind(expr, schema, layout);
        let mut lanes = Vec::with_capacity(self.values.len());
        for (value, lane) in self.values.iter().zip(&self.folding.lanes) {
            let wish = self.wish((*value, lane), schema, layout);
            let machine = codec.filter(|_| self.machine).and_then(|codec| wish.machine(codec));
            lanes.push(match (machine, value) {
                (Some(input), _) => input,
                (None, None) => Input::Nothing,
                (None, Some(value)) => in_place(bind(value)?, lane.class, codec),
            });
        }
        let lines = Lines::of(&lanes, codec);
        Ok(SourceInputs {
            lanes,
            records: Vec::new(),
            fields: Vec::new(),
            conditions: self.conditions.iter().map(|expr| bind(expr)).collect::<Result<_>>()?,
            picks: self.picks.iter().map(|expr| bind(expr)).collect::<Result<_>>()?,
            arguments: self.arguments.iter().map(|expr| bind(expr)).collect::<Result<_>>()?,
            lines: lines.places,
            texts: lines.texts,
        })
    }

    fn wish<'w>(
        &'w self,
        (value, lane): (Option<&'w Expr>, &'w Lane),
        schema: &'w DFSchema,
        layout: &'w [Place],
    ) -> Wish<'w> {
        let condition = lane.condition.map(|condition| self.conditions[condition]);
        Wish { lane, value, condition, schema, layout }
    }

    fn wishes<'w>(
        &'w self,
        schema: &'w DFSchema,
        layout: &'w [Place],
    ) -> impl Iterator<Item = Wish<'w>> {
        let lanes = self.values.iter().copied().zip(&self.folding.lanes);
        lanes.map(move |lane| self.wish(lane, schema, layout))
    }

    /// What an index has to include so that no row has to be read; `None` when rows have to be
    /// read whatever it includes.
    pub(super) fn included(
        &self,
        schema: &DFSchema,
        layout: &[Place],
    ) -> Option<Vec<IncludedColumn>> {
        if !self.folding.calls.is_empty() {
            return None;
        }
        let lists = self.wishes(schema, layout).map(Wish::included);
        Some(lists.collect::<Option<Vec<_>>>()?.concat())
    }

    /// How the lanes are served by the records of an index; empty when they do not have what is
    /// needed.
    pub(super) fn records(
        &self,
        schema: &DFSchema,
        layout: &[Place],
        (projection, codec): (&Projection, &RowCodec),
    ) -> Vec<RecordInput> {
        if !self.folding.calls.is_empty() {
            return Vec::new();
        }
        let inputs = self.wishes(schema, layout).map(|wish| wish.records(projection, codec));
        inputs.collect::<Option<_>>().unwrap_or_default()
    }

    /// The same of the current row.
    pub(super) fn current_inputs(
        &self,
        schema: &DFSchema,
        layout: &[Place],
    ) -> Result<CurrentInputs> {
        let bind = |expr: &Expr| BoundExpr::bind(expr, schema, layout);
        let lanes = self.values.iter().map(|value| value.map(bind).transpose());
        Ok(CurrentInputs {
            lanes: lanes.collect::<Result<_>>()?,
            conditions: self.conditions.iter().map(|expr| bind(expr)).collect::<Result<_>>()?,
            picks: self.picks.iter().map(|expr| bind(expr)).collect::<Result<_>>()?,
            arguments: self.arguments.iter().map(|expr| bind(expr)).collect::<Result<_>>()?,
        })
    }
}

/// Where an expression is among others; it is added unless it is there.
fn position<'c>(exprs: &mut Vec<&'c Expr>, expr: &'c Expr) -> usize {
    exprs.iter().position(|seen| *seen == expr).unwrap_or_else(|| {
        exprs.push(expr);
        exprs.len() - 1
    })
}

/// Whether two windows of a scan hold, newest first, the same rows until one of them ends.
fn begin_together(left: &Window, right: &Window) -> bool {
    let begin = |window: &Window| match window.frame {
        Frame::Rows { to: 0, .. } => (0, 0),
        Frame::Range { to, .. } if to <= 0 => (0, 0),
        Frame::Rows { to, .. } => (to, 0),
        Frame::Range { to, .. } => (0, to),
    };
    begin(left) == begin(right)
        && left.exclude_current_time == right.exclude_current_time
        && left.exclude_current_row == right.exclude_current_row
}

fn class(data_type: &DataType) -> Class {
    match data_type {
        DataType::String => Class::Texts,
        DataType::Float | DataType::Double => Class::Floats,
        _ => Class::Integers,
    }
}

fn in_place(expr: BoundExpr, class: Class, codec: Option<&RowCodec>) -> Input {
    let (BoundExpr::Place(Place::Leaf(column)), Some(codec)) = (&expr, codec) else {
        return Input::Expr(expr);
    };
    match codec.fixed_column(*column) {
        Some(fixed) => Input::Fixed(fixed),
        None if class == Class::Rows => Input::Presence(*column),
        None => match codec.text_column(*column) {
            Some(text) if class == Class::Texts => Input::Text(text),
            _ => Input::Expr(expr),
        },
    }
}

/// What lanes will read of a stored row.
#[derive(Default)]
struct Lines {
    places: Vec<usize>,
    texts: Vec<TextColumn>,
}

/// Past this many there is no point in asking early.
const LINES_MAX: usize = 6;
/// Places that are nearer than this are asked for once.
const NEAR_BYTES: usize = 24;

impl Lines {
    fn of(lanes: &[Input], codec: Option<&RowCodec>) -> Self {
        let Some(codec) = codec else { return Self::default() };
        let mut lines = Self::default();
        for input in lanes {
            match input {
                Input::Fixed(column) => lines.places.push(column.at()),
                Input::Text(column) => {
                    lines.places.push(codec.variable_at());
                    lines.texts.push(*column);
                }
                Input::Machine { program, .. } => {
                    lines.places.extend(program.columns().map(|column| column.at()));
                }
                Input::Expr(_) | Input::Presence(_) | Input::Nothing => {}
            }
        }
        lines.places.sort_unstable();
        // Rows begin anywhere in a line, so places are near only when they are very near; the first
        // ones are in lines that were read to get here.
        let mut last = NEAR_BYTES;
        lines.places.retain(|place| {
            let is_far = *place >= last + NEAR_BYTES;
            last = if is_far { *place } else { last };
            is_far
        });
        lines.places.truncate(LINES_MAX);
        lines
    }
}

fn computes_the_same(left: &AggregateCall, right: &AggregateCall) -> bool {
    left.function.name == right.function.name
        && left.arguments == right.arguments
        && left.settings == right.settings
}
