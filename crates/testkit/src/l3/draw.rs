//! Draws whole queries over three tables of one schema, and their rows.
//!
//! Every source of rows has the columns of the tables, so that sources nest; `id` is that of a row
//! of the main table or, for a group, the greatest of its rows. The constructs of a query are
//! recorded by the names of [`constructs`].
//!
//! | module | what |
//! |---|---|
//! | [`feature`] | the typical query of a feature store |
//! | [`source`] | sub-queries, CTEs, unions and joins |
//! | [`window`] | windows and the calls over them |
//! | [`value`] | scalar expressions |

mod feature;
mod source;
mod value;
mod window;

use self::window::WindowSource;
pub(crate) use self::window::over_our_columns;

use super::constructs;
use crate::random::Random;

/// The left-most table of every query.
pub const MAIN: &str = "m";

/// The same table where a query reads it once more.
pub const SECOND_MAIN: &str = "`m`";

/// The view of a drawn query.
pub const VIEW: &str = "viewed";

/// The other tables: for unions, and for the right sides of joins.
pub const OTHERS: [&str; 2] = ["u", "r"];

/// The columns of every source beside `id, k, g, ts, v, x, f`.
const MORE: &str = "n, b, e, d, s";

/// The same columns of a source called `q`.
const MORE_OF_Q: &str = "q.n AS n, q.b AS b, q.e AS e, q.d AS d, q.s AS s";

/// The same columns of a group.
const MORE_OF_GROUP: &str = "max(n) AS n, min(b) AS b, sum(e) AS e, max(d) AS d, min(s) AS s";

/// Which rows of batch mode belong to the request row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerRows {
    /// The one row of a whole table.
    All,
    /// Those whose first column is its id.
    OfRequest,
    /// Like `OfRequest`, for a batch query that is not DISTINCT and has the id first.
    DistinctOfRequest,
    /// None: LIMIT 0.
    None,
}

/// A drawn query.
#[derive(Debug, Clone)]
pub struct DrawnQuery {
    /// The query that is deployed.
    pub sql: String,
    /// The query of the view [`VIEW`] that it reads.
    pub view: Option<String>,
    /// The query of batch mode: the same without LIMIT and DISTINCT, which remove rows.
    pub reference: String,
    /// Where the answer is in the rows of batch mode.
    pub which: AnswerRows,
    /// Its constructs, by the names of [`constructs`].
    pub features: Vec<&'static str>,
}

/// Draws a query; what only the default mode has where it `is_standard`.
pub fn query(random: &mut Random, is_standard: bool) -> DrawnQuery {
    let (features, prelude) = (Vec::new(), String::new());
    let mut draw = QueryDraw { random, features, prelude, view: None, is_standard };
    let form = draw.random.below(16);
    let mut drawn = match form {
        0 => draw.projection(),
        1 | 2 => draw.window(),
        3 => draw.joined_window(),
        4 | 5 => draw.last_join(),
        6 => draw.left_join(),
        7 | 8 => draw.group(),
        9 => draw.total(),
        10 => draw.feature_groups(),
        11..=14 => draw.features_of_a_key(),
        _ => draw.distinct(),
    };
    let tail = draw.tail(&mut drawn.which);
    drawn.sql = format!("{}{}{tail}", draw.prelude, drawn.sql);
    drawn.reference = format!("{}{}", draw.prelude, drawn.reference);
    drawn.features = draw.features;
    drawn.view = draw.view;
    drawn.features.sort_unstable();
    drawn.features.dedup();
    drawn
}

struct QueryDraw<'a> {
    random: &'a mut Random,
    features: Vec<&'static str>,
    /// The WITH clause, or nothing.
    prelude: String,
    /// The query of the view, if it reads one.
    view: Option<String>,
    /// Whether the query is not for the compatibility setting.
    is_standard: bool,
}

impl QueryDraw<'_> {
    fn feature(&mut self, feature: &'static str) {
        debug_assert!(
            constructs::all().any(|(_, known)| known == feature),
            "`{feature}` is in the list of constructs"
        );
        self.features.push(feature);
    }

    fn projection(&mut self) -> DrawnQuery {
        self.feature("projection");
        let source = self.source(2);
        let a = self.value(2);
        let b = match self.random.chance(20) {
            true => {
                self.feature("IN (SELECT …) in the select list");
                self.membership()
            }
            false => self.condition(2),
        };
        let filter = self.filter();
        let mut all = "";
        if self.random.chance(10) {
            self.feature("all columns");
            all = *self.random.pick(&["*, ", "q.*, "]);
        }
        self.plain(format!("SELECT {all}id AS i, {a} AS a, {b} AS b FROM {source}{filter}"))
    }

    fn window(&mut self) -> DrawnQuery {
        self.feature("window");
        let source = self.source(2);
        let filter = self.filter();
        let windows = self.windows();
        let items = self.items(&windows);
        let clause = windows.clause;
        self.plain(format!("SELECT id, {items} FROM {source}{filter}{clause}"))
    }

    /// Draws windows over a LAST JOIN in the same SELECT. The columns of its right side have other
    /// names than those of the left one, so that they need no qualifier.
    fn joined_window(&mut self) -> DrawnQuery {
        self.feature("window over a LAST JOIN");
        let (source, right) = (self.source(1), self.right(1));
        let extra = *self.random.pick(&["", " AND r.rts <= q.ts", " AND r.rv < 5"]);
        let mut windows = self.windows_of(WindowSource::Joined);
        let items = self.items(&windows);
        let clause = std::mem::take(&mut windows.clause);
        let over = &windows.over;
        self.plain(format!(
            "SELECT id, rid, {items}, sum(rv){over} AS rs, count(rid){over} AS rn FROM {source} \
             LAST JOIN (SELECT id AS rid, k AS rk, ts AS rts, v AS rv FROM {right} AS p) AS r \
             ORDER BY r.rts ON q.k = r.rk{extra}{clause}"
        ))
    }

    fn last_join(&mut self) -> DrawnQuery {
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

    fn left_join(&mut self) -> DrawnQuery {
        self.feature("LEFT JOIN");
        let source = self.source(1);
        let (right, extra) = (self.right(1), self.join_condition("r"));
        let filter = self.joined_filter();
        self.plain(format!(
            "SELECT q.id AS id, r.id AS rid, r.x AS rx FROM {source} \
             LEFT JOIN {right} AS r ON q.k = r.k{extra}{filter}"
        ))
    }

    /// Draws the form that generators of feature queries write: each group of features is a
    /// sub-query over the request table, and the groups are joined by the id of the request.
    fn feature_groups(&mut self) -> DrawnQuery {
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

    fn group(&mut self) -> DrawnQuery {
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

    fn total(&mut self) -> DrawnQuery {
        self.feature("whole table");
        let source = self.source(2);
        let filter = self.filter();
        let calls = self.calls("");
        let mut drawn = self.plain(format!("SELECT max(id) AS id, {calls} FROM {source}{filter}"));
        drawn.which = AnswerRows::All;
        drawn
    }

    fn distinct(&mut self) -> DrawnQuery {
        self.feature("DISTINCT");
        let source = self.source(2);
        let listed = format!("{} AS a, {} AS b", self.value(1), self.condition(1));
        let filter = self.filter();
        DrawnQuery {
            view: None,
            sql: format!("SELECT DISTINCT {listed} FROM {source}{filter}"),
            reference: format!("SELECT id, {listed} FROM {source}{filter}"),
            which: AnswerRows::DistinctOfRequest,
            features: Vec::new(),
        }
    }

    #[expect(clippy::unused_self, reason = "the forms are methods")]
    fn plain(&self, sql: String) -> DrawnQuery {
        DrawnQuery {
            view: None,
            reference: sql.clone(),
            sql,
            which: AnswerRows::OfRequest,
            features: Vec::new(),
        }
    }

    /// Draws ORDER BY and LIMIT, which do not change one row unless the limit is 0.
    fn tail(&mut self, which: &mut AnswerRows) -> String {
        let mut tail = String::new();
        if *which != AnswerRows::DistinctOfRequest && self.random.chance(20) {
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
                *which = AnswerRows::None;
            }
            2 => {
                self.feature("OFFSET");
                tail.push_str(" LIMIT 1000 OFFSET 0");
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
        match self.random.below(5) {
            0 => format!(" WHERE {}", self.membership()),
            1 => {
                let (membership, condition) = (self.membership(), self.condition(1));
                format!(" WHERE ({condition}) AND {membership}")
            }
            _ => format!(" WHERE {}", self.condition(2)),
        }
    }

    /// Draws whether a value is among those of a table.
    fn membership(&mut self) -> String {
        let not = *self.random.pick(&["", "", "NOT "]);
        self.feature(if not.is_empty() { "IN (SELECT …)" } else { "NOT IN (SELECT …)" });
        let value = *self.random.pick(&["k", "v", "g", "v % 3", "ts"]);
        let table = self.table();
        let filter = match self.random.below(3) {
            0 => format!(" WHERE {value} IS NOT NULL"),
            1 => format!(" WHERE {}", self.condition(1)),
            _ => String::new(),
        };
        format!("{value} {not}IN (SELECT {value} FROM {table} AS q{filter})")
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
            &["d"],
            &["b", "n"],
        ]);
        if keys.iter().any(|key| key.len() > 2) {
            self.feature("expression as a group key");
        }
        keys.to_vec()
    }
}
