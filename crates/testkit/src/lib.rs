//! Test support for the whole database: an oracle, generators, and a runner of golden SQL.
//!
//! Integration tests and `xtask` use it; nothing that ships does. The oracle shares no code with
//! the executors and the function library, so that it does not share their defects.
//!
//! | module | what |
//! |---|---|
//! | [`rows`] | rows of values as Arrow batches and back |
//! | [`oracle`] | windows and LAST JOIN by rescanning a `Vec` of rows |
//! | [`scenario`] | a drawn database and query: its SQL text and its oracle form |
//! | [`replay`] | a scenario run by the engine in batch mode and in request mode |
//! | [`slt`] | golden SQL files in sqllogictest syntax |
//! | [`streams`] | continuous queries while rows arrive, against the oracle and batch mode |
//! | [`guide`] | documents whose examples are tests |
//! | [`disk_tables`] | databases whose tables are disk tables, with small files |
//! | [`durability`] | the durable engine on a simulated disk |
//! | [`known`] | as-known training sets against requests and the oracle |
//! | [`following`] | frames that extend past the current row, against the oracle |
//! | [`fuzz`] | fuzzing with malformed SQL |
//! | [`l3`] | drawn queries: batch mode and request mode give the same row |
//! | [`long_windows`] | drawn long windows: with and without pre-aggregates the same bits |
//! | [`repeated`] | drawn queries with one expression in several clauses |
//! | [`panics`] | panics as text |
//! | [`random`] | seeded random numbers |

pub mod disk_tables;
pub mod durability;
pub mod following;
pub mod fuzz;
pub mod guide;
pub mod known;
pub mod l3;
pub mod long_windows;
pub mod oracle;
pub mod panics;
pub mod random;
pub mod repeated;
pub mod replay;
pub mod rows;
pub mod scenario;
pub mod slt;
pub mod streams;
