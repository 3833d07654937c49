//! The syntax tree. Names are as written and nothing is resolved; every part that an error may
//! point at has its [`Span`].

use lockstep_diagnostic::Span;

/// A name as written, without its quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ident {
    /// The name.
    pub text: String,
    /// Its position in the text.
    pub span: Span,
}

/// A possibly qualified name: `[db.]table`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectName {
    /// The database, if given.
    pub database: Option<Ident>,
    /// The object.
    pub name: Ident,
}

/// An expression and its position.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// The form of the expression, with its operands.
    pub kind: ExprKind,
    /// Its position in the text.
    pub span: Span,
}

/// The forms of an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    /// `a`, `t.a`, `db.t.a`.
    Column(Vec<Ident>),
    /// A constant.
    Literal(Literal),
    /// A text in double quotes, escapes resolved. In other systems it is a name; here that depends
    /// on the names in scope.
    QuotedText(String),
    /// An anonymous `?`, numbered from 0 in the order of the text.
    Parameter(usize),
    /// `-a`, `NOT a`.
    Unary {
        /// The operator.
        operator: UnaryOperator,
        /// Its operand.
        operand: Box<Expr>,
    },
    /// `a + b`.
    Binary {
        /// The operator.
        operator: BinaryOperator,
        /// Left operand.
        left: Box<Expr>,
        /// Right operand.
        right: Box<Expr>,
    },
    /// `a IS [NOT] NULL`.
    IsNull {
        /// The operand.
        operand: Box<Expr>,
        /// IS NOT NULL.
        negated: bool,
    },
    /// `a [NOT] BETWEEN low AND high`.
    Between {
        /// The operand.
        operand: Box<Expr>,
        /// NOT BETWEEN.
        negated: bool,
        /// Lower end, inclusive.
        low: Box<Expr>,
        /// Upper end, inclusive.
        high: Box<Expr>,
    },
    /// `a [NOT] IN (b, …)`.
    InList {
        /// The operand.
        operand: Box<Expr>,
        /// NOT IN.
        negated: bool,
        /// The list; at least one item.
        items: Vec<Expr>,
    },
    /// `a [NOT] LIKE | ILIKE | RLIKE pattern [ESCAPE 'c']`.
    Like {
        /// Which of the three.
        operator: LikeOperator,
        /// The text.
        operand: Box<Expr>,
        /// NOT LIKE.
        negated: bool,
        /// The pattern.
        pattern: Box<Expr>,
        /// The escape, if given (never with RLIKE).
        escape: Option<Box<Expr>>,
    },
    /// `CASE [operand] WHEN … THEN … [ELSE …] END`.
    Case {
        /// The operand of a simple CASE.
        operand: Option<Box<Expr>>,
        /// (WHEN, THEN) pairs; at least one.
        branches: Vec<(Expr, Expr)>,
        /// ELSE.
        otherwise: Option<Box<Expr>>,
    },
    /// `CAST(a AS type)`.
    Cast {
        /// The operand.
        operand: Box<Expr>,
        /// The type.
        to: TypeName,
    },
    /// `f(a, …) [OVER w]`.
    Call(Call),
    /// `a[i]`.
    Index {
        /// The array or map.
        operand: Box<Expr>,
        /// The position or key.
        index: Box<Expr>,
    },
    /// `[a, …]`, `ARRAY<type>[a, …]`.
    Array {
        /// The element type, if given.
        element: Option<TypeName>,
        /// The elements.
        items: Vec<Expr>,
    },
    /// `(SELECT …)`, `EXISTS (SELECT …)`; as the only item of IN, `a IN (SELECT …)`.
    SubQuery {
        /// EXISTS.
        exists: bool,
        /// The query.
        query: Box<Query>,
    },
}

/// A call of a function.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The name as written.
    pub name: Ident,
    /// The arguments; with `star`, those after it, so none for `f(*)`.
    pub arguments: Vec<Expr>,
    /// `f(*)`, `f(*, …)`: the first argument is a star.
    pub star: bool,
    /// `f(DISTINCT …)`.
    pub distinct: bool,
    /// The window.
    pub over: Option<Over>,
}

/// The window of an OVER clause.
#[derive(Debug, Clone, PartialEq)]
pub enum Over {
    /// `OVER w`.
    Named(Ident),
    /// `OVER (…)`.
    Spec(Box<WindowSpec>),
}

/// A constant.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// NULL.
    Null,
    /// TRUE, FALSE.
    Bool(bool),
    /// An integer that fits 32 bits.
    Int(i32),
    /// An integer that needs 64 bits, or has the suffix `L`.
    BigInt(i64),
    /// A decimal number with the suffix `f`.
    Float(f32),
    /// A decimal number.
    Double(f64),
    /// A quoted text, escapes resolved.
    String(String),
    /// `10s`, `30d`: in frames, options and INDEX only.
    Interval(Interval),
}

/// A duration literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// The number.
    pub amount: i64,
    /// The unit.
    pub unit: IntervalUnit,
}

/// The unit of a duration literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntervalUnit {
    /// `s`.
    Second,
    /// `m`.
    Minute,
    /// `h`.
    Hour,
    /// `d`.
    Day,
}

impl Interval {
    /// Returns the duration in milliseconds; `None` when it does not fit 64 bits.
    pub fn milliseconds(self) -> Option<i64> {
        let unit = match self.unit {
            IntervalUnit::Second => 1_000,
            IntervalUnit::Minute => 60_000,
            IntervalUnit::Hour => 3_600_000,
            IntervalUnit::Day => 86_400_000,
        };
        self.amount.checked_mul(unit)
    }
}

/// A type as written, e.g. `varchar(10)`, `map<string, int>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeName {
    /// The name, as written.
    pub name: Ident,
    /// Type arguments of ARRAY and MAP.
    pub arguments: Vec<Self>,
}

/// Operators with one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnaryOperator {
    /// `+`.
    Plus,
    /// `-`.
    Minus,
    /// `~`.
    BitNot,
    /// NOT, `!`.
    Not,
}

/// Operators with two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BinaryOperator {
    /// `+`.
    Add,
    /// `-`.
    Subtract,
    /// `*`.
    Multiply,
    /// `/`.
    Divide,
    /// DIV.
    IntegerDivide,
    /// `%`, MOD.
    Modulo,
    /// `&`.
    BitAnd,
    /// `|`.
    BitOr,
    /// `^`.
    BitXor,
    /// `=`, `==`.
    Equal,
    /// `!=`, `<>`.
    NotEqual,
    /// `<`.
    Less,
    /// `<=`.
    LessOrEqual,
    /// `>`.
    Greater,
    /// `>=`.
    GreaterOrEqual,
    /// AND.
    And,
    /// OR.
    Or,
    /// XOR.
    Xor,
    /// `||`: concatenation, as in standard SQL.
    Concat,
}

/// The operators that match patterns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LikeOperator {
    /// LIKE.
    Like,
    /// ILIKE.
    ILike,
    /// RLIKE.
    RLike,
}

/// A query with its WITH, ORDER BY, LIMIT, INTO OUTFILE and CONFIG clauses.
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
    /// INTO OUTFILE.
    pub into_outfile: Option<IntoOutfile>,
    /// CONFIG(…).
    pub config: Vec<OptionItem>,
    /// Its position in the text.
    pub span: Span,
}

/// A common table: one entry of WITH.
#[derive(Debug, Clone, PartialEq)]
pub struct CommonTable {
    /// Its name.
    pub name: Ident,
    /// Its query.
    pub query: Query,
}

/// The number of rows of LIMIT or MAXSIZE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowLimit {
    /// The most rows.
    pub count: u64,
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
    /// A join.
    Join(Box<Join>),
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
    /// LEFT [OUTER] JOIN.
    Left,
    /// [INNER] JOIN.
    Inner,
    /// RIGHT [OUTER] JOIN.
    Right,
    /// FULL [OUTER] JOIN.
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

/// `key = value` in OPTIONS, CONFIG and INDEX.
#[derive(Debug, Clone, PartialEq)]
pub struct OptionItem {
    /// The key, in lower case.
    pub key: Ident,
    /// The value.
    pub value: OptionValue,
    /// The position of the value.
    pub span: Span,
}

/// The value of an option.
#[derive(Debug, Clone, PartialEq)]
pub enum OptionValue {
    /// A constant (signed numbers included).
    Literal(Literal),
    /// A bare word, such as a column name or `latest`.
    Word(String),
    /// `(a, b)`, `[a, b]`.
    List(Vec<Self>),
    /// A call, such as `timestamp(4000)` among the values of a request row.
    Expr(Box<Expr>),
}

/// `ESTIMATE TABLE t ROWS n [KEYS n, …] [TEXT n]`: the memory of a table with so many rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// The table.
    pub table: ObjectName,
    /// The number of rows.
    pub rows: u64,
    /// The number of entity keys, by index; empty when not given.
    pub keys: Vec<u64>,
    /// The bytes of a STRING.
    pub text_bytes: Option<u64>,
    /// The position of the numbers.
    pub span: Span,
}

/// A column of CREATE TABLE.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnDefinition {
    /// The name.
    pub name: Ident,
    /// The type.
    pub data_type: TypeName,
    /// NOT NULL.
    pub not_null: bool,
    /// DEFAULT.
    pub default: Option<Expr>,
}

/// INDEX(KEY=…, TS=…, TTL=…, `TTL_TYPE`=…).
#[derive(Debug, Clone, PartialEq)]
pub struct IndexDefinition {
    /// The name, which only the form `INDEX name (a, b) OPTIONS(…)` has; its columns become the
    /// option `key`.
    pub name: Option<Ident>,
    /// The options.
    pub options: Vec<OptionItem>,
    /// Its position in the text.
    pub span: Span,
}

/// CREATE TABLE.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateTable {
    /// The name.
    pub name: ObjectName,
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
    /// The columns.
    pub columns: Vec<ColumnDefinition>,
    /// The indexes.
    pub indexes: Vec<IndexDefinition>,
    /// OPTIONS(…).
    pub options: Vec<OptionItem>,
    /// LIKE PARQUET 'path': take the columns from a file.
    pub like: Option<CreateLike>,
}

/// CREATE TABLE … LIKE PARQUET 'path'.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateLike {
    /// `parquet` or `hive`, in lower case.
    pub format: String,
    /// The path.
    pub path: String,
    /// The position of the path.
    pub span: Span,
}

/// INSERT.
#[derive(Debug, Clone, PartialEq)]
pub struct Insert {
    /// The table.
    pub table: ObjectName,
    /// OR IGNORE.
    pub or_ignore: bool,
    /// The columns, if given.
    pub columns: Vec<Ident>,
    /// The rows.
    pub rows: Vec<InsertRow>,
}

/// One row of VALUES.
#[derive(Debug, Clone, PartialEq)]
pub struct InsertRow {
    /// The values.
    pub values: Vec<Expr>,
    /// Its position in the text.
    pub span: Span,
}

/// LOAD DATA INFILE 'path' INTO TABLE t OPTIONS(…) CONFIG(…).
#[derive(Debug, Clone, PartialEq)]
pub struct LoadData {
    /// The path.
    pub path: String,
    /// The position of the path.
    pub path_span: Span,
    /// The table.
    pub table: ObjectName,
    /// OPTIONS(…).
    pub options: Vec<OptionItem>,
    /// CONFIG(…).
    pub config: Vec<OptionItem>,
}

/// DEPLOY [IF NOT EXISTS] name [OPTIONS(…)] [AS] SELECT ….
#[derive(Debug, Clone, PartialEq)]
pub struct Deploy {
    /// The name.
    pub name: ObjectName,
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
    /// OPTIONS(…).
    pub options: Vec<OptionItem>,
    /// The query.
    pub query: Query,
    /// The query's text: what SHOW DEPLOYMENT prints.
    pub query_span: Span,
}

/// CREATE INDEX name ON t (columns) OPTIONS(…).
#[derive(Debug, Clone, PartialEq)]
pub struct CreateIndex {
    /// The name.
    pub name: Ident,
    /// The table.
    pub table: ObjectName,
    /// The key columns.
    pub columns: Vec<Ident>,
    /// OPTIONS(ts=…, ttl=…, `ttl_type`=…).
    pub options: Vec<OptionItem>,
}

/// The forms of SHOW.
#[derive(Debug, Clone, PartialEq)]
pub enum Show {
    /// SHOW DATABASES.
    Databases,
    /// SHOW TABLES.
    Tables,
    /// SHOW CREATE TABLE t.
    CreateTable(ObjectName),
    /// SHOW DEPLOYMENTS.
    Deployments,
    /// SHOW DEPLOYMENT d.
    Deployment(ObjectName),
    /// SHOW FUNCTIONS.
    Functions,
    /// SHOW [SESSION] VARIABLES.
    Variables,
    /// SHOW GLOBAL VARIABLES.
    GlobalVariables,
    /// SHOW TABLE STATUS [LIKE 'pattern'].
    TableStatus(Option<String>),
    /// SHOW COMPONENTS.
    Components,
    /// SHOW MEMORY.
    Memory,
    /// SHOW PROCEDURES, SHOW PROCEDURE STATUS.
    Procedures,
    /// SHOW CREATE PROCEDURE p.
    CreateProcedure(ObjectName),
    /// SHOW JOBS [FROM component] [LIKE 'id'].
    Jobs {
        /// The component, in lower case.
        component: Option<String>,
        /// The pattern.
        like: Option<String>,
    },
    /// SHOW JOB id.
    Job(String),
    /// SHOW JOBLOG id.
    JobLog(String),
    /// SHOW `CURRENT_USER`.
    CurrentUser,
    /// SHOW INDEXES FROM t.
    Indexes(ObjectName),
    /// SHOW GRANTS [FOR user].
    Grants(Option<Ident>),
    /// SHOW USERS.
    Users,
}

/// A parameter of a procedure or function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParameterDefinition {
    /// The name.
    pub name: Ident,
    /// The type.
    pub data_type: TypeName,
    /// CONST: equal in all rows of a batch request.
    pub constant: bool,
}

/// CREATE PROCEDURE p (parameters) BEGIN queries END.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a word of the statement")]
pub struct CreateProcedure {
    /// The name.
    pub name: ObjectName,
    /// OR REPLACE.
    pub or_replace: bool,
    /// TEMP.
    pub temporary: bool,
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
    /// The parameters: the columns of the request table.
    pub parameters: Vec<ParameterDefinition>,
    /// OPTIONS.
    pub options: Vec<OptionItem>,
    /// The queries between BEGIN and END.
    pub body: Vec<Query>,
    /// The whole statement: what SHOW CREATE PROCEDURE prints.
    pub span: Span,
}

/// CREATE [AGGREGATE] FUNCTION f(parameters) RETURNS type OPTIONS(…).
#[derive(Debug, Clone, PartialEq)]
pub struct CreateFunction {
    /// The name.
    pub name: Ident,
    /// AGGREGATE.
    pub aggregate: bool,
    /// The parameters.
    pub parameters: Vec<ParameterDefinition>,
    /// RETURNS.
    pub returns: TypeName,
    /// OPTIONS(…).
    pub options: Vec<OptionItem>,
}

/// One action of ALTER TABLE: ADD or DROP `offline_path` 'uri'.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlterTableAction {
    /// ADD; DROP otherwise.
    pub add: bool,
    /// The path.
    pub path: String,
    /// The position of the path.
    pub span: Span,
}

/// CREATE USER, ALTER USER.
#[derive(Debug, Clone, PartialEq)]
pub struct UserDefinition {
    /// The name.
    pub name: Ident,
    /// CREATE USER IF NOT EXISTS, ALTER USER IF EXISTS.
    pub conditional: bool,
    /// OPTIONS(…).
    pub options: Vec<OptionItem>,
}

/// GRANT, REVOKE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Privileges {
    /// GRANT; REVOKE otherwise.
    pub is_granted: bool,
    /// The privileges in upper case; ALL is one.
    pub privileges: Vec<Ident>,
    /// TABLE or DATABASE, in upper case, if given.
    pub object_kind: Option<String>,
    /// The object: its database, and its table unless the whole database is meant; `*` for all.
    pub object: Vec<Ident>,
    /// The users.
    pub users: Vec<Ident>,
    /// WITH GRANT OPTION.
    pub with_grant_option: bool,
}

/// A statement.
#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    /// A query.
    Query(Box<Query>),
    /// EXPLAIN.
    Explain(Box<Query>),
    /// CREATE DATABASE.
    CreateDatabase {
        /// The name.
        name: Ident,
        /// IF NOT EXISTS.
        if_not_exists: bool,
    },
    /// DROP DATABASE.
    DropDatabase {
        /// The name.
        name: Ident,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// USE.
    Use(Ident),
    /// CREATE TABLE.
    CreateTable(Box<CreateTable>),
    /// DROP TABLE.
    DropTable {
        /// The name.
        name: ObjectName,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// CREATE INDEX.
    CreateIndex(Box<CreateIndex>),
    /// INSERT.
    Insert(Box<Insert>),
    /// LOAD DATA.
    LoadData(Box<LoadData>),
    /// DEPLOY.
    Deploy(Box<Deploy>),
    /// DROP DEPLOYMENT.
    DropDeployment {
        /// The name.
        name: ObjectName,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// SHOW.
    Show(Show),
    /// ESTIMATE TABLE.
    Estimate(Box<Estimate>),
    /// DESC, DESCRIBE.
    Describe(ObjectName),
    /// SET [GLOBAL | SESSION] name = value, SET @@name = value.
    Set {
        /// The variable, in lower case.
        name: Ident,
        /// The value.
        value: OptionValue,
        /// SET GLOBAL.
        global: bool,
    },
    /// DROP INDEX [db.]t.index.
    DropIndex {
        /// The table.
        table: ObjectName,
        /// The index.
        name: Ident,
    },
    /// DELETE FROM t [WHERE e].
    Delete {
        /// The table.
        table: ObjectName,
        /// WHERE.
        filter: Option<Box<Expr>>,
    },
    /// TRUNCATE TABLE t.
    Truncate(ObjectName),
    /// ALTER TABLE t actions.
    AlterTable {
        /// The table.
        table: ObjectName,
        /// What to change; at least one action.
        actions: Vec<AlterTableAction>,
    },
    /// CREATE PROCEDURE.
    CreateProcedure(Box<CreateProcedure>),
    /// DROP PROCEDURE.
    DropProcedure {
        /// The name.
        name: ObjectName,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// CALL p(arguments).
    Call {
        /// The procedure.
        name: ObjectName,
        /// Its arguments.
        arguments: Vec<Expr>,
    },
    /// CREATE FUNCTION.
    CreateFunction(Box<CreateFunction>),
    /// DROP FUNCTION.
    DropFunction {
        /// The name.
        name: Ident,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// CREATE USER.
    CreateUser(UserDefinition),
    /// ALTER USER … SET OPTIONS(…).
    AlterUser(UserDefinition),
    /// DROP USER.
    DropUser {
        /// The name.
        name: Ident,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// STOP JOB id.
    StopJob(String),
    /// DELETE JOB id.
    DeleteJob(String),
    /// GRANT, REVOKE.
    Privileges(Privileges),
    /// EXIT.
    Exit,
}
