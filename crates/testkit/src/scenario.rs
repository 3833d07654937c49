//! A drawn database and query, as SQL text and in the oracle's form.
//!
//! All tables of a scenario have one schema: `id`, two key columns, the event time, and some
//! values of which `v0` is INT. The main table is `t1`; the others are either UNION sources `u…`
//! or right tables of LAST JOINs `r…`.
//!
//! | module | what |
//! |---|---|
//! | [`draw`] | the proptest strategies |
//! | [`constructs`] | the constructs of a scenario |
//! | [`script`] | the scenario as a script that can be pasted into the shell |

pub mod constructs;
pub mod draw;
pub mod script;

use lockstep_row::DataType;

use crate::oracle::{OracleQuery, OracleTable};

/// The column `id`, unique in all tables of a scenario.
pub const ID: usize = 0;
/// The first key column.
pub const KEY: usize = 1;
/// The second key column, INT.
pub const SECOND_KEY: usize = 2;
/// The event time.
pub const EVENT_TIME: usize = 3;
/// The first value column, INT.
pub const FIRST_VALUE: usize = 4;

/// Tables and a query over them.
#[derive(Clone, PartialEq)]
pub struct Scenario {
    /// The main table, then the others.
    pub tables: Vec<OracleTable>,
    /// The query. All its windows are ordered by the event time, or none is.
    pub query: OracleQuery,
    /// The indexes that the tables declare.
    pub indexes: Indexes,
    /// The capacity of a chunk in rows.
    pub chunk_rows: usize,
    /// Whether requests use a deployment, which is created before the rows arrive.
    pub is_deployed: bool,
}

/// Indexes that every table of a scenario declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Indexes {
    /// None.
    None,
    /// One by the first key and the event time.
    One,
    /// Another by both keys, and one by the second key without an event time.
    Several,
}

impl Scenario {
    /// Names and types of the columns of every table.
    pub fn columns(&self) -> &[(String, DataType)] {
        &self.tables[0].columns
    }

    /// Returns whether the windows are ordered by event time. A query without windows counts as
    /// ordered.
    pub fn is_ordered(&self) -> bool {
        self.query.windows.iter().all(|window| window.order_by.is_some())
    }
}

/// Proptest prints the shrunk scenario with this.
impl std::fmt::Debug for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\n{}", script::script(self))
    }
}
