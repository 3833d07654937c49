//! The crash harness: tries to make a database in a directory lose or invent something.
//!
//! A driver sends operations to a child process, kills it, opens the directory again, and compares it
//! with a database in memory that was given the surviving operations. Everything is drawn from a seed;
//! only the moment of a kill is the machine's. The program `lockstep-crash` runs it.
//!
//! | module | what |
//! |---|---|
//! | [`kill`] | cycles: operations, a kill, a comparison |
//! | [`failpoints`] | the same at every failpoint |
//! | [`replay`] | drawn statements in one process: closed, opened, compared |
//! | [`soak`] | a served directory under mixed load, with disconnects and kills |
//! | [`streams`] | streams under kills: each result once, with the bits of batch mode |
//! | [`kafka`] | sources and sinks under kills, over a broker in the driver: each message one row, each row one message |
//! | [`group`] | processes that share topics under kills: each main row one result in all of them together |
//! | [`files`] | the same over folders: each line one row, each row in one file |
//! | [`work`] | children that work until they are killed: what these have in common |
//! | [`bugs`] | the bugs that the others are to find |
//! | [`workload`], [`objects`], [`rows`] | the operations, and how often each is drawn |
//! | [`operation`] | an operation as data |
//! | [`child`], [`process`] | the child process, and the driver's handle of it |
//! | [`observation`], [`difference`] | what a database has, and the comparison |
//! | [`model`], [`merge`] | the database in memory, and the order of the operations |
//! | [`scripts`] | objects made again from what SHOW says |
//! | [`report`] | the counts of a run |

mod broker;
pub mod bugs;
pub mod child;
pub mod difference;
pub mod failpoints;
pub mod files;
pub mod group;
pub mod kafka;
pub mod kill;
pub mod merge;
pub mod model;
pub mod objects;
pub mod observation;
pub mod operation;
pub mod process;
pub mod replay;
pub mod report;
pub mod rows;
pub mod scripts;
pub mod soak;
pub mod streams;
pub mod work;
pub mod workload;
