//! The nodes that DataFusion's logical plan lacks: windows of the dialect, and LAST JOIN.
//!
//! # `WindowAggregate`
//!
//! All windows of one SELECT. The output row is the input row followed by one column for each
//! call of each group, in order. Expressions of a group are over the input's columns; a union
//! source has the same columns at the same positions (names may differ), so they evaluate there
//! by position.
//!
//! For an input row q with order value T, the rows of a group's frame are found so:
//!
//! 1. Candidates: rows of the input (main rows) and of the union sources with q's partition
//!    values (NULL equals NULL). Main rows other than q are left out by
//!    `instance_not_in_window`.
//! 2. A candidate precedes q when its order value is less than T, or equal to T and it is a row of
//!    a union source or a main row of earlier arrival; any other one follows q. Candidates with order
//!    value T are left out by `exclude_current_time`. Candidates whose order value is NULL never count;
//!    when T is NULL, q stands alone. Without ORDER BY every row's order value is 0.
//! 3. Newest first: by order value descending; at equal values main rows before union sources, union
//!    sources in the written order, within one source the later arrival first. q is where it stands by
//!    2: after what follows it, and before what precedes it.
//! 4. The frame picks a run of q and what precedes it: `Rows { from, to }` by position, q being 0 also
//!    when `exclude_current_row` leaves it out; `Range { from, to }` by order value, in
//!    `[T - from, T - to]`. q is in the frame if the frame reaches 0 and unless
//!    `exclude_current_row`.
//! 5. `ahead` picks a run of what follows q, in the unit of the frame: by position, the next row being
//!    1; or by order value, in `[T + nearest, T + farthest]`. Only batch mode knows what follows.
//! 6. `max_size` keeps the newest rows of both.
//!
//! # `LastJoin`
//!
//! Each left row once, followed by the right columns of the first right row, newest first, for
//! which every key pair is equal (NULL equals NULL), the time bound holds and `filter` is true; or
//! by NULLs. Newest first: `order_by` descending (NULL last), then the later arrival first;
//! without `order_by` by arrival alone. (The binder fills in `order_by` where ORDER BY was not
//! written and a declared index over the keys has an event time.)

use std::{cmp::Ordering, fmt, sync::Arc};

use datafusion::{
    common::{DFSchemaRef, Result, ScalarValue},
    logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore},
};
use lockstep_function::{AggregateFunction, BoundAggregate, NestedAggregate, Settings};

/// Which rows a window's frame covers, newest end last. Ends are inclusive; an end that was OPEN
/// has been moved by one. A frame with `from < to` is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Frame {
    /// By position, the current row being 0.
    Rows {
        /// The oldest position; `None` is unbounded.
        from: Option<u64>,
        /// The newest position.
        to: u64,
    },
    /// By order value (milliseconds), the current row's being 0.
    Range {
        /// The greatest distance; `None` is unbounded.
        from: Option<i64>,
        /// The smallest distance.
        to: i64,
    },
}

/// Which rows after the current one a window covers, in the unit of its frame. Ends are inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameAhead {
    /// The position or the distance from which on rows are covered: of rows at least 1.
    pub nearest: i64,
    /// The last one, not less than `nearest`; `None` is unbounded.
    pub farthest: Option<i64>,
}

/// Which rows an aggregate sees.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd)]
#[expect(clippy::struct_excessive_bools, reason = "the attributes are independent of each other")]
pub struct Window {
    /// The entity key.
    pub partition_by: Vec<Expr>,
    /// The event time: SMALLINT, INT, BIGINT or TIMESTAMP.
    pub order_by: Option<Expr>,
    /// The frame, up to the current row; empty where the window begins after it.
    pub frame: Frame,
    /// What the window covers after the current row (FOLLOWING).
    pub ahead: Option<FrameAhead>,
    /// MAXSIZE.
    pub max_size: Option<u64>,
    /// EXCLUDE `CURRENT_TIME`.
    pub exclude_current_time: bool,
    /// EXCLUDE `CURRENT_ROW`.
    pub exclude_current_row: bool,
    /// `INSTANCE_NOT_IN_WINDOW`.
    pub instance_not_in_window: bool,
}

/// One aggregate over a window.
#[derive(Clone)]
pub struct AggregateCall {
    /// The function.
    pub function: &'static AggregateFunction,
    /// Its form for these arguments.
    pub bound: BoundAggregate,
    /// The arguments, already of the parameters' types.
    pub arguments: Vec<Expr>,
    /// The settings it was bound with.
    pub settings: Settings,
    /// The name of the output column; unique within the plan.
    pub output: String,
}

/// The calls over one window.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd)]
pub struct WindowGroup {
    /// The window.
    pub window: Window,
    /// Positions in [`WindowAggregate::unions`] of the window's UNION sources, as written.
    pub unions: Vec<usize>,
    /// The calls.
    pub calls: Vec<AggregateCall>,
}

/// All windows of one SELECT; see the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WindowAggregate {
    /// The main rows.
    pub input: LogicalPlan,
    /// The UNION sources of all groups.
    pub unions: Vec<LogicalPlan>,
    /// The windows and their calls.
    pub groups: Vec<WindowGroup>,
    /// The output.
    pub schema: DFSchemaRef,
}

/// `right.order_by <= left expression`, taken out of ON, so that an executor can seek.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd)]
pub struct TimeBound {
    /// An expression over the left columns, of the order column's type.
    pub left: Expr,
    /// `<=` rather than `<`.
    pub inclusive: bool,
}

/// LAST JOIN; see the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LastJoin {
    /// Each of its rows comes out once.
    pub left: LogicalPlan,
    /// Where the newest match is looked for.
    pub right: LogicalPlan,
    /// (expression over the left columns, expression over the right columns), of key types that
    /// encode alike. May be empty.
    pub keys: Vec<(Expr, Expr)>,
    /// Newest by this expression over the right columns: SMALLINT, INT, BIGINT or TIMESTAMP.
    pub order_by: Option<Expr>,
    /// An upper end for `order_by`. `None` also when there is no `order_by`.
    pub time_bound: Option<TimeBound>,
    /// What else must be true, over the columns of both sides (left first).
    pub filter: Option<Expr>,
    /// The output: left columns, then right columns (nullable).
    pub schema: DFSchemaRef,
}

impl AggregateCall {
    /// What identifies the call: equal parts mean the same computation.
    fn identity(&self) -> (&'static str, &[Expr], Settings, &str) {
        (self.function.name, &self.arguments, self.settings, &self.output)
    }
}

impl PartialEq for AggregateCall {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for AggregateCall {}

impl std::hash::Hash for AggregateCall {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl PartialOrd for AggregateCall {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.output.partial_cmp(&other.output)
    }
}

impl fmt::Debug for AggregateCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for AggregateCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Expr::Literal(ScalarValue::Utf8(Some(label)), _)) = self.arguments.first()
            && let Some(call) = NestedAggregate::call_of(label)
        {
            return f.write_str(call);
        }
        write!(f, "{}(", self.function.name)?;
        for (index, argument) in self.arguments.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{argument}")?;
        }
        f.write_str(")")
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows { from: Some(from), to } => write!(f, "rows {from}..{to}"),
            Self::Rows { from: None, to } => write!(f, "rows unbounded..{to}"),
            Self::Range { from: Some(from), to } => write!(f, "range {from} ms..{to} ms"),
            Self::Range { from: None, to } => write!(f, "range unbounded..{to} ms"),
        }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<String> = self.partition_by.iter().map(ToString::to_string).collect();
        write!(f, "partition by [{}]", keys.join(", "))?;
        if let Some(order_by) = &self.order_by {
            write!(f, " order by {order_by}")?;
        }
        write!(f, " {}", self.frame)?;
        if let Some(FrameAhead { nearest, farthest }) = self.ahead {
            let unit = match self.frame {
                Frame::Rows { .. } => "",
                Frame::Range { .. } => " ms",
            };
            match farthest {
                Some(farthest) => write!(f, " ahead {nearest}{unit}..{farthest}{unit}")?,
                None => write!(f, " ahead {nearest}{unit}..unbounded")?,
            }
        }
        if let Some(max_size) = self.max_size {
            write!(f, " maxsize {max_size}")?;
        }
        for (set, name) in [
            (self.exclude_current_time, " exclude current_time"),
            (self.exclude_current_row, " exclude current_row"),
            (self.instance_not_in_window, " instance_not_in_window"),
        ] {
            if set {
                f.write_str(name)?;
            }
        }
        Ok(())
    }
}

impl PartialOrd for WindowAggregate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.groups.partial_cmp(&other.groups)
    }
}

impl PartialOrd for LastJoin {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.keys.partial_cmp(&other.keys)
    }
}

impl UserDefinedLogicalNodeCore for WindowAggregate {
    fn name(&self) -> &'static str {
        "WindowAggregate"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        std::iter::once(&self.input).chain(&self.unions).collect()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.groups.iter().flat_map(WindowGroup::expressions).cloned().collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WindowAggregate:")?;
        for group in &self.groups {
            let calls: Vec<String> = group.calls.iter().map(ToString::to_string).collect();
            write!(f, " [{}] over ({})", calls.join(", "), group.window)?;
            if !group.unions.is_empty() {
                write!(f, " union {:?}", group.unions)?;
            }
        }
        Ok(())
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let mut inputs = inputs.into_iter();
        let input = inputs.next().expect("a window has its main input first");
        let mut exprs = exprs.into_iter();
        let groups = self.groups.iter().map(|group| group.with_expressions(&mut exprs)).collect();
        Ok(Self { input, unions: inputs.collect(), groups, schema: Arc::clone(&self.schema) })
    }
}

impl WindowGroup {
    fn expressions(&self) -> impl Iterator<Item = &Expr> {
        self.window
            .partition_by
            .iter()
            .chain(&self.window.order_by)
            .chain(self.calls.iter().flat_map(|call| &call.arguments))
    }

    fn with_expressions(&self, exprs: &mut impl Iterator<Item = Expr>) -> Self {
        let mut group = self.clone();
        let window = &mut group.window;
        let slots = window.partition_by.iter_mut().chain(&mut window.order_by);
        for slot in slots.chain(group.calls.iter_mut().flat_map(|call| &mut call.arguments)) {
            *slot = exprs.next().expect("as many expressions come back as were handed out");
        }
        group
    }
}

impl LastJoin {
    fn slots(&mut self) -> impl Iterator<Item = &mut Expr> {
        self.keys
            .iter_mut()
            .flat_map(|(left, right)| [left, right])
            .chain(&mut self.order_by)
            .chain(self.time_bound.iter_mut().map(|bound| &mut bound.left))
            .chain(&mut self.filter)
    }
}

impl UserDefinedLogicalNodeCore for LastJoin {
    fn name(&self) -> &'static str {
        "LastJoin"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.left, &self.right]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        let keys = self.keys.iter().flat_map(|(left, right)| [left, right]);
        let bound = self.time_bound.iter().map(|bound| &bound.left);
        keys.chain(&self.order_by).chain(bound).chain(&self.filter).cloned().collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<String> =
            self.keys.iter().map(|(left, right)| format!("{left} = {right}")).collect();
        write!(f, "LastJoin: on [{}]", keys.join(", "))?;
        if let Some(order_by) = &self.order_by {
            write!(f, " order by {order_by}")?;
        }
        if let Some(bound) = &self.time_bound {
            write!(f, " {} {}", if bound.inclusive { "<=" } else { "<" }, bound.left)?;
        }
        if let Some(filter) = &self.filter {
            write!(f, " filter {filter}")?;
        }
        Ok(())
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        // The inputs of the old node are not copied: they may be large plans.
        let mut inputs = inputs.into_iter();
        let mut join = Self {
            left: inputs.next().expect("a join has two inputs"),
            right: inputs.next().expect("a join has two inputs"),
            keys: self.keys.clone(),
            order_by: self.order_by.clone(),
            time_bound: self.time_bound.clone(),
            filter: self.filter.clone(),
            schema: Arc::clone(&self.schema),
        };
        for (slot, expr) in join.slots().zip(exprs) {
            *slot = expr;
        }
        Ok(join)
    }
}
