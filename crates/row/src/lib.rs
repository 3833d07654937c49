//! Rows: the types of the dialect, table schemas, values, and the compact row codec.
//!
//! Everything above speaks of data in these words. A row's bytes say nothing of where they are
//! stored, and nothing here knows SQL. The Arrow forms of types and values are in [`arrow`].
//!
//! | module | what |
//! |---|---|
//! | [`DataType`] | the types of the dialect |
//! | [`Datum`], [`Value`] | one value, borrowed or owned |
//! | [`TableSchema`] | columns, indexes, retention |
//! | [`RowCodec`] | a row as bytes |
//! | [`Projection`] | some columns of a row as bytes |
//! | [`ShortText`] | a text of a few bytes as a value of fixed size |
//! | [`arrow`] | types and values to and from Arrow |
//! | [`key`] | entity keys as bytes |
//! | [`persistent`] | the stored form of schemas and values |

pub mod arrow;
pub mod calendar;
mod codec;
mod data_type;
mod datum;
pub mod key;
pub mod persistent;
mod projection;
mod retention;
mod schema;
mod short_text;

pub use codec::{FixedColumn, FixedKind, RowCodec, RowError, RowView, TextColumn};
pub use data_type::DataType;
pub use datum::{Arena, Datum, Value, order_floats};
pub use projection::{IncludedColumn, Projection, TextCell};
pub use retention::Retention;
pub use schema::{Column, IndexSpec, TableSchema};
pub use short_text::ShortText;
