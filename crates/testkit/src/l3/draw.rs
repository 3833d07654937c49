//! Draws whole queries over three tables of one schema, and their rows.
//!
//! Every source of rows has the columns of the tables, whatever it is made of, so that sources
//! nest; `id` is that of a row of the main table or, for a group, the greatest of its rows'. What a
//! query is made of is noted by the names of [`CONSTRUCTS`].
//!
//! | module | what |
//! |---|---|
//! | [`source`] | sub-queries, CTEs, unions and joins |
//! | [`window`] | windows and the calls over them |
//! | [`value`] | scalar expressions |

mod source;
mod value;
mod window;

use lockstep_row::{DataType, Value};

use crate::random::Random;

/// The left-most table of every query.
pub const MAIN: &str = "m";

/// The same table where a query reads it once more.
pub const SECOND_MAIN: &str = "`m`";

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

/// What queries are made of, as the dialect names it: the clause, and the construct.
pub const CONSTRUCTS: &[(&str, &str)] = &[
    ("tables", "several indexes"),
    ("tables", "late rows"),
    ("tables", "several requests at once"),
    ("SELECT", "projection"),
    ("SELECT", "sub-query"),
    ("SELECT", "CTE"),
    ("SELECT", "CTE used twice"),
    ("SELECT", "DISTINCT"),
    ("SELECT", "WHERE"),
    ("SELECT", "ORDER BY"),
    ("SELECT", "LIMIT"),
    ("SELECT", "LIMIT 0"),
    ("SELECT", "UNION ALL"),
    ("SELECT", "UNION ALL of the request table"),
    ("SELECT", "WHERE in a sub-query"),
    ("GROUP BY", "GROUP BY"),
    ("GROUP BY", "GROUP BY in a sub-query"),
    ("GROUP BY", "HAVING"),
    ("GROUP BY", "whole table"),
    ("GROUP BY", "expression as a group key"),
    ("WINDOW", "window"),
    ("WINDOW", "window in a sub-query"),
    ("WINDOW", "window over windows"),
    ("WINDOW", "two windows"),
    ("WINDOW", "window that extends another"),
    ("WINDOW", "window in OVER"),
    ("WINDOW", "window without ORDER BY"),
    ("WINDOW", "window ordered by another column"),
    ("WINDOW", "ROWS"),
    ("WINDOW", "ROWS_RANGE"),
    ("WINDOW", "UNBOUNDED PRECEDING"),
    ("WINDOW", "OPEN PRECEDING"),
    ("WINDOW", "frame that ends before the current row"),
    ("WINDOW", "MAXSIZE"),
    ("WINDOW", "EXCLUDE CURRENT_ROW"),
    ("WINDOW", "EXCLUDE CURRENT_TIME"),
    ("WINDOW", "INSTANCE_NOT_IN_WINDOW"),
    ("WINDOW", "window UNION"),
    ("WINDOW", "window UNION of the request table"),
    ("WINDOW", "window UNION of a sub-query"),
    ("WINDOW", "window UNION of a LAST JOIN"),
    ("WINDOW", "expression as a partition key"),
    ("calls", "aggregate with a condition"),
    ("calls", "aggregate by category"),
    ("calls", "aggregate of ranks"),
    ("calls", "aggregate of spread"),
    ("calls", "aggregate in order of time"),
    ("calls", "aggregate in the argument of an aggregate"),
    ("calls", "scalar function of aggregates"),
    ("calls", "OVER on a scalar function"),
    ("calls", "lag as an item"),
    ("calls", "lag in an expression"),
    ("calls", "lag that passes over NULL"),
    ("calls", "lag in the argument of an aggregate"),
    ("JOIN", "LAST JOIN"),
    ("JOIN", "LAST JOIN in a sub-query"),
    ("JOIN", "LAST JOIN without ORDER BY"),
    ("JOIN", "LAST JOIN of two"),
    ("JOIN", "LAST JOIN up to a time"),
    ("JOIN", "LAST JOIN with another condition"),
    ("JOIN", "expression as a join key"),
    ("JOIN", "self-join"),
    ("JOIN", "self-join by id"),
    ("JOIN", "feature groups"),
    ("JOIN", "projection on the right"),
    ("JOIN", "WHERE on the right"),
    ("JOIN", "window on the right"),
    ("JOIN", "window over the request table on the right"),
    ("JOIN", "LAST JOIN on the right"),
    ("JOIN", "LAST JOIN of the request table on the right"),
    ("JOIN", "LEFT JOIN on the right"),
    ("JOIN", "UNION ALL on the right"),
    ("JOIN", "GROUP BY on the right"),
    ("JOIN", "LEFT JOIN"),
    ("values", "arithmetic"),
    ("values", "DIV and %"),
    ("values", "bit operators"),
    ("values", "CASE"),
    ("values", "CASE of a value"),
    ("values", "CAST"),
    ("values", "scalar function"),
    ("values", "NULL"),
    ("values", "AND and OR"),
    ("values", "NOT and XOR"),
    ("values", "comparison"),
    ("values", "BETWEEN"),
    ("values", "IN"),
    ("values", "IS NULL"),
    ("values", "LIKE and RLIKE"),
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
    /// What it is made of, by the names of [`CONSTRUCTS`].
    pub features: Vec<&'static str>,
}

/// Index clauses of a table, each with the number of its indexes.
const INDEXES: [(usize, &str); 6] = [
    (0, ""),
    (1, ", INDEX(KEY=k, TS=ts)"),
    (1, ", INDEX(KEY=g)"),
    (2, ", INDEX(KEY=k, TS=ts), INDEX(KEY=g, TS=ts)"),
    (3, ", INDEX(KEY=k, TS=ts), INDEX(KEY=(k, g), TS=ts), INDEX(KEY=id)"),
    (3, ", INDEX(KEY=g, TS=ts), INDEX(KEY=k), INDEX(KEY=(g, f), TS=ts)"),
];

/// Draws the indexes of a table: how many, and the clauses.
pub fn indexes(random: &mut Random) -> (usize, &'static str) {
    *random.pick(&INDEXES)
}

/// The statement that makes a table.
pub fn create(name: &str, indexes: &str) -> String {
    let columns: Vec<String> =
        COLUMNS.iter().map(|(name, data_type)| format!("{name} {data_type}")).collect();
    format!("CREATE TABLE {name} ({}{indexes})", columns.join(", "))
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
    let form = draw.random.below(12);
    let mut drawn = match form {
        0 => draw.projection(),
        1..=3 => draw.window(),
        4 | 5 => draw.last_join(),
        6 => draw.left_join(),
        7 | 8 => draw.group(),
        9 => draw.total(),
        10 => draw.feature_groups(),
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
        debug_assert!(
            CONSTRUCTS.iter().any(|(_, known)| *known == feature),
            "`{feature}` is in the list of constructs"
        );
        self.features.push(feature);
    }

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
        let windows = self.windows();
        let items = self.items(&windows);
        let clause = windows.clause;
        self.plain(format!("SELECT id, {items} FROM {source}{filter}{clause}"))
    }

    fn last_join(&mut self) -> Drawn {
        self.feature("LAST JOIN");
        let source = self.source(2);
        let mut join = self.last_join_clause("r", 2);
        let mut more = "";
        if self.random.chance(30) {
            self.feature("LAST JOIN of two");
            join.push_str(&self.last_join_clause("s", 1));
            more = ", s.id AS sid, s.x AS sx";
        }
        let filter = self.joined_filter();
        self.plain(format!(
            "SELECT q.id AS id, r.id AS rid, r.v AS rv, q.v + r.v AS s{more} \
             FROM {source}{join}{filter}"
        ))
    }

    fn left_join(&mut self) -> Drawn {
        self.feature("LEFT JOIN");
        let source = self.source(1);
        let (right, extra) = (self.right(1), self.join_condition("r"));
        let filter = self.joined_filter();
        self.plain(format!(
            "SELECT q.id AS id, r.id AS rid, r.x AS rx FROM {source} \
             LEFT JOIN {right} AS r ON q.k = r.k{extra}{filter}"
        ))
    }

    /// What generators of feature queries write: each group of features is a sub-query over the
    /// request table, and the groups are joined by the id of the request.
    fn feature_groups(&mut self) -> Drawn {
        self.feature("feature groups");
        let value = self.value(1);
        let mut columns = "a.id1 AS id, a.c AS ac".to_owned();
        let mut from = format!("(SELECT id AS id1, {value} AS c FROM {MAIN}) AS a");
        for group in 0..1 + self.random.below(3) {
            let query = match self.random.below(3) {
                0 => {
                    let windows = self.windows();
                    let calls = self.calls(&windows.over);
                    let clause = windows.clause;
                    format!("SELECT id AS id_{group}, {calls} FROM {SECOND_MAIN} AS q{clause}")
                }
                1 => {
                    let join = self.last_join_clause("r", 1);
                    format!("SELECT q.id AS id_{group}, r.v AS a0 FROM {SECOND_MAIN} AS q{join}")
                }
                _ => {
                    let (value, filter) = (self.value(2), self.filter());
                    format!(
                        "SELECT id AS id_{group}, {value} AS a0 FROM {SECOND_MAIN} AS q{filter}"
                    )
                }
            };
            columns.push_str(&format!(", b{group}.id_{group}, b{group}.a0"));
            from.push_str(&format!(
                " LAST JOIN ({query}) AS b{group} ON a.id1 = b{group}.id_{group}"
            ));
        }
        self.plain(format!("SELECT {columns} FROM {from}"))
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

    #[expect(clippy::unused_self, reason = "the forms are methods")]
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
}
