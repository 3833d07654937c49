//! Draws expressions of each type, nested up to a depth.

use super::GrammarDraw;
use crate::fuzz::constructs;

impl GrammarDraw<'_> {
    pub(super) fn number(&mut self, depth: usize) -> String {
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

    pub(super) fn boolean(&mut self, depth: usize) -> String {
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

    pub(super) fn text(&mut self, depth: usize) -> String {
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

    pub(super) fn time(&mut self, depth: usize) -> String {
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

    pub(super) fn value(&mut self, depth: usize) -> String {
        match self.random.below(5) {
            0 => self.text(depth),
            1 => self.boolean(depth),
            2 => self.time(depth),
            _ => self.number(depth),
        }
    }

    pub(super) fn extreme(&mut self) -> String {
        if self.random.chance(50) {
            return self.random.below(5).to_string();
        }
        self.note("extreme number");
        self.one(&constructs::EXTREMES)
    }
}
