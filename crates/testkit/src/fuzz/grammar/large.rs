//! Draws deep, long and wide statements: one construct nested or repeated many times.

use super::GrammarDraw;
use crate::fuzz::constructs;

impl GrammarDraw<'_> {
    /// Nests one construct in itself, or several in turn.
    pub(super) fn nest(&mut self) -> String {
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
    pub(super) fn table_chain(&mut self) -> String {
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
    pub(super) fn stack(&mut self) -> String {
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
    pub(super) fn used_twice(&mut self) -> String {
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

    pub(super) fn join_chain(&mut self) -> String {
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

    pub(super) fn wide(&mut self) -> String {
        self.note("wide SELECT");
        let count = self.times(5_000);
        let item = self.value(1);
        let items: Vec<String> = (0..count).map(|index| format!("{item} AS x{index}")).collect();
        format!("SELECT {} FROM t1", items.join(", "))
    }

    pub(super) fn many_terms(&mut self) -> String {
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
    pub(super) fn huge_value(&mut self) -> String {
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

    pub(super) fn pattern(&mut self) -> String {
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

    pub(super) fn frame_query(&mut self) -> String {
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

    pub(super) fn aliases(&mut self) -> String {
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
    pub(super) fn nested_types(&mut self) -> String {
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
    pub(super) fn nested_aggregates(&mut self) -> String {
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

    pub(super) fn many_windows(&mut self) -> String {
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
}
