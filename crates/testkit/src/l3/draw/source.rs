//! Draws sources of rows: sub-queries, CTEs and unions that contain the request row, which are
//! called `q`, and right sides of joins, over any of the tables.

use super::{MAIN, MORE, MORE_OF_GROUP, MORE_OF_Q, OTHERS, QueryDraw, SECOND_MAIN, VIEW};

impl QueryDraw<'_> {
    /// Draws a source that contains the request row.
    pub(super) fn source(&mut self, depth: usize) -> String {
        if depth == 0 || self.random.chance(40) {
            return format!("{MAIN} AS q");
        }
        let query = self.source_query(depth - 1);
        if depth == 2 && self.prelude.is_empty() && self.random.chance(30) {
            self.feature("CTE");
            self.prelude = format!("WITH c AS ({query}) ");
            return "c AS q".to_owned();
        }
        if depth == 2 && self.view.is_none() && self.random.chance(20) {
            self.feature("view");
            self.view = Some(query);
            return format!("{VIEW} AS q");
        }
        self.feature("sub-query");
        format!("({query}) AS q")
    }

    fn source_query(&mut self, depth: usize) -> String {
        match self.random.below(7) {
            0 => {
                self.feature("GROUP BY in a sub-query");
                let (source, filter) = (self.source(depth), self.filter());
                format!(
                    "SELECT max(id) AS id, k, CAST(count(*) AS INT) AS g, max(ts) AS ts, \
                     max(v) AS v, sum(x) AS x, count(v) > 1 AS f, {MORE_OF_GROUP} \
                     FROM {source}{filter} GROUP BY k"
                )
            }
            1 | 2 => {
                self.feature("window in a sub-query");
                let (source, window) = (self.source(depth), self.window_spec());
                if source.contains(" OVER ") {
                    self.feature("window over windows");
                }
                format!(
                    "SELECT id, k, g, ts, CAST(sum(v) OVER w AS INT) AS v, avg(x) OVER w AS x, f, \
                     {MORE} FROM {source} WINDOW w AS ({window})"
                )
            }
            3 => {
                self.feature("LAST JOIN in a sub-query");
                let (source, join) = (self.source(depth), self.last_join_clause("r", 1));
                format!(
                    "SELECT q.id AS id, q.k AS k, r.g AS g, q.ts AS ts, r.v AS v, q.x AS x, \
                     r.f AS f, {MORE_OF_Q} FROM {source}{join}"
                )
            }
            4 => {
                let union = *self.random.pick(&["UNION ALL", "UNION ALL", "UNION DISTINCT"]);
                self.feature(union);
                let (source, filter, other) = (self.source(depth), self.filter(), self.filter());
                // The rows of a second scan of the main table are no answers, so their id is
                // replaced.
                let (id, table) = *self.random.pick(&[("id", "u"), ("0 - 1 AS id", SECOND_MAIN)]);
                if table == SECOND_MAIN {
                    self.feature("UNION ALL of the request table");
                }
                format!(
                    "SELECT id, k, g, ts, v, x, f, {MORE} FROM {source}{filter} \
                     {union} SELECT {id}, k, g, ts, v, x, f, {MORE} FROM {table}{other}"
                )
            }
            _ => {
                let (source, filter) = (self.source(depth), self.filter());
                if !filter.is_empty() {
                    self.feature("WHERE in a sub-query");
                }
                let (g, v, f) = (self.value(2), self.value(1), self.condition(1));
                format!(
                    "SELECT id, k, {g} AS g, ts, {v} AS v, x, {f} AS f, {MORE} \
                     FROM {source}{filter}"
                )
            }
        }
    }

    /// Draws a table, or a sub-query with its columns, for the right side of a join.
    pub(super) fn right(&mut self, depth: usize) -> String {
        if depth == 0 || self.random.chance(35) {
            return self.table();
        }
        if let Some(named) = self.used_again() {
            return named.to_owned();
        }
        let base = self.right(depth - 1);
        match self.random.below(7) {
            0 => {
                self.feature("projection on the right");
                let value = self.value(1);
                format!("(SELECT id, k, {value} AS g, ts, v, x, f, {MORE} FROM {base} AS q)")
            }
            1 => {
                self.feature("WHERE on the right");
                let filter = self.condition(1);
                format!(
                    "(SELECT id, k, g + 1 AS g, ts, v, x, f, {MORE} FROM {base} AS q \
                     WHERE {filter})"
                )
            }
            2 => {
                self.feature("GROUP BY on the right");
                format!(
                    "(SELECT max(id) AS id, k, max(g) AS g, max(ts) AS ts, min(v) AS v, \
                     sum(x) AS x, count(*) > 1 AS f, {MORE_OF_GROUP} FROM {base} AS q GROUP BY k)"
                )
            }
            3 => {
                self.feature("window on the right");
                if base == SECOND_MAIN {
                    self.feature("window over the request table on the right");
                }
                let window = self.window_spec();
                format!(
                    "(SELECT id, k, g, ts, CAST(sum(v) OVER w AS INT) AS v, avg(x) OVER w AS x, f, \
                     {MORE} FROM {base} AS q WINDOW w AS ({window}))"
                )
            }
            4 => {
                self.feature("LAST JOIN on the right");
                if base == SECOND_MAIN {
                    self.feature("LAST JOIN of the request table on the right");
                }
                let join = self.last_join_clause("r", depth - 1);
                format!(
                    "(SELECT q.id AS id, q.k AS k, r.g AS g, q.ts AS ts, r.v AS v, q.x AS x, \
                     r.f AS f, {MORE_OF_Q} FROM {base} AS q{join})"
                )
            }
            5 => {
                self.feature("LEFT JOIN on the right");
                let (other, extra) = (self.table(), self.join_condition("r"));
                format!(
                    "(SELECT q.id AS id, q.k AS k, r.g AS g, q.ts AS ts, r.v AS v, q.x AS x, \
                     r.f AS f, {MORE_OF_Q} FROM {base} AS q LEFT JOIN {other} AS r ON q.k = r.k{extra})"
                )
            }
            _ => {
                self.feature("UNION ALL on the right");
                let other = self.table();
                format!(
                    "(SELECT id, k, g, ts, v, x, f, {MORE} FROM {base} AS q \
                     UNION ALL SELECT id, k, g, ts, v, x, f, {MORE} FROM {other})"
                )
            }
        }
    }

    /// Draws the CTE or the view that the query begins with, if it does.
    fn used_again(&mut self) -> Option<&'static str> {
        let (feature, name) = match (self.prelude.starts_with("WITH c"), &self.view) {
            (true, _) => ("CTE used twice", "c"),
            (false, Some(_)) => ("view used twice", VIEW),
            (false, None) => return None,
        };
        if !self.random.chance(40) {
            return None;
        }
        self.feature(feature);
        self.feature("self-join");
        Some(name)
    }

    /// Draws one of the tables, most often the main one.
    pub(super) fn table(&mut self) -> String {
        if self.random.chance(50) {
            self.feature("self-join");
            return SECOND_MAIN.to_owned();
        }
        (*self.random.pick(&OTHERS)).to_owned()
    }

    /// Draws a LAST JOIN of a right side with this name to `q`.
    pub(super) fn last_join_clause(&mut self, name: &str, depth: usize) -> String {
        let right = self.right(depth);
        let order = *self.random.pick(&["ts", "ts", "id", "v"]);
        let by = if self.random.chance(75) {
            format!("ORDER BY {name}.{order} ")
        } else {
            self.feature("LAST JOIN without ORDER BY");
            String::new()
        };
        if (right.contains(SECOND_MAIN) || right == "c") && self.random.chance(30) {
            self.feature("self-join by id");
            let extra = self.join_condition(name);
            return format!(" LAST JOIN {right} AS {name} {by}ON q.id = {name}.id{extra}");
        }
        let keys = self.random.pick(&[
            "q.k = r.k",
            "q.k = r.k",
            "q.g = r.g",
            "q.k = r.k AND q.g = r.g",
            "concat(q.k, 'b') = r.k",
            "q.g + 1 = r.g",
            "q.k = concat(r.k, '')",
        ]);
        if keys.contains("concat") || keys.contains('+') {
            self.feature("expression as a join key");
        }
        let keys = keys.replace("r.", &format!("{name}."));
        let extra = self.join_condition(name);
        format!(" LAST JOIN {right} AS {name} {by}ON {keys}{extra}")
    }

    pub(super) fn join_condition(&mut self, name: &str) -> String {
        match self.random.below(6) {
            0 => {
                self.feature("LAST JOIN up to a time");
                format!(" AND {name}.ts <= q.ts")
            }
            1 => {
                self.feature("LAST JOIN up to a time");
                format!(" AND {name}.ts < q.ts")
            }
            2 => {
                self.feature("LAST JOIN with another condition");
                format!(" AND {name}.v > 0")
            }
            3 => {
                self.feature("LAST JOIN with another condition");
                let others =
                    ["({n}.v < q.v OR {n}.f)", "{n}.id != q.id", "{n}.k < concat(q.k, 'b')"];
                format!(" AND {}", self.random.pick(&others).replace("{n}", name))
            }
            _ => String::new(),
        }
    }

    pub(super) fn joined_filter(&mut self) -> String {
        if !self.random.chance(30) {
            return String::new();
        }
        self.feature("WHERE");
        let filters = [" WHERE q.v > 0", " WHERE r.id IS NOT NULL", " WHERE r.v < 5 OR q.f"];
        (*self.random.pick(&filters)).to_owned()
    }
}
