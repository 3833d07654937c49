//! Windows and LAST JOINs as they were written, beside the plan that they became.
//!
//! A plan has no positions and merges equal windows, so what speaks about the text of a query
//! (lints, and the options of DEPLOY) needs this. The binder fills it in; nothing here changes
//! what a query means.

use datafusion::logical_expr::{Expr, LogicalPlan};
use lockstep_diagnostic::Span;
use lockstep_function::AggregateFunction;
use lockstep_sql::ast;

use crate::{Frame, Window};

/// What a query was written with, in the order of binding; sub-queries and common tables included.
#[derive(Debug, Clone, Default)]
pub struct Written {
    /// Windows, named ones also when nothing uses them.
    pub windows: Vec<WrittenWindow>,
    /// LAST JOINs.
    pub joins: Vec<WrittenJoin>,
    /// Calls of functions whose value is the time at which they are computed.
    pub clock_reads: Vec<ClockRead>,
    /// Texts in double quotes that are also the name of a column in scope. Without compatibility =
    /// 'openmldb' they are refused.
    pub quoted_names: Vec<QuotedName>,
    /// Where the query stands.
    pub span: Span,
}

/// A text in double quotes that reads like a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotedName {
    /// Where it stands.
    pub span: Span,
    /// The text, which is the column's name.
    pub name: String,
}

/// A call that reads the clock.
#[derive(Debug, Clone)]
pub struct ClockRead {
    /// Where it stands.
    pub span: Span,
    /// The function.
    pub name: &'static str,
}

/// A window of a WINDOW clause, or one written behind OVER.
#[derive(Debug, Clone)]
pub struct WrittenWindow {
    /// Its name; `None` behind OVER.
    pub name: Option<ast::Ident>,
    /// As written, with what it takes from the window that it extends.
    pub spec: ast::WindowSpec,
    /// What it means.
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
    /// Where it stands.
    pub span: Span,
    /// Whether it is a whole item of the select list, rather than a part of an expression.
    pub is_whole_item: bool,
    /// The function.
    pub function: &'static AggregateFunction,
    /// The arguments, of the function's types.
    pub arguments: Vec<Expr>,
    /// The frame it sees, which for a whole `lag` is not the window's.
    pub frame: Frame,
}

/// A LAST JOIN.
#[derive(Debug, Clone)]
pub struct WrittenJoin {
    /// Where the words LAST JOIN stand.
    pub span: Span,
    /// The right side.
    pub right: LogicalPlan,
    /// The keys, over the columns of the right side.
    pub keys: Vec<Expr>,
    /// What decides which row is the newest: ORDER BY, or the event time of the index that ON
    /// names the keys of. `None`: the order of arrival.
    pub order_by: Option<Expr>,
    /// Whether ON compares the order column with the left side.
    pub is_bounded: bool,
    /// Whether ON requires that the order column is not less than a column of the left side.
    pub is_later: bool,
    /// What qualifies the columns of the right side: its alias, or its table's name.
    pub name: Option<String>,
}
