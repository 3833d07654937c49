//! The rows of a query batch by batch, for results that need not fit in memory.
//!
//! A thread of its own runs the query and waits while the program has not taken two batches; it ends
//! when the program drops the object.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    time::Duration,
};

use arrow::{array::RecordBatch, compute::BatchCoalescer};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_host::{QueryContext, query, sync::Mutex};
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatch;

use crate::{
    backend::BackendQuery,
    call::detached,
    error::{raise, warning_text},
};

/// How many batches wait for the program.
const WAITING_MAX: usize = 2;

/// How often a program that waits checks whether it was interrupted.
const POLL: Duration = Duration::from_millis(20);

/// What the thread of a query passes on.
enum StreamPart {
    Rows(RecordBatch),
    /// The warnings, or why there are no further rows.
    End(Result<Vec<Diagnostic>>),
}

/// Iterator over the rows of a running query.
#[pyclass(frozen, name = "Batches", module = "lockstep._lockstep")]
#[derive(Debug)]
pub(crate) struct PyBatches {
    receiver: Mutex<Receiver<StreamPart>>,
    /// The context of the thread.
    context: QueryContext,
    sql: String,
    warnings: Mutex<Vec<String>>,
}

impl PyBatches {
    /// Starts a query, whose batches have `rows` rows, and fewer at the end; as many as arrive together if there is no
    /// number.
    pub(crate) fn start(
        py: Python<'_>,
        run: Arc<BackendQuery>,
        sql: &str,
        rows: Option<usize>,
    ) -> PyResult<Self> {
        debug_assert!(rows != Some(0), "a batch has rows");
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let context = QueryContext::new();
        let own = context.clone();
        let started = lockstep_host::spawn("batches", move || {
            let outcome = own.run(|| lockstep_cli::guarded(|| produce(&run, rows, &sender)));
            // The program may have dropped the object.
            let _sent = sender.send(StreamPart::End(outcome));
        });
        if let Err(error) = started {
            let diagnostic =
                Diagnostic::internal(format!("could not start a thread for the query: {error}"));
            return Err(raise(py, &diagnostic, None));
        }
        let (receiver, warnings) = (Mutex::new(receiver), Mutex::default());
        Ok(Self { receiver, context, sql: sql.to_owned(), warnings })
    }
}

impl Drop for PyBatches {
    fn drop(&mut self) {
        self.context.cancel();
    }
}

#[pymethods]
impl PyBatches {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// Returns the next batch of rows, as an object with the Arrow array interface.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<PyRecordBatch>> {
        let part = detached(py, Some(&self.sql), || {
            let receiver = self.receiver.lock();
            loop {
                match receiver.recv_timeout(POLL) {
                    Ok(StreamPart::Rows(batch)) => return Ok(Ok(batch)),
                    Ok(StreamPart::End(outcome)) => return outcome.map(Err),
                    // It has ended before.
                    Err(RecvTimeoutError::Disconnected) => return Ok(Err(Vec::new())),
                    Err(RecvTimeoutError::Timeout) => query::checkpoint()
                        .map_err(|cause| Box::new(Diagnostic::interrupted(cause.limit_ms())))?,
                }
            }
        })?;
        Ok(match part {
            Ok(batch) => Some(PyRecordBatch::new(batch)),
            Err(warnings) => {
                let texts = warnings.iter().map(|warning| warning_text(warning, &self.sql));
                self.warnings.lock().extend(texts);
                None
            }
        })
    }

    /// Returns and clears the warnings of a finished query.
    fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.lock())
    }
}

/// Runs a query, and sends its rows.
fn produce(
    run: &BackendQuery,
    rows: Option<usize>,
    sender: &SyncSender<StreamPart>,
) -> Result<Vec<Diagnostic>> {
    let send = |batch: RecordBatch| {
        let gone = |_| Box::new(Diagnostic::interrupted(None));
        sender.send(StreamPart::Rows(batch)).map_err(gone)
    };
    let failed =
        |error: arrow::error::ArrowError| Box::new(Diagnostic::internal(error.to_string()));
    let Some(rows) = rows else { return run.run_each(&mut |batch| send(batch)) };
    let mut begun: Option<BatchCoalescer> = None;
    let warnings = run.run_each(&mut |batch| {
        query::checkpoint().map_err(|cause| Box::new(Diagnostic::interrupted(cause.limit_ms())))?;
        let coalescer = begun.get_or_insert_with(|| BatchCoalescer::new(batch.schema(), rows));
        coalescer.push_batch(batch).map_err(failed)?;
        while let Some(whole) = coalescer.next_completed_batch() {
            send(whole)?;
        }
        Ok(())
    })?;
    let Some(mut coalescer) = begun else { return Ok(warnings) };
    coalescer.finish_buffered_batch().map_err(failed)?;
    while let Some(rest) = coalescer.next_completed_batch() {
        send(rest)?;
    }
    Ok(warnings)
}
