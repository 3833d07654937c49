//! Draws statements other than queries.

use super::GrammarDraw;
use crate::fuzz::constructs;

impl GrammarDraw<'_> {
    pub(super) fn other_statement(&mut self) -> String {
        let (alias, number) = (self.one(&constructs::ALIASES), self.extreme());
        match self.random.below(14) {
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
            11 => {
                self.note("AS KNOWN");
                let at = self.one(&["ARRIVAL", "ts", "id", "k", "nowhere"]);
                format!("{} AS KNOWN AT {at}", self.query())
            }
            12 => {
                self.note("VERIFY");
                let query = self.query();
                format!("DEPLOY {alias} AS {query}; VERIFY DEPLOYMENT {alias} OPTIONS(sample = 2)")
            }
            _ => {
                self.note("EXPLAIN");
                format!("EXPLAIN {}", self.query())
            }
        }
    }
}
