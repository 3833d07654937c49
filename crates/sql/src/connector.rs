//! The statements about sources and sinks.
//!
//! `statement` and `definition` call it.

use lockstep_diagnostic::Result;

use crate::ast::{ConnectorKind, ConnectorStatement, ConnectorSystem, CreateConnector, Statement};
use crate::cursor::Parser;

impl Parser<'_> {
    /// Parses SOURCE or SINK; `None` at another word.
    pub(crate) fn connector_kind(&mut self) -> Option<ConnectorKind> {
        if self.eat_word("SOURCE") {
            return Some(ConnectorKind::Source);
        }
        self.eat_word("SINK").then_some(ConnectorKind::Sink)
    }

    /// Parses CREATE SOURCE or CREATE SINK behind its second word.
    pub(crate) fn create_connector(&mut self, kind: ConnectorKind) -> Result<Statement> {
        let if_not_exists = self.if_not_exists();
        let name = self.object_name()?;
        let (is_stream, rows) = match kind {
            ConnectorKind::Source => {
                self.expect_word("INTO")?;
                self.expect_word("TABLE")?;
                let table = self.object_name()?;
                self.expect_word("FROM")?;
                (false, table)
            }
            ConnectorKind::Sink => {
                self.expect_word("FROM")?;
                let is_stream = self.eat_word("STREAM");
                if !is_stream {
                    self.expect_word("TABLE")?;
                }
                let rows = self.object_name()?;
                self.expect_word("INTO")?;
                (is_stream, rows)
            }
        };
        let system = match self.eat_word("FILES") {
            true => ConnectorSystem::Files,
            false => {
                self.expect_word("KAFKA")?;
                ConnectorSystem::Kafka
            }
        };
        let options = self.options_clause("OPTIONS")?;
        let created =
            CreateConnector { kind, name, if_not_exists, rows, is_stream, system, options };
        Ok(Statement::Connector(ConnectorStatement::Create(Box::new(created))))
    }

    /// Parses ALTER SOURCE or ALTER SINK behind its second word.
    pub(crate) fn alter_connector(&mut self, kind: ConnectorKind) -> Result<Statement> {
        let name = self.object_name()?;
        self.expect_word("SET")?;
        self.expect_word("OPTIONS")?;
        let options = self.option_list()?;
        Ok(Statement::Connector(ConnectorStatement::Alter { kind, name, options }))
    }

    /// Parses START or STOP of a source or a sink.
    pub(crate) fn start_or_stop_connector(&mut self) -> Result<Statement> {
        let is_start = self.eat_word("START");
        if !is_start {
            self.expect_word("STOP")?;
        }
        let Some(kind) = self.connector_kind() else { return self.unexpected().err() };
        let name = self.object_name()?;
        Ok(Statement::Connector(match is_start {
            true => ConnectorStatement::Start(kind, name),
            false => ConnectorStatement::Stop(kind, name),
        }))
    }
}
