//! Windows and LAST JOINs as they were written in the statement.
//!
//! A plan has no positions in the text and merges equal windows; the lints and the options of
//! DEPLOY, which refer to the text, use this instead. The binder fills it in; nothing here changes
//! the meaning of a query.

use datafusion::logical_expr::{Expr, LogicalPlan};
use lockstep_diagnostic::Span;
use lockstep_function::AggregateFunction;
use lockstep_sql::ast;

use crate::{Frame, FrameAhead, Window};

/// The parts of a query as they were written, in the order of binding, with those of sub-queries
/// and common tables.
#[derive(Debug, Clone, Default)]
pub struct Written {
    /// Windows, named ones also when nothing uses them.
    pub windows: Vec<WrittenWindow>,
    /// LAST JOINs.
    pub joins: Vec<WrittenJoin>,
    /// Calls of functions whose value is the time at which they are computed.
    pub clock_reads: Vec<ClockRead>,
    /// The texts in double quotes that are also the name of a column in scope; refused unless
    /// `compatibility = 'openmldb'`.
    pub quoted_names: Vec<QuotedName>,
    /// The position of the query.
    pub span: Span,
}

/// A text in double quotes that reads like a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotedName {
    /// Its position in the text.
    pub span: Span,
    /// The text, which is the column's name.
    pub name: String,
}

/// A call that reads the clock.
#[derive(Debug, Clone)]
pub struct ClockRead {
    /// Its position in the text.
    pub span: Span,
    /// The function.
    pub name: &'static str,
}

/// A window of a WINDOW clause, or one written after OVER.
#[derive(Debug, Clone)]
pub struct WrittenWindow {
    /// Its name; `None` after OVER.
    pub name: Option<ast::Ident>,
    /// Its definition, with the clauses of the window that it extends.
    pub spec: ast::WindowSpec,
    /// The bound window.
    pub window: Window,
    /// The leftmost table of its SELECT, or all of FROM when that has no LAST JOIN.
    pub base: LogicalPlan,
    /// Its UNION sources, as written.
    pub unions: Vec<LogicalPlan>,
    /// The aggregates over it.
    pub calls: Vec<WrittenCall>,
}

/// An aggregate over a window.
#[derive(Debug, Clone)]
pub struct WrittenCall {
    /// The call as written.
    pub call: ast::Call,
    /// Its position in the text.
    pub span: Span,
    /// Whether it is a whole item of the select list, rather than a part of an expression.
    pub is_whole_item: bool,
    /// The function.
    pub function: &'static AggregateFunction,
    /// The arguments, of the function's types.
    pub arguments: Vec<Expr>,
    /// The frame that it is over, which for `lag` as a whole select item is not the window's.
    pub frame: Frame,
    /// What it covers after the current row.
    pub ahead: Option<FrameAhead>,
}

/// How a LAST JOIN was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinForm {
    /// As LAST JOIN.
    LastJoin,
    /// As `x IN (SELECT …)`.
    In,
}

/// A LAST JOIN, or the one that `x IN (SELECT …)` is.
#[derive(Debug, Clone)]
pub struct WrittenJoin {
    /// The position of the words LAST JOIN, or of the whole of IN.
    pub span: Span,
    /// How it was written.
    pub form: JoinForm,
    /// The right side.
    pub right: LogicalPlan,
    /// The keys, over the columns of the right side.
    pub keys: Vec<Expr>,
    /// The expression that decides which row is the newest: ORDER BY, or the event time of the
    /// declared index over the keys in ON. `None`: the order of arrival.
    pub order_by: Option<Expr>,
    /// Whether ON compares the order column with the left side.
    pub is_bounded: bool,
    /// Whether ON requires that the order column is not less than a column of the left side.
    pub is_later: bool,
    /// The qualifier of the right side's columns: its alias, or its table's name.
    pub name: Option<String>,
    /// The position of a TIMESTAMP by which ORDER BY sorts descending.
    pub descending_time: Option<Span>,
    /// The TIMESTAMP column of the right side that ON compares with the left side, if the join has no
    /// order.
    pub compared_time: Option<String>,
}
