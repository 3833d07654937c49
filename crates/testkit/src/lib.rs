//! What tests of the whole database share: an oracle, generators, and a runner of golden SQL.
//!
//! Integration tests and `xtask` use it; nothing that ships does. The oracle shares no code with
//! the executors and the function library, since it exists to disagree with them.
//!
//! | module | what |
//! |---|---|
//! | [`rows`] | rows of values as Arrow batches and back |
//! | [`oracle`] | windows and LAST JOIN by rescanning a `Vec` of rows |
//! | [`scenario`] | a drawn database and query: its SQL text and its oracle form |
//! | [`replay`] | a scenario run by the engine in batch mode and in request mode |
//! | [`slt`] | golden SQL files in sqllogictest syntax |
//! | [`guide`] | documents whose examples run |
//! | [`fuzz`] | inputs that are not quite SQL, taken as far as they go |
//! | [`l3`] | whole queries, drawn: batch mode and request mode give the same row |
//! | [`panics`] | panics as text |
//! | [`random`] | numbers that a seed decides |

pub mod fuzz;
pub mod guide;
pub mod l3;
pub mod oracle;
pub mod panics;
pub mod random;
pub mod replay;
pub mod rows;
pub mod scenario;
pub mod slt;
