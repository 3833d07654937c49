//! A text file that is written: plain, or compressed as the end of its name says.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
};

use flate2::{Compression, write::GzEncoder};

/// A file of lines. Bytes that are written are in the file only after [`TextFile::finish`].
pub(super) enum TextFile {
    Plain(BufWriter<File>),
    Gzip(Box<GzEncoder<BufWriter<File>>>),
    Zstd(Box<zstd::Encoder<'static, BufWriter<File>>>),
}

/// The suffixes of the compressed files that can be written.
const SUPPORTED: [&str; 2] = [".gz", ".zst"];

/// The suffixes of other compressed files and of archives, in lower case.
const UNSUPPORTED: [&str; 18] = [
    ".7z", ".br", ".bz", ".bz2", ".deflate", ".gzip", ".lz", ".lz4", ".lzma", ".lzo", ".snappy",
    ".sz", ".tgz", ".xz", ".z", ".zip", ".zlib", ".zstd",
];

/// The suffix of a supported compression, if the name of a file ends with one.
pub(super) fn compression(path: &Path) -> Option<&'static str> {
    suffix(path, &SUPPORTED)
}

/// The suffix of a compression or an archive that is not supported, if the name ends with one.
pub(super) fn unsupported_compression(path: &Path) -> Option<&'static str> {
    suffix(path, &UNSUPPORTED)
}

fn suffix(path: &Path, suffixes: &[&'static str]) -> Option<&'static str> {
    let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
    suffixes.iter().copied().find(|end| name.ends_with(end))
}

/// Returns a name in lower case without the suffix of a compression, supported or not.
pub(super) fn without_compression(name: &str) -> &str {
    let mut suffixes = SUPPORTED.into_iter().chain(UNSUPPORTED);
    suffixes.find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

impl TextFile {
    /// Starts a file, which will be named `path`.
    pub(super) fn new(file: File, path: &Path) -> io::Result<Self> {
        let file = BufWriter::new(file);
        Ok(match compression(path) {
            Some(".gz") => Self::Gzip(Box::new(GzEncoder::new(file, Compression::default()))),
            Some(_) => Self::Zstd(Box::new(zstd::Encoder::new(file, 0)?)),
            None => Self::Plain(file),
        })
    }

    /// Writes what is still in memory, and returns the file.
    pub(super) fn finish(self) -> io::Result<File> {
        let file = match self {
            Self::Plain(file) => file,
            Self::Gzip(encoder) => encoder.finish()?,
            Self::Zstd(encoder) => encoder.finish()?,
        };
        file.into_inner().map_err(io::IntoInnerError::into_error)
    }
}

impl Write for TextFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.write(bytes),
            Self::Gzip(encoder) => encoder.write(bytes),
            Self::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.flush(),
            Self::Gzip(encoder) => encoder.flush(),
            Self::Zstd(encoder) => encoder.flush(),
        }
    }
}
