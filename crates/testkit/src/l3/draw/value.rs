//! Draws scalar expressions over the columns.

use super::QueryDraw;

impl QueryDraw<'_> {
    /// Draws an INT.
    pub(super) fn value(&mut self, depth: usize) -> String {
        if depth == 0 {
            let leaf = *self.random.pick(&["g", "v", "id", "1", "NULL + 1", "int(n)"]);
            if leaf.starts_with("NULL") {
                self.feature("NULL");
            }
            return leaf.to_owned();
        }
        let (a, b) = (self.value(depth - 1), self.value(depth - 1));
        match self.random.below(15) {
            0 => {
                self.feature("arithmetic");
                format!("({a} + {b})")
            }
            1 => {
                self.feature("arithmetic");
                format!("(0 - {a} * 3)")
            }
            2 => {
                self.feature("DIV and %");
                format!("({a} % 7)")
            }
            3 => {
                self.feature("DIV and %");
                format!("({a} DIV {b})")
            }
            4 => {
                self.feature("bit operators");
                format!("(({a} & 12) | ({b} ^ 3))")
            }
            5 => {
                self.feature("CASE");
                format!("CASE WHEN {} THEN {a} ELSE {b} END", self.condition(depth - 1))
            }
            6 => {
                self.feature("CASE of a value");
                format!("CASE {a} WHEN 1 THEN {b} WHEN g THEN 5 END")
            }
            7 => {
                self.feature("CAST");
                format!("CAST(x + {a} AS INT)")
            }
            8 => {
                self.feature("scalar function");
                let call =
                    *self.random.pick(&["char_length(k)", "abs(v)", "dayofmonth(ts)", "month(d)"]);
                format!("ifnull({call}, {b})")
            }
            9 => {
                self.feature("scalar function");
                format!("ifnull({a}, {b})")
            }
            10 => {
                self.feature("division");
                format!("CAST({a} / {b} AS INT)")
            }
            11 => {
                self.feature("sign");
                format!("(-{a} + ~{b})")
            }
            12 => {
                self.feature("ARRAY and MAP");
                let forms = ["[{a}, {b}][1]", "map('a', {a}, 'b', {b})[k]"];
                let form = *self.random.pick(&forms);
                form.replace("{a}", &a).replace("{b}", &b)
            }
            _ => a,
        }
    }

    /// Draws a BOOL, true more often than not.
    pub(super) fn condition(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.simple_condition();
        }
        let (a, b) = (self.condition(depth - 1), self.condition(depth - 1));
        match self.random.below(6) {
            0 => {
                self.feature("AND and OR");
                format!("({a} AND {b})")
            }
            1 | 2 => {
                self.feature("AND and OR");
                format!("({a} OR {b})")
            }
            3 => {
                self.feature("NOT and XOR");
                format!("(NOT {a} XOR {b})")
            }
            _ => a,
        }
    }

    fn simple_condition(&mut self) -> String {
        let simple = [
            ("comparison", "f"),
            ("comparison", "v > -10"),
            ("comparison", "x < 5.0"),
            ("comparison", "g <> 2"),
            ("comparison", "v >= x"),
            ("IS NULL", "k IS NOT NULL"),
            ("IS NULL", "(x IS NULL OR f IS NOT NULL)"),
            ("IN", "k IN ('a', 'b', '')"),
            ("IN", "g NOT IN (2, NULL)"),
            ("BETWEEN", "v BETWEEN -15 AND g + 12"),
            ("BETWEEN", "x NOT BETWEEN 0.0 AND 1.0"),
            ("comparison", "b < 3"),
            ("comparison", "e >= 0.5"),
            ("comparison", "d > date('2020-01-02')"),
            ("IN", "n IN (1, 2, -1)"),
            ("LIKE and RLIKE", "k NOT LIKE 'a%'"),
            ("LIKE and RLIKE", "s ILIKE '%K_:%'"),
            ("LIKE and RLIKE", "k RLIKE '[a-b]?'"),
        ];
        let (feature, condition) = *self.random.pick(&simple);
        self.feature(feature);
        condition.to_owned()
    }
}
