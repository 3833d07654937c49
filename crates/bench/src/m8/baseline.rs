//! The speed-of-light baseline of M8: for each key a segment tree over exact states in plain arrays.
//!
//! A node is a state of each kind that the aggregates need; a leaf is of 128 rows, and a node of two
//! nodes. A request finds its rows by binary search, adds those at both ends from the columns, and
//! merges the nodes between. Rows do not change: there is no visibility, no late row, no removal.

use std::{collections::HashMap, hint::black_box, ops::Range};

use lockstep_function::{
    AggregateState, BoundAggregate, RowsEnd, StateForm, StateUse, aggregate::state::ValueLane,
};
use lockstep_row::{Arena, Datum, ShortText};

use super::{
    data::{CATEGORIES, ITEM_MIN, KeySet, LongRequest},
    family::Family,
};
use crate::{
    answer::AnswerValue,
    error::Result,
    report::BASELINE,
    system::{Client, System},
};

/// Rows of a leaf.
const LEAF_ROWS: usize = 128;

/// The trees of all keys, for one family of aggregates.
#[derive(Debug)]
pub(super) struct M8Baseline {
    plan: StatePlan,
    keys: HashMap<String, KeyTree>,
}

/// The aggregates, and the states from which they are computed.
#[derive(Debug)]
struct StatePlan {
    family: Family,
    aggregates: Vec<BoundAggregate>,
    /// For each state an aggregate that makes it.
    makers: Vec<usize>,
    /// For each aggregate its state.
    states: Vec<usize>,
}

impl StatePlan {
    fn new(family: Family) -> Self {
        let aggregates = family.aggregates();
        let kind = |aggregate: &BoundAggregate| match &aggregate.state {
            StateForm::Fold(fold) => Some(fold.state),
            StateForm::Rows(_) => None,
        };
        let (mut makers, mut states): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
        for (number, aggregate) in aggregates.iter().enumerate() {
            let is_same = |maker: &usize| {
                kind(aggregate).is_some() && kind(&aggregates[*maker]) == kind(aggregate)
            };
            let known = makers.iter().position(is_same);
            states.push(known.unwrap_or(makers.len()));
            if known.is_none() {
                makers.push(number);
            }
        }
        Self { family, aggregates, makers, states }
    }

    fn new_states(&self) -> impl Iterator<Item = AggregateState> {
        self.makers.iter().map(|maker| self.aggregates[*maker].new_state(StateUse::Fold))
    }

    /// Adds rows to states, from the newest end.
    fn add(&self, states: &mut [AggregateState], columns: &BaselineColumns, rows: Range<usize>) {
        let lane = match self.family {
            Family::Totals | Family::Extremes => ValueLane::Floats(&columns.amounts[rows]),
            Family::DistinctCount => ValueLane::Integers(&columns.items[rows]),
            Family::TopFrequency => ValueLane::ShortTexts(&columns.categories[rows]),
            Family::CategorySums => {
                let aggregate = &self.aggregates[0];
                for row in rows {
                    let arguments = [
                        Datum::BigInt(columns.units[row]),
                        Datum::Bool(columns.items[row] > ITEM_MIN),
                        Datum::String(columns.categories[row].as_str()),
                    ];
                    aggregate.add(&mut states[0], &arguments, RowsEnd::Newest);
                }
                return;
            }
        };
        states.iter_mut().for_each(|state| state.add(lane));
    }
}

/// The columns of one key that the aggregates read, oldest row first.
#[derive(Debug, Default)]
struct BaselineColumns {
    times_ms: Vec<i64>,
    amounts: Vec<f64>,
    units: Vec<i64>,
    items: Vec<i64>,
    categories: Vec<ShortText>,
}

impl BaselineColumns {
    fn of(family: Family, set: KeySet, key: usize) -> Self {
        let names =
            CATEGORIES.map(|name| ShortText::new(name).expect("the names of categories are short"));
        let mut columns = Self::default();
        for row in (0..set.key_rows()).map(|number| set.row(key, number)) {
            columns.times_ms.push(row.time_ms);
            match family {
                Family::Totals | Family::Extremes => columns.amounts.push(row.amount),
                Family::DistinctCount => columns.items.push(row.item),
                Family::TopFrequency => columns.categories.push(names[row.category]),
                Family::CategorySums => {
                    columns.units.push(row.units);
                    columns.items.push(row.item);
                    columns.categories.push(names[row.category]);
                }
            }
        }
        columns
    }
}

/// The rows of one key and the tree over them.
#[derive(Debug)]
struct KeyTree {
    columns: BaselineColumns,
    leaves: usize,
    /// The states of node 1, the root, then of its children 2 and 3, and so on; node `leaves + i` is
    /// leaf `i`. Those of node 0 are not used.
    nodes: Vec<AggregateState>,
}

impl KeyTree {
    fn new(plan: &StatePlan, columns: BaselineColumns) -> Self {
        let leaves = columns.times_ms.len() / LEAF_ROWS;
        let width = plan.makers.len();
        let mut nodes: Vec<AggregateState> = Vec::with_capacity(2 * leaves * width);
        (0..2 * leaves).for_each(|_| nodes.extend(plan.new_states()));
        for leaf in 0..leaves {
            let node = (leaves + leaf) * width;
            let rows = leaf * LEAF_ROWS..(leaf + 1) * LEAF_ROWS;
            plan.add(&mut nodes[node..node + width], &columns, rows);
        }
        for node in (1..leaves).rev() {
            let (own, below) = nodes.split_at_mut((node + 1) * width);
            let children = below[(node - 1) * width..].chunks(width).take(2);
            children.for_each(|child| merge(&mut own[node * width..], child));
        }
        Self { columns, leaves, nodes }
    }

    /// Adds the rows of a range.
    fn add(&self, plan: &StatePlan, states: &mut [AggregateState], rows: Range<usize>) {
        assert!(rows.start <= rows.end, "a range begins before it ends");
        let (first, last) =
            (rows.start.div_ceil(LEAF_ROWS), (rows.end / LEAF_ROWS).min(self.leaves));
        if first >= last {
            plan.add(states, &self.columns, rows);
            return;
        }
        plan.add(states, &self.columns, rows.start..first * LEAF_ROWS);
        let width = plan.makers.len();
        let of_node = |node: usize| &self.nodes[node * width..(node + 1) * width];
        let (mut left, mut right) = (first + self.leaves, last + self.leaves);
        while left < right {
            if left % 2 == 1 {
                merge(states, of_node(left));
                left += 1;
            }
            if right % 2 == 1 {
                right -= 1;
                merge(states, of_node(right));
            }
            left /= 2;
            right /= 2;
        }
        plan.add(states, &self.columns, last * LEAF_ROWS..rows.end);
    }
}

/// Adds the states of a node. None of the aggregates depends on the order of the rows.
fn merge(states: &mut [AggregateState], node: &[AggregateState]) {
    assert_eq!(states.len(), node.len(), "nodes have the same states");
    for (state, other) in states.iter_mut().zip(node) {
        let is_merged = state.merge(other, RowsEnd::Newest);
        assert!(is_merged, "the states of M8 are merged");
    }
}

impl M8Baseline {
    /// Makes the trees of all keys.
    pub(super) fn new(family: Family, sets: &[KeySet]) -> Self {
        let plan = StatePlan::new(family);
        let keys = sets.iter().flat_map(|set| (0..set.keys).map(|key| (*set, key)));
        let tree = |(set, key): (KeySet, usize)| {
            (set.key(key), KeyTree::new(&plan, BaselineColumns::of(family, set, key)))
        };
        let keys = keys.map(tree).collect();
        Self { plan, keys }
    }

    /// Returns the system that answers these requests.
    pub(super) fn system<'a>(&'a self, requests: &'a [LongRequest]) -> BaselineSystem<'a> {
        BaselineSystem { baseline: self, requests }
    }
}

/// The trees and requests.
#[derive(Debug)]
pub(super) struct BaselineSystem<'a> {
    baseline: &'a M8Baseline,
    requests: &'a [LongRequest],
}

impl System for BaselineSystem<'_> {
    fn name(&self) -> &'static str {
        BASELINE
    }

    fn connect(&self) -> Result<Box<dyn Client + '_>> {
        let states = self.baseline.plan.new_states().collect();
        Ok(Box::new(BaselineClient { system: self, states, arena: Arena::new() }))
    }

    fn bytes_per_row(&self) -> Option<f64> {
        None
    }
}

struct BaselineClient<'a> {
    system: &'a BaselineSystem<'a>,
    states: Vec<AggregateState>,
    arena: Arena,
}

impl BaselineClient<'_> {
    fn operate<T>(&mut self, request: usize, take: impl FnOnce(&[Datum<'_>]) -> T) -> T {
        let BaselineSystem { baseline: M8Baseline { plan, keys }, requests } = self.system;
        let request = &requests[request];
        self.arena.reset();
        self.states.iter_mut().for_each(AggregateState::reset);
        if let Some(tree) = keys.get(&request.key) {
            let times_ms = &tree.columns.times_ms;
            let start = times_ms.partition_point(|time_ms| *time_ms < request.since_ms());
            let end = times_ms.partition_point(|time_ms| *time_ms <= request.time_ms);
            tree.add(plan, &mut self.states, start..end);
        }
        let answer = self.arena.alloc_slice_fill_default(plan.aggregates.len());
        for ((value, aggregate), state) in answer.iter_mut().zip(&plan.aggregates).zip(&plan.states)
        {
            *value = aggregate.value(&self.states[*state], &self.arena);
        }
        take(answer)
    }
}

impl Client for BaselineClient<'_> {
    fn serve(&mut self, request: usize) -> Result<()> {
        self.operate(request, |answer| {
            black_box(answer);
        });
        Ok(())
    }

    fn answer(&mut self, request: usize) -> Result<Vec<AnswerValue>> {
        Ok(self.operate(request, |answer| answer.iter().map(AnswerValue::from).collect()))
    }
}
