//! Names of result columns without an alias as OpenMLDB prints them, for
//! `SET compatibility = 'openmldb'`: programs read an answer by these names.
//!
//! The binder calls it. Unlike [`crate::print`], strings have no quotes, floats six decimals,
//! operators no parentheses, and casts the engine's type names. Forms whose name in OpenMLDB is not
//! established (IS NULL, `[]`, arrays) keep the default text.

use std::fmt::{self, Write};

use crate::{
    ast::{Call, Expr, ExprKind, LikeOperator, Literal, Over, TypeName, UnaryOperator},
    print::{like_word, symbol},
};

impl Expr {
    /// Returns the name of a result column that has no alias, as OpenMLDB prints it:
    /// `id + 1.500000` for `id + 1.5`, `INT32(d)` for `int(d)`.
    pub fn openmldb_name(&self) -> String {
        match &self.kind {
            ExprKind::Column(_) => self.name(),
            _ => OpenMldbText(self).to_string(),
        }
    }
}

/// An expression that displays as OpenMLDB prints it.
struct OpenMldbText<'a>(&'a Expr);

impl fmt::Display for OpenMldbText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.kind {
            ExprKind::Literal(literal) => write_literal(f, literal),
            ExprKind::QuotedText(text) => f.write_str(text),
            ExprKind::Unary { operator, operand } => {
                let sign = match operator {
                    UnaryOperator::Plus => "",
                    UnaryOperator::Minus => "- ",
                    UnaryOperator::BitNot => "~ ",
                    UnaryOperator::Not => "NOT ",
                };
                write!(f, "{sign}{}", Self(operand))
            }
            ExprKind::Binary { operator, left, right } => {
                write!(f, "{} {} {}", Self(left), symbol(*operator), Self(right))
            }
            ExprKind::Between { operand, negated, low, high } => {
                let not = if *negated { "not  " } else { "" };
                write!(f, "{} {not}between {} and {}", Self(operand), Self(low), Self(high))
            }
            ExprKind::InList { operand, negated, items } => {
                let not = if *negated { "not " } else { "" };
                write!(f, "{} {not}in (", Self(operand))?;
                write_list(f, ",", items)?;
                f.write_char(')')
            }
            ExprKind::Like { operator, operand, negated, pattern, escape } => {
                let not = if *negated { "NOT " } else { "" };
                write_like(f, not, *operator, [operand, pattern], escape.as_deref())
            }
            ExprKind::Case { operand, branches, otherwise } => {
                write_case(f, operand.as_deref(), branches, otherwise.as_deref())
            }
            ExprKind::Cast { operand, to } => match type_word(to) {
                Some(word) => write!(f, "{word}({})", Self(operand)),
                None => write!(f, "{}", self.0),
            },
            ExprKind::Call(call) => write_call(f, call),
            ExprKind::Column(_)
            | ExprKind::Parameter(_)
            | ExprKind::IsNull { .. }
            | ExprKind::Index { .. }
            | ExprKind::SubQuery { .. }
            | ExprKind::Array { .. } => write!(f, "{}", self.0),
        }
    }
}

fn write_literal(f: &mut fmt::Formatter<'_>, literal: &Literal) -> fmt::Result {
    match literal {
        Literal::Null => f.write_str("null"),
        Literal::Float(value) => write!(f, "{value:.6}"),
        Literal::Double(value) => write!(f, "{value:.6}"),
        Literal::String(text) => f.write_str(text),
        other => write!(f, "{other}"),
    }
}

fn write_like(
    f: &mut fmt::Formatter<'_>,
    not: &str,
    operator: LikeOperator,
    [operand, pattern]: [&Expr; 2],
    escape: Option<&Expr>,
) -> fmt::Result {
    let word = like_word(operator);
    write!(f, "{not}{} {word} {}", OpenMldbText(operand), OpenMldbText(pattern))?;
    escape.map_or(Ok(()), |escape| write!(f, " ESCAPE {}", OpenMldbText(escape)))
}

fn write_case(
    f: &mut fmt::Formatter<'_>,
    operand: Option<&Expr>,
    branches: &[(Expr, Expr)],
    otherwise: Option<&Expr>,
) -> fmt::Result {
    f.write_str("case (")?;
    for (index, (condition, result)) in branches.iter().enumerate() {
        f.write_str(if index > 0 { ",when " } else { "when " })?;
        if let Some(operand) = operand {
            write!(f, "{} = ", OpenMldbText(operand))?;
        }
        write!(f, "{} then {}", OpenMldbText(condition), OpenMldbText(result))?;
    }
    match otherwise {
        Some(otherwise) => write!(f, ") else {}", OpenMldbText(otherwise)),
        None => f.write_str(") else null"),
    }
}

fn write_call(f: &mut fmt::Formatter<'_>, call: &Call) -> fmt::Result {
    let name = call.name.text.to_lowercase();
    match cast_word(&name).filter(|_| call.arguments.len() == 1) {
        Some(word) => f.write_str(word)?,
        None => f.write_str(&name)?,
    }
    f.write_char('(')?;
    if call.star {
        f.write_str(if call.arguments.is_empty() { "*" } else { "*, " })?;
    }
    if call.distinct {
        f.write_str("DISTINCT ")?;
    }
    write_list(f, ", ", &call.arguments)?;
    f.write_char(')')?;
    match &call.over {
        None => Ok(()),
        Some(Over::Named(window)) => write!(f, "over {window}"),
        Some(Over::Spec(_)) => f.write_str("over ANONYMOUS_WINDOW "),
    }
}

fn write_list(f: &mut fmt::Formatter<'_>, between: &str, items: &[Expr]) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(between)?;
        }
        write!(f, "{}", OpenMldbText(item))?;
    }
    Ok(())
}

fn type_word(to: &TypeName) -> Option<&'static str> {
    if to.arguments.is_empty() { cast_word(&to.name.text.to_lowercase()) } else { None }
}

/// Returns the engine's name of a type, which is also the name of its cast function.
fn cast_word(name: &str) -> Option<&'static str> {
    Some(match name {
        "bool" | "boolean" => "BOOL",
        "smallint" | "int16" | "i16" => "INT16",
        "int" | "integer" | "int32" | "i32" => "INT32",
        "bigint" | "int64" | "i64" => "INT64",
        "float" => "FLOAT",
        "double" => "DOUBLE",
        "string" | "varchar" => "STRING",
        "timestamp" => "TIMESTAMP",
        "date" => "DATE",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use crate::parse_expression;

    fn check(sql: &str, expected: &str) {
        assert_eq!(parse_expression(sql).unwrap().openmldb_name(), expected, "{sql}");
    }

    #[test]
    fn literals_and_operators_have_no_quotes_and_no_parentheses() {
        check("id + 1.5", "id + 1.500000");
        check("1e-7", "0.000000");
        check("1.0f", "1.000000");
        check("concat(s, 'x')", "concat(s, x)");
        check("'abc'", "abc");
        check("(id + 1) * 2", "id + 1 * 2");
        check("-id", "- id");
        check("+id", "id");
        check("~id", "~ id");
        check("NULL", "null");
        check("t.c1", "c1");
    }

    #[test]
    fn casts_have_the_names_of_the_engine() {
        check("int(d)", "INT32(d)");
        check("bigint(id)", "INT64(id)");
        check("CAST(id AS STRING)", "STRING(id)");
        check("timestamp(l)", "TIMESTAMP(l)");
        check("double('1.5')", "DOUBLE(1.5)");
        check("string(sum(id) OVER w)", "STRING(sum(id)over w)");
    }

    #[test]
    fn conditions_are_in_lower_case() {
        check("id IN (1, 2)", "id in (1,2)");
        check("id BETWEEN 1 AND 2", "id between 1 and 2");
        check("id NOT BETWEEN 1 AND 2", "id not  between 1 and 2");
        check("s LIKE 'a%'", "s LIKE a%");
        check("s NOT LIKE 'a%'", "NOT s LIKE a%");
        check("CASE WHEN b THEN 1 ELSE 2 END", "case (when b then 1) else 2");
        check(
            "CASE id WHEN 1 THEN 'a' WHEN 2 THEN 'b' END",
            "case (when id = 1 then a,when id = 2 then b) else null",
        );
    }

    #[test]
    fn a_window_without_a_name_is_anonymous() {
        check("ew_avg(d, 0.5) OVER w", "ew_avg(d, 0.500000)over w");
        check(
            "sum(id) OVER (PARTITION BY k ORDER BY ts ROWS 1 PRECEDING)",
            "sum(id)over ANONYMOUS_WINDOW ",
        );
    }
}
