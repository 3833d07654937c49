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
    Set { name: String, value: Option<String>, scope: SettingScope },
    /// SET TRANSACTION, and with the scope of the session SET SESSION CHARACTERISTICS.
    SetAccess { access: TransactionAccess, scope: SettingScope },
    /// SET that has no effect, such as SET CONSTRAINTS.
    SetNothing,
    /// RESET ALL.
    ResetAll,
    /// SHOW of a setting of PostgreSQL.
    Show(String),
    /// SHOW ALL.
    ShowAll,
    /// DISCARD ALL and its parts.
    Discard(Discarded),
    /// DEALLOCATE; `None` is ALL.
    Deallocate(Option<String>),
    /// CLOSE of a portal; `None` is ALL.
    Close(Option<String>),
    /// LISTEN, UNLISTEN, VACUUM, and what else has nothing to do.
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

/// For how long a setting is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SettingScope {
    /// Until it is set again.
    Session,
    /// Until the transaction block ends: SET LOCAL.
    Local,
}

/// What DISCARD forgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Discarded {
    All,
    /// Plans, sequences or temporary tables, which there are none of; the tag of the statement.
    Nothing(&'static str),
}

/// Whether the statements of a transaction may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransactionAccess {
    ReadOnly,
    ReadWrite,
}

/// Whether the end of a block begins another one: AND CHAIN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransactionChain {
    No,
    Chained,
}

/// A statement about transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransactionCommand {
    /// BEGIN; `None` is as `default_transaction_read_only` says.
    Begin(Option<TransactionAccess>),
    Commit(TransactionChain),
    Rollback(TransactionChain),
    Savepoint,
    Release,
    RollbackTo,
}

impl TransactionCommand {
    /// Returns what the client is told when it was done.
    pub(crate) fn tag(self) -> &'static str {
        match self {
            Self::Begin(_) => "BEGIN",
            Self::Commit(_) => "COMMIT",
            Self::Rollback(_) | Self::RollbackTo => "ROLLBACK",
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
        if let Some(found) = transaction(statement)? {
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
            let scope = SettingScope::Session;
            return Ok(name.map(|name| Self::Set { name, value: None, scope }));
        }
        if statement.accept("SHOW") {
            return Ok(show(statement));
        }
        if statement.accept("DISCARD") {
            return discarded(statement).map(|found| Some(Self::Discard(found)));
        }
        if statement.accept("DEALLOCATE") {
            statement.accept("PREPARE");
            if statement.accept("ALL") {
                return Ok(Some(Self::Deallocate(None)));
            }
            return Ok(statement.name().map(|name| Self::Deallocate(Some(name))));
        }
        if statement.accept("CLOSE") {
            return close(statement).map(Some);
        }
        // There is nothing to clean or to count.
        for tag in ["LISTEN", "UNLISTEN", "NOTIFY", "VACUUM", "ANALYZE"] {
            if statement.accept(tag) {
                return Ok(Some(Self::Nothing(tag)));
            }
        }
        if statement.accept("COPY") {
            return CopyCommand::read(statement).map(|copy| Some(Self::Copy(copy)));
        }
        if statement.accept("DECLARE") || statement.accept("FETCH") {
            let message = "SQL cursors are not supported";
            return Diagnostic::new(code::FEATURE_NOT_SUPPORTED, message)
                .with_hint("Use portals of the extended query protocol to fetch rows in parts.")
                .err();
        }
        Ok(None)
    }

    /// Returns whether it may run after an error in a transaction block.
    pub(crate) fn ends_failure(&self) -> bool {
        matches!(
            self,
            Self::Transaction(
                TransactionCommand::Commit(_)
                    | TransactionCommand::Rollback(_)
                    | TransactionCommand::RollbackTo
            )
        )
    }
}

/// Reads a statement about transactions. A DEPLOY may begin with one of its words in no case.
fn transaction(mut statement: TokenCursor<'_>) -> Result<Option<TransactionCommand>> {
    use TransactionCommand::{Begin, Commit, Release, Rollback, RollbackTo, Savepoint};
    if statement.accept("BEGIN") || statement.accept_all(&["START", "TRANSACTION"]) {
        return Ok(Some(Begin(access(statement))));
    }
    if statement.accept("COMMIT") || statement.accept("END") {
        let _noise = statement.accept("WORK") || statement.accept("TRANSACTION");
        return chain(statement).map(|chain| Some(Commit(chain)));
    }
    if statement.accept("ROLLBACK") || statement.accept("ABORT") {
        let _noise = statement.accept("WORK") || statement.accept("TRANSACTION");
        if statement.accept("TO") {
            return Ok(Some(RollbackTo));
        }
        return chain(statement).map(|chain| Some(Rollback(chain)));
    }
    if statement.accept("SAVEPOINT") {
        return Ok(Some(Savepoint));
    }
    Ok(statement.accept("RELEASE").then_some(Release))
}

/// Reads the modes of a transaction, of which READ ONLY and READ WRITE have an effect; the last one holds.
fn access(mut statement: TokenCursor<'_>) -> Option<TransactionAccess> {
    let mut found = None;
    while !statement.is_end() {
        if statement.accept_all(&["READ", "ONLY"]) {
            found = Some(TransactionAccess::ReadOnly);
        } else if statement.accept_all(&["READ", "WRITE"]) {
            found = Some(TransactionAccess::ReadWrite);
        } else {
            let _other = statement.next();
        }
    }
    found
}

/// Reads `AND CHAIN` and `AND NO CHAIN` at the end of a statement.
fn chain(mut statement: TokenCursor<'_>) -> Result<TransactionChain> {
    let chain = if statement.accept_all(&["AND", "CHAIN"]) {
        TransactionChain::Chained
    } else {
        let _noise = statement.accept_all(&["AND", "NO", "CHAIN"]);
        TransactionChain::No
    };
    if statement.is_end() { Ok(chain) } else { statement.syntax_error() }
}

/// Reads DISCARD behind its first word.
fn discarded(mut statement: TokenCursor<'_>) -> Result<Discarded> {
    let found = [
        ("ALL", Discarded::All),
        ("PLANS", Discarded::Nothing("DISCARD PLANS")),
        ("SEQUENCES", Discarded::Nothing("DISCARD SEQUENCES")),
        ("TEMP", Discarded::Nothing("DISCARD TEMP")),
        ("TEMPORARY", Discarded::Nothing("DISCARD TEMP")),
    ];
    let found = found.into_iter().find(|(word, _)| statement.accept(word));
    match found {
        Some((_, found)) if statement.is_end() => Ok(found),
        _ => statement.syntax_error(),
    }
}

/// Reads CLOSE behind its first word. A portal is what PostgreSQL's cursor is.
fn close(mut statement: TokenCursor<'_>) -> Result<ClientCommand> {
    let is_all = statement.accept("ALL");
    let name = if is_all { None } else { statement.name() };
    if !statement.is_end() || (name.is_none() && !is_all) {
        return statement.syntax_error();
    }
    Ok(ClientCommand::Close(name))
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
    let session = statement.accept_all(&["SESSION", "CHARACTERISTICS"]);
    if session || statement.accept_all(&["LOCAL", "TRANSACTION"]) || statement.accept("TRANSACTION")
    {
        let scope = if session { SettingScope::Session } else { SettingScope::Local };
        let found = access(statement);
        return Ok(Some(found.map_or(ClientCommand::SetNothing, |access| {
            ClientCommand::SetAccess { access, scope }
        })));
    }
    if statement.accept("CONSTRAINTS") {
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
    let scope = if statement.accept("LOCAL") {
        SettingScope::Local
    } else {
        let _noise = statement.accept("SESSION");
        SettingScope::Session
    };
    if is_engine(&statement) {
        return Ok(None);
    }
    if statement.accept("NAMES") {
        let value = statement.string();
        return Ok(Some(ClientCommand::Set { name: "client_encoding".to_owned(), value, scope }));
    }
    let is_zone = statement.accept_all(&["TIME", "ZONE"]);
    let name = if is_zone { Some("timezone".to_owned()) } else { setting_name(&mut statement) };
    let Some(name) = name else { return statement.syntax_error() };
    if !is_zone && !statement.accept_symbol("=") && !statement.accept("TO") {
        return statement.syntax_error();
    }
    let value = setting_value(&mut statement)?;
    Ok(Some(ClientCommand::Set { name, value, scope }))
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
    use super::{
        ClientCommand, SettingScope, TransactionAccess, TransactionChain, TransactionCommand,
    };
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
        use TransactionCommand::{Begin, Commit, Rollback};
        assert_eq!(transaction("BEGIN ISOLATION LEVEL SERIALIZABLE"), Begin(None));
        assert_eq!(transaction("START TRANSACTION"), Begin(None));
        let read_only = transaction("BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE");
        assert_eq!(read_only, Begin(Some(TransactionAccess::ReadOnly)));
        assert_eq!(transaction("COMMIT WORK AND CHAIN"), Commit(TransactionChain::Chained));
        assert_eq!(transaction("END AND NO CHAIN"), Commit(TransactionChain::No));
        assert_eq!(transaction("rollback to savepoint a"), TransactionCommand::RollbackTo);
        assert_eq!(transaction("ABORT"), Rollback(TransactionChain::No));
        for engine in
            ["SET GLOBAL max_memory = 1", "SET @@execute_mode = 'online'", "SELECT a FROM t"]
        {
            assert!(matches!(read(engine), ClientCommand::Engine(_)), "{engine}");
        }
    }

    #[test]
    fn settings_are_read() {
        let set = |sql: &str| match read(sql) {
            ClientCommand::Set { name, value, .. } => (name, value),
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
        let access = TransactionAccess::ReadOnly;
        for (sql, expected) in [
            ("SET TRANSACTION READ ONLY", SettingScope::Local),
            ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", SettingScope::Session),
        ] {
            assert!(
                matches!(read(sql), ClientCommand::SetAccess { access: found, scope } if found == access && scope == expected),
                "{sql}"
            );
        }
        let sql = "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE";
        assert!(matches!(read(sql), ClientCommand::SetNothing));
        let sql = "SET LOCAL statement_timeout = 1";
        assert!(matches!(read(sql), ClientCommand::Set { scope: SettingScope::Local, .. }));
        assert!(
            matches!(read("SHOW TRANSACTION ISOLATION LEVEL"), ClientCommand::Show(name) if name == "transaction_isolation")
        );
    }
}
