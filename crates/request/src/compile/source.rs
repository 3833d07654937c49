//! Compiles row sources: chooses the access path to the rows of a key.

use std::sync::Arc;

use datafusion::{
    common::DFSchema,
    logical_expr::{Expr, LogicalPlan},
};
use lockstep_diagnostic::Result;
use lockstep_plan::stored_tables;
use lockstep_row::DataType;
use lockstep_table::IndexNeed;

use super::{CompiledChain, Compiler, HistoryOrder};
use crate::{
    chain::{Chain, LeafKind},
    materialise::Materialised,
    row_context::{BoundExpr, ColumnLayout, ValueLocation},
    source::{AccessPath, KeyedSource, Order, RequestRow, ResidualKey},
    trace::{self, ChainRole},
};

/// Which rows a source has to find. Expressions name columns as `schema` does and mean the columns of
/// the plan at the same positions.
pub(super) struct SourceSpec<'c> {
    pub(super) plan: &'c LogicalPlan,
    pub(super) role: ChainRole,
    pub(super) schema: &'c DFSchema,
    pub(super) keys: Vec<&'c Expr>,
    pub(super) order_by: Option<&'c Expr>,
    /// The columns that are read besides keys and order.
    pub(super) needed: Vec<bool>,
    /// How rows are read without ORDER BY.
    pub(super) unordered: Unordered,
    /// Whether the request row may be one of the rows, which it is when the leaf is its table.
    pub(super) may_have_request: bool,
}

/// How the rows of a source without ORDER BY are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Unordered {
    /// The newest arrival first, all with the same order value.
    Alike,
    /// The newest arrival first, by the time of arrival: all rows are in the frame.
    ByArrival,
    /// In any order: all rows are in the frame, and nothing depends on their order.
    InAnyOrder,
}

/// The columns of the leaf table by which an index can find the rows of a source.
struct IndexColumns {
    /// For each key, the column that it is; `None` where it is not a column, or one that another key
    /// is already.
    keys: Vec<Option<usize>>,
    /// The column of the order.
    order: Option<usize>,
}

/// What makes two sources the same: the same nodes and expressions of one plan, by their addresses,
/// with the same role.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct SourceKey {
    plan: *const LogicalPlan,
    keys: Vec<*const Expr>,
    order_by: Option<*const Expr>,
    needed: Vec<bool>,
    unordered: Unordered,
    role: ChainRole,
    history: HistoryOrder,
    may_have_request: bool,
}

/// A source, and the location of each column of its plan.
#[derive(Debug, Clone)]
pub(super) struct CompiledSource {
    pub(super) source: Arc<KeyedSource>,
    pub(super) locations: Vec<ValueLocation>,
    /// In how many places it reads the request row.
    request_read_count: usize,
}

impl Compiler<'_> {
    /// Compiles a source. Rows with windows have rows with windows in their history, so such a source
    /// is compiled once and used for all of them.
    pub(super) fn source(&mut self, spec: &SourceSpec<'_>) -> Result<CompiledSource> {
        let key = spec.key(self.history);
        if let Some(compiled) = self.sources.get(&key).cloned() {
            self.resources.request_read_count += compiled.request_read_count;
            let line = self.resources.explain.open();
            let text = self.resources.describe_source(&compiled.source, spec.plan);
            self.resources.explain.close(line, format!("{text}, with windows as above"));
            return Ok(compiled);
        }
        let read_count_before = self.resources.request_read_count;
        let (source, locations) = self.new_source(spec)?;
        let request_read_count = self.resources.request_read_count - read_count_before;
        let compiled = CompiledSource { source: Arc::new(source), locations, request_read_count };
        if compiled.source.cache.is_some() {
            self.sources.insert(key, compiled.clone());
        }
        Ok(compiled)
    }

    fn new_source(&mut self, spec: &SourceSpec<'_>) -> Result<(KeyedSource, Vec<ValueLocation>)> {
        let line = self.resources.explain.open();
        let is_row_source = trace::is_row_source(spec.plan, spec.role);
        let has_request = is_row_source
            && spec.may_have_request
            && trace::leaf_table(spec.plan).is_some_and(|leaf| self.request_table.is(leaf));
        let indexed = if is_row_source { self.index_columns(spec)? } else { None };
        let CompiledChain { chain, locations } = if is_row_source {
            self.chain(spec.plan, &spec.columns(indexed.as_ref(), has_request), spec.role)?
        } else {
            self.materialise(spec.plan)?
        };
        let layout = ColumnLayout::new(spec.schema, &locations);
        let mut residual = Vec::new();
        for (position, key) in spec.keys.iter().enumerate() {
            if indexed.as_ref().is_none_or(|indexed| indexed.keys[position].is_none()) {
                let expr = BoundExpr::bind(key, layout)?;
                residual.push(ResidualKey { key: position, expr });
            }
        }
        // The request row has no place in the order of an index that it is not in.
        let is_stored = spec.unordered != Unordered::Alike
            && !has_request
            && chain.steps.is_empty()
            && residual.is_empty();
        let is_indexed = indexed.is_some() && matches!(chain.leaf, LeafKind::Table(_));
        let order = match (spec.order_by, indexed.as_ref().and_then(|indexed| indexed.order)) {
            (None, _) if is_stored && is_indexed => Order::Stored,
            (None, _) => Order::Arrival,
            (Some(_), Some(column)) => Order::Index { column },
            (Some(expr), None) => Order::Computed(BoundExpr::bind(expr, layout)?),
        };
        let is_any = matches!(order, Order::Stored) && spec.unordered == Unordered::InAnyOrder;
        let access = self.access(&chain, indexed.as_ref(), is_any)?;
        let request = if has_request { Some(self.request_row(spec, layout)?) } else { None };
        let cache = chain.has_windows().then_some(self.resources.row_cache_count);
        self.resources.row_cache_count += usize::from(cache.is_some());
        let source = KeyedSource { chain, access, residual, order, request, cache };
        let text = self.resources.describe_source(&source, spec.plan);
        self.resources.explain.close(line, text);
        Ok((source, locations))
    }

    /// Compiles the request row as a row of the source.
    fn request_row(
        &mut self,
        spec: &SourceSpec<'_>,
        layout: ColumnLayout<'_>,
    ) -> Result<RequestRow> {
        let keys = layout.bind_all(spec.keys.iter().copied())?;
        let order = spec.order_by.map(|order| BoundExpr::bind(order, layout)).transpose()?;
        let id = self.resources.request_row_count;
        self.resources.request_row_count += 1;
        self.resources.request_read_count += 1;
        Ok(RequestRow { id, keys, order })
    }

    /// Adds a plan that batch mode runs, and makes a chain over its rows.
    fn materialise(&mut self, plan: &LogicalPlan) -> Result<CompiledChain> {
        // An answer sees these tables, too.
        for table in stored_tables(plan) {
            self.table(&table)?;
        }
        let reads_request = self.request_table.is_read_by(plan);
        self.resources.request_read_count += usize::from(reads_request);
        let request_table = reads_request.then(|| self.request_table.clone());
        let materialised = &mut self.resources.materialised;
        let leaf = LeafKind::Materialised(materialised.len());
        materialised.push(Materialised { plan: plan.clone(), request_table });
        let locations = (0..plan.schema().fields().len()).map(ValueLocation::Leaf).collect();
        Ok(CompiledChain { chain: Chain { leaf, steps: Vec::new(), slot_count: 0 }, locations })
    }

    /// Finds the columns by which an index can find the rows; `None` when there are none.
    fn index_columns(&mut self, spec: &SourceSpec<'_>) -> Result<Option<IndexColumns>> {
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
        let columns = &self.resources.tables[leaf].catalog.schema.columns;
        let has_order = |column: &usize| {
            let data_type = &columns[*column].data_type;
            data_type.is_integer() || *data_type == DataType::Timestamp
        };
        let order = spec.order_by.and_then(to_leaf).filter(has_order);
        Ok(Some(IndexColumns { keys, order }))
    }

    /// Chooses the access path, and holds the index that it needs: one in the order of the source, or in
    /// any order.
    fn access(
        &mut self,
        chain: &Chain,
        indexed: Option<&IndexColumns>,
        is_any: bool,
    ) -> Result<AccessPath> {
        let (LeafKind::Table(leaf), Some(indexed)) = (chain.leaf, indexed) else {
            return Ok(AccessPath::All);
        };
        let columns: Vec<usize> = indexed.keys.iter().flatten().copied().collect();
        let event_time = if is_any {
            self.resources.tables[leaf].stored.event_time_over(&columns)
        } else {
            indexed.order
        };
        let need = IndexNeed { keys: columns, event_time, ..IndexNeed::default() };
        let hold = self.hold(leaf, &need)?;
        let index = self.resources.holds[hold].index();
        let schema = self.resources.tables[leaf].stored.schema();
        let position_of = |column: &usize| {
            let position = indexed.keys.iter().position(|key| *key == Some(*column));
            position.expect("the index is over exactly these columns")
        };
        let keys = schema.indexes[index].keys.iter().map(position_of).collect();
        Ok(AccessPath::Index { index, keys, retained_only: self.options.index_rows_only })
    }
}

impl SourceSpec<'_> {
    fn key(&self, history: HistoryOrder) -> SourceKey {
        SourceKey {
            plan: self.plan,
            keys: self.keys.iter().map(|key| std::ptr::from_ref(*key)).collect(),
            order_by: self.order_by.map(std::ptr::from_ref),
            needed: self.needed.clone(),
            unordered: self.unordered,
            role: self.role,
            history,
            may_have_request: self.may_have_request,
        }
    }

    /// Marks the columns that the chain has to compute.
    fn columns(&self, indexed: Option<&IndexColumns>, has_request: bool) -> Vec<bool> {
        let mut columns = self.needed.clone();
        for (position, key) in self.keys.iter().enumerate() {
            if has_request || indexed.is_none_or(|indexed| indexed.keys[position].is_none()) {
                trace::mark_columns(key, self.schema, &mut columns);
            }
        }
        if let Some(order_by) = self.order_by
            && (has_request || indexed.is_none_or(|indexed| indexed.order.is_none()))
        {
            trace::mark_columns(order_by, self.schema, &mut columns);
        }
        columns
    }
}
