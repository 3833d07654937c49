//! The work of a stream: a run over all rows of its tables, or one over the partitions that this process has claimed.

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_table::TailSignal;

use super::{Stream, StreamFigures, grouped::GroupedRun, run::WholeRun};
use crate::{
    Database,
    connector::GroupedSources,
    worker::{BackgroundWork, Retry, WorkStep, Worker},
};

/// A run of a stream.
pub(crate) enum StreamRun {
    Whole(Box<WholeRun>),
    Grouped(Box<GroupedRun>),
}

impl BackgroundWork for Stream {
    type Run = StreamRun;
    type Figures = StreamFigures;
    const IS_INTERRUPTED: bool = false;

    fn title(&self) -> String {
        format!("stream {}", self.name())
    }

    fn thread_name(&self) -> &'static str {
        "lockstep-stream"
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    fn worker(&self) -> &Worker<StreamFigures> {
        &self.worker
    }

    fn begin(&self, database: &Database) -> Result<StreamRun> {
        if !self.is_grouped {
            return Ok(StreamRun::Whole(Box::new(WholeRun::new(self, database)?)));
        }
        let sources = GroupedSources::of_tables(&database.objects(), &self.tables)?;
        match sources {
            Some(sources) => {
                let run = GroupedRun::new(self, database, &sources)?;
                Ok(StreamRun::Grouped(Box::new(run)))
            }
            None => {
                let message = "the sources of the stream's tables were dropped";
                let diagnostic = Diagnostic::new(code::UNDEFINED_OBJECT, message);
                diagnostic.with_kind(Kind::Retry).with_hint("Create them again.").err()
            }
        }
    }

    fn step(&self, run: &mut StreamRun, database: &Database) -> Result<WorkStep> {
        match run {
            StreamRun::Whole(run) => run.step(self, database),
            StreamRun::Grouped(run) => run.step(self, database),
        }
    }

    fn end(&self, run: &mut StreamRun, database: &Database) -> Result<()> {
        match run {
            StreamRun::Whole(run) => run.end(self, database),
            StreamRun::Grouped(run) => run.end(self, database),
        }
    }

    fn signal(run: &StreamRun) -> Option<&Arc<TailSignal>> {
        Some(match run {
            StreamRun::Whole(run) => run.signal(),
            StreamRun::Grouped(run) => run.signal(),
        })
    }

    fn after(&self, run: Option<&StreamRun>, error: &Diagnostic) -> Retry {
        match run {
            Some(StreamRun::Whole(run)) if run.is_tried_again(error) => Retry::SameRun,
            Some(StreamRun::Grouped(run)) if run.is_tried_again(error) => Retry::SameRun,
            _ if self.is_grouped
                && (error.kind == Kind::Retry || error.code == code::OUT_OF_MEMORY) =>
            {
                Retry::NewRun
            }
            _ => Retry::Never,
        }
    }
}
