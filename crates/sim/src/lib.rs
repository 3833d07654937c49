//! The simulator: replaces the machine in tests; everything is drawn from a seed.
//!
//! A disk ([`SimulatedDisk`]), whose crashes can be enumerated and whose calls can be made to fail, and
//! random bytes ([`SimulatedRandom`]); the clock of a run is `host`'s `ManualClock`, and it has no threads. Tests of every crate use it; it depends on `host` alone. A run is a seed: the same seed and
//! the same calls give the same bytes.
//!
//! # What the disk keeps
//!
//! A file has two contents: the bytes that a reader sees now, and those that are surely on the
//! disk. Bytes written, also through a mapping, move from the one to the other when the file is
//! synced, in pages of 4 KiB; names move when their directory is synced. A [`CrashImage`] is a copy
//! of both, taken at any moment; [`CrashImage::disk`] is the disk that the next process finds, when
//! of all that had not moved just what a [`CrashPolicy`] says has.
//!
//! # Faults
//!
//! [`SimulatedDisk::fail`] lets the Nth call, of any kind or of one, fail. A sync that fails counts
//! the pages as written, as Linux does: the next sync succeeds and writes none of them.

mod crash;
mod disk;
mod random;
mod state;

pub use crash::{CrashImage, CrashPolicy};
pub use disk::{DiskFault, Failure, SimulatedDisk, StalledReads};
pub use random::{Random, SimulatedRandom};

#[cfg(test)]
mod tests;
