//! Aggregates over windows: collected from the select list, then added to the plan.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use arrow::datatypes::Field;
use datafusion::{
    common::{Column, DFSchema, ScalarValue},
    logical_expr::{Expr, Extension, LogicalPlan, LogicalPlanBuilder},
};
use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::{CallArguments, SignatureError, aggregate};
use lockstep_row::{DataType, Value};
use lockstep_sql::ast::{self, Over};

use crate::{
    AggregateCall, Frame, WindowAggregate, WindowGroup,
    binder::{Binder, BoundRelation, planning},
    call,
    expression::{Aggregates, ExprBinder, TypedExpr},
    from::From,
    last_join::PendingLastJoin,
    literal::constant,
    nested::{ComposedAggregate, InnerCalls, IsSameWindow, OuterAggregate},
    rank::Numbering,
    scope::NameScope,
    select::{column_set, uses_only},
    sub_query::not_here,
    window::{BoundWindow, NamedWindows, UnionSource, windowing},
    written::{WrittenCall, WrittenWindow},
};

/// The windows of one SELECT and the calls over them.
pub(crate) struct WindowCalls<'a> {
    binder: &'a Binder<'a>,
    named: NamedWindows<'a>,
    scope: NameScope,
    /// The columns of the leftmost table, whose rows the windows are over.
    main: NameScope,
    groups: Vec<CallGroup>,
    /// The named windows.
    by_name: HashMap<String, WindowPosition>,
    /// The windows of the enclosing scalar calls, innermost last.
    entered: Vec<WindowPosition>,
    base: LogicalPlan,
    written: Vec<WrittenWindow>,
    /// The position of the last select item that is a call.
    whole_item: Option<Span>,
}

/// The position of a window that calls may be over.
#[derive(Debug, Clone, Copy)]
struct WindowPosition {
    /// Its position among the groups: equal windows share one.
    group: usize,
    /// Its position among the windows as written.
    written: usize,
}

struct CallGroup {
    window: BoundWindow,
    calls: Vec<AggregateCall>,
}

impl<'a> WindowCalls<'a> {
    /// Binds every named window, used or not, so that a wrong one is always reported.
    pub(crate) fn new(
        binder: &'a Binder<'a>,
        named: &'a [ast::NamedWindow],
        from: &From,
    ) -> Result<Self> {
        let mut calls = Self {
            binder,
            named: NamedWindows::new(named),
            scope: from.scope.clone(),
            main: from.base.scope.clone(),
            groups: Vec::new(),
            by_name: HashMap::new(),
            entered: Vec::new(),
            base: from.base.plan.clone(),
            written: Vec::new(),
            whole_item: None,
        };
        for window in named {
            let scopes = [&calls.main, &calls.scope];
            let bound = binder.window(&window.spec, &calls.named, scopes)?;
            let position = calls.note(bound, Some(&window.name));
            calls.by_name.insert(window.name.text.clone(), position);
        }
        Ok(calls)
    }

    /// Returns the group of an equal window, or a new one.
    fn group(&mut self, window: BoundWindow) -> usize {
        let identities = |window: &BoundWindow| -> Vec<String> {
            window.unions.iter().map(|source| source.identity.clone()).collect()
        };
        let equal = |group: &CallGroup| {
            group.window.window == window.window && identities(&group.window) == identities(&window)
        };
        if let Some(found) = self.groups.iter().position(equal) {
            return found;
        }
        self.groups.push(CallGroup { window, calls: Vec::new() });
        self.groups.len() - 1
    }

    /// Records a window as it was written and returns its position.
    fn note(&mut self, bound: BoundWindow, name: Option<&ast::Ident>) -> WindowPosition {
        let is_known = |known: &WrittenWindow| known.spec.span == bound.spec.span;
        if let Some(written) = self.written.iter().position(is_known) {
            return WindowPosition { group: self.group(bound), written };
        }
        self.written.push(WrittenWindow {
            name: name.cloned(),
            spec: bound.spec.clone(),
            window: bound.window.clone(),
            base: self.base.clone(),
            unions: bound.unions.iter().map(|source| source.relation.plan.clone()).collect(),
            calls: Vec::new(),
        });
        WindowPosition { group: self.group(bound), written: self.written.len() - 1 }
    }

    fn resolve(&mut self, over: &Over) -> Result<WindowPosition> {
        match over {
            Over::Named(name) => {
                self.named.find(name)?;
                Ok(self.by_name[&name.text])
            }
            Over::Spec(spec) => {
                let scopes = [&self.main, &self.scope];
                let bound = self.binder.window(spec, &self.named, scopes)?;
                Ok(self.note(bound, None))
            }
        }
    }

    fn add(
        &mut self,
        call: &ast::Call,
        span: Span,
        scope: &NameScope,
        position: WindowPosition,
    ) -> Result<TypedExpr> {
        let binder = self.binder;
        let mut is_same_window = |over: &Over| Ok(self.resolve(over)?.group == position.group);
        let aggregate = bind_aggregate(binder, call, span, scope, Some(&mut is_same_window))?;
        let (returns, arguments) = (aggregate.returns, aggregate.arguments);
        self.written[position.written].calls.push(WrittenCall {
            call: call.clone(),
            span,
            is_whole_item: self.whole_item == Some(span),
            function: aggregate.function,
            arguments: arguments.clone(),
            frame: self.groups[position.group].window.window.frame,
            ahead: self.groups[position.group].window.window.ahead,
        });
        let output = self.output_name(aggregate.function.name);
        let call = AggregateCall {
            function: aggregate.function,
            bound: aggregate.bound,
            arguments,
            settings: self.binder.settings,
            output,
        };
        let calls = &mut self.groups[position.group].calls;
        let equal = calls.iter().find(|other| {
            other.function.name == call.function.name && other.arguments == call.arguments
        });
        let output = match equal {
            Some(other) => other.output.clone(),
            None => {
                calls.push(call);
                calls.last().expect("it was just pushed").output.clone()
            }
        };
        Ok(TypedExpr {
            expr: Expr::Column(Column::new_unqualified(output)),
            data_type: returns,
            span,
        })
    }

    /// Returns a name for a call's column that no column of FROM has.
    fn output_name(&self, function: &str) -> String {
        loop {
            let name = self.binder.unique(&format!("{function}()"));
            if self.scope.columns.iter().all(|column| column.column.name != name) {
                return name;
            }
        }
    }

    /// Adds `lag(x, n)` as a whole select item, where it counts rows before the current one,
    /// whatever the frame: it becomes the newest value of a frame that has just that row. Where it
    /// skips rows in which `x` is NULL, the frame is unbounded.
    fn add_lag(
        &mut self,
        call: &ast::Call,
        span: Span,
        scope: &NameScope,
        position: WindowPosition,
    ) -> Result<TypedExpr> {
        let mut call = call.clone();
        if lacks_distance(&call) {
            let kind = ast::ExprKind::Literal(ast::Literal::Int(1));
            call.arguments.push(ast::Expr { kind, span });
        }
        let offset = self.binder.scalar_binder(scope).bind(&call.arguments[1])?;
        let count = match constant(&offset.expr) {
            Some(Value::SmallInt(count)) => u64::try_from(count).ok(),
            Some(Value::Int(count)) => u64::try_from(count).ok(),
            Some(Value::BigInt(count)) => u64::try_from(count).ok(),
            _ => None,
        };
        let Some(count) = count else {
            return Diagnostic::new(
                code::INVALID_PARAMETER,
                "the offset must be a non-negative integer constant",
            )
            .at(offset.span)
            .err();
        };
        let passes_null = match call.arguments.get(2) {
            Some(flag) => {
                let flag = self.binder.scalar_binder(scope).bind(flag)?;
                constant(&flag.expr) == Some(Value::Bool(true))
            }
            None => false,
        };
        let of = &self.groups[position.group].window;
        let mut window = of.window.clone();
        window.frame = match passes_null {
            true => Frame::Rows { from: None, to: 0 },
            false => Frame::Rows { from: Some(count), to: count },
        };
        window.ahead = None;
        window.max_size = None;
        window.exclude_current_row = false;
        let own = BoundWindow { window, unions: of.unions.clone(), spec: of.spec.clone() };
        let own = WindowPosition { group: self.group(own), ..position };
        if !passes_null {
            let zero = ast::ExprKind::Literal(ast::Literal::BigInt(0));
            call.arguments[1] = ast::Expr { kind: zero, span: call.arguments[1].span };
        }
        self.add(&call, span, scope, own)
    }

    /// Adds a call of a function that numbers rows: a count over a frame of its own.
    fn add_rank(
        &mut self,
        numbering: Numbering,
        call: &ast::Call,
        span: Span,
        scope: &NameScope,
    ) -> Result<TypedExpr> {
        let position = match &call.over {
            Some(over) => self.resolve(over)?,
            None => return call::misplaced(call, true, span),
        };
        let of = &self.groups[position.group].window;
        let call = numbering.aggregate(call, &of.spec.order_by, span)?;
        let window = numbering.window(&of.window);
        let own = BoundWindow { window, unions: of.unions.clone(), spec: of.spec.clone() };
        let own = WindowPosition { group: self.group(own), ..position };
        self.add(&call, span, scope, own)
    }

    /// Returns whether a window has UNION sources.
    pub(crate) fn has_unions(&self) -> bool {
        self.groups.iter().any(|group| !group.window.unions.is_empty())
    }

    /// Returns the expressions of the windows and of their calls.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expr> {
        self.groups.iter().flat_map(CallGroup::expressions)
    }

    /// Fails where WHERE, which is below the windows, needs joins, or where a window or one of its
    /// aggregates reads a column of a join: the rows of a UNION do not have those columns.
    pub(crate) fn check_without(
        &self,
        of_filter: &[PendingLastJoin],
        joins: &[PendingLastJoin],
    ) -> Result<()> {
        let columns: HashSet<Column> = joins.iter().flat_map(PendingLastJoin::columns).collect();
        let reads = |expr: &Expr| expr.column_refs().iter().any(|column| columns.contains(column));
        let read = joins.first().filter(|_| self.expressions().any(reads));
        let Some(join) = of_filter.first().or(read) else { return Ok(()) };
        let detail = "A window with UNION would read the subquery for rows of another table.";
        not_here(join.span).with_detail(detail).err()
    }

    /// Puts the windows, the LAST JOINs and the WHERE condition on top of FROM's first table.
    /// A window that needs only that table's columns goes below the joins, unless another one has UNION
    /// sources with the columns of the joins.
    pub(crate) fn into_plan(self, from: From, filter: Option<Expr>) -> Result<LogicalPlan> {
        let binder = self.binder;
        binder.written.borrow_mut().windows.extend(self.written);
        let base_columns = column_set(&from.base.scope);
        let is_low =
            |group: &CallGroup| group.expressions().all(|expr| uses_only(expr, &base_columns));
        let filter_is_low = filter.as_ref().is_none_or(|f| uses_only(f, &base_columns));
        let scope = self.scope;
        let used = self.groups.into_iter().filter(|group| !group.calls.is_empty());
        let used: Vec<CallGroup> = used.collect();
        // The columns of a UNION source stand where those of the joined rows do: no call's column may come
        // between those of the first table and those of the joins.
        let has_joined_union =
            used.iter().any(|group| !group.window.unions.is_empty() && !is_low(group));
        let (low, high): (Vec<CallGroup>, Vec<CallGroup>) =
            used.into_iter().partition(|group| filter_is_low && !has_joined_union && is_low(group));
        let mut plan = from.base.plan;
        let mut filter = filter;
        if filter_is_low {
            plan = filtered(plan, filter.take())?;
        }
        plan = aggregate_windows(plan, low, &from.base.scope)?;
        plan = binder.joined(from.joins, plan)?;
        plan = filtered(plan, filter)?;
        aggregate_windows(plan, high, &scope)
    }
}

impl CallGroup {
    fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let window = &self.window.window;
        window
            .partition_by
            .iter()
            .chain(&window.order_by)
            .chain(self.calls.iter().flat_map(|call| &call.arguments))
    }
}

impl Aggregates for WindowCalls<'_> {
    fn accepts(&self, over: Option<&Over>) -> bool {
        over.is_some() || !self.entered.is_empty()
    }

    fn bind(&mut self, call: &ast::Call, span: Span, scope: &NameScope) -> Result<TypedExpr> {
        let position = match (&call.over, self.entered.last()) {
            (Some(over), _) => self.resolve(over)?,
            (None, Some(position)) => *position,
            (None, None) => return call::misplaced(call, true, span),
        };
        self.add(call, span, scope, position)
    }

    fn bind_whole(
        &mut self,
        call: &ast::Call,
        span: Span,
        scope: &NameScope,
    ) -> Option<Result<TypedExpr>> {
        self.whole_item = Some(span);
        let function = aggregate::find(&call.name.text)?;
        let over = call.over.as_ref()?;
        if function.name != "lag"
            || !(lacks_distance(call) || (2..=3).contains(&call.arguments.len()))
        {
            return None;
        }
        Some(self.resolve(over).and_then(|position| self.add_lag(call, span, scope, position)))
    }

    fn bind_rank(
        &mut self,
        numbering: Numbering,
        call: &ast::Call,
        span: Span,
        scope: &NameScope,
    ) -> Option<Result<TypedExpr>> {
        Some(self.add_rank(numbering, call, span, scope))
    }

    fn enter(&mut self, over: &Over) -> Result<()> {
        let position = self.resolve(over)?;
        self.entered.push(position);
        Ok(())
    }

    fn leave(&mut self) {
        self.entered.pop();
    }
}

/// A bound call of an aggregate.
pub(crate) struct BoundAggregateCall {
    pub(crate) function: &'static lockstep_function::AggregateFunction,
    pub(crate) bound: lockstep_function::BoundAggregate,
    pub(crate) returns: DataType,
    pub(crate) arguments: Vec<Expr>,
    /// The values of the arguments that are constants.
    pub(crate) constants: Vec<Option<Value>>,
}

/// Returns whether a call is `lag(x)`, which is `lag(x, 1)` as in standard SQL.
fn lacks_distance(call: &ast::Call) -> bool {
    call.arguments.len() == 1 && !call.star && call.name.text.eq_ignore_ascii_case("lag")
}

/// Returns the distance of [`lacks_distance`].
fn one(span: Span) -> TypedExpr {
    TypedExpr {
        expr: Expr::Literal(ScalarValue::Int32(Some(1)), None),
        data_type: DataType::Int,
        span,
    }
}

/// Binds the function and the arguments of an aggregate call.
pub(crate) fn bind_aggregate(
    binder: &Binder<'_>,
    call: &ast::Call,
    span: Span,
    scope: &NameScope,
    is_same_window: IsSameWindow<'_>,
) -> Result<BoundAggregateCall> {
    let mut name = call.name.text.as_str();
    if call.distinct {
        if !name.eq_ignore_ascii_case("count") {
            let message = format!("DISTINCT is supported only in count, not in `{name}`");
            return Diagnostic::unsupported(message).at(span).err();
        }
        name = "distinct_count";
    }
    let function = aggregate::find(name).expect("the caller found it");
    let mut inner = InnerCalls::new(binder, is_same_window);
    let mut arguments: Vec<TypedExpr> = Vec::with_capacity(call.arguments.len());
    for argument in &call.arguments {
        let plain = binder.scalar_binder(scope);
        arguments.push(ExprBinder { aggregates: Some(&mut inner), ..plain }.bind(argument)?);
    }
    if lacks_distance(call) {
        arguments.push(one(span));
    }
    // `lag` counts rows, and a whole item that is one counts them from the current row.
    let items = if function.name == "lag" { None } else { inner.items(&arguments) };
    inner.check_levels(items.is_some())?;
    if let (Some(item), [argument, ..]) = (&items, arguments.as_mut_slice()) {
        argument.data_type = item.clone();
    }
    if call.star && !arguments.is_empty() {
        // `count_where(*, c)` counts rows: the star is a value that is never NULL.
        let expr = Expr::Literal(ScalarValue::Boolean(Some(true)), None);
        arguments.insert(0, TypedExpr { expr, data_type: DataType::Bool, span });
    }
    let types: Vec<DataType> = arguments.iter().map(|a| a.data_type.clone()).collect();
    let constants: Vec<Option<Value>> = arguments.iter().map(|a| constant(&a.expr)).collect();
    let with = CallArguments { types: &types, constants: &constants, settings: &binder.settings };
    let bound = (function.bind)(&with).map_err(|error| {
        let shown = format!("function `{name}`");
        let error_of_call = call::signature(&shown, &error, &arguments, function.signature, span);
        let is_default =
            function.name == "lag" && matches!(error, SignatureError::Type { position: 3, .. });
        Box::new(match is_default {
            true => error_of_call.with_hint(
                "The third argument specifies whether NULLs are skipped; write coalesce(lag(x, 1), \
                 0) for a default.",
            ),
            false => error_of_call,
        })
    })?;
    let is_cast = items.as_ref().is_some_and(|item| bound.parameters.first() != Some(item));
    if is_cast {
        let message = format!("`{name}` takes the items of a list and casts them");
        return Diagnostic::internal(message).err();
    }
    let arguments = call::cast_all(arguments, &bound.parameters, binder.settings)?;
    let returns = bound.returns.clone();
    if inner.is_empty() {
        return Ok(BoundAggregateCall { function, bound, returns, arguments, constants });
    }
    let outer = OuterAggregate { call, bound, arguments: &arguments, takes_items: items.is_some() };
    let ComposedAggregate { bound, arguments } = inner.compose(outer, scope)?;
    let constants = arguments.iter().map(constant).collect();
    Ok(BoundAggregateCall { function, bound, returns, arguments, constants })
}

fn filtered(plan: LogicalPlan, filter: Option<Expr>) -> Result<LogicalPlan> {
    let Some(filter) = filter else { return Ok(plan) };
    let builder = LogicalPlanBuilder::from(plan).filter(filter).map_err(planning)?;
    builder.build().map_err(planning)
}

/// Puts one node with all these groups on top of the input.
fn aggregate_windows(
    input: LogicalPlan,
    groups: Vec<CallGroup>,
    scope: &NameScope,
) -> Result<LogicalPlan> {
    if groups.is_empty() {
        return Ok(input);
    }
    let mut unions: Vec<(String, LogicalPlan)> = Vec::new();
    let mut nodes = Vec::new();
    let mut outputs = Vec::new();
    for group in groups {
        let mut positions = Vec::new();
        for UnionSource { identity, relation } in group.window.unions {
            check_same_columns(scope, &relation, group.window.spec.span)?;
            let known = unions.iter().position(|(other, _)| *other == identity);
            positions.push(known.unwrap_or(unions.len()));
            if known.is_none() {
                unions.push((identity, relation.plan));
            }
        }
        outputs.extend(group.calls.iter().map(|call| {
            let arrow = lockstep_row::arrow::arrow_type(&call.bound.returns);
            (None, Arc::new(Field::new(&call.output, arrow, true)))
        }));
        let window = group.window.window;
        nodes.push(WindowGroup { window, unions: positions, calls: group.calls });
    }
    let fields = input.schema().iter().map(|(q, f)| (q.cloned(), Arc::clone(f)));
    let schema = DFSchema::new_with_metadata(
        fields.chain(outputs).collect(),
        input.schema().metadata().clone(),
    )
    .map_err(planning)?;
    debug_assert_eq!(
        schema.fields().len(),
        input.schema().fields().len() + nodes.iter().map(|group| group.calls.len()).sum::<usize>(),
        "each call adds a column"
    );
    let unions = unions.into_iter().map(|(_, plan)| plan).collect();
    let node = WindowAggregate { input, unions, groups: nodes, schema: Arc::new(schema) };
    Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
}

/// Checks that a UNION source has the main table's columns: names, types and order.
fn check_same_columns(main: &NameScope, source: &BoundRelation, span: Span) -> Result<()> {
    let columns = |scope: &NameScope| -> Vec<(String, DataType)> {
        scope.columns.iter().map(|c| (c.name.clone(), c.data_type.clone())).collect()
    };
    let (main, source) = (columns(main), columns(&source.scope));
    if main == source {
        return Ok(());
    }
    let names: HashSet<&String> = main.iter().map(|(name, _)| name).collect();
    let detail = match main.iter().zip(&source).find(|(l, r)| l != r) {
        Some((l, r)) => format!("Column `{} {}` corresponds to `{} {}`.", l.0, l.1, r.0, r.1),
        None => {
            format!("The main table has {} columns; the source has {}.", names.len(), source.len())
        }
    };
    let error: Result<()> =
        windowing("a UNION source must have the columns of the main table", span);
    error.map_err(|error| Box::new(error.with_detail(detail)))
}
