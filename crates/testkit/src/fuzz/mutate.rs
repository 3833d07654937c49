//! Mutations of a text: moves tokens, splices texts, flips bytes, builds bombs.
//!
//! The same seed gives the same inputs. Knows only the tokens of SQL, and those roughly.

use super::corpus::{Corpus, Seed};
use crate::random::Random;

/// Longer inputs are cut, in bytes; bombs are built to stay below.
const INPUT_BYTES_MAX: usize = 256 * 1024;

/// Mutations of one input at most.
const MUTATIONS_MAX: usize = 3;

/// Draws the next input.
pub fn input(corpus: &Corpus, random: &mut Random) -> String {
    let Seed { prelude, text } = random.pick(&corpus.seeds);
    let mutated = match random.below(20) {
        0 => mutated_text(&format!("{prelude}{text}"), corpus, random),
        1 => format!("{prelude}{}", bomb(random)),
        _ => format!("{prelude}{}", mutated_text(text, corpus, random)),
    };
    let mut bytes = mutated.into_bytes();
    if random.chance(8) && !bytes.is_empty() {
        mutate_bytes(&mut bytes, random);
    }
    bytes.truncate(INPUT_BYTES_MAX);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn mutated_text(text: &str, corpus: &Corpus, random: &mut Random) -> String {
    let mut tokens: Vec<String> = tokens(text).into_iter().map(str::to_owned).collect();
    // Half of the inputs are changed little, so that they pass the parser.
    let is_gentle = random.chance(50);
    for _ in 0..=random.below(MUTATIONS_MAX) {
        match tokens.is_empty() {
            true => break,
            false if is_gentle => like_for_like(&mut tokens, random),
            false => mutate(&mut tokens, corpus, random),
        }
    }
    tokens.concat()
}

fn mutate(tokens: &mut Vec<String>, corpus: &Corpus, random: &mut Random) {
    let at = random.below(tokens.len());
    let other = random.below(tokens.len());
    match random.below(24) {
        0 => drop(tokens.remove(at)),
        1 => tokens.insert(at, tokens[other].clone()),
        2 => tokens.swap(at, other),
        3 | 4 => tokens[at] = word(random),
        5 => tokens.insert(at, format!(" {} ", word(random))),
        6 => splice(tokens, at, corpus, random),
        7 => repeat(tokens, at.min(other)..at.max(other) + 1, random),
        8 => drop(tokens.drain(at.min(other)..at.max(other))),
        9 => tokens[at] = format!("({})", expression(random, 4)),
        10 => nest(tokens, at, random),
        11 => tokens[at] = literal(random),
        _ => like_for_like(tokens, random),
    }
}

/// Replaces a token by another of its kind.
fn like_for_like(tokens: &mut [String], random: &mut Random) {
    let words: Vec<usize> =
        (0..tokens.len()).filter(|index| !tokens[*index].trim().is_empty()).collect();
    if words.is_empty() {
        return;
    }
    let at = *random.pick(&words);
    let lower = tokens[at].to_ascii_lowercase();
    let upper = tokens[at].to_ascii_uppercase();
    let is_literal =
        lower == "null" || lower.starts_with(|c: char| c.is_ascii_digit() || c == '\'');
    if is_literal {
        tokens[at] = literal(random);
    } else if FUNCTIONS.contains(&lower.as_str()) {
        tokens[at] = (*random.pick(&FUNCTIONS)).to_owned();
    } else if OPERATORS.contains(&lower.as_str()) {
        tokens[at] = (*random.pick(&OPERATORS)).to_owned();
    } else if TYPES.contains(&upper.as_str()) {
        tokens[at] = (*random.pick(&TYPES)).to_owned();
    } else if KEYWORDS.iter().any(|keyword| keyword.split(' ').any(|word| word == upper)) {
        // Most keywords have no other of their kind.
    } else if lower.chars().all(is_word) {
        // A name for another of the same text.
        let other = *random.pick(&words);
        if tokens[other].chars().all(|c| c.is_alphabetic() || c == '_') {
            tokens[at] = tokens[other].clone();
        }
    }
}

/// Replaces some tokens by tokens of another seed.
fn splice(tokens: &mut Vec<String>, at: usize, corpus: &Corpus, random: &mut Random) {
    let other = self::tokens(&random.pick(&corpus.seeds).text)
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<_>>();
    if other.is_empty() {
        return;
    }
    let start = random.below(other.len());
    let end = (start + 1 + random.below(20)).min(other.len());
    let until = (at + random.below(5)).min(tokens.len());
    tokens.splice(at..until, other[start..end].iter().cloned());
}

fn repeat(tokens: &mut Vec<String>, range: std::ops::Range<usize>, random: &mut Random) {
    let piece: Vec<String> = tokens[range.clone()].to_vec();
    let size = piece.iter().map(String::len).sum::<usize>().max(1);
    let times = (1 + random.below(30)).min(INPUT_BYTES_MAX / size);
    let at = range.end;
    tokens.splice(at..at, std::iter::repeat_n(piece, times).flatten());
}

fn nest(tokens: &mut [String], at: usize, random: &mut Random) {
    let depth = 1 + random.below(200);
    let (open, close) = *random.pick(&NESTS);
    tokens[at] = format!("{}{}{}", open.repeat(depth), tokens[at], close.repeat(depth));
}

/// Texts before and after an expression, which nest.
const NESTS: [(&str, &str); 10] = [
    ("(", ")"),
    ("NOT ", ""),
    ("- ", ""),
    ("CASE WHEN true THEN ", " END"),
    ("abs(", ")"),
    ("CAST(", " AS INT)"),
    ("[", "]"),
    ("(SELECT * FROM ", ") AS q"),
    ("concat('a', ", ")"),
    ("/*", "*/"),
];

/// Draws a query of extreme depth or length.
fn bomb(random: &mut Random) -> String {
    let count = 1 << random.below(15);
    let (open, close) = *random.pick(&NESTS);
    let join = |separator: &str, item: &str| vec![item; count].join(separator);
    match random.below(14) {
        0 => format!("SELECT {}1{} FROM t1", open.repeat(count), close.repeat(count)),
        1 => {
            format!("SELECT * FROM {}t1{}", "(SELECT * FROM ".repeat(count), ") AS q".repeat(count))
        }
        2 => {
            let operator = *random.pick(&[" + ", " AND ", " = ", " || ", " LIKE "]);
            format!("SELECT {} FROM t1", join(operator, "c3"))
        }
        3 => format!("SELECT c3 IN ({}) FROM t1", join(", ", "1")),
        4 => format!("SELECT {} FROM t1", join(", ", "c3")),
        5 => format!("SELECT {}", vec!["1 AS a"; count.min(4_096)].join(" UNION ALL SELECT ")),
        6 => format!("SELECT '{}' FROM t1", join("", "\\n")),
        7 => format!("SELECT {} FROM t1", join("", "9")),
        8 => format!("SELECT 1.{}e{} FROM t1", join("", "9"), join("", "9")),
        9 => format!("SELECT {} FROM t1", join("", "x")),
        10 => format!("SELECT c1 LIKE '{}' FROM t1", join("", "%a")),
        11 => format!("SELECT c1 RLIKE '{}' FROM t1", join("", "(a*)*")),
        12 => join(" ", ";"),
        _ => windows(count.min(300), random),
    }
}

/// Draws many windows, or a chain of windows that extend each other.
fn windows(count: usize, random: &mut Random) -> String {
    let frame = "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW";
    let is_chain = random.chance(50);
    let window = |index: usize| match (is_chain, index) {
        (true, 1..) => format!("w{index} AS (w{} {frame})", index - 1),
        _ => format!("w{index} AS (PARTITION BY k ORDER BY ts {frame})"),
    };
    let calls: Vec<String> = (0..count).map(|index| format!("sum(c3) OVER w{index}")).collect();
    let windows: Vec<String> = (0..count).map(window).collect();
    format!("SELECT {} FROM t1 WINDOW {}", calls.join(", "), windows.join(", "))
}

/// Draws an expression over the columns of the tables.
fn expression(random: &mut Random, depth: usize) -> String {
    if depth == 0 || random.chance(25) {
        return if random.chance(60) {
            (*random.pick(&COLUMNS)).to_owned()
        } else {
            literal(random)
        };
    }
    let function = *random.pick(&FUNCTIONS);
    let operator = *random.pick(&OPERATORS);
    let mut part = || expression(random, depth - 1);
    let (a, b, c) = (part(), part(), part());
    match random.below(8) {
        0 => format!("{function}({a})"),
        1 => format!("{function}({a}, {b})"),
        2 => format!("{function}({a}, {b}, {c})"),
        3 => format!("CASE WHEN {a} THEN {b} ELSE {c} END"),
        4 => format!("CAST({a} AS {})", random.pick(&TYPES)),
        5 => format!("({a} BETWEEN {b} AND {c})"),
        6 => format!("({a} IN ({b}, {c}))"),
        _ => format!("({a} {operator} {b})"),
    }
}

fn word(random: &mut Random) -> String {
    match random.below(6) {
        0 => (*random.pick(&FUNCTIONS)).to_owned(),
        1 => (*random.pick(&COLUMNS)).to_owned(),
        2 => (*random.pick(&OPERATORS)).to_owned(),
        3 => literal(random),
        4 => (*random.pick(&TYPES)).to_owned(),
        _ => (*random.pick(&KEYWORDS)).to_owned(),
    }
}

fn literal(random: &mut Random) -> String {
    match random.below(9) {
        0 => random.number().to_string(),
        1 => format!("{}", random.below(100)),
        2 => format!("'{}'", random.pick(&TEXTS)),
        3 => format!("{}.{}e{}", random.below(10), random.number(), random.below(400)),
        4 => format!(
            "{}{}",
            random.below(1_000_000_000),
            random.pick(&["s", "m", "h", "d", "L", "f"])
        ),
        _ => (*random.pick(&LITERALS)).to_owned(),
    }
}

fn mutate_bytes(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(8) {
        let at = random.below(bytes.len());
        let byte = u8::try_from(random.below(256)).expect("below 256");
        match random.below(4) {
            0 => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            2 => bytes[at] ^= 1 << random.below(8),
            _ if bytes.len() > 1 => drop(bytes.remove(at)),
            _ => {}
        }
    }
}

/// Splits a text into words, numbers, quoted texts and spaces; every other character is a token.
pub(super) fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '\'' | '"' | '`' => rest[1..].find(first).map_or(rest.len(), |at| at + 2),
            _ if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            _ if first.is_whitespace() => {
                rest.find(|c: char| !c.is_whitespace()).unwrap_or(rest.len())
            }
            _ => first.len_utf8(),
        };
        let (token, after) = rest.split_at(end);
        tokens.push(token);
        rest = after;
    }
    debug_assert_eq!(tokens.iter().map(|token| token.len()).sum::<usize>(), text.len());
    tokens
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

const COLUMNS: [&str; 14] =
    ["id", "k", "c1", "c3", "c4", "c5", "c6", "ts", "c8", "f", "s", "t1.id", "t2.k", "*"];

const TYPES: [&str; 12] = [
    "BOOL",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "STRING",
    "TIMESTAMP",
    "DATE",
    "ARRAY<INT>",
    "MAP<STRING, INT>",
    "VARCHAR(10)",
];

const TEXTS: [&str; 12] = [
    "",
    "a",
    "%",
    "\\\\",
    "2020-02-30",
    "9999-12-31 23:59:59",
    "漢字",
    "\u{0}",
    "nan",
    "{\"a\":[1]}",
    "a:1,b:2",
    "\u{feff}\u{202e}",
];

const LITERALS: [&str; 16] = [
    "NULL",
    "true",
    "-1",
    "0",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "1e308",
    "-0.0",
    "1.5f",
    "0x7f",
    "'a'",
    "?",
    "[1, 2]",
    "map('a', 1)",
    "-9223372036854775808",
];

const OPERATORS: [&str; 24] = [
    "+", "-", "*", "/", "DIV", "%", "&", "|", "^", "=", "<>", "<", ">=", "AND", "OR", "XOR",
    "LIKE", "NOT LIKE", "RLIKE", "||", "IS NULL", "<<", ".", ",",
];

const KEYWORDS: [&str; 64] = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP BY",
    "HAVING",
    "ORDER BY",
    "LIMIT",
    "WINDOW",
    "OVER",
    "PARTITION BY",
    "ROWS",
    "ROWS_RANGE",
    "BETWEEN",
    "PRECEDING",
    "FOLLOWING",
    "CURRENT ROW",
    "UNBOUNDED",
    "OPEN",
    "MAXSIZE",
    "EXCLUDE",
    "CURRENT_TIME",
    "CURRENT_ROW",
    "INSTANCE_NOT_IN_WINDOW",
    "UNION",
    "UNION ALL",
    "LAST JOIN",
    "LEFT JOIN",
    "ON",
    "AS",
    "WITH",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "CAST",
    "DISTINCT",
    "CONFIG",
    "DEPLOY",
    "CREATE TABLE",
    "INSERT INTO",
    "VALUES",
    "INDEX",
    "KEY",
    "TS",
    "TTL",
    "TTL_TYPE",
    "OPTIONS",
    "DELETE",
    "SHOW",
    "DESC",
    "SET",
    "EXPLAIN",
    "VERIFY DEPLOYMENT",
    "AS KNOWN AT ARRIVAL",
    "DROP",
    "IF EXISTS",
    "NOT",
    "NULL",
    "t1",
    "t2",
    "w",
    "w1",
    ";",
];

const FUNCTIONS: [&str; 66] = [
    "sum",
    "count",
    "avg",
    "min",
    "max",
    "distinct_count",
    "median",
    "stddev",
    "variance",
    "entropy",
    "ew_avg",
    "drawdown",
    "top",
    "topn_frequency",
    "top1_ratio",
    "count_where",
    "sum_where",
    "avg_cate",
    "count_cate_where",
    "top_n_key_avg_cate_where",
    "top_n_value_ratio_cate",
    "lag",
    "at",
    "first_value",
    "last_value",
    "nth_value_where",
    "substring",
    "locate",
    "concat",
    "concat_ws",
    "replace",
    "hex",
    "unhex",
    "char",
    "split",
    "split_by_key",
    "split_array",
    "array_join",
    "array_contains",
    "get_json_object",
    "json_array_length",
    "date_format",
    "add_months",
    "last_day",
    "datediff",
    "dayofyear",
    "unix_timestamp",
    "date_trunc",
    "round",
    "truncate",
    "pmod",
    "log",
    "pow",
    "regexp_like",
    "like_match",
    "if",
    "coalesce",
    "nullif",
    "greatest",
    "hash64",
    "discrete",
    "continuous",
    "gcformat",
    "libsvm",
    "window_split",
    "identity",
];

#[cfg(test)]
mod tests {
    use super::{Corpus, Random, input, tokens};

    #[test]
    fn a_seed_is_a_sequence_of_inputs() {
        let mut corpus = Corpus::default();
        corpus.add("", "SELECT a FROM t");
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..50).map(|_| input(&corpus, &mut random)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn tokens_make_up_the_text() {
        let text = "SELECT `a b`, 'it''s ü' <= 12.5FROM\n t -- 字 'open";
        assert_eq!(tokens(text).concat(), text);
        assert_eq!(tokens("a<= 'x y'"), ["a", "<", "=", " ", "'x y'"]);
    }
}
