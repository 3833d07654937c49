//! Bugs that the tests seed, to see that they would be found.
//!
//! Each stands beside the line that it breaks. Outside this crate's own tests there are none, and
//! the compiler removes the question.

/// A line left out or done wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A sync is not done and counted as done.
    SyncLeftOut,
    /// A wait ends before the sync begins.
    AcknowledgedBeforeSync,
    /// Only the segment that is written now is synced.
    FormerSegmentNotSynced,
    /// The directory is not synced after a segment was created.
    DirectoryNotSynced,
    /// A new segment's own bytes are not synced before it gets its name.
    HeaderNotSynced,
    /// A record's bytes are not compared with their checksum.
    ChecksumNotCompared,
    /// The checksum of a record's header leaves its position out.
    PositionNotInChecksum,
    /// Bytes after the tail stay as they are.
    TailNotZeroed,
    /// The zeros after the tail are not synced.
    ZerosNotSynced,
    /// A record claims that what stands before it is synced.
    DurableTooHigh,
    /// A group whose last record is missing is taken.
    LastFlagIgnored,
    /// What is not known to be on the disk is not written again by who opens the log.
    NotWrittenAgain,
    /// The directory is not synced by who opens the log.
    DirectoryNotSyncedOnOpen,
    /// A sync that failed is tried again.
    SyncRetried,
    /// What stands behind the end of the log is not looked at.
    EvidenceIgnored,
    /// What a refused group had written is left where it is.
    RefusedGroupCounted,
    /// What a new directory holds is not synced before its manifest.
    CreationNotSynced,
    /// A manifest's bytes are not synced before it gets its name.
    ManifestNotSynced,
    /// The directory is not synced after a manifest got its name.
    ManifestNameNotSynced,
    /// The directory of a database is not synced by who opens it.
    ManifestNotSyncedOnOpen,
    /// A manifest's bytes are not compared with their checksum.
    ManifestChecksumNotCompared,
    /// A data file is not synced before a manifest lists it.
    DataFileNotSynced,
    /// The names of data files are not synced before a manifest lists them.
    DataDirectoryNotSynced,
    /// Data files are removed before the manifest that does not list them is on the disk.
    OldFilesRemovedEarly,
    /// A checkpoint is committed after the sync of a directory failed.
    CommitAfterFailedSync,
    /// A data file gets a number that another one has.
    NumberReused,
    /// A block's bytes are not compared with their checksum.
    BlockChecksumNotCompared,
    /// The checksum of a block's header leaves its index out.
    BlockIndexNotInChecksum,
    /// A data file is not compared with what the manifest says of it.
    FileChecksumNotCompared,
}

#[cfg(test)]
thread_local! {
    static SEEDED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Whether this thread's code is to have the bug.
#[cfg(test)]
pub(crate) fn is_seeded(bug: Bug) -> bool {
    SEEDED.get() == Some(bug)
}

/// Whether this thread's code is to have the bug: never.
#[cfg(not(test))]
#[expect(clippy::missing_const_for_fn, reason = "it is the test's that does something")]
pub(crate) fn is_seeded(_bug: Bug) -> bool {
    false
}

/// Runs `body` with a bug.
#[cfg(test)]
pub(crate) fn with<T>(bug: Bug, body: impl FnOnce() -> T) -> T {
    struct Unseed;
    impl Drop for Unseed {
        fn drop(&mut self) {
            SEEDED.set(None);
        }
    }
    SEEDED.set(Some(bug));
    let _unseed = Unseed;
    body()
}
