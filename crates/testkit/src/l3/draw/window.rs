//! Draws windows, and the calls over them or over a group.
//!
//! Each aggregate function is drawn by the examples of its declaration, over the columns of the
//! drawn tables.

use lockstep_function::aggregate::{self, AggregateFunction};

use super::{MORE, QueryDraw, SECOND_MAIN};

/// What the rows of a window come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WindowSource {
    /// One source, which a UNION may extend.
    Plain,
    /// A join, which has more columns than any table and allows no UNION.
    Joined,
}

/// Columns of [`aggregate::SAMPLE`], and columns of the drawn tables of the same type.
const SAMPLE_COLUMNS: [(&str, &str); 6] =
    [("t", "ts"), ("x", "v"), ("y", "x"), ("c", "k"), ("s", "s"), ("ok", "f")];

/// The windows of a SELECT.
pub(super) struct Windows {
    /// ` OVER …` for a call.
    pub(super) over: String,
    /// The same for another window, if there is one.
    pub(super) other: Option<String>,
    /// ` WINDOW …`, or nothing.
    pub(super) clause: String,
    /// Whether the first one has an ORDER BY.
    pub(super) is_ordered: bool,
}

/// Aggregates over the columns, for windows and groups, with the name of the construct.
const CALLS: [(Option<&str>, &str); 44] = [
    (None, "count(*)"),
    (None, "count(v)"),
    (None, "sum(v)"),
    (None, "sum(x)"),
    (None, "avg(x)"),
    (None, "avg(v)"),
    (None, "min(k)"),
    (None, "max(x)"),
    (None, "max(ts)"),
    (None, "min(g)"),
    (None, "distinct_count(k)"),
    (None, "distinct_count(v)"),
    (Some("aggregate with a condition"), "sum_where(v, f)"),
    (Some("aggregate with a condition"), "count_where(v, x > 0.0)"),
    (Some("aggregate with a condition"), "avg_where(x, g = 1)"),
    (Some("aggregate with a condition"), "min_where(v, k IN ('a', 'b'))"),
    (Some("aggregate with a condition"), "max_where(x, v > 0 OR f)"),
    (Some("aggregate by category"), "count_cate(v, k)"),
    (Some("aggregate by category"), "sum_cate(v, g)"),
    (Some("aggregate by category"), "avg_cate_where(x, f, k)"),
    (Some("aggregate by category"), "top_n_key_count_cate_where(v, f, k, 2)"),
    (Some("aggregate by category"), "top_n_value_sum_cate_where(v, f, g, 2)"),
    (Some("aggregate of ranks"), "median(v)"),
    (Some("aggregate of ranks"), "top(v, 2)"),
    (Some("aggregate of ranks"), "topn_frequency(k, 2)"),
    (Some("aggregate of ranks"), "top1_ratio(g)"),
    (Some("aggregate of spread"), "stddev(x)"),
    (Some("aggregate of spread"), "var_pop(v)"),
    (Some("aggregate of spread"), "entropy(k)"),
    (Some("aggregate in order of time"), "first_value(v)"),
    (Some("aggregate in order of time"), "last_value(x)"),
    (Some("aggregate in order of time"), "nth_value_where(v, 2, f)"),
    (Some("aggregate in order of time"), "ew_avg(x, 0.5)"),
    (Some("aggregate in order of time"), "drawdown(abs(x))"),
    (Some("aggregate in the argument of an aggregate"), "sum_where(v, x > avg(x))"),
    (Some("aggregate in the argument of an aggregate"), "count_where(v, v = last_value(v))"),
    (Some("aggregate in the argument of an aggregate"), "sum(CASE WHEN v > min(v) THEN 1 END)"),
    (Some("aggregate in the argument of an aggregate"), "nth_value_where(v, -1, v < max(v))"),
    (Some("aggregate in the argument of an aggregate"), "sum(v - max(v))"),
    (
        Some("aggregate in the argument of an aggregate"),
        "count_where(k, k = last_value(k) AND v > 0)",
    ),
    (Some("scalar function of aggregates"), "abs(sum(v))"),
    (Some("scalar function of aggregates"), "ifnull(max(x), 0.0)"),
    (Some("scalar function of aggregates"), "CASE WHEN count(v) > 1 THEN sum(v) ELSE min(v) END"),
    (Some("scalar function of aggregates"), "concat(min(k), max(k))"),
];

/// Items over a window only; `{o}` stands for ` OVER …`.
const ITEMS: [(&str, &str); 16] = [
    ("lag as an item", "lag(v, 0){o}"),
    ("lag as an item", "lag(v, 1){o}"),
    ("lag as an item", "at(k, 2){o}"),
    ("lag as an item", "lag(x, 2, false){o}"),
    ("lag that passes over NULL", "lag(v, 1, true){o}"),
    ("lag in an expression", "v - lag(v, 1){o}"),
    ("lag in an expression", "CASE WHEN lag(v, 1){o} > 0 THEN k ELSE lag(k, 0){o} END"),
    ("lag in the argument of an aggregate", "count_where(v, v = lag(v, 0)){o}"),
    ("lag in the argument of an aggregate", "count_where(k, k = at(k, 0)){o}"),
    ("lag in the argument of an aggregate", "sum_where(v, k = at(k, 1) AND f){o}"),
    ("lag in the argument of an aggregate", "avg_where(x, v > lag(v, 0)){o}"),
    (
        "lag in the argument of an aggregate",
        "distinct_count(CASE WHEN g = lag(g, 1) THEN v END){o}",
    ),
    ("lag in the argument of an aggregate", "max_where(x, lag(v, 0) = v AND lag(k, 0) = k){o}"),
    ("lag in the argument of an aggregate", "count_cate_where(v, k != lag(k, 0), k){o}"),
    ("OVER on a scalar function", "isnull(at(v, 0)){o}"),
    ("OVER on a scalar function", "log(ifnull(sum(abs(x)), 0.0) + 1.0){o}"),
];

impl QueryDraw<'_> {
    /// Draws one window or two, named or not.
    pub(super) fn windows(&mut self) -> Windows {
        self.windows_of(WindowSource::Plain)
    }

    /// Draws the windows over a source.
    pub(super) fn windows_of(&mut self, source: WindowSource) -> Windows {
        let spec = self.window_spec_of(source);
        // The order of a UNION's sub-query stands in parentheses before that of the window.
        let is_ordered = spec.rsplit(')').next().is_some_and(|own| own.contains("ORDER BY"));
        let over = " OVER w".to_owned();
        match self.random.below(6) {
            0 => {
                self.feature("window in OVER");
                Windows {
                    over: format!(" OVER ({spec})"),
                    other: None,
                    clause: String::new(),
                    is_ordered,
                }
            }
            1 => {
                self.feature("two windows");
                let second = self.window_spec_of(source);
                let clause = format!(" WINDOW w AS ({spec}), w2 AS ({second})");
                Windows { over, other: Some(" OVER w2".to_owned()), clause, is_ordered }
            }
            2 if !spec.contains("MAXSIZE") => {
                self.feature("window that extends another");
                let clause = format!(
                    " WINDOW w AS ({spec}), w2 AS (w ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)"
                );
                Windows { over, other: Some(" OVER w2".to_owned()), clause, is_ordered }
            }
            _ => {
                Windows { over, other: None, clause: format!(" WINDOW w AS ({spec})"), is_ordered }
            }
        }
    }

    /// Draws select items over windows.
    pub(super) fn items(&mut self, windows: &Windows) -> String {
        let mut items = vec![self.calls(&windows.over)];
        if let Some(other) = &windows.other {
            items.push(format!("{} AS o", self.some_call(other)));
        }
        if self.is_standard && self.random.chance(10) {
            self.feature("row_number, rank and dense_rank");
            let mut functions = vec!["row_number() * 2"];
            // The others need an order.
            if windows.is_ordered {
                functions.extend(["rank()", "dense_rank()", "rank() - dense_rank()"]);
            }
            let item = self.random.pick(&functions).replace("()", &format!("(){}", windows.over));
            items.push(format!("{item} AS n"));
        }
        if self.random.chance(50) {
            let (feature, item) = *self.random.pick(&ITEMS);
            self.feature(feature);
            items.push(format!("{} AS i", item.replace("{o}", &windows.over)));
        }
        items.join(", ")
    }

    /// Draws some calls with the aliases `a0`, `a1` and so on; over a group when `over` is empty.
    pub(super) fn calls(&mut self, over: &str) -> String {
        let count = 1 + self.random.below(3);
        let mut calls = Vec::with_capacity(count);
        for index in 0..count {
            let call = match self.random.chance(50) {
                true => self.example(over),
                false => self.some_call(over),
            };
            calls.push(format!("{call} AS a{index}"));
        }
        calls.join(", ")
    }

    /// Draws an example of the declaration of an aggregate function.
    fn example(&mut self, over: &str) -> String {
        let is_of_windows_only = |function: &AggregateFunction| function.name == "lag";
        let functions: Vec<&AggregateFunction> = aggregate::all()
            .filter(|function| !over.is_empty() || !is_of_windows_only(function))
            .collect();
        let function = *self.random.pick(&functions);
        self.feature(function.name);
        let (example, _) = *self.random.pick(function.examples);
        format!("{}{over}", over_our_columns(example))
    }

    /// Draws one of [`CALLS`].
    fn some_call(&mut self, over: &str) -> String {
        let (feature, call) = *self.random.pick(&CALLS);
        self.call(feature, call, over)
    }

    /// Writes a call over a window, with OVER after the outermost call.
    fn call(&mut self, feature: Option<&'static str>, call: &str, over: &str) -> String {
        feature.into_iter().for_each(|feature| self.feature(feature));
        if !call.starts_with("CASE") {
            return format!("{call}{over}");
        }
        let mut written = call.to_owned();
        for aggregate in ["count(v)", "sum(v)", "min(v)"] {
            written = written.replace(aggregate, &format!("{aggregate}{over}"));
        }
        written
    }

    /// Draws the specification in the parentheses of a window.
    pub(super) fn window_spec(&mut self) -> String {
        self.window_spec_of(WindowSource::Plain)
    }

    fn window_spec_of(&mut self, source: WindowSource) -> String {
        let union = match source {
            WindowSource::Plain => self.window_union(),
            WindowSource::Joined => String::new(),
        };
        let partition = *self
            .random
            .pick(&["k", "k", "k", "k", "g", "g", "k, g", "upper(k)", "g % 2", "f", "d", "n, b"]);
        if partition.contains(['(', '%']) {
            self.feature("expression as a partition key");
        }
        let partition = match self.is_standard && self.random.chance(6) {
            true => {
                self.feature("window without PARTITION BY");
                String::new()
            }
            false => format!("PARTITION BY {partition} "),
        };
        if self.random.chance(8) {
            self.feature("window without ORDER BY");
            let frame = *self.random.pick(&[
                "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
                "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
                "ROWS_RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
            ]);
            if frame.contains("UNBOUNDED") {
                self.feature("frame without an end");
            }
            return format!("{union}{partition}{frame}");
        }
        let order = *self.random.pick(&["ts", "ts", "ts", "ts", "ts", "v", "id", "b"]);
        if order != "ts" {
            self.feature("window ordered by another column");
        }
        let (frame, attributes) = (self.frame(), self.attributes());
        format!("{union}{partition}ORDER BY {order} {frame}{attributes}")
    }

    fn window_union(&mut self) -> String {
        let (feature, union) = match self.random.below(12) {
            0 => ("window UNION", "UNION u ".to_owned()),
            1 => ("window UNION of two", "UNION u, r ".to_owned()),
            2 => (
                "window UNION of a sub-query",
                format!(
                    "UNION (SELECT id, k, g, ts, v * 2 AS v, x, f, {MORE} FROM u WHERE v > 0) "
                ),
            ),
            3 => ("window UNION of the request table", format!("UNION {SECOND_MAIN} ")),
            4 => (
                "window UNION of a LAST JOIN",
                format!(
                    "UNION (SELECT u.id AS id, u.k AS k, u.g AS g, u.ts AS ts, n.v AS v, \
                     u.x AS x, u.f AS f, u.n AS n, u.b AS b, u.e AS e, u.d AS d, u.s AS s \
                     FROM u LAST JOIN {SECOND_MAIN} AS n ORDER BY n.ts ON u.k = n.k) "
                ),
            ),
            _ => return String::new(),
        };
        self.feature(feature);
        union
    }

    pub(super) fn attributes(&mut self) -> String {
        let mut attributes = String::new();
        for attribute in ["EXCLUDE CURRENT_ROW", "EXCLUDE CURRENT_TIME", "INSTANCE_NOT_IN_WINDOW"] {
            if self.random.chance(10) {
                self.feature(attribute);
                attributes.push(' ');
                attributes.push_str(attribute);
            }
        }
        attributes
    }

    /// Draws a frame after an ORDER BY.
    pub(super) fn frame(&mut self) -> String {
        if self.is_standard && self.random.chance(5) {
            self.feature("window without a frame");
            return String::new();
        }
        let frame = self.written_frame();
        if !self.is_standard || !frame.starts_with("ROWS_RANGE") || self.random.chance(70) {
            return frame;
        }
        self.feature("RANGE");
        let frame = frame.replacen("ROWS_RANGE", "RANGE", 1);
        let words = frame.split(' ').map(|word| match word.strip_suffix('s') {
            Some(seconds) => format!("INTERVAL '{seconds}' SECOND"),
            None => word.to_owned(),
        });
        let spelled = words.collect::<Vec<_>>().join(" ");
        if spelled != frame {
            self.feature("INTERVAL in a frame");
        }
        spelled
    }

    fn written_frame(&mut self) -> String {
        let is_rows = self.random.chance(50);
        self.feature(if is_rows { "ROWS" } else { "ROWS_RANGE" });
        let (unit, second) = if is_rows { ("ROWS", "") } else { ("ROWS_RANGE", "s") };
        let (start, is_far) = self.frame_start(second);
        let end = match self.random.below(10) {
            0 | 1 => {
                self.feature("frame that ends before the current row");
                format!("1{second} PRECEDING")
            }
            2 => {
                self.feature("OPEN PRECEDING");
                format!("0{second} OPEN PRECEDING")
            }
            3 if is_far => {
                self.feature("frame that ends before the current row");
                format!("{}{second} PRECEDING", 2 + self.random.below(8))
            }
            4 if is_far => {
                self.feature("frame that ends beyond all rows");
                format!("500{second} PRECEDING")
            }
            _ => "CURRENT ROW".to_owned(),
        };
        if !is_rows && self.random.chance(30) {
            self.feature("MAXSIZE");
            let max_size = *self.random.pick(&[1, 2, 3, 7, 1000]);
            return format!("{unit} BETWEEN {start} AND {end} MAXSIZE {max_size}");
        }
        format!("{unit} BETWEEN {start} AND {end}")
    }

    /// Draws the older end of a frame, and returns whether it lies beyond all rows.
    fn frame_start(&mut self, second: &str) -> (String, bool) {
        match self.random.below(9) {
            0 | 1 => {
                self.feature("frame without an end");
                ("UNBOUNDED PRECEDING".to_owned(), true)
            }
            2 => {
                self.feature("frame that begins beyond all rows");
                let distance = *self.random.pick(&["1000", "2147483647"]);
                (format!("{distance}{second} PRECEDING"), true)
            }
            3 => {
                self.feature("OPEN PRECEDING");
                (format!("{}{second} OPEN PRECEDING", 2 + self.random.below(3)), false)
            }
            _ => (format!("{}{second} PRECEDING", 1 + self.random.below(6)), false),
        }
    }
}

/// Rewrites an example of a declaration to the columns of the drawn tables.
pub(crate) fn over_our_columns(example: &str) -> String {
    let mut written = String::new();
    let mut rest = example;
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '\'')
    {
        let (before, from) = rest.split_at(start);
        written.push_str(before);
        let end = match from.strip_prefix('\'') {
            Some(text) => text.find('\'').map_or(from.len(), |at| at + 2),
            None => {
                from.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(from.len())
            }
        };
        let (word, after) = from.split_at(end);
        let ours = SAMPLE_COLUMNS.iter().find(|(column, _)| *column == word);
        written.push_str(ours.map_or(word, |(_, ours)| ours));
        rest = after;
    }
    written.push_str(rest);
    written
}

#[cfg(test)]
mod tests {
    use super::over_our_columns;

    #[test]
    fn columns_of_the_sample_are_ours_and_texts_stay() {
        assert_eq!(over_our_columns("sum_where(x, y > 1)"), "sum_where(v, x > 1)");
        assert_eq!(over_our_columns("window_split(s, 'x y')"), "window_split(s, 'x y')");
        assert_eq!(over_our_columns("max(x) + 1"), "max(v) + 1");
    }
}
