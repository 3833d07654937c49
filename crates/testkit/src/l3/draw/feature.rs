//! Draws the typical query of a feature store: aggregates over windows of the stored rows of a key.
//!
//! Its windows share a scan more often than not, and its aggregates fold columns of fixed width, so
//! that it is answered from the columns that an index includes.

use super::{DrawnQuery, MAIN, QueryDraw};

/// Columns of fixed width, as numbers.
const NUMBERS: [&str; 7] = ["v", "x", "n", "b", "e", "g", "v + g"];

/// Conditions over columns of fixed width.
const CONDITIONS: [&str; 7] =
    ["f", "x > 0.0", "v > 0 OR f", "n = 1", "b < 3", "e >= 0.5", "v + g > 2 AND f"];

impl QueryDraw<'_> {
    /// Draws features of the stored rows of a key.
    pub(super) fn features_of_a_key(&mut self) -> DrawnQuery {
        self.feature("features of a key");
        let mut items = Vec::new();
        let mut clauses = Vec::new();
        let mut begin = self.history();
        for window in 0..1 + self.random.below(4) {
            if self.random.chance(25) {
                begin = self.history();
            }
            let (frame, attributes) = (self.frame(), self.attributes());
            clauses.push(format!("w{window} AS ({begin} ORDER BY ts {frame}{attributes})"));
            for call in 0..1 + self.random.below(3) {
                items.push(format!("{} OVER w{window} AS a{window}_{call}", self.folded()));
            }
        }
        if clauses.len() > 1 {
            self.feature("two windows");
        }
        self.plain(format!(
            "SELECT id, {} FROM {MAIN} AS q WINDOW {}",
            items.join(", "),
            clauses.join(", ")
        ))
    }

    /// Draws the rows that the windows share: the sources and the key.
    fn history(&mut self) -> String {
        let union = match self.random.below(5) {
            0 => {
                self.feature("window UNION");
                "UNION u "
            }
            1 => {
                self.feature("window UNION of two");
                "UNION u, r "
            }
            _ => "",
        };
        let keys = *self.random.pick(&["k", "k", "k", "g", "k, g", "d", "n, b", "f"]);
        format!("{union}PARTITION BY {keys}")
    }

    fn folded(&mut self) -> String {
        let number = *self.random.pick(&NUMBERS);
        let condition = *self.random.pick(&CONDITIONS);
        match self.random.below(8) {
            0 => "count(*)".to_owned(),
            1 => format!("count({})", self.random.pick(&["k", "s", "d", "v", "x"])),
            2 => {
                format!("{}({})", self.random.pick(&["min", "max"]), self.random.pick(&["ts", "d"]))
            }
            3 | 4 => {
                self.feature("aggregate with a condition");
                let name = *self.random.pick(&["count", "sum", "avg", "min", "max"]);
                format!("{name}_where({number}, {condition})")
            }
            _ => {
                let name = *self.random.pick(&["sum", "avg", "min", "max", "stddev", "var_pop"]);
                format!("{name}({number})")
            }
        }
    }
}
