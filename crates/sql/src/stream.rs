//! The statements about streams.
//!
//! `statement` and `definition` call it.

use lockstep_diagnostic::Result;

use crate::ast::{CreateStream, Statement, StreamStatement};
use crate::cursor::Parser;

impl Parser<'_> {
    /// Parses CREATE STREAM behind STREAM.
    pub(crate) fn create_stream(&mut self) -> Result<Statement> {
        let if_not_exists = self.if_not_exists();
        let name = self.object_name()?;
        self.expect_word("INTO")?;
        self.expect_word("TABLE")?;
        let target = self.object_name()?;
        let options = self.options_clause("OPTIONS")?;
        self.expect_word("AS")?;
        let query = self.query()?;
        debug_assert!(query.span.start < query.span.end, "a query has a text");
        let stream = CreateStream { name, if_not_exists, target, options, query };
        Ok(Statement::Stream(StreamStatement::Create(Box::new(stream))))
    }

    /// Parses ALTER STREAM behind STREAM.
    pub(crate) fn alter_stream(&mut self) -> Result<Statement> {
        let name = self.object_name()?;
        self.expect_word("SET")?;
        self.expect_word("OPTIONS")?;
        let options = self.option_list()?;
        Ok(Statement::Stream(StreamStatement::Alter { name, options }))
    }

    pub(crate) fn start_stream(&mut self) -> Result<Statement> {
        self.expect_word("START")?;
        self.expect_word("STREAM")?;
        Ok(Statement::Stream(StreamStatement::Start(self.object_name()?)))
    }

    pub(crate) fn subscribe(&mut self) -> Result<Statement> {
        self.expect_word("SUBSCRIBE")?;
        self.expect_word("TO")?;
        let name = self.object_name()?;
        let options = self.options_clause("OPTIONS")?;
        Ok(Statement::Stream(StreamStatement::Subscribe { name, options }))
    }

    pub(crate) fn stop_stream(&mut self) -> Result<Statement> {
        self.expect_word("STOP")?;
        self.expect_word("STREAM")?;
        Ok(Statement::Stream(StreamStatement::Stop(self.object_name()?)))
    }
}
