//! The temporary files of a query, as DataFusion and the operators of this crate write them.
//!
//! `execute` gives them to the query's runtime environment, so that DataFusion's sorts and joins and
//! `spill` write to the same folder and count against the same space.

use std::{
    io::{self, BufWriter, Read, Write},
    path::Path,
    pin::Pin,
    sync::Arc,
};

use bytes::Bytes;
use datafusion::{
    error::{DataFusionError, Result},
    execution::spill_file::{SpillFile, SpillWriter, TempFileFactory},
};
use futures::Stream;
use lockstep_diagnostic::{Diagnostic, Kind, code};
use lockstep_host::temporary::{CountedFile, TemporaryError, TemporaryFiles, TemporaryWriter};

/// The bytes that are written to the disk at once: a part of an operator's rows is written in small
/// pieces, and there are many parts.
const WRITTEN_BYTES: usize = 32 << 10;

/// The bytes that are read from the disk at once for DataFusion's operators.
const READ_BYTES: usize = 128 << 10;

/// Makes the temporary files of a query.
#[derive(Debug)]
pub(crate) struct QueryFiles(Arc<TemporaryFiles>);

impl QueryFiles {
    /// Makes files where `files` are.
    pub(crate) fn new(files: Arc<TemporaryFiles>) -> Self {
        Self(files)
    }
}

/// Removes the temporary files of a query when it is dropped.
pub(crate) struct RemoveOnDrop(pub(crate) Arc<TemporaryFiles>);

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl TempFileFactory for QueryFiles {
    fn create_temp_file(&self, _: &str) -> Result<Arc<dyn SpillFile>> {
        Ok(Arc::new(QueryFile(self.0.create().map_err(into_datafusion)?)))
    }
}

/// A temporary file of a query.
#[derive(Debug)]
struct QueryFile(Arc<CountedFile>);

impl SpillFile for QueryFile {
    fn path(&self) -> Option<&Path> {
        Some(self.0.path())
    }

    fn size(&self) -> Option<u64> {
        Some(self.0.bytes())
    }

    fn read_stream(&self) -> Result<Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>> {
        let open = (self.0.open().map_err(into_datafusion)?, Arc::clone(&self.0));
        let pieces = futures::stream::try_unfold(open, |(mut file, kept)| async move {
            let read = move || {
                let mut piece = vec![0; READ_BYTES];
                let count = file.read(&mut piece)?;
                piece.truncate(count);
                Ok::<_, io::Error>((file, piece))
            };
            let read = tokio::task::spawn_blocking(read).await;
            let (file, piece) =
                read.map_err(|cause| DataFusionError::External(Box::new(cause)))??;
            Ok::<_, DataFusionError>(
                (!piece.is_empty()).then(|| (Bytes::from(piece), (file, kept))),
            )
        });
        Ok(Box::pin(pieces))
    }

    fn open_writer(&self) -> Result<Box<dyn SpillWriter>> {
        let writer = self.0.writer().map_err(into_datafusion)?;
        Ok(Box::new(QueryFileWriter(BufWriter::with_capacity(WRITTEN_BYTES, writer))))
    }
}

struct QueryFileWriter(BufWriter<TemporaryWriter>);

impl Write for QueryFileWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl SpillWriter for QueryFileWriter {
    fn finish(&mut self) -> Result<()> {
        Ok(self.0.flush()?)
    }
}

fn into_datafusion(error: TemporaryError) -> DataFusionError {
    DataFusionError::IoError(io::Error::other(error))
}

/// Returns the error of a temporary file that an error comes from, if it is one.
pub(crate) fn find_error<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> Option<&'e TemporaryError> {
    let chain = std::iter::successors(Some(error), |error| (**error).source());
    chain.filter_map(|error| error.downcast_ref::<io::Error>()).find_map(TemporaryError::of_io)
}

/// Returns the diagnostic of a temporary file that could not be written.
pub(crate) fn diagnostic(error: &TemporaryError) -> Diagnostic {
    match error {
        TemporaryError::LimitReached { folder, wanted, used, limit } => {
            let message = "temporary files exceed max_temp_directory_size";
            let detail = format!(
                "The query needs {wanted} more bytes in directory `{}`; the temporary files of all \
                 queries use {used} of {limit} bytes.",
                folder.display(),
            );
            Diagnostic::new(code::DISK_FULL, message)
                .with_kind(Kind::FreeResources)
                .with_detail(detail)
                .with_hint(
                    "Raise max_temp_directory_size with SET GLOBAL (0 means no limit), or raise \
                     memory_limit so that queries write less to disk.",
                )
        }
        TemporaryError::DiskFull { folder, wanted, source } => {
            let message = "could not write temporary files: no space left on device";
            let detail = format!(
                "The query needs {wanted} more bytes in directory `{}`. {source}.",
                folder.display(),
            );
            Diagnostic::new(code::DISK_FULL, message)
                .with_kind(Kind::FreeResources)
                .with_detail(detail)
                .with_hint(
                    "Free space on the disk, set temp_directory to a directory on another disk, or \
                     raise memory_limit so that queries write less to disk.",
                )
        }
        TemporaryError::System { folder, source } => {
            let folder = folder.display();
            let message = format!("could not write temporary files in directory `{folder}`");
            Diagnostic::new(code::IO_ERROR, message)
                .with_detail(format!("{source}."))
                .with_hint("Set temp_directory to another directory.")
        }
        // Only a task that nobody waits for sees it.
        TemporaryError::Ended => Diagnostic::interrupted(None),
    }
}
