//! The page of the statements, `docs/reference/statements.md`.

use std::fmt::{Arguments, Write as _};

use super::{
    Notation, OptionList, RULES, RuleChapter, STATEMENTS, SharedRule, StatementChapter,
    StatementRule, TOKENS,
};
use crate::keyword;

const INTRODUCTION: &str = "\
# SQL statements

<!-- Written by `cargo xtask reference` from crates/sql/src/grammar. -->

This page describes the syntax, the options and the required privileges of each statement.
The tests generate thousands of statements from this grammar and check that the parser accepts them, and that the grammar accepts the statements of the tests and of the guide.

Keywords are case-insensitive; names of tables and columns are case-sensitive.
A script is a list of statements separated by `;`. Each statement takes effect completely or not at all; transactions of several statements are not supported.
A comment starts with `--` or `#` and extends to the end of the line, or is enclosed in `/*` and `*/`.
A program that opens a database in its own process needs no privileges; users of a server do ([Users](../guide/users.md)).

In the grammar, words in upper case are keywords, words in lower case are [rules](#rules-of-queries), and double quotes enclose literal characters.
`[ x ]` is optional, `{ x }` is repeated zero or more times, and `x | y` is a choice.
";

const KEYWORDS: &str = "
## Keywords

Most keywords can be used as names wherever no clause can start with them.
Reserved words can be used as names only in back-quotes or after a dot:
";

const NO_ALIASES: &str = "
The following keywords can be used as names, but not as aliases without `AS`, because they can follow a table or a select item:
";

/// The rules that SELECT shows itself, since its clauses are in them.
const OF_SELECT: &[&str] =
    &["query_statement", "query", "query_operand", "simple_select", "query_rest"];

/// Writes the page from the rules.
///
/// ```
/// assert!(lockstep_sql::grammar::reference().contains("### DEPLOY\n"));
/// ```
pub fn reference() -> String {
    let mut page = String::from(INTRODUCTION);
    page.push('\n');
    for chapter in STATEMENTS {
        let links: Vec<String> = chapter.rules.iter().map(|rule| link(rule.name)).collect();
        push(&mut page, format_args!("- {}: {}\n", chapter.title, links.join(", ")));
    }
    let rules: Vec<String> = RULES.iter().map(|chapter| link(chapter.title)).collect();
    push(
        &mut page,
        format_args!("- Rules: {}, {}, {}\n", rules.join(", "), link("Tokens"), link("Keywords")),
    );
    STATEMENTS.iter().for_each(|chapter| push_statements(&mut page, chapter));
    RULES.iter().for_each(|chapter| push_rules(&mut page, chapter));
    push_tokens(&mut page);
    page.push_str(KEYWORDS);
    push_words(&mut page, keyword::reserved());
    page.push_str(NO_ALIASES);
    push_words(&mut page, keyword::no_aliases());
    page
}

fn push_statements(page: &mut String, chapter: &StatementChapter) {
    push(page, format_args!("\n## {}\n", chapter.title));
    chapter.rules.iter().for_each(|rule| push_statement(page, rule));
}

fn push_statement(page: &mut String, rule: &StatementRule) {
    push(page, format_args!("\n### {}\n\n{}\n", rule.name, sentences(rule.description)));
    push(page, format_args!("\n```text\n{}\n```\n", shown_grammar(rule)));
    let links: Vec<String> = shown_rules(rule).into_iter().map(rule_link).collect();
    if !links.is_empty() {
        push(page, format_args!("\nRules: {}.\n", links.join(", ")));
    }
    if !rule.privileges.is_empty() {
        push(page, format_args!("\nPrivileges: {}\n", sentences(rule.privileges)));
    }
    rule.options.iter().for_each(|list| push_options(page, list));
    for example in rule.examples {
        push(page, format_args!("\n```sql\n{example};\n```\n"));
    }
}

/// Returns the grammar of a statement; that of SELECT with the rules that have its clauses.
fn shown_grammar(rule: &StatementRule) -> String {
    if !is_select(rule) {
        return rule.grammar.to_owned();
    }
    let definitions = of_select().map(|rule| {
        let grammar = rule.grammar.replace('\n', "\n    ");
        format!("{} =\n    {grammar}", rule.name)
    });
    definitions.collect::<Vec<_>>().join("\n\n")
}

/// Returns the rules that the grammar of a statement names, as far as it does not show them.
fn shown_rules(rule: &StatementRule) -> Vec<&'static str> {
    let named = |text| Notation::parse(text).map(|grammar| grammar.rules()).unwrap_or_default();
    if !is_select(rule) {
        return named(rule.grammar);
    }
    let mut names = Vec::new();
    for name in of_select().flat_map(|rule| named(rule.grammar)) {
        if !names.contains(&name) && !OF_SELECT.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn is_select(rule: &StatementRule) -> bool {
    OF_SELECT.contains(&rule.grammar)
}

fn of_select() -> impl Iterator<Item = &'static SharedRule> {
    let shared = || RULES.iter().flat_map(|chapter| chapter.rules);
    OF_SELECT.iter().filter_map(move |name| shared().find(|rule| rule.name == *name))
}

fn push_options(page: &mut String, list: &OptionList) {
    push(page, format_args!("\n{}; any other option {}:\n\n", list.clause, list.others));
    page.push_str("| option | values | default | meaning |\n|---|---|---|---|\n");
    for option in list.options {
        push(
            page,
            format_args!(
                "| `{}` | {} | {} | {} |\n",
                option.name, option.values, option.default, option.meaning
            ),
        );
    }
}

fn push_rules(page: &mut String, chapter: &RuleChapter) {
    push(page, format_args!("\n## {}\n", chapter.title));
    for SharedRule { name, grammar, note } in chapter.rules {
        push(page, format_args!("\n### {name}\n\n```text\n{grammar}\n```\n"));
        if !note.is_empty() {
            push(page, format_args!("\n{}\n", sentences(note)));
        }
    }
}

fn push_tokens(page: &mut String) {
    page.push_str("\n## Tokens\n\nEach of these rules matches a single token.\n");
    for rule in TOKENS {
        push(page, format_args!("\n### {}\n\n{}.\n", rule.name, sentences(rule.form)));
        let samples: Vec<String> = rule.samples.iter().map(|sample| code(sample)).collect();
        push(page, format_args!("For example {}.\n", samples.join(", ")));
    }
}

fn push_words(page: &mut String, words: &[&str]) {
    let words: Vec<String> = words.iter().map(|word| code(word)).collect();
    push(page, format_args!("\n{}.\n", words.join(", ")));
}

/// Writes one sentence per line.
fn sentences(text: &str) -> String {
    text.replace(". ", ".\n")
}

/// Writes a link to a heading of the page.
fn link(heading: &str) -> String {
    format!("[{heading}](#{})", heading.to_lowercase().replace(' ', "-").replace(',', ""))
}

/// Writes a link to a rule.
fn rule_link(name: &str) -> String {
    format!("[`{name}`](#{name})")
}

/// Writes a text as code.
fn code(text: &str) -> String {
    if text.contains('`') { format!("`` {text} ``") } else { format!("`{text}`") }
}

fn push(page: &mut String, text: Arguments<'_>) {
    page.write_fmt(text).expect("writing to memory does not fail");
}
