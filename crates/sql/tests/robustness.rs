//! Any text gives an answer: limits hold, nothing panics, and trees can be walked.

use std::fs;
use std::path::PathBuf;
use std::thread;

use lockstep_diagnostic::code;
use lockstep_sql::{STATEMENT_BYTES_MAX, parse, parse_expression};
use proptest::prelude::{Just, Strategy, any, prop, prop_oneof, proptest};
use proptest::sample::Index;

const MEBIBYTE: usize = 1024 * 1024;

/// The stack of a worker thread.
const STACK_BYTES: usize = 2 * MEBIBYTE;

/// Runs it with no more stack than a worker thread has.
fn with_small_stack(check: impl FnOnce() + Send + 'static) {
    let thread =
        thread::Builder::new().stack_size(STACK_BYTES).spawn(check).expect("a thread starts");
    thread.join().expect("the check holds");
}

#[test]
fn a_text_that_nests_too_deeply_is_an_error() {
    with_small_stack(|| {
        let pieces = [
            "(",
            "NOT ",
            "- ",
            "~",
            "!",
            "CASE WHEN ",
            "CASE ",
            "f(",
            "[",
            "a[",
            "CAST(",
            "1 + (",
            "(a = NOT -b * (",
            "a AND NOT (",
            "f(1, CASE WHEN a THEN ",
            "sum(a) OVER (PARTITION BY ",
            "ARRAY<",
        ];
        for piece in pieces {
            let sql = format!("SELECT {}", piece.repeat(MEBIBYTE / piece.len()));
            let error = parse(&sql).unwrap_err();
            assert_eq!(error.code, code::STATEMENT_TOO_COMPLEX, "{piece}: {}", error.message);
        }
        for piece in ["SELECT * FROM (", "(", "SELECT 1 UNION ALL (", "WITH x AS ("] {
            let error = parse(&piece.repeat(MEBIBYTE / piece.len())).unwrap_err();
            assert_eq!(error.code, code::STATEMENT_TOO_COMPLEX, "{piece}: {}", error.message);
        }
        let sql = format!("CREATE TABLE t (a {}", "map<int, ".repeat(MEBIBYTE / 9));
        assert_eq!(parse(&sql).unwrap_err().code, code::STATEMENT_TOO_COMPLEX);
        let sql = format!("SELECT 1 CONFIG(a={}", "[".repeat(MEBIBYTE));
        assert_eq!(parse(&sql).unwrap_err().code, code::STATEMENT_TOO_COMPLEX);
    });
}

#[test]
fn a_hundred_parentheses_parse_printed_copied_and_dropped() {
    with_small_stack(|| {
        for (open, close) in
            [("(", ")"), ("f(", ")"), ("CASE WHEN a THEN b + ", " END"), ("[", "]")]
        {
            let sql = format!("{}1{}", open.repeat(100), close.repeat(100));
            let expr = parse_expression(&sql).unwrap_or_else(|error| panic!("{open}: {error}"));
            assert_eq!(expr, expr.clone());
            assert!(!format!("{expr:?}{}", expr.name()).is_empty());
        }
    });
}

#[test]
fn a_long_flat_condition_is_a_flat_tree() {
    with_small_stack(|| {
        for operator in ["AND", "OR", "XOR"] {
            let terms: Vec<String> = (0..10_000).map(|term| format!("a{term} = 1")).collect();
            let sql = terms.join(&format!(" {operator} "));
            let expr = parse_expression(&sql).unwrap();
            assert_eq!(expr.name(), sql);
            assert_eq!(expr, expr.clone());
        }
    });
}

#[test]
fn a_chain_that_must_lean_to_the_left_has_a_limit() {
    with_small_stack(|| {
        assert!(parse_expression(&vec!["a"; 500].join(" + ")).is_ok());
        for (piece, between) in [("a", " + "), ("a", " || "), ("a", "*"), ("[1]", "")] {
            let sql = format!("a{}", vec![piece; 100_000].join(between));
            let error = parse_expression(&sql).unwrap_err();
            assert_eq!(error.code, code::STATEMENT_TOO_COMPLEX, "{piece}{between}");
        }
        for between in [", ", " LAST JOIN t ON a = b CROSS JOIN "] {
            let sql = format!("SELECT a FROM {}", vec!["t"; 10_000].join(between));
            assert_eq!(parse(&sql).unwrap_err().code, code::STATEMENT_TOO_COMPLEX, "{between}");
        }
        let sql = format!("SELECT a{}", " UNION SELECT a UNION ALL SELECT a".repeat(10_000));
        assert_eq!(parse(&sql).unwrap_err().code, code::STATEMENT_TOO_COMPLEX);
    });
}

/// The sources of a UNION stand beside each other: whoever walks the tree does not recurse for
/// them.
#[test]
fn a_union_may_have_many_sources() {
    with_small_stack(|| {
        for between in [" UNION ALL ", " UNION "] {
            let sql = vec!["SELECT a FROM t"; 10_000].join(between);
            assert!(parse(&sql).is_ok(), "{between}");
        }
    });
}

#[test]
fn nesting_multiplies_no_limit() {
    with_small_stack(|| {
        let chain = " + a".repeat(200);
        let sql = format!("{}a{}", "(".repeat(100), format!("{chain})").repeat(100));
        assert_eq!(parse_expression(&sql).unwrap_err().code, code::STATEMENT_TOO_COMPLEX);
    });
}

#[test]
fn a_text_that_is_too_long_is_an_error() {
    let sql = " ".repeat(STATEMENT_BYTES_MAX + 1);
    assert_eq!(parse(&sql).unwrap_err().code, code::STATEMENT_TOO_COMPLEX);
    assert_eq!(parse(&sql[1..]).unwrap(), []);
}

#[test]
fn long_lists_parse() {
    with_small_stack(|| {
        let rows = vec!["(1, 'a', -2.5)"; 50_000].join(", ");
        assert!(parse(&format!("INSERT INTO t VALUES {rows}")).is_ok());
        let items = vec!["a + 1"; 50_000].join(", ");
        assert!(parse(&format!("SELECT a IN ({items})")).is_ok());
        assert!(parse(&";".repeat(MEBIBYTE)).is_ok());
    });
}

/// Words and symbols of the dialect, and what only other dialects have.
const SOUP: &str = "SELECT FROM WHERE GROUP BY ORDER LIMIT WINDOW AS OVER ( ) ( ) , , . ; * + - / % \
    DIV MOD & | ^ ~ ! = == != <> < > <= >= || && AND OR NOT XOR IN IS NULL LIKE ESCAPE BETWEEN CASE \
    WHEN THEN ELSE END CAST ARRAY [ ] < > PARTITION ROWS ROWS_RANGE PRECEDING FOLLOWING OPEN CURRENT \
    ROW UNBOUNDED MAXSIZE EXCLUDE CURRENT_TIME UNION ALL DISTINCT LAST LEFT JOIN ON WITH CREATE TABLE \
    INDEX KEY TTL OPTIONS CONFIG INSERT INTO VALUES DEPLOY SHOW SET @@ @ ? ?1 $1 a b t t1 c.d 1 2.5 \
    10s 1L 1.5f 0x1F 'x' \"y\" `z` ' \" ` /* */ -- # \\ é $$ :: -> int map date DROP DELETE ALTER";

/// Parses and, when that works, walks the result; an error's span lies in the text.
fn answer(sql: &str) {
    match parse(sql) {
        Ok(parsed) => {
            for one in parsed {
                assert!(sql.get(one.span.start..one.span.end).is_some(), "{sql}");
            }
        }
        Err(error) => {
            let span = error.span.expect("an error of a text has a place");
            assert!(sql.get(span.start..span.end).is_some(), "{sql}: {span:?}");
        }
    }
}

/// Returns the statements of OpenMLDB's cases, or one of our own where those are absent.
#[expect(clippy::print_stdout, reason = "says why the test is smaller")]
fn statements() -> Vec<String> {
    let folder = PathBuf::from("../../../shared/conformance");
    let mut statements = Vec::new();
    for name in ["parse", "window", "ddl", "lastjoin", "expression"] {
        let Ok(text) = fs::read_to_string(folder.join(format!("{name}.jsonl"))) else { continue };
        for line in text.lines() {
            let case: serde_json::Value = serde_json::from_str(line).expect("a line is a case");
            let sqls = case["sqls"].as_array().into_iter().flatten();
            statements.extend(sqls.filter_map(|sql| sql.as_str().map(str::to_owned)));
        }
    }
    if statements.is_empty() {
        println!("skipped: {} is absent", folder.display());
        statements.push("SELECT sum(a) OVER w FROM t WINDOW w AS (PARTITION BY k)".to_owned());
    }
    statements
}

/// Takes a piece out of a text, or puts one in.
fn mutated(sql: &str, at: Index, length: usize, insert: &str) -> String {
    let chars: Vec<char> = sql.chars().collect();
    let start = at.index(chars.len() + 1);
    let end = (start + length).min(chars.len());
    let before: String = chars[..start].iter().collect();
    let after: String = chars[end..].iter().collect();
    format!("{before}{insert}{after}")
}

proptest! {
    #[test]
    fn any_text_gets_an_answer(sql in any::<String>()) {
        answer(&sql);
    }

    #[test]
    fn any_mix_of_tokens_gets_an_answer(
        picks in prop::collection::vec((any::<Index>(), prop_oneof![Just(" "), Just("")]), 0..60),
    ) {
        let words: Vec<&str> = SOUP.split_whitespace().collect();
        let mut sql = String::new();
        for (pick, between) in picks {
            let word: &&str = pick.get(&words);
            sql.push_str(word);
            sql.push_str(between);
        }
        answer(&sql);
        answer(&format!("SELECT {sql}"));
    }
}

#[test]
fn any_change_to_a_statement_gets_an_answer() {
    let statements = statements();
    let words: Vec<&str> = SOUP.split_whitespace().collect();
    let mut runner = proptest::test_runner::TestRunner::new(proptest::test_runner::Config {
        cases: 4_000,
        ..Default::default()
    });
    let strategy = (any::<Index>(), any::<Index>(), 0..9_usize, any::<Index>()).prop_map(
        |(statement, at, length, word)| {
            let statement: &String = statement.get(&statements);
            let word: &&str = word.get(&words);
            mutated(statement, at, length, word)
        },
    );
    runner
        .run(&strategy, |sql| {
            answer(&sql);
            Ok(())
        })
        .unwrap();
}

#[test]
fn printing_and_parsing_again_changes_nothing() {
    let expressions = [
        "(a + b) * c - d",
        "a - (b - c)",
        "-(-a)",
        "- - a",
        "NOT (a AND b)",
        "NOT a AND b",
        "(a = b) = c",
        "a = (NOT b)",
        "(a OR b) AND c",
        "a AND (b AND c)",
        "(a BETWEEN 1 AND 2) IS NULL",
        "a BETWEEN (b AND c) AND d",
        "CASE a WHEN 1 THEN 'it\\'s' ELSE NULL END",
        "a[1][2]",
        "(a + b)[1]",
        "CAST(a AS map<string,int>)",
        "SUM(t.a) OVER w",
        "COUNT(*)",
        "f(DISTINCT a,b)",
        "a NOT IN (1,2)",
        "a LIKE 'x' ESCAPE '\\\\'",
        "~a & b | c ^ d",
        "1.0 + 1e300 + 'a' || 2",
        "ARRAY<int>[1]",
        "10s + 1",
    ];
    for sql in expressions {
        let printed = parse_expression(sql).unwrap().to_string();
        let again = parse_expression(&printed).unwrap_or_else(|error| panic!("{printed}: {error}"));
        assert_eq!(again.to_string(), printed, "{sql}");
    }
}
