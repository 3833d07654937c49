//! The statements that define and remove objects: CREATE, ALTER, DROP.
//!
//! `statement` calls it.

use lockstep_diagnostic::{Diagnostic, Result, Span, code};

use crate::ast::{
    AlterTableAction, ColumnDefinition, ConnectorStatement, CreateFunction, CreateIndex,
    CreateLike, CreateProcedure, CreateTable, CreateView, Ident, IndexDefinition, Literal,
    ObjectName, OptionItem, OptionValue, ParameterDefinition, PrimaryKey, Query, Statement,
    StreamStatement, UserDefinition, ViewForm,
};
use crate::cursor::Parser;
use crate::elsewhere;
use crate::token::TokenKind;

/// An item between the parentheses of CREATE TABLE.
enum TableItem {
    Column(Box<ColumnDefinition>, Option<PrimaryKey>),
    Index(IndexDefinition),
    PrimaryKey(PrimaryKey),
}

/// The modifiers between CREATE and the kind of object.
struct Modifiers {
    or_replace: bool,
    temporary: bool,
}

impl Parser<'_> {
    pub(crate) fn create(&mut self) -> Result<Statement> {
        let start = self.start();
        self.expect_word("CREATE")?;
        let modifiers = self.peek().span();
        let or_replace = self.eat_words(&["OR", "REPLACE"]);
        let temporary = self.eat_word("TEMP") || self.eat_word("TEMPORARY");
        if self.eat_word("PROCEDURE") {
            return self.create_procedure(start, &Modifiers { or_replace, temporary });
        }
        if !temporary && self.eat_word("TABLE") {
            return self.create_table(or_replace);
        }
        if !temporary && self.eat_word("VIEW") {
            return self.create_view(or_replace);
        }
        if !temporary && self.eat_words(&["EXTERNAL", "TABLE"]) {
            return self.create_external_table(or_replace);
        }
        if or_replace || temporary {
            return self.refused_modifier(temporary, modifiers).err();
        }
        if self.eat_word("DATABASE") {
            let if_not_exists = self.if_not_exists();
            return Ok(Statement::CreateDatabase { name: self.ident()?, if_not_exists });
        }
        if self.eat_word("STREAM") {
            return self.create_stream();
        }
        if let Some(kind) = self.connector_kind() {
            return self.create_connector(kind);
        }
        if self.eat_word("INDEX") {
            return self.create_index();
        }
        if self.at_word("FUNCTION") || self.at_words(&["AGGREGATE", "FUNCTION"]) {
            return self.create_function();
        }
        match self.create_for_access()? {
            Some(created) => Ok(created),
            None => self.unexpected().err(),
        }
    }

    pub(crate) fn if_not_exists(&mut self) -> bool {
        self.eat_words(&["IF", "NOT", "EXISTS"])
    }

    fn if_exists(&mut self) -> bool {
        self.eat_words(&["IF", "EXISTS"])
    }

    /// Makes the error about OR REPLACE or TEMPORARY before an object that does not take it.
    fn refused_modifier(&self, temporary: bool, at: Span) -> Diagnostic {
        if temporary {
            let error = self.unsupported("a temporary object").at(at);
            return error
                .with_hint("Use CREATE TABLE, and DROP TABLE when the table is no longer needed.");
        }
        let error = self.unsupported("CREATE OR REPLACE for this kind of object").at(at);
        error.with_hint(
            "OR REPLACE is supported for tables, views and procedures, and in DEPLOY OR REPLACE.",
        )
    }

    /// Parses IF NOT EXISTS; an error beside OR REPLACE, which says the opposite.
    pub(crate) fn if_not_exists_without(&mut self, or_replace: bool) -> Result<bool> {
        let start = self.start();
        let if_not_exists = self.if_not_exists();
        if if_not_exists && or_replace {
            let message = "OR REPLACE and IF NOT EXISTS cannot be used together";
            let error = Diagnostic::new(code::SYNTAX_ERROR, message).at(self.span_from(start));
            return error.with_hint("Remove one of the two clauses.").err();
        }
        Ok(if_not_exists)
    }

    fn create_table(&mut self, or_replace: bool) -> Result<Statement> {
        let if_not_exists = self.if_not_exists_without(or_replace)?;
        let name = self.object_name()?;
        let mut columns = Vec::new();
        let mut indexes = Vec::new();
        let mut primary_keys = Vec::new();
        let mut like = None;
        if self.eat_word("LIKE") {
            like = Some(self.create_like()?);
        } else if self.eat_symbol("(") {
            for item in self.comma_list(Self::table_item)? {
                match item {
                    TableItem::Column(column, key) => {
                        columns.push(*column);
                        primary_keys.extend(key);
                    }
                    TableItem::Index(index) => indexes.push(index),
                    TableItem::PrimaryKey(key) => primary_keys.push(key),
                }
            }
            self.expect_symbol(")")?;
        }
        let options = self.options_clause("OPTIONS")?;
        let takes_query = columns.is_empty() && like.is_none() && self.eat_word("AS");
        let query = if takes_query { Some(self.query()?) } else { None };
        let table = CreateTable {
            name,
            or_replace,
            if_not_exists,
            columns,
            indexes,
            primary_keys,
            options,
            like,
            query,
        };
        Ok(Statement::CreateTable(Box::new(table)))
    }

    fn create_view(&mut self, or_replace: bool) -> Result<Statement> {
        let if_not_exists = self.if_not_exists_without(or_replace)?;
        let name = self.object_name()?;
        if self.at_symbol("(") {
            let hint = "Name the columns in the query, with AS.";
            return self.unexpected().with_hint(hint).err();
        }
        self.expect_word("AS")?;
        let query = self.query()?;
        let view = CreateView { name, or_replace, if_not_exists, form: ViewForm::View, query };
        Ok(Statement::CreateView(Box::new(view)))
    }

    /// Parses CREATE EXTERNAL TABLE behind TABLE: a view of all columns of files.
    fn create_external_table(&mut self, or_replace: bool) -> Result<Statement> {
        let if_not_exists = self.if_not_exists_without(or_replace)?;
        let name = self.object_name()?;
        if self.at_symbol("(") {
            let hint = "The columns are those in the files. Use CREATE VIEW with CAST to change \
                their names and types.";
            return self.unexpected().with_hint(hint).err();
        }
        let query = self.external_files()?;
        debug_assert!(query.span.start < query.span.end, "it is written behind the name");
        let view =
            CreateView { name, or_replace, if_not_exists, form: ViewForm::ExternalTable, query };
        Ok(Statement::CreateView(Box::new(view)))
    }

    fn create_like(&mut self) -> Result<CreateLike> {
        if !self.at_any_word(&["PARQUET", "HIVE"]) {
            return self.unexpected().with_hint("Write LIKE PARQUET 'path'.").err();
        }
        let format = self.ident()?.text.to_lowercase();
        let (path, span) = self.string()?;
        Ok(CreateLike { format, path, span })
    }

    fn table_item(&mut self) -> Result<TableItem> {
        if let Some(key) = self.primary_key()? {
            return Ok(TableItem::PrimaryKey(key));
        }
        self.reject_constraint()?;
        if self.at_word("INDEX") && self.nth_is_symbol(1, "(") {
            return self.index_definition().map(TableItem::Index);
        }
        // `index varchar(10)` is a column, `INDEX ix (a)` an index.
        let is_named_index = self.at_word("INDEX")
            && self.nth_is_symbol(2, "(")
            && self.peek_nth(3).kind != TokenKind::Number;
        if is_named_index {
            return self.named_index_definition().map(TableItem::Index);
        }
        let column = self.column_definition()?;
        let start = self.start();
        if !self.eat_words(&["PRIMARY", "KEY"]) {
            return Ok(TableItem::Column(Box::new(column), None));
        }
        let span = self.span_from(start);
        let key = primary_key_of(None, vec![column.name.clone()], span);
        let column = self.column_constraints(column)?;
        Ok(TableItem::Column(Box::new(column), Some(key)))
    }

    /// Parses `[CONSTRAINT name] PRIMARY KEY (a, b)`, if it is next. A column may be called `primary`.
    fn primary_key(&mut self) -> Result<Option<PrimaryKey>> {
        let named = if self.at_word("CONSTRAINT") { 2 } else { 0 };
        let is_key = self.nth_is_word(named, "PRIMARY")
            && self.nth_is_word(named + 1, "KEY")
            && self.nth_is_symbol(named + 2, "(");
        if !is_key {
            return Ok(None);
        }
        let start = self.start();
        let name = if self.eat_word("CONSTRAINT") { Some(self.ident()?) } else { None };
        self.eat_words(&["PRIMARY", "KEY"]);
        let columns = self.column_names()?;
        Ok(Some(primary_key_of(name, columns, self.span_from(start))))
    }

    /// Fails at a constraint of a table; a column may be called like the first word of one.
    fn reject_constraint(&self) -> Result<()> {
        const BEGINNINGS: &[&[&str]] = &[&["FOREIGN", "KEY"], &["UNIQUE"], &["CHECK"]];
        // `CONSTRAINT name UNIQUE (a)`.
        let named = if self.at_word("CONSTRAINT") { 2 } else { 0 };
        let begins = |words: &[&str]| {
            let is_next = |(at, word): (usize, &&str)| self.nth_is_word(named + at, word);
            words.iter().enumerate().all(is_next) && self.nth_is_symbol(named + words.len(), "(")
        };
        if !BEGINNINGS.iter().any(|words| begins(words)) {
            return Ok(());
        }
        self.unsupported("this table constraint").with_hint(elsewhere::CONSTRAINT).err()
    }

    fn index_definition(&mut self) -> Result<IndexDefinition> {
        let start = self.start();
        self.expect_word("INDEX")?;
        let options = self.option_list()?;
        let span = self.span_from(start);
        if options.is_empty() {
            let message = "an index requires a KEY or a TS";
            return Diagnostic::new(code::SYNTAX_ERROR, message).at(span).err();
        }
        Ok(IndexDefinition { name: None, options, span })
    }

    /// Parses `INDEX name (a, b) OPTIONS(…)`: the columns become the option `key`.
    fn named_index_definition(&mut self) -> Result<IndexDefinition> {
        let start = self.start();
        self.expect_word("INDEX")?;
        let name = self.ident()?;
        let columns_start = self.start();
        let columns = self.column_names()?;
        let span = self.span_from(columns_start);
        let words = columns.into_iter().map(|column| OptionValue::Word(column.text)).collect();
        let key = Ident { text: "key".to_owned(), span };
        let mut options = vec![OptionItem { key, value: OptionValue::List(words), span }];
        options.extend(self.options_clause("OPTIONS")?);
        Ok(IndexDefinition { name: Some(name), options, span: self.span_from(start) })
    }

    pub(crate) fn column_names(&mut self) -> Result<Vec<Ident>> {
        self.expect_symbol("(")?;
        let columns = self.comma_list(Self::ident)?;
        self.expect_symbol(")")?;
        Ok(columns)
    }

    fn column_definition(&mut self) -> Result<ColumnDefinition> {
        let name = self.ident()?;
        let data_type = self.type_name()?;
        let column = ColumnDefinition { name, data_type, not_null: false, default: None };
        self.column_constraints(column)
    }

    /// Parses NOT NULL, NULL and DEFAULT behind the type of a column.
    fn column_constraints(&mut self, mut column: ColumnDefinition) -> Result<ColumnDefinition> {
        let mut is_nullable = false;
        loop {
            let start = self.start();
            let is_repeated = if self.eat_words(&["NOT", "NULL"]) {
                std::mem::replace(&mut column.not_null, true) || is_nullable
            } else if self.eat_word("DEFAULT") {
                column.default.replace(self.expression()?).is_some()
            } else if self.eat_word("NULL") {
                std::mem::replace(&mut is_nullable, true) || column.not_null
            } else {
                return Ok(column);
            };
            if is_repeated {
                let name = &column.name.text;
                let message = format!(
                    "conflicting or redundant NULL, NOT NULL or DEFAULT for column `{name}`"
                );
                return Diagnostic::new(code::SYNTAX_ERROR, message)
                    .at(self.span_from(start))
                    .err();
            }
        }
    }

    fn create_index(&mut self) -> Result<Statement> {
        let name = self.ident()?;
        self.expect_word("ON")?;
        let table = self.object_name()?;
        let columns = self.column_names()?;
        let options = self.options_clause("OPTIONS")?;
        Ok(Statement::CreateIndex(Box::new(CreateIndex { name, table, columns, options })))
    }

    fn create_procedure(&mut self, start: usize, modifiers: &Modifiers) -> Result<Statement> {
        let if_not_exists = self.if_not_exists();
        let name = self.object_name()?;
        let parameters = self.parameter_list()?;
        let options = self.options_clause("OPTIONS")?;
        self.expect_word("BEGIN")?;
        let mut body: Vec<Query> = Vec::new();
        while !self.eat_word("END") {
            body.push(self.query()?);
            self.expect_symbol(";")?;
        }
        let span = self.span_from(start);
        let procedure = CreateProcedure {
            name,
            or_replace: modifiers.or_replace,
            temporary: modifiers.temporary,
            if_not_exists,
            parameters,
            options,
            body,
            span,
        };
        Ok(Statement::CreateProcedure(Box::new(procedure)))
    }

    fn create_function(&mut self) -> Result<Statement> {
        let aggregate = self.eat_word("AGGREGATE");
        self.expect_word("FUNCTION")?;
        let name = self.ident()?;
        let parameters = self.parameter_list()?;
        self.expect_word("RETURNS")?;
        let returns = self.type_name()?;
        let options = self.options_clause("OPTIONS")?;
        let function = CreateFunction { name, aggregate, parameters, returns, options };
        Ok(Statement::CreateFunction(Box::new(function)))
    }

    fn parameter_list(&mut self) -> Result<Vec<ParameterDefinition>> {
        self.expect_symbol("(")?;
        if self.eat_symbol(")") {
            return Ok(Vec::new());
        }
        let parameters = self.comma_list(|parser| {
            // A parameter may be called `const`; then its type follows, and nothing else.
            let third = parser.peek_nth(2);
            let is_name = matches!(third.kind, TokenKind::Word | TokenKind::Quoted)
                || parser.is_double_quoted(third);
            let constant = is_name && parser.eat_word("CONST");
            let name = parser.ident()?;
            let data_type = parser.type_name()?;
            Ok(ParameterDefinition { name, data_type, constant })
        })?;
        self.expect_symbol(")")?;
        Ok(parameters)
    }

    pub(crate) fn alter(&mut self) -> Result<Statement> {
        self.expect_word("ALTER")?;
        if self.eat_word("USER") {
            let conditional = self.if_exists();
            let name = self.user_name()?;
            // `ALTER USER u` changes nothing, as in OpenMLDB.
            let options = match self.eat_word("SET") {
                true => self.options_clause("OPTIONS")?,
                false => Vec::new(),
            };
            return Ok(Statement::AlterUser(UserDefinition { name, conditional, options }));
        }
        if self.eat_word("STREAM") {
            return self.alter_stream();
        }
        if let Some(kind) = self.connector_kind() {
            return self.alter_connector(kind);
        }
        self.expect_word("TABLE")?;
        let table = self.object_name()?;
        if self.at_word("SET") {
            let span = self.advance().span();
            let options = self.options_clause("OPTIONS")?;
            let actions = vec![AlterTableAction::SetOptions { options, span }];
            return Ok(Statement::AlterTable { table, actions });
        }
        let actions = self.comma_list(Self::alter_table_action)?;
        Ok(Statement::AlterTable { table, actions })
    }

    fn alter_table_action(&mut self) -> Result<AlterTableAction> {
        if self.eat_word("RENAME") {
            self.eat_word("COLUMN");
            let column = self.ident()?;
            if column.text.eq_ignore_ascii_case("to") && !self.at_word("TO") {
                let error = self.unsupported("renaming a table").at(column.span);
                let hint = "Use CREATE TABLE u AS SELECT * FROM t to copy its rows.";
                return error.with_hint(hint).err();
            }
            self.expect_word("TO")?;
            return Ok(AlterTableAction::RenameColumn { column, to: self.ident()? });
        }
        let add = self.eat_word("ADD");
        if !add {
            self.expect_word("DROP")?;
        }
        if self.at_word("OFFLINE_PATH") && self.peek_nth(1).kind == TokenKind::String {
            self.advance();
            let (path, span) = self.string()?;
            return Ok(AlterTableAction::OfflinePath { add, path, span });
        }
        if add {
            if let Some(key) = self.primary_key()? {
                return Ok(AlterTableAction::AddPrimaryKey(key));
            }
            self.reject_constraint()?;
        }
        self.eat_word("COLUMN");
        if add {
            let if_not_exists = self.if_not_exists();
            let column = Box::new(self.column_definition()?);
            return Ok(AlterTableAction::AddColumn { column, if_not_exists });
        }
        let if_exists = self.if_exists();
        Ok(AlterTableAction::DropColumn { column: self.ident()?, if_exists })
    }

    /// Reads CASCADE or RESTRICT, which is the default. Returns whether it is CASCADE.
    fn cascade(&mut self) -> bool {
        if self.eat_word("CASCADE") {
            return true;
        }
        self.eat_word("RESTRICT");
        false
    }

    pub(crate) fn drop_object(&mut self) -> Result<Statement> {
        self.expect_word("DROP")?;
        if self.eat_word("TABLE") {
            let if_exists = self.if_exists();
            let (names, cascade) = (self.comma_list(Self::object_name)?, self.cascade());
            return Ok(Statement::DropTable { names, if_exists, cascade });
        }
        if self.eat_word("VIEW") {
            let if_exists = self.if_exists();
            let (name, cascade) = (self.object_name()?, self.cascade());
            return Ok(Statement::DropView { name, if_exists, cascade });
        }
        if self.eat_word("STREAM") {
            let (if_exists, name) = (self.if_exists(), self.object_name()?);
            return Ok(Statement::Stream(StreamStatement::Drop { name, if_exists }));
        }
        if let Some(kind) = self.connector_kind() {
            let (if_exists, name) = (self.if_exists(), self.object_name()?);
            return Ok(Statement::Connector(ConnectorStatement::Drop { kind, name, if_exists }));
        }
        if self.eat_word("DATABASE") {
            let if_exists = self.if_exists();
            return Ok(Statement::DropDatabase { name: self.ident()?, if_exists });
        }
        if self.eat_word("DEPLOYMENT") {
            let if_exists = self.if_exists();
            return Ok(Statement::DropDeployment { name: self.object_name()?, if_exists });
        }
        if self.eat_word("PROCEDURE") {
            let if_exists = self.if_exists();
            return Ok(Statement::DropProcedure { name: self.object_name()?, if_exists });
        }
        if self.eat_word("FUNCTION") {
            let if_exists = self.if_exists();
            return Ok(Statement::DropFunction { name: self.ident()?, if_exists });
        }
        if let Some(dropped) = self.drop_for_access()? {
            return Ok(dropped);
        }
        self.expect_word("INDEX")?;
        self.drop_index()
    }

    /// Parses `DROP INDEX [db.]t.index`.
    fn drop_index(&mut self) -> Result<Statement> {
        let first = self.ident()?;
        self.expect_symbol(".")?;
        let second = self.any_ident()?;
        if !self.eat_symbol(".") {
            let table = ObjectName { database: None, name: first };
            return Ok(Statement::DropIndex { table, name: second });
        }
        let table = ObjectName { database: Some(first), name: second };
        Ok(Statement::DropIndex { table, name: self.any_ident()? })
    }
}
/// Makes the primary key with these columns.
fn primary_key_of(name: Option<Ident>, columns: Vec<Ident>, span: Span) -> PrimaryKey {
    debug_assert!(!columns.is_empty(), "a key has columns");
    let option = |key: &str, value: OptionValue| {
        let key = Ident { text: key.to_owned(), span };
        OptionItem { key, value, span }
    };
    let words = columns.iter().map(|column| OptionValue::Word(column.text.clone())).collect();
    let options = vec![
        option("key", OptionValue::List(words)),
        option("ttl", OptionValue::Literal(Literal::Int(1))),
        option("ttl_type", OptionValue::Word("latest".to_owned())),
    ];
    let name = name.unwrap_or_else(|| Ident { text: "primary_key".to_owned(), span });
    PrimaryKey { columns, index: IndexDefinition { name: Some(name), options, span } }
}
