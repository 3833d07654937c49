//! The work of a source or a sink.

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_host::QueryContext;
use lockstep_sql::ast::ConnectorKind;
use lockstep_table::TailSignal;

use super::{
    Connector,
    options::SystemOptions,
    sink::{files::FileSinkRun, topic::TopicSinkRun},
    source::{SourceRun, files::FileInput, topic::TopicInput},
};
use crate::{
    Database,
    worker::{BackgroundWork, Retry, WorkStep, Worker},
};

/// How far a source or a sink is.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectorFigures {
    /// The messages, or the rows of files, that it has read or written.
    pub(crate) messages: u64,
    /// Those that were no rows.
    pub(crate) bad: u64,
    /// Of a source: the messages or files that it has still to read. Of a sink: for how many milliseconds the oldest row
    /// waits that it has still to write.
    pub(crate) lag: u64,
}

/// A run of a source or a sink.
pub(crate) enum ConnectorRun {
    OfTopic(Box<SourceRun<TopicInput>>),
    OfFiles(Box<SourceRun<FileInput>>),
    IntoTopic(Box<TopicSinkRun>),
    IntoFiles(Box<FileSinkRun>),
}

/// The errors of files that may pass.
const OF_FILES_THAT_MAY_PASS: [&str; 4] =
    [code::IO_ERROR, code::UNDEFINED_FILE, code::INSUFFICIENT_PRIVILEGE, code::DISK_FULL];

impl Connector {
    /// Opens files as whoever has made it may.
    fn opening_files<T>(&self, database: &Database, work: impl FnOnce() -> T) -> T {
        match self.is_of_user {
            true => QueryContext::opening(database.file_folders().access()).run(work),
            false => work(),
        }
    }

    fn begin_run(&self, database: &Database) -> Result<ConnectorRun> {
        use ConnectorKind::{Sink, Source};
        Ok(match (&self.options.system, self.kind) {
            (SystemOptions::Kafka(options), Source) => {
                let stored = self.progress.read()?.unwrap_or_default();
                let input = TopicInput::open(self, options, &stored, database.groups())?;
                ConnectorRun::OfTopic(Box::new(SourceRun::new(input, stored)))
            }
            (SystemOptions::Files(options), Source) => {
                let stored = self.progress.read()?.unwrap_or_default();
                let input = FileInput::open(self, options, &stored)?;
                ConnectorRun::OfFiles(Box::new(SourceRun::new(input, stored)))
            }
            (SystemOptions::Kafka(options), Sink) => {
                ConnectorRun::IntoTopic(Box::new(TopicSinkRun::new(self, options, database)?))
            }
            (SystemOptions::Files(options), Sink) => {
                ConnectorRun::IntoFiles(Box::new(FileSinkRun::new(self, options, database)?))
            }
        })
    }
}

impl BackgroundWork for Connector {
    type Run = ConnectorRun;
    type Figures = ConnectorFigures;
    const IS_INTERRUPTED: bool = true;

    fn title(&self) -> String {
        format!("{} {}", self.definition.kind(), self.name())
    }

    fn thread_name(&self) -> &'static str {
        match self.kind {
            ConnectorKind::Source => "lockstep-source",
            ConnectorKind::Sink => "lockstep-sink",
        }
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    fn worker(&self) -> &Worker<ConnectorFigures> {
        &self.worker
    }

    fn begin(&self, database: &Database) -> Result<ConnectorRun> {
        self.opening_files(database, || self.begin_run(database))
    }

    fn step(&self, run: &mut ConnectorRun, database: &Database) -> Result<WorkStep> {
        self.opening_files(database, || match run {
            ConnectorRun::OfTopic(run) => run.step(self, database),
            ConnectorRun::OfFiles(run) => run.step(self, database),
            ConnectorRun::IntoTopic(run) => run.step(self, database),
            ConnectorRun::IntoFiles(run) => run.step(self, database),
        })
    }

    fn end(&self, run: &mut ConnectorRun, database: &Database) -> Result<()> {
        match run {
            ConnectorRun::IntoFiles(run) => {
                self.opening_files(database, || run.end(self, database))
            }
            // Each step has stored what it did.
            _ => Ok(()),
        }
    }

    fn signal(run: &ConnectorRun) -> Option<&Arc<TailSignal>> {
        match run {
            ConnectorRun::OfTopic(_) | ConnectorRun::OfFiles(_) => None,
            ConnectorRun::IntoTopic(run) => Some(run.signal()),
            ConnectorRun::IntoFiles(run) => Some(run.signal()),
        }
    }

    fn after(&self, run: Option<&ConnectorRun>, error: &Diagnostic) -> Retry {
        let is_of_files = matches!(self.options.system, SystemOptions::Files(_));
        let may_pass = error.kind == Kind::Retry
            || error.code == code::OUT_OF_MEMORY
            || is_of_files
                && error.kind != Kind::FixData
                && OF_FILES_THAT_MAY_PASS.contains(&error.code);
        if !may_pass {
            return Retry::Never;
        }
        if run.is_some() { Retry::SameRun } else { Retry::NewRun }
    }
}
