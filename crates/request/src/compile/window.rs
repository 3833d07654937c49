//! Compiles windows: which window groups share a scan, and what the scan reads.

use std::sync::Arc;

use datafusion::logical_expr::Expr;
use lockstep_diagnostic::{Result, code};
use lockstep_plan::{Frame, Window, WindowAggregate, WindowGroup, future_frame};
use lockstep_row::{IndexSpec, RowCodec};
use lockstep_table::{Inclusion, IndexNeed, LevelKeys, Provision};

use super::{
    ChainBuilder, Compiler, HistoryOrder, ProgramTable,
    aggregates::AggregatesBuilder,
    source::{CompiledSource, SourceSpec, Unordered},
};
use crate::{
    aggregates::ScanAggregates,
    chain::{ChainStep, LeafKind},
    groups::{GROUPS_MAX, GroupSet},
    inputs::RecordInputs,
    pre_aggregate::{self, PreAggregate, PreAggregateName, PreAggregateSpec, PreAggregation},
    progress::FrameSpec,
    row_context::{BoundExpr, ColumnLayout, ValueLocation},
    source::{KeyedSource, Order},
    trace::{self, ChainRole},
    window::{ScanSource, WindowScan},
};

/// A window group and the slots of its calls; calls that nothing reads have none.
pub(super) struct GroupSlots<'c> {
    pub(super) group: &'c WindowGroup,
    pub(super) slots: Vec<Option<usize>>,
}

impl Compiler<'_> {
    /// Adds the scans of a node to a chain.
    pub(super) fn windows(
        &mut self,
        node: &WindowAggregate,
        needed: &[bool],
        role: ChainRole,
        builder: &mut ChainBuilder,
    ) -> Result<()> {
        if node.groups.iter().any(|group| group.window.ahead.is_some()) {
            return future_frame().err();
        }
        let schema = node.input.schema();
        let (own, calls) = needed.split_at(schema.fields().len());
        let mut calls = calls.iter();
        let mut is_needed = || calls.next().copied().unwrap_or(false);
        let needed_calls: Vec<Vec<bool>> = node
            .groups
            .iter()
            .map(|group| group.calls.iter().map(|_| is_needed()).collect())
            .collect();
        let mut below = own.to_vec();
        for (group, needed) in node.groups.iter().zip(&needed_calls) {
            mark_group(group, needed, &mut |expr| {
                trace::mark_columns(expr, schema, &mut below);
            });
        }
        self.add_steps(&node.input, &below, role, builder)?;

        let mut new_slots = |needed: Vec<bool>| -> Vec<Option<usize>> {
            needed.into_iter().map(|is_needed| is_needed.then(|| builder.new_slot())).collect()
        };
        let groups: Vec<GroupSlots<'_>> = node
            .groups
            .iter()
            .zip(needed_calls)
            .map(|(group, needed)| GroupSlots { group, slots: new_slots(needed) })
            .collect();
        for sharing in share_scans(&groups) {
            let scan = self.scan(node, &sharing, role, builder.layout(schema))?;
            builder.steps.push(ChainStep::Scan(Box::new(scan)));
        }
        let slots = groups.iter().flat_map(|group| &group.slots);
        let locations = slots.map(|slot| slot.map_or(ValueLocation::Absent, ValueLocation::Slot));
        builder.locations.extend(locations);
        Ok(())
    }

    /// Compiles the scan of the groups that share it. `layout` is that of the current row.
    fn scan(
        &mut self,
        node: &WindowAggregate,
        sharing: &[&GroupSlots<'_>],
        role: ChainRole,
        layout: ColumnLayout<'_>,
    ) -> Result<WindowScan> {
        assert!((1..=GROUPS_MAX).contains(&sharing.len()), "a group set has a bit for each group");
        let window = &sharing[0].group.window;
        let line = self.resources.explain.open();
        let compiled = AggregatesBuilder::new(sharing, self.options);
        let read_count_before = self.resources.request_read_count;
        let sources = self.scan_sources(node, sharing, role, &compiled)?;
        let keys = layout.bind_all(&window.partition_by)?;
        let order = window.order_by.as_ref();
        let order = order.map(|order| BoundExpr::bind(order, layout)).transpose()?;
        let id = self.resources.scans.len();
        let inputs = compiled.current_inputs(layout)?;
        let line_of_aggregates = self.resources.explain.open();
        let text = describe_aggregates(&compiled, &sources);
        self.resources.explain.close(line_of_aggregates, text);
        let pre_aggregates = self.pre_aggregates(sharing, &compiled.aggregates, &sources);
        let aggregates = Arc::new(compiled.aggregates);
        self.resources.scans.push(Arc::clone(&aggregates));
        let text = format!("scan for {}", describe(sharing));
        self.resources.explain.close(line, text);
        let groups: Vec<FrameSpec> =
            sharing.iter().map(|slots| frame_spec(&slots.group.window)).collect();
        let with_current_row =
            groups.iter().enumerate().filter(|(_, group)| group.has_current_row());
        let with_current_row =
            with_current_row.fold(GroupSet::NONE, |all, (group, _)| all | GroupSet::of(group));
        let is_stored = |source: &Arc<ScanSource>| matches!(source.source.order, Order::Stored);
        let unordered = if sources.iter().any(is_stored) { i64::MAX } else { 0 };
        let shared = self.shared_step(role, read_count_before);
        Ok(WindowScan {
            id,
            keys,
            order,
            unordered,
            inputs,
            sources,
            pre_aggregates,
            groups,
            with_current_row,
            aggregates,
            shared,
        })
    }

    /// Compiles the main rows and the union sources of a scan.
    fn scan_sources(
        &mut self,
        node: &WindowAggregate,
        sharing: &[&GroupSlots<'_>],
        role: ChainRole,
        compiled: &AggregatesBuilder<'_>,
    ) -> Result<Vec<Arc<ScanSource>>> {
        let schema = node.input.schema();
        let WindowGroup { window, unions, .. } = sharing[0].group;
        let mut needed = vec![false; schema.fields().len()];
        for expr in compiled.exprs() {
            trace::mark_columns(expr, schema, &mut needed);
        }
        // Rows of the request's own chain are history as the request row will be; a union source or a
        // right side is another query.
        let main_role =
            if role == ChainRole::Other { ChainRole::Other } else { ChainRole::History };
        let main = (!window.instance_not_in_window).then_some((&node.input, main_role));
        let unions = unions.iter().map(|union| (&node.unions[*union], ChainRole::Other));
        let (history, comes_later) = (self.history, self.request_comes_later(node, window, role));
        let mut sources = Vec::new();
        for (position, (plan, source_role)) in main.into_iter().chain(unions).enumerate() {
            let is_main = position == 0 && main.is_some();
            self.history = match role {
                ChainRole::Request if is_main => history_of(node, window),
                ChainRole::History if is_main && comes_later => history,
                ChainRole::Request | ChainRole::History | ChainRole::Other => HistoryOrder::Mixed,
            };
            let unordered = self.unordered(sharing, &compiled.aggregates);
            let CompiledSource { source, locations, .. } = self.source(&SourceSpec {
                plan,
                role: source_role,
                schema,
                keys: window.partition_by.iter().collect(),
                order_by: window.order_by.as_ref(),
                needed: needed.clone(),
                unordered,
                may_have_request: !(is_main && comes_later),
            })?;
            let layout = ColumnLayout::new(schema, &locations);
            let request = source.request.as_ref();
            let request = request.map(|_| compiled.current_inputs(layout)).transpose()?;
            let mut inputs = compiled.source_inputs(layout, self.codec(&source).as_ref())?;
            inputs.records = self.record_inputs(compiled, &source, layout, sharing)?;
            sources.push(Arc::new(ScanSource { source, inputs, request, is_main }));
        }
        self.history = history;
        Ok(sources)
    }

    /// Decides how the rows of a scan without an order are read.
    fn unordered(&self, sharing: &[&GroupSlots<'_>], aggregates: &ScanAggregates) -> Unordered {
        let is_whole = |slots: &&GroupSlots<'_>| {
            let WindowGroup { window, unions, .. } = slots.group;
            window.order_by.is_none()
                && unions.is_empty()
                && window.frame == Frame::Rows { from: None, to: 0 }
                && window.max_size.is_none()
                && !window.exclude_current_time
        };
        if !sharing.iter().all(is_whole) {
            Unordered::Alike
        } else if aggregates.depends_on_order() || self.options.index_rows_only {
            // The rows of another index may not be those that are kept.
            Unordered::ByArrival
        } else {
            Unordered::InAnyOrder
        }
    }

    /// Returns whether the request row comes after every row that such a window is computed for, so
    /// that it is in the history of none.
    fn request_comes_later(
        &self,
        node: &WindowAggregate,
        window: &Window,
        role: ChainRole,
    ) -> bool {
        match role {
            ChainRole::Request => true,
            ChainRole::History => {
                self.history != HistoryOrder::Mixed && self.history == history_of(node, window)
            }
            ChainRole::Other => false,
        }
    }

    /// Compiles lanes and calls of a scan for the records of a source's index, which is made to include what
    /// they read when the program is for a deployment. The index is held. Returns `None` when rows have
    /// to be read.
    fn record_inputs(
        &mut self,
        compiled: &AggregatesBuilder<'_>,
        source: &KeyedSource,
        layout: ColumnLayout<'_>,
        sharing: &[&GroupSlots<'_>],
    ) -> Result<Option<RecordInputs>> {
        let (LeafKind::Table(table), Some(index), Some(codec)) =
            (source.chain.leaf, source.run_index(), self.codec(source))
        else {
            return Ok(None);
        };
        let Some(columns) = compiled.included_columns(layout) else { return Ok(None) };
        let stored = Arc::clone(&self.resources.tables[table].stored);
        let IndexSpec { keys, event_time, .. } = stored.schema().indexes[index].clone();
        let need = IndexNeed { keys, event_time, retention: None, columns };
        let may_include =
            self.options.includes && sharing.iter().any(|slots| is_long(&slots.group.window));
        let includes_already =
            || matches!(stored.find_for(&need), Provision::Existing { includes_more: false, .. });
        if !may_include && !includes_already() {
            return Ok(None);
        }
        let hold = match self.hold(table, &need) {
            Ok(hold) => &self.resources.holds[hold],
            // The records do not fit into memory: then the rows are read.
            Err(error) if error.code == code::OUT_OF_MEMORY => return Ok(None),
            Err(error) => return Err(error),
        };
        assert_eq!(hold.index(), index, "the source holds the index over these columns");
        let snapshot = stored.snapshot();
        Ok(match (hold.inclusion(), snapshot.projection(index)) {
            (Inclusion::Included, Some(projection)) => {
                compiled.record_inputs(layout, &stored.schema(), projection, &codec)
            }
            _ => None,
        })
    }

    /// Makes the pre-aggregates of a scan, one for each source that can have one, and explains them.
    fn pre_aggregates(
        &mut self,
        sharing: &[&GroupSlots<'_>],
        aggregates: &ScanAggregates,
        sources: &[Arc<ScanSource>],
    ) -> Vec<Option<Arc<PreAggregate>>> {
        let mut windows = sharing.iter().map(|slots| &slots.group.window);
        let keys = match self.options.pre_aggregation {
            PreAggregation::Off => return sources.iter().map(|_| None).collect(),
            PreAggregation::Auto => LevelKeys::OnDemand,
            PreAggregation::Always => LevelKeys::All,
        };
        let is_forced = keys == LevelKeys::All;
        if !is_forced && !windows.any(|window| rows_max(window) >= NODE_ROWS) {
            return sources.iter().map(|_| None).collect();
        }
        let obstacle = pre_aggregate::obstacle(aggregates);
        let made: Vec<_> = sources
            .iter()
            .map(|source| {
                if obstacle.is_some() {
                    return Err(obstacle.clone().unwrap_or_default());
                }
                self.pre_aggregate(sharing, aggregates, source, keys)
            })
            .collect();
        for result in &made {
            let line = self.resources.explain.open();
            self.resources.explain.close(
                line,
                match result {
                    Ok(pre_aggregate) => {
                        format!("pre-aggregates of {}", pre_aggregate.name().table)
                    }
                    Err(reason) => format!("scan without pre-aggregates: {reason}"),
                },
            );
        }
        let made: Vec<_> = made.into_iter().map(std::result::Result::ok).collect();
        self.resources.pre_aggregates.extend(made.iter().flatten().map(Arc::clone));
        made
    }

    /// Makes the pre-aggregate of a source; or says why it has none.
    fn pre_aggregate(
        &self,
        sharing: &[&GroupSlots<'_>],
        aggregates: &ScanAggregates,
        source: &Arc<ScanSource>,
        keys: LevelKeys,
    ) -> std::result::Result<Arc<PreAggregate>, String> {
        let (LeafKind::Table(table), Some(index)) =
            (source.source.chain.leaf, source.source.run_index())
        else {
            return Err("the rows are not read from an index".to_owned());
        };
        let ProgramTable { catalog, stored } = &self.resources.tables[table];
        if !stored.snapshot().may_have_nodes(index) {
            return Err("the rows expire by the retention of other indexes".to_owned());
        }
        let name = PreAggregateName {
            table: format!("{}.{}", catalog.database, catalog.name),
            index: stored.schema().indexes[index].name.clone(),
            windows: describe(sharing),
        };
        let wake = self.tables.wake();
        let spec = PreAggregateSpec { table: stored, index, source, keys, name, wake };
        Ok(Arc::new(PreAggregate::new(spec, aggregates)))
    }

    /// Returns the codec of the rows of a source, when they are rows of a table.
    fn codec(&self, source: &KeyedSource) -> Option<RowCodec> {
        let LeafKind::Table(table) = source.chain.leaf else { return None };
        Some(RowCodec::new(&self.resources.tables[table].catalog.schema))
    }
}

/// Returns the order of the history of a window.
fn history_of(node: &WindowAggregate, window: &Window) -> HistoryOrder {
    let Some(order_by) = &window.order_by else { return HistoryOrder::Ordered(None) };
    let column = trace::column(order_by, node.input.schema());
    match column.and_then(|column| trace::to_leaf(&node.input, column)) {
        Some(column) => HistoryOrder::Ordered(Some(column)),
        None => HistoryOrder::Mixed,
    }
}

fn frame_spec(window: &Window) -> FrameSpec {
    FrameSpec {
        frame: window.frame,
        max_size: window.max_size.unwrap_or(u64::MAX),
        excludes_current_time: window.exclude_current_time,
        excludes_current_row: window.exclude_current_row,
    }
}

/// Marks the expressions that the needed calls of a group read.
fn mark_group<'c>(group: &'c WindowGroup, needed: &[bool], mark: &mut dyn FnMut(&'c Expr)) {
    if !needed.contains(&true) {
        return;
    }
    group.window.partition_by.iter().chain(&group.window.order_by).for_each(&mut *mark);
    let calls = group.calls.iter().zip(needed).filter(|(_, is_needed)| **is_needed);
    calls.flat_map(|(call, _)| &call.arguments).for_each(&mut *mark);
}

/// Puts the groups that scan the same rows together, those with the longest frames first.
fn share_scans<'w, 'c>(groups: &'w [GroupSlots<'c>]) -> Vec<Vec<&'w GroupSlots<'c>>> {
    let mut scans: Vec<Vec<&GroupSlots<'_>>> = Vec::new();
    for group in groups.iter().filter(|group| group.slots.iter().any(Option::is_some)) {
        let shares = |scan: &&mut Vec<&GroupSlots<'_>>| {
            scan.len() < GROUPS_MAX && is_same_scan(scan[0].group, group.group)
        };
        match scans.iter_mut().find(shares) {
            Some(scan) => scan.push(group),
            None => scans.push(vec![group]),
        }
    }
    for scan in &mut scans {
        scan.sort_by_key(|slots| std::cmp::Reverse(reach(slots.group.window.frame)));
    }
    scans
}

/// Returns whether two groups scan the same rows in the same order.
fn is_same_scan(left: &WindowGroup, right: &WindowGroup) -> bool {
    let (left_window, right_window) = (&left.window, &right.window);
    left.unions == right.unions
        && left_window.partition_by == right_window.partition_by
        && left_window.order_by == right_window.order_by
        && left_window.instance_not_in_window == right_window.instance_not_in_window
}

/// Frames of at least this many rows are read faster from records than from rows.
const LONG_ROWS: u64 = 32;

/// Frames of fewer rows are read as fast from rows as from nodes.
const NODE_ROWS: u64 = 512;

/// Returns whether a frame may have so many rows that records are worth their memory.
fn is_long(window: &Window) -> bool {
    rows_max(window) >= LONG_ROWS
}

/// Returns how many rows a frame may have.
fn rows_max(window: &Window) -> u64 {
    let rows = match window.frame {
        Frame::Rows { from: Some(from), .. } => from,
        Frame::Rows { from: None, .. } | Frame::Range { .. } => u64::MAX,
    };
    rows.min(window.max_size.unwrap_or(u64::MAX))
}

/// Estimates how far back a frame goes, in rows or in time, to sort long frames before short ones.
fn reach(frame: Frame) -> i128 {
    match frame {
        Frame::Rows { from: None, .. } | Frame::Range { from: None, .. } => i128::MAX,
        Frame::Rows { from: Some(from), .. } => i128::from(from),
        Frame::Range { from: Some(from), .. } => i128::from(from),
    }
}

/// Describes what a scan computes and how its sources are read, for EXPLAIN.
fn describe_aggregates(compiled: &AggregatesBuilder<'_>, sources: &[Arc<ScanSource>]) -> String {
    let mut text = compiled.aggregates.to_string();
    let by_machine = sources.first().map_or(0, |source| source.machine_values());
    if by_machine > 0 {
        let values = if by_machine == 1 { "value" } else { "values" };
        text += &format!("; {by_machine} {values} by machine code");
    }
    let included = sources.iter().filter(|source| source.inputs.records.is_some()).count();
    if included > 0 && included == sources.len() {
        text += "; from the included columns of the index";
    } else if included > 0 {
        text += &format!("; {included} of {} sources from", sources.len());
        text += " the included columns of the index";
    }
    text
}

/// Describes the windows of a scan, for EXPLAIN.
fn describe(sharing: &[&GroupSlots<'_>]) -> String {
    let windows: Vec<String> = sharing
        .iter()
        .map(|GroupSlots { group, slots }| {
            let calls = group.calls.iter().zip(slots).filter(|(_, slot)| slot.is_some());
            let calls: Vec<String> = calls.map(|(call, _)| call.to_string()).collect();
            format!("[{}] over ({})", calls.join(", "), group.window)
        })
        .collect();
    windows.join(", ")
}
