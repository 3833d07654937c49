//! What `series` needs of `row`, without what `row` needs.

#[path = "../../../../../row/src/retention.rs"]
mod retention;

pub use retention::Retention;
