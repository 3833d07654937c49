//! COPY: rows from the client into a table, and rows of a query to the client.
//!
//! Rows from the client are stored in batches of some megabytes, so that memory is bounded. Each batch
//! is stored as a whole; where a later one fails, those before it stay, and the error says so. A cancel
//! request ends it at the next message of the client.

use std::{sync::Arc, time::Duration};

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_engine::{Output, Session, guarded, is_subscription};
use lockstep_function::Zone;
use lockstep_host::QueryContext;
use lockstep_row::Datum;

use super::{
    ClientFailure,
    connection::Connection,
    copy::{
        BinaryWriter, CopyCommand, CopyFormat, CopyHeader, CopyInput, CopyOptions, CopyTarget,
        TextWriter,
    },
    frame::FrameError,
    message::violation,
    response::{ResultColumn, Severity, bare, command_complete, message, report},
    rows::{RowCursor, SendMore},
    transaction::read_only,
    translation::Translation,
    value_input::text_of,
};
use crate::{append_columns::append_columns, work_pool::WorkClass};

impl Connection {
    /// Runs a COPY and writes its end.
    pub(crate) async fn copy(&mut self, copy: &CopyCommand) -> Result<(), ClientFailure> {
        let count = match copy {
            CopyCommand::From(target) => {
                let stored = self.copy_from(target).await?;
                if let Some(trace) = self.trace() {
                    trace.set_number("lockstep.rows", stored);
                }
                stored
            }
            CopyCommand::To { query, options } => self.copy_to(query, options).await?,
        };
        command_complete(&mut self.frames.output, &format!("COPY {count}"));
        Ok(())
    }

    /// Stores the rows of the client.
    async fn copy_from(&mut self, target: &CopyTarget) -> Result<u64, ClientFailure> {
        if self.is_read_only() {
            return Ok(read_only("COPY FROM")?);
        }
        let columns = guarded(|| append_columns(&self.session, &target.table))
            .map_err(|error| Box::new(error.at(target.span)))?;
        let mut input = CopyInput::new(target, &columns, self.input_rules())?;
        copy_response(&mut self.frames.output, b'G', target.options.format, input.column_count());
        self.frames.flush().await?;
        let mut stored = 0;
        let (context, session) = (QueryContext::new(), Arc::clone(&self.session));
        let guard = self.running.begin(&context);
        let text = format!("COPY {} FROM STDIN", target.table);
        let listed = session.list_call(&context, &text);
        let done = self.copy_rows(target, &mut input, &context, &mut stored).await;
        drop((listed, guard));
        match done {
            Err(ClientFailure::Error(mut error)) if stored > 0 => {
                let kept = format!("The {stored} preceding rows were stored.");
                error.detail = Some(match error.detail.take() {
                    Some(detail) => format!("{detail}. {kept}"),
                    None => kept,
                });
                Err(ClientFailure::Error(error))
            }
            other => other.map(|()| stored),
        }
    }

    async fn copy_rows(
        &mut self,
        target: &CopyTarget,
        input: &mut CopyInput,
        context: &QueryContext,
        stored: &mut u64,
    ) -> Result<(), ClientFailure> {
        let mut is_end = false;
        while !is_end {
            let settings = self.state.settings();
            let (limit, pause) = (settings.body_bytes_max, settings.body_timeout_ms);
            let pause = Duration::from_millis(pause);
            let frame = self.frames.read_frame_within(limit, pause).await?;
            // A client that has cancelled sends what it has begun to send.
            if matches!(frame.kind, b'd' | b'c')
                && let Err(reason) = context.check()
            {
                return Ok(Diagnostic::interrupted(reason.limit_ms()).err()?);
            }
            match frame.kind {
                b'd' => guarded(|| input.push(&frame.body, limit))?,
                b'c' => {
                    guarded(|| input.finish())?;
                    is_end = true;
                }
                b'f' => {
                    let reason = text_of(frame.body.strip_suffix(b"\0").unwrap_or(&frame.body))?;
                    let message = format!("COPY from stdin failed: {reason}");
                    return Ok(Diagnostic::new(code::QUERY_CANCELED, message).err()?);
                }
                // A client of the extended protocol may have sent them already.
                b'H' | b'S' => {}
                b'X' => return Err(FrameError::Closed.into()),
                kind => {
                    return Ok(violation(format!("unexpected message type {kind} during COPY"))?);
                }
            }
            if let Some(batch) = input.take_batch()? {
                let table = target.table.clone();
                let append = move |session: &Session| session.append_batches(&table, &[batch]);
                let output = self.run_in_pool(WorkClass::Writes, append).await?;
                *stored += output.rows_affected.unwrap_or(0);
                self.transaction.note_write();
                for warning in &output.warnings {
                    report(&mut self.frames.output, Severity::Warning, warning, None);
                }
            }
        }
        Ok(())
    }

    /// Sends the rows of a query.
    async fn copy_to(
        &mut self,
        query: &Translation,
        options: &CopyOptions,
    ) -> Result<u64, ClientFailure> {
        if is_subscription(&query.sql) {
            return self.copy_subscription(query, options).await;
        }
        let sql = query.sql.clone();
        let run = move |session: &Session| -> Result<Output> { session.query(&sql)?.collect(None) };
        let output = self.run_in_pool(WorkClass::Analytics, run).await;
        let output = output.map_err(|failure| failure.placed(query))?;
        let begun_ns = self.state.clock.monotonic_ns();
        let mut rows = RowCursor::of_output(output);
        let columns = Arc::clone(&rows.columns);
        let mut writer = CopyWriter::begin(options, &columns, self.zone(), &mut self.frames.output);
        self.copy_rows_to(&mut writer, &mut rows).await?;
        writer.end(&mut self.frames.output);
        self.trace_rows(begun_ns, rows.sent);
        Ok(rows.sent)
    }

    /// Sends rows as a COPY.
    pub(crate) async fn copy_rows_to(
        &mut self,
        writer: &mut CopyWriter<'_>,
        rows: &mut RowCursor,
    ) -> Result<(), ClientFailure> {
        while !rows.is_end() {
            let out = &mut self.frames.output;
            rows.send(|row| {
                writer.row(row, out)?;
                let is_full = out.len() >= super::frame::OUTPUT_BYTES;
                Ok(if is_full { SendMore::No } else { SendMore::Yes })
            })?;
            self.frames.flush_full().await?;
        }
        Ok(())
    }
}

/// Writes the rows of a COPY to the client.
pub(crate) struct CopyWriter<'c> {
    is_binary: bool,
    text: TextWriter<'c>,
    binary: BinaryWriter<'c>,
    /// What comes before the next row.
    head: Vec<u8>,
}

impl<'c> CopyWriter<'c> {
    /// Writes that rows come, and what is before the first one.
    pub(crate) fn begin(
        options: &'c CopyOptions,
        columns: &'c [ResultColumn],
        zone: Zone,
        out: &mut Vec<u8>,
    ) -> Self {
        copy_response(out, b'H', options.format, columns.len());
        let types: Vec<_> = columns.iter().map(|column| &column.data_type).collect();
        let text = TextWriter::new(options, types.clone(), zone);
        let binary = BinaryWriter::new(types, zone);
        let is_binary = options.format == CopyFormat::Binary;
        let mut head = Vec::new();
        if is_binary {
            binary.head(&mut head);
        } else if options.header != CopyHeader::No {
            let names = columns.iter().map(|column| column.name.as_str());
            message(out, b'd', |out| text.header(out, names));
        }
        Self { is_binary, text, binary, head }
    }

    fn row(&mut self, row: &[Datum<'_>], out: &mut Vec<u8>) -> Result<()> {
        let mut body = std::mem::take(&mut self.head);
        if self.is_binary {
            self.binary.row(&mut body, row)?;
        } else {
            self.text.row(&mut body, row);
        }
        message(out, b'd', |out| out.extend_from_slice(&body));
        Ok(())
    }

    /// Writes what is behind the last row.
    fn end(mut self, out: &mut Vec<u8>) {
        if self.is_binary {
            self.binary.end(&mut self.head);
            message(out, b'd', |out| out.extend_from_slice(&self.head));
        }
        bare(out, b'c');
    }
}

/// Writes that rows may come, or will.
fn copy_response(out: &mut Vec<u8>, kind: u8, format: CopyFormat, columns: usize) {
    let is_binary = format == CopyFormat::Binary;
    message(out, kind, |out| {
        out.push(is_binary.into());
        out.extend_from_slice(&u16::try_from(columns).unwrap_or(u16::MAX).to_be_bytes());
        for _ in 0..columns {
            out.extend_from_slice(&u16::from(is_binary).to_be_bytes());
        }
    });
}
