//! Comparisons of the engine with definitions, in one program: it is linked once.
//!
//! `durability` and `fuzz` count allocations, and are programs of their own.

mod golden_sql;
mod guide;
mod known;
mod l3;
mod long_windows;
mod messages;
mod parity;
mod repeated;
mod verify;
