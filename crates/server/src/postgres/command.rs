//! What a statement is: one that the protocol answers by itself, or one for the engine.

use lockstep_diagnostic::{Diagnostic, Result, code};

use super::{
    catalog::CatalogQuery, copy::CopyCommand, function_call::FunctionCall,
    information::InformationQuery, script::TokenCursor, translation::Translation,
};

/// A statement.
#[derive(Debug)]
pub(crate) enum ClientCommand {
    /// BEGIN, COMMIT, ROLLBACK and the like.
    Transaction(TransactionCommand),
    /// SET of one setting; `None` is its default.
    Set { name: String, value: Option<String> },
    /// SET that has no effect, such as SET TRANSACTION.
    SetNothing,
    /// RESET ALL.
    ResetAll,
    /// SHOW of a setting of PostgreSQL.
    Show(String),
    /// SHOW ALL.
    ShowAll,
    /// DISCARD ALL and its parts.
    Discard,
    /// DEALLOCATE; `None` is ALL.
    Deallocate(Option<String>),
    /// LISTEN, UNLISTEN, and what else has nothing to do.
    Nothing(&'static str),
    /// A SELECT of functions about the server and the session.
    Information(InformationQuery),
    /// A query of PostgreSQL's catalogs.
    Catalog(CatalogQuery),
    /// COPY.
    Copy(CopyCommand),
    /// A deployment called as a function.
    FunctionCall(FunctionCall),
    /// A statement of the engine.
    Engine(Translation),
}

/// A statement about transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransactionCommand {
    Begin,
    Commit,
    Rollback,
    Savepoint,
    Release,
    RollbackTo,
}

impl TransactionCommand {
    /// Returns what the client is told when it was done.
    pub(crate) fn tag(self) -> &'static str {
        match self {
            Self::Begin => "BEGIN",
            Self::Commit => "COMMIT",
            Self::Rollback | Self::RollbackTo => "ROLLBACK",
            Self::Savepoint => "SAVEPOINT",
            Self::Release => "RELEASE",
        }
    }
}

impl ClientCommand {
    /// Reads a statement.
    pub(crate) fn read(statement: TokenCursor<'_>) -> Result<Self> {
        if let Some(found) = Self::read_own(statement)? {
            return Ok(found);
        }
        if let Some(query) = InformationQuery::read(statement) {
            return Ok(Self::Information(query));
        }
        // Before calls of deployments: `SELECT * FROM unnest(current_schemas(true))`.
        if let Some(query) = CatalogQuery::read(statement)? {
            return Ok(Self::Catalog(query));
        }
        if let Some(call) = FunctionCall::read(statement)? {
            return Ok(Self::FunctionCall(call));
        }
        Translation::new(statement).map(Self::Engine)
    }

    /// Reads a statement that the protocol answers.
    fn read_own(mut statement: TokenCursor<'_>) -> Result<Option<Self>> {
        if let Some(found) = transaction(statement) {
            return Ok(Some(Self::Transaction(found)));
        }
        if statement.accept("SET") {
            return set(statement);
        }
        if statement.accept("RESET") {
            if statement.accept("ALL") {
                return Ok(Some(Self::ResetAll));
            }
            let name = setting_name(&mut statement);
            return Ok(name.map(|name| Self::Set { name, value: None }));
        }
        if statement.accept("SHOW") {
            return Ok(show(statement));
        }
        if statement.accept("DISCARD") {
            return Ok(Some(Self::Discard));
        }
        if statement.accept("DEALLOCATE") {
            statement.accept("PREPARE");
            if statement.accept("ALL") {
                return Ok(Some(Self::Deallocate(None)));
            }
            return Ok(statement.name().map(|name| Self::Deallocate(Some(name))));
        }
        for (word, tag) in [("LISTEN", "LISTEN"), ("UNLISTEN", "UNLISTEN"), ("NOTIFY", "NOTIFY")] {
            if statement.accept(word) {
                return Ok(Some(Self::Nothing(tag)));
            }
        }
        if statement.accept("COPY") {
            return CopyCommand::read(statement).map(|copy| Some(Self::Copy(copy)));
        }
        if statement.accept("DECLARE") || statement.accept("FETCH") {
            let message = "cursors of SQL are not supported";
            return Diagnostic::new(code::FEATURE_NOT_SUPPORTED, message)
                .with_hint("Portals of the extended protocol return rows in parts.")
                .err();
        }
        Ok(None)
    }

    /// Returns whether it may run after an error in a transaction block.
    pub(crate) fn ends_failure(&self) -> bool {
        matches!(
            self,
            Self::Transaction(
                TransactionCommand::Commit
                    | TransactionCommand::Rollback
                    | TransactionCommand::RollbackTo
            )
        )
    }
}

/// Reads a statement about transactions. A DEPLOY may begin with one of its words in no case.
fn transaction(mut statement: TokenCursor<'_>) -> Option<TransactionCommand> {
    use TransactionCommand::{Begin, Commit, Release, Rollback, RollbackTo, Savepoint};
    if statement.accept("BEGIN") || statement.accept_all(&["START", "TRANSACTION"]) {
        return Some(Begin);
    }
    if statement.accept("COMMIT") || statement.accept("END") {
        return Some(Commit);
    }
    if statement.accept("ROLLBACK") || statement.accept("ABORT") {
        let _noise = statement.accept("WORK") || statement.accept("TRANSACTION");
        return Some(if statement.accept("TO") { RollbackTo } else { Rollback });
    }
    if statement.accept("SAVEPOINT") {
        return Some(Savepoint);
    }
    statement.accept("RELEASE").then_some(Release)
}

/// Reads the name of a setting, which may have dots or be `TIME ZONE`.
fn setting_name(statement: &mut TokenCursor<'_>) -> Option<String> {
    if statement.accept_all(&["TIME", "ZONE"]) {
        return Some("timezone".to_owned());
    }
    if statement.accept_all(&["TRANSACTION", "ISOLATION", "LEVEL"]) {
        return Some("transaction_isolation".to_owned());
    }
    let mut name = statement.name()?;
    while statement.accept_symbol(".") {
        name.push('.');
        name.push_str(&statement.name()?);
    }
    Some(name)
}

/// Reads SET behind its first word; `None` where it is the engine's.
fn set(mut statement: TokenCursor<'_>) -> Result<Option<ClientCommand>> {
    let nothing = [
        &["TRANSACTION"][..],
        &["SESSION", "CHARACTERISTICS"],
        &["LOCAL", "TRANSACTION"],
        &["CONSTRAINTS"],
    ];
    if nothing.iter().any(|words| statement.accept_all(words)) {
        return Ok(Some(ClientCommand::SetNothing));
    }
    let is_engine = |statement: &TokenCursor<'_>| {
        statement.peek().is_some_and(|token| {
            token.is_word(statement.sql(), "GLOBAL") || token.is_symbol(statement.sql(), "@")
        })
    };
    if is_engine(&statement) {
        return Ok(None);
    }
    let _scope = statement.accept("SESSION") || statement.accept("LOCAL");
    if is_engine(&statement) {
        return Ok(None);
    }
    if statement.accept("NAMES") {
        let value = statement.string();
        return Ok(Some(ClientCommand::Set { name: "client_encoding".to_owned(), value }));
    }
    let is_zone = statement.accept_all(&["TIME", "ZONE"]);
    let name = if is_zone { Some("timezone".to_owned()) } else { setting_name(&mut statement) };
    let Some(name) = name else { return statement.syntax_error() };
    if !is_zone && !statement.accept_symbol("=") && !statement.accept("TO") {
        return statement.syntax_error();
    }
    let value = setting_value(&mut statement)?;
    Ok(Some(ClientCommand::Set { name, value }))
}

/// Reads the value of a setting: words, texts and numbers, with commas between them.
fn setting_value(statement: &mut TokenCursor<'_>) -> Result<Option<String>> {
    if statement.is_end() {
        return statement.syntax_error();
    }
    if statement.accept("DEFAULT") {
        return Ok(None);
    }
    let mut value = String::new();
    while let Some(token) = statement.peek() {
        if token.is_symbol(statement.sql(), ",") {
            value.push_str(", ");
        } else {
            if !value.is_empty() && !value.ends_with([' ', '-', '+']) {
                value.push(' ');
            }
            value.push_str(&super::token::unquoted(token, statement.sql()));
        }
        let _read = statement.next();
    }
    Ok(Some(value))
}

/// Reads SHOW behind its first word; `None` where it is the engine's.
fn show(mut statement: TokenCursor<'_>) -> Option<ClientCommand> {
    if statement.accept("ALL") && statement.is_end() {
        return Some(ClientCommand::ShowAll);
    }
    let name = setting_name(&mut statement)?;
    statement.is_end().then_some(ClientCommand::Show(name))
}

#[cfg(test)]
mod tests {
    use super::{ClientCommand, TransactionCommand};
    use crate::postgres::script::Script;

    fn read(sql: &str) -> ClientCommand {
        let script = Script::new(sql).unwrap();
        ClientCommand::read(script.statements().next().unwrap()).unwrap()
    }

    #[test]
    fn statements_of_the_protocol_are_told_from_those_of_the_engine() {
        let transaction = |sql: &str| match read(sql) {
            ClientCommand::Transaction(found) => found,
            other => panic!("{other:?}"),
        };
        assert_eq!(transaction("BEGIN ISOLATION LEVEL SERIALIZABLE"), TransactionCommand::Begin);
        assert_eq!(transaction("START TRANSACTION"), TransactionCommand::Begin);
        assert_eq!(transaction("rollback to savepoint a"), TransactionCommand::RollbackTo);
        assert_eq!(transaction("ABORT"), TransactionCommand::Rollback);
        for engine in
            ["SET GLOBAL max_memory = 1", "SET @@execute_mode = 'online'", "SELECT a FROM t"]
        {
            assert!(matches!(read(engine), ClientCommand::Engine(_)), "{engine}");
        }
    }

    #[test]
    fn settings_are_read() {
        let set = |sql: &str| match read(sql) {
            ClientCommand::Set { name, value } => (name, value),
            other => panic!("{other:?}"),
        };
        let pair = |name: &str, value: Option<&str>| (name.to_owned(), value.map(str::to_owned));
        assert_eq!(set("SET a.b TO 'x', y"), pair("a.b", Some("x, y")));
        assert_eq!(
            set("SET SESSION extra_float_digits = 3"),
            pair("extra_float_digits", Some("3"))
        );
        assert_eq!(set("SET TIME ZONE 'UTC'"), pair("timezone", Some("UTC")));
        assert_eq!(set("SET x TO DEFAULT"), pair("x", None));
        assert_eq!(set("RESET x"), pair("x", None));
        assert!(matches!(read("SET TRANSACTION READ ONLY"), ClientCommand::SetNothing));
        assert!(
            matches!(read("SHOW TRANSACTION ISOLATION LEVEL"), ClientCommand::Show(name) if name == "transaction_isolation")
        );
    }
}
