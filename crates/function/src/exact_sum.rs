//! See the crate's table.
