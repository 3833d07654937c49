//! Draws statements construct by construct, each nested, chained, widened or stretched.
//!
//! [`super::mutate`] changes existing texts; this draws whole statements over the tables of
//! [`super::TABLES`], most of which bind, so that they reach the stages after the parser. The
//! constructs of a statement are recorded by name, so that a run can count them.

use lockstep_engine::Parameter;

use super::{constructs, parameters};
use crate::random::Random;

/// A statement and its constructs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DrawnStatement {
    /// Its text.
    pub text: String,
    /// Names of [`constructs::ALL`], each at most once.
    pub constructs: Vec<&'static str>,
    /// Values for its `?`; none where it has none, or `?` of unknown types.
    pub parameters: Vec<Parameter>,
}

/// Percentage of statements in which constants become parameters.
const WITH_PARAMETERS_PERCENT: usize = 25;

/// Draws a statement.
pub fn statement(random: &mut Random) -> DrawnStatement {
    let mut draw = GrammarDraw { random, constructs: Vec::new() };
    let mut text = match draw.random.below(20) {
        0..=3 => draw.query(),
        4 | 5 => draw.nest(),
        6 => draw.table_chain(),
        7 => draw.stack(),
        8 => draw.used_twice(),
        9 => draw.join_chain(),
        10 => draw.wide(),
        11 => draw.many_terms(),
        12 => draw.huge_value(),
        13 => draw.pattern(),
        14 => draw.frame_query(),
        15 => draw.aliases(),
        16 => draw.nested_types(),
        17 => draw.nested_aggregates(),
        18 => draw.many_windows(),
        _ => draw.other_statement(),
    };
    let mut parameters = Vec::new();
    if draw.random.chance(WITH_PARAMETERS_PERCENT) {
        parameters = parameters::draw(&mut text, draw.random);
        if !parameters.is_empty() {
            draw.note("parameter");
        }
    }
    let mut constructs = draw.constructs;
    constructs.sort_unstable();
    constructs.dedup();
    DrawnStatement { text, constructs, parameters }
}

/// Draws a name that is hard to quote, to find or to tell from another.
pub fn name(random: &mut Random) -> String {
    match random.below(4) {
        0 => (*random.pick(&["t1", "t2", "m1", "d", "default.t1", "default.", ".", ""])).to_owned(),
        1 => constructs::ALIASES[random.below(constructs::ALIASES.len())].replace('`', ""),
        2 => "x".repeat(1 << random.below(12)),
        _ => format!("{}.{}", random.pick(&constructs::ALIASES), random.number()),
    }
}

struct GrammarDraw<'a> {
    random: &'a mut Random,
    constructs: Vec<&'static str>,
}

impl GrammarDraw<'_> {
    fn note(&mut self, construct: &'static str) {
        debug_assert!(constructs::ALL.contains(&construct), "{construct}");
        self.constructs.push(construct);
    }

    fn one(&mut self, of: &[&str]) -> String {
        (*self.random.pick(of)).to_owned()
    }

    /// Draws a count: mostly small, seldom large, at times `most`.
    fn times(&mut self, most: usize) -> usize {
        match self.random.below(20) {
            0 => most,
            1 => self.random.below(most) + 1,
            2..=5 => self.random.below(40.min(most)) + 1,
            _ => self.random.below(4.min(most)) + 1,
        }
    }

    // Expressions

    fn number(&mut self, depth: usize) -> String {
        if depth == 0 {
            return match self.random.below(6) {
                0 => self.extreme(),
                1 => self.random.below(10).to_string(),
                _ => self.one(&["id", "c3", "c4", "c5", "c6", "s"]),
            };
        }
        match self.random.below(12) {
            0 => {
                self.note("CASE with an operand");
                let (a, b, c) = (self.number(depth - 1), self.number(0), self.number(depth - 1));
                format!("CASE {a} WHEN {b} THEN {c} WHEN 3 THEN 4 END")
            }
            1 => {
                self.note("CASE");
                let (a, b, c) = (self.boolean(depth - 1), self.number(depth - 1), self.number(0));
                format!("CASE WHEN {a} THEN {b} ELSE {c} END")
            }
            2 => {
                self.note("CAST");
                let (a, to) = (self.value(depth - 1), self.one(&["INT", "BIGINT", "SMALLINT"]));
                format!("CAST({a} AS {to})")
            }
            3 => {
                let name = self.one(&["abs", "round", "sqrt", "log", "exp", "ceil", "sin", "-"]);
                format!("{name}({})", self.number(depth - 1))
            }
            4 => {
                let name = self.one(&["pow", "pmod", "coalesce", "greatest", "truncate", "round"]);
                format!("{name}({}, {})", self.number(depth - 1), self.number(0))
            }
            5 => {
                let (text, from) = (self.text(depth - 1), self.extreme());
                format!("locate('a', {text}, {from})")
            }
            6 => format!("datediff({}, {})", self.time(depth - 1), self.time(0)),
            7 => {
                self.note("MAP");
                format!("map('a', {}, 'b', 2)['a']", self.number(depth - 1))
            }
            8 => {
                self.note("ARRAY");
                format!("[{}, 2][{}]", self.number(depth - 1), self.extreme())
            }
            _ => {
                let operator = self.one(&["+", "-", "*", "/", "DIV", "%", "&", "|", "^", "<<"]);
                format!("({} {operator} {})", self.number(depth - 1), self.number(depth - 1))
            }
        }
    }

    fn boolean(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.one(&["f", "true", "false", "NULL", "c3 > 1"]);
        }
        match self.random.below(9) {
            0 => {
                self.note("BETWEEN");
                let (a, b, c) = (self.number(depth - 1), self.number(0), self.number(0));
                format!("({a} BETWEEN {b} AND {c})")
            }
            1 => {
                self.note("IN");
                format!("({} IN ({}, {}))", self.number(depth - 1), self.number(0), self.number(0))
            }
            2 => {
                self.note("LIKE");
                let (a, like) = (self.text(depth - 1), self.one(&["LIKE", "ILIKE", "NOT LIKE"]));
                format!("({a} {like} '%a_%')")
            }
            3 => {
                self.note("RLIKE");
                format!("({} RLIKE '[a-z]+(b|c)*')", self.text(depth - 1))
            }
            4 => format!("({} IS NULL)", self.value(depth - 1)),
            5 => format!("(NOT {})", self.boolean(depth - 1)),
            6 => {
                let operator = self.one(&["AND", "OR", "XOR"]);
                format!("({} {operator} {})", self.boolean(depth - 1), self.boolean(depth - 1))
            }
            7 => {
                self.note("comparison with a quoted literal");
                let (a, operator) = (self.one(&["ts", "c8", "c3", "c6"]), self.one(&["<", "="]));
                format!("({a} {operator} '2024-01-01')")
            }
            _ => {
                let operator = self.one(&["=", "<>", "<", ">="]);
                format!("({} {operator} {})", self.number(depth - 1), self.number(0))
            }
        }
    }

    fn text(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.one(&["k", "c1", "''", "'a:1,b:2'", "'漢字'", "NULL", "\"x\""]);
        }
        match self.random.below(8) {
            0 => format!("concat({}, {})", self.text(depth - 1), self.value(depth - 1)),
            1 => format!("({} || {})", self.text(depth - 1), self.number(0)),
            2 => format!("substring({}, {})", self.text(depth - 1), self.extreme()),
            3 => format!("substring({}, 2, {})", self.text(depth - 1), self.extreme()),
            4 => format!("upper({})", self.text(depth - 1)),
            5 => format!("string({})", self.value(depth - 1)),
            6 => format!("date_format({}, '%Y-%m-%d %H')", self.time(depth - 1)),
            _ => format!("CASE WHEN {} THEN {} END", self.boolean(depth - 1), self.text(0)),
        }
    }

    fn time(&mut self, depth: usize) -> String {
        if depth == 0 {
            return match self.random.below(4) {
                0 => format!("timestamp({})", self.extreme()),
                _ => self.one(&["ts", "c8", "date('2024-02-29')", "timestamp('1969-01-01')"]),
            };
        }
        match self.random.below(3) {
            0 => format!("add_months({}, {})", self.time(depth - 1), self.extreme()),
            1 => format!("last_day({})", self.time(depth - 1)),
            _ => format!("timestampadd('MONTH', {}, {})", self.extreme(), self.time(depth - 1)),
        }
    }

    fn value(&mut self, depth: usize) -> String {
        match self.random.below(5) {
            0 => self.text(depth),
            1 => self.boolean(depth),
            2 => self.time(depth),
            _ => self.number(depth),
        }
    }

    fn extreme(&mut self) -> String {
        if self.random.chance(50) {
            return self.random.below(5).to_string();
        }
        self.note("extreme number");
        self.one(&constructs::EXTREMES)
    }

    // Queries

    fn query(&mut self) -> String {
        let with = match self.random.below(4) {
            0 => {
                self.note("CTE");
                format!("WITH q AS ({}) ", self.simple("t2"))
            }
            _ => String::new(),
        };
        let source = match self.random.below(5) {
            0 => {
                self.note("sub-query in FROM");
                format!("({}) AS s", self.simple("t1"))
            }
            1 if !with.is_empty() => "q".to_owned(),
            _ => "t1".to_owned(),
        };
        let body = match self.random.below(6) {
            0 => self.group(&source),
            1 => self.total(&source),
            2 | 3 => self.windowed(&source),
            4 => {
                self.note("UNION ALL");
                let all = self.one(&["UNION ALL", "UNION DISTINCT", "UNION"]);
                format!("SELECT id, k FROM {source} {all} SELECT id, k FROM t2")
            }
            _ => self.plain(&source),
        };
        let tail = self.tail();
        format!("{with}{body}{tail}")
    }

    /// Draws rows like those of a table.
    fn simple(&mut self, table: &str) -> String {
        let filter = if self.random.chance(50) {
            self.note("WHERE");
            format!(" WHERE {}", self.boolean(2))
        } else {
            String::new()
        };
        format!("SELECT * FROM {table}{filter}")
    }

    fn plain(&mut self, source: &str) -> String {
        let distinct = if self.random.chance(15) {
            self.note("DISTINCT");
            "DISTINCT "
        } else {
            ""
        };
        let items: Vec<String> = (0..self.times(6)).map(|_| self.value(3)).collect();
        let filter = if self.random.chance(30) {
            self.note("WHERE");
            format!(" WHERE {}", self.boolean(3))
        } else {
            String::new()
        };
        format!("SELECT {distinct}{} FROM {source}{filter}", items.join(", "))
    }

    fn group(&mut self, source: &str) -> String {
        self.note("GROUP BY");
        let key = self.value(1);
        let having = if self.random.chance(40) {
            self.note("HAVING");
            " HAVING count(*) > 0".to_owned()
        } else {
            String::new()
        };
        let call = self.aggregate();
        format!("SELECT {key} AS g, {call} AS a FROM {source} GROUP BY {key}{having}")
    }

    fn total(&mut self, source: &str) -> String {
        self.note("aggregate over a whole table");
        let (a, b) = (self.aggregate(), self.aggregate());
        format!("SELECT {a}, {b} FROM {source}")
    }

    fn windowed(&mut self, source: &str) -> String {
        self.note("window");
        let calls: Vec<String> =
            (0..self.times(4)).map(|_| format!("{} OVER w", self.aggregate())).collect();
        let window = self.window();
        format!("SELECT id, {} FROM {source} WINDOW w AS ({window})", calls.join(", "))
    }

    fn aggregate(&mut self) -> String {
        let (number, text, filter) = (self.number(1), self.text(0), self.boolean(1));
        let extreme = self.extreme();
        match self.random.below(10) {
            0 => format!("count_where({number}, {filter})"),
            1 => format!("top({number}, {extreme})"),
            2 => format!("topn_frequency({text}, {extreme})"),
            3 => format!("sum_cate({number}, {text})"),
            4 => format!("top_n_key_sum_cate_where({number}, {filter}, {text}, {extreme})"),
            5 => format!("nth_value_where({number}, {extreme}, {filter})"),
            6 => {
                self.note("lag");
                format!("lag({number}, {extreme})")
            }
            7 => format!("ew_avg({number}, 0.5)"),
            8 => "count(*)".to_owned(),
            _ => {
                let plain = ["sum", "avg", "min", "max", "count", "median", "stddev", "entropy"];
                format!("{}({number})", self.one(&plain))
            }
        }
    }

    fn window(&mut self) -> String {
        let union = if self.random.chance(25) {
            self.note("window UNION");
            "UNION t2 "
        } else {
            ""
        };
        let key = self.one(&["k", "c3", "k, c3", "upper(k)"]);
        let frame = self.frame();
        let mut tail = String::new();
        if self.random.chance(15) {
            self.note("MAXSIZE");
            tail += &format!(" MAXSIZE {}", self.extreme());
        }
        if self.random.chance(15) {
            self.note("EXCLUDE");
            tail += &format!(" EXCLUDE {}", self.one(&["CURRENT_TIME", "CURRENT_ROW"]));
        }
        if self.random.chance(8) {
            self.note("INSTANCE_NOT_IN_WINDOW");
            tail += " INSTANCE_NOT_IN_WINDOW";
        }
        format!("{union}PARTITION BY {key} ORDER BY ts {frame}{tail}")
    }

    fn frame(&mut self) -> String {
        let is_range = self.random.chance(50);
        self.note(if is_range { "ROWS_RANGE" } else { "ROWS" });
        let mut bound = |is_start: bool| {
            let number = self.extreme();
            let unit = if is_range { self.one(&["", "s", "m", "h", "d"]) } else { String::new() };
            let open = if self.random.chance(25) {
                self.note("OPEN");
                " OPEN"
            } else {
                ""
            };
            match (self.random.below(5), is_start) {
                (0, true) => "UNBOUNDED PRECEDING".to_owned(),
                (0 | 1, false) => "CURRENT ROW".to_owned(),
                _ => format!("{number}{unit}{open} PRECEDING"),
            }
        };
        let (start, end) = (bound(true), bound(false));
        let rows = if is_range { "ROWS_RANGE" } else { "ROWS" };
        format!("{rows} BETWEEN {start} AND {end}")
    }

    fn tail(&mut self) -> String {
        let mut tail = String::new();
        if self.random.chance(10) {
            self.note("ORDER BY");
            tail += " ORDER BY 1";
        }
        if self.random.chance(15) {
            self.note("LIMIT");
            tail += &format!(" LIMIT {}", self.extreme());
        }
        tail
    }

    // Deep and long statements

    /// Nests one construct in itself, or several in turn.
    fn nest(&mut self) -> String {
        let depth = self.times(3_000);
        let mixed = self.random.chance(30);
        let first = self.random.below(constructs::NESTS.len());
        let (mut open, mut close) = (String::new(), Vec::new());
        for _ in 0..depth {
            let pick = if mixed { self.random.below(constructs::NESTS.len()) } else { first };
            let (construct, before, after) = constructs::NESTS[pick];
            self.note(construct);
            open += before;
            close.push(after);
        }
        close.reverse();
        let start = constructs::NESTS[first].0;
        let inner = if start == "BETWEEN" || start == "IN" { "true" } else { "c3" };
        let expression = format!("{open}{inner}{}", close.concat());
        match self.random.below(6) {
            0 => format!("SELECT id FROM t1 WHERE {expression} = 1"),
            1 => format!("SELECT sum({expression}) OVER w FROM t1 WINDOW w AS ({})", self.window()),
            2 => format!("SELECT count(*) FROM t1 GROUP BY {expression}"),
            3 => format!("SELECT t1.id FROM t1 LAST JOIN t2 ON {expression} = t2.id"),
            _ => format!("SELECT {expression} AS x FROM t1"),
        }
    }

    /// Draws a chain of common tables or sub-queries, each of which selects from the one before.
    fn table_chain(&mut self) -> String {
        let count = self.times(20_000);
        let level = self.one(&["*", "id, k, ts, c3", "id + 1 AS id, k, ts"]);
        if self.random.chance(40) {
            self.note("nested sub-queries");
            let open = format!("(SELECT {level} FROM ").repeat(count);
            return format!("SELECT id FROM {open}t1{}", ") AS q".repeat(count));
        }
        self.note("CTE chain");
        let tables: Vec<String> = (0..count)
            .map(|index| match index {
                0 => format!("c0 AS (SELECT {level} FROM t1)"),
                _ => format!("c{index} AS (SELECT {level} FROM c{})", index - 1),
            })
            .collect();
        format!("WITH {} SELECT id FROM c{}", tables.join(", "), count - 1)
    }

    /// Nests windows over windows, groups over groups, joins over joins.
    fn stack(&mut self) -> String {
        let count = self.times(60);
        let form = self.random.below(3);
        self.note(["stacked windows", "stacked groups", "stacked joins"][form]);
        let frame = self.frame();
        let level = |from: &str| match form {
            0 => format!(
                "SELECT id, k, ts, sum(c3) OVER w AS c3 FROM {from} \
                 WINDOW w AS (PARTITION BY k ORDER BY ts {frame})"
            ),
            1 => format!("SELECT id, k, max(ts) AS ts, sum(c3) AS c3 FROM {from} GROUP BY id, k"),
            _ => format!(
                "SELECT {from}.id AS id, {from}.k AS k, {from}.ts AS ts, t2.c3 AS c3 FROM {from} \
                 LAST JOIN t2 ORDER BY t2.ts ON {from}.k = t2.k"
            ),
        };
        let tables: Vec<String> = (0..count)
            .map(|index| match index {
                0 => format!("c0 AS ({})", level("t1")),
                _ => format!("c{index} AS ({})", level(&format!("c{}", index - 1))),
            })
            .collect();
        let deploy = if self.random.chance(40) {
            self.note("DEPLOY");
            "DEPLOY s AS "
        } else {
            ""
        };
        format!("{deploy}WITH {} SELECT id, c3 FROM c{}", tables.join(", "), count - 1)
    }

    /// Draws a common table used twice in each level.
    fn used_twice(&mut self) -> String {
        self.note("CTE used twice");
        let count = self.times(30);
        let is_union = self.random.chance(30);
        let tables: Vec<String> = (0..count)
            .map(|index| {
                let from = if index == 0 { "t1".to_owned() } else { format!("c{}", index - 1) };
                match is_union {
                    true => format!(
                        "c{index} AS (SELECT id, k FROM {from} UNION ALL SELECT id, k FROM {from})"
                    ),
                    false => format!(
                        "c{index} AS (SELECT a.id AS id, b.k AS k FROM {from} AS a \
                         LAST JOIN {from} AS b ON a.id = b.id)"
                    ),
                }
            })
            .collect();
        let last = count - 1;
        let select = if is_union { "count(*)" } else { "id, k" };
        format!("WITH {} SELECT {select} FROM c{last}", tables.join(", "))
    }

    fn join_chain(&mut self) -> String {
        let count = self.times(500);
        let is_left = count <= 3 && self.random.chance(20);
        self.note(if is_left { "LEFT JOIN" } else { "LAST JOIN" });
        if count > 10 {
            self.note("LAST JOIN chain");
        }
        let kind = if is_left { "LEFT JOIN" } else { "LAST JOIN" };
        let (mut joins, mut items) = (String::new(), vec!["t1.id".to_owned()]);
        for index in 0..count {
            let right = match self.random.below(12) {
                0 => {
                    self.note("MAP column");
                    items.push(format!("j{index}.m AS m{index}"));
                    "m1"
                }
                1 => {
                    self.note("self-join");
                    "t1"
                }
                2 => {
                    self.note("join of a sub-query");
                    "(SELECT id, k, ts FROM t1)"
                }
                _ => "t2",
            };
            let order = if is_left || self.random.chance(50) {
                String::new()
            } else {
                format!(" ORDER BY j{index}.ts")
            };
            let on = self.one(&["", " AND t1.id > 0", " AND true"]);
            joins += &format!(" {kind} {right} AS j{index}{order} ON t1.k = j{index}.k{on}");
            items.push(format!("j{index}.id AS i{index}"));
        }
        format!("SELECT {} FROM t1{joins}", items.join(", "))
    }

    fn wide(&mut self) -> String {
        self.note("wide SELECT");
        let count = self.times(5_000);
        let item = self.value(1);
        let items: Vec<String> = (0..count).map(|index| format!("{item} AS x{index}")).collect();
        format!("SELECT {} FROM t1", items.join(", "))
    }

    fn many_terms(&mut self) -> String {
        let count = self.times(16_384);
        match self.random.below(4) {
            0 => {
                self.note("long IN");
                let items: Vec<String> = (0..count).map(|index| index.to_string()).collect();
                format!("SELECT id FROM t1 WHERE c3 IN ({})", items.join(", "))
            }
            1 => {
                self.note("long sum");
                format!("SELECT {} FROM t1", vec!["c3"; count + 1].join(" + "))
            }
            _ => {
                self.note("long AND or OR");
                let operator = self.one(&[" AND ", " OR "]);
                let terms: Vec<String> =
                    (0..=count).map(|index| format!("c3 <> {index}")).collect();
                format!("SELECT id FROM t1 WHERE {}", terms.join(&operator))
            }
        }
    }

    /// Draws a value that doubles, or is multiplied by itself.
    fn huge_value(&mut self) -> String {
        self.note("huge value");
        let length = self.one(&["10", "3000", "30000", "2000000", "2147483647"]);
        let mut value = format!("rpad('', {length}, 'a')");
        for _ in 0..self.times(6) {
            value = match self.random.below(8) {
                0 => format!("concat({value}, {value})"),
                1 => format!("lpad({value}, {length}, {value})"),
                2 => format!("hex({value})"),
                3 => format!("array_join(split({value}, 'a'), {value})"),
                4 => format!("concat_ws({value}, 'a', 'b', {value})"),
                5 => format!("upper({value})"),
                _ => format!("replace({value}, 'a', {value})"),
            };
            if value.len() > 4_000 {
                break;
            }
        }
        match self.random.below(3) {
            0 => format!(
                "SELECT count_cate(c3, {value}) OVER w FROM t1 WINDOW w AS ({})",
                self.window()
            ),
            1 => format!("SELECT char_length({value}) AS n FROM t1"),
            _ => format!("SELECT {value} AS x"),
        }
    }

    fn pattern(&mut self) -> String {
        self.note("pattern of many parts");
        let count = self.times(200);
        let part = self.one(&["%a", "%_", "%a%", "a%"]);
        let pattern = format!("{}b", part.repeat(count));
        match self.random.below(6) {
            0 => format!("SHOW JOBS LIKE '{pattern}'"),
            1 => format!("SHOW TABLE STATUS LIKE '{pattern}'"),
            2 => format!("SELECT rpad('', 5000, 'a') LIKE '{pattern}' AS x"),
            3 => format!("SELECT like_match(rpad(k, 5000, 'a'), '{pattern}') AS x FROM t1"),
            4 => format!("SHOW VARIABLES LIKE '{pattern}'"),
            _ => {
                let pattern = "(a*)*".repeat(count.min(40));
                format!("SELECT rpad('', 500, 'a') RLIKE '{pattern}b' AS x")
            }
        }
    }

    fn frame_query(&mut self) -> String {
        self.note("window");
        self.note("extreme number");
        let (start, end) = (self.one(&constructs::EXTREMES), self.one(&constructs::EXTREMES));
        let rows = self.one(&["ROWS", "ROWS_RANGE"]);
        let unit = if rows == "ROWS" { String::new() } else { self.one(&["", "s", "m", "h", "d"]) };
        let start = match self.random.below(2) {
            0 => "UNBOUNDED PRECEDING".to_owned(),
            _ => format!("{start}{unit} PRECEDING"),
        };
        let open = if self.random.chance(50) {
            self.note("OPEN");
            " OPEN"
        } else {
            ""
        };
        let call = self.aggregate();
        format!(
            "SELECT id, {call} OVER w FROM t1 WINDOW w AS (PARTITION BY k ORDER BY ts \
             {rows} BETWEEN {start} AND {end}{unit}{open} PRECEDING)"
        )
    }

    fn aliases(&mut self) -> String {
        self.note("alias with a separator");
        let count = 2 + self.times(6);
        let mut items: Vec<String> = (0..count)
            .map(|index| {
                let alias = self.one(&constructs::ALIASES);
                format!("{index} AS {alias}")
            })
            .collect();
        if self.random.chance(50) {
            self.note("alias used twice");
            items.splice(0..2, ["1 AS a".to_owned(), "2 AS a".to_owned()]);
            items.push("3 AS `a:2`".to_owned());
        }
        let alias = self.one(&constructs::ALIASES);
        let inner = format!("SELECT {} FROM t1", items.join(", "));
        match self.random.below(4) {
            0 => format!("SELECT * FROM ({inner}) AS {alias}"),
            1 => format!("SELECT {alias} FROM ({inner}) AS q"),
            2 => format!("SELECT count({alias}) FROM ({inner}) AS q GROUP BY {alias}"),
            _ => inner,
        }
    }

    /// Draws a MAP or an ARRAY where one may not be expected.
    fn nested_types(&mut self) -> String {
        self.note("nested type in any position");
        let value = match self.random.below(6) {
            0 | 1 => {
                self.note("MAP column");
                "m".to_owned()
            }
            2 => {
                self.note("MAP");
                format!("map('a', {}, 'b', 1)", self.number(1))
            }
            3 => {
                self.note("ARRAY");
                format!("[{}, 2]", self.number(0))
            }
            4 => "[[1], [2, NULL]]".to_owned(),
            _ => "map(1, map('a', [1, 2]))".to_owned(),
        };
        let window =
            "WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)";
        match self.random.below(12) {
            0 => format!("SELECT {value} AS x FROM m1"),
            1 => format!("SELECT id FROM m1 WHERE {value} = {value}"),
            2 => format!("SELECT count(*) FROM m1 GROUP BY {value}"),
            3 => format!("SELECT id FROM m1 ORDER BY {value}"),
            4 => format!("SELECT DISTINCT {value} FROM m1"),
            5 => format!("SELECT count({value}) OVER w FROM m1 {window}"),
            6 => format!("SELECT lag({value}, 1) OVER w FROM m1 {window}"),
            7 => format!("SELECT first_value({value}) OVER w FROM m1 {window}"),
            8 => format!("SELECT CASE WHEN id > 0 THEN {value} END AS x FROM m1"),
            9 => format!("SELECT {value} IN ({value}) AS x, {value} IS NULL AS y FROM m1"),
            10 => {
                self.note("LAST JOIN");
                "SELECT t1.id, m1.m AS m FROM t1 LAST JOIN m1 ORDER BY m1.ts ON t1.k = m1.k"
                    .to_owned()
            }
            _ => format!("SELECT string({value}), {value}['a'], {value}[1], size({value}) FROM m1"),
        }
    }

    /// Draws a window call inside the argument of an aggregate over the same window.
    fn nested_aggregates(&mut self) -> String {
        self.note("nested aggregates");
        let offset = self.extreme();
        let function = self.one(&["lag", "at", "first_value"]);
        let inner = match function.as_str() {
            "first_value" => "first_value(c3)".to_owned(),
            name => format!("{name}(c3, {offset})"),
        };
        let outer = match self.random.below(4) {
            0 => format!("count_where(c3, c3 = {inner})"),
            1 => format!("sum({inner})"),
            2 => format!("avg_cate(c3, string({inner}))"),
            _ => format!("count_where(c3, c3 = {inner} AND sum(c3) > 0)"),
        };
        let window = self.window();
        format!("SELECT id, {outer} OVER w AS x FROM t1 WINDOW w AS ({window})")
    }

    fn many_windows(&mut self) -> String {
        self.note("many windows");
        let count = self.times(300);
        let is_chain = self.random.chance(50);
        let frame = self.frame();
        let window = |index: usize| match (is_chain, index) {
            (true, 1..) => format!("w{index} AS (w{} {frame})", index - 1),
            _ => format!("w{index} AS (PARTITION BY k ORDER BY ts {frame})"),
        };
        let calls: Vec<String> = (0..count).map(|index| format!("sum(c3) OVER w{index}")).collect();
        let windows: Vec<String> = (0..count).map(window).collect();
        format!("SELECT {} FROM t1 WINDOW {}", calls.join(", "), windows.join(", "))
    }

    // Statements other than queries

    fn other_statement(&mut self) -> String {
        let (alias, number) = (self.one(&constructs::ALIASES), self.extreme());
        match self.random.below(12) {
            0 | 1 => {
                self.note("CREATE TABLE");
                let types = ["INT", "STRING", "TIMESTAMP", "MAP<STRING, INT>", "DOUBLE", "DATE"];
                let (a, b) = (self.one(&types), self.one(&types));
                let ttl = self.one(&["latest", "absolute", "absandlat", "absorlat"]);
                format!(
                    "CREATE TABLE {alias} (a {a}, {alias} {b}, ts TIMESTAMP, \
                     INDEX(KEY=(a, {alias}), TS=ts, TTL={number}m, TTL_TYPE={ttl}))"
                )
            }
            2 => {
                self.note("INSERT");
                let values: Vec<String> = (0..4).map(|_| self.value(1)).collect();
                format!("INSERT INTO t1 (id, k, ts, c6) VALUES ({})", values.join(", "))
            }
            3 => {
                self.note("DELETE");
                format!("DELETE FROM t1 WHERE {}", self.boolean(2))
            }
            4 => {
                self.note("CREATE INDEX");
                let key = self.one(&["c1", "c3", "m", "c6", "f", "c8", "nowhere"]);
                format!("CREATE INDEX {alias} ON t1 ({key}) OPTIONS(ts=ts, ttl={number}m)")
            }
            5 | 6 => {
                self.note("DEPLOY");
                let query = self.query();
                format!("DEPLOY {alias} OPTIONS(long_windows='w:{number}d') AS {query}")
            }
            7 => {
                self.note("request by CONFIG");
                let values = self.one(&["1, 'a'", "(1, 'a')", "NULL", "1,'a','b',1,2,3.0,4.0,5"]);
                format!("SELECT id FROM t1 CONFIG(execute_mode='request', values=({values}))")
            }
            8 => {
                self.note("procedure");
                format!(
                    "CREATE PROCEDURE p (id INT, k STRING) BEGIN {}; END; CALL p({number}, 'a')",
                    self.windowed("t1")
                )
            }
            9 => {
                self.note("SET");
                let names = ["max_memory", "job_timeout", "time_zone", "compatibility"];
                format!("SET GLOBAL {} = '{number}'; SELECT 1", self.one(&names[1..]))
            }
            10 => {
                self.note("parameter");
                let value = self.value(1);
                format!("SELECT ? + id, {value}, k = ? FROM t1 WHERE ts < ? LIMIT 5")
            }
            _ => {
                self.note("EXPLAIN");
                format!("EXPLAIN {}", self.query())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Random, name, statement};
    use crate::fuzz::constructs::{ALL, FINDINGS};

    /// Enough to draw the rarest construct at its greatest size.
    const DRAWS: usize = 6_000;

    #[test]
    fn every_construct_is_drawn() {
        let mut random = Random::new(1);
        let drawn: BTreeSet<&str> =
            (0..DRAWS).flat_map(|_| statement(&mut random).constructs).collect();
        let missing: Vec<_> = ALL.iter().filter(|construct| !drawn.contains(*construct)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    /// Checks that each input that ended the process in the past is drawn.
    #[test]
    fn what_was_once_found_is_drawn_again() {
        let mut random = Random::new(1);
        let mut left: BTreeSet<&str> = FINDINGS.iter().map(|finding| finding.what).collect();
        for _ in 0..DRAWS {
            let drawn = statement(&mut random);
            for finding in FINDINGS {
                if (finding.is_in)(&drawn.text) {
                    left.remove(finding.what);
                }
            }
        }
        assert!(left.is_empty(), "never drawn: {left:?}");
    }

    #[test]
    fn a_seed_is_a_sequence_of_statements() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..50).map(|_| (statement(&mut random), name(&mut random))).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
