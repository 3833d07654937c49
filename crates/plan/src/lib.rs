//! The unified plan generator: syntax tree and catalog to a typed logical plan.
//!
//! [`bind`] returns one DataFusion `LogicalPlan` that every executor runs. Where the dialect means
//! something else than DataFusion would, the plan calls *our* functions, so that every executor
//! computes the same. Nothing here executes.
//!
//! # Shape of a plan
//!
//! Native nodes: `TableScan` (its source is a [`CatalogTable`]), `Projection`, `Filter`,
//! `SubqueryAlias`, `Limit`, `Sort`, `Union`, `Aggregate`, `Distinct`, `Join`, `EmptyRelation`.
//! Our own: [`WindowAggregate`] and [`LastJoin`].
//!
//! Native expressions: `Column`, `Literal`, `Alias`, `BinaryExpr` with AND, OR and the six
//! comparisons (both sides of one type, never FLOAT or DOUBLE), `Not`, `IsNull`, `IsNotNull`,
//! `Case` (searched). BETWEEN, IN and the simple CASE are written out in these while their operand
//! is small, and are one call otherwise, so that no operand is computed twice. Everything else is a
//! `ScalarFunction` whose UDF is a `lockstep_function::udf::ScalarUdf`.
//!
//! Arrow types are the images of the dialect's types under `lockstep_row::arrow`.

mod binder;
mod call;
mod catalog;
mod columns_read;
mod comparison;
mod elsewhere;
mod expression;
mod feature;
mod frame;
mod from;
mod group;
mod key_read;
mod last_join;
pub mod lineage;
mod literal;
mod nested;
mod node;
mod query;
mod rank;
mod scope;
mod select;
mod size;
mod sub_query;
mod view;
mod window;
mod window_calls;
mod written;

pub use catalog::{Catalog, CatalogTable, DeclaredIndex, NamedQuery, SourceHandle, stored_tables};
pub use columns_read::{columns_read, mark_columns};
pub use comparison::text_constant;
pub use expression::quoted_name;
pub use frame::{
    CurrentRow, FrameEnds, FrameParts, FrameRange, RowPlace, SlidePlace, SlideStep, has_beginning,
    has_current_row, state_use,
};
pub use from::find_table;
pub use key_read::{KeyRead, column_ranges};
pub use last_join::schema_of_unique;
pub use literal::type_of;
pub use node::{
    AggregateCall, Frame, FrameAhead, LastJoin, TimeBound, Window, WindowAggregate, WindowGroup,
};
pub use query::{BindOptions, BoundQuery, bind, bind_constant};
pub use size::{EXPRESSIONS_MAX, PLAN_HEIGHT_MAX, PLAN_OPERATORS_MAX};
pub use view::in_view;
pub use window::future_frame;
pub use written::{
    ClockRead, JoinForm, QuotedName, Written, WrittenCall, WrittenJoin, WrittenWindow,
};
