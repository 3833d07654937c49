//! Queries: WITH, set operations, SELECT, FROM, windows and their frames.

use lockstep_diagnostic::Span;

use super::{Expr, Ident, Interval, ObjectName, OptionItem};

/// A query with its WITH, ORDER BY, LIMIT, AS KNOWN, INTO OUTFILE and CONFIG clauses.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// WITH.
    pub with: Vec<CommonTable>,
    /// The SELECT or set operation.
    pub body: SetExpr,
    /// ORDER BY.
    pub order_by: Vec<OrderBy>,
    /// LIMIT.
    pub limit: Option<RowLimit>,
    /// OFFSET: the rows before those of LIMIT.
    pub offset: Option<RowLimit>,
    /// AS KNOWN AT.
    pub known_at: Option<KnownAt>,
    /// INTO OUTFILE.
    pub into_outfile: Option<IntoOutfile>,
    /// CONFIG(…).
    pub config: Vec<OptionItem>,
    /// Its position in the text.
    pub span: Span,
}

impl Query {
    /// Makes the query `SELECT items FROM from`, all at one position.
    pub fn of_items(items: Vec<SelectItem>, from: Option<TableRef>, span: Span) -> Self {
        debug_assert!(span.start <= span.end, "a position has a beginning and an end");
        let select = Select {
            distinct: false,
            items,
            from,
            filter: None,
            group_by: Vec::new(),
            having: None,
            windows: Vec::new(),
            span,
        };
        Self {
            with: Vec::new(),
            body: SetExpr::Select(Box::new(select)),
            order_by: Vec::new(),
            limit: None,
            offset: None,
            known_at: None,
            into_outfile: None,
            config: Vec::new(),
            span,
        }
    }
}

/// A common table: one entry of WITH.
#[derive(Debug, Clone, PartialEq)]
pub struct CommonTable {
    /// Its name.
    pub name: Ident,
    /// The names of its first columns, if given.
    pub columns: Vec<Ident>,
    /// Its query.
    pub query: Query,
}

/// The number of rows of LIMIT, OFFSET or MAXSIZE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowLimit {
    /// The most rows.
    pub count: u64,
    /// Its position in the text.
    pub span: Span,
}

/// AS KNOWN AT ARRIVAL, AS KNOWN AT column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownAt {
    /// The column with the time at which a row became known; `None` for ARRIVAL.
    pub column: Option<Ident>,
    /// Its position in the text.
    pub span: Span,
}

/// SELECT … INTO OUTFILE 'path' OPTIONS(…).
#[derive(Debug, Clone, PartialEq)]
pub struct IntoOutfile {
    /// The path.
    pub path: String,
    /// The position of the path.
    pub span: Span,
    /// OPTIONS(…).
    pub options: Vec<OptionItem>,
}

/// The body of a query: SELECT, or UNION.
#[derive(Debug, Clone, PartialEq)]
pub enum SetExpr {
    /// SELECT.
    Select(Box<Select>),
    /// UNION [ALL | DISTINCT] of two sources or more, left to right.
    Union {
        /// UNION ALL.
        all: bool,
        /// The sources. The first one may be a union of the other kind.
        sources: Vec<Self>,
    },
    /// `( query )`.
    Query(Box<Query>),
}

/// SELECT.
#[derive(Debug, Clone, PartialEq)]
pub struct Select {
    /// SELECT DISTINCT.
    pub distinct: bool,
    /// The select list.
    pub items: Vec<SelectItem>,
    /// FROM.
    pub from: Option<TableRef>,
    /// WHERE.
    pub filter: Option<Expr>,
    /// GROUP BY.
    pub group_by: Vec<Expr>,
    /// HAVING.
    pub having: Option<Expr>,
    /// WINDOW.
    pub windows: Vec<NamedWindow>,
    /// Its position in the text.
    pub span: Span,
}

/// One item of a select list.
#[derive(Debug, Clone, PartialEq)]
pub enum SelectItem {
    /// `*`, `t.*`.
    Star {
        /// The table, if given.
        qualifier: Option<ObjectName>,
        /// Its position in the text.
        span: Span,
    },
    /// `e [AS alias]`.
    Expr {
        /// The expression.
        expr: Expr,
        /// The alias.
        alias: Option<Ident>,
    },
}

/// One item of FROM.
#[derive(Debug, Clone, PartialEq)]
pub enum TableRef {
    /// `[db.]t [AS a]`.
    Table {
        /// The name.
        name: ObjectName,
        /// The alias.
        alias: Option<Ident>,
    },
    /// `(query) [AS a]`.
    Subquery {
        /// The query.
        query: Box<Query>,
        /// The alias.
        alias: Option<Ident>,
    },
    /// `'path' [AS a]`, `read_csv('path', delimiter = ';') [AS a]`: the rows of files.
    Files {
        /// The files.
        files: Box<FileTable>,
        /// The alias.
        alias: Option<Ident>,
    },
    /// `… AS a (x, y)`: a table, a sub-query or files whose first columns have other names.
    Renamed {
        /// What is renamed, with its alias.
        table: Box<Self>,
        /// The names; at least one.
        columns: Vec<Ident>,
    },
    /// A join.
    Join(Box<Join>),
}

/// The files of one item of FROM.
#[derive(Debug, Clone, PartialEq)]
pub struct FileTable {
    /// The function (`read_parquet`), in lower case; `None` for a path alone.
    pub function: Option<Ident>,
    /// The paths, at least one.
    pub paths: Vec<FilePath>,
    /// The options, in the written order.
    pub options: Vec<OptionItem>,
    /// Its position in the text.
    pub span: Span,
}

/// A path, or a pattern of paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePath {
    /// The text.
    pub text: String,
    /// Its position in the text of the statement.
    pub span: Span,
}

/// A join of two table references.
#[derive(Debug, Clone, PartialEq)]
pub struct Join {
    /// Which.
    pub kind: JoinKind,
    /// Left side.
    pub left: TableRef,
    /// Right side.
    pub right: TableRef,
    /// ORDER BY of a LAST JOIN.
    pub order_by: Vec<OrderBy>,
    /// ON; absent only for CROSS.
    pub on: Option<Expr>,
    /// The position of the word JOIN and the words before it.
    pub span: Span,
}

/// The kinds of join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JoinKind {
    /// LAST JOIN.
    Last,
    /// LEFT \[OUTER\] JOIN.
    Left,
    /// [INNER] JOIN.
    Inner,
    /// RIGHT \[OUTER\] JOIN.
    Right,
    /// FULL \[OUTER\] JOIN.
    Full,
    /// CROSS JOIN, and a comma in FROM.
    Cross,
}

/// One item of ORDER BY.
#[derive(Debug, Clone, PartialEq)]
pub struct OrderBy {
    /// The expression.
    pub expr: Expr,
    /// DESC.
    pub descending: bool,
    /// NULLS FIRST or NULLS LAST, if given.
    pub nulls: Option<NullsOrder>,
}

/// The place of NULLs in ORDER BY.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NullsOrder {
    /// NULLS FIRST.
    First,
    /// NULLS LAST.
    Last,
}

impl OrderBy {
    /// Returns whether NULLs come first. NULL is the greatest value unless the item says otherwise, as in
    /// PostgreSQL.
    pub fn nulls_first(&self) -> bool {
        match self.nulls {
            Some(nulls) => nulls == NullsOrder::First,
            None => self.descending,
        }
    }

    /// Returns whether the item asks for another place of NULLs than they have without a word.
    pub fn moves_nulls(&self) -> bool {
        self.nulls_first() != self.descending
    }
}

/// `name AS (spec)` in a WINDOW clause.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedWindow {
    /// The name.
    pub name: Ident,
    /// Its definition.
    pub spec: WindowSpec,
}

/// The definition of a window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WindowSpec {
    /// The window it extends.
    pub base: Option<Ident>,
    /// UNION sources, in the written order.
    pub unions: Vec<TableRef>,
    /// PARTITION BY.
    pub partition_by: Vec<Expr>,
    /// ORDER BY.
    pub order_by: Vec<OrderBy>,
    /// The frame.
    pub frame: Option<FrameClause>,
    /// MAXSIZE.
    pub max_size: Option<RowLimit>,
    /// EXCLUDE `CURRENT_TIME`, EXCLUDE `CURRENT_ROW`, `INSTANCE_NOT_IN_WINDOW`.
    pub attributes: Vec<WindowAttribute>,
    /// Its position in the text.
    pub span: Span,
}

/// Attributes of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WindowAttribute {
    /// EXCLUDE `CURRENT_TIME`.
    ExcludeCurrentTime,
    /// EXCLUDE `CURRENT_ROW`.
    ExcludeCurrentRow,
    /// `INSTANCE_NOT_IN_WINDOW`.
    InstanceNotInWindow,
}

/// A frame clause.
#[derive(Debug, Clone, PartialEq)]
pub struct FrameClause {
    /// ROWS, `ROWS_RANGE` or RANGE.
    pub unit: FrameUnit,
    /// The older end.
    pub start: FrameBound,
    /// The newer end; CURRENT ROW when it was not written.
    pub end: FrameBound,
    /// Its position in the text.
    pub span: Span,
}

/// The unit of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FrameUnit {
    /// Rows.
    Rows,
    /// Event time.
    RowsRange,
    /// Standard SQL's RANGE.
    Range,
}

/// One end of a frame.
#[derive(Debug, Clone, PartialEq)]
pub struct FrameBound {
    /// The position of the end relative to the current row.
    pub kind: FrameBoundKind,
    /// OPEN: the bound itself is left out.
    pub open: bool,
    /// Its position in the text.
    pub span: Span,
}

/// The position of a frame's end relative to the current row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameBoundKind {
    /// UNBOUNDED PRECEDING.
    UnboundedPreceding,
    /// n PRECEDING, with a plain number (which may be negative).
    Preceding(i64),
    /// 10s PRECEDING.
    PrecedingInterval(Interval),
    /// CURRENT ROW.
    CurrentRow,
    /// n FOLLOWING.
    Following(i64),
    /// 10s FOLLOWING.
    FollowingInterval(Interval),
    /// UNBOUNDED FOLLOWING.
    UnboundedFollowing,
}
