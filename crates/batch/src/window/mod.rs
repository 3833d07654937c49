//! The window operator: every main row in turn is the current row of every window.
//!
//! `planner` makes it. `lockstep_plan` states which rows a frame has. The steps: read the inputs;
//! evaluate the expressions of all groups once ([`columns`]); sort the rows of each entity key in
//! event order, once for all groups over the same key, order and unions ([`partition`]); slide the
//! frames along them, several keys in parallel ([`slide`]); restore the order of the main rows.
//!
//! *Cost*: O(rows · log rows) to sort, then one `add` and `remove` for each row and state, and one `value`
//! for each row and call, except where [`slide`] says otherwise. Besides inputs and output it holds the
//! columns of the expressions and twelve bytes per row for each ordering, and as many again for the rows
//! of UNION sources with `INSTANCE_NOT_IN_WINDOW`.

mod call_lane;
mod carried;
mod columns;
mod exec;
mod frames;
mod on_disk;
mod partition;
mod shared_state;
mod slices_on_disk;
mod slide;

pub(crate) use exec::{WindowExec, WindowOperatorSpec};

#[cfg(test)]
mod tests;
