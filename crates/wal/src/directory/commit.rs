//! Lets a manifest take the place of the one before, and removes what no manifest lists.
//!
//! Part of [`DatabaseDirectory`]; see *Life of a checkpoint* in [`crate::directory`].

use std::{path::Path, sync::Arc};

use lockstep_host::{
    failpoint,
    file::{self, Disk, OpenMode},
};

use super::{DATA, DatabaseDirectory, MANIFEST, MANIFEST_NEW, NumberSnapshot};
use crate::{
    Error, Manifest,
    bug::{self, Bug},
    checkpoint::number_of,
    recovery::refused,
    segment::NotCreated,
};

impl DatabaseDirectory {
    /// Makes a checkpoint the current one: the successor of the current manifest, of which every file
    /// is in that one as well or was finished here since. Then removes all other data files that
    /// were finished when it began. When it fails, the checkpoint before stays current, and the same manifest may be
    /// committed again, except after [`Error::CheckpointsStopped`].
    pub fn commit(&self, manifest: Manifest) -> Result<(), Error> {
        let _committing = self.committing.lock();
        self.check_writable()?;
        let numbers = self.check_successor(&manifest);
        let bytes = manifest.encode(numbers.next)?;
        if !bug::is_seeded(Bug::DataDirectoryNotSynced) {
            self.disk.sync_directory(&self.path.join(DATA)).or_else(|error| self.stop(error))?;
        }
        let manifest = Arc::new(manifest);
        if bug::is_seeded(Bug::OldFilesRemovedEarly) {
            self.remove_unlisted(&manifest, &numbers);
        }
        self.numbers.lock().list_also(&manifest.files);
        match write_manifest(&*self.disk, &self.path, &bytes) {
            Ok(()) => {}
            Err(NotCreated::Refused(error)) => return Err(refused(error)),
            Err(NotCreated::NotSynced(error)) => return self.stop(error),
        }
        self.numbers.lock().list(&manifest.files);
        *self.current.lock() = manifest;
        self.remove_leftovers(&numbers);
        Ok(())
    }

    /// Asserts that a manifest may follow the current one; gives the numbers of data files now.
    fn check_successor(&self, manifest: &Manifest) -> NumberSnapshot {
        let current = self.manifest();
        assert_eq!(manifest.database_id, self.database_id, "a manifest is of its database");
        assert_eq!(manifest.generation, current.generation + 1, "a manifest follows another");
        assert!(manifest.position >= current.position, "the log is needed from later on");
        let numbers = self.numbers.lock();
        for file in &manifest.files {
            let is_there = current.files.contains(file) || numbers.is_finished(file);
            assert!(is_there, "data file {} is on the disk before it is listed", file.number);
        }
        numbers.snapshot()
    }

    /// Commits nothing from now on: nobody knows which manifest is on the disk.
    fn stop(&self, error: file::Error) -> Result<(), Error> {
        if bug::is_seeded(Bug::CommitAfterFailedSync) {
            return Err(refused(error));
        }
        self.failure.get_or_init(|| Arc::new(error));
        self.check_writable()
    }

    /// Removes what means nothing. What cannot be removed takes space and does no harm: it is tried
    /// again by the next one.
    pub(super) fn remove_leftovers(&self, numbers: &NumberSnapshot) {
        let _left = self.disk.remove(&self.path.join(MANIFEST_NEW));
        self.remove_unlisted(&self.manifest(), numbers);
        self.numbers.lock().forget_past(numbers);
    }

    /// Removes the data files of the past that a manifest does not list.
    fn remove_unlisted(&self, manifest: &Manifest, numbers: &NumberSnapshot) {
        let data = self.path.join(DATA);
        let Ok(names) = self.disk.list(&data) else { return };
        for name in names {
            let Some(number) = number_of(&name) else { continue };
            let is_listed = manifest.files.iter().any(|file| file.number == number);
            if !is_listed && numbers.is_past(number) {
                let _left = self.disk.remove(&data.join(name));
            }
        }
    }
}

/// Puts a manifest on the disk in place of the one that is there.
pub(super) fn write_manifest(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), NotCreated> {
    let unfinished = path.join(MANIFEST_NEW);
    let replaced = write_unfinished(disk, &unfinished, bytes).and_then(|()| {
        failpoint::reach("wal.manifest_written");
        disk.rename(&unfinished, &path.join(MANIFEST))?;
        failpoint::reach("wal.manifest_renamed");
        Ok(())
    });
    replaced.map_err(|error| {
        let _left = disk.remove(&unfinished);
        NotCreated::Refused(error)
    })?;
    if bug::is_seeded(Bug::ManifestNameNotSynced) {
        return Ok(());
    }
    disk.sync_directory(path).map_err(NotCreated::NotSynced)
}

fn write_unfinished(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), file::Error> {
    let file = disk.open(path, OpenMode::Create)?;
    file.write_at(0, bytes)?;
    if bug::is_seeded(Bug::ManifestNotSynced) {
        return Ok(());
    }
    file.sync_data()
}
