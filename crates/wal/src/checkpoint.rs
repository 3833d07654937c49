//! Checkpoints: data files of checked blocks, and the manifest that says which of them are current.
//!
//! `engine` writes a checkpoint and reads it when a database is opened. What a block holds and what
//! the manifest's body means is the caller's; here they are bytes. Files are written by
//! [`DataFileWriter`] and read by [`DataFileReader`]; [`crate::DatabaseDirectory`] creates both and
//! lets a manifest take the place of the one before. (ADR 0028)
//!
//! # Layout
//!
//! All numbers are little-endian. The file MANIFEST:
//!
//! ```text
//!  0  magic "LSTEPMAN"
//!  8  u32  byte order: 0x01020304
//! 12  u32  format version: 1
//! 16  u32  CRC32C of bytes 0-15; up to here all versions are the same
//! 20  u32  CRC32C of bytes 24 to the end of the file
//! 24  u64  length of the file in bytes
//! 32  database id: 128 random bits, which are the id of its log as well
//! 48  u64  generation: 0 when the database is created, one more for each checkpoint
//! 56  u64  position: the log is needed from here on
//! 64  u64  next number: no data file had this number or a greater one
//! 72  u32  count of data files
//! 76  u32  length of the body in bytes
//! 80  data files, 24 bytes each:
//!           0  u64  number
//!           8  u64  length of the file in bytes
//!          16  u32  count of blocks
//!          20  u32  CRC32C of bytes 0-7 of the headers of all its blocks, one after the other
//!  .. body
//! ```
//!
//! The data file N, `N.data` with N as twenty digits:
//!
//! ```text
//! data file    0        48
//!              +--------+--------------+---------+--------------+---------+-----
//!              | header | block header | payload | block header | payload | ...
//!              +--------+--------------+---------+--------------+---------+-----
//!
//! header       0  magic "LSTEPDAT"
//!              8  u32  format version: 1
//!             12  u32  CRC32C of bytes 0-11 and 16-47
//!             16  database id
//!             32  u64  number of the file
//!             40  zeros
//!
//! block        0  u32  length of the payload in bytes
//! header       4  u32  CRC32C of the payload
//!              8  u32  CRC32C of database id, number of the file, index of the block as u32,
//!                      and bytes 0-7
//! ```
//!
//! A block does not say its index: one that stands in another place, in another file or in another
//! database has the wrong checksum. The manifest has the checksum of all lengths and checksums: a file that
//! is whole but another one is not taken for that of the checkpoint.
//!
//! # What is promised
//!
//! - A data file is on the disk, with its name, before a manifest lists it.
//! - Every byte that a reader gives was compared with its checksum.
//! - A data file that a manifest took over from the one before is not written again.
//! - The number of a data file is greater than that of any file that exists or that a manifest has
//!   listed.

mod block_reader;
mod block_search;
mod data_file;
mod manifest;
mod reader;
mod writer;

pub use block_reader::{BlockPlace, BlockReader};
pub use data_file::{BLOCK_BYTES_MAX, BLOCK_HEADER_BYTES, DataFile};
pub(crate) use data_file::{DATA_FILE_HEADER_BYTES, DataFileHeader, file_name, number_of};
pub(crate) use manifest::decode;
pub use manifest::{MANIFEST_BYTES_MAX, Manifest};
pub use reader::DataFileReader;
pub use writer::DataFileWriter;
