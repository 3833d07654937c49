//! The work of a source or a sink.

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_sql::ast::ConnectorKind;
use lockstep_table::TailSignal;

use super::{Connector, sink::SinkRun, source::SourceRun};
use crate::{
    Database,
    worker::{BackgroundWork, Retry, WorkStep, Worker},
};

/// How far a source or a sink is.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectorFigures {
    /// The messages that it has read or written.
    pub(crate) messages: u64,
    /// Those that were no rows.
    pub(crate) bad: u64,
    /// Of a source: the messages that it has still to read. Of a sink: for how many milliseconds the oldest row waits that
    /// it has still to write.
    pub(crate) lag: u64,
}

/// A run of a source or a sink.
pub(crate) enum ConnectorRun {
    Source(Box<SourceRun>),
    Sink(Box<SinkRun>),
}

impl BackgroundWork for Connector {
    type Run = ConnectorRun;
    type Figures = ConnectorFigures;
    const IS_INTERRUPTED: bool = true;

    fn title(&self) -> String {
        format!("{} {}", self.definition.kind(), self.name())
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    fn worker(&self) -> &Worker<ConnectorFigures> {
        &self.worker
    }

    fn begin(&self, database: &Database) -> Result<ConnectorRun> {
        Ok(match self.kind {
            ConnectorKind::Source => ConnectorRun::Source(Box::new(SourceRun::new(self)?)),
            ConnectorKind::Sink => ConnectorRun::Sink(Box::new(SinkRun::new(self, database)?)),
        })
    }

    fn step(&self, run: &mut ConnectorRun, database: &Database) -> Result<WorkStep> {
        match run {
            ConnectorRun::Source(run) => run.step(self, database),
            ConnectorRun::Sink(run) => run.step(self, database),
        }
    }

    fn end(&self, _run: &mut ConnectorRun, _database: &Database) -> Result<()> {
        // Each step has stored what it did.
        Ok(())
    }

    fn signal(run: &ConnectorRun) -> Option<&Arc<TailSignal>> {
        match run {
            ConnectorRun::Source(_) => None,
            ConnectorRun::Sink(run) => Some(run.signal()),
        }
    }

    fn after(&self, run: Option<&ConnectorRun>, error: &Diagnostic) -> Retry {
        if error.kind != Kind::Retry && error.code != code::OUT_OF_MEMORY {
            return Retry::Never;
        }
        if run.is_some() { Retry::SameRun } else { Retry::NewRun }
    }
}
