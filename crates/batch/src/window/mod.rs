//! The window operator: every main row in turn is the current row of every window.
//!
//! `planner` makes it. `lockstep_plan` states which rows a frame holds. The steps: read the
//! inputs; evaluate the expressions of all groups once ([`columns`]); bring the rows of each
//! entity key into event order, once for all groups over the same key, order and unions
//! ([`partition`]); slide the frames along them, several keys at a time ([`slide`]); put the
//! results back in the order of the main rows.
//!
//! *Cost*: O(rows · log rows) to sort, then one `add`, `remove` and `value` for each row and call,
//! except where [`slide`] says otherwise. Beside inputs and output it holds the columns of the
//! expressions and twelve bytes a row for each ordering.

mod columns;
mod exec;
mod partition;
mod slide;

pub(crate) use exec::{WindowExec, WindowSpec};

#[cfg(test)]
mod tests;
