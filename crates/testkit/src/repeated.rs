//! Drawn queries that write one expression in several clauses: by its text, by an alias, by its position.
//!
//! Each query has a second form, in which a sub-query in FROM computes the expression and the clauses name
//! its column. Both have to return the same rows in the same order.

use std::{collections::BTreeMap, fmt};

use lockstep_engine::{Database, Session};

use crate::{l3::texts_in_order, random::Random, rows::of_output};

/// Failures that a report keeps.
const FAILURES_MAX: usize = 10;

/// The alias of the expression in the select list, and its column in the second form.
const ALIAS: &str = "p";
const COLUMN: &str = "e";

/// The clause, and how the expression stands in it.
pub const CONSTRUCTS: &[(&str, &str)] = &[
    ("SELECT", "expression"),
    ("SELECT", "expression with an alias"),
    ("SELECT", "DISTINCT"),
    ("SELECT", "argument of an aggregate"),
    ("WHERE", "expression"),
    ("JOIN", "key of a LAST JOIN"),
    ("WINDOW", "PARTITION BY"),
    ("WINDOW", "ORDER BY"),
    ("WINDOW", "PARTITION BY and ORDER BY"),
    ("WINDOW", "two windows"),
    ("WINDOW", "row_number"),
    ("GROUP BY", "expression"),
    ("GROUP BY", "alias"),
    ("GROUP BY", "position"),
    ("GROUP BY", "with another key"),
    ("HAVING", "expression"),
    ("HAVING", "alias"),
    ("ORDER BY", "expression"),
    ("ORDER BY", "alias"),
    ("ORDER BY", "position"),
    ("ORDER BY", "descending"),
    ("ORDER BY", "before another column"),
    ("ORDER BY", "LIMIT"),
    ("expression", "column"),
    ("expression", "number"),
    ("expression", "float"),
    ("expression", "text"),
    ("expression", "time"),
    ("expression", "condition"),
];

/// An expression over `t`, and what its type allows.
#[expect(clippy::struct_excessive_bools, reason = "each is a clause of its own")]
struct RepeatedExpression {
    sql: &'static str,
    construct: &'static str,
    is_key: bool,
    is_order: bool,
    is_join_key: bool,
}

const fn expression(sql: &'static str, construct: &'static str) -> RepeatedExpression {
    RepeatedExpression { sql, construct, is_key: true, is_order: false, is_join_key: false }
}

const fn number(sql: &'static str) -> RepeatedExpression {
    RepeatedExpression { is_order: true, is_join_key: true, ..expression(sql, "number") }
}

const EXPRESSIONS: &[RepeatedExpression] = &[
    RepeatedExpression { is_order: true, is_join_key: true, ..expression("a", "column") },
    RepeatedExpression { is_order: true, ..expression("ts", "column") },
    number("a % 2"),
    number("a + 1"),
    number("abs(a - b)"),
    number("coalesce(a, 0)"),
    number("CASE WHEN a > 1 THEN a ELSE b END"),
    number("CASE a WHEN 1 THEN b WHEN 2 THEN 0 END"),
    number("CAST(d AS INT)"),
    RepeatedExpression { is_key: false, ..expression("d * 2.0", "float") },
    RepeatedExpression { is_key: false, ..expression("a / 2", "float") },
    expression("upper(s)", "text"),
    expression("substring(s, 1, 1)", "text"),
    expression("string(a % 2)", "text"),
    RepeatedExpression { is_order: true, ..expression("timestamp(a * 3600000)", "time") },
    RepeatedExpression { is_order: true, ..expression("date_trunc('day', ts)", "time") },
    expression("date(ts)", "time"),
    expression("a > b", "condition"),
    expression("s LIKE 'a%'", "condition"),
    expression("a IS NULL", "condition"),
];

/// The counts of a run.
#[derive(Debug, Default)]
pub struct RepeatedReport {
    /// Queries whose rows were compared.
    pub compared: u64,
    /// Queries that were refused in both forms, or in the first.
    pub refused: u64,
    /// Compared queries by their constructs.
    pub constructs: BTreeMap<(&'static str, &'static str), u64>,
    /// Differences and internal errors.
    pub failures: Vec<String>,
    /// The errors of refused queries.
    pub refusals: BTreeMap<String, u64>,
}

impl fmt::Display for RepeatedReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for construct in CONSTRUCTS {
            let count = self.constructs.get(construct).copied().unwrap_or_default();
            writeln!(f, "{:10} {:30} {count:6}", construct.0, construct.1)?;
        }
        for (message, count) in &self.refusals {
            writeln!(f, "refused {count:6}: {message}")?;
        }
        let (compared, refused) = (self.compared, self.refused);
        write!(f, "{compared} compared, {refused} refused, {} failures", self.failures.len())
    }
}

/// Draws `cases` queries and runs both forms of each.
pub fn run(seed: u64, cases: u64) -> RepeatedReport {
    let mut random = Random::new(seed);
    let session = tables(&mut random);
    let mut report = RepeatedReport::default();
    for _ in 0..cases {
        if report.failures.len() >= FAILURES_MAX {
            break;
        }
        check(&session, &RepeatedQuery::draw(&mut random), &mut report);
    }
    report
}

/// Makes the tables with drawn rows, NULLs among them.
fn tables(random: &mut Random) -> Session {
    let session = Database::in_memory().session();
    let mut script = "CREATE TABLE t (id INT, a INT, b INT, s STRING, d DOUBLE, ts TIMESTAMP);
         CREATE TABLE u (ua INT, us STRING, v INT, uts TIMESTAMP);"
        .to_owned();
    let mut row = |first: usize, columns: [&[&str]; 4]| {
        let values: Vec<&str> = columns.iter().map(|values| *random.pick(values)).collect();
        format!("({first}, {})", values.join(", "))
    };
    let numbers: &[&str] = &["0", "1", "2", "3", "5", "NULL"];
    let texts: &[&str] = &["'a'", "'Ab'", "'b'", "''", "NULL"];
    let floats: &[&str] = &["0.0", "-0.0", "1.5", "2.0", "NULL"];
    let rows: Vec<String> = (0..24)
        .map(|id| {
            let start = row(id, [numbers, numbers, texts, floats]);
            format!("{}, {})", start.trim_end_matches(')'), (id * 7 % 24) * 7_200_000)
        })
        .collect();
    script.push_str(&format!("INSERT INTO t VALUES {};", rows.join(", ")));
    let rows: Vec<String> = (0..6)
        .map(|id| format!("({id}, {}, {id}, {})", texts[id % texts.len()], id * 1_000))
        .collect();
    script.push_str(&format!("INSERT INTO u VALUES {};", rows.join(", ")));
    session.execute(&script).expect("the tables are right");
    session
}

/// Runs both forms of a query and compares their rows.
fn check(session: &Session, query: &RepeatedQuery, report: &mut RepeatedReport) {
    let (sql, other) = (query.sql(true), query.sql(false));
    let rows = match session.execute(&sql) {
        Ok(output) => texts_in_order(&of_output(&output)),
        Err(error) if error.code == "XX000" => {
            report.failures.push(format!("{sql}\n{}", error.message));
            return;
        }
        Err(error) => {
            report.refused += 1;
            *report.refusals.entry(error.message).or_default() += 1;
            return;
        }
    };
    match session.execute(&other).map(|output| texts_in_order(&of_output(&output))) {
        Ok(expected) if expected == rows => {
            report.compared += 1;
            for construct in &query.constructs {
                *report.constructs.entry(*construct).or_default() += 1;
            }
        }
        Ok(expected) => report.failures.push(format!(
            "{sql}\n{}\n\n{other}\n{}",
            rows.join("\n"),
            expected.join("\n")
        )),
        Err(error) => report.failures.push(format!("{other}\n{}", error.message)),
    }
}

/// A drawn query. `{e}` is the expression.
struct RepeatedQuery {
    expression: &'static str,
    from: &'static str,
    clauses: String,
    constructs: Vec<(&'static str, &'static str)>,
}

impl RepeatedQuery {
    /// Returns the text in which the clauses have the expression itself, or the column of a sub-query.
    fn sql(&self, is_repeated: bool) -> String {
        let (from, expression) = match is_repeated {
            true => ("t".to_owned(), self.expression),
            false => (format!("(SELECT *, {} AS {COLUMN} FROM t) AS t", self.expression), COLUMN),
        };
        let text = self.clauses.replace("{from}", &format!("{from}{}", self.from));
        text.replace("{e}", expression)
    }

    fn draw(random: &mut Random) -> Self {
        let drawn = &EXPRESSIONS[random.below(EXPRESSIONS.len())];
        let query = Self {
            expression: drawn.sql,
            from: "",
            clauses: String::new(),
            constructs: vec![("expression", drawn.construct)],
        };
        match random.chance(40) {
            true => query.grouped(random),
            false => query.windowed(drawn, random),
        }
    }

    /// Notes a construct of [`CONSTRUCTS`].
    fn note(&mut self, clause: &'static str, name: &'static str) {
        let construct = (clause, name);
        debug_assert!(CONSTRUCTS.contains(&construct), "{clause}: {name} is in the table");
        self.constructs.push(construct);
    }

    /// Draws an item of the select list; returns whether it has the alias.
    fn item(&mut self, random: &mut Random) -> (String, bool) {
        if random.chance(60) {
            self.note("SELECT", "expression with an alias");
            return (format!("{{e}} AS {ALIAS}"), true);
        }
        self.note("SELECT", "expression");
        ("{e}".to_owned(), false)
    }

    fn condition(&mut self, random: &mut Random) -> &'static str {
        if !random.chance(25) {
            return "";
        }
        self.note("WHERE", "expression");
        if self.constructs.contains(&("expression", "condition")) {
            " WHERE {e}"
        } else {
            " WHERE {e} IS NOT NULL"
        }
    }

    /// Draws ORDER BY with the expression in it, where `has_text` is whether it may be repeated.
    #[expect(clippy::fn_params_excessive_bools, reason = "each is a form of its own")]
    fn order(
        &mut self,
        has_alias: bool,
        has_text: bool,
        rest: &str,
        random: &mut Random,
    ) -> String {
        let mut forms = vec![("position", "1")];
        if has_alias {
            forms.push(("alias", ALIAS));
        }
        if has_text {
            forms.push(("expression", "{e}"));
        }
        if random.chance(15) {
            return String::new();
        }
        let (name, text) = *random.pick(&forms);
        self.note("ORDER BY", name);
        let mut order = format!(" ORDER BY {text}");
        if random.chance(30) {
            self.note("ORDER BY", "descending");
            order.push_str(" DESC");
        }
        if random.chance(40) {
            self.note("ORDER BY", "before another column");
            order.push_str(&format!(", {rest}"));
        }
        if random.chance(25) {
            self.note("ORDER BY", "LIMIT");
            order.push_str(" LIMIT 3");
        }
        order
    }

    fn windowed(mut self, drawn: &RepeatedExpression, random: &mut Random) -> Self {
        let (item, has_alias) = self.item(random);
        if drawn.is_join_key && random.chance(25) {
            self.note("JOIN", "key of a LAST JOIN");
            self.from = " LAST JOIN u ORDER BY uts ON {e} = ua";
        }
        let joined = if self.from.is_empty() { "" } else { ", v" };
        let windows = 1 + usize::from(random.chance(25));
        if windows == 2 {
            self.note("WINDOW", "two windows");
        }
        let calls: Vec<String> = (0..windows)
            .map(|number| format!("{} AS s{number}", self.call(drawn, random)))
            .collect();
        let is_distinct = random.chance(15);
        if is_distinct {
            self.note("SELECT", "DISTINCT");
        }
        let distinct = if is_distinct { "DISTINCT " } else { "" };
        let filter = self.condition(random);
        let rest = if is_distinct { "2" } else { "id" };
        let order = self.order(has_alias, !is_distinct, rest, random);
        let calls = calls.join(", ");
        self.clauses =
            format!("SELECT {distinct}{item}, {calls}{joined} FROM {{from}}{filter}{order}");
        self
    }

    /// Draws an aggregate over a window whose key or order is the expression.
    fn call(&mut self, drawn: &RepeatedExpression, random: &mut Random) -> String {
        let is_key = drawn.is_key && (!drawn.is_order || random.chance(70));
        let is_order = drawn.is_order && (!is_key || random.chance(25));
        match (is_key, is_order) {
            (true, true) => self.note("WINDOW", "PARTITION BY and ORDER BY"),
            (true, false) => self.note("WINDOW", "PARTITION BY"),
            (false, true) => self.note("WINDOW", "ORDER BY"),
            (false, false) => {}
        }
        let key = if is_key { "{e}" } else { "b" };
        let order = if is_order { "{e}" } else { "ts" };
        let frame = *random.pick(&["", " ROWS BETWEEN 3 PRECEDING AND CURRENT ROW"]);
        let function = match random.below(4) {
            0 => "sum(b)",
            1 => "max(id)",
            2 => {
                self.note("SELECT", "argument of an aggregate");
                "count({e})"
            }
            _ => {
                self.note("WINDOW", "row_number");
                "row_number()"
            }
        };
        format!("{function} OVER (PARTITION BY {key} ORDER BY {order}{frame})")
    }

    fn grouped(mut self, random: &mut Random) -> Self {
        let (item, has_alias) = self.item(random);
        let mut forms = vec![("expression", "{e}"), ("position", "1")];
        if has_alias {
            forms.push(("alias", ALIAS));
        }
        let (name, key) = *random.pick(&forms);
        self.note("GROUP BY", name);
        let is_second = random.chance(25);
        let (second, second_item) = if is_second { (", b", ", b") } else { ("", "") };
        if is_second {
            self.note("GROUP BY", "with another key");
        }
        let filter = self.condition(random);
        let having = match random.below(4) {
            0 => {
                self.note("HAVING", "expression");
                " HAVING {e} IS NOT NULL OR count(*) > 0"
            }
            1 if has_alias => {
                self.note("HAVING", "alias");
                " HAVING p IS NOT NULL"
            }
            _ => "",
        };
        let argument = match random.chance(40) {
            true => {
                self.note("SELECT", "argument of an aggregate");
                "count({e})"
            }
            false => "max(id)",
        };
        let is_distinct = random.chance(15);
        if is_distinct {
            self.note("SELECT", "DISTINCT");
        }
        let distinct = if is_distinct { "DISTINCT " } else { "" };
        let rest = if is_distinct { "2" } else { "count(*)" };
        let order = self.order(has_alias, !is_distinct, rest, random);
        self.clauses = format!(
            "SELECT {distinct}{item}, {argument} AS n{second_item} FROM {{from}}{filter} \
             GROUP BY {key}{second}{having}{order}"
        );
        self
    }
}
