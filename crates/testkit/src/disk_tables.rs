//! Databases of which every table is a disk table, on a simulated disk: the same values come from files.
//!
//! Files are small ([`DiskTuning::SMALL`], while a [`SmallFiles`] exists), so that a few rows make many pages.
//! [`flush`] writes the rows that are in memory, and merges what is to be merged.

use std::{path::Path, sync::Arc};

use lockstep_engine::{
    Database, Diagnostic, DiskTuning, OpenOptions, StorageTuning, set_disk_tuning,
};
use lockstep_host::{Clock, Host};
use lockstep_sim::SimulatedDisk;

/// Bytes of a segment of the log: a simulated sync takes time for each of them.
const SEGMENT_BYTES: u64 = 256 << 10;

/// Opens an empty database.
pub fn open() -> Result<Database, Box<Diagnostic>> {
    open_on(Host::default())
}

/// Opens an empty database with a clock.
pub fn open_with_clock(clock: Arc<dyn Clock>) -> Result<Database, Box<Diagnostic>> {
    open_on(Host { clock, ..Host::default() })
}

fn open_on(host: Host) -> Result<Database, Box<Diagnostic>> {
    let host = Host { disk: Arc::new(SimulatedDisk::new()), ..host };
    let tuning = StorageTuning {
        all_on_disk: true,
        segment_bytes: SEGMENT_BYTES,
        ..StorageTuning::default()
    };
    let options = OpenOptions { host, tuning, ..OpenOptions::default() };
    Database::open_with(Path::new("/database"), &options)
}

/// Writes all rows into files.
pub fn flush(database: &Database) -> Result<(), Box<Diagnostic>> {
    database.checkpoint()?;
    database.compact_disk_tables()
}

/// While it exists, files of all databases of the process are small.
#[derive(Debug)]
pub struct SmallFiles(());

impl SmallFiles {
    /// Makes files small.
    pub fn begin() -> Self {
        set_disk_tuning(DiskTuning::SMALL);
        Self(())
    }
}

impl Drop for SmallFiles {
    fn drop(&mut self) {
        set_disk_tuning(DiskTuning::USUAL);
    }
}
