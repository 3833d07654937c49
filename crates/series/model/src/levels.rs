//! The parts of the levels that are checked.

#[path = "../../src/levels/key_nodes.rs"]
pub(crate) mod key_nodes;
#[path = "../../src/levels/tree.rs"]
pub(crate) mod tree;

#[path = "level_tests.rs"]
mod level_tests;
