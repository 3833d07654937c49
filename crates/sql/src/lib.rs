//! Text to syntax tree: the SQL dialect on top of the `sqlparser` crate's tokenizer.
//!
//! [`parse`] turns a script into statements; it never resolves a name and never evaluates. Depth
//! and length of a statement are limited, so that any text gives an answer quickly.

pub mod ast;
