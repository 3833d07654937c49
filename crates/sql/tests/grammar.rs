//! The documented grammar is the parser's: every text that it allows parses, and it allows the statements
//! of the golden files, of tests/sql, of the guide and of OpenMLDB's cases. Each example is what it says,
//! every rule is used, and the options are those that the engine reads.
//!
//! `cargo test -p lockstep-sql --test grammar -- --nocapture` prints how often each rule was drawn.

mod expansion;
mod recognition;
mod written;

use std::{collections::BTreeSet, fs};

use expansion::{Draw, Grammar, statements};
use lockstep_sql::{
    ast::Statement,
    grammar::{Notation, RULES, STATEMENTS, StatementRule, TOKENS, reference, rule_of},
    parse,
};
use recognition::Recogniser;

/// How many texts are drawn of each statement.
const TEXTS: usize = 5_000;

/// How many texts are drawn of a grammar that is wrong.
const WRONG_TEXTS: usize = 1_000;

fn rules() -> impl Iterator<Item = &'static StatementRule> {
    STATEMENTS.iter().flat_map(|chapter| chapter.rules).copied()
}

/// Parses a text that is one statement; the error is its message.
fn parsed(text: &str) -> Result<Statement, String> {
    let mut script = parse(text).map_err(|error| error.render(Some(text)))?;
    match script.len() {
        1 => Ok(script.remove(0).statement),
        count => Err(format!("{count} statements")),
    }
}

/// Draws texts of a statement, and returns why the shortest of those that are not one of it is none.
fn fault(
    draw: &mut Draw<'_>,
    name: &str,
    rule: &Notation<'static>,
    count: usize,
) -> Option<String> {
    let mut shortest: Option<(usize, String)> = None;
    for _ in 0..count {
        let text = draw.text(rule);
        let why = match parsed(&text) {
            Ok(statement) if rule_of(&statement).name == name => continue,
            Ok(statement) => format!("it is {}", rule_of(&statement).name),
            Err(error) => error,
        };
        if shortest.as_ref().is_none_or(|(length, _)| text.len() < *length) {
            shortest = Some((text.len(), format!("{name}: {text}\n{why}")));
        }
    }
    shortest.map(|(_, fault)| fault)
}

#[test]
fn examples_are_statements_of_their_rules() {
    for rule in rules() {
        assert!(!rule.examples.is_empty(), "{} has no example", rule.name);
        for example in rule.examples {
            let statement = parsed(example).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(rule_of(&statement).name, rule.name, "{example}");
        }
    }
}

/// `rule_of` matches every variant, so that none is without a rule; here every rule has a variant.
#[test]
fn rules_have_names_of_their_own() {
    let mut names = BTreeSet::new();
    for rule in rules() {
        assert!(names.insert(rule.name.to_lowercase().replace(' ', "-")), "{}", rule.name);
        assert!(!rule.description.is_empty(), "{}", rule.name);
    }
    let shared = RULES.iter().flat_map(|chapter| chapter.rules).map(|rule| rule.name);
    for name in shared.chain(TOKENS.iter().map(|rule| rule.name)) {
        assert!(names.insert(name.to_owned()), "{name}");
    }
    assert!(TOKENS.iter().all(|rule| !rule.samples.is_empty()));
}

#[test]
fn what_the_grammar_allows_is_parsed() {
    let grammar = Grammar::read();
    let statements = statements();
    let mut draw = Draw::new(&grammar, 1);
    let faults: Vec<String> =
        statements.iter().filter_map(|(name, rule)| fault(&mut draw, name, rule, TEXTS)).collect();
    println!("{TEXTS} texts of each of {} statements", statements.len());
    for (name, count) in &draw.counts {
        println!("{name:24} {count:>9}");
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
    let shared = grammar.names().filter_map(|name| Some((name, grammar.rule(name)?)));
    for (name, rule) in statements.iter().map(|(name, rule)| (*name, rule)).chain(shared) {
        let missing = draw.missing(rule);
        assert!(missing.is_empty(), "{name}: never drawn: {missing:?}");
    }
}

#[test]
fn every_rule_is_defined_and_used() {
    let grammar = Grammar::read();
    let mut reached = BTreeSet::new();
    let statements = statements();
    let mut next: Vec<&str> = statements.iter().flat_map(|(_, rule)| rule.rules()).collect();
    while let Some(name) = next.pop() {
        assert!(grammar.has(name), "`{name}` is not defined, or has no text");
        if reached.insert(name) {
            next.extend(grammar.rule(name).into_iter().flat_map(Notation::rules));
        }
    }
    let unused: Vec<&str> = grammar.names().filter(|name| !reached.contains(name)).collect();
    assert!(unused.is_empty(), "no statement uses {unused:?}");
}

/// Exchanges the first two different keywords that follow each other; `false` where there are none.
fn exchange_keywords(rule: &mut Notation<'_>) -> bool {
    match rule {
        Notation::Keyword(_) | Notation::Sign(_) | Notation::Rule(_) => false,
        Notation::Optional(part) | Notation::Repeated(part) => exchange_keywords(part),
        Notation::Choice(parts) => parts.iter_mut().any(exchange_keywords),
        Notation::Sequence(parts) => {
            let is_pair = |pair: &[Notation<'_>]| match pair {
                [Notation::Keyword(left), Notation::Keyword(right)] => left != right,
                _ => false,
            };
            let Some(at) = parts.windows(2).position(is_pair) else {
                return parts.iter_mut().any(exchange_keywords);
            };
            parts.swap(at, at + 1);
            true
        }
    }
}

#[test]
fn a_wrong_order_of_keywords_is_found() {
    let grammar = Grammar::read();
    let mut count = 0;
    for (name, mut rule) in statements() {
        if exchange_keywords(&mut rule) {
            count += 1;
            let found = fault(&mut Draw::new(&grammar, 1), name, &rule, WRONG_TEXTS);
            assert!(found.is_some(), "not found: {name} as {rule:?}");
        }
    }
    assert!(count > 40, "only {count} statements were changed");
}

#[test]
fn wrong_rules_are_found() {
    let grammar = Grammar::read();
    for (name, wrong) in [
        ("INSERT", "INSERT INTO table_name VALUES expression"),
        ("DELETE", "DELETE FROM table_name [ expression ]"),
        ("DROP TABLE", "DROP TABLE table_name [ IF EXISTS ]"),
        ("SELECT", "SELECT expression [ LIMIT expression ]"),
        ("SELECT", "SELECT operand comparison_operator operand { comparison_operator operand }"),
        ("SHOW TABLES", "SHOW TABLES [ FROM name ]"),
        ("SHOW JOBS", "SHOW ( JOBS | TABLES )"),
        ("KILL", "KILL [ QUERY ] number"),
    ] {
        let rule = Notation::parse(wrong).unwrap();
        let found = fault(&mut Draw::new(&grammar, 1), name, &rule, WRONG_TEXTS);
        assert!(found.is_some(), "not found: {wrong}");
    }
}

/// Returns the names of the options that a source file of the engine declares.
fn declared_options(path: &str) -> BTreeSet<String> {
    let source = fs::read_to_string(format!("../engine/src/{path}"))
        .unwrap_or_else(|error| panic!("{path}: {error}"));
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let specs = source.split("OptionSpec {").skip(1);
    let name = |spec: &str| {
        Some(spec.trim_start().strip_prefix("name: \"")?.split_once('"')?.0.to_owned())
    };
    specs.filter_map(name).collect()
}

#[test]
fn the_options_are_those_that_the_engine_reads() {
    for (name, clause, path) in [
        ("CREATE TABLE", "OPTIONS", "statement/create_table/options.rs"),
        ("CREATE TABLE", "INDEX", "statement/create_index.rs"),
        ("LOAD DATA", "OPTIONS", "statement/load_data/options.rs"),
        ("SELECT", "OPTIONS of INTO OUTFILE", "statement/into_outfile.rs"),
        ("SELECT", "CONFIG", "statement/query_config.rs"),
        ("DEPLOY", "OPTIONS", "statement/deploy/options.rs"),
        ("VERIFY DEPLOYMENT", "OPTIONS", "statement/verify.rs"),
        ("CREATE USER", "OPTIONS", "user.rs"),
        ("CREATE TOKEN", "OPTIONS", "statement/user.rs"),
    ] {
        let rule = rules().find(|rule| rule.name == name).unwrap();
        let list = rule.options.iter().find(|list| list.clause == clause).unwrap();
        let documented: BTreeSet<String> =
            list.options.iter().map(|option| option.name.to_owned()).collect();
        assert_eq!(documented.len(), list.options.len(), "{name}: an option is there twice");
        let declared = declared_options(path);
        assert!(!declared.is_empty(), "{path} declares no options");
        assert_eq!(documented, declared, "{name} {clause}: {path}");
    }
    let shared = RULES.iter().flat_map(|chapter| chapter.rules);
    let files = shared.filter(|rule| rule.name == "files").map(|rule| rule.note).next().unwrap();
    for option in declared_options("named_source/options.rs") {
        assert!(files.contains(&format!("`{option}`")), "`{option}` of files in FROM");
    }
}

#[test]
fn links_of_the_page_lead_to_headings() {
    let page = reference();
    let anchor = |heading: &str| heading.to_lowercase().replace(' ', "-").replace(',', "");
    let mut anchors = BTreeSet::new();
    for line in page.lines().filter(|line| line.starts_with("##")) {
        let heading = line.trim_start_matches('#').trim();
        assert!(anchors.insert(anchor(heading)), "two headings `{heading}`");
    }
    for (at, _) in page.match_indices("](#") {
        let target = page[at + 3..].split(')').next().unwrap();
        assert!(anchors.contains(target), "no heading `{target}`");
    }
}

/// What the parser accepts beyond the grammar: a part of each such statement, as [`plain`] writes it, and
/// why the page leaves it out.
const BEYOND: &[(&str, &str)] = &[
    ("select (select", "the binder refuses a sub-query in an expression"),
    ("exists (select", "the same"),
    ("> (select", "the same"),
    ("= (select", "the same"),
    ("add column x int, add offline_path", "the engine takes one kind of action"),
    (", $", "a note says that the comma may also end the query"),
    ("delete from", "the engine takes fewer conditions, and needs one"),
    ("grant selekt", "the engine knows the names of privileges"),
    ("like hive", "the engine refuses HIVE"),
    ("temp procedure", "the engine refuses TEMP"),
    ("; select", "a procedure has one query"),
    ("a = not b", "NOT binds looser where the page has it"),
    ("-5 preceding", "a negative distance is refused, or 0 under a setting"),
    ("-1h preceding", "the same"),
    ("-1 following", "the same"),
    ("select time '", "the binder refuses the type"),
    ("select decimal '", "the same"),
    ("select json '", "the same"),
    ("count(all", "ALL is what a call without DISTINCT means"),
    ("exclude current_row maxsize", "a note says that the parts of a window have no order"),
    ("instance_not_in_window exclude", "the same"),
];

/// What the parser accepts beyond the grammar in statements of OpenMLDB only.
const BEYOND_OF_OPENMLDB: &[(&str, &str)] = &[
    ("exclude current_row exclude current_time", "the parts of a window have no order"),
    ("-1 preceding", "a negative distance is 0"),
    ("create table t4 $", "the engine refuses a table without columns"),
    ("create table schema.sql $", "the same"),
    ("create table `aa-bb`.`xx-yy` $", "the same"),
];

/// Writes a statement in small letters, with one blank where it has some, and `$` at its end.
fn plain(statement: &str) -> String {
    let words: Vec<&str> = statement.split_whitespace().chain(["$"]).collect();
    words.join(" ").to_lowercase()
}

#[test]
fn what_is_parsed_is_in_the_grammar() {
    let grammar = Grammar::read();
    let page = reference();
    let reserved = page.split("after a dot:\n").nth(1).unwrap().split('.').next().unwrap();
    let reserved: Vec<&str> =
        reserved.split(',').map(|word| word.trim().trim_matches('`')).collect();
    let (mut count, mut missing, mut used) = (0, Vec::new(), BTreeSet::new());
    let (own, others) = (written::texts(), written::texts_of_openmldb());
    for text in own.iter().chain(&others) {
        for parsed in parse(text).unwrap_or_default() {
            let statement = &text[parsed.span.start..parsed.span.end];
            let rule = rule_of(&parsed.statement);
            let notation = Notation::parse(rule.grammar).unwrap();
            count += 1;
            if Recogniser::new(&grammar, &reserved, statement).allows(&notation) {
                continue;
            }
            let plain = plain(statement);
            let mut beyond = BEYOND.iter().chain(BEYOND_OF_OPENMLDB);
            match beyond.find(|(part, _)| plain.contains(part)) {
                Some((part, _)) => drop(used.insert(*part)),
                None => missing.push(format!("{}: {statement}", rule.name)),
            }
        }
    }
    println!("{count} statements are in the grammar, or beyond it for a reason");
    assert!(count > 1_000, "only {count} statements were found");
    assert!(missing.is_empty(), "not in the grammar:\n{}", missing.join("\n"));
    let of_openmldb = BEYOND_OF_OPENMLDB.iter().filter(|_| !others.is_empty());
    for (part, _) in BEYOND.iter().chain(of_openmldb) {
        assert!(used.contains(part), "nothing beyond the grammar has `{part}`");
    }
}

#[test]
fn a_form_that_is_missing_is_found() {
    let grammar = Grammar::read();
    let allows = |rule: &'static str, text: &str| {
        Recogniser::new(&grammar, &["SELECT"], text).allows(&Notation::parse(rule).unwrap())
    };
    assert!(allows("DROP TABLE [ IF EXISTS ] table_name", "drop table if exists shop.`a b`"));
    assert!(!allows("DROP TABLE table_name", "DROP TABLE IF EXISTS t"));
    assert!(!allows("DROP TABLE [ IF EXISTS ] table_name", "DROP TABLE t, u"));
    assert!(allows("SELECT expression", "SELECT 1 + sum(a.b) OVER w -- remark"));
    assert!(!allows("SELECT expression", "SELECT a < b < c"));
    assert!(!allows("SELECT expression", "SELECT select"));
}
