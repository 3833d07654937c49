//! The files of a lake table: by names within its folder, and by absolute ones.
//!
//! Metadata that has absolute paths says where the table was written. A table that was moved or
//! copied since then is read in its new place: what lay below the old folder is looked up below the
//! new one. A file outside of both is opened only if the caller permits its path.

use std::{fmt, io::Read, path::Path};

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::disk;

use crate::{
    error::{from_io, from_io_at},
    load::{
        location::{BytesRead, InputFile, LocalFile, Location},
        remote,
    },
};

/// Fails for a path or URL that the caller may not read.
pub type PermitFile<'p> = &'p dyn Fn(&str) -> Result<()>;

/// The most bytes of one file of metadata.
const METADATA_BYTES_MAX: u64 = 1 << 30;

/// The folder of a table.
#[derive(Clone)]
pub(super) struct TableFolder<'p> {
    /// The path or URL, without a slash at its end.
    path: String,
    /// The folder that the table's metadata has as its own.
    written_path: Option<String>,
    permit: PermitFile<'p>,
}

impl fmt::Debug for TableFolder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableFolder").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Writes the path or URL, for messages.
impl fmt::Display for TableFolder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}

impl<'p> TableFolder<'p> {
    /// Makes the folder of a path or URL.
    pub(super) fn new(path: &str, permit: PermitFile<'p>) -> Self {
        let plain = without_file_scheme(path);
        let trimmed = plain.trim_end_matches('/');
        let path = if trimmed.is_empty() { plain } else { trimmed };
        Self { path: path.to_owned(), written_path: None, permit }
    }

    /// Looks up below this folder what the metadata has below another one.
    pub(super) fn written_at(mut self, path: &str) -> Self {
        self.written_path = Some(without_file_scheme(path).trim_end_matches('/').to_owned());
        self
    }

    /// Returns the path of a file by a name within the folder, a path or a URL.
    pub(super) fn resolve(&self, name: &str) -> String {
        let name = without_file_scheme(name);
        if let Some(written) = &self.written_path
            && let Some(rest) = name.strip_prefix(written.as_str())
            && rest.starts_with('/')
        {
            return format!("{}{rest}", self.path);
        }
        match name.starts_with('/') || name.contains("://") {
            true => name.to_owned(),
            false => format!("{}/{name}", self.path),
        }
    }

    /// Returns a file; one in an object store is looked up where its size is not given.
    pub(super) fn file(&self, name: &str, size: Option<u64>) -> Result<InputFile> {
        let path = self.resolve(name);
        if !self.contains(&path) {
            (self.permit)(&path)?;
        }
        let location = match (remote::is_remote(&path), size) {
            (false, _) if path.contains("://") => return Err(not_known(&path)),
            (false, _) => Location::Local(LocalFile::new(path.into())),
            (true, Some(size)) => Location::Remote(remote::file(&path, size)?),
            (true, None) => Location::Remote(remote::find(&path)?),
        };
        Ok(InputFile { location, partition: Vec::new(), values: Vec::new(), statistics: None })
    }

    /// Reads a whole file of metadata, which may be compressed.
    pub(super) fn read(&self, name: &str) -> Result<Vec<u8>> {
        let file = self.file(name, None)?;
        let mut bytes = Vec::new();
        let mut text = file.text(&BytesRead::default())?.take(METADATA_BYTES_MAX + 1);
        text.read_to_end(&mut bytes).map_err(|error| from_io_at(&error, "read", &file))?;
        if bytes.starts_with(&GZIP_MAGIC) {
            let mut plain = Vec::new();
            let decoder = flate2::read::MultiGzDecoder::new(bytes.as_slice());
            let mut decoder = decoder.take(METADATA_BYTES_MAX + 1);
            decoder.read_to_end(&mut plain).map_err(|error| from_io_at(&error, "read", &file))?;
            bytes = plain;
        }
        if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > METADATA_BYTES_MAX {
            let message = format!("metadata file `{file}` of the table exceeds the limit of 1 GiB");
            return Diagnostic::new(code::VALUE_TOO_LARGE, message)
                .with_kind(Kind::FixData)
                .with_hint("Expire old versions and compact the metadata with the table's writer.")
                .err();
        }
        Ok(bytes)
    }

    /// Returns the names of the files in a folder of the table, in their order; none where there is
    /// no such folder.
    pub(super) fn list(&self, folder: &str) -> Result<Vec<String>> {
        let path = format!("{}/{folder}", self.path);
        let mut names = Vec::new();
        if remote::is_remote(&path) {
            let prefix = path.splitn(4, '/').nth(3).unwrap_or_default();
            for (key, _) in remote::list(&format!("{path}/"))? {
                let name = key.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/'));
                names.extend(name.filter(|name| !name.contains('/')).map(str::to_owned));
            }
        } else if disk::is_folder(Path::new(&path)) {
            let listed = disk::list(Path::new(&path))
                .map_err(|error| from_io(&error, "list", Path::new(&path)))?;
            let listed = listed.iter().filter_map(|path| path.file_name());
            names.extend(listed.map(|name| name.to_string_lossy().into_owned()));
        }
        names.sort();
        Ok(names)
    }

    /// Returns whether a path is below the folder.
    fn contains(&self, path: &str) -> bool {
        let rest = path.strip_prefix(self.path.as_str());
        let below = self.path.ends_with('/') || rest.is_some_and(|rest| rest.starts_with('/'));
        rest.is_some() && below && path.split('/').all(|part| part != "..")
    }
}

/// How a gzip file begins.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Returns the path of a `file:` URL, and any other text as it is.
fn without_file_scheme(path: &str) -> &str {
    let Some(rest) = path.strip_prefix("file:") else { return path };
    match rest.strip_prefix("//") {
        // An empty host, or `localhost`.
        Some(path) if path.starts_with('/') => path,
        Some(path) => path.strip_prefix("localhost").unwrap_or(path),
        None => rest,
    }
}

fn not_known(path: &str) -> Box<Diagnostic> {
    let message = format!("object store URL `{path}` is not supported");
    let diagnostic = Diagnostic::unsupported(message).with_kind(Kind::FixData);
    Box::new(diagnostic.with_hint("Use s3://, gs:// or az://, or a local file."))
}
