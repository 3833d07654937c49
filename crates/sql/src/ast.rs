//! The syntax tree. Names are as written and nothing is resolved; every part that an error may
//! point at has its [`Span`](lockstep_diagnostic::Span).

mod expression;
mod query;
mod statement;

pub use expression::{
    BinaryOperator, Call, Expr, ExprKind, Ident, Interval, IntervalUnit, LikeOperator, Literal,
    ObjectName, Over, TypeName, UnaryOperator,
};
pub use query::{
    CommonTable, FilePath, FileTable, FrameBound, FrameBoundKind, FrameClause, FrameUnit,
    IntoOutfile, Join, JoinKind, KnownAt, NamedWindow, NullsOrder, OrderBy, Query, RowLimit,
    Select, SelectItem, SetExpr, TableRef, WindowAttribute, WindowSpec,
};
pub use statement::{
    AlterTableAction, ColumnDefinition, ConnectorKind, ConnectorStatement, ConnectorSystem,
    CreateConnector, CreateFunction, CreateIndex, CreateLike, CreateProcedure, CreateStream,
    CreateTable, CreateToken, CreateView, Deploy, Estimate, IgnoredRows, IndexDefinition, Insert,
    InsertRow, LoadData, ObjectPart, OptionItem, OptionValue, ParameterDefinition, PrimaryKey,
    Privileges, RoleMembership, Show, Statement, StreamStatement, UserDefinition, VerifyAgainst,
    ViewForm,
};
