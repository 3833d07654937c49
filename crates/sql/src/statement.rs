//! Statements: scripts, and every statement except CREATE, ALTER, DROP and queries.
//!
//! `lib` calls [`Parser::script`]. `definition` has CREATE, ALTER and DROP, `access` has users and
//! privileges, `query` has queries.

use lockstep_diagnostic::{Diagnostic, Result, code};

use crate::Parsed;
use crate::ast::{
    ConnectorKind, Deploy, Estimate, Ident, IgnoredRows, Insert, InsertRow, LoadData, Show,
    Statement, StreamStatement, VerifyAgainst,
};
use crate::cursor::Parser;
use crate::elsewhere;
use crate::token::TokenKind;

/// The forms of SHOW that are one or two words.
const SHOWN: &[(&[&str], Show)] = &[
    (&["DATABASES"], Show::Databases),
    (&["TABLES"], Show::Tables),
    (&["VIEWS"], Show::Views),
    (&["STREAMS"], Show::Streams),
    (&["SOURCES"], Show::Connectors(ConnectorKind::Source)),
    (&["SINKS"], Show::Connectors(ConnectorKind::Sink)),
    (&["DEPLOYMENTS"], Show::Deployments),
    (&["FUNCTIONS"], Show::Functions),
    (&["VARIABLES"], Show::Variables),
    (&["SESSION", "VARIABLES"], Show::Variables),
    (&["GLOBAL", "VARIABLES"], Show::GlobalVariables),
    (&["COMPONENTS"], Show::Components),
    (&["MEMORY"], Show::Memory),
    (&["PROCEDURES"], Show::Procedures),
    (&["PROCEDURE", "STATUS"], Show::Procedures),
    (&["CURRENT_USER"], Show::CurrentUser),
    (&["USERS"], Show::Users),
    (&["ROLES"], Show::Roles),
];

impl Parser<'_> {
    /// Parses statements with `;` between them.
    pub(crate) fn script(&mut self) -> Result<Vec<Parsed>> {
        let mut statements = Vec::new();
        loop {
            while self.eat_symbol(";") {}
            if self.at_end() {
                return Ok(statements);
            }
            self.parameters = 0;
            let start = self.start();
            let statement = self.statement()?;
            let parameter_count = self.parameters;
            statements.push(Parsed { statement, span: self.span_from(start), parameter_count });
            if !self.at_end() {
                self.expect_symbol(";")?;
            }
        }
    }

    fn statement(&mut self) -> Result<Statement> {
        if self.at_any_word(&["SELECT", "WITH"]) || self.at_symbol("(") {
            return self.top_level_query().map(|query| Statement::Query(Box::new(query)));
        }
        let token = self.peek();
        if token.kind != TokenKind::Word {
            return self.unexpected().err();
        }
        match self.text(token).to_ascii_uppercase().as_str() {
            "EXPLAIN" => self.explain(),
            "VERIFY" => self.verify(),
            "CREATE" => self.create(),
            "DROP" => self.drop_object(),
            "ALTER" => self.alter(),
            "USE" => {
                self.advance();
                self.ident().map(Statement::Use)
            }
            "INSERT" => self.insert(),
            "LOAD" => self.load_data(),
            "DEPLOY" => self.deploy(),
            "SHOW" => self.show(),
            "DESC" | "DESCRIBE" => {
                self.advance();
                self.object_name().map(Statement::Describe)
            }
            "ESTIMATE" => self.estimate(),
            "SET" => self.set(),
            "DELETE" => self.delete(),
            "TRUNCATE" => {
                self.advance();
                // `TRUNCATE t` is PostgreSQL's.
                let _ = self.eat_word("TABLE");
                self.comma_list(Self::object_name).map(Statement::Truncate)
            }
            "CALL" => self.call_procedure(false),
            "GRANT" | "REVOKE" => self.privileges(),
            "KILL" => self.kill(),
            "EXIT" | "QUIT" => {
                self.advance();
                Ok(Statement::Exit)
            }
            "CHECKPOINT" => {
                self.advance();
                Ok(Statement::Checkpoint)
            }
            "BACKUP" => {
                self.advance();
                self.expect_word("TO")?;
                let (path, span) = self.string()?;
                Ok(Statement::Backup { path, span })
            }
            "SUBSCRIBE" => self.subscribe(),
            "START" | "STOP" if self.nth_is_word(1, "SOURCE") || self.nth_is_word(1, "SINK") => {
                self.start_or_stop_connector()
            }
            "START" if self.nth_is_word(1, "STREAM") => self.start_stream(),
            "STOP" if self.nth_is_word(1, "STREAM") => self.stop_stream(),
            "STOP" | "CANCEL" => {
                self.advance();
                self.expect_word("JOB")?;
                self.job_id().map(Statement::StopJob)
            }
            word => match elsewhere::of_statement(word) {
                Some(hint) => self.unsupported(word).with_hint(hint).err(),
                None => self.unexpected().err(),
            },
        }
    }

    fn explain(&mut self) -> Result<Statement> {
        self.expect_word("EXPLAIN")?;
        let analyze = self.eat_word("ANALYZE");
        if analyze && self.at_word("CALL") {
            return self.call_procedure(true);
        }
        if !analyze && self.eat_word("STREAM") {
            let name = self.object_name()?;
            return Ok(Statement::Stream(StreamStatement::Explain(name)));
        }
        let _is_detailed = !analyze && (self.eat_word("LOGICAL") || self.eat_word("PHYSICAL"));
        self.top_level_query().map(|query| Statement::Explain { query: Box::new(query), analyze })
    }

    /// Parses `VERIFY DEPLOYMENT name [AGAINST ANSWERS] [OPTIONS(…)]`.
    fn verify(&mut self) -> Result<Statement> {
        self.expect_word("VERIFY")?;
        self.expect_word("DEPLOYMENT")?;
        let name = self.object_name()?;
        let against = if self.eat_word("AGAINST") {
            self.expect_word("ANSWERS")?;
            VerifyAgainst::Answers
        } else {
            VerifyAgainst::BatchMode
        };
        let options = self.options_clause("OPTIONS")?;
        Ok(Statement::VerifyDeployment { name, against, options })
    }

    fn insert(&mut self) -> Result<Statement> {
        self.expect_word("INSERT")?;
        let ignores_equal = self.eat_words(&["OR", "IGNORE"]) || self.eat_word("IGNORE");
        self.expect_word("INTO")?;
        let table = self.object_name()?;
        let mut columns = Vec::new();
        if self.eat_symbol("(") {
            columns = self.comma_list(Self::ident)?;
            self.expect_symbol(")")?;
        }
        let (mut rows, mut query) = (Vec::new(), None);
        if self.at_any_word(&["SELECT", "WITH"]) {
            query = Some(self.query()?);
        } else {
            if !self.eat_word("VALUES") {
                self.expect_word("VALUE")?;
            }
            rows = self.comma_list(Self::insert_row)?;
        }
        let ignored = match ignores_equal {
            true => IgnoredRows::Equal,
            false => self.on_conflict()?,
        };
        Ok(Statement::Insert(Box::new(Insert { table, ignored, columns, rows, query })))
    }

    /// Parses `[ON CONFLICT [(a, b)] DO NOTHING]`.
    fn on_conflict(&mut self) -> Result<IgnoredRows> {
        let is_target = self.nth_is_symbol(2, "(") || self.nth_is_word(2, "DO");
        if !is_target || !self.eat_words(&["ON", "CONFLICT"]) {
            return Ok(IgnoredRows::None);
        }
        let start = self.start();
        let columns = if self.at_symbol("(") { Some(self.column_names()?) } else { None };
        let span = self.span_from(start);
        debug_assert!(columns.as_ref().is_none_or(|names| !names.is_empty()), "a list has names");
        self.expect_word("DO")?;
        if self.at_word("UPDATE") {
            return self.unsupported("DO UPDATE").with_hint(elsewhere::DO_UPDATE).err();
        }
        self.expect_word("NOTHING")?;
        Ok(IgnoredRows::WithKeys { columns, span })
    }

    fn insert_row(&mut self) -> Result<InsertRow> {
        let start = self.start();
        self.expect_symbol("(")?;
        let values = self.comma_list(Self::expression)?;
        self.expect_symbol(")")?;
        Ok(InsertRow { values, span: self.span_from(start) })
    }

    fn load_data(&mut self) -> Result<Statement> {
        for word in ["LOAD", "DATA", "INFILE"] {
            self.expect_word(word)?;
        }
        let (path, path_span) = self.string()?;
        self.expect_word("INTO")?;
        self.expect_word("TABLE")?;
        let table = self.object_name()?;
        let options = self.options_clause("OPTIONS")?;
        let config = self.options_clause("CONFIG")?;
        Ok(Statement::LoadData(Box::new(LoadData { path, path_span, table, options, config })))
    }

    fn deploy(&mut self) -> Result<Statement> {
        self.expect_word("DEPLOY")?;
        let or_replace = self.eat_words(&["OR", "REPLACE"]);
        let if_not_exists = self.if_not_exists_without(or_replace)?;
        let name = self.object_name()?;
        let options = self.options_clause("OPTIONS")?;
        self.eat_word("AS");
        let query = self.top_level_query()?;
        if let Some(outfile) = &query.into_outfile {
            let message = "INTO OUTFILE is not allowed in a deployment";
            return Diagnostic::new(code::SYNTAX_ERROR, message)
                .with_hint("Use SELECT … INTO OUTFILE as a separate statement.")
                .at(outfile.span)
                .err();
        }
        if let Some(known_at) = &query.known_at {
            let message = "AS KNOWN AT is not allowed in a deployment";
            return Diagnostic::new(code::SYNTAX_ERROR, message)
                .with_hint(
                    "Use AS KNOWN AT in a separate SELECT; requests read all rows that have \
                     arrived.",
                )
                .at(known_at.span)
                .err();
        }
        let query_span = query.span;
        let deploy = Deploy { name, or_replace, if_not_exists, options, query, query_span };
        Ok(Statement::Deploy(Box::new(deploy)))
    }

    fn show(&mut self) -> Result<Statement> {
        self.expect_word("SHOW")?;
        if let Some((words, show)) = SHOWN.iter().find(|(words, _)| self.at_words(words)) {
            self.eat_words(words);
            return Ok(Statement::Show(show.clone()));
        }
        let show = if self.eat_words(&["CREATE", "TABLE"]) {
            Show::CreateTable(self.object_name()?)
        } else if self.eat_words(&["CREATE", "VIEW"]) {
            Show::CreateView(self.object_name()?)
        } else if self.eat_words(&["CREATE", "STREAM"]) {
            Show::CreateStream(self.object_name()?)
        } else if self.eat_words(&["CREATE", "SOURCE"]) {
            Show::CreateConnector(ConnectorKind::Source, self.object_name()?)
        } else if self.eat_words(&["CREATE", "SINK"]) {
            Show::CreateConnector(ConnectorKind::Sink, self.object_name()?)
        } else if self.eat_words(&["CREATE", "PROCEDURE"]) {
            Show::CreateProcedure(self.object_name()?)
        } else if self.eat_word("DEPLOYMENT") {
            Show::Deployment(self.object_name()?)
        } else if self.eat_words(&["TABLE", "STATUS"]) {
            Show::TableStatus(self.like_pattern()?)
        } else if self.at_words(&["INDEX", "FROM"]) || self.at_words(&["INDEXES", "FROM"]) {
            self.advance();
            self.advance();
            Show::Indexes(self.object_name()?)
        } else if self.eat_word("GRANTS") {
            Show::Grants(if self.eat_word("FOR") { Some(self.user_name()?) } else { None })
        } else if self.eat_word("TOKENS") {
            Show::Tokens(if self.eat_word("FOR") { Some(self.user_name()?) } else { None })
        } else if self.eat_word("JOBS") {
            let component =
                if self.eat_word("FROM") { Some(self.ident()?.text.to_lowercase()) } else { None };
            Show::Jobs { component, like: self.like_pattern()? }
        } else if self.eat_word("JOBLOG") {
            Show::JobLog(self.job_id()?)
        } else if self.eat_word("JOB") {
            Show::Job(self.job_id()?)
        } else {
            return self.unexpected().err();
        };
        Ok(Statement::Show(show))
    }

    /// Parses `ESTIMATE TABLE t ROWS n [KEYS n, …] [TEXT n]`.
    fn estimate(&mut self) -> Result<Statement> {
        self.expect_word("ESTIMATE")?;
        self.expect_word("TABLE")?;
        let table = self.object_name()?;
        let start = self.start();
        let rows = if self.eat_word("ROWS") { Some(self.count()?) } else { None };
        let mut keys = Vec::new();
        if self.eat_word("KEYS") {
            keys.push(self.count()?);
            while self.eat_symbol(",") {
                keys.push(self.count()?);
            }
        }
        let text_bytes = if self.eat_word("TEXT") { Some(self.count()?) } else { None };
        let span = self.span_from(start);
        Ok(Statement::Estimate(Box::new(Estimate { table, rows, keys, text_bytes, span })))
    }

    /// Parses a count, a number without suffix.
    pub(crate) fn count(&mut self) -> Result<u64> {
        let token = self.peek();
        let count = self.text(token).parse();
        match (token.kind, count) {
            (TokenKind::Number, Ok(count)) => {
                self.advance();
                Ok(count)
            }
            _ => self.unexpected().err(),
        }
    }

    /// Parses `[LIKE 'pattern']`.
    fn like_pattern(&mut self) -> Result<Option<String>> {
        if self.eat_word("LIKE") { self.string().map(|(text, _)| Some(text)) } else { Ok(None) }
    }

    /// Parses a job's number or name, which may have dashes: `JOB-11220021`.
    fn job_id(&mut self) -> Result<String> {
        let mut id = String::new();
        loop {
            let token = self.peek();
            if !matches!(token.kind, TokenKind::Word | TokenKind::Number) {
                return self.unexpected().err();
            }
            id.push_str(self.text(token));
            self.advance();
            if !self.eat_symbol("-") {
                return Ok(id);
            }
            id.push('-');
        }
    }

    /// Parses `SET [GLOBAL | SESSION] name = value`, `SET @@[global. | session.]name = value`.
    fn set(&mut self) -> Result<Statement> {
        self.expect_word("SET")?;
        let global;
        let mut name: Ident;
        if self.eat_symbol("@@") {
            global = self.at_word("GLOBAL") && self.nth_is_symbol(1, ".");
            name = self.any_ident()?;
            if (global || name.text.eq_ignore_ascii_case("session")) && self.eat_symbol(".") {
                name = self.any_ident()?;
            }
        } else {
            let is_scoped = !self.nth_is_symbol(1, "=");
            global = is_scoped && self.eat_word("GLOBAL");
            if is_scoped && !global {
                self.eat_word("SESSION");
            }
            name = self.ident()?;
        }
        name.text.make_ascii_lowercase();
        if !self.eat_word("TO") {
            self.expect_symbol("=")?;
        }
        let value = self.option_value()?;
        Ok(Statement::Set { name, value, global })
    }

    fn delete(&mut self) -> Result<Statement> {
        self.expect_word("DELETE")?;
        if self.eat_word("JOB") {
            return self.job_id().map(Statement::DeleteJob);
        }
        self.expect_word("FROM")?;
        let table = self.object_name()?;
        let filter = if self.eat_word("WHERE") { Some(Box::new(self.expression()?)) } else { None };
        Ok(Statement::Delete { table, filter })
    }

    fn call_procedure(&mut self, analyze: bool) -> Result<Statement> {
        self.expect_word("CALL")?;
        let name = self.object_name()?;
        self.expect_symbol("(")?;
        let arguments =
            if self.at_symbol(")") { Vec::new() } else { self.comma_list(Self::expression)? };
        self.expect_symbol(")")?;
        Ok(Statement::Call { name, arguments, analyze })
    }
}
