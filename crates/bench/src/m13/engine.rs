//! Lockstep under M13: an appender of a session that has a level of durability.

use std::{fs, io, path::Path};

use lockstep_engine::{Appender, Database, Session};
use lockstep_host::disk;

use super::{SHAPE, WriteTarget, WrittenRows};
use crate::{
    answer::AnswerValue,
    engine_memory::memory_and_rows,
    error::{Result, Trying},
    m6::{M6_TABLE, OwnPuts, Put},
    peer::folder::TemporaryFolder,
    system::Client,
};

/// What Lockstep's writes wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteLevel {
    /// There is no directory, so nothing is logged.
    NoDirectory,
    /// Rows are logged; writes wait for nothing.
    Memory,
    /// Rows are in the page cache.
    Os,
    /// Rows are on the disk.
    Disk,
}

impl WriteLevel {
    fn name(self) -> &'static str {
        match self {
            Self::NoDirectory => "none",
            Self::Memory => "memory",
            Self::Os => "os",
            Self::Disk => "disk",
        }
    }
}

/// A database with the table of M6.
#[derive(Debug)]
pub(super) struct M13Lockstep {
    appender: Appender,
    session: Session,
    database: Database,
    written: WrittenRows,
    // Dropped last: the database writes to it until it is closed.
    folder: Option<TemporaryFolder>,
}

impl M13Lockstep {
    /// Creates the empty table, in a directory unless the level needs none.
    pub(super) fn create(level: WriteLevel) -> Result<Self> {
        let (folder, database) = match level {
            WriteLevel::NoDirectory => (None, Database::in_memory()),
            _ => {
                let folder = TemporaryFolder::new(&format!("lockstep-{}", level.name()))?;
                let database = Database::open(folder.path().join("puts"))?;
                (Some(folder), database)
            }
        };
        let session = database.session();
        if folder.is_some() {
            session.execute(&format!("SET durability = '{}'", level.name()))?;
        }
        session.execute(M6_TABLE)?;
        // It takes the session's durability when it is made.
        let appender = session.appender("puts")?;
        Ok(Self { appender, session, database, written: WrittenRows::default(), folder })
    }

    /// Returns how many bytes of the segments of the log are used: what follows the last record of a
    /// segment is zeros.
    pub(super) fn log_bytes(&self) -> Result<u64> {
        let Some(folder) = &self.folder else { return Ok(0) };
        used_bytes(folder.path()).trying(|| format!("read {}", folder.path().display()))
    }
}

/// Adds up the used bytes of the segments in a folder and the folders in it.
fn used_bytes(folder: &Path) -> io::Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            total += used_bytes(&path)?;
        } else if path.extension().is_some_and(|extension| extension == "wal") {
            let bytes = disk::read(&path)?;
            let last = bytes.iter().rposition(|byte| *byte != 0);
            total += last.map_or(0, |last| u64::try_from(last + 1).expect("a file's length fits"));
        }
    }
    Ok(total)
}

impl Drop for M13Lockstep {
    fn drop(&mut self) {
        // Its files are removed in any case.
        drop(self.database.close());
    }
}

impl WriteTarget for M13Lockstep {
    fn writer(&self, batch: usize) -> Result<Box<dyn Client + '_>> {
        assert!(batch > 0, "an operation has rows");
        let own = self.written.numbers.begin(SHAPE);
        Ok(Box::new(LockstepWriter { system: self, own, batch, puts: Vec::new() }))
    }

    fn written(&self) -> &WrittenRows {
        &self.written
    }

    fn stored(&self) -> Result<Option<u64>> {
        memory_and_rows(&self.session, &["puts".to_owned()]).map(|(_, rows)| Some(rows))
    }
}

struct LockstepWriter<'a> {
    system: &'a M13Lockstep,
    own: OwnPuts<'a>,
    batch: usize,
    puts: Vec<Put>,
}

impl Client for LockstepWriter<'_> {
    fn serve(&mut self, _request: usize) -> Result<()> {
        let M13Lockstep { appender, written, .. } = self.system;
        self.puts.clear();
        self.puts.extend((0..self.batch).map(|_| self.own.take().1));
        appender.append(self.puts.iter().map(Put::datums))?;
        written.acknowledge(self.batch);
        Ok(())
    }

    fn answer(&mut self, request: usize) -> Result<Vec<AnswerValue>> {
        self.serve(request).map(|()| Vec::new())
    }
}
