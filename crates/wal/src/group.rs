//! A group: records that are wholly in the log or not at all.

use crate::{
    Error, GROUP_BYTES_MAX, KIND_RESERVED, RecordKind,
    format::{RecordHeader, record_size},
};

/// Records to append together. The checksums of their payloads are computed here, outside the log's
/// lock.
#[derive(Debug, Default)]
pub struct Group<'p> {
    records: Vec<(RecordHeader, &'p [u8])>,
    bytes: u64,
    rows: u64,
}

impl<'p> Group<'p> {
    /// Makes a group without records.
    pub const fn new() -> Self {
        Self { records: Vec::new(), bytes: 0, rows: 0 }
    }

    /// Makes a group of one record.
    pub fn of(kind: RecordKind, rows: u32, payload: &'p [u8]) -> Self {
        let mut group = Self::new();
        group.push(kind, rows, payload);
        group
    }

    /// Adds a record that takes `rows` positions, at least one. Its kind is below
    /// [`KIND_RESERVED`].
    pub fn push(&mut self, kind: RecordKind, rows: u32, payload: &'p [u8]) {
        assert!(kind < KIND_RESERVED, "kind {kind} is the log's own");
        assert!(rows > 0, "a record takes a position, so that it can be waited for");
        let header = RecordHeader {
            // Too long a payload makes too large a group, which is refused before it is written.
            payload: u32::try_from(payload.len()).unwrap_or(u32::MAX),
            payload_checksum: crc32c::crc32c(payload),
            position: 0,
            durable: 0,
            rows,
            kind,
            is_last: false,
        };
        self.bytes = self.bytes.saturating_add(record_size(payload.len()));
        self.rows += u64::from(rows);
        self.records.push((header, payload));
    }

    /// Gives how many bytes the group takes in the log.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives how many positions the group takes.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Fails when the log does not take so large a group.
    pub(crate) fn check(&self) -> Result<(), Error> {
        assert!(!self.records.is_empty(), "a group has a record");
        if self.bytes > GROUP_BYTES_MAX {
            return Err(Error::TooLarge { bytes: self.bytes });
        }
        Ok(())
    }

    /// The records as they are written when the first row takes `position`.
    pub(crate) fn placed(
        &self,
        mut position: u64,
        durable: u64,
    ) -> impl Iterator<Item = (RecordHeader, &'p [u8])> {
        let last = self.records.len() - 1;
        self.records.iter().enumerate().map(move |(index, (header, payload))| {
            let placed = RecordHeader { position, durable, is_last: index == last, ..*header };
            position += u64::from(header.rows);
            (placed, *payload)
        })
    }
}
