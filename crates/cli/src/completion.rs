//! What the Tab key completes: which kind of name fits at the cursor, and the names there are.
//!
//! Only the words around the cursor are looked at, since a statement that is being typed does not parse.
//! Called by the line editor.

use std::collections::BTreeSet;

use crate::{
    command::{COMMANDS, CommandArgument, spec_of},
    script::{ScriptToken, ScriptTokenKind, Tokens, is_of_word},
    shell_session::ShellSession,
};

/// The kind of name that fits at the cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CompletionPlace {
    /// None: inside quotes or a comment, or where no word has begun.
    Nothing,
    /// A command of the shell.
    Command,
    /// The name of a file.
    File,
    Table,
    Deployment,
    /// A column of this table.
    ColumnOf(String),
    /// A keyword, a function or any name.
    Word,
}

/// The words after which a table follows.
const BEFORE_TABLE: &[&str] = &["FROM", "JOIN", "INTO", "DESC", "DESCRIBE", "TABLE"];

/// The words that follow a table without AS and are no alias of it.
const NO_ALIAS: &[&str] = &[
    "WHERE", "GROUP", "ORDER", "LIMIT", "WINDOW", "LAST", "LEFT", "INNER", "CROSS", "JOIN", "ON",
    "UNION", "HAVING", "SELECT", "SET", "VALUES", "CONFIG", "OPTIONS",
];

/// Finds the kind of name at `position` of a text, and where the name begins.
pub(crate) fn place_at(text: &str, position: usize) -> (usize, CompletionPlace) {
    let head = &text[..position];
    let start = word_start(head);
    debug_assert!(start <= position, "a word ends at the cursor");
    if Tokens::new(head).last().is_some_and(|token| token.is_open) {
        return (position, CompletionPlace::Nothing);
    }
    let is_before = |token: &&ScriptToken| token.range.start < start;
    let statement = statement_at(text, position);
    if let Some(command) = statement.iter().find(|token| token.kind == ScriptTokenKind::Command) {
        return place_in_command(text, command.range.start, position);
    }
    let before: Vec<&str> =
        statement.iter().filter(is_before).map(|token| &text[token.range.clone()]).collect();
    let place = match before.as_slice() {
        [.., qualifier, "."] => {
            let all: Vec<&str> = statement.iter().map(|token| &text[token.range.clone()]).collect();
            CompletionPlace::ColumnOf(table_of(&all, qualifier))
        }
        [.., last] if BEFORE_TABLE.iter().any(|word| word.eq_ignore_ascii_case(last)) => {
            CompletionPlace::Table
        }
        [.., last] if last.eq_ignore_ascii_case("DEPLOYMENT") => CompletionPlace::Deployment,
        _ if start == position => CompletionPlace::Nothing,
        _ => CompletionPlace::Word,
    };
    (start, place)
}

/// Returns the names that fit at a place and begin with `start`, sorted. Those of files are not known
/// here.
pub(crate) fn names(place: &CompletionPlace, start: &str, session: &ShellSession) -> Vec<String> {
    let found = match place {
        CompletionPlace::Nothing | CompletionPlace::File => Vec::new(),
        CompletionPlace::Word => return session.complete(start),
        CompletionPlace::Command => {
            COMMANDS.iter().flat_map(|spec| spec.names).map(|name| (*name).to_owned()).collect()
        }
        CompletionPlace::Table => session.names("SHOW TABLES", 0),
        CompletionPlace::Deployment => session.names("SHOW DEPLOYMENTS", 1),
        CompletionPlace::ColumnOf(table) => session.names(&format!("DESC {table}"), 0),
    };
    let fits = |name: &String| {
        name.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start))
    };
    found.into_iter().filter(fits).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns the tokens, without blanks, of the statement or command that has the position.
fn statement_at(text: &str, position: usize) -> Vec<ScriptToken> {
    let mut found = Vec::new();
    for token in Tokens::new(text).filter(|token| token.kind != ScriptTokenKind::Blank) {
        let is_behind = token.range.start >= position;
        let is_end = token.kind == ScriptTokenKind::Semicolon;
        let is_command = token.kind == ScriptTokenKind::Command;
        match () {
            () if is_behind && (is_end || is_command) => break,
            () if is_end => found.clear(),
            () if is_command && token.range.end < position => found.clear(),
            () if is_command => found = vec![token],
            () => found.push(token),
        }
    }
    debug_assert!(
        found.iter().all(|token| token.kind != ScriptTokenKind::Semicolon),
        "it is one statement"
    );
    found
}

fn place_in_command(text: &str, start: usize, position: usize) -> (usize, CompletionPlace) {
    debug_assert!(start <= position, "the command has begun");
    let line = &text[start..position];
    let Some((name, argument)) = line.split_once(char::is_whitespace) else {
        return (start, CompletionPlace::Command);
    };
    let begun = argument.rsplit(char::is_whitespace).next().unwrap_or(argument);
    let place = match spec_of(name).map(|spec| spec.kind) {
        Some(CommandArgument::Table) => CompletionPlace::Table,
        Some(CommandArgument::Deployment) => CompletionPlace::Deployment,
        Some(CommandArgument::File) => CompletionPlace::File,
        Some(CommandArgument::Other) | None => CompletionPlace::Nothing,
    };
    (position - begun.len(), place)
}

/// Returns the table that a name before a dot stands for: itself, where it is no alias.
fn table_of(tokens: &[&str], qualifier: &str) -> String {
    debug_assert!(tokens.contains(&qualifier), "it is a word of the statement");
    let is_name = |token: &str| token.starts_with(|c| is_of_word(c) || c == '`');
    for (at, token) in tokens.iter().enumerate().skip(2) {
        if !token.eq_ignore_ascii_case(qualifier) {
            continue;
        }
        let end = if tokens[at - 1].eq_ignore_ascii_case("AS") { at - 1 } else { at };
        let is_word = !NO_ALIAS.iter().any(|word| word.eq_ignore_ascii_case(token));
        let Some([before, table]) = tokens[..end].last_chunk::<2>() else { continue };
        let is_source = |word: &str| {
            ["FROM", "JOIN", ",", "(", "UNION"].iter().any(|known| known.eq_ignore_ascii_case(word))
        };
        if is_word && is_name(table) && is_source(before) {
            return (*table).to_owned();
        }
        if let [.., before_database, database, ".", table] = &tokens[..end]
            && is_word
            && is_source(before_database)
        {
            return format!("{database}.{table}");
        }
    }
    qualifier.to_owned()
}

/// Returns the position at which the last word of a text begins.
fn word_start(text: &str) -> usize {
    text.len()
        - text.chars().rev().take_while(|c| is_of_word(*c)).map(char::len_utf8).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lockstep_engine::Database;

    use super::{CompletionPlace, names, place_at, word_start};
    use crate::shell_session::ShellSession;

    /// Checks the place at the `|` of a text.
    fn check(text: &str, expected: &CompletionPlace) {
        let position = text.find('|').unwrap();
        let text = text.replace('|', "");
        assert_eq!(&place_at(&text, position).1, expected, "{text}");
    }

    #[test]
    fn a_word_ends_at_what_is_no_letter_digit_or_underscore() {
        assert_eq!(word_start("SELECT top_n"), 7);
        assert_eq!(word_start("SELECT t.é1"), 9);
        assert_eq!(word_start("SELECT ("), 8);
        assert_eq!(word_start(""), 0);
    }

    #[test]
    fn the_word_before_tells_what_follows() {
        check("SELECT a FROM |", &CompletionPlace::Table);
        check("select a from b last join c|", &CompletionPlace::Table);
        check("INSERT INTO x|", &CompletionPlace::Table);
        check("desc |", &CompletionPlace::Table);
        check("DROP DEPLOYMENT d|", &CompletionPlace::Deployment);
        check("SHOW DEPLOYMENT |", &CompletionPlace::Deployment);
        check("SEL|", &CompletionPlace::Word);
        check("SELECT |", &CompletionPlace::Nothing);
        check("SELECT 1 FROM t; SEL|", &CompletionPlace::Word);
    }

    #[test]
    fn a_dot_asks_for_columns_of_a_table_or_of_an_alias() {
        let of = |table: &str| CompletionPlace::ColumnOf(table.to_owned());
        check("SELECT t.| FROM t", &of("t"));
        check("SELECT o.pri| FROM orders o", &of("orders"));
        check("SELECT o.| FROM orders AS o LAST JOIN users u ORDER BY u.at", &of("orders"));
        check("SELECT 1 FROM orders AS o LAST JOIN users u ORDER BY u.|", &of("users"));
        check("SELECT o.| FROM shop.orders o", &of("shop.orders"));
        check("SELECT 1 FROM a t; SELECT t.|", &of("t"));
    }

    #[test]
    fn nothing_fits_inside_quotes_and_comments() {
        for text in ["SELECT 'fr|", "SELECT 'a', \"SEL|", "-- SEL|", "/* SEL|", "SELECT `a|"] {
            check(text, &CompletionPlace::Nothing);
        }
        check("SELECT 'a', SEL|", &CompletionPlace::Word);
    }

    #[test]
    fn commands_and_what_follows_them() {
        check("\\d|", &CompletionPlace::Command);
        check(".ta|", &CompletionPlace::Command);
        check("SELECT 1;\n\\ti|", &CompletionPlace::Command);
        check("\\d t|", &CompletionPlace::Table);
        check("\\dd |", &CompletionPlace::Deployment);
        check("\\i scr|", &CompletionPlace::File);
        check("\\x o|", &CompletionPlace::Nothing);
        check("\\x\nSEL|", &CompletionPlace::Word);
        assert_eq!(place_at("\\i a/b.s", 8), (3, CompletionPlace::File));
    }

    #[test]
    fn names_are_those_of_the_catalog() {
        let session = Arc::new(Database::in_memory().session());
        session.execute("CREATE TABLE orders (price INT, pieces INT, user STRING)").unwrap();
        session.execute("CREATE TABLE users (k STRING)").unwrap();
        session.execute("DEPLOY cheap AS SELECT price FROM orders").unwrap();
        let session = ShellSession::Engine(session);
        let names = |place, start| names(&place, start, &session);
        assert_eq!(names(CompletionPlace::Table, ""), ["orders", "users"]);
        assert_eq!(names(CompletionPlace::Table, "OR"), ["orders"]);
        let column = || CompletionPlace::ColumnOf("orders".into());
        assert_eq!(names(column(), "p"), ["pieces", "price"]);
        assert!(names(CompletionPlace::ColumnOf("none".into()), "").is_empty());
        assert_eq!(names(CompletionPlace::Deployment, "c"), ["cheap"]);
        assert_eq!(names(CompletionPlace::Command, ".ti"), [".timer"]);
        assert!(names(CompletionPlace::Word, "sum_wh").contains(&"sum_where".to_owned()));
        assert!(names(CompletionPlace::Nothing, "s").is_empty());
    }
}
