//! Draws whole queries over three tables of one schema, and their rows.
//!
//! Every source of rows has the columns of the tables, whatever it is made of, so that sources
//! nest; `id` is that of a row of the main table or, for a group, the greatest of its rows'.

use lockstep_row::{DataType, Value};

use crate::random::Random;

/// The left-most table of every query.
pub const MAIN: &str = "m";

/// The other tables: for unions, and for the right sides of joins.
pub const OTHERS: [&str; 2] = ["u", "r"];

/// The id of the request row, greater than all others.
pub const REQUEST_ID: i32 = 1_000_000;

/// Names and types of the columns of every table.
pub const COLUMNS: [(&str, DataType); 7] = [
    ("id", DataType::Int),
    ("k", DataType::String),
    ("g", DataType::Int),
    ("ts", DataType::Timestamp),
    ("v", DataType::Int),
    ("x", DataType::Double),
    ("f", DataType::Bool),
];

/// Which rows of batch mode the request row comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The one row of a whole table.
    All,
    /// Those whose first column is its id.
    OfRequest,
    /// The same of a reference that is not DISTINCT and has the id in front.
    DistinctOfRequest,
    /// None: LIMIT 0.
    None,
}

/// A query.
#[derive(Debug, Clone)]
pub struct Drawn {
    /// What is deployed.
    pub sql: String,
    /// What batch mode runs: the same without LIMIT and DISTINCT, which take rows away.
    pub reference: String,
    /// Where the answer is in the reference's rows.
    pub which: Which,
    /// What it is made of.
    pub features: Vec<&'static str>,
}

/// The statement that makes a table.
pub fn create(name: &str) -> String {
    let columns: Vec<String> =
        COLUMNS.iter().map(|(name, data_type)| format!("{name} {data_type}")).collect();
    format!("CREATE TABLE {name} ({})", columns.join(", "))
}

/// A row. Keys and times come from small domains; event times are never NULL.
pub fn row(id: i32, random: &mut Random) -> Vec<Value> {
    let mut maybe = |value: Value| if random.chance(15) { Value::Null } else { value };
    let nulls: Vec<Value> = [
        maybe(Value::String("".into())),
        maybe(Value::Int(0)),
        maybe(Value::Int(0)),
        maybe(Value::Double(0.0)),
        maybe(Value::Bool(false)),
    ]
    .to_vec();
    let small = |random: &mut Random, end: usize| i32::try_from(random.below(end)).unwrap_or(0);
    let key = *random.pick(&["a", "b", "c", ""]);
    let values = [
        Value::String(key.into()),
        Value::Int(small(random, 4)),
        Value::Int(small(random, 40) - 20),
        Value::Double(f64::from(small(random, 100)) / 7.0 - 5.0),
        Value::Bool(random.chance(50)),
    ];
    let mut drawn = values
        .into_iter()
        .zip(nulls)
        .map(|(value, null)| if null == Value::Null { Value::Null } else { value });
    let mut row = vec![Value::Int(id)];
    row.extend(drawn.by_ref().take(2));
    row.push(Value::Timestamp(1_000 * i64::from(small(random, 8))));
    row.extend(drawn);
    row
}

/// Draws a query.
pub fn query(random: &mut Random) -> Drawn {
    let mut draw = Draw { random, features: Vec::new(), prelude: String::new() };
    let form = draw.random.below(9);
    let mut drawn = match form {
        0 => draw.projection(),
        1 | 2 => draw.window(),
        3 => draw.last_join(),
        4 => draw.left_join(),
        5 | 6 => draw.group(),
        7 => draw.total(),
        _ => draw.distinct(),
    };
    let tail = draw.tail(&mut drawn.which);
    drawn.sql = format!("{}{}{tail}", draw.prelude, drawn.sql);
    drawn.reference = format!("{}{}", draw.prelude, drawn.reference);
    drawn.features = draw.features;
    drawn.features.sort_unstable();
    drawn.features.dedup();
    drawn
}

struct Draw<'a> {
    random: &'a mut Random,
    features: Vec<&'static str>,
    /// WITH, when there is one.
    prelude: String,
}

impl Draw<'_> {
    fn feature(&mut self, feature: &'static str) {
        self.features.push(feature);
    }

    // Forms

    fn projection(&mut self) -> Drawn {
        self.feature("projection");
        let source = self.source(2);
        let (a, b) = (self.value(2), self.condition(2));
        let filter = self.filter();
        self.plain(format!("SELECT id, {a} AS a, {b} AS b FROM {source}{filter}"))
    }

    fn window(&mut self) -> Drawn {
        self.feature("window");
        let source = self.source(2);
        let filter = self.filter();
        let calls = self.calls(" OVER w");
        let window = self.window_spec();
        self.plain(format!("SELECT id, {calls} FROM {source}{filter} WINDOW w AS ({window})"))
    }

    fn last_join(&mut self) -> Drawn {
        self.feature("LAST JOIN");
        let source = self.source(1);
        let join = self.last_join_clause();
        let filter = self.joined_filter();
        self.plain(format!(
            "SELECT q.id AS id, r.id AS rid, r.v AS rv, q.v + r.v AS s FROM {source}{join}{filter}"
        ))
    }

    fn left_join(&mut self) -> Drawn {
        self.feature("LEFT JOIN");
        let source = self.source(1);
        let (right, extra) = (self.right(), self.join_condition());
        let filter = self.joined_filter();
        self.plain(format!(
            "SELECT q.id AS id, r.id AS rid, r.x AS rx FROM {source} \
             LEFT JOIN {right} ON q.k = r.k{extra}{filter}"
        ))
    }

    fn group(&mut self) -> Drawn {
        self.feature("GROUP BY");
        let source = self.source(2);
        let filter = self.filter();
        let keys = self.keys();
        let calls = self.calls("");
        let having = match self.random.below(4) {
            0 => {
                self.feature("HAVING");
                format!(" HAVING count(*) > {}", self.random.below(3))
            }
            1 => {
                self.feature("HAVING");
                " HAVING sum(v) >= 0 OR max(x) IS NULL".to_owned()
            }
            _ => String::new(),
        };
        let listed: Vec<String> =
            keys.iter().enumerate().map(|(index, key)| format!("{key} AS key{index}")).collect();
        self.plain(format!(
            "SELECT max(id) AS id, {}, {calls} FROM {source}{filter} GROUP BY {}{having}",
            listed.join(", "),
            keys.join(", ")
        ))
    }

    fn total(&mut self) -> Drawn {
        self.feature("whole table");
        let source = self.source(2);
        let filter = self.filter();
        let calls = self.calls("");
        let mut drawn = self.plain(format!("SELECT max(id) AS id, {calls} FROM {source}{filter}"));
        drawn.which = Which::All;
        drawn
    }

    fn distinct(&mut self) -> Drawn {
        self.feature("DISTINCT");
        let source = self.source(2);
        let listed = format!("{} AS a, {} AS b", self.value(1), self.condition(1));
        let filter = self.filter();
        Drawn {
            sql: format!("SELECT DISTINCT {listed} FROM {source}{filter}"),
            reference: format!("SELECT id, {listed} FROM {source}{filter}"),
            which: Which::DistinctOfRequest,
            features: Vec::new(),
        }
    }

    fn plain(&self, sql: String) -> Drawn {
        Drawn { reference: sql.clone(), sql, which: Which::OfRequest, features: Vec::new() }
    }

    /// ORDER BY and LIMIT, which say nothing about one row, unless the limit is 0.
    fn tail(&mut self, which: &mut Which) -> String {
        let mut tail = String::new();
        if *which != Which::DistinctOfRequest && self.random.chance(20) {
            self.feature("ORDER BY");
            let order = *self.random.pick(&[" ORDER BY id", " ORDER BY id DESC"]);
            tail.push_str(order);
        }
        match self.random.below(12) {
            0 => {
                self.feature("LIMIT");
                tail.push_str(" LIMIT 1000");
            }
            1 => {
                self.feature("LIMIT 0");
                tail.push_str(" LIMIT 0");
                *which = Which::None;
            }
            _ => {}
        }
        tail
    }

    // Sources: all have the columns of the tables and are called q

    fn source(&mut self, depth: usize) -> String {
        if depth == 0 || self.random.chance(40) {
            return format!("{MAIN} AS q");
        }
        let query = self.source_query(depth - 1);
        if depth == 2 && self.prelude.is_empty() && self.random.chance(25) {
            self.feature("CTE");
            self.prelude = format!("WITH c AS ({query}) ");
            return "c AS q".to_owned();
        }
        self.feature("sub-query");
        format!("({query}) AS q")
    }

    fn source_query(&mut self, depth: usize) -> String {
        match self.random.below(6) {
            0 => {
                self.feature("GROUP BY in a sub-query");
                let (source, filter) = (self.source(depth), self.filter());
                format!(
                    "SELECT max(id) AS id, k, CAST(count(*) AS INT) AS g, max(ts) AS ts, \
                     max(v) AS v, sum(x) AS x, count(v) > 1 AS f FROM {source}{filter} GROUP BY k"
                )
            }
            1 => {
                self.feature("window in a sub-query");
                let (source, window) = (self.source(depth), self.window_spec());
                format!(
                    "SELECT id, k, g, ts, CAST(sum(v) OVER w AS INT) AS v, avg(x) OVER w AS x, f \
                     FROM {source} WINDOW w AS ({window})"
                )
            }
            2 => {
                self.feature("LAST JOIN in a sub-query");
                let (source, join) = (self.source(depth), self.last_join_clause());
                format!(
                    "SELECT q.id AS id, q.k AS k, r.g AS g, q.ts AS ts, r.v AS v, q.x AS x, \
                     r.f AS f FROM {source}{join}"
                )
            }
            3 => {
                self.feature("UNION ALL");
                let (source, filter, other) = (self.source(depth), self.filter(), self.filter());
                format!(
                    "SELECT id, k, g, ts, v, x, f FROM {source}{filter} \
                     UNION ALL SELECT id, k, g, ts, v, x, f FROM u{other}"
                )
            }
            _ => {
                let (source, filter) = (self.source(depth), self.filter());
                let (g, v, f) = (self.value(2), self.value(1), self.condition(1));
                format!("SELECT id, k, {g} AS g, ts, {v} AS v, x, {f} AS f FROM {source}{filter}")
            }
        }
    }

    fn right(&mut self) -> String {
        let table = *self.random.pick(&OTHERS);
        match self.random.below(5) {
            0 => {
                self.feature("sub-query on the right");
                let filter = self.filter();
                format!("(SELECT id, k, g + 1 AS g, ts, v, x, f FROM {table}{filter}) AS r")
            }
            1 => {
                self.feature("GROUP BY on the right");
                format!(
                    "(SELECT max(id) AS id, k, max(g) AS g, max(ts) AS ts, min(v) AS v, \
                     sum(x) AS x, count(*) > 1 AS f FROM {table} GROUP BY k) AS r"
                )
            }
            2 => {
                self.feature("window on the right");
                let window = self.window_spec_over(None);
                format!(
                    "(SELECT id, k, g, ts, CAST(sum(v) OVER w AS INT) AS v, x, f FROM {table} \
                     WINDOW w AS ({window})) AS r"
                )
            }
            _ => format!("{table} AS r"),
        }
    }

    fn last_join_clause(&mut self) -> String {
        let right = self.right();
        let order = *self.random.pick(&["r.ts", "r.ts", "r.id", "r.v"]);
        let by = if self.random.chance(80) { format!("ORDER BY {order} ") } else { String::new() };
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
        let extra = self.join_condition();
        format!(" LAST JOIN {right} {by}ON {keys}{extra}")
    }

    fn join_condition(&mut self) -> String {
        let conditions = [
            "",
            "",
            " AND r.ts <= q.ts",
            " AND r.ts < q.ts",
            " AND r.v > 0",
            " AND (r.v < q.v OR r.f)",
        ];
        (*self.random.pick(&conditions)).to_owned()
    }

    fn joined_filter(&mut self) -> String {
        if !self.random.chance(30) {
            return String::new();
        }
        self.feature("WHERE");
        let filters = [" WHERE q.v > 0", " WHERE r.id IS NOT NULL", " WHERE r.v < 5 OR q.f"];
        (*self.random.pick(&filters)).to_owned()
    }

    fn filter(&mut self) -> String {
        if !self.random.chance(35) {
            return String::new();
        }
        self.feature("WHERE");
        format!(" WHERE {}", self.condition(2))
    }

    fn keys(&mut self) -> Vec<&'static str> {
        let keys = *self.random.pick(&[
            &["k"][..],
            &["k"],
            &["g"],
            &["k", "g"],
            &["f"],
            &["ts"],
            &["v % 3"],
            &["upper(k)", "g > 1"],
            &["ifnull(g, 0) + 1"],
        ]);
        if keys.iter().any(|key| key.len() > 2) {
            self.feature("expression as a group key");
        }
        keys.to_vec()
    }

    fn calls(&mut self, over: &str) -> String {
        let count = 1 + self.random.below(3);
        let calls = (0..count).map(|index| {
            let call = *self.random.pick(&CALLS);
            format!("{call}{over} AS a{index}")
        });
        calls.collect::<Vec<_>>().join(", ")
    }

    // Windows

    fn window_spec(&mut self) -> String {
        let union = match self.random.below(5) {
            0 => Some("UNION u "),
            1 => Some("UNION u, r "),
            2 => Some("UNION (SELECT id, k, g, ts, v * 2 AS v, x, f FROM u WHERE v > 0) "),
            _ => None,
        };
        self.window_spec_over(union)
    }

    fn window_spec_over(&mut self, union: Option<&str>) -> String {
        let partition = *self.random.pick(&["k", "k", "g", "k, g", "upper(k)", "g % 2", "f"]);
        if partition.contains(['(', '%']) {
            self.feature("expression as a partition key");
        }
        let (start, end) = (1 + self.random.below(4), self.random.below(2));
        let end_of = |unit: &str| match end {
            0 => "CURRENT ROW".to_owned(),
            _ => format!("1{unit} PRECEDING"),
        };
        let (frame, max_size) = if self.random.chance(50) {
            (format!("ROWS BETWEEN {start} PRECEDING AND {}", end_of("")), "")
        } else {
            let max_size = *self.random.pick(&["", "", " MAXSIZE 2"]);
            (format!("ROWS_RANGE BETWEEN {start}s PRECEDING AND {}", end_of("s")), max_size)
        };
        let mut attributes = String::new();
        for attribute in
            [" EXCLUDE CURRENT_ROW", " EXCLUDE CURRENT_TIME", " INSTANCE_NOT_IN_WINDOW"]
        {
            if self.random.chance(10) {
                self.feature("window attribute");
                attributes.push_str(attribute);
            }
        }
        if union.is_some() {
            self.feature("window UNION");
        }
        let union = union.unwrap_or_default();
        format!("{union}PARTITION BY {partition} ORDER BY ts {frame}{max_size}{attributes}")
    }

    // Expressions over k, g, v, x, f

    /// An INT.
    fn value(&mut self, depth: usize) -> String {
        if depth == 0 {
            return (*self.random.pick(&["g", "v", "id", "1", "NULL + 1"])).to_owned();
        }
        let (a, b) = (self.value(depth - 1), self.value(depth - 1));
        match self.random.below(7) {
            0 => format!("({a} + {b})"),
            1 => format!("({a} % 7)"),
            2 => format!("ifnull({a}, {b})"),
            3 => format!("CASE WHEN {} THEN {a} ELSE {b} END", self.condition(depth - 1)),
            4 => "char_length(k)".to_owned(),
            5 => format!("abs({a})"),
            _ => a,
        }
    }

    /// A BOOL, true more often than not.
    fn condition(&mut self, depth: usize) -> String {
        if depth == 0 {
            let simple =
                ["f", "v > -10", "k IS NOT NULL", "x < 5.0", "g <> 2", "k IN ('a', 'b', '')"];
            return (*self.random.pick(&simple)).to_owned();
        }
        let (a, b) = (self.condition(depth - 1), self.condition(depth - 1));
        match self.random.below(4) {
            0 => format!("({a} AND {b})"),
            1 | 2 => format!("({a} OR {b})"),
            _ => a,
        }
    }
}

/// Aggregates over the columns, in windows and in groups alike.
const CALLS: [&str; 16] = [
    "count(*)",
    "count(v)",
    "sum(v)",
    "sum(x)",
    "avg(x)",
    "avg(v)",
    "min(k)",
    "max(x)",
    "distinct_count(k)",
    "sum_where(v, f)",
    "count_where(v, x > 0.0)",
    "stddev(x)",
    "median(v)",
    "top(v, 2)",
    "count_cate(v, k)",
    "max(ts)",
];
