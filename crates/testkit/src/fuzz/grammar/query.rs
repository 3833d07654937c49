//! Draws queries: projections, groups, windows, joins and unions of each other.

use super::GrammarDraw;

impl GrammarDraw<'_> {
    pub(super) fn query(&mut self) -> String {
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
    pub(super) fn simple(&mut self, table: &str) -> String {
        let filter = if self.random.chance(50) {
            self.note("WHERE");
            format!(" WHERE {}", self.boolean(2))
        } else {
            String::new()
        };
        format!("SELECT * FROM {table}{filter}")
    }

    pub(super) fn plain(&mut self, source: &str) -> String {
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

    pub(super) fn group(&mut self, source: &str) -> String {
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

    pub(super) fn total(&mut self, source: &str) -> String {
        self.note("aggregate over a whole table");
        let (a, b) = (self.aggregate(), self.aggregate());
        format!("SELECT {a}, {b} FROM {source}")
    }

    pub(super) fn windowed(&mut self, source: &str) -> String {
        self.note("window");
        let calls: Vec<String> =
            (0..self.times(4)).map(|_| format!("{} OVER w", self.aggregate())).collect();
        let window = self.window();
        format!("SELECT id, {} FROM {source} WINDOW w AS ({window})", calls.join(", "))
    }

    pub(super) fn aggregate(&mut self) -> String {
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

    pub(super) fn window(&mut self) -> String {
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

    pub(super) fn frame(&mut self) -> String {
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

    pub(super) fn tail(&mut self) -> String {
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
}
