//! Compiles row sources: chooses how the rows of a key are found.

use std::sync::Arc;

use datafusion::{
    common::DFSchema,
    logical_expr::{Expr, LogicalPlan},
};
use lockstep_diagnostic::Result;
use lockstep_row::DataType;
use lockstep_table::IndexNeed;

use super::{Compiler, History};
use crate::{
    chain::{Chain, LeafKind},
    frame::{BoundExpr, Place},
    materialise::Materialised,
    source::{Access, Order, RequestRow, Source},
    trace::{self, Role},
};

/// What is asked of a source. Expressions name columns as `schema` does and mean the columns of
/// the plan at the same positions.
pub(super) struct SourceSpec<'c> {
    pub(super) plan: &'c LogicalPlan,
    pub(super) role: Role,
    pub(super) schema: &'c DFSchema,
    pub(super) keys: Vec<&'c Expr>,
    pub(super) order_by: Option<&'c Expr>,
    /// The columns that are read besides keys and order.
    pub(super) needed: Vec<bool>,
    /// Whether the request row may be one of the rows, which it is when they begin as rows of its
    /// table.
    pub(super) may_hold_request: bool,
}

/// What an index can do for a source.
struct Traced {
    /// For each key, the column of the leaf table it is looked up by; `None` where another key
    /// has that column already, too.
    keys: Vec<Option<usize>>,
    /// The leaf column of the order.
    order: Option<usize>,
}

/// What makes two sources one: the same nodes and expressions of one plan, by their addresses,
/// compiled for the same purpose.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct SourceKey {
    plan: *const LogicalPlan,
    keys: Vec<*const Expr>,
    order_by: Option<*const Expr>,
    needed: Vec<bool>,
    role: Role,
    history: History,
    may_hold_request: bool,
}

/// A source that was compiled.
#[derive(Debug, Clone)]
pub(super) struct Compiled {
    source: Arc<Source>,
    layout: Vec<Place>,
    /// In how many places the request row is looked at.
    requests_seen: usize,
}

impl Compiler<'_> {
    /// Compiles a source; also gives the places of its needed columns. Rows with windows have rows
    /// with windows among their history, so such a source is compiled once and serves them all.
    pub(super) fn source(&mut self, spec: &SourceSpec<'_>) -> Result<(Arc<Source>, Vec<Place>)> {
        let key = spec.key(self.history);
        if let Some(Compiled { source, layout, requests_seen }) = self.sources.get(&key).cloned() {
            self.parts.requests_seen += requests_seen;
            let line = self.parts.explain.open();
            let text = self.parts.describe_source(&source, spec.plan);
            self.parts.explain.close(line, format!("{text}, with windows as above"));
            return Ok((source, layout));
        }
        let seen_before = self.parts.requests_seen;
        let (source, layout) = self.new_source(spec)?;
        let source = Arc::new(source);
        if source.kept.is_some() {
            let requests_seen = self.parts.requests_seen - seen_before;
            let (source, layout) = (Arc::clone(&source), layout.clone());
            self.sources.insert(key, Compiled { source, layout, requests_seen });
        }
        Ok((source, layout))
    }

    fn new_source(&mut self, spec: &SourceSpec<'_>) -> Result<(Source, Vec<Place>)> {
        let line = self.parts.explain.open();
        let is_row_source = trace::is_row_source(spec.plan, spec.role);
        let holds_request = is_row_source
            && spec.may_hold_request
            && trace::leaf_table(spec.plan).is_some_and(|leaf| self.request_table.is(leaf));
        let traced = if is_row_source { self.trace(spec)? } else { None };
        let (chain, layout) = if is_row_source {
            self.chain(spec.plan, &spec.columns(traced.as_ref(), holds_request), spec.role)?
        } else {
            self.materialise(spec.plan)
        };
        let mut residual = Vec::new();
        for (position, key) in spec.keys.iter().enumerate() {
            if traced.as_ref().is_none_or(|traced| traced.keys[position].is_none()) {
                residual.push((position, BoundExpr::bind(key, spec.schema, &layout)?));
            }
        }
        let order = match (spec.order_by, traced.as_ref().and_then(|traced| traced.order)) {
            (None, _) => Order::Arrival,
            (Some(_), Some(column)) => Order::Index { column },
            (Some(expr), None) => Order::Computed(BoundExpr::bind(expr, spec.schema, &layout)?),
        };
        let access = self.access(&chain, traced.as_ref())?;
        let request = if holds_request { Some(self.request_row(spec, &layout)?) } else { None };
        let kept = chain.has_windows().then_some(self.parts.kept_sources);
        self.parts.kept_sources += usize::from(kept.is_some());
        let source = Source { chain, access, residual, order, request, kept };
        let text = self.parts.describe_source(&source, spec.plan);
        self.parts.explain.close(line, text);
        Ok((source, layout))
    }

    /// The request row as a row of the source.
    fn request_row(&mut self, spec: &SourceSpec<'_>, layout: &[Place]) -> Result<RequestRow> {
        let bind = |expr: &Expr| BoundExpr::bind(expr, spec.schema, layout);
        let keys = spec.keys.iter().map(|key| bind(key)).collect::<Result<_>>()?;
        let order = spec.order_by.map(bind).transpose()?;
        let id = self.parts.request_rows;
        self.parts.request_rows += 1;
        self.parts.requests_seen += 1;
        Ok(RequestRow { id, keys, order })
    }

    fn materialise(&mut self, plan: &LogicalPlan) -> (Chain, Vec<Place>) {
        let reads_request = self.request_table.is_read_by(plan);
        self.parts.requests_seen += usize::from(reads_request);
        let request_table = reads_request.then(|| self.request_table.clone());
        let materialised = &mut self.parts.materialised;
        let leaf = LeafKind::Materialised(materialised.len());
        materialised.push(Materialised { plan: plan.clone(), request_table });
        let layout = (0..plan.schema().fields().len()).map(Place::Leaf).collect();
        (Chain { leaf, steps: Vec::new(), slot_count: 0 }, layout)
    }

    /// Finds out what an index can do; `None` when nothing.
    fn trace(&mut self, spec: &SourceSpec<'_>) -> Result<Option<Traced>> {
        let Some(leaf) = trace::leaf_table(spec.plan) else { return Ok(None) };
        let leaf = self.table(leaf)?;
        let to_leaf = |expr: &Expr| {
            trace::column(expr, spec.schema).and_then(|column| trace::to_leaf(spec.plan, column))
        };
        let mut keys: Vec<Option<usize>> = Vec::with_capacity(spec.keys.len());
        for key in &spec.keys {
            let column = to_leaf(key);
            keys.push(column.filter(|column| !keys.contains(&Some(*column))));
        }
        if !keys.is_empty() && keys.iter().all(Option::is_none) {
            return Ok(None);
        }
        let columns = &self.parts.tables[leaf].0.schema.columns;
        let has_order = |column: &usize| {
            let data_type = &columns[*column].data_type;
            data_type.is_integer() || *data_type == DataType::Timestamp
        };
        let order = spec.order_by.and_then(to_leaf).filter(has_order);
        Ok(Some(Traced { keys, order }))
    }

    fn access(&mut self, chain: &Chain, traced: Option<&Traced>) -> Result<Access> {
        let (LeafKind::Table(leaf), Some(traced)) = (chain.leaf, traced) else {
            return Ok(Access::All);
        };
        let columns: Vec<usize> = traced.keys.iter().flatten().copied().collect();
        let need = IndexNeed { keys: columns, event_time: traced.order, ..IndexNeed::default() };
        let hold = self.hold(leaf, &need)?;
        let index = self.parts.holds[hold].index();
        let schema = self.parts.tables[leaf].1.schema();
        let position_of = |column: &usize| {
            let position = traced.keys.iter().position(|key| *key == Some(*column));
            position.expect("the index was asked for over exactly the traced columns")
        };
        let keys = schema.indexes[index].keys.iter().map(position_of).collect();
        Ok(Access::Index { index, keys, own_only: self.options.own_only })
    }
}

impl SourceSpec<'_> {
    fn key(&self, history: History) -> SourceKey {
        SourceKey {
            plan: self.plan,
            keys: self.keys.iter().map(|key| std::ptr::from_ref(*key)).collect(),
            order_by: self.order_by.map(std::ptr::from_ref),
            needed: self.needed.clone(),
            role: self.role,
            history,
            may_hold_request: self.may_hold_request,
        }
    }

    /// The columns that the chain has to compute.
    fn columns(&self, traced: Option<&Traced>, holds_request: bool) -> Vec<bool> {
        let mut columns = self.needed.clone();
        for (position, key) in self.keys.iter().enumerate() {
            if holds_request || traced.is_none_or(|traced| traced.keys[position].is_none()) {
                trace::mark_columns(key, self.schema, &mut columns);
            }
        }
        if let Some(order_by) = self.order_by
            && (holds_request || traced.is_none_or(|traced| traced.order.is_none()))
        {
            trace::mark_columns(order_by, self.schema, &mut columns);
        }
        columns
    }
}
